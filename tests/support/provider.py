"""A langchain model that sends what a test gives it."""

# ruff: noqa: ARG002  (the fakes have the signatures of langchain)

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import Field

from sagentry.server.model.adapter import LangChainModel

END = AIMessageChunk(content="", response_metadata={"stop_reason": "end_turn"})


class FakeProvider(BaseChatModel):
    """Sends the chunks it is given; records what it was asked and whether it was closed."""

    chunks: list[Any]
    asked: list[tuple[list[BaseMessage], dict[str, Any]]] = Field(default_factory=list)
    closed: list[bool] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.asked.append((messages, kwargs))
        try:
            for chunk in self.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield ChatGenerationChunk(message=chunk)
        finally:
            self.closed.append(True)


def provider(*chunks: object) -> FakeProvider:
    return FakeProvider(chunks=list(chunks))


def model_of(*chunks: object, **settings: Any) -> LangChainModel:
    return LangChainModel("m", provider(*chunks), **settings)


def text(piece: str) -> AIMessageChunk:
    return AIMessageChunk(content=piece)


def block(**fields: object) -> AIMessageChunk:
    return AIMessageChunk(content=[dict(fields)])


def piece(**fields: Any) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(**fields)])
