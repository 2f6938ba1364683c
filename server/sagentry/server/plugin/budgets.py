"""How long plugin calls may take. Source: the RPC comments of the contract."""

from __future__ import annotations

from datetime import timedelta

ATTACH_BUDGET = timedelta(seconds=2)
"""GetPluginInfo, ReportAttachment and health."""

RESERVE = timedelta(milliseconds=100)
"""What is kept of a caller's time to answer the caller."""

_BUDGETS = {
    "PreprocessMessage": timedelta(seconds=5),
    "LoadState": timedelta(seconds=5),
    "PersistState": timedelta(seconds=10),
    "AppendState": timedelta(seconds=10),
    "SetInterrupted": timedelta(seconds=10),
    "DeleteState": timedelta(seconds=10),
    "DeleteConversation": timedelta(seconds=10),
    "GetPluginInfo": ATTACH_BUDGET,
    "ReportAttachment": ATTACH_BUDGET,
    "Check": ATTACH_BUDGET,
}
_DEFAULT = timedelta(seconds=3)


def budget_of(method: str, caller_left: timedelta | None = None) -> timedelta:
    """Returns how long a call of the method may take; never negative.

    Args:
        method: Name of the method.
        caller_left: What the caller has left; None for no limit.
    """
    own = _BUDGETS.get(method, _DEFAULT)
    if caller_left is None:
        return own
    return max(timedelta(0), min(own, caller_left - RESERVE))
