"""JSON in one form: equal values give equal text and equal hashes.

`dump`, `load` and `sha256` are for what the product writes itself. `canon` is `fc.canon.v1`, by which answers, receipts
and flow content are hashed on both sides of a wire: it reads strictly, keeps decimals exact and orders names as UTF-16.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in name, unknown to the type stubs
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

import msgspec

from stationmaster.errors import Invalid

MOST_NESTED: Final = 1000
LONGEST_NUMBER: Final = 1000
MOST_DIGITS: Final = 4096

_encoder = msgspec.json.Encoder(order="sorted")


def dump(value: Any) -> str:
    """Writes a value (plain data, frozen structs, dataclasses) as canonical JSON text."""
    return _encoder.encode(value).decode()


def load(text: str | bytes) -> Any:
    """Reads JSON text; raises msgspec.DecodeError when it is not JSON."""
    return msgspec.json.decode(text)


def sha256(data: str | bytes) -> str:
    """Returns `sha256:<hex>` of text or bytes."""
    raw = data.encode() if isinstance(data, str) else data
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


# --- fc.canon.v1 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Canon:
    """A value in its one form: the text, and the lower-case hex SHA-256 of its UTF-8 bytes."""

    text: str
    sha256: str


def canon(given: str | bytes) -> Canon:
    """Brings one JSON value into the form `fc.canon.v1` (R-CAN-1 to R-CAN-6, R-CAN-9 to R-CAN-12).

    Raises Invalid (`invalid_json`, `json_too_deep`, `number_too_long`) for what it refuses. A member `intent` of an
    object at the top is left out. A surrogate without its pair stays in the text and is hashed as one `?`.
    """
    source = _text_of(given)
    quick = _quick(source)
    if quick is not None:
        return Canon(quick, hashlib.sha256(quick.encode()).hexdigest())
    text = _write(_read(_paired(source)))
    return Canon(text, hashlib.sha256(text.encode(errors="replace")).hexdigest())


def _text_of(given: str | bytes) -> str:
    if isinstance(given, str):
        return given
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"it is not UTF-8 at byte {error.start}") from None


def _refused(why: str, code: str = "invalid_json") -> Invalid:
    return Invalid(f"The JSON is refused: {why}.", code=code, hint="Send one JSON value as RFC 8259 has it.")


# The quick way: the interpreter's own reader and writer do the work, and what they do otherwise is set right around
# them. Whatever they cannot do at all is left to the exact way below, which alone defines the result.

# Stands around a decimal fraction on its way through the writer; no text can hold it but by this escape.
_MARK = "\x00"
_MARK_WRITTEN = "\\u0000"
_WINDOW = LONGEST_NUMBER // 2
_LONG_RUN = re.compile(f"[0-9]{{{LONGEST_NUMBER - 1}}}")
_BEHIND = re.compile("[\ue000-\uffff]")
_HEX = re.compile(r"(\\\\)|\\u00([01][0-9a-f])")


def _quick(source: str) -> str | None:
    """Returns the canonical text, or None when only the exact way can tell."""
    if _MARK_WRITTEN in source or _long_number(source):
        return None
    try:
        value = _reader.decode(source)
        if type(value) is dict:
            value.pop("intent", None)
        if source.count("[") + source.count("{") > MOST_NESTED and _is_deep(value):
            return None
        text = _writer.encode(value)
        if len(text.encode("utf-16-le")) != 2 * len(text) and _arranged(value):
            text = _plain_writer.encode(value)
    except (RecursionError, ValueError):
        # Too deep for the interpreter, a lone surrogate, or not JSON: the exact way says which.
        return None
    if f"\\{_MARK_WRITTEN}" in text:
        # A backslash of the text itself, which would be taken for the begin of a mark.
        return None
    text = text.replace(f'"{_MARK_WRITTEN}', "").replace(f'{_MARK_WRITTEN}"', "")
    return _HEX.sub(_upper, text) if "\\u00" in text else text


def _fraction(token: str) -> int | str:
    plain = _plain(token)
    return f"{_MARK}{plain}{_MARK}" if "." in plain else int(plain)


def _constant(name: str) -> NoReturn:
    raise _refused(f"{name} is no JSON value")


_reader = json.JSONDecoder(parse_float=_fraction, parse_constant=_constant)
_writer = json.JSONEncoder(ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":"))
_plain_writer = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))


def _long_number(source: str) -> bool:
    """Tells whether there may be a number that is too long; a run of that many digits covers a whole window."""
    ends = range(_WINDOW - 1, len(source), _WINDOW)
    if not any(source[end - _WINDOW + 1 : end + 1].isdecimal() for end in ends if source[end].isdecimal()):
        return False
    return _LONG_RUN.search(source) is not None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        level = [each for one in level if type(one) in _NESTING for each in _inner(one) if type(each) in _NESTING]
        if not level:
            return False
    return True


_NESTING = frozenset({dict, list})


def _inner(value: Any) -> Any:
    return value.values() if type(value) is dict else value


def _arranged(value: Any) -> bool:
    """Puts every object's members in their order when a name is wide; returns whether one is.

    The writer's own order differs only where one object has a name with a character that UTF-16 writes in two units,
    and one with a character behind those units.
    """
    objects = [value] if type(value) is dict else []
    level = [value]
    while level := [each for one in level if type(one) in _NESTING for each in _inner(one) if type(each) in _NESTING]:
        objects += [each for each in level if type(each) is dict]
    wide = [_is_wide("".join(one)) for one in objects]
    if not any(wide):
        return False
    for one, of_wide in zip(objects, wide, strict=True):
        members = sorted(one.items(), key=_member) if of_wide else sorted(one.items())
        one.clear()
        one.update(members)
    return True


def _is_wide(names: str) -> bool:
    if names.isascii() or len(names.encode("utf-16-le")) == 2 * len(names):
        return False
    return _BEHIND.search(names) is not None


def _member(member: tuple[str, Any]) -> bytes:
    return member[0].encode("utf-16-be")


def _upper(found: re.Match[str]) -> str:
    return found[1] or f"\\u00{found[2].upper()}"


def _plain(token: str) -> str:
    """Writes the exact decimal value of a number without exponent and without zeros at its end."""
    if len(token) > LONGEST_NUMBER:
        raise _refused(f"a number has more than {LONGEST_NUMBER} characters", "number_too_long")
    head, _, tail = token.lower().partition("e")
    whole, _, fraction = head.lstrip("-").partition(".")
    fraction = fraction.rstrip("0") if not tail else fraction
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    sign = "-" if token[0] == "-" else ""
    if not tail:
        return f"{sign}{whole}.{fraction}" if fraction else sign + whole
    stripped = digits.rstrip("0")
    # The value is `stripped` times ten to the power of `power`.
    power = int(tail) - len(fraction) + len(digits) - len(stripped)
    if max(len(stripped), len(stripped) + power, 1 - power) > MOST_DIGITS:
        raise _refused(f"a number has more than {MOST_DIGITS} digits when it is written out", "number_too_long")
    if power >= 0:
        return sign + stripped + "0" * power
    point = len(stripped) + power
    return f"{sign}{stripped[:point] if point > 0 else '0'}.{'0' * -point}{stripped[max(point, 0) :]}"


# The exact way: a reader and a writer without recursion, for what is deep, long or oddly written.

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"(true|false|null)|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


class _Raw(str):
    """A scalar as it is written: a number or a literal."""

    __slots__ = ()


def _paired(source: str) -> str:
    """Joins the two halves of a character that stand beside one another as characters of their own."""
    return source.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _Source:
    """A JSON text that is read from its begin to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def peek(self) -> str:
        """Returns the next character that means something; empty at the end."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def take(self, expected: str) -> None:
        """Takes one character that has to come."""
        if self.peek() != expected:
            raise self.wrong()
        self._at += 1

    def string(self) -> str:
        """Takes a string."""
        if self.peek() != '"':
            raise self.wrong()
        try:
            text, self._at = scanstring(self._text, self._at + 1, True)
        except json.JSONDecodeError as error:
            raise _refused(f"a string is wrong near character {error.pos}") from None
        return text if text.isascii() else _paired(text)

    def scalar(self) -> str:
        """Takes a string, a number or a literal."""
        if self.peek() == '"':
            return self.string()
        found = _SCALAR.match(self._text, self._at)
        if found is None:
            raise self.wrong()
        self._at = found.end()
        return _Raw(found[1] or _plain(found[2]))

    def wrong(self) -> Invalid:
        """Says where it is wrong."""
        if self._at >= len(self._text):
            return _refused("it ends too early")
        return _refused(f"something else has to stand at character {self._at}")


def _read(source: str) -> Any:
    """Reads one value; of a name that is there twice the last counts."""
    text = _Source(source)
    top: list[Any] = []
    stack: list[Any] = [top]
    names: list[str] = []
    while True:
        # One value begins here.
        nest = text.peek()
        if nest in {"{", "["}:
            text.take(nest)
            inner: Any = {} if nest == "{" else []
            if len(stack) > MOST_NESTED:
                raise _refused(f"it is nested more than {MOST_NESTED} deep", "json_too_deep")
            _put(stack[-1], names, inner)
            stack.append(inner)
            if text.peek() != _end_of(inner):
                _name(text, inner, names)
                continue
        else:
            _put(stack[-1], names, text.scalar())
        # One value ends here, and perhaps those around it.
        while stack[-1] is not top:
            if text.peek() == ",":
                text.take(",")
                _name(text, stack[-1], names)
                break
            text.take(_end_of(stack.pop()))
        else:
            if text.peek():
                raise text.wrong()
            return top[0]


def _end_of(value: Any) -> str:
    return "}" if type(value) is dict else "]"


def _name(text: _Source, inner: Any, names: list[str]) -> None:
    if type(inner) is dict:
        names.append(text.string())
        text.take(":")


def _put(outer: Any, names: list[str], value: Any) -> None:
    if type(outer) is dict:
        outer[names.pop()] = value
    else:
        outer.append(value)


def _write(value: Any) -> str:
    """Writes what `_read` returned, members by their names as UTF-16."""
    if type(value) is dict:
        value.pop("intent", None)
    parts: list[str] = []
    todo: list[Any] = [value]
    while todo:
        one = todo.pop()
        if type(one) is dict:
            todo.append(_Raw("}"))
            for number, name in enumerate(sorted(one, key=_units, reverse=True), 1):
                comma = "," if number < len(one) else ""
                todo += (one[name], _Raw(f"{comma}{_quoted(name)}:"))
            parts.append("{")
        elif type(one) is list:
            todo.append(_Raw("]"))
            for number, each in enumerate(reversed(one), 1):
                todo.append(each)
                if number < len(one):
                    todo.append(_Raw(","))
            parts.append("[")
        else:
            parts.append(one if type(one) is _Raw else _quoted(one))
    return "".join(parts)


def _units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _quoted(text: str) -> str:
    quoted = encode_basestring(text)
    return _HEX.sub(_upper, quoted) if "\\u00" in quoted else quoted
