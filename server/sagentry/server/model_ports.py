"""What the agent needs of models and tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sagentry.server.domain.messages import ToolCall
from sagentry.server.domain.models import ModelChunk, ModelRequest, ToolSpec
from sagentry.server.domain.scope import Scope
from sagentry.server.domain.tools import ToolOutcome


class ChatModel(Protocol):
    """A model behind its provider's adapter."""

    name: str

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        """Answers a request in pieces, an EndChunk last. Closing the iterator ends the call.

        Raises:
            ModelCallError: The call failed; pieces that came before stay valid.
        """


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a profile says of its model. Empty and None leave it to the provider.

    Attributes:
        base_url: Where the provider's protocol is spoken.
        api_key_env: Environment variable that has the key.
        temperature: How much chance there is in answers.
        max_tokens: Most tokens of one answer, thinking included.
        thinking_tokens: Tokens of them for thinking; 0 for none.
        reasoning_effort: How much the model reasons, in the provider's own word.
    """

    base_url: str = ""
    api_key_env: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    thinking_tokens: int = 0
    reasoning_effort: str = ""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is told beside its arguments.

    Attributes:
        call_id: Idempotency key of the call.
        agent_id: The agent.
        conversation_id: Its conversation.
        scope: The tenant.
        tool_context: What the agent was started with, as JSON text; empty for none.
    """

    call_id: str
    agent_id: str
    conversation_id: str
    scope: Scope
    tool_context: str = ""


class Tool(Protocol):
    """A tool that a model may call."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""

    @property
    def display_text(self) -> str:
        """Label of its calls for people."""

    @property
    def read_only(self) -> bool:
        """Has no effects: a call need not be on disk before it runs."""

    @property
    def time_limit(self) -> timedelta:
        """Longest time of a call."""

    async def run(self, arguments: dict[str, object], context: ToolContext) -> str:
        """Runs one call and returns the text of its result.

        Raises:
            ToolError: The tool failed; the model and people read the text.
        """


class ToolExecutor(Protocol):
    """Runs tool calls within the server's limits; never raises for what a tool does.

    When it is cancelled it ends soon, also if the tool ignores that.
    """

    async def run(
        self,
        call: ToolCall,
        tool: Tool | None,
        context: ToolContext,
        *,
        known: Iterable[str] = (),
    ) -> ToolOutcome:
        """Runs one call and returns what came of it, within the tool's time limit.

        Args:
            call: The call, as the model wrote it.
            tool: The tool of its name; None when there is none.
            context: What the tool is told beside its arguments.
            known: Names of the tools that there are, told to a model that asked for another.
        """
