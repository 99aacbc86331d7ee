from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stationmaster.standins.responses_model import Asked, Scenario, ScenarioError, asked, calls


def ask(user: str = "hello", *, n: int = 0, outputs: tuple[str, ...] = (), thread: str = "t", **body: Any) -> Asked:
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": user}]}
    ]
    items += [{"type": "function_call_output", "call_id": "c", "output": text} for text in outputs]
    return asked.read(n, "/v1/responses", {}, {"input": items, "prompt_cache_key": thread, **body})


def functions(*names: str) -> list[dict[str, str]]:
    return [{"type": "function", "name": name} for name in names]


def test_the_first_rule_that_matches_answers_and_the_default_takes_the_rest() -> None:
    scenario = Scenario(
        {
            "rules": [
                {"when": {"user": "^fix", "tool": "reply"}, "steps": ["with tool"]},
                {"when": {"user": "^fix"}, "steps": ["without"]},
                {"when": {"any": "needle"}, "steps": ["found"]},
                {"when": {"model": "^big", "instructions": "polite"}, "steps": ["big"]},
            ],
            "default": ["else"],
        }
    )
    assert scenario.actions(ask("fix it", tools=functions("reply"))) == [{"text": "with tool"}]
    assert scenario.actions(ask("fix it")) == [{"text": "without"}]
    assert scenario.actions(ask("x", metadata={"deep": "needle"})) == [{"text": "found"}]
    assert scenario.actions(ask("x", model="big-1", instructions="be polite")) == [{"text": "big"}]
    assert scenario.actions(ask("x", model="big-1")) == [{"text": "else"}]


def test_header_conditions_ignore_the_case_of_names() -> None:
    scenario = Scenario({"rules": [{"when": {"header": {"X-Who": "^ann$"}}, "steps": ["ann"]}], "default": ["nobody"]})
    known = asked.read(0, "/v1/responses", {"x-who": "ann"}, {"input": "hi"})
    assert scenario.actions(known) == [{"text": "ann"}]
    assert scenario.actions(ask()) == [{"text": "nobody"}]


def test_steps_by_request_move_on_for_each_call_of_one_message_in_one_thread() -> None:
    scenario = Scenario(["one", "two"])
    assert [scenario.actions(ask())[0]["text"] for _ in range(3)] == ["one", "two", "two"]
    assert scenario.actions(ask("another"))[0]["text"] == "one"
    assert scenario.actions(ask(thread="other"))[0]["text"] == "one"
    scenario.reset()
    assert scenario.actions(ask())[0]["text"] == "one"


def test_steps_by_tool_results_survive_a_retry_and_a_new_process() -> None:
    rule = {"advance": "tool", "steps": [{"shell": "ls"}, {"text": "saw ${last_output}"}]}
    for scenario in (Scenario({"rules": [rule]}), Scenario({"rules": [rule]})):
        assert [scenario.actions(ask()) for _ in range(2)] == [[{"shell": "ls"}]] * 2
        assert scenario.actions(ask(outputs=("a.txt",))) == [{"text": "saw a.txt"}]


def test_placeholders_are_filled_at_any_depth_and_once() -> None:
    step = {"call": {"name": "reply", "args": {"body": ["${1}/${2}/${9}", "${user} #${n}"]}}}
    scenario = Scenario({"rules": [{"when": {"user": r"(\w+) (.*)"}, "steps": [step]}]})
    [action] = scenario.actions(ask("do ${user}", n=4))
    assert action["call"]["args"] == {"body": ["do/${user}/", "do ${user} #4"]}


def test_only_results_after_the_last_user_message_count() -> None:
    body = {
        "input": [
            {"role": "user", "content": "first"},
            {"type": "function_call_output", "output": "old"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "hm"}]},
            {"role": "user", "content": "second"},
            {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "new"}]},
        ]
    }
    read = asked.read(0, "/", {}, body)
    assert (read.user, read.turn, read.outputs, read.last_output) == ("second", 2, ("new",), "new")


