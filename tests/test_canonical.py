"""K11: equal values have one text and one hash, whatever order they were written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stationmaster import canonical

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@dataclass
class Shape:
    b: int
    a: str


@given(PLAIN)
def test_text_and_value_are_the_same_thing(value: Any) -> None:
    text = canonical.dump(value)
    assert canonical.load(text) == value
    assert canonical.dump(canonical.load(text)) == text


@given(st.dictionaries(st.text(), PLAIN))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert canonical.dump(dict(reversed(value.items()))) == canonical.dump(value)


def test_the_form() -> None:
    assert canonical.dump({"b": [1, 2], "a": "é"}) == '{"a":"é","b":[1,2]}'
    assert canonical.dump(Shape(1, "x")) == '{"a":"x","b":1}'
    assert canonical.sha256("é") == canonical.sha256("é".encode())
    assert canonical.sha256("") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        canonical.load("{,}")
