from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from stationmaster.standins.responses_model import ResponsesModel
from tests.support import eventually

BODY = {"model": "scripted-model", "stream": True, "input": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20, trust_env=False) as client:
        yield client


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def say(client: httpx.Client, model: ResponsesModel, **body: Any) -> list[dict[str, Any]]:
    return events(client.post(f"{model.base_url}/responses", json={**BODY, **body}).text)


def test_a_message_is_streamed_in_pieces_and_closed(client: httpx.Client) -> None:
    with ResponsesModel(
        [[{"text": "abcdef", "chunks": 2, "phase": "final_answer"}, {"usage": {"input_tokens": 3}}]]
    ) as m:
        seen = say(client, m)
    assert [e["type"] for e in seen] == [
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [e["sequence_number"] for e in seen] == list(range(9))
    assert [e["delta"] for e in seen if "delta" in e] == ["abc", "def"]
    [item] = seen[-1]["response"]["output"]
    assert (item["content"][0]["text"], item["phase"], item["status"]) == ("abcdef", "final_answer", "completed")
    assert seen[-1]["response"]["usage"]["input_tokens"] == 3


def test_reasoning_and_calls_come_as_items_before_the_message(client: httpx.Client) -> None:
    step = [{"reasoning": "hm"}, {"call": {"name": "reply", "args": {"body": "x"}}}, {"patch": "P"}, "done"]
    offered = [{"type": "function", "name": "reply"}, {"type": "custom", "name": "apply_patch"}]
    with ResponsesModel([step]) as m:
        output = say(client, m, tools=offered)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call", "custom_tool_call", "message"]
    assert output[1]["arguments"] == '{"body": "x"}'
    assert len({item["id"] for item in output}) == 4


def test_failures_are_played_as_the_scenario_says(client: httpx.Client) -> None:
    steps = [
        {"http": 429, "body": {"error": {"message": "slow down"}}, "headers": {"retry-after": "7"}},
        [{"delay": 0.01}, {"http": 503}],
        {"failed": {"code": "server_error", "message": "no"}},
        {"incomplete": "max_output_tokens"},
        ["half", {"end": True}, "never"],
        {"event": {"type": "response.custom", "x": 1}},
    ]
    with ResponsesModel(steps) as m:
        url = f"{m.base_url}/responses"
        limited = client.post(url, json=BODY)
        assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")
        assert limited.json() == {"error": {"message": "slow down"}}
        assert client.post(url, json=BODY).status_code == 503
        assert say(client, m)[-1]["response"]["error"]["code"] == "server_error"
        assert say(client, m)[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
        assert say(client, m)[-1]["type"] == "response.output_item.done"
        assert [e["type"] for e in say(client, m)][1] == "response.custom"


@pytest.mark.parametrize("how", ["close", "reset", "refuse"])
def test_a_cut_connection_never_completes(client: httpx.Client, how: str) -> None:
    step = {"cut": how} if how == "refuse" else [{"text": "half an ans", "open": True}, {"cut": how}]
    with ResponsesModel([step]) as m, pytest.raises(httpx.TransportError):
        client.post(f"{m.base_url}/responses", json=BODY)


def test_a_held_answer_waits_for_its_gate(client: httpx.Client) -> None:
    with ResponsesModel([["before", {"hold": "gate"}, "after"]]) as m, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(say, client, m)
        eventually(lambda: m.requests)
        assert not answer.done()
        httpx.post(m.base_url.replace("/v1", "/__release"), json={"name": "gate"}, trust_env=False)
        assert answer.result(20)[-1]["type"] == "response.completed"
        assert say(client, m)[-1]["type"] == "response.completed"


def test_stopping_ends_a_held_answer(client: httpx.Client) -> None:
    model = ResponsesModel([{"hold": "for ever"}]).start()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(say, client, model)
        eventually(lambda: model.requests)
        model.stop()
        error = answer.exception(20)
    assert error is None or isinstance(error, httpx.TransportError)


def test_a_client_that_goes_away_frees_its_answer(client: httpx.Client) -> None:
    with ResponsesModel([[{"text": "x", "open": True}, {"delay": 600}]]) as m:
        with client.stream("POST", f"{m.base_url}/responses", json=BODY) as answer:
            next(answer.iter_lines())
        client.close()
        eventually(lambda: m.busy == 0)


def test_the_switches_work_over_http(client: httpx.Client) -> None:
    with ResponsesModel(["first"]) as m:
        root = m.base_url.removesuffix("/v1")
        packed = gzip.compress(json.dumps(BODY).encode())
        client.post(f"{root}/v1/responses", content=packed, headers={"content-encoding": "gzip"})
        client.post(f"{root}/v1/responses", content=iter([json.dumps(BODY).encode()]))
        recorded = client.get(f"{root}/__requests").json()
        assert [(r["n"], r["user"], r["body"]) for r in recorded] == [(0, "hello", BODY), (1, "hello", BODY)]
        assert client.post(f"{root}/__scenario", json={"default": ["second"]}).status_code == 200
        assert say(client, m)[-1]["response"]["output"][0]["content"][0]["text"] == "second"
        bad = client.post(f"{root}/__scenario", json={"defualt": []})
        assert (bad.status_code, "defualt" in bad.text) == (400, True)
        assert client.post(f"{root}/v1/responses", content=b"{").status_code == 400
        assert client.get(f"{root}/v1/models").json()["data"][0]["id"] == "scripted-model"
        assert client.get(f"{root}/v1/responses", headers={"upgrade": "websocket"}).status_code == 426
        assert client.get(f"{root}/login").status_code == 404
        assert client.post(f"{root}/v1/files", json={}).status_code == 404
        assert client.get(f"{root}/__strays").json() == ["GET /login", "POST /v1/files"]
        client.post(f"{root}/__reset")
        assert (m.requests, m.strays) == ([], [])


def test_main_says_in_one_line_where_it_listens() -> None:
    code = "from stationmaster.standins.responses_model import main; main(0)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        try:
            answer = httpx.post(f"{line['base_url']}/responses", json=BODY, trust_env=False)
        finally:
            process.terminate()
    assert line["event"] == "listening"
    assert events(answer.text)[-1]["type"] == "response.completed"
