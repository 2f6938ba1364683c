"""Calls of plugins: every failure has one meaning, names its plugin, and leaks nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.scope import Scope, ScopeKey, ScopeKind
from sagentry.server.errors import PluginError, StaleEpochError
from sagentry.server.plugin.host import PluginHost
from sagentry.server.plugin.v1.agent_persistence import AgentPersistence
from sagentry.server.ports import PluginCall
from tests.support.hosts import attached, hosting, launched, plain_plugin
from tests.support.plugins.plain_plugin import SECRET


def store_of(host: PluginHost) -> AgentPersistence:
    binding = host.binding("agent_persistence")
    assert binding is not None
    return AgentPersistence(binding)


def call(conversation: str, timeout: timedelta | None = None) -> PluginCall:
    scope = Scope(ScopeKey(ScopeKind.SCOPED, "acme"), "text/plain", b"token of the caller")
    return PluginCall(scope, conversation, "a", "request-1", timeout=timeout)


@pytest.mark.parametrize(
    ("behaviour", "reason", "words"),
    [
        ("unset", "PLUGIN_FAULT", "outcome"),
        ("echo", "PLUGIN_FAULT", "request_id"),
        ("not-found", "PLUGIN_FAULT", "NOT_FOUND"),
        ("raises", "PLUGIN_FAULT", "unknown"),
        ("overloaded", "PLUGIN_UNAVAILABLE", "now"),
        ("stale", "STALE_EPOCH", "newer owner"),
        ("data-loss", "STATE_CORRUPT", "stored"),
    ],
)
async def test_each_failure_has_one_meaning_and_names_its_plugin(
    behaviour: str, reason: str, words: str
) -> None:
    """Field reports 23 and 37: failures were taken for one another, a lost route for a new agent."""
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        with pytest.raises(PluginError) as caught:
            await store_of(host).load(call(behaviour), claim_as=None)

    error = caught.value
    assert error.reason == reason
    assert words in error.message
    assert (error.plugin, error.method) == ("store", "LoadState")
    assert "plugin store: LoadState" in error.message
    assert error.budget == timedelta(seconds=5)
    assert SECRET not in error.message
    assert isinstance(error, StaleEpochError) == (reason == "STALE_EPOCH")


async def test_facts_of_a_refusal_reach_the_server() -> None:
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        with pytest.raises(StaleEpochError) as caught:
            await store_of(host).load(call("stale"), claim_as=None)

    assert caught.value.facts == {"current_epoch": "9"}


async def test_a_plugin_that_hangs_is_given_up_in_the_time_that_the_caller_has() -> None:
    """Field reports 24 and 57: no timeout on the hook, or one that looked like an internal error."""
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        with pytest.raises(PluginError) as caught:
            await store_of(host).load(call("hang", timedelta(milliseconds=400)), claim_as=None)

    assert caught.value.reason == "PLUGIN_TIMEOUT"
    assert caught.value.budget == timedelta(milliseconds=300)


async def test_error_details_that_are_too_long_do_not_become_another_error() -> None:
    """Field report 48: long details hid the error, and it was repeated as a quota."""
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        with pytest.raises(PluginError) as caught:
            await store_of(host).load(call("long-details"), claim_as=None)

    assert caught.value.reason == "PLUGIN_REFUSED"
    assert len(str(caught.value)) < 1024


async def test_a_plugin_that_dies_in_mid_call_is_unavailable_at_once() -> None:
    """Field report 61: a request to a vanished worker waited for ever."""
    async with (
        plain_plugin("127.0.0.1:0") as running,
        hosting(store=f"dns:///127.0.0.1:{running.port}") as host,
    ):
        await attached(host, "store")
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(_failure(store_of(host), "hang"))
            tasks.create_task(running.kill())
        error = loading.result()

    assert error.reason == "PLUGIN_UNAVAILABLE"


async def _failure(store: AgentPersistence, conversation: str) -> PluginError:
    with pytest.raises(PluginError) as caught:
        await store.load(call(conversation), claim_as=None)
    return caught.value


async def test_a_plugin_that_is_not_attached_fails_at_once_and_says_why() -> None:
    async with hosting(store="unix:/tmp/no-such-socket-of-sagentry") as host:
        error = await _failure(store_of(host), "absent")

    assert error.reason == "PLUGIN_UNAVAILABLE"
    assert "not attached" in error.message


async def test_a_request_over_the_plugins_limit_is_not_sent() -> None:
    """Field report 32: an oversize request was repeated and looked like a timeout."""
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        with pytest.raises(PluginError) as caught:
            await store_of(host).persist(
                call("absent"),
                lifecycle=Lifecycle.ON_COMPLETION,
                state_json="x" * 200_000,
                schema_version=1,
                revision=1,
                release=False,
            )

    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert caught.value.metadata["limit"] == "100000"


async def test_failures_are_kept_with_a_command_that_repeats_them_without_secrets() -> None:
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        await _failure(store_of(host), "unset")
        await _failure(store_of(host), "data-loss")
        newest, oldest = host.list_failures("store")

    assert (newest.reason, oldest.reason) == ("STATE_CORRUPT", "PLUGIN_FAULT")
    assert "grpcurl -plaintext -max-time 5" in newest.command
    assert "AgentPersistenceService/LoadState" in newest.command
    assert '"tenant": "acme"' in newest.command
    assert "token of the caller" not in newest.command
    assert newest.request_id == "request-1"


async def test_a_call_that_works_returns_what_the_plugin_said() -> None:
    async with hosting(store=launched()) as host:
        await attached(host, "store")
        stored = await store_of(host).load(call("absent"), claim_as="me")

    assert (stored.base_json, stored.owner_epoch) == (None, 1)
