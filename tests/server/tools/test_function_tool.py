# ruff: noqa: D417  (how functions are annotated is what is tested)

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from importlib.metadata import EntryPoint
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.errors import ToolError
from sagentry.server.model_ports import ToolContext
from sagentry.server.tools.demo import calculate, current_time
from sagentry.server.tools.function_tool import (
    ArgumentsError,
    FunctionTool,
    ToolDefinitionError,
    tool,
)
from sagentry.server.tools.registry import ToolRegistry

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext("call-1", "a", "c", Scope(ScopeKey(ScopeKind.UNSCOPED)))


@dataclass
class Place:
    city: str
    day: date


@tool
async def forecast(
    city: Annotated[str, Field(min_length=1)],
    unit: Literal["C", "F"] = "C",
    *,
    days: int = 1,
    json: bool = False,  # a name that pydantic has a use for
    context: ToolContext,
) -> str:
    """Tells the weather.

    More about it.

    Args:
        city: Name of
            the city.
        unit (str): Unit of: temperature.

    Returns:
        Text.
    """
    return f"{city} {unit} {days} {json} {context.call_id}"


def test_the_model_is_told_what_the_function_says_of_itself() -> None:
    assert forecast.spec.name == "forecast"
    assert forecast.spec.description == "Tells the weather.\n\nMore about it."
    schema = json.loads(forecast.spec.parameters_json)
    assert schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "minLength": 1, "description": "Name of the city."},
            "unit": {
                "type": "string",
                "enum": ["C", "F"],
                "default": "C",
                "description": "Unit of: temperature.",
            },
            "days": {"type": "integer", "default": 1},
            "json": {"type": "boolean", "default": False},
        },
    }
    assert (forecast.display_text, forecast.read_only) == ("forecast", False)
    assert forecast.time_limit == timedelta(seconds=60)


async def test_arguments_arrive_typed_and_the_context_is_given() -> None:
    assert (
        await forecast.run({"city": "Rome", "days": 2, "json": True}, CONTEXT)
        == "Rome C 2 True call-1"
    )


async def test_wrong_arguments_are_told_in_words_that_the_model_can_act_on() -> None:
    with pytest.raises(ArgumentsError) as caught:
        await forecast.run(
            {"unit": "K", "days": "many", "extra": "a secret", "context": 1}, CONTEXT
        )
    text = str(caught.value)
    for words in ("city: Field required", "unit: ", "days: ", "extra: Extra", "context: Extra"):
        assert words in text
    assert "secret" not in text
    with pytest.raises(ArgumentsError, match="and 2 more"):
        await forecast.run({str(number): 1 for number in range(6)}, CONTEXT)


async def test_numbers_and_nesting_beyond_what_floats_and_structs_hold_are_exact() -> None:
    @tool
    def echo(value: Any) -> Any:
        return value

    deep: Any = 2**70
    for _ in range(60):
        deep = {"a": [deep]}
    assert json.loads(await echo.run({"value": deep}, CONTEXT)) == deep


async def test_results_that_are_not_text_become_json() -> None:
    @tool
    def find(kind: str) -> object:
        return {"place": Place("Köln", date(2025, 1, 2)), "none": None, "nan": float("nan")}[kind]

    assert await find.run({"kind": "place"}, CONTEXT) == '{"city":"Köln","day":"2025-01-02"}'
    assert await find.run({"kind": "none"}, CONTEXT) == ""
    assert await find.run({"kind": "nan"}, CONTEXT) == '"NaN"'


async def test_a_callable_object_and_a_given_schema_work() -> None:
    class Greeter:
        async def __call__(self, name: str) -> str:
            return f"hello {name}"

    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    greet = FunctionTool(Greeter(), name="greet", description="Greets.", parameters=schema)
    assert json.loads(greet.spec.parameters_json) == schema
    assert not greet.is_synchronous
    assert await greet.run({"name": "you"}, CONTEXT) == "hello you"


def no_type(a) -> None: ...
def any_number(*a: int) -> None: ...
def any_name(**a: int) -> None: ...
def by_place(a: int, /) -> None: ...
def unknown_type(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def no_schema(a: ToolRegistry) -> None: ...


@pytest.mark.parametrize(
    "function",
    [no_type, any_number, any_name, by_place, unknown_type, no_schema, partial(no_type)],
)
def test_a_function_that_no_model_could_call_is_refused_when_it_is_defined(function) -> None:
    with pytest.raises(ToolDefinitionError, match=r"^tool x: "):
        FunctionTool(function, name="x")


# The registry.


def plain(a: int) -> int:
    """Doubles."""
    return a * 2


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "sagentry.tools")


def test_installed_tools_are_found_as_functions_and_as_tools() -> None:
    registry = ToolRegistry.of_entry_points(
        [
            point("double", f"{__name__}:plain"),
            point("clock", "sagentry.server.tools.demo:current_time"),
        ]
    )
    assert sorted(found.spec.name for found in registry) == ["current_time", "double"]
    assert len(registry) == 2
    assert list(registry.select(["double"])) == ["double"]
    assert registry.get("triple") is None
    with pytest.raises(
        ToolDefinitionError, match="triple: is not installed; installed are current_time, double"
    ):
        registry.select(["triple"])


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([point("a", "nowhere:x")], r"tool a \(nowhere:x\): cannot be loaded: ModuleNotFoundError"),
        ([point("a", "sys:maxsize")], "is neither a function nor a tool"),
        ([point("a", "operator:add")], "tool a: "),
        ([point(n, "sagentry.server.tools.demo:calculate") for n in "ab"], "two of that name"),
    ],
)
def test_a_broken_tool_package_is_named(points, words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words):
        ToolRegistry.of_entry_points(points)


def test_a_server_without_tool_packages_starts() -> None:
    assert ToolRegistry.installed() is not None


# The demo tools.


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 * 23", "391"),
        (" (2 + 3) * -4 ", "-20"),
        ("7 // 2 + 7 % 2", "4"),
        ("1 / 4", "0.25"),
        ("2 ** 100", str(2**100)),
        ("2 ** -1", "0.5"),
        ("+1.5", "1.5"),
    ],
)
async def test_calculations_are_right(expression, value) -> None:
    assert await calculate.run({"expression": expression}, CONTEXT) == value


@pytest.mark.parametrize(
    "expression",
    [
        "9 ** 9 ** 9 ** 9",
        "2 ** 5000",
        "(2 ** 4000) * (2 ** 4000)",
        "10.0 ** 400",
        "2 ** (2 ** 4000 / 1)",
        "1 / 0",
        "0 ** -1",
        "(-1) ** 0.5",
        "__import__('os')",
        "a + 1",
        "True + 1",
        "'a' * 3",
        "1 if 1 else 2",
        "1 +",
        "",
        "(" * 500,
        "-" * 900 + "1",
        "1" * 1001,
        "9" * 999 + "9" * 900,
        "1 << 99",
        "2j",
    ],
)
async def test_a_calculation_cannot_harm_the_server(expression) -> None:
    try:
        value = await calculate.run({"expression": expression}, CONTEXT)
    except ToolError:
        return
    assert expression.startswith("-")
    assert value == "1"


async def test_the_clock_knows_zones() -> None:
    assert (await current_time.run({}, CONTEXT)).endswith(" UTC")
    assert (await current_time.run({"timezone": "Europe/Berlin"}, CONTEXT)).endswith(
        " Europe/Berlin"
    )
    for wrong in ("Mars/Base", "../../etc/passwd", "", "\x00"):
        with pytest.raises(ToolError, match="unknown time zone"):
            await current_time.run({"timezone": wrong}, CONTEXT)
