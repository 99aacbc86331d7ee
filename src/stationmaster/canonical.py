"""JSON in one form: sorted keys, no spaces, UTF-8; equal values give equal text and equal hashes."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

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
