"""Level 0: the plugin can be reached, and what it says of itself keeps to the rules."""

# ruff: noqa: D103  the sentence that a case is given says what it checks

from __future__ import annotations

import re

from sagentry.plugins.check.answer import CheckFailedError
from sagentry.plugins.check.case import Cases, Level
from sagentry.plugins.check.declared import ARMS, ENUMS, PLUGIN_ENUM, numbers_of
from sagentry.plugins.check.methods import (
    AGENT_PERSISTENCE,
    DISPLAY_MESSAGE_PERSISTENCE,
    MESSAGE_PREPROCESSOR,
    PLUGIN,
)
from sagentry.plugins.check.session import Session

cases = Cases("attach", contract=PLUGIN, level=Level.ATTACH)

_NAME = re.compile(r"[a-z0-9.-]{1,63}")
_ID = re.compile(r"[!-~]{1,256}")
_SERVICE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")
_MAX_VERSION_CHARACTERS = 256
_MAX_LAST_MESSAGES = 1000
_UNSPECIFIED = 0
_ADVERTISED = 1


def _expect(holds: bool, expected: str, got: object) -> None:  # noqa: FBT001  the condition
    """Judges the answer that GetPluginInfo gave at the attachment."""
    if not holds:
        raise CheckFailedError(sent="GetPluginInfo", expected=expected, got=str(got))


@cases.case("Name of the plugin, in reverse-domain style: 1 to 63 characters of `[a-z0-9.-]`.")
async def name_is_valid(session: Session) -> None:
    name = session.info.name
    _expect(bool(_NAME.fullmatch(name)), f"a name that matches {_NAME.pattern}", repr(name))


@cases.case("Version of the plugin, for people. 1 to 256 characters.")
async def version_is_valid(session: Session) -> None:
    version = session.info.version
    _expect(
        1 <= len(version) <= _MAX_VERSION_CHARACTERS,
        "a version of 1 to 256 characters",
        f"one of {len(version)} characters",
    )


@cases.case("Identity of this start of the plugin's process: `[!-~]{1,256}`.")
async def instance_id_is_valid(session: Session) -> None:
    instance_id = session.info.instance_id
    _expect(
        bool(_ID.fullmatch(instance_id)),
        f"an instance_id that matches {_ID.pattern}",
        repr(instance_id),
    )


@cases.case("The contracts that the plugin serves: required, 1 or more.")
async def contracts_are_listed(session: Session) -> None:
    services = session.services
    _expect(bool(services), "one or more contracts", "none")
    _expect(
        all(_SERVICE.fullmatch(service) for service in services),
        "full names of services, for example sagentry.api.plugin.v1.AgentPersistenceService",
        services,
    )
    _expect(len(set(services)) == len(services), "each contract once", services)


@cases.case("Contracts are negotiated by the full name of their service.")
async def asked_contracts_are_declared(session: Session) -> None:
    missing = sorted(session.asked - set(session.services))
    _expect(
        not missing,
        f"the contracts that --contract asks for: {', '.join(missing)}",
        session.services,
    )


@cases.case("Capabilities of a contract: the arm must fit `service`.")
async def capabilities_fit_the_contract(session: Session) -> None:
    for contract in session.info.contracts:
        arm = contract.WhichOneof("capabilities")
        wanted = ARMS.get(contract.service)
        _expect(
            arm is None or wanted is None or arm == wanted,
            f"{wanted} for {contract.service}",
            arm,
        )


@cases.case("The plugin lists its capabilities, `PLUGIN_CAPABILITY_ADVERTISED` among them.")
async def plugin_capabilities_are_marked(session: Session) -> None:
    numbers = list(session.info.capabilities)
    _expect(
        not numbers or _ADVERTISED in numbers,
        f"{PLUGIN_ENUM.values_by_number[_ADVERTISED].name} among the plugin's capabilities",
        numbers,
    )


async def _contract_is_marked(session: Session, service: str) -> None:
    for contract in session.info.contracts:
        arm = contract.WhichOneof("capabilities")
        if contract.service != service or arm is None:
            continue
        marker = ENUMS[arm].values_by_number[_ADVERTISED].name
        numbers = numbers_of(contract)
        _expect(_ADVERTISED in numbers, f"{marker} among the capabilities", numbers)


@cases.case(
    "The capabilities, `AGENT_PERSISTENCE_CAPABILITY_ADVERTISED` among them.",
    contract=AGENT_PERSISTENCE,
)
async def agent_persistence_capabilities_are_marked(session: Session) -> None:
    await _contract_is_marked(session, AGENT_PERSISTENCE)


@cases.case(
    "The capabilities, `DISPLAY_MESSAGE_PERSISTENCE_CAPABILITY_ADVERTISED` among them.",
    contract=DISPLAY_MESSAGE_PERSISTENCE,
)
async def display_message_persistence_capabilities_are_marked(session: Session) -> None:
    await _contract_is_marked(session, DISPLAY_MESSAGE_PERSISTENCE)


@cases.case(
    "The capabilities, `MESSAGE_PREPROCESSOR_CAPABILITY_ADVERTISED` among them.",
    contract=MESSAGE_PREPROCESSOR,
)
async def message_preprocessor_capabilities_are_marked(session: Session) -> None:
    await _contract_is_marked(session, MESSAGE_PREPROCESSOR)


@cases.case("The capability 0 is not set: a breach of the contract.")
async def capabilities_are_specified(session: Session) -> None:
    numbers: dict[str, list[int]] = {"the plugin": list(session.info.capabilities)}
    numbers |= {contract.service: numbers_of(contract) for contract in session.info.contracts}
    for owner, listed in numbers.items():
        _expect(_UNSPECIFIED not in listed, f"no value 0 in the capabilities of {owner}", listed)


@cases.case("Limits are bytes and calls that the plugin can take, or unset.")
async def limits_are_positive(session: Session) -> None:
    for field, value in session.info.limits.ListFields():
        _expect(value > 0, f"limits.{field.name} of at least 1, or unset", value)


@cases.case("At most one STATE_VIEW value is declared.", contract=MESSAGE_PREPROCESSOR)
async def state_view_is_single(session: Session) -> None:
    views = sorted(name for name in session.capabilities if "_STATE_VIEW_" in name)
    _expect(len(views) <= 1, "at most one STATE_VIEW capability", views)


@cases.case(
    "How many messages STATE_VIEW_LAST_MESSAGES asks for, 1 to 1000.",
    contract=MESSAGE_PREPROCESSOR,
    needs=("MESSAGE_PREPROCESSOR_CAPABILITY_STATE_VIEW_LAST_MESSAGES",),
)
async def last_messages_are_in_range(session: Session) -> None:
    for contract in session.info.contracts:
        if contract.HasField("message_preprocessor"):
            wanted = contract.message_preprocessor.last_messages
            _expect(1 <= wanted <= _MAX_LAST_MESSAGES, "last_messages from 1 to 1000", wanted)
