"""One request to the forge's REST interface: bounded in time and size, and never a guess about what came back.

Redirects are never followed, proxies of the environment are not used, the token is read at each request and is found
nowhere but in its header.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpx
import msgspec
import structlog

from stationmaster import redact
from stationmaster.clock import MICROS
from stationmaster.command import assert_outside
from stationmaster.errors import Denied, NotFound, StationmasterError, Unavailable
from stationmaster.gitea import codes
from stationmaster.measure import REQUEST, Spread, Tally


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, or the part within the limit."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool = False


class NoAnswer(Exception):
    """Says that no whole answer came; `sent` is False when no byte left us."""

    def __init__(self, code: str, *, sent: bool) -> None:
        super().__init__(code)
        self.code = code
        self.sent = sent


# What a proxy answers for a forge that is down; a plain 500 may be about one request only.
_log = structlog.get_logger("stationmaster.gitea")

_DOWN = frozenset({502, 503, 504})


class Transport:
    """The way to one forge with one token; use it within one event loop and close it.

    `date` is the newest time that the forge said it was, in microseconds, and `returns` how often it answered again
    after it had not: what its events said meanwhile is lost. `asked` counts requests by how they came out, `seconds`
    what they took.
    """

    def __init__(
        self, base_url: str, token: redact.Secret, *, timeout_s: float, max_bytes: int, verify: ssl.SSLContext | bool
    ) -> None:
        self._api = f"{base_url.rstrip('/')}/api/v1"
        self._token = token
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s),
            follow_redirects=False,
            trust_env=False,
            verify=verify,
            headers={"Accept-Encoding": "gzip", "User-Agent": "stationmaster"},
        )
        self.date: int | None = None
        self.returns = 0
        self.asked = Tally()
        self.seconds = Spread(REQUEST)
        self._away = False

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: Mapping[str, str] | None = None,
        limit: int | None = None,
        cut: bool = False,
    ) -> Answer:
        """Makes one request within the time and size limits; raises NoAnswer when there is no whole answer."""
        began = time.monotonic()
        try:
            answer = await self._ask(method, path, params, content, limit, cut=cut)
        except NoAnswer as none:
            self._away = self._away or none.code != codes.FORGE_TOO_LARGE
            self.asked.add(none.code)
            raise
        finally:
            self.seconds.add(time.monotonic() - began)
        self.asked.add(_outcome(answer.status))
        self.returns += int(self._away and answer.status not in _DOWN)
        self._away = answer.status in _DOWN
        self.date = max(self.date or 0, _date(answer)) or None
        return answer

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        content: Mapping[str, str] | None,
        limit: int | None,
        *,
        cut: bool,
    ) -> Answer:
        assert_outside("a request to the forge")
        token = self._revealed()
        answer = await self._once(token, method, path, params, content, limit, cut=cut)
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        # Refused before anything was done. A token that was replaced meanwhile is tried, once.
        fresh = self._revealed()
        if fresh == token:
            return answer
        _log.warning("forge.token_renewed", ref=self._token.ref)
        return await self._once(fresh, method, path, params, content, limit, cut=cut)

    async def _once(
        self,
        token: str,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        content: Mapping[str, str] | None,
        limit: int | None,
        *,
        cut: bool,
    ) -> Answer:
        headers = {"Authorization": f"token {token}"}
        data = None
        if content is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode({key: _sendable(value) for key, value in content.items()})
        request = self._http.build_request(method, self._api + path, params=params, headers=headers, content=data)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._http.send(request, stream=True)
                try:
                    body, more = await _bounded(response, limit or self._max_bytes)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NoAnswer(codes.FORGE_UNREACHABLE, sent=False) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise NoAnswer(codes.FORGE_TIMEOUT, sent=True) from error
        except httpx.HTTPError as error:
            raise NoAnswer(codes.FORGE_UNREACHABLE, sent=True) from error
        if more and not cut:
            raise NoAnswer(codes.FORGE_TOO_LARGE, sent=True)
        return Answer(response.status_code, response.headers, body, more)

    def _revealed(self) -> str:
        token = self._token.reveal().strip()
        # Anything else would be quoted by the error of the library that refuses it.
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise Denied(
                f"The bot's token ({self._token.ref}) is empty or not a token.",
                code=codes.FORGE_AUTH,
                hint="Put the token alone into it.",
            )
        return token


def _outcome(status: int) -> str:
    return "429" if status == HTTPStatus.TOO_MANY_REQUESTS else f"{status // 100}xx"


def _date(answer: Answer) -> int:
    try:
        return int(parsedate_to_datetime(answer.headers.get("date", "")).timestamp()) * MICROS
    except (ValueError, OverflowError):
        return 0


async def _bounded(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """Reads at most `limit` bytes of an answer, and tells whether there was more."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks)[:limit], True
    return b"".join(chunks), False


def _sendable(text: str) -> str:
    # Half a surrogate pair is no UTF-8, and a forge on PostgreSQL answers U+0000 with a server error.
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def code_of(status: int) -> str:
    """Returns the code of a refusing status."""
    known = {
        401: codes.FORGE_AUTH,
        403: codes.FORGE_DENIED,
        404: codes.FORGE_NOT_FOUND,
        409: codes.FORGE_CONFLICT,
        423: codes.FORGE_LOCKED,
        429: codes.FORGE_RATE_LIMITED,
    }
    return known.get(status, codes.FORGE_INVALID)


def refusal(status: int, words: str, path: str) -> StationmasterError:
    """Makes the error of a read that the forge answered with another status than 200."""
    said = f": {words}" if words else ""
    where = f"(GET {path}, status {status})"
    code = code_of(status)
    if status in (401, 403):
        hint = "Check the bot's token and its scopes." if status == HTTPStatus.UNAUTHORIZED else ""
        return Denied(f"The forge refuses the bot{said} {where}.", code=code, hint=hint)
    if status in (404, 410):
        return NotFound(f"The forge does not show this to the bot{said} {where}.", code=codes.FORGE_NOT_FOUND)
    if code == codes.FORGE_RATE_LIMITED:
        return Unavailable(f"The forge asks to slow down {where}.", code=code)
    return Unavailable(f"The forge did not answer the question{said} {where}.", code=codes.FORGE_ERROR)


def unavailable(code: str, path: str) -> Unavailable:
    """Makes the error of a read without a usable answer."""
    sentence = codes.text(code)
    return Unavailable(f"{sentence[0].upper()}{sentence[1:]} (GET {path}).", code=code)


def words(answer: Answer) -> str:
    """Returns the forge's own message, short, on one line and without secrets."""
    try:
        body = msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    message = body.get("message")
    if not isinstance(message, str):
        return ""
    line = " ".join("".join(char if char.isprintable() else " " for char in message).split())
    return redact.clean(line)[:200]
