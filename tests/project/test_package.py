"""The wheel works where nothing else of this repository is.

Environments are made by uv from the real metadata; the cache in build/ keeps a second run quick.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel in it and nothing of this checkout."""

    folder: Path

    def run(
        self, program: str, *arguments: str, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment, away from the checkout."""
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            input=stdin,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def import_all(self, modules: list[str]) -> str:
        """Imports modules, warnings as errors for ours; what went wrong, or nothing."""
        source = "\n".join(f"import {module}" for module in modules)
        return self.run("python", "-c", source).stderr


def uv(*arguments: str | Path) -> None:
    cache = ROOT / "build" / "uv-cache"
    environment = os.environ | {"UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never"}
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    command = [str(Path(sys.executable).with_name("uv")), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def make_environment(folder: Path, wheel: Path, *extras: str, resolution: str) -> Environment:
    """Makes an environment with the direct dependencies at their lowest or newest, then the wheel."""
    python = folder / "bin" / "python"
    chosen = [argument for extra in extras for argument in ("--extra", extra)]
    uv("venv", "--quiet", "--python", sys.executable, folder)
    install = ["pip", "install", "--quiet", "--python", str(python)]
    uv(*install, "--resolution", resolution, "--requirements", "pyproject.toml", *chosen)
    uv(*install, "--no-deps", str(wheel))
    return Environment(folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as `python -m build` does."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def files(wheel: Path) -> list[str]:
    """The names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def terminal(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The base and `[cli]`."""
    folder = tmp_path_factory.mktemp("terminal")
    return make_environment(folder, wheel, "cli", resolution="highest")


def modules_of(files: list[str], *packages: str) -> list[str]:
    """The public modules of some packages of ours, by import name."""
    paths = [Path(name).with_suffix("") for name in files if name.endswith(".py")]
    names = [".".join(p.parts[:-1] if p.name == "__init__" else p.parts) for p in paths]
    prefixes = tuple(f"sagentry.{package}" for package in packages)
    return [name for name in names if name.startswith(prefixes) and "._" not in name]


def test_wheel_has_the_contract_with_its_protos_and_types(files: list[str]) -> None:
    protos = {str(path.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto")}

    assert protos <= set(files)
    assert "sagentry/api/py.typed" in files
    assert "sagentry/api/type/v1/scope_pb2.pyi" in files


def test_wheel_has_every_module_of_every_source_root(files: list[str]) -> None:
    roots = [ROOT / root for root in ("protos", "server", "plugins/python", "clients/python")]

    modules = {
        str(path.relative_to(root)) for root in roots for path in (root / "sagentry").rglob("*.py")
    }

    assert modules <= set(files)
    assert "sagentry/__init__.py" not in files


def test_wheel_has_nothing_but_the_namespace(files: list[str]) -> None:
    top = {name.split("/")[0] for name in files}

    assert {name for name in top if not name.endswith(".dist-info")} == {"sagentry"}


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_all_public_modules_import_with_the_ends_of_what_is_allowed(
    wheel: Path, files: list[str], tmp_path: Path, resolution: str
) -> None:
    environment = make_environment(tmp_path, wheel, "cli", "server", resolution=resolution)

    assert environment.import_all(modules_of(files, "")) == ""


def test_base_imports_without_any_extra(wheel: Path, files: list[str], tmp_path: Path) -> None:
    environment = make_environment(tmp_path, wheel, resolution="highest")

    assert (
        environment.import_all(modules_of(files, "api", "client", "plugins.sdk", "plugins.check"))
        == ""
    )


def test_command_line_explains_itself_without_the_server(terminal: Environment) -> None:
    done = terminal.run("sagentry", "--help")

    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
    assert "plugin" in done.stdout


def test_plugin_list_runs_without_the_server_installed(terminal: Environment) -> None:
    done = terminal.run("sagentry", "plugin", "list", "--server", "unix:nobody.sock")

    assert "Traceback" not in done.stderr
    assert "sagentry[" not in done.stderr, "it lacks no extra"
    assert done.returncode == 2
    assert "no server answers at unix:nobody.sock" in done.stderr


def test_serve_without_its_extra_prints_the_one_install_line(terminal: Environment) -> None:
    done = terminal.run("sagentry", "serve")

    assert done.returncode == 2
    assert "sagentry[server]" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
