"""A langchain chat model behind the `ChatModel` port."""

# ruff: noqa: SLF001  (LangChainModel says why it calls what adapters implement)

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableBinding

from sagentry.server.domain.messages import Message
from sagentry.server.domain.models import ModelCallError, ModelChunk, ModelRequest, ToolSpec
from sagentry.server.model.failures import to_model_call_error
from sagentry.server.model.from_langchain import ChunkTranslator, UsageMode
from sagentry.server.model.to_langchain import to_langchain, tool_definitions

_log = logging.getLogger(__name__)

_KEPT_BINDINGS = 16


class LangChainModel:
    """Answers requests by a langchain chat model.

    The model's `_astream` is called, not `astream`. What `astream` adds is what the server must not
    have: it reads the ecosystem's tracing variables and starts a client that reports to the network,
    refuses to run at all under some of them, keeps every chunk and merges them at the end, and costs
    half of what a token costs.

    Attributes:
        name: The model's name in the configuration.
        replaced_surrogates: How many lone surrogates models sent so far.
    """

    def __init__(
        self,
        name: str,
        model: BaseChatModel,
        *,
        provider: str = "",
        usage_mode: UsageMode = UsageMode.INCREMENTS,
        check: Callable[[Sequence[Message]], None] | None = None,
        options: Callable[[ModelRequest], Mapping[str, Any]] | None = None,
    ) -> None:
        """Wraps a model.

        Args:
            name: Its name in the configuration.
            model: The model, made with `max_retries=0`: the server retries, visibly.
            provider: Whose opaque parts are given back.
            usage_mode: What the usage in the model's chunks means.
            check: Looks at each request's messages first; raises ModelCallError.
            options: More keyword arguments for one call.
        """
        self.name = name
        self.replaced_surrogates = 0
        self._model = model
        self._provider = provider
        self._usage_mode = usage_mode
        self._check = check
        self._options = options
        self._bindings: dict[tuple[ToolSpec, ...], dict[str, Any]] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelChunk, None]:
        """Answers a request in pieces, an EndChunk last. Closing the iterator ends the call.

        Raises:
            ModelCallError: The call failed; pieces that came before stay valid.
        """
        if self._check is not None:
            self._check(request.messages)
        translator = ChunkTranslator(self._usage_mode, provider=self._provider)
        try:
            messages = to_langchain(request, self._provider)
            answer = self._generations(messages, self._arguments(request))
            async with aclosing(answer) as generations:
                async for generation in generations:
                    info = generation.generation_info
                    for chunk in translator.translate(generation.message, info):
                        yield chunk
        except Exception as error:
            if translator.stop is None:
                raise to_model_call_error(error, self.name) from error
            # The answer was whole before the connection failed: repeating it would cost the user
            # the wait and the price of a second one.
            _log.warning("the stream failed behind the end of its answer: %s", type(error).__name__)
        finally:
            self.replaced_surrogates += translator.replaced
        for chunk in translator.finish():
            yield chunk
        if translator.stop is None:
            raise ModelCallError(
                "MODEL_STREAM_CUT", "the answer ended before the model was done", retryable=True
            )

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        arguments = dict(self._bound(request.tools)) if request.tools else {}
        if self._options is not None:
            arguments.update(self._options(request))
        return arguments

    def _bound(self, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
        """Returns the arguments by which the model's own adapter passes on the tools."""
        known = self._bindings.get(tools)
        if known is not None:
            return known
        bound = self._model.bind_tools(tool_definitions(tools))
        if not isinstance(bound, RunnableBinding):
            problem = "the model cannot be given tools"
            raise ModelCallError("MODEL_REQUEST_INVALID", problem)
        if len(self._bindings) >= _KEPT_BINDINGS:
            self._bindings.clear()
        return self._bindings.setdefault(tools, dict(bound.kwargs))

    async def _generations(
        self, messages: list[BaseMessage], arguments: dict[str, Any]
    ) -> AsyncGenerator[ChatGeneration, None]:
        if _streams(self._model):
            stream = self._model._astream(messages, stop=None, **arguments)
            try:
                async for chunk in stream:
                    yield chunk
            finally:
                # Closing ends the provider's stream now and not when the collector comes by.
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
            return
        result = await self._model._agenerate(messages, stop=None, **arguments)
        for generation in result.generations:
            yield generation


def _streams(model: BaseChatModel) -> bool:
    kind = type(model)
    return kind._astream is not BaseChatModel._astream or kind._stream is not BaseChatModel._stream
