"""What comes of tool calls."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ToolFailure(enum.Enum):
    """Why a call has no result of its tool.

    Attributes:
        UNKNOWN_TOOL: There is no tool of that name.
        ARGUMENTS_INVALID: The arguments are not JSON or do not fit; the tool did not run.
        TIME_LIMIT: The tool took too long; its result is dropped.
        TOOL_ERROR: The tool said that it failed.
        TOOL_FAULT: The tool broke; the log has the details under the error id of the text.
        TOOLS_EXHAUSTED: So many blocking tools hang that no other is started.
        CANCELLED: The run was cancelled before the call was done.
        OUTCOME_UNKNOWN: The server died while the call was under way.
        NOT_RUN: The server died before the call began.
    """

    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    ARGUMENTS_INVALID = "ARGUMENTS_INVALID"
    TIME_LIMIT = "TIME_LIMIT"
    TOOL_ERROR = "TOOL_ERROR"
    TOOL_FAULT = "TOOL_FAULT"
    TOOLS_EXHAUSTED = "TOOLS_EXHAUSTED"
    CANCELLED = "CANCELLED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    NOT_RUN = "NOT_RUN"


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of a call.

    Attributes:
        text: What the model and people read.
        reason: Why it failed; None for success.
    """

    text: str
    reason: ToolFailure | None = None

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return self.reason is not None
