"""grpcurl and `buf curl`, as somebody uses them who has no proto files."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2

from tests.support.repository import ROOT
from tests.support.toolchain import built_with_go

GRPCURL_PINS = ROOT / "tests" / "tools" / "grpcurl"
GRPCURL_PACKAGE = "github.com/fullstorydev/grpcurl/cmd/grpcurl"
SECONDS = 30


@dataclass(frozen=True)
class Failure:
    """A failed call as a tool shows it."""

    code: str
    """The status code as lower-case letters, for example `notfound`."""
    info: error_details_pb2.ErrorInfo


@dataclass(frozen=True)
class Tool:
    """A tool in an empty folder, pointed at servers.

    Attributes:
        program: The program.
        folder: Where it runs and has its home.
    """

    program: Path
    folder: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs it."""
        return subprocess.run(
            [self.program, *arguments],
            cwd=self.folder,
            env={"HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def said(self, *arguments: str) -> str:
        """Runs it and returns what it prints when all is well."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def list_services(self, target: str) -> set[str]:
        """Lists the services of a server."""
        raise NotImplementedError

    def list_methods(self, target: str, service: str) -> set[str]:
        """Lists the methods of a service."""
        raise NotImplementedError

    def ask(self, target: str, method: str, request: str) -> subprocess.CompletedProcess[str]:
        """Calls a method (`package.Service/Method`) with a request in JSON."""
        raise NotImplementedError

    def failure(self, stderr: str) -> Failure:
        """Reads what it shows of a failed call."""
        raise NotImplementedError


@dataclass(frozen=True)
class Grpcurl(Tool):
    """grpcurl; the version decides which reflection it speaks."""

    def list_services(self, target: str) -> set[str]:
        """Lists the services of a server."""
        return set(self.said(*self._to(target), "list").split())

    def list_methods(self, target: str, service: str) -> set[str]:
        """Lists the methods of a service."""
        methods = self.said(*self._to(target), "list", service).split()
        return {method.rpartition(".")[2] for method in methods}

    def describe(self, target: str, symbol: str) -> str:
        """Describes a service, a message or an enum."""
        return self.said(*self._to(target), "describe", symbol)

    def ask(self, target: str, method: str, request: str) -> subprocess.CompletedProcess[str]:
        """Calls a method (`package.Service/Method`) with a request in JSON."""
        return self.run("-d", request, *self._to(target), method)

    def failure(self, stderr: str) -> Failure:
        """Reads what it shows of a failed call."""
        code = re.search(r"Code: (\w+)", stderr)
        details = re.search(r"1\)\s*(\{.*\})", stderr, re.DOTALL)
        assert code is not None, stderr
        assert details is not None, stderr
        shown = json.JSONDecoder().raw_decode(details[1])[0]
        assert shown.pop("@type") == "type.googleapis.com/google.rpc.ErrorInfo"
        return Failure(code[1].lower(), ParseDict(shown, error_details_pb2.ErrorInfo()))

    def _to(self, target: str) -> tuple[str, ...]:
        path = target.removeprefix("unix:")
        return ("-plaintext", target) if path == target else ("-plaintext", "-unix", path)


@dataclass(frozen=True)
class BufCurl(Tool):
    """`buf curl`, told which reflection to speak. It lists and calls; it does not describe."""

    reflection: str

    def list_services(self, target: str) -> set[str]:
        """Lists the services of a server."""
        return set(self.said(*self._to(target), "--list-services", self._url(target)).split())

    def list_methods(self, target: str, service: str) -> set[str]:
        """Lists the methods of a service."""
        methods = self.said(*self._to(target), "--list-methods", self._url(target)).split()
        owned = [method.split("/") for method in methods]
        return {name for owner, name in owned if owner == service}

    def ask(self, target: str, method: str, request: str) -> subprocess.CompletedProcess[str]:
        """Calls a method (`package.Service/Method`) with a request in JSON."""
        return self.run(*self._to(target), "--data", request, f"{self._url(target)}/{method}")

    def failure(self, stderr: str) -> Failure:
        """Reads what it shows of a failed call: the details encoded, with the name of their type."""
        shown = json.loads(stderr)
        detail = shown["details"][0]
        assert detail["type"] == "google.rpc.ErrorInfo"
        value = base64.b64decode(detail["value"] + "==")
        code = shown["code"].replace("_", "")
        return Failure(code, error_details_pb2.ErrorInfo.FromString(value))

    def _to(self, target: str) -> tuple[str, ...]:
        options = ("curl", "--protocol", "grpc", "--reflect-protocol", self.reflection)
        path = target.removeprefix("unix:")
        return options if path == target else (*options, "--unix-socket", path)

    def _url(self, target: str) -> str:
        return "http://localhost" if target.startswith("unix:") else f"http://{target}"


def old_grpcurl(folder: Path) -> Grpcurl:
    """The grpcurl of the development environment: it speaks v1alpha alone."""
    program = Path(sys.executable).with_name("grpcurl")
    if not program.exists():
        pytest.skip("the package of grpcurl is for Linux on x86-64 alone")
    return Grpcurl(program, folder)


def new_grpcurl(folder: Path) -> Grpcurl:
    """The newest grpcurl, built by Go: it prefers v1."""
    return Grpcurl(built_with_go(GRPCURL_PINS, GRPCURL_PACKAGE), folder)


def buf_curl(reflection: str) -> Callable[[Path], BufCurl]:
    """`buf curl` of the development environment, with one version of reflection."""
    program = Path(sys.executable).with_name("buf")
    return lambda folder: BufCurl(program, folder, reflection)
