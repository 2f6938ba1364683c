"""Refuses hand-written files over 500 lines and Python functions over 60.

Protos are exempt by rule: their comments are the contract, and the contract of one service stays on one
page. Other exemptions stand in tools/size_exemptions.txt, each with a reason; one that is no longer
needed is refused as well, so that the list only holds what is true.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import tracked

FILE_LINES = 500
FUNCTION_LINES = 60
CODE = {".py", ".sh", ".go", ".ts", ".js", ".mjs", ".mk"}
NAMES = {"Makefile", "run"}
EXEMPTIONS = Path("tools/size_exemptions.txt")


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, int]]:
    """Every function with its qualified name and its lines, from `def` to its last."""
    for node in ast.iter_child_nodes(tree):
        name = outer
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, (node.end_lineno or node.lineno) - node.lineno + 1
        yield from functions(node, name)


def too_large(root: Path) -> dict[str, str]:
    """What is too large (`path` or `path::function`) and how it is."""
    found = {}
    for path in tracked.files(root):
        if (path.suffix not in CODE and path.name not in NAMES) or tracked.is_generated(path):
            continue
        text = (root / path).read_text(encoding="utf-8")
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            found[str(path)] = f"{lines} lines, {FILE_LINES} are allowed"
        if path.suffix == ".py":
            for name, length in functions(ast.parse(text)):
                if length > FUNCTION_LINES:
                    found[f"{path}::{name}"] = f"{length} lines, {FUNCTION_LINES} are allowed"
    return found


def exemptions(root: Path) -> tuple[set[str], list[str]]:
    """The exempted names, and what is wrong with the list."""
    path, names, problems = root / EXEMPTIONS, set(), []
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(" ")
        names.add(name)
        if not reason.strip():
            problems.append(f"{EXEMPTIONS}:{number}: {name} is exempt without a reason")
    return names, problems


def problems(root: Path) -> list[str]:
    found = too_large(root)
    exempt, lines = exemptions(root)
    lines += [f"{name}: {size}" for name, size in found.items() if name not in exempt]
    unneeded = sorted(exempt - found.keys())
    lines += [f"{EXEMPTIONS}: {name} needs no exemption any more" for name in unneeded]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    lines = problems(parser.parse_args().root)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
