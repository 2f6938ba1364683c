"""The bytes of each public message: what plugins and clients of every language were built against."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool, json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_recorded_bytes_are_read_and_written_as_on_the_day_they_were_recorded(path: Path) -> None:
    """A difference means that a program built yesterday no longer understands us, or we it."""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        title, text, raw = block.strip("\n").split("\n")
        recorded = bytes.fromhex(raw.removeprefix("-"))
        message_class = GetMessageClass(descriptor_of(title.split()[0]))

        from_bytes = message_class.FromString(recorded)
        from_json = json_format.Parse(text, message_class())

        assert from_bytes == from_json, title
        assert from_json.SerializeToString(deterministic=True) == recorded, title


def test_every_public_message_has_recorded_bytes() -> None:
    """A message without them could change unseen."""
    done = subprocess.run(
        [sys.executable, "tools/wire_golden.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def descriptor_of(full_name: str) -> Descriptor:
    """The descriptor of a message by its full name."""
    package = full_name.rsplit(".", 1)[0].removeprefix("sagentry.api.")
    folder = Path("protos/sagentry/api") / package.replace(".", "/")
    for proto in folder.glob("*.proto"):
        importlib.import_module(".".join((*folder.parts[1:], proto.stem + "_pb2")))
    pool = descriptor_pool.Default()
    found: Descriptor = pool.FindMessageTypeByName(full_name)
    return found
