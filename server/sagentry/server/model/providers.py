"""Models of providers, made by langchain's own initialiser and adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from sagentry.server.model_ports import ChatModel, ModelOptions


class ModelSpecError(ValueError):
    """A model specification of the configuration cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Provider:
    """What the server knows of a provider.

    Attributes:
        package: The adapter's package; without it the extra of the provider's name is missing.
        key_variable: Environment variable that has the key unless the profile names another.
        first_model: Model of a server that nobody has configured, once the key is there.
        base_url: Its own address.
        usage_mode: What its adapter's reports of tokens mean.
    """

    package: str
    key_variable: str
    first_model: str
    base_url: str
    usage_mode: str


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        "langchain_anthropic",
        "ANTHROPIC_API_KEY",
        "claude-sonnet-4-5",
        "https://api.anthropic.com",
        "totals",
    ),
    "openai": Provider(
        "langchain_openai",
        "OPENAI_API_KEY",
        "gpt-5-mini",
        "https://api.openai.com/v1",
        "increments",
    ),
}

CALL_TIMEOUT = timedelta(minutes=10)
"""Longest silence of a provider inside an answer."""

DEFAULT_MAX_TOKENS = 8192
"""Length limit of an answer where the provider demands one."""


def is_installed(provider: str) -> bool:
    """Whether the extra of a provider is there."""
    return find_spec(PROVIDERS[provider].package) is not None and find_spec("langchain") is not None


def provider_model(
    provider: str, model: str, options: ModelOptions, environ: Mapping[str, str]
) -> ChatModel:
    """Makes a model of a provider.

    Args:
        provider: One of PROVIDERS.
        model: The provider's name of it; whether it knows that is seen at the first call.
        options: Of the profile.
        environ: Has the key.

    Raises:
        ModelSpecError: The extra or the key is missing, or an option is not for this provider.
    """
    spec = f"{provider}:{model}"
    known = PROVIDERS[provider]
    if not model.strip():
        problem = f"model {spec!r}: name the model, for example {provider}:{known.first_model}"
        raise ModelSpecError(problem)
    if not is_installed(provider):
        problem = f"model {spec}: its adapter is missing: pip install 'sagentry[{provider}]'"
        raise ModelSpecError(problem)
    variable = options.api_key_env or known.key_variable
    key = environ.get(variable, "")
    if not key:
        problem = f"model {spec}: no key: set the environment variable {variable}"
        raise ModelSpecError(problem)
    arguments = _ARGUMENTS[provider](options, spec)
    # langchain takes seconds to import; only a server that uses a provider pays for it.
    from langchain.chat_models import init_chat_model  # noqa: PLC0415

    from sagentry.server.model.adapter import LangChainModel  # noqa: PLC0415
    from sagentry.server.model.from_langchain import UsageMode  # noqa: PLC0415
    from sagentry.server.model.history import check_history  # noqa: PLC0415

    chat = init_chat_model(
        model,
        model_provider=provider,
        api_key=key,
        # Always said: variables of the ecosystem would send conversations somewhere else.
        base_url=options.base_url or known.base_url,
        # The server retries, visibly.
        max_retries=0,
        timeout=CALL_TIMEOUT / timedelta(seconds=1),
        # Not by default where the address is not the provider's own.
        stream_usage=True,
        **arguments,
    )
    return LangChainModel(
        spec,
        chat,
        provider=provider,
        usage_mode=UsageMode(known.usage_mode),
        check=check_history,
    )


def _anthropic(options: ModelOptions, spec: str) -> dict[str, Any]:
    if options.reasoning_effort:
        problem = f"model {spec}: reasoning_effort is for openai; here it is thinking_tokens"
        raise ModelSpecError(problem)
    arguments = _common(options)
    most = options.max_tokens or DEFAULT_MAX_TOKENS
    if options.thinking_tokens:
        if options.thinking_tokens >= most:
            problem = (
                f"model {spec}: thinking_tokens ({options.thinking_tokens}) must be less than"
                f" max_tokens ({most}), of which they are a part"
            )
            raise ModelSpecError(problem)
        arguments["thinking"] = {"type": "enabled", "budget_tokens": options.thinking_tokens}
    return {**arguments, "max_tokens": most}


def _openai(options: ModelOptions, spec: str) -> dict[str, Any]:
    if options.thinking_tokens:
        problem = f"model {spec}: thinking_tokens is for anthropic; here it is reasoning_effort"
        raise ModelSpecError(problem)
    arguments = _common(options)
    if options.max_tokens:
        arguments["max_tokens"] = options.max_tokens
    if options.reasoning_effort:
        arguments["reasoning_effort"] = options.reasoning_effort
    # Every compatible server speaks chat completions.
    return {**arguments, "use_responses_api": False}


def _common(options: ModelOptions) -> dict[str, Any]:
    return {} if options.temperature is None else {"temperature": options.temperature}


_ARGUMENTS = {"anthropic": _anthropic, "openai": _openai}
