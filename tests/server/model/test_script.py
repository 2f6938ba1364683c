# ruff: noqa: E501  (a script and what is said about it stand in one line)

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from sagentry.server.model import providers
from sagentry.server.model.factory import build_model
from sagentry.server.model.providers import ModelSpecError
from sagentry.server.model.script import ScriptError, load_script, parse_script, script_schema

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "docs" / "script.schema.json"

GOOD = [
    "version: 1\nanswers: []",
    "version: 1\nstrict_history: false\nanswers: [{steps: []}]",
    "version: 1\nanswers: [{steps: [{text: hi}, {text: [a, b]}, {thinking: hm}, {signature: s}]}]",
    "version: 1\nanswers: [{steps: [{tool_call: {name: f}}, {tool_call: {name: f, arguments: '{'}}]}]",
    "version: 1\nanswers: [{steps: [{tool_call: {name: f, arguments: ['{', '}']}}]}]",
    "version: 1\nanswers: [{steps: [{tool_call: {name: f, arguments: {a: [1, {b: null}]}}}]}]",
    "version: 1\nanswers: [{steps: [{usage: {input_tokens: 1, thinking_tokens: 0}}, {sleep: 0.5}, {sleep: 1}]}]",
    "version: 1\nanswers: [{steps: [{wait_for: go}, {error: {type: overloaded, retryable: false, after: 2}}]}]",
    "version: 1\nanswers: [{steps: [{error: {}}]}, {steps: [{cut: true}]}, {steps: [{hang: true}]}]",
    "version: 1\nanswers: [{steps: [{end: stop}]}, {steps: [{end: length}]}, {steps: [{end: content_filter}]}]",
    "version: 1\nanswers: [{when: {last_user_text: a, call_number: 1, tools_offered: []}, steps: []}]",
    "version: 1\nanswers: [{when: {last_user_text: {regex: '^a'}}, repeat: true, expand: true, steps: []}]",
]

BAD = {
    "": ":1: the file: ",
    "[]": ":1: the file: ",
    "answers: []": ":1: version: Field required",
    "version: 2\nanswers: []": ":1: version: ",
    "version: '1'\nanswers: []": ":1: version: ",
    "version: 1": ":1: answers: Field required",
    "version: 1\nanswers: {}": ":2: answers: ",
    "version: 1\nanswers: []\nanswer: []": ":3: answer: Extra inputs",
    "version: 1\nanswers:\n- steps:\n  - txt: hi": ":4: answers[0].steps[0].txt: Extra inputs",
    "version: 1\nanswers:\n- step: []": ":3: answers[0].step",
    "version: 1\nanswers:\n- steps:\n  - text: hi\n    sleep: 1": ":4: answers[0].steps[0]: has 2 keys",
    "version: 1\nanswers:\n- steps:\n  - {}": ":4: answers[0].steps[0]: has 0 keys",
    "version: 1\nanswers:\n- steps:\n  - text:": ":4: answers[0].steps[0]: text has no value",
    "version: 1\nanswers:\n- steps:\n  - text: 5": ":4: answers[0].steps[0].text: ",
    "version: 1\nanswers:\n- steps:\n  - text: [a, 5]": ":4: answers[0].steps[0].text: ",
    "version: 1\nanswers:\n- steps:\n  - sleep: -1": ":4: answers[0].steps[0].sleep: ",
    "version: 1\nanswers:\n- steps:\n  - sleep: '1'": ":4: answers[0].steps[0].sleep: ",
    "version: 1\nanswers:\n- steps:\n  - tool_call: {arguments: '{}'}": ":4: answers[0].steps[0].tool_call.name: ",
    "version: 1\nanswers:\n- steps:\n  - tool_call:\n      name: f\n      arguments: 5": ":6: ",
    "version: 1\nanswers:\n- steps:\n  - usage: {input_tokens: many}": ":4: answers[0].steps[0].usage.input_tokens: ",
    "version: 1\nanswers:\n- steps:\n  - error: {type: tired}": ":4: answers[0].steps[0].error.type: ",
    "version: 1\nanswers:\n- steps:\n  - end: soon": ":4: answers[0].steps[0].end: ",
    "version: 1\nanswers:\n- steps:\n  - cut: false": ":4: answers[0].steps[0].cut: ",
    "version: 1\nanswers:\n- steps:\n  - wait_for: ''": ":4: answers[0].steps[0].wait_for: ",
    "version: 1\nanswers:\n- when: {call_number: 0}\n  steps: []": ":3: answers[0].when.call_number: ",
    "version: 1\nanswers:\n- when: {tools_offered: f}\n  steps: []": ":3: answers[0].when.tools_offered: ",
    "version: 1\nanswers:\n- when: {user_text: f}\n  steps: []": ":3: answers[0].when.user_text: ",
    "version: 1\nanswers:\n- repeat: 3\n  steps: []": ":3: answers[0].repeat: ",
}