def test_tools_are_named_in_every_shape_they_come_in() -> None:
    space = {"type": "namespace", "name": "mcp__issues", "tools": functions("issue_write")}
    hidden = {"type": "additional_tools", "tools": [{"type": "custom", "name": "exec"}]}
    read = asked.read(0, "/", {}, {"tools": [*functions("shell"), space, {"type": "web_search"}], "input": [hidden]})
    assert read.tools == ("shell", "mcp__issues::issue_write", "web_search", "exec")


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ({"rule": []}, "rule"),
        ({"rules": [{"when": {"usr": "x"}, "steps": ["a"]}]}, "usr"),
        ({"rules": [{"steps": []}]}, "steps"),
        ({"rules": [{"advance": "turn", "steps": ["a"]}]}, "turn"),
        ([{"txt": "a"}], "txt"),
        ([{"text": "a", "fase": "x"}], "fase"),
        ([{"text": "a", "shell": "b"}], "exactly one"),
        ([{"cut": "gently"}], "gently"),
        ([[{"text": "a"}, {"http": 500}]], "before an HTTP error"),
        ([3], "3"),
    ],
)
def test_a_typing_error_is_a_sentence(source: Any, word: str) -> None:
    with pytest.raises(ScenarioError, match=word):
        Scenario(source)


def test_scenarios_come_from_files_and_functions(tmp_path: Path) -> None:
    as_json = tmp_path / "s.json"
    as_json.write_text(json.dumps({"default": ["from json"]}))
    as_python = tmp_path / "s.py"
    as_python.write_text(
        "def decide(asked, memory):\n    memory['n'] = memory.get('n', 0) + 1\n    return f\"call {memory['n']}\"\n"
    )
    assert Scenario(as_json).actions(ask()) == [{"text": "from json"}]
    python = Scenario(str(as_python))
    assert [python.actions(ask())[0]["text"] for _ in range(2)] == ["call 1", "call 2"]
    assert Scenario(lambda request, _: [request.user]).actions(ask("me")) == [{"text": "me"}]


def test_bad_files_are_named(tmp_path: Path) -> None:
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.py", "x = 1")):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ScenarioError, match=name):
            Scenario(path)


def test_a_tool_call_takes_the_form_the_agent_offers() -> None:
    def item(action: dict[str, Any], *tools: Any) -> dict[str, Any]:
        made = calls.item_of(action, ask(tools=list(tools)), "c1")
        assert made is not None
        return made

    reply = {"call": {"name": "reply", "args": {"body": "b"}}}
    code = {"type": "custom", "name": "exec"}
    assert item(reply, *functions("reply"))["arguments"] == '{"body": "b"}'
    assert item(reply, code)["input"] == 'text(await tools.reply({"body": "b"}));'
    wrapped = {"type": "namespace", "name": "functions", "tools": functions("exec")}
    assert item(reply, wrapped)["namespace"] == "functions"
    mcp = {"mcp": {"server": "my-issues", "tool": "write", "args": {}}}
    assert item(mcp) == {
        "type": "function_call", "call_id": "c1", "name": "write", "arguments": "{}", "namespace": "mcp__my_issues",
    }  # fmt: skip
    assert item(mcp, code)["input"] == "text(await tools.mcp__my_issues__write({}));"
    assert item({"shell": "ls", "args": {"workdir": "/"}}, *functions("exec_command"))["name"] == "exec_command"
    assert json.loads(item({"shell": "ls"}, *functions("shell"))["arguments"]) == {"command": ["bash", "-lc", "ls"]}
    assert item({"patch": "P"}, {"type": "custom", "name": "apply_patch"})["input"] == "P"
    assert "apply_patch <<" in item({"patch": "P"}, *functions("exec_command"))["arguments"]
    assert item({"code": "text(1)"}, code)["input"] == "text(1)"
