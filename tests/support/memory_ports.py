"""Verified fakes of what an agent's world is made of: time, journal, stores, and the trace of it all.

Each does what its port says, and nothing happens by time: what is told to hold answers when it is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from sagentry.server.domain.display import (
    ConversationCounters,
    DisplayMessage,
    DisplayPage,
    ListOrder,
)
from sagentry.server.domain.events import Event
from sagentry.server.domain.runs import Lifecycle
from sagentry.server.domain.scope import ConversationKey
from sagentry.server.domain.writes import (
    RowMissing,
    RowsSaved,
    RowUpdated,
    SaveMessage,
    SaveSynthetic,
    UpdateToolStatus,
    WriteOutcome,
)
from sagentry.server.errors import LimitExceededError, PartialWriteError, PluginError
from sagentry.server.ports import (
    DisplayStoreCapabilities,
    JournalEntry,
    JournalRecord,
    PluginCall,
    StateStoreCapabilities,
    StoredState,
    WriteRequest,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time that stands still unless a test moves it; `sleep` only lets others run."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._scheduled = asyncio.Event()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, duration: timedelta) -> None:
        self.seconds += duration / timedelta(seconds=1)
        await asyncio.sleep(0)

    def call_later(self, delay: timedelta, callback: Callable[[], None]) -> Callable[[], None]:
        entry = (self.seconds + delay / timedelta(seconds=1), callback)
        self._later.append(entry)
        self._scheduled.set()

        def cancel() -> None:
            if entry in self._later:
                self._later.remove(entry)

        return cancel

    async def until_scheduled(self) -> None:
        """Returns when somebody waits to be called back."""
        async with asyncio.timeout(20):
            while not self._later:
                self._scheduled.clear()
                await self._scheduled.wait()

    def advance(self, seconds: float) -> None:
        """Moves the time and calls back whoever asked for it by then."""
        self.seconds += seconds
        due = [entry for entry in self._later if entry[0] <= self.seconds]
        self._later = [entry for entry in self._later if entry[0] > self.seconds]
        for _, callback in due:
            callback()


class Trace:
    """One list of everything that happened, in order, as short words."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.events: list[Event] = []
        """Everything that readers were told, over all lives."""
        self._changed = asyncio.Event()

    def add(self, word: str) -> None:
        self.words.append(word)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds; fails after a generous time if it never does."""
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_word(self, word: str, times: int = 1) -> None:
        await self.until(lambda: self.words.count(word) >= times)


class MemoryJournal:
    """A journal that survives a fake crash: hand the same one to the next world."""

    def __init__(self) -> None:
        self.entries: dict[int, JournalEntry] = {}
        self.quarantine: dict[int, str] = {}
        self.set_aside_payloads: list[str] = []
        self.refused_payloads: list[str] = []
        self.attempts: dict[int, list[str]] = {}
        self.failure: Exception | None = None
        self.refuses: Callable[[Sequence[JournalRecord]], bool] = lambda _records: False
        self._last = 0
        self._appended = asyncio.Event()
        self._held: list[Callable[[], None]] | None = None

    def append(
        self,
        conversation: ConversationKey,
        agent_id: str,
        records: Sequence[JournalRecord],
        *,
        on_durable: Callable[[Sequence[int], Exception | None], None],
    ) -> None:
        def write() -> None:
            failure = self.failure
            if failure is None and self.refuses(records):
                failure = LimitExceededError("JOURNAL_FULL", "full", limit=1, actual=1)
            if failure is not None:
                self.refused_payloads.extend(record.payload for record in records)
                loop.call_soon(on_durable, [], failure)
                return
            ids = []
            for record in records:
                self._last += 1
                self.entries[self._last] = JournalEntry(self._last, conversation, agent_id, record)
                ids.append(self._last)
            loop.call_soon(on_durable, ids, None)
            self._appended.set()

        loop = asyncio.get_running_loop()
        if self._held is not None:
            self._held.append(write)
            self._appended.set()
        else:
            write()

    def refuse_once(self, word: str) -> None:
        """Refuses the next records that hold the word."""

        def refuses(records: Sequence[JournalRecord]) -> bool:
            if any(word in record.payload for record in records):
                self.refuses = lambda _records: False
                return True
            return False

        self.refuses = refuses

    def hold(self) -> None:
        """Writes nothing until `release`; a crash before that loses it."""
        self._held = self._held or []

    def release(self) -> None:
        """Writes what was held, in order."""
        held, self._held = self._held or [], None
        for write in held:
            write()

    def crash(self) -> None:
        """Loses what is held."""
        self._held = None

    async def until_held(self, appends: int = 1) -> None:
        """Returns when so many appends wait for the disk."""
        async with asyncio.timeout(20):
            while len(self._held or []) < appends:
                self._appended.clear()
                await self._appended.wait()

    async def until_recorded(self, text: str) -> None:
        """Returns when some record holds the text."""
        async with asyncio.timeout(20):
            while not any(text in entry.record.payload for entry in self.entries.values()):
                self._appended.clear()
                await self._appended.wait()

    def remove(self, entry_ids: Sequence[int]) -> None:
        for entry_id in entry_ids:
            self.entries.pop(entry_id, None)

    def set_aside(self, entry_ids: Sequence[int], reason: str) -> None:
        for entry_id in entry_ids:
            entry = self.entries.pop(entry_id, None)
            self.quarantine[entry_id] = reason
            if entry is not None:
                self.set_aside_payloads.append(entry.record.payload)

    def note_attempt(self, entry_ids: Sequence[int], reason: str) -> None:
        for entry_id in entry_ids:
            self.attempts.setdefault(entry_id, []).append(reason)

    async def read(self, conversation: ConversationKey) -> Sequence[JournalEntry]:
        return [e for e in self.entries.values() if e.conversation == conversation]

    async def conversations(self) -> Sequence[tuple[ConversationKey, str]]:
        found = {e.conversation: e.agent_id for e in self.entries.values()}
        return list(found.items())


class Gate:
    """Holds whoever passes while it is closed."""

    def __init__(self, *, is_open: bool = True) -> None:
        self._event = asyncio.Event()
        self.reached = asyncio.Event()
        """Set when somebody has come to the gate."""
        if is_open:
            self._event.set()

    def open(self) -> None:
        self._event.set()

    def close(self) -> None:
        self._event.clear()

    async def passing(self) -> None:
        self.reached.set()
        await self._event.wait()


class MemoryStateStore:
    """A state store that can be told to hold or to fail."""

    plugin = "states"
    max_state_bytes = 32 * 1024 * 1024

    def __init__(
        self, trace: Trace, *, append_state: bool = True, checkpoint: bool = False
    ) -> None:
        self.capabilities = StateStoreCapabilities(
            fencing=True, append_state=append_state, checkpoint=checkpoint
        )
        self.base: dict[str, tuple[str, int]] = {}
        self.patches: dict[str, list[tuple[int, str]]] = {}
        self.epochs: dict[str, int] = {}
        self.owners: dict[str, str] = {}
        self.gate = Gate()
        self.load_gate = Gate()
        self.loading = asyncio.Event()
        self.load_fault: Exception | None = None
        self.failure: Exception | None = None
        self.append_failure: Exception | None = None
        self.loses_answers: Exception | None = None
        """Raised when all is stored: the answer is lost."""
        self.asked = 0
        self._trace = trace

    async def load(self, call: PluginCall, *, claim_as: str | None) -> StoredState:
        key = call.conversation_id
        self.loading.set()
        await self.load_gate.passing()
        if self.load_fault is not None:
            raise self.load_fault
        previous = self.owners.get(key, "")
        if claim_as is not None:
            self.epochs[key] = self.epochs.get(key, 0) + 1
            self.owners[key] = claim_as
        text, revision = self.base.get(key, (None, 0))
        return StoredState(
            base_json=text,
            schema_version=1,
            base_revision=revision,
            patches=tuple(self.patches.get(key, [])),
            owner_epoch=self.epochs.get(key, 0),
            previous_owner=previous,
        )

    async def persist(
        self,
        call: PluginCall,
        *,
        lifecycle: Lifecycle,
        state_json: str,
        schema_version: int,
        revision: int,
        release: bool,
    ) -> None:
        del schema_version, release
        await self._work(f"persist {lifecycle.value}")
        self.base[call.conversation_id] = (state_json, revision)
        self.patches[call.conversation_id] = []
        if self.loses_answers is not None:
            raise self.loses_answers

    async def append(
        self, call: PluginCall, *, expected_revision: int, revision: int, patch_json: str
    ) -> bool:
        if self.append_failure is not None:
            raise self.append_failure
        await self._work("append")
        key = call.conversation_id
        if key not in self.base:
            return False
        stored = self.patches[key][-1][0] if self.patches[key] else self.base[key][1]
        if stored != expected_revision:
            return False
        self.patches[key].append((revision, patch_json))
        if self.loses_answers is not None:
            raise self.loses_answers
        return True

    async def set_interrupted(self, call: PluginCall, *, interrupted: bool, revision: int) -> None:
        del call, interrupted, revision

    async def _work(self, word: str) -> None:
        self.asked += 1
        await self.gate.passing()
        if self.failure is not None:
            raise self.failure
        self._trace.add(f"P {word}")


class MemoryDisplayStore:
    """A display store with positions and changes, that can be told to hold or to fail."""

    plugin = "rows"

    def __init__(self, trace: Trace, *, save_synthetic: bool = True) -> None:
        self.capabilities = DisplayStoreCapabilities(
            fencing=True, save_synthetic=save_synthetic, list_rows=True, apply_writes=True
        )
        self.rows: dict[str, dict[str, SaveMessage | SaveSynthetic]] = {}
        self.statuses: dict[str, str] = {}
        self.order: list[tuple[str, str]] = []
        self.positions = 0
        self.gate = Gate()
        self.failure: Exception | None = None
        self.loses_answers: Exception | None = None
        """Raised when all is stored: the answer is lost."""
        self.has_failed = asyncio.Event()
        self.poison = ""
        """A text that breaks the store when a message holds it."""
        self._trace = trace

    async def open(self, call: PluginCall) -> ConversationCounters:
        del call
        return ConversationCounters(self.positions, self.positions)

    async def apply(
        self, call: PluginCall, writes: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        await self.gate.passing()
        if self.failure is not None:
            self.has_failed.set()
            raise self.failure
        outcomes: list[WriteOutcome] = []
        for write in writes:
            if self.poison and self.poison in repr(write):
                raise PartialWriteError(outcomes, self._fault())
            outcomes.append(self._apply(call.conversation_id, write))
        if self.loses_answers is not None:
            raise self.loses_answers
        return outcomes

    def _fault(self) -> PluginError:
        return PluginError(
            "PLUGIN_FAULT",
            "poison",
            plugin=self.plugin,
            method="SaveMessage",
            elapsed=timedelta(0),
            budget=timedelta(seconds=3),
        )

    def _apply(self, conversation: str, request: WriteRequest) -> WriteOutcome:
        write = request.write
        rows = self.rows.setdefault(conversation, {})
        match write:
            case SaveMessage(message=message, items=items):
                self._trace.add(f"P save {message.role.value}")
                if message.message_id not in rows:
                    self.order.append((conversation, message.message_id))
                rows[message.message_id] = write
                return RowsSaved(tuple(self._row(message.message_id) for _ in items))
            case SaveSynthetic(message_id=message_id):
                self._trace.add("P synthetic")
                rows[message_id] = write
                return RowsSaved((self._row(message_id),))
            case UpdateToolStatus(message_id=message_id, call_id=call_id, status=status):
                self._trace.add(f"P tool {status.value}")
                if message_id not in rows:
                    return RowMissing()
                self.statuses[call_id] = status.value
                return RowUpdated(self._row(message_id))
            case _:
                return RowMissing()

    def _row(self, message_id: str) -> DisplayMessage:
        self.positions += 1
        return DisplayMessage(
            f"row-{self.positions}", self.positions, self.positions, message_id, b""
        )

    async def list_rows(
        self, call: PluginCall, *, order: ListOrder, after: int | None, page_size: int
    ) -> DisplayPage:
        del call, order, after, page_size
        return DisplayPage((), has_more=False)
