"""What an operator asks for, in text, checked against the cases that there are."""

from __future__ import annotations

from collections.abc import Iterable

from sagentry.plugins.check.cases import ALL
from sagentry.plugins.check.declared import ARMS


def full_names(contracts: Iterable[str]) -> frozenset[str]:
    """Returns the full names of contracts.

    Args:
        contracts: Full names or their last part, for example `AgentPersistenceService`.

    Raises:
        ValueError: if there is no such contract.
    """
    known = {service.rpartition(".")[2]: service for service in ARMS}
    found = set()
    for contract in contracts:
        service = known.get(contract, contract)
        if service not in ARMS:
            raise ValueError(f"no contract {contract!r}; there are {', '.join(known)}")
        found.add(service)
    return frozenset(found)


def known_failing(text: str) -> frozenset[str]:
    """Returns the ids of a list of known failures: one a line, `#` begins a comment.

    Raises:
        ValueError: if there is no such case.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    ids = frozenset(line for line in lines if line)
    if unknown := ids - {case.id for case in ALL}:
        raise ValueError(f"no such case: {', '.join(sorted(unknown))}")
    return ids
