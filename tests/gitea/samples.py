"""The recorded payloads of tests/data/gitea with their headers and secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "gitea"


@dataclass(frozen=True)
class Sample:
    """One delivery as it came over the wire."""

    name: str
    headers: dict[str, str]
    body: bytes
    secret: bytes


def _load() -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for row in json.loads((FOLDER / "index.json").read_text()):
        path = FOLDER / row["file"]
        form = path.with_suffix(".form")
        body = form.read_bytes() if row["headers"]["Content-Type"].endswith("urlencoded") else path.read_bytes()
        found[path.stem] = Sample(path.stem, row["headers"], body, (row["secret"] or "").encode())
    return found


ALL = _load()


def payload(name: str) -> dict[str, Any]:
    """Returns a sample's JSON as plain data, to be changed."""
    data: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return data
