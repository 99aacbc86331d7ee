"""Signed comment deliveries as a forge sends them: a recorded payload with numbers of its own in each copy.

Every delivery is another comment on an issue of its own, so each one makes a conversation, a task and its history.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from importlib.resources import files

from stationmaster.gitea.settings import GiteaSettings
from stationmaster.redact import Secret

REPOSITORIES = 200
PATH = "/api/gitea/webhook"
_SECRET = "bench-webhook-secret"  # noqa: S105 - signs deliveries that nobody else ever sees
# Numbers that stand in the template once each, where the delivery's own go.
_COMMENT, _ISSUE = 987_654_321_001, 987_654_321_002
_FAMILIES = ("Gitea", "Gogs", "GitHub")


def settings() -> GiteaSettings:
    """Returns the settings under which these deliveries are genuine."""
    return GiteaSettings(
        base_url="https://gitea.example.com",
        host_ref="bench",
        token=Secret("bench", lambda: "unused"),
        webhook_secrets=(Secret("bench", lambda: _SECRET),),
        bot_login="codebot",
    )


class Deliveries:
    """Makes the delivery of a number; the same number gives the same bytes."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        template = json.loads(files(__package__).joinpath("comment.json").read_text(encoding="utf-8"))
        template["comment"]["id"] = _COMMENT
        template["issue"]["number"] = _ISSUE
        self._parts = [_split(template, number) for number in range(REPOSITORIES)]

    def body(self, number: int) -> bytes:
        """Returns the payload."""
        before, between, after = self._parts[number % REPOSITORIES]
        issue = number // REPOSITORIES + 1
        return b"%b%d%b%d%b" % (before, issue, between, number + 1, after)

    def headers(self, number: int, body: bytes) -> dict[str, str]:
        """Returns the forge's headers, signature and all."""
        mac = hmac.new(_SECRET.encode(), body, hashlib.sha256).hexdigest()
        found = {
            "User-Agent": "Go-http-client/1.1",
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            "Accept-Encoding": "gzip",
        }
        for family in _FAMILIES:
            found |= {
                f"X-{family}-Delivery": f"bench-{number:012d}",
                f"X-{family}-Event": "issue_comment",
                f"X-{family}-Event-Type": "issue_comment",
            }
        return found | {
            "X-Gitea-Signature": mac,
            "X-Gogs-Signature": mac,
            "X-Hub-Signature-256": f"sha256={mac}",
            "X-Gitea-Hook-Installation-Target-Type": "repository",
        }

    def request(self, number: int) -> bytes:
        """Returns the whole HTTP request."""
        body = self.body(number)
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers(number, body).items())
        return f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{lines}\r\n".encode() + body


def _split(template: dict[str, dict[str, object]], number: int) -> tuple[bytes, bytes, bytes]:
    name = f"widgets-{number}"
    repository = template["repository"] | {
        "id": number + 1,
        "name": name,
        "full_name": f"acme/{name}",
        "clone_url": f"https://gitea.example.com/acme/{name}.git",
    }
    text = json.dumps(template | {"repository": repository}, ensure_ascii=False, separators=(",", ":")).encode()
    before, rest = text.split(str(_ISSUE).encode())
    between, after = rest.split(str(_COMMENT).encode())
    return before, between, after
