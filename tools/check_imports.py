"""Refuses imports against the architecture: who may know whom, as data.

A rule says what a set of our modules may or may never import, directly. Because the rules close over our
own modules (a module that may not know grpc may only import modules that may not either), direct imports
are enough. Imports inside functions and for the type checker alone count; so do the literal names given
to `importlib.import_module`. A rule about modules that do not exist yet applies once they do.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tracked

ROOTS = ("protos", "server", "plugins/python", "clients/python")
STDLIB = "<stdlib>"

GRPC = ("grpc", "grpc.*", "grpc_*", "grpc_*.*")
PROTOBUF = ("google.*", "*_pb2", "*_pb2_grpc", "sagentry.api", "sagentry.api.*")
LANGCHAIN = ("langchain*", "langsmith*")
SQL = ("sqlalchemy", "sqlalchemy.*", "aiosqlite*", "asyncpg*", "psycopg*", "alembic*")
TERMINAL = ("click", "click.*", "rich", "rich.*")
EXTRAS = (*TERMINAL, *SQL, *LANGCHAIN, "pydantic*", "yaml", "yaml.*")


def ours(*names: str) -> tuple[str, ...]:
    """Patterns for packages of ours and everything in them."""
    return tuple(
        pattern for name in names for pattern in (f"sagentry.{name}", f"sagentry.{name}.*")
    )


CORE = ours(
    "server.domain", "server.errors", "server.ports", "server.model_ports", "server.stream_ports"
)
PARTS = ours("server.agent", "server.events", "server.journal", "server.middleware", "server.tools")
EDGES = ours("server.rpc", "server.plugin", "server.model", "server.app", "server.command")
BASE = ours("client", "plugins.sdk", "plugins.check")


@dataclass(frozen=True)
class Rule:
    why: str
    modules: tuple[str, ...]
    """Patterns of the modules that it is about."""
    only: tuple[str, ...] | None = None
    """If given, every import matches one of these; of our own modules alone with `only_ours`."""
    never: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    """Modules that the rule is not about although a pattern names them."""
    only_ours: bool = False


RULES = (
    Rule(
        "the domain is the standard library and itself",
        ours("server.domain"),
        only=(STDLIB, *ours("server.domain")),
    ),
    Rule(
        "errors and ports speak in domain terms",
        ours("server.errors", "server.ports", "server.model_ports", "server.stream_ports"),
        only=(STDLIB, *CORE),
    ),
    Rule(
        "the parts of an agent know ports, not techniques",
        PARTS,
        never=(*GRPC, *PROTOBUF, *LANGCHAIN, *SQL, *EDGES),
    ),
    Rule(
        "only the model adapters know langchain",
        ours("server"),
        besides=ours("server.model"),
        never=LANGCHAIN,
    ),
    Rule(
        "the model adapters know neither the wire nor the agent",
        ours("server.model"),
        never=(
            *GRPC,
            *PROTOBUF,
            *ours("server.agent", "server.rpc", "server.plugin", "server.app"),
        ),
    ),
    Rule(
        "inside the server only plugin/ and rpc/ see protobuf and the contract, and what they share",
        ours("server"),
        besides=ours("server.plugin", "server.rpc", "server.wire"),
        never=(*PROTOBUF, *ours("server.wire")),
    ),
    Rule(
        "the shared conversions know the contract's types and the domain",
        ours("server.wire"),
        only=(
            STDLIB,
            "google.*",
            *ours("server.domain", "server.errors", "server.wire", "api.type"),
        ),
    ),
    Rule(
        "plugin/ and rpc/ do not know each other",
        ours("server.plugin"),
        never=ours("server.rpc", "server.app", "server.agent"),
    ),
    Rule(
        "plugin/ and rpc/ do not know each other",
        ours("server.rpc"),
        never=ours("server.plugin", "server.app", "server.model"),
    ),
    Rule(
        "concrete classes are named by the app alone",
        ours("server"),
        besides=ours("server.app", "server.app_agents", "server.command", "server.__main__"),
        never=ours("server.app", "server.app_agents", "server.command"),
    ),
    Rule(
        "server, plugins and clients share nothing but the contract",
        ours("server"),
        only=ours("server", "api"),
        only_ours=True,
    ),
    Rule(
        "server, plugins and clients share nothing but the contract",
        ours("plugins"),
        only=ours("plugins", "api"),
        only_ours=True,
    ),
    Rule(
        "server, plugins and clients share nothing but the contract",
        ours("client"),
        only=ours("client", "api"),
        only_ours=True,
    ),
    Rule(
        "the command line knows the client and its words; other commands come by entry point",
        ours("cli"),
        only=ours("cli", "client", "api"),
        only_ours=True,
    ),
    Rule(
        "the contract knows nobody",
        ours("api"),
        only=ours("api"),
        only_ours=True,
    ),
    Rule(
        "the base works without any extra",
        BASE,
        never=EXTRAS,
    ),
    Rule(
        "the plugin SDK is for any plugin: it knows no plugin of ours",
        ours("plugins.sdk"),
        only=ours("plugins.sdk", "api"),
        only_ours=True,
    ),
    Rule(
        "a plugin only needs the SDK",
        ours("plugins"),
        besides=ours("plugins.sql"),
        never=SQL,
    ),
)


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def module_name(path: Path) -> str | None:
    """The dotted name of a source file, or nothing if it is below none of the source roots."""
    for root in ROOTS:
        if path.is_relative_to(root):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return None


def imports(tree: ast.AST, module: str, *, package: bool) -> Iterator[tuple[int, str]]:
    """Every imported name with its line. `from a import b` yields `a` and, of ours, `a.b` as well."""
    base = module.split(".") if package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = base[: len(base) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            named = [f"{source}.{alias.name}" for alias in node.names]
            yield from (
                (node.lineno, name) for name in (named if source == "sagentry" else [source])
            )
            if source.startswith(("sagentry.", "google")):
                yield from ((node.lineno, name) for name in named)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def allowed(rule: Rule, imported: str) -> bool:
    if matches(imported, rule.never):
        return False
    top = imported.partition(".")[0]
    if rule.only is None or (rule.only_ours and top != "sagentry"):
        return True
    if STDLIB in rule.only and top in sys.stdlib_module_names:
        return True
    return matches(imported, rule.only)


def problems(root: Path) -> list[str]:
    lines: dict[str, None] = {}
    for path in tracked.files(root):
        module = module_name(path) if path.suffix == ".py" else None
        if module is None or tracked.is_generated(path):
            continue
        rules = [r for r in RULES if matches(module, r.modules) and not matches(module, r.besides)]
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        for line, imported in imports(tree, module, package=path.name == "__init__.py"):
            for rule in rules:
                if not allowed(rule, imported):
                    lines[f"{path}:{line}: {module} imports {imported}: {rule.why}"] = None
    return list(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    lines = problems(parser.parse_args().root)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
