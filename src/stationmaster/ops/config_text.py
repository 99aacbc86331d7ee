"""Shows configuration: the effective values as TOML, and the reference page made from `default.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from stationmaster.ops import config
from stationmaster.ops.settings import Config
from stationmaster.redact import Secret

_HEAD = """# Configuration

Generated from `src/stationmaster/ops/default.toml` by `make docs`; do not edit. The home is `~/.stationmaster` unless
`--home` or `STATIONMASTER_HOME` says otherwise. An unknown key or a value out of range stops the start with one
sentence that names the key. `stationmaster config show` prints what is in effect.
"""
_SECTION = re.compile(r"\[([\w.]+)\]")
_HOME = re.compile(r"(?<!`)<home>[\w/.]*\w")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def plain(loaded: Config) -> dict[str, Any]:
    """Returns the effective values as plain data, secrets as references."""
    values = {field.name: _plain(getattr(loaded, field.name)) for field in fields(loaded)}
    del values["source"]
    del values["instances"]
    values["gitea"]["instances"] = {name: _plain(forge) for name, forge in loaded.instances.items()}
    return values


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Secret):
        return value.ref
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def toml(values: Mapping[str, Any], prefix: str = "") -> str:
    """Writes plain values as TOML, a section for each table."""
    lines = []
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    flat = {name: value for name, value in values.items() if name not in tables}
    if prefix and (flat or not tables):
        lines.append(f"[{prefix}]")
    lines += [f"{_key(name)} = {_value(value)}" for name, value in flat.items()]
    text = "\n".join(lines) + "\n" if lines else ""
    for name, table in tables.items():
        inner = f"{prefix}.{_key(name)}" if prefix else _key(name)
        text += ("\n" if text else "") + toml(table, inner)
    return text


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items()) + "}"
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else json.dumps(str(value))
    )


def render() -> str:
    """Returns docs/config.md."""
    parts = [_HEAD]
    comment: list[str] = []
    for line in config.default_text().splitlines():
        if line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
            continue
        section = _SECTION.fullmatch(line)
        if section:
            parts.append(f"\n## [{section[1]}]\n\n{_words(comment)}".rstrip() + "\n\n")
            parts.append("| key | default | meaning |\n|---|---|---|\n")
        elif "=" in line:
            name, _, default = line.partition(" = ")
            parts.append(f"| `{name}` | `{default}` | {_words(comment)} |\n")
        elif comment:
            parts.append("\n" + _words(comment) + "\n" if len(parts) == 1 else "")
        comment = []
    return "".join(parts)


def _words(comment: list[str]) -> str:
    return _HOME.sub(r"`\g<0>`", " ".join(comment))
