"""Turns plain TOML values into the frozen classes of `settings`, with one sentence for each way to be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from stationmaster.ops.settings import Between
from stationmaster.redact import Secret

_NAMES = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}

Reference = Callable[[str, str], Secret]


class WrongValue(ValueError):
    """A key whose value cannot be; the text is the rest of a sentence that begins with the key."""

    def __init__(self, key: str, words: str) -> None:
        super().__init__(f"{key} {words}")
        self.key = key


def read(key: str, hint: Any, value: Any, reference: Reference) -> Any:
    """Returns `value` as the type `hint` wants; raises WrongValue naming `key`."""
    if not (is_dataclass(hint) and isinstance(hint, type)):
        return _value(key, hint, value, reference)
    hints = get_type_hints(hint, include_extras=True)
    made = {
        field.name: read(f"{key}.{field.name}", hints[field.name], value[field.name], reference)
        for field in fields(hint)
    }
    return hint(**made)


def _value(key: str, hint: Any, value: Any, reference: Reference) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        base, between = get_args(hint)
        return _within(key, _plain(key, base, value), between)
    if origin is Literal:
        return _one_of(key, get_args(hint), value)
    if origin is UnionType:
        return _optional(key, next(arg for arg in get_args(hint) if arg is not NoneType), value, reference)
    if origin is tuple:
        if not isinstance(value, list):
            raise WrongValue(key, "must be a list")
        return tuple(_value(key, get_args(hint)[0], item, reference) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        return dict(value)
    return _plain(key, hint, value)


def _plain(key: str, hint: Any, value: Any) -> Any:
    if hint is Path:
        return _path(key, _plain(key, str, value))
    accepted: tuple[type, ...] = (int, float) if hint is float else (hint,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise WrongValue(key, f"must be {_NAMES[hint]}")
    return hint(value)


def _optional(key: str, hint: Any, value: Any, reference: Reference) -> Any:
    text = _plain(key, str, value)
    if not text:
        return None
    return reference(key, text) if hint is Secret else _path(key, text)


def _path(key: str, text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute() or "\0" in text:
        raise WrongValue(key, "must be an absolute path")
    return path


def _one_of(key: str, choices: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise WrongValue(key, f"must be one of {listed}")
    return value


def _within(key: str, value: float, between: Between) -> float:
    if not math.isfinite(value) or not between.low <= value <= between.high:
        raise WrongValue(key, f"must be between {between.low:g} and {between.high:g}")
    return value
