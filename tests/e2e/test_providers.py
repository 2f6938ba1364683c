"""A real server with a provider's real adapter, and the provider on loopback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sagentry.api.agent.v1 import agent_pb2
from tests.support.provider_server import (
    DONE,
    Answer,
    begun,
    block,
    call_piece,
    chunk,
    ended,
    failure,
    provider_server,
    text_block,
    thinking_block,
    tool_block,
    usage_chunk,
)
from tests.support.real_server import ended as run_ended
from tests.support.real_server import real_server, rows, said, state, tool_statuses
from tests.support.serve import SAGENTRY, serving
from tests.support.servers import short_folder

pytestmark = pytest.mark.timeout(120)

HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
ANTHROPIC = (
    Answer(
        (
            begun(),
            *block(0, HIDDEN),
            *thinking_block(1, ["c2ln"], "Let me ", "see."),
            *text_block(2, "I ", "look."),
            *tool_block(3, "toolu_1", "quick", "{}"),
            *ended("tool_use"),
        )
    ),
    Answer((begun(), *text_block(0, "It is ", "done."), *ended())),
)
OPENAI = (
    Answer(
        (
            chunk({"role": "assistant", "content": "I look."}),
            call_piece(0, "{}", "call_1", "quick"),
            chunk({}, finish_reason="tool_calls"),
            usage_chunk(10, 5),
            DONE,
        )
    ),
    Answer((chunk({"content": "It is done."}, finish_reason="stop"), usage_chunk(10, 5), DONE)),
)


@pytest.mark.parametrize(
    ("model", "path", "answers"),
    [("anthropic:claude-x", "", ANTHROPIC), ("openai:gpt-x", "/v1", OPENAI)],
    ids=["anthropic", "openai"],
)
async def test_a_run_with_a_tool_goes_through(
    model: str, path: str, answers: tuple[Answer, ...]
) -> None:
    async with provider_server(*answers) as provider:
        profile = {
            "model": model,
            "base_url": provider.url + path,
            "api_key_env": "THE_KEY",
            "tools": ["quick"],
        }
        async with real_server(
            [], more={"profiles": {"default": profile}}, environment={"THE_KEY": "k-1"}
        ) as server:
            scope = await server.start()
            reply = await scope.add_message("a", "hello")
            run = (await run_ended(scope, reply.run_id)).run
            shown = [said(row) for row in await rows(scope)]
            statuses = await tool_statuses(scope)
            found = await state(scope)
            log = (server.folder / "log").read_text()

    assert run.end == agent_pb2.RUN_END_COMPLETED
    assert run.usage.output_tokens == 10
    assert statuses == {"quick": "completed"}
    assert "I look." in shown
    assert shown[-1] == "It is done."
    assert "k-1" not in str(found) + log
    assert any("k-1" in value for value in provider.headers[0].values())
    assert "quick done" in str(provider.asked[1])
    if path == "":
        told = provider.asked[1]["messages"][1]["content"]
        assert told[0] == HIDDEN
        assert told[1]["signature"] == "c2ln"


async def test_a_model_that_the_provider_does_not_know_ends_the_run_and_says_so() -> None:
    body = {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}}
    async with provider_server(failure(404, body)) as provider:
        profile = {"model": "anthropic:claude-x", "base_url": provider.url}
        async with real_server(
            [], more={"profiles": {"default": profile}}, environment={"ANTHROPIC_API_KEY": "k-1"}
        ) as server:
            scope = await server.start()
            reply = await scope.add_message("a", "hello")
            run = (await run_ended(scope, reply.run_id)).run

    assert run.end == agent_pb2.RUN_END_ERROR
    assert run.error.reason == "MODEL_REQUEST_INVALID"
    assert "anthropic:claude-x" in run.error.message


BUSY = failure(
    529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
)


async def test_a_run_outlives_a_providers_bad_minute_and_no_tool_runs_twice() -> None:
    """The first call of the run goes through, the second fails for good and another provider answers it."""
    async with (
        provider_server(BUSY, ANTHROPIC[0], BUSY, BUSY) as first,
        provider_server(OPENAI[1]) as second,
    ):
        profiles = {
            "default": {
                "model": "anthropic:claude-x",
                "base_url": first.url,
                "tools": ["quick"],
                "model_retries": 1,
                "fallbacks": ["other"],
            },
            "other": {"model": "openai:gpt-x", "base_url": f"{second.url}/v1"},
        }
        environment = {"ANTHROPIC_API_KEY": "k-1", "OPENAI_API_KEY": "k-2"}
        async with real_server([], more={"profiles": profiles}, environment=environment) as server:
            scope = await server.start()
            async with scope.subscribe("a", debug=True) as stream:
                reply = await scope.add_message("a", "hello")
                run = (await run_ended(scope, reply.run_id)).run
                failures = []
                async for item in stream:
                    if item.HasField("debug"):
                        failed = item.debug.model_attempt_failed
                        failures.append((failed.model, failed.attempt, failed.error.reason))
                    if item.HasField("event") and item.event.HasField("run_ended"):
                        break
            shown = [said(row) for row in await rows(scope)]
            ran = server.calls()

    assert run.end == agent_pb2.RUN_END_COMPLETED
    assert failures == [
        ("anthropic:claude-x", 1, "MODEL_OVERLOADED"),
        ("anthropic:claude-x", 1, "MODEL_OVERLOADED"),
        ("anthropic:claude-x", 2, "MODEL_OVERLOADED"),
    ]
    assert ran == ["quick"]
    assert shown[-1] == "It is done."
    assert "quick done" in str(second.asked[0])


def serve(folder: Path, config: str, **environment: str) -> subprocess.CompletedProcess[str]:
    file = folder / "sagentry.yaml"
    file.write_text(config)
    return subprocess.run(
        [SAGENTRY, "serve", "--config", file, "--data-dir", folder / "data"],
        env={"HOME": str(folder), "PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("{model: 'anthropic:x'}", "set the environment variable ANTHROPIC_API_KEY"),
        ("{model: 'openai:x', api_key_env: MY_KEY}", "set the environment variable MY_KEY"),
        ("{model: 'antropic:x'}", "not a model; write anthropic:MODEL, openai:MODEL"),
        ("{model: 'anthropic:'}", "name the model"),
    ],
)
def test_what_keeps_a_model_from_answering_is_said_at_the_start(profile: str, problem: str) -> None:
    with short_folder() as folder:
        done = serve(folder, f"profiles: {{helper: {profile}}}\n")

    assert done.returncode == 1
    [line] = [one for one in done.stderr.splitlines() if one.startswith("sagentry: ")]
    assert line.startswith("sagentry: profiles.helper: model")
    assert problem in line


def test_a_server_that_nobody_configured_uses_the_provider_whose_key_is_there() -> None:
    def third_step(**environment: Any) -> Any:
        with (
            short_folder() as folder,
            serving(folder, "--listen", f"unix:{folder}/s", **environment) as (process, _),
        ):
            assert process.stdout is not None
            return [process.stdout.readline() for _ in range(3)][2]

    assert "the demo model answers" in third_step()
    assert "openai:gpt-5-mini answers" in third_step(OPENAI_API_KEY="k-1")


@pytest.mark.parametrize(
    ("fallbacks", "problem"),
    [("[nobody]", "no such profile"), ("[helper]", "a profile cannot stand in for itself")],
)
def test_a_fallback_that_cannot_be_is_said_at_the_start(fallbacks: str, problem: str) -> None:
    with short_folder() as folder:
        done = serve(folder, f"profiles: {{helper: {{fallbacks: {fallbacks}}}}}\n")

    assert done.returncode == 1
    assert f"profiles.helper.fallbacks[0]: {fallbacks.strip('[]')}: {problem}" in done.stderr
