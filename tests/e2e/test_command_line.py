"""The command as a person meets it: a real server, a real terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from sagentry.client import ScopedClient
from tests.support.real_server import RealServer, real_server, rows, said, until
from tests.support.serve import SAGENTRY
from tests.support.terminal import Terminal, terminal

pytestmark = pytest.mark.timeout(120)

SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"last_user_text": {"regex": "tool"}, "call_number": 1},
        "repeat": True,
        "steps": [
            {"thinking": ["I had ", "better look"]},
            {"text": ["Looking ", "**now**."]},
            {"tool_call": {"name": "quick", "arguments": "{}"}},
            {"usage": {"input_tokens": 11, "output_tokens": 7}},
        ],
    },
    {
        "when": {"last_user_text": {"regex": "tool"}},
        "repeat": True,
        "steps": [{"text": ["# Found\n\n", "- one\n- two"]}],
    },
    {
        "when": {"last_user_text": {"regex": "wait"}},
        "repeat": True,
        "steps": [{"text": ["I begin"]}, {"wait_for": "go"}, {"text": [" and end"]}],
    },
    {
        "when": {"last_user_text": {"regex": "fail"}},
        "repeat": True,
        "steps": [{"text": "Oh"}, {"error": {"type": "overloaded", "retryable": True}}],
    },
    {"repeat": True, "steps": [{"text": ["Hello ", "there"]}]},
]


@dataclass
class Person:
    """Somebody with a shell beside a server."""

    server: RealServer
    scope: ScopedClient

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.server.folder),
            "SAGENTRY_SERVER": self.server.address,
            "SAGENTRY_TENANT": "acme",
            # Under `make coverage` commands are measured, too.
            **{name: text for name, text in os.environ.items() if name.startswith("COVERAGE_")},
        }

    async def run(self, *words: str, stdin: str = "", **more: str) -> tuple[int, str, str]:
        """Runs a command on pipes; returns its exit code, output and complaints."""
        process = await asyncio.create_subprocess_exec(
            SAGENTRY,
            *words,
            env={**self.environment, **more},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(os.fsencode(stdin))
        assert process.returncode is not None
        assert b"Traceback" not in err, err.decode()
        encoding = more.get("PYTHONIOENCODING", "utf-8").split(":")[0]
        return process.returncode, out.decode(encoding), err.decode(encoding)

    @contextlib.asynccontextmanager
    async def sits_at(self, *words: str, **options: Any) -> AsyncIterator[Terminal]:
        async with terminal(SAGENTRY, *words, environment=self.environment, **options) as screen:
            yield screen


@contextlib.asynccontextmanager
async def person() -> AsyncIterator[Person]:
    async with real_server(SCRIPT, tools=("quick",)) as server:
        scope = await server.start()
        yield Person(server, scope)


async def test_a_conversation_streams_shows_tools_and_is_there_on_return() -> None:
    async with person() as somebody:
        async with somebody.sits_at("chat") as screen:
            await screen.until("chat · new")
            screen.type("use a tool\r")
            await screen.until("two")
            text = await screen.until("ready")
            screen.type("\x04")
            assert await screen.ended() == 0
        async with somebody.sits_at("chat") as again:
            back = await again.until("two")

    for seen in (text, back):
        lines = seen.splitlines()
        assert lines.index("> use a tool") < lines.index("Looking now.")
        assert "● quick() done" in lines
        assert " • two" in lines
    assert "better look" in text
    assert "**" not in text
    assert "tokens in" in text


async def test_ctrl_c_cancels_the_run_and_keeps_what_was_said() -> None:
    async with person() as somebody, somebody.sits_at("chat") as screen:
        await screen.until("chat · new")
        screen.type("please wait\r")
        await screen.until("I begin")
        await screen.until("Ctrl-C cancels\n")
        screen.type("\x03")
        text = await screen.until("chat · cancelled")
        screen.type("hello\r")
        await screen.until("Hello there")

    assert "I begin\n⚠ cancelled" in text


async def is_kept(scope: ScopedClient, text: str) -> bool:
    """Whether a text would survive a crash."""
    return text in (await scope.get_state("chat")).state.json


async def test_a_conversation_goes_on_across_a_killed_server() -> None:
    async with person() as somebody, somebody.sits_at("chat") as screen:
        await screen.until("chat · new")
        screen.type("please wait\r")
        await screen.until("I begin")
        await until(lambda: is_kept(somebody.scope, "I begin"))
        await somebody.server.kill()
        await screen.until("no connection")
        await somebody.server.start()
        screen.type("hello\r")
        text = await screen.until("Hello there")

    assert "I begin\n⚠ cut" in text
    assert text.count("> please wait") == 1


async def test_ctrl_c_and_ctrl_d_are_heard_while_something_is_printed() -> None:
    """One came at such a moment: the program was killed, or did not leave."""
    async with person() as somebody, somebody.sits_at("chat") as screen:
        await screen.until("chat · new")
        with screen.line_editing() as seen:
            screen.type("use a tool\r")
            await screen.until("two")
            await screen.until("ready")
        screen.type("\x04")
        assert await screen.ended() == 0

    assert seen == []


async def test_a_message_that_is_refused_can_be_mended() -> None:
    async with person() as somebody, somebody.sits_at("chat", "--profile", "nope") as screen:
        await screen.until("chat · new")
        screen.type("hello\r")
        await screen.until("not sent: options.profile: there is no profile nope")
        await screen.until("> hello")


async def test_two_terminals_see_one_conversation() -> None:
    async with (
        person() as somebody,
        somebody.sits_at("chat", "a") as chat,
        somebody.sits_at("watch", "a") as watch,
    ):
        await chat.until("a · new")
        await watch.until("a · new")
        chat.type("please wait\r")
        await chat.until("I begin")
        await watch.until("I begin")
        await watch.until("a · running")
        somebody.server.touch("go")
        for screen in (chat, watch):
            await screen.until("I begin and end")
            await screen.until("a · ready")
        watch.type("\x03")
        assert await watch.ended() == 130


async def test_a_long_answer_shows_its_end_and_leaves_all_of_itself_behind() -> None:
    lines = [f"line {n}\n\n" for n in range(60)]
    script = [{"steps": [{"text": lines}, {"wait_for": "go"}, {"text": "the last"}]}]
    async with real_server(script) as server:
        somebody = Person(server, await server.start())
        async with somebody.sits_at("chat") as screen:
            await screen.until("chat · new")
            screen.type("go\r")
            live = await screen.until("line 59")
            server.touch("go")
            await screen.until("ready")
            text = screen.text()

    assert "line 0\n" not in live
    assert [line for line in text.splitlines() if line.startswith("line")] == [
        f"line {n}" for n in range(60)
    ]


@pytest.mark.parametrize("name", ["chat", "watch"])
async def test_hostile_text_does_not_command_the_terminal(name: str) -> None:
    script = [{"steps": [{"text": ["\x1b]52;c;cm0=", "\x07 \x1b[31mred"]}]}]
    async with real_server(script) as server:
        somebody = Person(server, await server.start())
        await somebody.run("send", "a", "go")
        async with somebody.sits_at(name, "a") as screen:
            text = await screen.until("red")

    assert b"\x1b]52" not in screen.raw
    assert "␛[31mred" in text


async def test_send_prints_the_answer_and_fails_with_the_run() -> None:
    async with person() as somebody:
        assert await somebody.run("send", "a", "hi") == (0, "Hello there\n", "")
        piped = await somebody.run("send", "a", "-", stdin="from a pipe")
        failed = await somebody.run("send", "a", "please fail")
        stored = [said(row) for row in await rows(somebody.scope)]

    assert piped == (0, "Hello there\n", "")
    assert "from a pipe" in stored
    assert failed[:2] == (1, "Oh\n")
    assert failed[2].startswith("sagentry: error: the run ended as error:")


async def test_a_message_sent_twice_with_one_request_id_is_taken_once() -> None:
    async with person() as somebody:
        for _ in range(2):
            code, out, _ = await somebody.run("send", "a", "hi", "--request-id", "r-1")
            assert (code, out) == (0, "Hello there\n")
        _, out, _ = await somebody.run("transcript", "a")

    assert out == "You: hi\nAgent: Hello there\n"


async def test_transcripts_come_in_three_forms_and_agents_as_a_list() -> None:
    async with person() as somebody:
        await somebody.run("send", "a", "use a tool")
        forms = {
            form: (await somebody.run("transcript", "a", "--format", form))[1]
            for form in ("text", "markdown", "json")
        }
        table = (await somebody.run("agents"))[1].splitlines()
        listed = [
            json.loads(line) for line in (await somebody.run("agents", "--json"))[1].splitlines()
        ]
        watched = (await somebody.run("watch", "a", "--until-idle"))[1]
        items = [
            json.loads(line)
            for line in (await somebody.run("watch", "a", "--until-idle", "--json"))[1].splitlines()
        ]

    assert forms["text"] == watched
    assert "Tool quick(): done" in forms["text"]
    assert "**Tool** `quick()` — done" in forms["markdown"]
    stored = [json.loads(line) for line in forms["json"].splitlines()]
    assert [int(one["position"]) for one in stored] == list(range(1, len(stored) + 1))
    assert table[0].split()[:2] == ["AGENT", "STATUS"]
    assert table[1].split()[:3] == ["a", "ready", "default"]
    assert [one["agent_id"] for one in listed] == ["a"]
    read = [row for item in items for row in item.get("rows_read", {}).get("display_messages", [])]
    assert sorted(read, key=lambda row: int(row["position"])) == stored


MISTAKES: list[tuple[list[str], dict[str, str], int, str]] = [
    (["send", "a b", "x"], {}, 1, "agent_id: must be 1 to 256 characters"),
    (["send", "a", ""], {}, 1, "message.parts[0].text.text: must not be empty"),
    (["send", "a", "x", "--profile", "p"], {}, 1, "there is no profile p"),
    (["send", "a", "x", "--partition", "p"], {"SAGENTRY_TENANT": ""}, 2, "needs --tenant"),
    (["agents"], {"SAGENTRY_TENANT": "a b"}, 1, "scope.scoped.tenant"),
    (["agents"], {"SAGENTRY_SERVER": "unix:/nowhere"}, 3, "no server answers at unix:/nowhere"),
    (["watch", "a"], {"SAGENTRY_SERVER": "unix:/nowhere"}, 3, "start one with `sagentry serve`"),
    (["chat"], {}, 2, "chat needs a terminal"),
    (["send", "a", "\udcff"], {}, 2, "TEXT"),
    (["transcript"], {}, 2, "Missing argument 'CONVERSATION'"),
]


async def test_mistakes_get_one_line_and_an_exit_code() -> None:
    async with person() as somebody:
        found = [await somebody.run(*words, **more) for words, more, _, _ in MISTAKES]

    for (words, _, code, complaint), (ended, out, err) in zip(MISTAKES, found, strict=True):
        assert (ended, out) == (code, ""), words
        assert complaint in err
        assert code == 2 or len(err.splitlines()) == 1


async def test_a_terminal_that_is_too_narrow_is_said() -> None:
    async with person() as somebody, somebody.sits_at("chat", columns=30) as screen:
        assert await screen.ended() == 2
        text = " ".join(screen.text().split())

    assert "the terminal is 30 columns wide; chat needs 40" in text


async def test_a_terminal_that_cannot_move_its_cursor_is_said() -> None:
    """It would show the first line for ever."""
    async with person() as somebody:
        plain = {**somebody.environment, "TERM": "dumb"}
        async with terminal(SAGENTRY, "chat", environment=plain) as screen:
            assert await screen.ended() == 2
            assert "chat needs a terminal that can move its cursor" in screen.text()


async def test_lines_that_are_pasted_are_one_message() -> None:
    async with person() as somebody, somebody.sits_at("chat") as screen:
        await screen.until("chat · new")
        screen.type("\x1b[200~one\ntwo\x1b[201~\r")
        await screen.until("Hello there")
        shown = [said(row) for row in await rows(somebody.scope, "chat")]

    assert shown == ["one\ntwo", "Hello there"]


async def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    async with person() as somebody:
        await somebody.run("send", "a", "use a tool")
        process = await asyncio.create_subprocess_shell(
            f"{SAGENTRY} transcript a | true",
            env=somebody.environment,
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await process.communicate()

    assert err == b""


async def test_a_socket_that_never_answers_is_no_server() -> None:
    """A port that something else holds, or a server that hangs: not a refusal, which scripts tell apart."""
    async with person() as somebody:
        listener = socket.create_server(("127.0.0.1", 0))
        with listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            ended, out, err = await somebody.run("send", "a", "x", SAGENTRY_SERVER=address)

    assert (ended, out) == (3, "")
    assert f"no server answers at {address}" in err


async def test_an_output_that_lacks_a_character_shows_the_rest() -> None:
    """Some locales are not UTF-8: an answer with an emoji must not end the command with a traceback."""
    async with person() as somebody:
        latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
        await somebody.run("send", "a", "caf\u00e9 \U0001f980")
        shown = await somebody.run("transcript", "a", **latin)
        listed = await somebody.run("transcript", "a", "--format", "json", **latin)

    assert shown[0] == 0
    assert "caf\u00e9 ?" in shown[1]
    first = json.loads(listed[1].splitlines()[0])
    assert first["content"]["text"]["text"] == "caf\u00e9 \U0001f980"


@pytest.mark.parametrize("locale", [{}, {"PYTHONIOENCODING": "utf-8:strict"}], ids=["C", "UTF-8"])
async def test_an_input_that_is_no_text_is_said(locale: dict[str, str]) -> None:
    async with person() as somebody:
        ended, out, err = await somebody.run("send", "a", "-", stdin="\udcff\udcfe", **locale)

    assert (ended, out) == (2, "")
    assert "standard input is not utf-8 text" in err
