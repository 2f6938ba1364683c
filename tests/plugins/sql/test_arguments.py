from __future__ import annotations

import pytest

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.plugin.v1 import display_message_persistence_pb2 as display_pb
from sagentry.plugins.sdk import InvalidFieldError
from sagentry.plugins.sql import arguments
from tests.support.stored import persist, save, text


def resolve(call_id: str, *, is_interrupt: bool = False) -> display_pb.ResolveToolResultRequest:
    request = display_pb.ResolveToolResultRequest(message_id="m", call_id="call-1")
    request.content.call_id = call_id
    request.content.is_interrupt = is_interrupt
    return request


def test_a_result_of_another_call_does_not_resolve_this_one() -> None:
    with pytest.raises(InvalidFieldError, match=r"content\.call_id"):
        arguments.check_resolve_tool_result(resolve("call-2"))


def test_a_result_that_is_still_a_place_resolves_nothing() -> None:
    with pytest.raises(InvalidFieldError, match=r"content\.is_interrupt"):
        arguments.check_resolve_tool_result(resolve("call-1", is_interrupt=True))


def test_two_items_at_one_place_are_refused() -> None:
    request = save("m", text("a"), text("b"))
    request.items[1].sequence = 0

    with pytest.raises(InvalidFieldError, match=r"items\[1\]\.sequence"):
        arguments.check_save_message(request)


@pytest.mark.parametrize("kind", ["tool_call", "tool_result"])
def test_a_call_without_an_id_could_not_be_found_again(kind: str) -> None:
    request = save("m", text("a"))
    getattr(request.items[0].content, kind).name = "search"

    with pytest.raises(InvalidFieldError, match=rf"items\[0\]\.content\.{kind}\.call_id"):
        arguments.check_save_message(request)


@pytest.mark.parametrize("media_type", ["", "x" * 257])
def test_a_media_type_has_1_to_256_characters(media_type: str) -> None:
    request = persist(1)
    request.state.media_type = media_type

    with pytest.raises(InvalidFieldError, match=r"state\.media_type"):
        arguments.check_persist_state(request)


def test_a_load_without_claim_has_nothing_to_check() -> None:
    arguments.check_load_state(agent_pb.LoadStateRequest())
