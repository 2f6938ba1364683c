"""The file format of the scripted model; `docs/script.md` describes it for people.

The classes here are the format: the JSON schema in `docs/script.schema.json` is made from them.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

VERSION = 1
"""Version of the format that is read."""

Seconds = Annotated[float, Field(ge=0, le=86_400, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]


class ScriptError(ValueError):
    """A script cannot be used; the text names the file, the line and the key."""


class _Entry(BaseModel):
    """An entry of the file: unknown keys are errors, so that a typing mistake is never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ErrorType(enum.Enum):
    """Ways in which a provider fails."""

    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    AUTHENTICATION = "authentication"
    REQUEST_INVALID = "request_invalid"
    FAILED = "failed"


class TextPattern(_Entry):
    """Text that contains a match of a regular expression."""

    regex: StrictStr = Field(description="Python regular expression, searched for in the text.")

    @model_validator(mode="after")
    def _compiles(self) -> TextPattern:
        try:
            re.compile(self.regex)
        except re.error as error:
            problem = f"is not a regular expression: {error}"
            raise ValueError(problem) from None
        return self


class When(_Entry):
    """Conditions of an answer; all that are given must hold."""

    last_user_text: StrictStr | TextPattern | None = Field(
        default=None, description="Text of the last user message: exactly, or by pattern."
    )
    call_number: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Number of the model call inside its run, from 1."
    )
    tools_offered: tuple[StrictStr, ...] | None = Field(
        default=None,
        description="Names that must all be on offer; an empty list: no tool is on offer.",
    )


class ToolCallStep(_Entry):
    """A tool call."""

    name: StrictStr = Field(description="Name of the tool.")
    arguments: StrictStr | tuple[StrictStr, ...] | dict[str, JsonValue] = Field(
        default="{}",
        description="JSON text, in one piece or as a list of pieces, valid or not; or an object.",
    )

    def pieces(self) -> Sequence[str]:
        """Returns the arguments as the pieces in which they are sent."""
        if isinstance(self.arguments, dict):
            return (json.dumps(self.arguments, ensure_ascii=False),)
        return (self.arguments,) if isinstance(self.arguments, str) else self.arguments


class UsageStep(_Entry):
    """Tokens of the call so far: totals, not increments."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    thinking_tokens: Count | None = None


class ErrorStep(_Entry):
    """The call fails as a provider fails it."""

    type: ErrorType = Field(default=ErrorType.FAILED, description="How it fails.")
    retryable: StrictBool | None = Field(
        default=None,
        description="Whether repeating makes sense; by default as the type says.",
    )
    after: Seconds | None = Field(
        default=None, description="Seconds after which the provider wants to be asked again."
    )


class Step(_Entry):
    """One step of an answer: exactly one key."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    text: StrictStr | tuple[StrictStr, ...] | None = Field(
        default=None, description="Text; a list is sent as that many pieces."
    )
    thinking: StrictStr | tuple[StrictStr, ...] | None = Field(
        default=None, description="Thinking; a list is sent as that many pieces."
    )
    signature: StrictStr | None = Field(
        default=None, description="Signature of the thinking before it."
    )
    tool_call: ToolCallStep | None = None
    usage: UsageStep | None = None
    sleep: Seconds | None = Field(default=None, description="Seconds to wait.")
    wait_for: Annotated[StrictStr, Field(min_length=1)] | None = Field(
        default=None,
        description="Waits until this file exists; relative to the folder of the script.",
    )
    error: ErrorStep | None = None
    end: Literal["stop", "length", "content_filter"] | None = Field(
        default=None, description="The answer is whole."
    )
    cut: Literal[True] | None = Field(default=None, description="The stream dies here.")
    hang: Literal[True] | None = Field(default=None, description="Nothing more ever comes.")

    @model_validator(mode="after")
    def _has_one_key(self) -> Step:
        if len(self.model_fields_set) != 1:
            problem = f"has {len(self.model_fields_set)} keys, a step has exactly one"
            raise ValueError(problem)
        if getattr(self, self.kind) is None:
            problem = f"{self.kind} has no value"
            raise ValueError(problem)
        return self

    @property
    def kind(self) -> str:
        """The step's one key."""
        return next(iter(self.model_fields_set))

    @property
    def is_last(self) -> bool:
        """Whether nothing can come behind it."""
        return self.kind in {"error", "end", "cut", "hang"}

    @property
    def is_content(self) -> bool:
        """Whether it becomes part of the message."""
        return self.kind in {"text", "thinking", "tool_call"}


