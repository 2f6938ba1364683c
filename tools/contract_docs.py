"""Writes the contract as pages: one for each proto file, and an index.

The comments are Markdown already and go in as they are; types become links.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from contract import EnumDoc, FieldDoc, FileDoc, MessageDoc, MethodDoc, ServiceDoc, load

T = TypeVar("T")

API = "sagentry.api."
NOTICE = "<!-- Made from the protos by `make proto`. Change the comments there. -->"


def page_name(file: FileDoc) -> str:
    """`sagentry/api/plugin/v1/plugin.proto` is described by `plugin.v1.plugin.md`."""
    package = file.package.removeprefix(API)
    return f"{package}.{Path(file.path).stem}.md"


def first_sentence(comment: str) -> str:
    """The summary of a comment, on one line."""
    paragraph = comment.split("\n\n", 1)[0].replace("\n", " ")
    return re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0]


def cell(comment: str) -> str:
    """A comment as it fits into a table: paragraphs apart, everything else on one line."""
    paragraphs = re.split(r"\n\s*\n", comment)
    text = "<br>".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def summary(comment: str) -> str:
    return cell(first_sentence(comment))


@dataclass
class Anchors:
    """The anchors that a Markdown viewer gives the headings of one page, in their order."""

    seen: Counter[str] = field(default_factory=Counter)

    def take(self, heading: str) -> str:
        """Returns the anchor of the next heading."""
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        repeated = self.seen[slug]
        self.seen[slug] += 1
        return f"{slug}-{repeated}" if repeated else slug


def headings(file: FileDoc) -> Iterator[tuple[str, str]]:
    """Every heading of a page in order, with the full name of the type it is about or nothing."""
    yield title(file), ""
    for service in file.services:
        yield service.name, ""
        for method in service.methods:
            yield method.name, ""
    for name, described in (("Messages", file.messages), ("Enums", file.enums)):
        if described:
            yield name, ""
        for item in described:
            yield item.name, item.full_name


def title(file: FileDoc) -> str:
    return f"{file.package.removeprefix(API)}: {Path(file.path).name}"


def links(files: Sequence[FileDoc]) -> dict[str, str]:
    """Where each type is described, by its full name."""
    targets = {}
    for file in files:
        anchors = Anchors()
        for heading, full_name in headings(file):
            anchor = anchors.take(heading)
            if full_name:
                targets[full_name] = f"{page_name(file)}#{anchor}"
    return targets


class Page:
    """Builds the text of one file's page."""

    def __init__(self, file: FileDoc, targets: dict[str, str]) -> None:
        self._file = file
        self._targets = targets
        self._parts: list[str] = []

    def text(self) -> str:
        """Returns the whole page."""
        file = self._file
        self._add(f"# {title(file)}", NOTICE, file.comment, f"File: `protos/{file.path}`")
        for service in file.services:
            self._service(service)
        self._section("Messages", file.messages, self._message)
        self._section("Enums", file.enums, self._enum)
        return "\n\n".join(self._parts) + "\n"

    def _add(self, *parts: str) -> None:
        self._parts.extend(part for part in parts if part)

    def _section(self, name: str, items: Sequence[T], describe: Callable[[T], None]) -> None:
        if items:
            self._add(f"## {name}")
        for item in items:
            describe(item)

    def _link(self, full_name: str) -> str:
        local = full_name.removeprefix(self._file.package + ".")
        shown = local.removeprefix(API)
        target = self._targets.get(full_name)
        if target is None:
            return f"`{shown}`"
        page, _, anchor = target.partition("#")
        return f"[`{shown}`]({'' if page == page_name(self._file) else page}#{anchor})"

    def _service(self, service: ServiceDoc) -> None:
        rows = [
            f"| [`{method.name}`](#{method.name.lower()}) | {summary(method.comment)} |"
            for method in service.methods
        ]
        self._add(f"## {service.name}", f"Full name: `{service.full_name}`", service.comment)
        self._add("\n".join(["| RPC | |", "| --- | --- |", *rows]))
        for method in service.methods:
            self._method(method)

    def _method(self, method: MethodDoc) -> None:
        request = ("stream of " if method.request_stream else "") + self._link(method.request)
        response = ("stream of " if method.response_stream else "") + self._link(method.response)
        self._add(f"### {method.name}", f"{request} → {response}", method.comment)

    def _message(self, message: MessageDoc) -> None:
        self._add(f"### {message.name}", message.comment)
        if not message.fields:
            return
        rows = ["| Field | Type | Meaning |", "| --- | --- | --- |"]
        comments = {oneof.name: oneof.comment for oneof in message.oneofs}
        shown = ""
        for item in message.fields:
            if item.oneof and item.oneof != shown:
                meaning = cell(f"One of the following. {comments[item.oneof]}")
                rows.append(f"| oneof `{item.oneof}` | | {meaning} |")
            shown = item.oneof
            rows.append(self._field(item))
        self._add("\n".join(rows))

    def _field(self, item: FieldDoc) -> str:
        kind = f"`{item.type_name}`" if "." not in item.type_name else self._link(item.type_name)
        name = f"{'↳ ' if item.oneof else ''}`{item.name}` = {item.number}"
        return f"| {name} | {f'{item.label} {kind}'.strip()} | {cell(item.comment)} |"

    def _enum(self, enum: EnumDoc) -> None:
        rows = [
            f"| `{value.name}` = {value.number} | {cell(value.comment)} |" for value in enum.values
        ]
        self._add(f"### {enum.name}", enum.comment)
        self._add("\n".join(["| Value | Meaning |", "| --- | --- |", *rows]))


def index(files: Sequence[FileDoc]) -> str:
    """The page that lists the pages: services first, then the files that only hold types."""
    services = [
        f"| [`{service.full_name}`]({page_name(file)}) | {summary(service.comment)} |"
        for file in files
        for service in file.services
    ]
    types = [
        f"| [`{file.path.removeprefix('sagentry/api/')}`]({page_name(file)}) "
        f"| {summary(file.comment)} |"
        for file in files
        if not file.services
    ]
    return "\n".join(
        [
            "# The contract",
            "",
            NOTICE,
            "",
            "| Service | |",
            "| --- | --- |",
            *services,
            "",
            "| Types | |",
            "| --- | --- |",
            *types,
            "",
        ]
    )


def write(files: Sequence[FileDoc], target: Path) -> None:
    """Writes all pages into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    targets = links(files)
    for file in files:
        (target / page_name(file)).write_text(Page(file, targets).text(), encoding="utf-8")
    (target / "README.md").write_text(index(files), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("protos", type=Path, help="folder of the protos")
    parser.add_argument("target", type=Path, help="folder for the pages")
    arguments = parser.parse_args()
    write(load(arguments.protos), arguments.target)


if __name__ == "__main__":
    main()
