"""Runs the tool calls of models: whatever a tool does, its call has an outcome."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from sagentry.server.domain.ids import new_id
from sagentry.server.domain.messages import ToolCall
from sagentry.server.domain.text import has_surrogate_escape, repair, repair_object
from sagentry.server.domain.tools import ToolFailure, ToolOutcome
from sagentry.server.errors import ToolError
from sagentry.server.model_ports import Tool, ToolContext
from sagentry.server.tools.bounded import Threads, ThreadsExhaustedError, within
from sagentry.server.tools.function_tool import ArgumentsError

_log = logging.getLogger(__name__)

MAX_RESULT_BYTES = 256 * 1024
"""Longest text of a result, in UTF-8, its mark included."""

_SHOWN_NAMES = 50


@runtime_checkable
class BlockingTool(Protocol):
    """A tool that may block its thread, and so is given one."""

    is_synchronous: bool

    def run_in_thread(self, arguments: dict[str, object], context: ToolContext) -> str:
        """Runs one call in the calling thread."""


class ToolRunner:
    """Runs calls, at most so many at once in the whole server."""

    def __init__(
        self,
        *,
        most_calls: int = 64,
        most_abandoned_threads: int = 64,
        cancel_grace: timedelta = timedelta(seconds=1),
    ) -> None:
        """Starts with nothing running.

        Args:
            most_calls: Calls that run at once; others wait, and their time does not yet count.
            most_abandoned_threads: Hung threads of blocking tools before calls of such are refused.
            cancel_grace: How long a tool may go on when it is cancelled, before it is closed.
        """
        self._places = asyncio.Semaphore(most_calls)
        self._threads = Threads(most_abandoned_threads)
        self._grace = cancel_grace

    @property
    def abandoned_threads(self) -> int:
        """How many threads of blocking tools were left behind and have not ended."""
        return self._threads.abandoned

    async def run(
        self,
        call: ToolCall,
        tool: Tool | None,
        context: ToolContext,
        *,
        known: Iterable[str] = (),
    ) -> ToolOutcome:
        """Runs a call. Raises nothing but being cancelled.

        Args:
            call: The call, as the model wrote it.
            tool: The tool of its name; None when there is none.
            context: What the tool is told beside its arguments.
            known: Names of the tools that there are, told to a model that asked for another.
        """
        if tool is None:
            return _unknown(call.name, known)
        try:
            arguments = parse_arguments(call.arguments_json)
        except ArgumentsError as error:
            return ToolOutcome(f"The arguments are not valid: {error}", _ARGUMENTS_INVALID)
        async with self._places:
            return await self._run(tool, arguments, context)

    async def _run(
        self, tool: Tool, arguments: dict[str, object], context: ToolContext
    ) -> ToolOutcome:
        name = tool.spec.name
        try:
            in_time, text = await within(
                tool.time_limit, self._grace, self._begun(tool, arguments, context)
            )
            if not in_time:
                seconds = f"{tool.time_limit.total_seconds():g}"
                problem = (
                    f"{name} took longer than its limit of {seconds} seconds and was given up."
                )
                return ToolOutcome(problem, ToolFailure.TIME_LIMIT)
            return ToolOutcome(_result_text(text))
        except ArgumentsError as error:
            problem = f"The arguments are not valid: {error}"
            return ToolOutcome(_result_text(problem), _ARGUMENTS_INVALID)
        except ToolError as error:
            text = _result_text(str(error)) or f"{name} failed."
            return ToolOutcome(text, ToolFailure.TOOL_ERROR)
        except ThreadsExhaustedError:
            _log.error("tool %s is refused: %d threads hang", name, self._threads.abandoned)
            problem = f"{name} cannot run now: too many earlier calls do not end."
            return ToolOutcome(problem, ToolFailure.TOOLS_EXHAUSTED)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  (not even sys.exit ends the server)
            error_id = new_id("err")
            _log.error("tool %s broke (%s)", name, error_id, exc_info=error)
            problem = f"{name} failed for a reason of its own (error id {error_id})."
            return ToolOutcome(problem, ToolFailure.TOOL_FAULT)

    def _begun(
        self, tool: Tool, arguments: dict[str, object], context: ToolContext
    ) -> Coroutine[Any, Any, object]:
        if isinstance(tool, BlockingTool) and tool.is_synchronous:
            blocking = tool
            return self._threads.run(
                f"tool-{tool.spec.name}", lambda: blocking.run_in_thread(arguments, context)
            )
        return tool.run(arguments, context)


_ARGUMENTS_INVALID = ToolFailure.ARGUMENTS_INVALID


def parse_arguments(text: str) -> dict[str, object]:
    """Reads the arguments of a call: numbers and nesting exact, text that can be encoded.

    Raises:
        ArgumentsError: They are not one JSON object; says where.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at character {error.pos} of {len(text)}"
        raise ArgumentsError(problem) from None
    except (ValueError, RecursionError):
        # Numbers of thousands of digits, NaN, or thousands of levels.
        problem = "JSON with numbers or nesting beyond what is supported"
        raise ArgumentsError(problem) from None
    if not isinstance(value, dict):
        problem = f"a JSON object is needed, this is {_json_kind(value)}"
        raise ArgumentsError(problem)
    return repair_object(value) if has_surrogate_escape(text) else value


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _json_kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _unknown(name: str, tools: Iterable[str]) -> ToolOutcome:
    listed = ", ".join(sorted(tools)[:_SHOWN_NAMES]) or "(none)"
    shown = repair(name)[0]
    return ToolOutcome(f"There is no tool {shown!r}. Tools: {listed}.", ToolFailure.UNKNOWN_TOOL)


def _result_text(result: object) -> str:
    """Returns a result as text that can be encoded and is not too long."""
    text = repair(result if isinstance(result, str) else str(result))[0]
    # No character has more than four bytes: most results need no counting.
    if len(text) * 4 <= MAX_RESULT_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= MAX_RESULT_BYTES:
        return text
    mark = f"\n[cut: this result has {len(encoded)} bytes, at most {MAX_RESULT_BYTES} are kept]"
    kept = encoded[: MAX_RESULT_BYTES - len(mark)].decode(errors="ignore")
    return kept + mark
