"""Refuses registry hosts, index options of installers, and paths of somebody's machine in tracked files.

A lock that names a registry only works where that registry is reached, so locks carry pins and hashes
alone. The hosts are kept as hashes: this file is tracked too.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tracked

HOSTS = frozenset(
    {
        "00a7dc5a0cc388586b8665846e7d8ae94a6dd096f2aa1aa3b4aab4ac484f998a",
        "048e76c14ef34200a2fd1bff13c584ea0770b46ab008f537a9cb62637655eb2b",
        "095fbbaf0076d564cb46efd353d5380e6ae0f19f90e7c69543ecf3888d060ba0",
        "0fd460f0568e29c129d5164443c22dc23e1fa5ade91d6cc915a0c74ce08fba57",
        "1ba4e37997a2e986efa6cd844e43fd25b9e816359d31612baa9c18b71e3b5294",
        "271dacc9f4d0caf8ff708d7751532df465f1b6bf192cc169e6afc639faed6894",
        "2e97613f5a81eaa4f8a58f552a005713c0c8f333e026efb7771ad28429532374",
        "317d2d52829b78129d2c9e43d001899f0c8d30968bae00b848a47154df56b0ca",
        "3530c4415dd857fb74a542a51c41453902e3a51739cd5f266999c93cc0022aab",
        "386c042daaf7f1eb6ebb565150082bfb4531a77ec75b31abacfe3857a29a211c",
        "3ca29e55be4befa48f875d24c27f9bed32fe06588819ed6264084b6670a1ebb0",
        "43c04ed1dabe979b9c552549bf0ab023abd3e1cc6d5ff7f42cfa2296b0973a67",
        "4a8b734fb5be77bc1ea26f7e3d94c83cea4cbd290d3f70f6a4a38b6af2bae501",
        "4db460c55b85212e50a70cadcb10c5fc3c32382ed9896a3730423469d2e05619",
        "4f247acdba6480ead77619606edee0be30f80bc591df5f8b4ff1d4f2b6f601e1",
        "57e5b76ee2abe1abf5894f03d950a52ae60fb070f3f7461ec7e699077ed8d3f5",
        "70bb4000cd2fab03af01fed086c6bf3c2c970f8b8b8001c311028ec3b80e775a",
        "70cca582c4895337b234bb640fa2c13c72816d8ea4f6d8f679607a2e9c414ccb",
        "71741fe2460a615058687c4585f665af5e825968e51a512ffb14c6f2684a397d",
        "789e46d79514e28093cabe2bb4a0798266f584b0e508ef269ebabb6e57859290",
        "8743857e3ea00fd1c64bbc68b8af241954ad2c285e7a60340eec7ea5dcb200db",
        "8b5bb5eb9d758455b8635855cf8aaf05b68775e3f83f0291e800ef338fb9783c",
        "9495278a74715c7e246a36404b3589f0f2f0b564defdec00b228aa07ecb515e0",
        "9da5f32d964125123cc368f231b473bea59307f811c7b9b2e731601e586b82b5",
        "a0f007d863a0ed19c5bd996ef6eaab194af2f1ac685c0f71a75270a0366f8983",
        "a4aa2ac280bb8d1a0ce7a1be5a7bfb10292b49fe9435ad5cff19f421f3c70e41",
        "aa924a6f6c848636266515fc0609fb2cb280908305487ce95a6c106de826386c",
        "b18b7bf677c9e874ec01f2fa15963e3d08cf89869395c619a4daf3a08fd86a2f",
        "be57af6b78a7facae64f87c4f9230a273a036b2a192a16104abb469385e28f46",
        "c2b35955576ffa710bfb7c4e5de8141335829cb1333377cbaf7daaeff9647b35",
        "d6d7019ca9fcbf07c769e445342515ef0c92e4f18a96adbb3bf6460f5b0ba17f",
        "e514b0d3b0562f54b6622ba95659592c26a4f6473677346ffba9e876eee160ef",
        "e680c440a2e92079ab1bf7a927e8d3920f1bcd173c0487e28e020110b2e59efc",
        "e83cc4bcd94e4ed54ac0180a4accddaca7dfd0e8668b2e758274eecf9f83743a",
        "ea0d3d5c3c27a0ba3ec9042d12006492b7a92f31857695c3680da6dfa0fc6e21",
        "f65219c547f9c032a914ee1f7c955347b58b47d17eb867c6fe148595947e5a5a",
    }
)
"""SHA-256 of the names of package registries and their download hosts: of Python, npm, Go, Rust, Maven,
Debian, protos and container images. A host below one of them counts as well."""

HOST = re.compile(r"(?<![\w.-])(?:[a-z0-9-]+\.)+[a-z]{2,}(?![\w-])", re.IGNORECASE)
LOCKS = re.compile(
    r"(requirements.*\.(lock|txt)|package-lock\.json|npm-shrinkwrap\.json|.*\.lock)$"
)
LOCK_ADDRESS = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host|\"resolved\"\s*:|://")
MACHINE_PATH = re.compile(r"(?<![\w.~)}\]>*-])/(?:root|home|Users|work)/[\w.-]+|\b[A-Z]:\\Users\\")
FUNDING = re.compile(r"\"(url|funding|license|homepage)\"\s*:")
"""What a lock of npm says about a package's authors; not an address that anything is fetched from."""


def digest(host: str) -> str:
    return hashlib.sha256(host.lower().encode()).hexdigest()


def is_registry(host: str) -> bool:
    """Whether a host, or a domain that it belongs to, is a registry's."""
    labels = host.split(".")
    return any(digest(".".join(labels[start:])) in HOSTS for start in range(len(labels) - 1))


def problems_of_line(path: Path, line: str) -> Iterator[str]:
    for match in HOST.finditer(line):
        if is_registry(match[0]):
            yield f"names the registry host {match[0]}"
    if LOCKS.fullmatch(path.name) and LOCK_ADDRESS.search(line) and not FUNDING.search(line):
        yield "a lock with an address or an index option"
    if found := MACHINE_PATH.search(line):
        yield f"names a path of one machine: {found[0]}"


def problems(root: Path) -> list[str]:
    lines = []
    for path in tracked.files(root):
        text = tracked.text_of(root / path)
        for number, line in enumerate((text or "").splitlines(), 1):
            lines += [f"{path}:{number}: {problem}" for problem in problems_of_line(path, line)]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    lines = problems(parser.parse_args().root)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