class Answer(_Entry):
    """One answer of the model."""

    when: When = Field(default=When(), description="Conditions; without any it always fits.")
    repeat: StrictBool = Field(
        default=False, description="May be given any number of times, not once per conversation."
    )
    expand: StrictBool = Field(
        default=False,
        description="Replaces ${name} in texts and arguments; see the documentation.",
    )
    steps: tuple[Step, ...] = Field(description="What it does, in order; `end: stop` is implied.")

    @property
    def has_content(self) -> bool:
        """Whether it leaves a message behind."""
        return any(step.is_content for step in self.steps)


class Script(_Entry):
    """A script."""

    version: Literal[1] = Field(description="Version of the format.")
    strict_history: StrictBool = Field(
        default=True, description="Refuses a history that a strict provider would refuse."
    )
    answers: tuple[Answer, ...] = Field(description="The answers, in order of preference.")


def script_schema() -> dict[str, Any]:
    """Returns the JSON schema of the format. A key without a value is left out, never null."""
    schema = Script.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    _drop_null(schema)
    return schema


def _drop_null(value: object) -> None:
    if isinstance(value, list):
        for item in value:
            _drop_null(item)
    if not isinstance(value, dict):
        return
    if value.get("default", 0) is None:
        del value["default"]
    if isinstance(value.get("anyOf"), list):
        value["anyOf"] = [option for option in value["anyOf"] if option != {"type": "null"}]
    for inner in value.values():
        _drop_null(inner)


def load_script(path: Path) -> Script:
    """Reads a script.

    Raises:
        ScriptError: It cannot be read or is not a script; names the file, the line and the key.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{path}: cannot be read: {error.strerror}"
        raise ScriptError(problem) from error
    except UnicodeDecodeError:
        problem = f"{path}: is not UTF-8"
        raise ScriptError(problem) from None
    return parse_script(source, str(path))


def parse_script(source: str, file: str) -> Script:
    """Reads a script from its text; `file` names it in errors.

    Raises:
        ScriptError: It is not a script; names the file, the line and the key.
    """
    root, data = _read_yaml(source, file)
    try:
        script = Script.model_validate(data)
    except ValidationError as error:
        raise ScriptError(_problem(error, root, file)) from None
    for number, answer in enumerate(script.answers):
        for index, step in enumerate(answer.steps[:-1]):
            if step.is_last:
                key = ("answers", number, "steps", index + 1)
                path, line = _locate(root, key)
                problem = f"{file}:{line}: {path}: nothing can come behind `{step.kind}`"
                raise ScriptError(problem)
    return script


def _read_yaml(source: str, file: str) -> tuple[yaml.Node | None, object]:
    """Returns the text as nodes, which know their lines, and as data."""
    try:
        loader = _Loader(source)
        try:
            root = loader.get_single_node()
            _refuse_repeated_keys(root, file)
            return root, None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = f"{file}:{line}: is not YAML: {error.problem}"
        raise ScriptError(problem) from None
    except yaml.YAMLError as error:
        problem = f"{file}: is not YAML: {error}".replace("\n", " ")
        raise ScriptError(problem) from None


class _Loader(yaml.SafeLoader):
    """Reads YAML without its dates: a script's values are those of JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _refuse_repeated_keys(node: yaml.Node | None, file: str) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, file)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            problem = f"{file}:{key.start_mark.line + 1}: the key {key.value} is there twice"
            raise ScriptError(problem)
        seen.add(str(key.value))
        _refuse_repeated_keys(value, file)


def _problem(error: ValidationError, root: yaml.Node | None, file: str) -> str:
    """Words the first place at fault; alternatives of one place are one problem."""
    first: tuple[str, int] | None = None
    words: list[str] = []
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        place = _locate(root, item["loc"])
        if first is None:
            first = place
        if place == first:
            words.append(item["msg"].removeprefix("Value error, "))
    path, line = first or ("", 1)
    return f"{file}:{line}: {path or 'the file'}: {', or '.join(dict.fromkeys(words))}"


def _locate(node: yaml.Node | None, loc: Sequence[str | int]) -> tuple[str, int]:
    """Returns the path and line of a place. What is in `loc` beside keys names alternatives."""
    path = ""
    line = 1 if node is None else node.start_mark.line + 1
    for step in loc:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == step), None)
            if pair is not None:
                path += f".{step}" if path else str(step)
                line = pair[0].start_mark.line + 1
                node = pair[1]
                continue
            # The last step names a key that is missing.
            if step == loc[-1] and isinstance(step, str) and step in _KEYS:
                path += f".{step}" if path else step
        elif (
            isinstance(node, yaml.SequenceNode)
            and isinstance(step, int)
            and 0 <= step < len(node.value)
        ):
            node = node.value[step]
            path += f"[{step}]"
            line = node.start_mark.line + 1
    return path, line


_KEYS = {
    name
    for entry in (Script, Answer, When, TextPattern, ToolCallStep, UsageStep, ErrorStep, Step)
    for name in entry.model_fields
}
