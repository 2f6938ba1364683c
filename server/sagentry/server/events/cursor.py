"""Where a reader is in an agent's log, as opaque text."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from sagentry.server.errors import InvalidInputError

NO_LOG = "0" * 32
"""A log_id that no log has: a cursor with it leads to a new snapshot."""

_PATTERN = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{32})\.([0-9]{1,18})\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a log.

    Attributes:
        log_id: The log's life; `NO_LOG` when going on needs a snapshot whatever the log.
        index: Ring index of the last entry that was read.
        sequence: The last durable sequence up to that entry.
    """

    log_id: str
    index: int
    sequence: int

    def text(self, agent: str) -> str:
        """Returns the cursor as text; `agent` is the fingerprint of its agent."""
        return f"{agent}.{self.log_id}.{self.index}.{self.sequence}"


def fingerprint(agent_id: str) -> str:
    """Returns what tells the cursors of agents apart."""
    return hashlib.sha256(agent_id.encode()).hexdigest()[:16]


def parse_cursor(text: str, agent: str) -> Cursor:
    """Reads a cursor of the agent with that fingerprint.

    Raises:
        InvalidInputError: CURSOR_INVALID; it is malformed or of another agent.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise invalid_cursor("is not a cursor of this server")
    if match[1] != agent:
        raise invalid_cursor("belongs to another agent")
    return Cursor(log_id=match[2], index=int(match[3]), sequence=int(match[4]))


def invalid_cursor(problem: str) -> InvalidInputError:
    """Makes the error of a cursor."""
    return InvalidInputError("from_cursor", problem, reason="CURSOR_INVALID")
