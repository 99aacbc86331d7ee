"""What the log says has stable names, no texts of strangers, and a page that lists it."""

from __future__ import annotations

import re

from tools import logged

NAME = re.compile(r"[a-z]+(?:[._][a-z0-9_]+)+")
# Whatever holds one of these could hold what a person or an agent wrote.
TEXTS = {"body", "text", "instruction", "comment_body", "payload", "prompt", "answer", "said", "message", "content"}
# It tells the history's own actions.
FOLLOWS = "ops/metrics/follow.py"


def test_every_event_has_a_stable_name() -> None:
    found = list(logged.lines())
    assert len(found) > 30
    assert not [line for line in found if line.event is None and line.place != FOLLOWS]
    assert not [line for line in found if line.event is not None and not NAME.fullmatch(line.event)]


def test_no_event_has_a_field_for_a_text_of_strangers() -> None:
    assert not [line for line in logged.lines() if TEXTS.intersection(line.fields)]
