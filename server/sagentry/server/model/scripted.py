"""The scripted model: a langchain chat model that answers from a script."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from sagentry.server.domain.models import ModelCallError, ModelRequest
from sagentry.server.model.adapter import LangChainModel
from sagentry.server.model.from_langchain import UsageMode
from sagentry.server.model.history import check_history
from sagentry.server.model.matching import Match, Matcher, call_of
from sagentry.server.model.script import ErrorStep, ErrorType, Step, UsageStep, load_script

WATCH_INTERVAL = timedelta(milliseconds=20)
"""How often a `wait_for` looks for its file."""

_ERRORS: dict[ErrorType, tuple[str, str, bool]] = {
    ErrorType.OVERLOADED: ("MODEL_OVERLOADED", "the provider is overloaded", True),
    ErrorType.RATE_LIMITED: ("MODEL_RATE_LIMITED", "the provider limits the rate of calls", True),
    ErrorType.UNAVAILABLE: ("MODEL_UNAVAILABLE", "the provider cannot be reached", True),
    ErrorType.AUTHENTICATION: (
        "MODEL_AUTHENTICATION",
        "the provider did not accept the credentials",
        False,
    ),
    ErrorType.REQUEST_INVALID: (
        "MODEL_REQUEST_INVALID",
        "the provider refused the request as invalid",
        False,
    ),
    ErrorType.FAILED: ("MODEL_FAILED", "the model call failed", False),
}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_NAME = re.compile(r"\$\{(\w+)\}")


def scripted_model(path: Path, *, name: str) -> LangChainModel:
    """Makes the model of a script.

    Raises:
        ScriptError: The script cannot be used; names the file, the line and the key.
    """
    script = load_script(path)
    matcher = Matcher(script, path.name)

    def options(request: ModelRequest) -> dict[str, Any]:
        return {"match": matcher.choose(call_of(request))}

    return LangChainModel(
        name,
        ScriptedChatModel(folder=path.parent),
        provider="script",
        usage_mode=UsageMode.TOTALS,
        check=check_history if script.strict_history else None,
        options=options,
    )


class ScriptedChatModel(BaseChatModel):
    """Plays the answer that it is given with a call; chunks have the shape of a real adapter's."""

    folder: Path

    @property
    def _llm_type(self) -> str:
        return "sagentry-script"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        **kwargs: object,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Takes the tools; which ones an answer needs is decided by the script."""
        return self.bind(tools=tools, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  (given by the caller)
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: object,
    ) -> AsyncIterator[ChatGenerationChunk]:
        match = kwargs.get("match")
        if not isinstance(match, Match):
            problem = "the scripted model is called by LangChainModel only"
            raise TypeError(problem)
        index = -1
        kind = ""
        calls = sum(len(m.tool_calls) for m in messages if isinstance(m, AIMessage))
        for step in match.answer.steps:
            if step.kind in {"text", "thinking", "tool_call"}:
                # A signature belongs to the block of thinking before it.
                if step.kind != kind or step.kind == "tool_call":
                    index += 1
                kind = step.kind
            if step.kind == "cut":
                return
            await self._wait(step)
            for message in _chunks(step, index, match, calls):
                yield ChatGenerationChunk(message=message)
            calls += step.kind == "tool_call"
            if step.kind == "end":
                return
        yield ChatGenerationChunk(message=_end("stop"))

    async def _wait(self, step: Step) -> None:
        if step.error is not None:
            raise _error(step.error)
        if step.hang:
            await asyncio.Event().wait()
        # Every step lets others run, so that a long script never holds the loop.
        await asyncio.sleep(step.sleep or 0)
        if step.wait_for is not None:
            path = self.folder / step.wait_for
            # A test outside the process makes the file: there is nothing here to be told by.
            while not path.exists():  # noqa: ASYNC110
                await asyncio.sleep(WATCH_INTERVAL.total_seconds())


def _error(step: ErrorStep) -> ModelCallError:
    reason, words, retryable = _ERRORS[step.type]
    return ModelCallError(
        reason,
        words,
        retryable=retryable if step.retryable is None else step.retryable,
        retry_after=None if step.after is None else timedelta(seconds=step.after),
    )


def _chunks(step: Step, index: int, match: Match, calls: int) -> list[AIMessageChunk]:
    if step.text is not None:
        return [
            AIMessageChunk(content=[{"type": "text", "text": piece, "index": index}])
            for piece in _pieces(step.text, match)
        ]
    if step.thinking is not None:
        return [
            AIMessageChunk(content=[{"type": "thinking", "thinking": piece, "index": index}])
            for piece in _pieces(step.thinking, match)
        ]
    if step.signature is not None:
        block = {"type": "thinking", "signature": step.signature, "index": index}
        return [AIMessageChunk(content=[block])]
    if step.tool_call is not None:
        pieces = _pieces(step.tool_call.pieces(), match, in_json=True)
        first = tool_call_chunk(
            name=step.tool_call.name, args="", id=f"script_{calls + 1}", index=index
        )
        rest = [tool_call_chunk(args=piece, index=index) for piece in pieces]
        return [AIMessageChunk(content="", tool_call_chunks=[piece]) for piece in (first, *rest)]
    if step.usage is not None:
        chunk = AIMessageChunk(content="")
        # Not by the constructor: it demands counts that a provider, and so a script, may leave out.
        chunk.usage_metadata = _usage(step.usage)
        return [chunk]
    return [] if step.end is None else [_end(step.end)]


def _end(end: str) -> AIMessageChunk:
    return AIMessageChunk(content="", response_metadata={"stop_reason": _STOP_REASONS[end]})


def _pieces(value: str | Sequence[str], match: Match, *, in_json: bool = False) -> Sequence[str]:
    pieces = (value,) if isinstance(value, str) else value
    if not match.answer.expand:
        return pieces

    def named(found: re.Match[str]) -> str:
        text = match.names.get(found.group(1))
        if text is None:
            return found.group()
        # Inside JSON text a name stands inside a string: quotes must not end it.
        return json.dumps(text, ensure_ascii=False)[1:-1] if in_json else text

    return [_NAME.sub(named, piece) for piece in pieces]


def _usage(step: UsageStep) -> Any:  # noqa: ANN401  (langchain wants its own TypedDict)
    usage: dict[str, Any] = {
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "total_tokens": (step.input_tokens or 0) + (step.output_tokens or 0),
        "input_token_details": {
            "cache_read": step.cache_read_tokens,
            "cache_creation": step.cache_write_tokens,
        },
        "output_token_details": {"reasoning": step.thinking_tokens},
    }
    for key in ("input_token_details", "output_token_details"):
        usage[key] = {name: count for name, count in usage[key].items() if count is not None}
    return {key: value for key, value in usage.items() if value is not None}
