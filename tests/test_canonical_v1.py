"""`fc.canon.v1` against recorded vectors, an oracle written from the rules, and hostile text."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stationmaster import canonical
from stationmaster.errors import Invalid

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "data/canon_v1.jsonl").read_text().splitlines()]

# Every code unit of UTF-16, lone surrogates too, with those that matter most often.
CHARS = st.characters(exclude_categories=()) | st.sampled_from('\x00\x0b\x1f\x7f\\"/\ud800\udfff\ue000\uff5e\U0001f600')
TEXT = st.text(CHARS, max_size=6)
DIGITS = st.text("0123456789", min_size=1, max_size=25)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    whole = draw(
        st.sampled_from(["0", "1", "10", "9007199254740993"]) | DIGITS.map(lambda text: text.lstrip("0") or "0")
    )
    fraction = draw(st.just("") | DIGITS.map(lambda text: f".{text}"))
    power = draw(st.just("") | st.integers(-400, 400).map(lambda number: f"E{number:+}") | st.just("e07"))
    return draw(st.sampled_from(["", "-"])) + whole + fraction + power


class Number(str):
    """A number as somebody wrote it."""

    __slots__ = ()


VALUES = st.recursive(
    st.none() | st.booleans() | numbers().map(Number) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(TEXT, inner), max_size=4).map(tuple),
    max_leaves=12,
)


def units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def outcome(source: str) -> str:
    try:
        canonical.canon(source)
    except Invalid as error:
        return error.code
    return "taken"


def written(value: Any, draw: Any) -> str:
    """Writes a value in one of the many ways in which JSON can be written; an object is a tuple of its members."""
    gap: str = draw(st.sampled_from(["", "", " ", "\n\t", "\r"]))
    if isinstance(value, Number):
        return gap + value
    if isinstance(value, str):
        return gap + quoted(value, draw)
    if isinstance(value, list):
        return f"{gap}[{','.join(written(each, draw) for each in value)}{gap}]"
    if isinstance(value, tuple):
        members = (f"{gap}{quoted(name, draw)}{gap}:{written(each, draw)}" for name, each in value)
        return f"{{{','.join(members)}{gap}}}"
    return gap + json.dumps(value)


def quoted(text: str, draw: Any) -> str:
    """Writes a string with any of its characters escaped."""
    short = draw(st.booleans())
    return f'"{"".join(escaped(each) if short or each in QUOTED or draw(st.booleans()) else each for each in text)}"'


QUOTED = frozenset({'"', "\\", *map(chr, range(32))})


def escaped(char: str) -> str:
    halves = units(char).hex()
    return "".join("\\u" + halves[at : at + 4] for at in range(0, len(halves), 4))


def oracle(value: Any, *, top: bool = True) -> str:
    """Writes the canonical form straight from the rules (R-CAN-1 to R-CAN-6)."""
    if isinstance(value, Number):
        return plain(value)
    if isinstance(value, str):
        return '"' + "".join(map(shown, units(value).decode("utf-16-be", "surrogatepass"))) + '"'
    if isinstance(value, list):
        return f"[{','.join(oracle(each, top=False) for each in value)}]"
    if isinstance(value, tuple):
        last = {units(name): (name, each) for name, each in value}
        members = [last[name] for name in sorted(last) if not (top and name == units("intent"))]
        return f"{{{','.join(f'{oracle(name)}:{oracle(each, top=False)}' for name, each in members)}}}"
    return json.dumps(value)


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(char: str) -> str:
    return SHORT.get(char) or ("\\u" + f"{ord(char):04X}" if char < " " else char)


def plain(token: str) -> str:
    value = Decimal(token)
    if value == 0:
        return "0"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_a_recorded_vector(vector: dict[str, Any]) -> None:  # R-CAN-1, R-CAN-2, R-CAN-3, R-CAN-4, R-CAN-5, R-CAN-6
    if vector["canonical"] is None:
        with pytest.raises(Invalid):
            canonical.canon(vector["input"])
        return
    made = canonical.canon(vector["input"])
    assert (made.text, made.sha256) == (vector["canonical"], vector["sha256"])
    assert canonical.canon(made.text) == made
    assert canonical.canon(vector["input"].encode()) == made


@given(VALUES, st.data())
@settings(max_examples=300, deadline=None)
def test_however_it_is_written_the_form_is_that_of_the_rules(value: Any, data: st.DataObject) -> None:
    # R-CAN-1, R-CAN-3, R-CAN-4, R-CAN-9, R-CAN-10, R-CAN-12
    source = written(value, data.draw)
    made = canonical.canon(source)
    assert made.text == oracle(value)
    assert made.sha256 == hashlib.sha256(made.text.encode("utf-8", "replace")).hexdigest()


@given(VALUES.map(oracle), st.data())
@settings(max_examples=300, deadline=None)
@example('{"a":"\\u0000"}', None)
def test_damaged_json_is_taken_just_when_another_reader_takes_it(source: str, data: st.DataObject | None) -> None:
    # R-CAN-9
    if data is not None and source:
        at = data.draw(st.integers(0, len(source)))
        other = data.draw(st.sampled_from(list('{}[]",:\\/0-+.eEtfn u\x00\t\x0c\ufeff\u00a0٣')))
        source = data.draw(st.sampled_from([source[:at] + source[at + 1 :], source[:at] + other + source[at:]]))

    def refuse(_name: str) -> None:
        raise ValueError

    try:
        json.loads(source, parse_constant=refuse, parse_float=str)
    except ValueError:
        assert outcome(source) in {"invalid_json", "number_too_long"}
        return
    assert outcome(source) in {"taken", "number_too_long"}


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("[" * 1000 + "]" * 1000, None),
        ("[" * 1001 + "]" * 1001, "json_too_deep"),
        ('{"a":' * 1000 + "1" + "}" * 1000, None),
        ('{"a":' * 1001 + "1" + "}" * 1001, "json_too_deep"),
        ("[" + "[]," * 5000 + "1]", None),
        ("[" * 50_000, "json_too_deep"),
        ("1" * 1000, None),
        ("1" * 1001, "number_too_long"),
        (f"[{'7' * 5000}]", "number_too_long"),
        (f"-{'1' * 999}", None),
        (f"-{'1' * 1000}", "number_too_long"),
        (f"0.{'1' * 998}", None),
        (f"0.{'0' * 998}1", "number_too_long"),
        (f'"{"1" * 5000}"', None),
        ("1e4095", None),
        ("1e4096", "number_too_long"),
        ("1e-4095", None),
        ("1e-4096", "number_too_long"),
        ("123e-4095", None),
        ("10e-4096", None),
        ("1e999999999", "number_too_long"),
        ("0e999999999", None),
        ("-0.000e-999999999", None),
    ],
    ids=lambda value: str(value)[:12],
)
def test_limits(source: str, code: str | None) -> None:  # R-CAN-11
    if code is None:
        assert canonical.canon(source).text == canonical.canon(f" {source} ").text
        return
    with pytest.raises(Invalid) as refused:
        canonical.canon(source)
    assert refused.value.code == code


def test_what_is_refused_is_said_in_one_sentence() -> None:
    for source in (
        "",
        " ",
        "{",
        '{"a":1,}',
        "[1 2]",
        "01",
        "1.",
        "+1",
        "NaN",
        "-Infinity",
        "tru",
        '"\\x"',
        "\ufeff1",
        "1 2",
    ):
        with pytest.raises(Invalid) as refused:
            canonical.canon(source)
        assert refused.value.message.startswith("The JSON is refused: ")
        assert "\n" not in refused.value.message
    with pytest.raises(Invalid, match="not UTF-8"):
        canonical.canon(b'"\xed\xa0\x80"')


def test_a_surrogate_without_its_pair_stays_and_hashes_as_a_question_mark() -> None:  # R-CAN-10
    lone = canonical.canon('{"a":"\\ud800"}')
    assert lone.text == '{"a":"\ud800"}'
    assert lone.sha256 == hashlib.sha256(b'{"a":"?"}').hexdigest()
    pair = canonical.canon('{"a":"\\ud83d\\ude00"}')
    for half in ('{"a":"\ud83d\\ude00"}', '{"a":"\\ud83d\ude00"}', '{"a":"\ud83d\ude00"}', '{"a":"\U0001f600"}'):
        assert canonical.canon(half) == pair


def test_a_name_written_in_halves_is_the_same_name() -> None:  # R-CAN-9
    assert canonical.canon('{"\\ud83d\\ude00":1,"\ud83d\\ude00":2,"\\ud800":3}').text == '{"\ud800":3,"\U0001f600":2}'


def test_names_are_ordered_as_utf_16_however_many_there_are() -> None:  # R-CAN-1
    names = ["\U0001f600", "\uff5e", "\ud7ff", "a", "\U00010000", "\ue000"]
    value = {name: dict.fromkeys(names, 0.5) for name in names}
    made = canonical.canon(json.dumps(value))
    order = sorted(names, key=units)
    inner = "{" + ",".join(f'"{name}":0.5' for name in order) + "}"
    assert made.text == "{" + ",".join(f'"{name}":{inner}' for name in order) + "}"
