"""Makes tools of Python functions."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_json

from sagentry.server.domain.models import ToolSpec
from sagentry.server.errors import ToolError
from sagentry.server.model_ports import ToolContext

DEFAULT_TIME_LIMIT = timedelta(seconds=60)
"""Longest time of a call, if the tool does not say."""

_MOST_PROBLEMS = 5
_ARGS_ENTRY = re.compile(r"^\s{2,}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


class ToolDefinitionError(ValueError):
    """A tool is defined or installed in a way that cannot work; the text names it."""


class ArgumentsError(ToolError):
    """The arguments do not fit the tool; the model can correct them by the text."""


class FunctionTool:
    """A tool that is a Python function, synchronous or not.

    The arguments' schema comes from the type hints, the descriptions from the docstring. A parameter of
    type `ToolContext` is given the context and is not an argument.

    Attributes:
        spec: What the model is told of it.
        display_text: Label of its calls for people.
        read_only: Has no effects: a call need not be on disk before it runs.
        time_limit: Longest time of a call.
        is_synchronous: Whether the function blocks its thread.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        name: str = "",
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        display_text: str = "",
        read_only: bool = False,
        time_limit: timedelta = DEFAULT_TIME_LIMIT,
    ) -> None:
        """Wraps a function; what is not given is taken from it.

        Args:
            function: The function.
            name: The tool's name.
            description: What it does, for the model.
            parameters: JSON Schema that the model is told, in place of the derived one; the type hints
                still decide what is accepted.
            display_text: Label of its calls for people.
            read_only: Has no effects.
            time_limit: Longest time of a call.

        Raises:
            ToolDefinitionError: The function cannot be a tool.
        """
        self._function = function
        name = name or str(getattr(function, "__name__", ""))
        documentation = inspect.getdoc(function) or ""
        self._arguments, self._context_name = _arguments_model(name, function, documentation)
        schema = dict(parameters) if parameters is not None else _schema(self._arguments)
        self.spec = ToolSpec(
            name=name,
            description=description or _summary(documentation),
            parameters_json=json.dumps(schema, ensure_ascii=False),
        )
        self.display_text = display_text or name
        self.read_only = read_only
        self.time_limit = time_limit
        self.is_synchronous = not (
            inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
        )

    async def run(self, arguments: dict[str, object], context: ToolContext) -> str:
        """Runs one call and returns the text of its result.

        Raises:
            ArgumentsError: The arguments do not fit.
            ToolError: The tool failed.
        """
        if self.is_synchronous:
            return await asyncio.to_thread(self.run_in_thread, arguments, context)
        result = self._call(arguments, context)
        if isinstance(result, Awaitable):
            result = await result
        return _as_text(result)

    def run_in_thread(self, arguments: dict[str, object], context: ToolContext) -> str:
        """Runs one call of a synchronous function in the calling thread.

        Raises:
            ArgumentsError: The arguments do not fit.
            ToolError: The tool failed.
        """
        return _as_text(self._call(arguments, context))

    def _call(self, arguments: dict[str, object], context: ToolContext) -> object:
        try:
            checked = self._arguments.model_validate(arguments)
        except ValidationError as error:
            raise ArgumentsError(_problems(error)) from None
        values = {
            field.alias or "": getattr(checked, name)
            for name, field in type(checked).model_fields.items()
        }
        if self._context_name:
            values[self._context_name] = context
        return self._function(**values)


@overload
def tool(function: Callable[..., object], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    display_text: str = "",
    read_only: bool = False,
    time_limit: timedelta = DEFAULT_TIME_LIMIT,
) -> Callable[[Callable[..., object]], FunctionTool]: ...


def tool(
    function: Callable[..., object] | None = None,
    /,
    **settings: Any,
) -> FunctionTool | Callable[[Callable[..., object]], FunctionTool]:
    """Makes a tool of a function, as `@tool` or `@tool(read_only=True, …)`; see `FunctionTool`."""
    if function is not None:
        return FunctionTool(function)
    return lambda wrapped: FunctionTool(wrapped, **settings)


def _arguments_model(
    name: str, function: Callable[..., object], documentation: str
) -> tuple[type[BaseModel], str]:
    """Returns the model of the arguments and the name of the parameter for the context, or empty."""
    target: Any = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        problem = f"tool {name}: its type hints cannot be read: {error}"
        raise ToolDefinitionError(problem) from error
    described = _described_arguments(documentation)
    fields: dict[str, Any] = {}
    context_name = ""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            problem = f"tool {name}: *{parameter.name} cannot be described to a model"
            raise ToolDefinitionError(problem)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            problem = f"tool {name}: {parameter.name} cannot be given by name"
            raise ToolDefinitionError(problem)
        hint = hints.get(parameter.name)
        if hint is None:
            problem = f"tool {name}: {parameter.name} has no type"
            raise ToolDefinitionError(problem)
        if hint is ToolContext:
            context_name = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        # The field's own name cannot be the parameter's: it might be one that pydantic uses itself.
        fields[f"argument_{len(fields)}"] = (
            hint,
            Field(default, alias=parameter.name, description=described.get(parameter.name)),
        )
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        return create_model(f"{name}_arguments", __config__=config, **fields), context_name
    except Exception as error:
        problem = f"tool {name}: its arguments cannot be described to a model: {error}"
        raise ToolDefinitionError(problem) from error


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        described.pop("title", None)
    return schema


def _summary(documentation: str) -> str:
    """Returns the docstring up to its first section."""
    kept: list[str] = []
    for line in documentation.splitlines():
        if line.strip() in {"Args:", "Returns:", "Raises:", "Yields:", "Example:", "Examples:"}:
            break
        kept.append(line)
    return "\n".join(kept).strip()


def _described_arguments(documentation: str) -> dict[str, str]:
    """Returns the descriptions in the `Args:` section, by name."""
    described: dict[str, str] = {}
    last = ""
    inside = False
    indent: int | None = None
    for line in documentation.splitlines():
        if not inside:
            inside = line.strip() == "Args:"
            continue
        if line.strip() and not line.startswith(" "):
            break
        depth = len(line) - len(line.lstrip())
        entry = _ARGS_ENTRY.match(line)
        if entry and (indent is None or depth == indent):
            indent = depth
            last = entry.group(1)
            described[last] = entry.group(2).strip()
        elif last and line.strip():
            described[last] += f" {line.strip()}"
    return described


def _problems(error: ValidationError) -> str:
    """Words what is wrong with arguments, for the model, without repeating what it wrote."""
    problems = [
        f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    more = len(problems) - _MOST_PROBLEMS
    shown = problems[:_MOST_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(shown)


def _as_text(result: object) -> str:
    if isinstance(result, str):
        return result
    if result is None:
        return ""
    return to_json(result, inf_nan_mode="strings").decode()
