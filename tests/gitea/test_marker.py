from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stationmaster.gitea import marker
from stationmaster.gitea.marker import Mark

TASK, TURN, RESOURCE = "gitea-task-0123456789abcdef", "turn_01", "default:acme/wid--gets:issue:12"
MINE = marker.final(TASK, TURN, RESOURCE)
values = st.text(min_size=1, max_size=60)
snippets = st.sampled_from(
    [
        "```",
        "~~~",
        "````",
        "- ```",
        "  ```",
        "> ```",
        "<!--",
        "-->",
        "<!-- ccweb",
        "ccweb",
        MINE,
        "\n",
        "\n\n",
        " ",
        "`",
    ]
)
bodies = st.lists(st.one_of(snippets, st.text(max_size=12)), max_size=25).map("".join)


def mine(text: str, turns: tuple[str, ...] = (TURN,), task: str = TASK, resource: str = RESOURCE) -> bool:
    return marker.is_final(text, task_id=task, turns=turns, resource_key=resource)


def test_the_written_form() -> None:  # GW-R-163, GW-R-136
    assert marker.final("gitea-task-1f2d", "turn_9", "default:acme/widgets:issue:12") == (
        "<!-- ccweb taskId=gitea-task-1f2d turnId=turn_9 resourceKey=default:acme/widgets:issue:12 -->"
    )
    assert marker.receipt("gitea-task-1f2d:status:running") == (
        "<!-- ccweb commentKey=gitea-task-1f2d:status:running -->"
    )


@given(values, values, values)
def test_a_final_mark_is_read_back_whatever_its_values(task: str, turn: str, resource: str) -> None:
    text = marker.final(task, turn, resource)
    inside = text[4:-3]
    assert "--" not in inside
    assert ">" not in inside
    assert inside.strip().count(" ") == 3
    assert marker.only(f"words\n\n{text}\n") == Mark(task_id=task, turn_id=turn, resource_key=resource)
    assert marker.is_final(text, task_id=task, turns={turn}, resource_key=resource)


@given(values)
def test_a_receipt_mark_is_read_back_whatever_its_key(key: str) -> None:
    text = marker.receipt(key)
    assert marker.is_receipt(text, comment_key=key)
    assert not marker.is_receipt(text, comment_key=key + "x")
    assert not mine(text)


def test_order_is_free_unknown_attributes_are_passed_over_and_escapes_are_read() -> None:
    assert mine(
        f"ok\n<!--ccweb  resourceKey=default%3Aacme%2Fwid%2D%2Dgets%3Aissue%3A12\n v=2 turnId={TURN} taskId={TASK}-->"
    )
    assert mine(f"ok <!-- CCWEB taskId={TASK} turnId={TURN} x -->")  # the resource is bound by where it was read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no mark",
        f"<!-- ccweb taskId={TASK} -->",
        f"<!-- ccweb turnId={TURN} -->",
        f"<!-- ccweb taskId={TASK} turnId= -->",
        f"<!-- ccweb taskId={TASK} turnId={TURN}",
        f"<!-- ccwebx taskId={TASK} turnId={TURN} -->",
        f"<!-- other taskId={TASK} turnId={TURN} -->",
        f"<!-- ccweb taskId={TASK} turnId=turn_00 resourceKey={RESOURCE} -->",
        f"<!-- ccweb taskId=x turnId={TURN} resourceKey={RESOURCE} -->",
        f"<!-- ccweb taskId={TASK} turnId={TURN} resourceKey=default:acme/widgets:issue:13 -->",
        f"<!-- ccweb taskId={TASK} turnId={TURN} turnId=turn_02 -->",
        f"<!-- ccweb taskId={TASK} turnId={TURN} commentKey=k -->",
        f"<!-- ccweb taskId={TASK} <!-- ccweb taskId=y turnId={TURN} -->",
        MINE + marker.final(TASK, "turn_02", RESOURCE),
        MINE + marker.receipt("k"),
        f"> {marker.final('other', TURN, RESOURCE)}\n\n{MINE}",
        MINE.replace("<", "\\u003c").replace(">", "\\u003e"),
    ],
)
def test_what_is_no_proof(text: str) -> None:  # GW-R-165
    assert not mine(text)


def test_the_same_mark_twice_is_one() -> None:
    assert mine(f"{MINE}\n\n```\n{MINE}\n```")


def test_marks_are_looked_for_after_the_json_parser() -> None:
    raw = json.dumps({"body": MINE}).replace("<", "\\u003c").replace(">", "\\u003e")
    assert not marker.carried(raw)
    assert mine(json.loads(raw)["body"])


def test_either_accepted_turn_matches() -> None:  # GW-R-166
    retry = marker.final(TASK, "turn_02", RESOURCE)
    assert mine(retry, (TURN, "turn_02"))
    assert mine(MINE, (TURN, "turn_02"))
    assert not mine(MINE, ())


def test_a_dangling_comment_before_the_mark_does_not_swallow_it() -> None:
    assert mine(f"use `<!--` to begin\n\n{MINE}")


@given(bodies)
def test_what_an_agent_writes_never_changes_whose_answer_it_is(body: str) -> None:
    posted = marker.attach(body, MINE)
    assert posted.endswith(MINE)
    assert mine(posted)
    assert not marker.carried(marker.defuse(body))


@given(bodies)
def test_attaching_twice_or_to_a_defused_text_stays_one_mark(body: str) -> None:
    other = marker.final("other", "t", RESOURCE)
    assert mine(marker.attach(marker.attach(body, other), MINE))


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("plain", ""),
        ("```\ncode", "\n```"),
        ("````md\n```\ncode\n```", "\n````"),
        ("```\ncode\n```", ""),
        ("~~~\n```", "\n~~~"),
        ("- ```\n  code", "\n  ```"),
        ("- ```\n  code\nnext", ""),
        ("- ```\n  code\n  ```", ""),
        ("1. step\n\n   ```sh\n   ls", "\n   ```"),
        ("```inline``` words", ""),
        ("> ```\n> code", ""),
    ],
)
def test_an_open_code_block_is_closed_so_that_the_mark_stays_hidden(text: str, closing: str) -> None:
    assert marker.closed(text) == text + closing


def test_hostile_texts_cost_one_pass() -> None:
    # A quadratic reading of these takes hours, and this test then never ends.
    for text in (
        "<!-- ccweb " * 300_000,
        "<!--" * 500_000,
        "<!-- ccweb x -->" * 200_000,
        MINE + "<!-- ccweb " * 300_000,
    ):
        assert not mine(text)


def test_the_mark_is_an_html_comment_that_ends_once() -> None:
    assert re.fullmatch(r"<!-- [^>]* -->", marker.final("a--b>c d", "-->", "<!--"))
