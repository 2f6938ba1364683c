"""Write a Sagentry plugin: subclass a contract's class, call `serve`.

    class Upper(MessagePreprocessor):
        def PreprocessMessage(self, request, call): ...

    if __name__ == "__main__":
        serve(Upper(), name="com.example.upper", version="1.0.0")

`docs/plugins/authoring.md` is the guide; `sagentry plugin check` judges the result.
"""

from __future__ import annotations

from sagentry.plugins.sdk.assembly import ServeOptions
from sagentry.plugins.sdk.binding import MixedKindsError
from sagentry.plugins.sdk.call import Call, call_of, checked_id
from sagentry.plugins.sdk.contracts import Capabilities
from sagentry.plugins.sdk.declaration import DeclarationError
from sagentry.plugins.sdk.endpoint import EndpointError
from sagentry.plugins.sdk.environment import ENDPOINT_VARIABLE
from sagentry.plugins.sdk.errors import (
    InvalidFieldError,
    OverloadedError,
    PluginError,
    QuotaExceededError,
    RequestIdReusedError,
    RevisionConflictError,
    ScopeDeniedError,
    ScopeRequiredError,
    StaleEpochError,
    StateCorruptError,
    group_error_of,
)
from sagentry.plugins.sdk.plugin_service import AttachmentHook
from sagentry.plugins.sdk.running import serve, serve_async, serving, serving_in_threads
from sagentry.plugins.sdk.servicers import (
    AgentPersistence,
    DisplayMessagePersistence,
    MessagePreprocessor,
)
from sagentry.plugins.sdk.testing import bound

__all__ = [
    "ENDPOINT_VARIABLE",
    "AgentPersistence",
    "AttachmentHook",
    "Call",
    "Capabilities",
    "DeclarationError",
    "DisplayMessagePersistence",
    "EndpointError",
    "InvalidFieldError",
    "MessagePreprocessor",
    "MixedKindsError",
    "OverloadedError",
    "PluginError",
    "QuotaExceededError",
    "RequestIdReusedError",
    "RevisionConflictError",
    "ScopeDeniedError",
    "ScopeRequiredError",
    "ServeOptions",
    "StaleEpochError",
    "StateCorruptError",
    "bound",
    "call_of",
    "checked_id",
    "group_error_of",
    "serve",
    "serve_async",
    "serving",
    "serving_in_threads",
]
