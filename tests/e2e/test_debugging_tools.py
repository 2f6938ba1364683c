"""grpcurl and `buf curl` work against the server and against plugins, without any proto file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.json_format import Parse

from sagentry.api.admin.v1 import admin_service_pb2 as admin_pb
from sagentry.api.plugin.v1 import message_preprocessor_pb2 as preprocessor_pb
from sagentry.api.plugin.v1 import plugin_pb2
from sagentry.api.type.v1 import message_pb2
from tests.support.debugging_tools import BufCurl, Grpcurl, buf_curl, new_grpcurl, old_grpcurl
from tests.support.serve import serving, wait_healthy
from tests.support.servers import short_folder
from tests.support.upper_plugin import config_with, launched, upper_plugin

# The first run builds the newest grpcurl, a minute or two.
pytestmark = pytest.mark.timeout(600)

COMMON = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}
ADMIN = "sagentry.api.admin.v1.AdminService"
PLUGIN = "sagentry.api.plugin.v1.PluginService"
PREPROCESSOR = "sagentry.api.plugin.v1.MessagePreprocessorService"
SERVICES = {
    "server": COMMON
    | {ADMIN, "sagentry.api.agent.v1.AgentService", "sagentry.api.agent.v1.EventService"},
    "plugin": COMMON | {PLUGIN, PREPROCESSOR},
}

SHOUT = """{
  "context": {
    "request_id": "r-1",
    "conversation_id": "c-1",
    "scope": {"scoped": {"tenant": "acme"}}
  },
  "message": {"role": "ROLE_USER", "parts": [{"text": {"text": "quiet"}}]}
}"""

old = pytest.param(old_grpcurl, id="grpcurl-old-v1alpha")
new = pytest.param(new_grpcurl, id="grpcurl-new-v1", marks=pytest.mark.go)
buf_v1 = pytest.param(buf_curl("grpc-v1"), id="buf-v1")
buf_v1alpha = pytest.param(buf_curl("grpc-v1alpha"), id="buf-v1alpha")
every_tool = pytest.mark.parametrize("tool", [old, new, buf_v1, buf_v1alpha], indirect=True)
every_grpcurl = pytest.mark.parametrize("tool", [old, new], indirect=True)
everywhere = pytest.mark.parametrize(
    "place",
    [(kind, transport) for kind in ("server", "plugin") for transport in ("unix", "tcp")],
    ids="-".join,
)
over_both = pytest.mark.parametrize("transport", ["unix", "tcp"])

Place = tuple[str, str]


@dataclass(frozen=True)
class World:
    """A server that has launched one plugin and is connected with another, by TCP."""

    targets: dict[Place, str]


@pytest.fixture
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Grpcurl | BufCurl:
    made: Grpcurl | BufCurl = request.param(tmp_path)
    return made


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with short_folder() as folder, upper_plugin(folder) as (_, plugin):
        config = config_with(folder, launched=launched(), remote=f"dns:///{plugin}")
        listen = ("--listen", f"unix:{folder}/s.sock", "--listen", "127.0.0.1:0")
        with serving(folder, "--config", config, *listen) as (_, [unix, tcp]):
            wait_healthy(unix)
            [socket] = (folder / "data" / "run").glob("*/p.sock")
            yield World(
                {
                    ("server", "unix"): unix,
                    ("server", "tcp"): tcp,
                    ("plugin", "unix"): f"unix:{socket}",
                    ("plugin", "tcp"): plugin,
                }
            )


@every_tool
@everywhere
def test_lists_all_services(world: World, tool: Grpcurl | BufCurl, place: Place) -> None:
    assert tool.list_services(world.targets[place]) == SERVICES[place[0]]


@every_tool
@everywhere
def test_lists_the_methods_of_a_service(
    world: World, tool: Grpcurl | BufCurl, place: Place
) -> None:
    name = {"server": ADMIN, "plugin": PLUGIN}[place[0]]
    service = descriptor_pool.Default().FindServiceByName(name)

    listed = tool.list_methods(world.targets[place], name)

    assert listed == {method.name for method in service.methods}


@every_grpcurl
@pytest.mark.parametrize(
    ("kind", "service"), [("server", ADMIN), ("plugin", PLUGIN), ("plugin", PREPROCESSOR)]
)
@over_both
def test_describes_a_service(
    world: World, tool: Grpcurl, transport: str, kind: str, service: str
) -> None:
    text = tool.describe(world.targets[kind, transport], service)

    for method in descriptor_pool.Default().FindServiceByName(service).methods:
        signature = f"rpc {method.name} ( .{method.input_type.full_name} )"
        assert f"{signature} returns ( .{method.output_type.full_name} );" in text


@every_grpcurl
@everywhere
def test_describes_a_message_with_a_oneof_and_one_with_an_enum(
    world: World, tool: Grpcurl, place: Place
) -> None:
    for message in (message_pb2.Part.DESCRIPTOR, message_pb2.Message.DESCRIPTOR):
        shows(tool.describe(world.targets[place], message.full_name), message)


@every_grpcurl
@pytest.mark.parametrize(
    ("kind", "method"),
    [("server", f"{ADMIN}.ListPlugins"), ("plugin", f"{PLUGIN}.GetPluginInfo")],
)
@over_both
def test_describes_a_method(
    world: World, tool: Grpcurl, transport: str, kind: str, method: str
) -> None:
    text = tool.describe(world.targets[kind, transport], method)

    assert f"rpc {method.rpartition('.')[2]} ( ." in text


@every_grpcurl
@everywhere
def test_describes_an_enum(world: World, tool: Grpcurl, place: Place) -> None:
    shows(
        tool.describe(world.targets[place], "sagentry.api.type.v1.Role"),
        message_pb2.Role.DESCRIPTOR,
    )


@every_grpcurl
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@everywhere
def test_describes_reflection_itself(
    world: World, tool: Grpcurl, place: Place, version: str
) -> None:
    package = f"grpc.reflection.{version}"

    service = tool.describe(world.targets[place], f"{package}.ServerReflection")
    request = tool.describe(world.targets[place], f"{package}.ServerReflectionRequest")

    assert f"stream .{package}.ServerReflectionRequest" in service
    assert "oneof message_request {" in request
    assert f".{package}.ExtensionRequest file_containing_extension" in request


@every_tool
@over_both
def test_calls_the_server(world: World, tool: Grpcurl | BufCurl, transport: str) -> None:
    done = tool.ask(world.targets["server", transport], f"{ADMIN}/ListPlugins", "{}")

    assert done.returncode == 0, done.stderr
    response = Parse(done.stdout, admin_pb.ListPluginsResponse())
    assert [plugin.name for plugin in response.plugins] == ["launched", "remote"]
    assert {plugin.state for plugin in response.plugins} == {admin_pb.PLUGIN_STATE_ATTACHED}


@every_tool
@over_both
def test_asks_a_plugin_who_it_is(world: World, tool: Grpcurl | BufCurl, transport: str) -> None:
    request = '{"context": {"request_id": "r-1"}}'

    done = tool.ask(world.targets["plugin", transport], f"{PLUGIN}/GetPluginInfo", request)

    assert done.returncode == 0, done.stderr
    response = Parse(done.stdout, plugin_pb2.GetPluginInfoResponse())
    assert (response.request_id, response.name) == ("r-1", "com.example.upper")
    assert [contract.service for contract in response.contracts] == [PREPROCESSOR]


@every_tool
@over_both
def test_calls_a_contract_of_a_plugin(
    world: World, tool: Grpcurl | BufCurl, transport: str
) -> None:
    method = f"{PREPROCESSOR}/PreprocessMessage"

    done = tool.ask(world.targets["plugin", transport], method, SHOUT)

    assert done.returncode == 0, done.stderr
    response = Parse(done.stdout, preprocessor_pb.PreprocessMessageResponse())
    assert response.accepted.llm_message.parts[0].text.text == "QUIET"


@every_tool
@over_both
def test_shows_why_the_server_refuses(
    world: World, tool: Grpcurl | BufCurl, transport: str
) -> None:
    target = world.targets["server", transport]

    done = tool.ask(target, f"{ADMIN}/GetPlugin", '{"name": "nobody"}')

    assert done.returncode != 0
    failure = tool.failure(done.stderr)
    assert failure.code == "notfound"
    assert (failure.info.domain, failure.info.reason) == ("sagentry", "PLUGIN_NOT_FOUND")
    assert failure.info.metadata["known"] == "launched,remote"


@every_tool
@over_both
def test_shows_why_a_plugin_refuses(world: World, tool: Grpcurl | BufCurl, transport: str) -> None:
    target = world.targets["plugin", transport]

    done = tool.ask(target, f"{PREPROCESSOR}/PreprocessMessage", "{}")

    assert done.returncode != 0
    failure = tool.failure(done.stderr)
    assert failure.code == "invalidargument"
    assert (failure.info.domain, failure.info.reason) == ("com.example.upper", "FIELD_INVALID")


@every_tool
def test_speaks_the_version_of_reflection_that_its_name_says(
    request: pytest.FixtureRequest, tool: Grpcurl | BufCurl
) -> None:
    listen = ("--listen", "127.0.0.1:0", "--log-level", "debug")
    with short_folder() as folder:
        log = folder / "log"
        with log.open("w") as errors, serving(folder, *listen, errors=errors) as (_, [address]):
            tool.list_services(address)

        used = set(re.findall(r"method=/?grpc\.reflection\.(\w+)\.", log.read_text()))

    assert used == {request.node.callspec.id.rpartition("-")[2]}


def shows(text: str, symbol: Descriptor | EnumDescriptor) -> None:
    """Asserts that a description has every field with its number, every oneof, every enum value."""
    if isinstance(symbol, EnumDescriptor):
        lines = [f"{value.name} = {value.number};" for value in symbol.values]
    else:
        lines = [f" {field.name} = {field.number}" for field in symbol.fields]
        lines += [f"oneof {oneof.name} {{" for oneof in symbol.oneofs]
    assert [line for line in lines if line not in text] == []
