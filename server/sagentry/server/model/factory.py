"""Makes models from the specifications that profiles have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sagentry.server.model.providers import (
    PROVIDERS,
    ModelSpecError,
    is_installed,
    provider_model,
)
from sagentry.server.model_ports import ChatModel, ModelOptions

DEMO = "script:demo"
"""The model that answers when no provider is configured."""


def build_model(
    spec: str,
    *,
    base_dir: Path,
    options: ModelOptions | None = None,
    environ: Mapping[str, str] | None = None,
) -> ChatModel:
    """Makes the model of a specification.

    Args:
        spec: `anthropic:MODEL`, `openai:MODEL`, `script:file.yaml`, or `script:demo` for the built-in demo.
        base_dir: Folder that files are relative to.
        options: Of the profile; none of them is for a script.
        environ: Has the keys of providers.

    Raises:
        ModelSpecError: The specification cannot be used.
        ScriptError: The script cannot be used; names the file, the line and the key.
    """
    kind, _, rest = spec.partition(":")
    if kind in PROVIDERS:
        return provider_model(kind, rest, options or ModelOptions(), environ or {})
    if kind != "script" or not rest:
        problem = f"model {spec!r}: not a model; write {_forms()}"
        raise ModelSpecError(problem)
    if options not in {None, ModelOptions()}:
        problem = f"model {spec}: a script takes no options of a provider"
        raise ModelSpecError(problem)
    # langchain takes most of a second to import; only a server that runs models pays for it.
    from sagentry.server.model.scripted import scripted_model  # noqa: PLC0415

    path = Path(__file__).with_name("demo.yaml") if spec == DEMO else base_dir / rest
    return scripted_model(path, name=spec)


def first_model(environ: Mapping[str, str]) -> str:
    """Returns the model of a server that nobody has configured: a provider's whose key is there."""
    for name, provider in PROVIDERS.items():
        if environ.get(provider.key_variable) and is_installed(name):
            return f"{name}:{provider.first_model}"
    return DEMO


def _forms() -> str:
    providers = ", ".join(f"{name}:MODEL" for name in PROVIDERS)
    return f"{providers}, script:FILE or {DEMO}"
