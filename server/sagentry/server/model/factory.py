"""Makes models from the specifications that profiles have."""

from __future__ import annotations

from pathlib import Path

from sagentry.server.model_ports import ChatModel

DEMO = "script:demo"
"""The model that answers when no provider is configured."""

_PROVIDERS = ("anthropic", "openai")


class ModelSpecError(ValueError):
    """A model specification of the configuration cannot be used; the text says why."""


def build_model(spec: str, *, base_dir: Path) -> ChatModel:
    """Makes the model of a specification.

    Args:
        spec: `script:file.yaml`, or `script:demo` for the built-in demo.
        base_dir: Folder that files are relative to.

    Raises:
        ModelSpecError: The specification cannot be used.
        ScriptError: The script cannot be used; names the file, the line and the key.
    """
    kind, _, rest = spec.partition(":")
    if kind in _PROVIDERS:
        problem = (
            f"model {spec}: this version has no adapter for {kind} yet; it will come with "
            f"`pip install 'sagentry[{kind}]'`. Use script:<file> or {DEMO}"
        )
        raise ModelSpecError(problem)
    if kind != "script" or not rest:
        problem = f"model {spec!r}: not a model; write script:<file> or {DEMO}"
        raise ModelSpecError(problem)
    # langchain takes most of a second to import; only a server that runs models pays for it.
    from sagentry.server.model.scripted import scripted_model  # noqa: PLC0415

    path = Path(__file__).with_name("demo.yaml") if spec == DEMO else base_dir / rest
    return scripted_model(path, name=spec)
