"""Asks a server which plugins it has, and shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import grpc
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sagentry.api.admin.v1 import admin_service_pb2 as admin_pb
from sagentry.api.admin.v1 import admin_service_pb2_grpc as admin_grpc

EXIT_NOT_ATTACHED = 1
EXIT_UNREACHABLE = 2

DEFAULT_ADDRESS = "127.0.0.1:7433"

_SECONDS = 5.0
_PIPED_WIDTH = 200
_STATES = {
    admin_pb.PLUGIN_STATE_CONNECTING: ("connecting", "yellow"),
    admin_pb.PLUGIN_STATE_ATTACHED: ("attached", "green"),
    admin_pb.PLUGIN_STATE_REFUSED: ("refused", "red"),
    admin_pb.PLUGIN_STATE_DEGRADED: ("degraded", "red"),
}


def default_server(data_home: str | None) -> str:
    """Returns the address of the server of this user.

    Args:
        data_home: XDG_DATA_HOME; a relative one is ignored.
    """
    home = Path(data_home or "")
    if not home.is_absolute():
        home = Path("~/.local/share").expanduser()
    path = home / "sagentry" / "sagentry.sock"
    return f"unix:{path}" if path.is_socket() else DEFAULT_ADDRESS


def list_plugins(address: str, *, as_json: bool) -> int:
    """Prints the plugins of a server; returns the exit code.

    Args:
        address: `unix:/path` or `host:port`.
        as_json: Whether programs read it.
    """
    # The server's own proxy variables are not meant for an address on this machine.
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 32 * 1024 * 1024)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            response = admin_grpc.AdminServiceStub(channel).ListPlugins(
                admin_pb.ListPluginsRequest(), timeout=_SECONDS
            )
        except grpc.RpcError as error:
            Console(stderr=True, soft_wrap=True).print(
                f"sagentry: {_problem(address, error)}", markup=False, highlight=False
            )
            return EXIT_UNREACHABLE
    if as_json:
        Console(soft_wrap=True).print(
            json.dumps({"plugins": [_as_json(each) for each in response.plugins]}, indent=2),
            markup=False,
            highlight=False,
        )
    else:
        _print_table(response.plugins)
    is_complete = all(each.state == admin_pb.PLUGIN_STATE_ATTACHED for each in response.plugins)
    return 0 if is_complete else EXIT_NOT_ATTACHED


def _print_table(plugins: Sequence[admin_pb.Plugin]) -> None:
    console = Console()
    if not console.is_terminal:
        # A pipe has no width; a narrow table would break names and targets.
        console = Console(width=_PIPED_WIDTH)
    if not plugins:
        console.print("The server has no plugins configured.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NAME", "STATE", "TARGET", "CONTRACTS", "IDENTITY"):
        table.add_column(heading, overflow="fold")
    for each in plugins:
        state, style = _STATES.get(each.state, ("unknown", "red"))
        bound = sum(contract.bound for contract in each.contracts)
        table.add_row(
            Text(each.name),
            Text(state, style),
            Text(each.target),
            Text(f"{bound}/{len(each.contracts)}"),
            Text(f"{each.identity.name} {each.identity.version}".strip() or "-"),
        )
    console.print(table)
    for each in plugins:
        if each.problem:
            reason = f" ({each.problem_reason})" if each.problem_reason else ""
            console.print(Text(f"{each.name}: {each.problem}{reason}", "red"), soft_wrap=True)
            # One clear line: that nothing is bound follows from it.
            continue
        for contract in each.contracts:
            if not contract.bound:
                console.print(Text(f"{each.name}: not bound: {contract.service}"), soft_wrap=True)


def _as_json(plugin: admin_pb.Plugin) -> dict[str, object]:
    return MessageToDict(
        plugin, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _problem(address: str, error: grpc.RpcError) -> str:
    assert isinstance(error, grpc.Call)  # noqa: S101  what grpcio raises is both
    text = " ".join((error.details() or "").split())
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no server answers at {address}: {text}"
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"{address} answers, but is no Sagentry server"
        case code:
            return f"the server at {address} refuses: {code.name}: {text}"
