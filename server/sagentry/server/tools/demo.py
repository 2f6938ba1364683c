"""Two tools to try the server with."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sagentry.server.errors import ToolError
from sagentry.server.tools.function_tool import tool

_LONGEST_EXPRESSION = 1000
_LARGEST_BITS = 4096
"""Numbers have at most this many bits: some 1200 digits."""

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


@tool(read_only=True, display_text="Looking at the clock")
async def current_time(timezone: str = "UTC") -> str:
    """Tells the current date and time.

    Args:
        timezone: IANA name of a time zone, for example Europe/Berlin.
    """
    now = datetime.now(UTC)
    if timezone.upper() != "UTC":
        try:
            now = now.astimezone(ZoneInfo(timezone))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            problem = f"unknown time zone {timezone!r}; use an IANA name like Europe/Berlin"
            raise ToolError(problem) from None
    return f"{now:%A, %Y-%m-%d %H:%M:%S} {timezone}"


@tool(read_only=True, display_text="Calculating")
async def calculate(expression: str) -> str:
    """Works out an arithmetic expression with + - * / // % ** and parentheses.

    Args:
        expression: The expression, for example (17 * 23) / 4.
    """
    if len(expression) > _LONGEST_EXPRESSION:
        problem = f"the expression is longer than {_LONGEST_EXPRESSION} characters"
        raise ToolError(problem)
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return str(_value(tree.body))
    except ZeroDivisionError:
        problem = "division by zero"
        raise ToolError(problem) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        problem = "not an arithmetic expression"
        raise ToolError(problem) from None
    except OverflowError:
        problem = "the result is too large"
        raise ToolError(problem) from None


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second = _value(left), _value(right)
            if isinstance(op, ast.Pow):
                _check_power(first, second)
            result = _BINARY[type(op)](first, second)
            if isinstance(result, complex):
                problem = "the result is not a real number"
                raise ToolError(problem)
            return _bounded(result)
        case _:
            pass
    problem = "only numbers, + - * / // % ** and parentheses are understood"
    raise ToolError(problem)


def _check_power(base: float, exponent: float) -> None:
    """Refuses a power before it is worked out: it could take hours and all memory."""
    if isinstance(base, int) and isinstance(exponent, int):
        bits = max(base.bit_length() - 1, 0) * max(exponent, 0)
        if bits > _LARGEST_BITS:
            raise OverflowError


def _bounded(number: float) -> int | float:
    if isinstance(number, int) and number.bit_length() > _LARGEST_BITS:
        raise OverflowError
    return number
