"""What came back from a call, and what a case says when it is not what the contract asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

R = TypeVar("R", bound=Message)
D = TypeVar("D", error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)

_SHOWN_CHARACTERS = 400


class CheckFailedError(Exception):
    """The plugin does not do what the contract says.

    Attributes:
        sent: What was sent.
        expected: What the contract asks for.
        got: What came.
    """

    def __init__(self, *, sent: str, expected: str, got: str) -> None:
        super().__init__(f"sent {sent}; expected {expected}; got {got}")
        self.sent = sent
        self.expected = expected
        self.got = got


class SkippedError(Exception):
    """The case cannot tell; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """What came back from one call: a response, or a status.

    Attributes:
        sent: Method and request, shortened, for people.
        code: The status code.
        message: The status message; empty with a response.
        response: The response, or None.
        status: The status with its details, if the plugin sent one.
        details_bytes: Size of the details as they came.
        seconds: How long it took.
    """

    sent: str
    code: grpc.StatusCode
    message: str = ""
    response: R | None = None
    status: status_pb2.Status | None = None
    details_bytes: int = 0
    seconds: float = 0.0

    @property
    def error(self) -> error_details_pb2.ErrorInfo:
        """The error's ErrorInfo, empty if there is none."""
        return self._detail(error_details_pb2.ErrorInfo())

    @property
    def bad_fields(self) -> tuple[str, ...]:
        """The fields that the error's BadRequest names."""
        request = self._detail(error_details_pb2.BadRequest())
        return tuple(violation.field for violation in request.field_violations)

    def ok(self) -> R:
        """Returns the response.

        Raises:
            CheckFailedError: if the call failed.
        """
        if self.response is None:
            self.fail("an answer with status OK")
        return self.response

    def refused(self, code: grpc.StatusCode, reason: str = "") -> None:
        """Does nothing if the call was refused in that way.

        Args:
            code: The status code.
            reason: Reason in ErrorInfo; empty takes any.

        Raises:
            CheckFailedError: if it was answered, or refused otherwise.
        """
        with_reason = f" with the ErrorInfo reason {reason}" if reason else ""
        self.expect(
            self.code is code and reason in ("", self.error.reason), f"{code.name}{with_reason}"
        )

    def expect(self, holds: bool, expected: str, got: str = "") -> None:  # noqa: FBT001  the condition
        """Does nothing if the condition holds.

        Args:
            holds: The condition.
            expected: What the contract asks for.
            got: What came, if not the whole answer.

        Raises:
            CheckFailedError: about this call, if it does not hold.
        """
        if not holds:
            self.fail(expected, got)

    def fail(self, expected: str, got: str = "") -> NoReturn:
        """Raises CheckFailedError about this call; arguments as of `expect`."""
        raise CheckFailedError(sent=self.sent, expected=expected, got=got or self.described())

    def described(self) -> str:
        """Returns what came, shortened, for people."""
        if self.response is not None:
            return f"OK {shown(self.response)}"
        reason = f"reason {self.error.reason}" if self.error.reason else "without ErrorInfo"
        return f"{self.code.name}, {reason}: {_short(self.message)!r}"

    def _detail(self, empty: D) -> D:
        for detail in self.status.details if self.status is not None else ():
            if detail.Is(empty.DESCRIPTOR):
                detail.Unpack(empty)
                break
        return empty


def shown(message: Message) -> str:
    """Returns a message as one short line, for people."""
    return f"{{{_short(' '.join(str(message).split()))}}}"


def _short(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
