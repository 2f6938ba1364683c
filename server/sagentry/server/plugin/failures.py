"""The newest failures of plugin calls, each with a command that repeats it."""

from __future__ import annotations

import shlex
from collections import deque
from datetime import datetime

from google.protobuf import json_format
from google.protobuf.message import Message

from sagentry.server.domain.plugins import PluginFailure
from sagentry.server.errors import PluginError

KEPT = 256

_CONTEXT_FIELDS = ("conversation_id", "agent_id", "request_id", "owner_epoch", "run_id")


class Failures:
    """The newest failures of one plugin."""

    def __init__(self) -> None:
        """Begins with none."""
        self._kept: deque[PluginFailure] = deque(maxlen=KEPT)

    def newest_first(self) -> list[PluginFailure]:
        """Returns the failures, newest first."""
        return list(reversed(self._kept))

    def add(
        self, error: PluginError, *, time: datetime, address: str, service: str, request: Message
    ) -> None:
        """Keeps a failure, without content and credentials."""
        own_words = f": {error.plugin_message}" if error.plugin_message else ""
        self._kept.append(
            PluginFailure(
                plugin=error.plugin,
                method=error.method,
                time=time,
                reason=error.reason,
                code=error.plugin_code,
                message=f"{error.message}{own_words}"[:1024],
                elapsed=error.elapsed,
                budget=error.budget,
                consequence="",
                request_id=_context(request).get("requestId", ""),
                command=grpcurl_command(error, address=address, service=service, request=request),
            )
        )


def grpcurl_command(error: PluginError, *, address: str, service: str, request: Message) -> str:
    """Returns a grpcurl command that repeats the call with its context and no content."""
    seconds = f"{error.budget.total_seconds():g}"
    body = json_format.MessageToJson(_redacted(request), indent=None)
    words = ["grpcurl", "-plaintext", "-max-time", seconds, "-d", body]
    target = address.removeprefix("dns:///")
    if target.startswith("unix:"):
        words += ["-unix", target.removeprefix("unix:")]
    else:
        words.append(target)
    return shlex.join([*words, f"{service}/{error.method}"])


def _redacted(request: Message) -> Message:
    """Returns the request with the context's ids and the scope's identity only."""
    short = type(request)()
    context = getattr(request, "context", None)
    if context is not None:
        for name in _CONTEXT_FIELDS:
            setattr(short.context, name, getattr(context, name))  # type: ignore[attr-defined] # every request has one
        scope = context.scope
        if scope.HasField("unscoped"):
            short.context.scope.unscoped.SetInParent()  # type: ignore[attr-defined] # as above
        elif scope.HasField("scoped"):
            scoped = short.context.scope.scoped  # type: ignore[attr-defined] # as above
            scoped.tenant, scoped.partition = scope.scoped.tenant, scope.scoped.partition
    return short


def _context(request: Message) -> dict[str, str]:
    context = getattr(request, "context", None)
    found: dict[str, str] = json_format.MessageToDict(context) if context is not None else {}
    return found
