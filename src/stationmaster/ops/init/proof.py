"""Proves that deliveries arrive: a signed test delivery, sent to where the forge sends, that starts nothing."""

from __future__ import annotations

import json
import uuid

import httpx

from stationmaster.gitea import signature

_TIMEOUT_S = 10.0
_NOTHING = "0" * 40


def round_trip(url: str, secret: str) -> str:
    """Sends a test delivery and returns what is wrong as a sentence, or nothing when it was taken.

    Its event is a push of nothing, as the forge's own test button sends; it is stored as ignored and starts no task.
    """
    body = json.dumps({"ref": "refs/heads/test", "before": _NOTHING, "after": _NOTHING}).encode()
    headers = {
        "Content-Type": "application/json",
        "X-Gitea-Event": "push",
        "X-Gitea-Event-Type": "push",
        "X-Gitea-Delivery": str(uuid.uuid4()),
        "X-Gitea-Signature": signature.sign(secret.encode(), body),
    }
    try:
        answer = httpx.post(url, content=body, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        return f"{url} cannot be reached ({type(error).__name__}): start Stationmaster, and look at proxy and firewall."
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return f"{url} refuses the signature: the Stationmaster there has another webhook secret."
    try:
        said = answer.json()
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("reason") != "test_delivery":
        return f"{url} answers {answer.status_code}, and not as Stationmaster does: something else listens there."
    return ""
