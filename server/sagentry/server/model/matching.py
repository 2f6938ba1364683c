"""Decides which answer of a script a model call gets.

Every conversation goes through the script by itself, so that agents that share a model do not
disturb one another: an answer is used up per conversation. What a conversation has used up is
remembered in memory and, after a restart, worked out from its history.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sagentry.server.domain.messages import Message, Role, TextPart
from sagentry.server.domain.models import ModelCallError, ModelRequest
from sagentry.server.model.script import Answer, Script, TextPattern

REMEMBERED_CONVERSATIONS = 10_000
"""Conversations whose used answers are kept in memory; those of others are worked out anew."""

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Call:
    """What a script can know of a model call.

    Attributes:
        conversation: Identity of the conversation: the id of its first message.
        call_number: Number of the call inside its run, from 1.
        user_texts: Texts of the last user message, in order.
        tool_results: Texts of the results behind it, in order.
        tools: Names of the tools on offer.
        answered: What was asked before each message of the assistant, oldest first.
    """

    conversation: str
    call_number: int
    user_texts: tuple[str, ...]
    tool_results: tuple[str, ...]
    tools: frozenset[str]
    answered: tuple[Call, ...] = ()

    @property
    def last_user_text(self) -> str:
        """The text of the last user message, its parts joined by newlines."""
        return "\n".join(self.user_texts)


@dataclass(frozen=True, slots=True)
class Match:
    """The answer that a call gets, and what its texts may refer to."""

    number: int
    answer: Answer
    names: dict[str, str]


def call_of(request: ModelRequest) -> Call:
    """Returns what a script can know of a request."""
    tools = frozenset(tool.name for tool in request.tools)
    conversation = request.messages[0].message_id if request.messages else ""
    call = Call(conversation, 1, (), (), tools)
    answered: list[Call] = []
    for message in request.messages:
        match message.role:
            case Role.USER:
                call = replace(call, call_number=1, user_texts=_texts(message), tool_results=())
            case Role.ASSISTANT:
                answered.append(call)
                call = replace(call, call_number=call.call_number + 1)
            case Role.TOOL:
                results = tuple(result.text() for result in message.tool_results())
                call = replace(call, tool_results=results)
            case Role.SYSTEM:
                pass
    return replace(call, call_number=request.call_number, answered=tuple(answered))


def _texts(message: Message) -> tuple[str, ...]:
    return tuple(part.text for part in message.parts if isinstance(part, TextPart))


class Matcher:
    """Chooses answers and remembers, per conversation, which ones were given."""

    def __init__(self, script: Script, file: str) -> None:
        """Starts with nothing given. `file` names the script in errors."""
        self._script = script
        self._file = file
        self._used: OrderedDict[str, set[int]] = OrderedDict()

    def choose(self, call: Call) -> Match:
        """Returns the first answer that fits and was not given in this conversation, and uses it up.

        Raises:
            ModelCallError: SCRIPT_UNMATCHED, with what was seen.
        """
        used = self._used.get(call.conversation)
        if used is None:
            used = self._used[call.conversation] = self._worked_out(call.answered)
            if len(self._used) > REMEMBERED_CONVERSATIONS:
                self._used.popitem(last=False)
        self._used.move_to_end(call.conversation)
        match = self._first(call, used, self._script.answers)
        if match is None:
            raise ModelCallError("SCRIPT_UNMATCHED", self._unmatched(call, used))
        used.add(match.number)
        return match

    def _worked_out(self, answered: Sequence[Call]) -> set[int]:
        """Returns the answers that must have been given for the history to be what it is."""
        used: set[int] = set()
        for call in answered:
            match = self._first(call, used, self._script.answers, leaves_message=True)
            if match is not None:
                used.add(match.number)
        return used

    def _first(
        self,
        call: Call,
        used: set[int],
        answers: Sequence[Answer],
        *,
        leaves_message: bool = False,
    ) -> Match | None:
        for number, answer in enumerate(answers):
            if number in used and not answer.repeat:
                continue
            if leaves_message and not answer.has_content:
                continue
            names = _fits(answer, call)
            if names is not None:
                return Match(number, answer, names)
        return None

    def _unmatched(self, call: Call, used: set[int]) -> str:
        seen = call.last_user_text
        shown = seen if len(seen) <= _SHOWN else f"{seen[:_SHOWN]}…"
        spent = [
            number
            for number, answer in enumerate(self._script.answers)
            if number in used and not answer.repeat and _fits(answer, call) is not None
        ]
        given = "".join(f"; answers[{number}] would fit but was given before" for number in spent)
        return (
            f"{self._file}: no answer fits call {call.call_number} of its run behind "
            f"{len(call.answered)} messages of the assistant, with the last user text {shown!r} "
            f"and the tools {', '.join(sorted(call.tools)) or '(none)'}{given}"
        )


def _fits(answer: Answer, call: Call) -> dict[str, str] | None:
    """Returns the names that the answer may refer to, or None when it does not fit."""
    names = {
        "last_user_text": call.last_user_text,
        "tool_result": "\n".join(call.tool_results),
    }
    when = answer.when
    if when.call_number is not None and when.call_number != call.call_number:
        return None
    if when.tools_offered is not None:
        wanted = frozenset(when.tools_offered)
        if not wanted <= call.tools or (not wanted and call.tools):
            return None
    match when.last_user_text:
        case TextPattern(regex=regex):
            found = re.search(regex, call.last_user_text)
            if found is None:
                return None
            names.update({key: text or "" for key, text in found.groupdict().items()})
        case str() as text:
            # Messages that no answer came between are one to the model; the last is the question.
            if text != call.last_user_text and text not in call.user_texts[-1:]:
                return None
        case None:
            pass
    return names