BAD_BEYOND_THE_SCHEMA = {
    "version: 1\nanswers: [": ":2: is not YAML: ",
    "version: 1\nanswers: []\nanswers: []": ":3: the key answers is there twice",
    "version: 1\nanswers:\n- steps:\n  - end: stop\n  - text: hi": ":5: answers[0].steps[1]: nothing can come behind `end`",
    "version: 1\nanswers:\n- when:\n    last_user_text: {regex: '('}\n  steps: []": ":4: ",
}


def schema_accepts(source: str) -> bool:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    return bool(validator.is_valid(yaml.safe_load(source)))


def test_the_schema_that_editors_use_is_the_format_that_is_read() -> None:
    assert json.loads(SCHEMA.read_text()) == script_schema()


@pytest.mark.parametrize("source", GOOD)
def test_a_good_script_is_good_for_the_loader_and_the_schema(source: str) -> None:
    parse_script(source, "s.yaml")
    assert schema_accepts(source)


@pytest.mark.parametrize("source", BAD)
def test_a_mistake_is_reported_with_file_line_and_key(source: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(source, "s.yaml")
    assert str(caught.value).startswith(f"s.yaml{BAD[source]}")
    assert not schema_accepts(source)


@pytest.mark.parametrize("source", BAD_BEYOND_THE_SCHEMA)
def test_a_mistake_that_no_schema_can_tell_is_reported_too(source: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(source, "s.yaml")
    assert str(caught.value).startswith(f"s.yaml{BAD_BEYOND_THE_SCHEMA[source]}")


def test_the_example_of_the_documentation_is_a_script() -> None:
    documentation = (ROOT / "docs" / "script.md").read_text()
    example = documentation.split("```yaml\n")[1].split("```")[0]
    assert len(parse_script(example, "script.md").answers) == 4


def test_a_value_that_yaml_would_make_a_date_stays_what_was_written() -> None:
    source = (
        "version: 1\nanswers: [{steps: [{tool_call: {name: f, arguments: {day: 2025-01-01}}}]}]"
    )
    step = parse_script(source, "s.yaml").answers[0].steps[0]
    assert step.tool_call is not None
    assert step.tool_call.pieces() == ('{"day": "2025-01-01"}',)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"gone\.yaml: cannot be read"):
        load_script(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"\xe9")
    with pytest.raises(ScriptError, match="is not UTF-8"):
        load_script(tmp_path / "latin.yaml")
    with pytest.raises(ScriptError, match="is not YAML"):
        parse_script("\x00", "s.yaml")


def test_a_script_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\nanswers: []")
    assert build_model("script:a.yaml", base_dir=tmp_path).name == "script:a.yaml"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("anthropic:claude", r"sagentry\[anthropic\]"),
        ("openai:gpt", r"sagentry\[openai\]"),
        ("gpt", "script:FILE"),
        ("script:", "script:FILE"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused_with_the_way_out(
    spec: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "is_installed", lambda _: False)
    with pytest.raises(ModelSpecError, match=words):
        build_model(spec, base_dir=Path())
