"""What a case is, and how the modules of `cases` write theirs."""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from sagentry.plugins.check.session import Session

Body: TypeAlias = Callable[[Session], Awaitable[None]]

_ID = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


class Level(enum.IntEnum):
    """How much is asked of a plugin; each level contains the ones below."""

    ATTACH = 0
    REQUIRED = 1
    FAULTS = 2
    CONCURRENCY = 3


class Outcome(enum.Enum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be run; the reason says why."""
    UNDECLARED = "undeclared"
    """The plugin does not declare what the case is about."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that the contract says, and how to find out whether it is so.

    Attributes:
        id: `group.what_holds`, unique and never renamed: lists of known failures name it.
        contract: Full name of the service that it belongs to.
        level: The level from which on it runs.
        sentence: The sentence of the contract that it checks.
        body: Returns if it is so; raises CheckFailedError if not, SkippedError if it cannot tell.
        needs: The capabilities that it needs, with their prefixes.
    """

    id: str
    contract: str
    level: Level
    sentence: str
    body: Body
    needs: tuple[str, ...] = ()


class Cases:
    """Cases of one module, in the order in which they run.

        cases = Cases("attach", contract=PLUGIN, level=Level.ATTACH)

        @cases.case("A plugin serves health for the empty name.")
        async def health_is_serving(session: Session) -> None: ...

    Args:
        group: First half of the ids; the second half is the function's name.
        contract: Contract of the cases that name no other.
        level: Level of the cases that name no other.
    """

    def __init__(self, group: str, *, contract: str, level: Level) -> None:
        self._group = group
        self._contract = contract
        self._level = level
        self._cases: dict[str, Case] = {}

    def case(
        self,
        sentence: str,
        *,
        needs: tuple[str, ...] = (),
        contract: str | None = None,
        level: Level | None = None,
    ) -> Callable[[Body], Body]:
        """Registers the function below as a case.

        Args:
            sentence: The sentence of the contract that it checks.
            needs: The capabilities that it needs, with their prefixes.
            contract: Full name of the service, if not that of the group.
            level: If not that of the group.

        Raises:
            ValueError: if the id is malformed or taken.
        """

        def register(body: Body) -> Body:
            identity = f"{self._group}.{getattr(body, '__name__', '')}"
            if not _ID.fullmatch(identity) or identity in self._cases:
                raise ValueError(f"case id {identity!r} is malformed or taken")
            self._cases[identity] = Case(
                id=identity,
                contract=contract or self._contract,
                level=self._level if level is None else level,
                sentence=sentence,
                body=body,
                needs=needs,
            )
            return body

        return register

    def all(self) -> tuple[Case, ...]:
        """Returns the cases in the order of their registration."""
        return tuple(self._cases.values())
