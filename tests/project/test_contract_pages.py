"""The pages say what the protos say: a plugin author may never see the protos themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.markdown import dead_links
from tests.support.repository import run_tool

TYPES = """// Copyright of somebody.

// What others use.
syntax = "proto3";
package sagentry.api.type.v1;

// A colour.
enum Colour {
  // Not set.
  COLOUR_UNSPECIFIED = 0;
  // The colour of
  // the sky.
  COLOUR_BLUE = 1;
}
"""
SERVICE = """// Copyright of somebody.

// Keeps paint. Written for a test.
syntax = "proto3";
package sagentry.api.plugin.v1;
import "sagentry/api/type/v1/colour.proto";

// Keeps paint.
service PaintService {
  // Watches paint dry. It takes a while.
  //
  // Errors:
  //
  // | Code / reason | When | What the host does |
  // | --- | --- | --- |
  // | `UNAVAILABLE / WET` | it is wet | waits |
  rpc WatchPaint(WatchPaintRequest) returns (stream WatchPaintResponse);
}

// Asks for paint.
message WatchPaintRequest {
  // Either `a | b`.
  //
  // Or nothing.
  repeated string names = 1;
  // How it is chosen.
  oneof choice {
    // By colour.
    sagentry.api.type.v1.Colour colour = 2;
    // By tin.
    Tin tin = 3;
  }
  // A tin.
  message Tin {
    // Its size.
    optional int32 size = 1;
  }
}

// Intentionally empty.
message WatchPaintResponse {}
"""


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """The pages of a small contract."""
    for name, text in (("type/v1/colour.proto", TYPES), ("plugin/v1/paint.proto", SERVICE)):
        path = tmp_path / "protos" / "sagentry" / "api" / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    outcome = run_tool("contract_docs", tmp_path / "protos", tmp_path / "pages")
    assert outcome.code == 0, outcome.output
    return tmp_path / "pages"


@pytest.fixture
def page(pages: Path) -> str:
    """The page of its service."""
    return (pages / "plugin.v1.paint.md").read_text(encoding="utf-8")


def test_page_has_the_comment_of_an_rpc_with_its_error_table(page: str) -> None:
    assert "Watches paint dry. It takes a while.\n\nErrors:\n\n| Code / reason | When |" in page
    assert "| `UNAVAILABLE / WET` | it is wet | waits |" in page


def test_page_says_what_an_rpc_takes_and_streams(page: str) -> None:
    request = "[`WatchPaintRequest`](#watchpaintrequest)"
    response = "stream of [`WatchPaintResponse`](#watchpaintresponse)"

    assert f"{request} → {response}" in page


def test_page_opens_with_the_comment_of_the_file_and_no_licence(page: str) -> None:
    assert page.startswith("# plugin.v1: paint.proto\n")
    assert "\n\nKeeps paint. Written for a test.\n\n" in page
    assert "Copyright" not in page


def test_field_comment_fits_into_one_row(page: str) -> None:
    assert "| `names` = 1 | repeated `string` | Either `a \\| b`.<br>Or nothing. |" in page


def test_fields_of_a_oneof_stand_below_it(page: str) -> None:
    head, colour, tin = (line for line in page.splitlines() if "oneof" in line or "↳" in line)

    assert head == "| oneof `choice` | | One of the following. How it is chosen. |"
    assert colour.startswith("| ↳ `colour` = 2 | [`type.v1.Colour`](type.v1.colour.md#colour) |")
    assert tin.startswith("| ↳ `tin` = 3 | [`WatchPaintRequest.Tin`](#watchpaintrequesttin) |")


def test_explicit_presence_is_shown(page: str) -> None:
    assert "| `size` = 1 | optional `int32` | Its size. |" in page


def test_index_lists_services_and_files_of_types(pages: Path) -> None:
    index = (pages / "README.md").read_text(encoding="utf-8")

    assert "| [`sagentry.api.plugin.v1.PaintService`](plugin.v1.paint.md) | Keeps paint. |" in index
    assert "| [`type/v1/colour.proto`](type.v1.colour.md) | What others use. |" in index


def test_every_link_of_the_pages_leads_somewhere(pages: Path) -> None:
    assert [link for page in pages.glob("*.md") for link in dead_links(page)] == []
