"""Values of the domain, for property tests."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from sagentry.server.domain.display import (
    CustomContent,
    DisplayItem,
    DisplayMessage,
    DisplayMessageType,
    ErrorContent,
    FileReference,
    MediaContent,
    OpaqueContent,
    StructuredData,
    TextContent,
    TextKind,
    Todo,
    TodoSnapshot,
    TodoStatus,
    ToolCallContent,
    ToolInfo,
    ToolResultContent,
    ToolStatus,
)
from sagentry.server.domain.messages import (
    Document,
    MediaKind,
    MediaPart,
    Message,
    MessageStatus,
    OpaquePart,
    Role,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCall,
    ToolCallStatus,
    ToolResult,
)
from sagentry.server.domain.runs import AgentStatus, Run, RunEnd, RunError
from sagentry.server.domain.scope import ConversationKey, Scope, ScopeKey, ScopeKind
from sagentry.server.domain.state import (
    AgentState,
    AnswerRecorded,
    CallStarted,
    HeldDelivered,
    MessageBegun,
    MessageFinished,
    MessageHeld,
    OptionsSet,
    PartOpened,
    Patch,
    RecordedAnswer,
    RunRecorded,
    StartOptions,
    StatusSet,
    TextGrown,
    TitleSet,
    TodosSet,
)
from sagentry.server.domain.writes import (
    ResolveToolResult,
    RowMissing,
    RowsSaved,
    RowUpdated,
    SaveMessage,
    SaveSynthetic,
    UpdateToolStatus,
)
from sagentry.server.ports import JournalRecord, WriteRequest

ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
# Text of the contract is valid UTF-8: everything but surrogates, NUL included.
texts = st.text(st.characters(codec="utf-8"), max_size=40)
media_types = st.sampled_from(["application/json", "image/png", "x/y"])
# Hypothesis wants the bounds without a zone.
times = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001
    max_value=datetime(9999, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)

documents = st.one_of(
    st.builds(lambda kind, text: Document(kind, json=text), media_types, texts),
    st.builds(lambda kind, data: Document(kind, data=data), media_types, st.binary(max_size=20)),
)
json_objects = st.sampled_from(
    [
        "{}",
        '{"a": 1}',
        ' {"n":12345678901234567890123, "s":"\\ud83d\\u0000"} ',
        '{"a":' * 60 + "1" + "}" * 60,
    ]
).map(lambda text: Document("application/json", json=text))

media = st.one_of(
    st.builds(
        lambda kind, media_type, name, url: MediaPart(kind, media_type, name, url=url),
        st.sampled_from(MediaKind),
        media_types,
        texts,
        texts,
    ),
    st.builds(
        lambda kind, media_type, name, data: MediaPart(kind, media_type, name, data=data),
        st.sampled_from(MediaKind),
        media_types,
        texts,
        st.binary(max_size=20),
    ),
)
tool_calls = st.builds(
    ToolCall,
    ids,
    ids,
    texts,
    provider_call_id=texts,
    display_text=texts,
    status=st.sampled_from(ToolCallStatus),
)
text_parts = st.builds(TextPart, texts)
tool_results = st.builds(
    ToolResult,
    ids,
    texts,
    st.lists(st.one_of(text_parts, media), max_size=3).map(tuple),
    is_error=st.booleans(),
    item_id=st.one_of(st.just(""), ids),
)
parts = st.one_of(
    text_parts,
    st.builds(ThinkingPart, texts, st.binary(max_size=20)),
    tool_calls,
    tool_results,
    media,
    st.builds(OpaquePart, documents),
)
counts = st.one_of(st.none(), st.integers(0, 2**62))
usages = st.builds(TokenUsage, counts, counts, counts, counts, counts)
messages = st.builds(
    Message,
    st.one_of(st.just(""), ids),
    st.sampled_from(Role),
    st.lists(parts, min_size=1, max_size=4).map(tuple),
    times,
    status=st.sampled_from(MessageStatus),
    usage=st.one_of(st.none(), usages),
    metadata=st.one_of(st.none(), json_objects),
    run_id=st.one_of(st.just(""), ids),
)

scopes = st.one_of(
    st.just(Scope(ScopeKey(ScopeKind.UNSCOPED))),
    st.builds(
        lambda tenant, partition: Scope(ScopeKey(ScopeKind.SCOPED, tenant, partition)),
        ids,
        st.one_of(st.just(""), ids),
    ),
    st.builds(
        lambda tenant, media_type, payload: Scope(
            ScopeKey(ScopeKind.SCOPED, tenant), media_type, payload
        ),
        ids,
        media_types,
        st.binary(min_size=1, max_size=20),
    ),
)

todos = st.lists(
    st.builds(Todo, st.integers(1, 99), texts, st.sampled_from(TodoStatus)), max_size=3
).map(tuple)
images = media.filter(lambda one: one.kind is MediaKind.IMAGE)
contents = st.one_of(
    st.builds(TextContent, st.sampled_from(TextKind), texts),
    st.builds(MediaContent, images),
    st.builds(FileReference, texts, texts, texts),
    st.builds(StructuredData, texts, documents),
    st.builds(ErrorContent, texts, texts),
    st.builds(ToolCallContent, ids, texts, texts, texts),
    st.builds(ToolResultContent, ids, texts, texts, st.booleans(), st.booleans()),
    st.builds(TodoSnapshot, todos),
    st.builds(CustomContent, ids, documents),
)
items = st.builds(
    DisplayItem,
    st.integers(0, 99),
    st.sampled_from(DisplayMessageType),
    contents,
    tool_status=st.one_of(st.none(), st.sampled_from(ToolStatus)),
    metadata=st.one_of(st.none(), json_objects),
    stop_reason=st.one_of(st.none(), st.sampled_from(MessageStatus)),
    stop_details=st.one_of(st.none(), json_objects),
)

# --- what the server keeps

# Texts that never came from the wire, for example a model's: halves of a surrogate pair included, but not
# side by side, where JSON knows one character.
rough_texts = st.one_of(texts, st.builds(lambda text: f"{text}\ud83d", texts))
integers = st.integers(-(2**80), 2**80)

conversations = st.builds(lambda scope, one: ConversationKey(scope.key, one), scopes, ids)
run_errors = st.builds(RunError, ids, rough_texts, st.booleans())
runs = st.builds(
    Run,
    ids,
    times,
    begun=st.booleans(),
    turns=integers,
    end=st.one_of(st.none(), st.sampled_from(RunEnd)),
    error=st.one_of(st.none(), run_errors),
    usage=usages,
    end_time=st.one_of(st.none(), times),
    unsaved=integers,
    final_message_id=st.one_of(st.just(""), ids),
)
answers = st.builds(RecordedAnswer, ids, ids, st.dictionaries(ids, rough_texts, max_size=3))
start_options = st.builds(
    StartOptions,
    ids,
    st.one_of(st.none(), json_objects),
    st.one_of(st.none(), json_objects),
)
status_changes = st.builds(
    StatusSet, st.sampled_from(AgentStatus), st.one_of(st.none(), run_errors), rough_texts
)
changes = st.one_of(
    st.builds(OptionsSet, start_options),
    st.builds(MessageHeld, messages),
    st.just(HeldDelivered()),
    st.builds(MessageBegun, messages),
    st.builds(PartOpened, ids, parts),
    st.builds(TextGrown, ids, integers, rough_texts),
    st.builds(MessageFinished, messages),
    st.builds(CallStarted, ids),
    st.builds(AnswerRecorded, answers),
    st.builds(RunRecorded, runs),
    status_changes,
    st.builds(TodosSet, todos),
    st.builds(TitleSet, rough_texts),
)
patches = st.builds(Patch, integers, st.lists(changes, max_size=4).map(tuple))
states = st.builds(
    AgentState,
    revision=integers,
    options=st.one_of(st.none(), start_options),
    messages=st.lists(messages, max_size=3),
    growing=st.sets(ids, max_size=3),
    held=st.lists(messages, max_size=2),
    started_calls=st.sets(ids, max_size=3),
    answers=st.lists(answers, max_size=3).map(lambda some: {one.request_id: one for one in some}),
    runs=st.lists(runs, max_size=3).map(lambda some: {one.run_id: one for one in some}),
    status=st.sampled_from(AgentStatus),
    error=st.one_of(st.none(), run_errors),
    pause_reason=rough_texts,
    todos=todos,
    title=rough_texts,
)

optional_texts = st.one_of(st.none(), rough_texts)
tool_infos = st.builds(
    ToolInfo, optional_texts, optional_texts, optional_texts, optional_texts, optional_texts
)
result_contents = st.builds(
    ToolResultContent, ids, rough_texts, rough_texts, st.booleans(), st.booleans()
)
all_items = st.one_of(
    items,
    st.builds(
        DisplayItem,
        integers,
        st.sampled_from(DisplayMessageType),
        st.builds(OpaqueContent, st.binary(max_size=20)),
    ),
)
display_writes = st.one_of(
    st.builds(SaveMessage, messages, st.lists(all_items, max_size=3).map(tuple)),
    st.builds(UpdateToolStatus, ids, ids, st.sampled_from(ToolStatus), tool_infos),
    st.builds(ResolveToolResult, ids, ids, result_contents),
    st.builds(SaveSynthetic, ids, all_items),
)
write_requests = st.builds(WriteRequest, ids, display_writes)
rows = st.builds(DisplayMessage, ids, integers, integers, ids, st.binary(max_size=20))
write_outcomes = st.one_of(
    st.builds(RowsSaved, st.lists(rows, max_size=2).map(tuple)),
    st.builds(RowUpdated, rows),
    st.just(RowMissing()),
)
journal_records = st.builds(JournalRecord, ids, integers, integers, texts)
