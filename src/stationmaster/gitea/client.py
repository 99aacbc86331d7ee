"""The forge's REST interface, thin and distrustful: what was read is complete, what was written is known or Unknown.

Redirects are never followed (a renamed repository would turn a write into a read), proxies of the environment are not
used, the token is read at each request and stays in its header. Nothing here retries.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from stationmaster import clock, redact
from stationmaster.command import assert_outside
from stationmaster.errors import Denied, NotFound, Stale, StationmasterError, Unavailable
from stationmaster.gitea import codes
from stationmaster.gitea.wire import (
    Branch,
    Comment,
    CommentRow,
    Created,
    Issue,
    Permission,
    Pull,
    PullFile,
    Repository,
    Review,
    ReviewComment,
    User,
)

T = TypeVar("T")

_PAGE = 50
_MOST_PAGES = 200
_REDIRECTS = frozenset({301, 307, 308})
_FIRST_ERROR = 400
_FIRST_SERVER_ERROR = 500
# A 4xx that a proxy sends when it gave up waiting: the forge may have acted all the same.
_UNSURE = frozenset({408, 425, 499})


@dataclass(frozen=True, slots=True)
class RepoRef:
    """A repository by its present name; `native_id` finds it again after a rename."""

    owner: str
    name: str
    native_id: int | None = None

    @property
    def path(self) -> str:
        """Returns the start of its API paths."""
        return f"/repos/{quote(self.owner, safe='')}/{quote(self.name, safe='')}"


@dataclass(frozen=True, slots=True)
class Done:
    """The forge says that it did it; `number` is a pull request's. Only a read-back proves it (GW-R-004)."""

    id: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The forge definitely did not do it."""

    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may or may not have happened: read back before anything else; `sent` is False when no byte left us."""

    reason: str
    sent: bool = True


Outcome = Done | Refused | Unknown


class Moved(Stale):
    """The repository has another owner or name now; nothing was read or written under the old one."""

    def __init__(self, owner: str, name: str, native_id: int) -> None:
        super().__init__(
            f"The repository is now {owner}/{name}.",
            code=codes.FORGE_MOVED,
            hint="Record the new name and try again.",
            repository_id=native_id,
        )
        self.owner = owner
        self.name = name
        self.native_id = native_id


@dataclass(frozen=True, slots=True)
class Text:
    """Text that may have been cut at the size limit."""

    text: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool = False


class _NoAnswer(Exception):
    """Says that no whole answer came; never reaches a caller."""

    def __init__(self, code: str, *, sent: bool) -> None:
        super().__init__(code)
        self.code = code
        self.sent = sent


class Forge:
    """One forge seen with one token; use it within one event loop and close it."""

    def __init__(
        self,
        base_url: str,
        token: redact.Secret,
        *,
        timeout_s: float = 30.0,
        max_bytes: int = 32 * 1024 * 1024,
        verify: ssl.SSLContext | bool = True,
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
            headers={"Accept": "application/json", "User-Agent": "stationmaster"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    # --- reads: a value, or NotFound, Denied, Unavailable, Moved ---

    async def get_version(self) -> str:
        """Returns the forge's version."""
        return str((await self._read("/version", dict[str, Any])).get("version", ""))

    async def get_user(self) -> User:
        """Returns whose token this is."""
        return await self._read("/user", User)

    async def get_repository(self, repo: RepoRef) -> Repository:
        """Returns a repository by name."""
        return await self._read(repo.path, Repository, repo=repo)

    async def get_repository_by_id(self, native_id: int) -> Repository:
        """Returns a repository by the id that survives renames."""
        return await self._read(f"/repositories/{native_id}", Repository)

    async def get_issue(self, repo: RepoRef, number: int) -> Issue:
        """Returns an issue, or a pull request seen as one."""
        return await self._read(f"{repo.path}/issues/{number}", Issue, repo=repo)

    async def get_pull(self, repo: RepoRef, number: int) -> Pull:
        """Returns a pull request."""
        return await self._read(f"{repo.path}/pulls/{number}", Pull, repo=repo)

    async def get_branch(self, repo: RepoRef, branch: str) -> Branch:
        """Returns a branch with its tip."""
        return await self._read(f"{repo.path}/branches/{quote(branch, safe='/')}", Branch, repo=repo)

    async def get_comment(self, repo: RepoRef, comment_id: int) -> Comment:
        """Returns one plain comment; NotFound also for a code comment, which the forge does not hand out."""
        path = f"{repo.path}/issues/comments/{comment_id}"
        return _comment(await self._read(path, CommentRow, repo=repo), path)

    async def list_issue_comments(self, repo: RepoRef, number: int, *, since: int | None = None) -> list[Comment]:
        """Returns all plain comments changed at or after `since` (microseconds): the complete list or an error."""
        # The forge compares whole seconds and includes the bound.
        params = {} if since is None else {"since": clock.iso(since - since % clock.MICROS)}
        path = f"{repo.path}/issues/{number}/comments"
        return [_comment(row, path) for row in await self._list(path, CommentRow, repo, params, paged=False)]

    async def permission(self, repo: RepoRef, login: str) -> str:
        """Returns none, read, write, admin or owner; Denied when the bot may not know (it must administer the repo)."""
        path = f"{repo.path}/collaborators/{quote(login, safe='')}/permission"
        return (await self._read(path, Permission, repo=repo)).permission

    async def list_pulls(self, repo: RepoRef, *, head: str | None = None, state: str = "open") -> list[Pull]:
        """Returns the pull requests in `state`; with `head`, those from that branch of this same repository."""
        rows = await self._list(f"{repo.path}/pulls", Pull, repo, {"state": state, "sort": "oldest"})
        if head is None:
            return rows
        return [row for row in rows if row.head.ref == head and row.head.repo_id == row.base.repo_id]

    async def list_pull_files(self, repo: RepoRef, number: int) -> list[PullFile]:
        """Returns the files a pull request changes."""
        return await self._list(f"{repo.path}/pulls/{number}/files", PullFile, repo, {})

    async def list_reviews(self, repo: RepoRef, number: int) -> list[Review]:
        """Returns the reviews of a pull request."""
        return await self._list(f"{repo.path}/pulls/{number}/reviews", Review, repo, {})

    async def list_review_comments(self, repo: RepoRef, number: int, review_id: int) -> list[ReviewComment]:
        """Returns the code comments of one review."""
        path = f"{repo.path}/pulls/{number}/reviews/{review_id}/comments"
        return await self._list(path, ReviewComment, repo, {}, paged=False)

    async def get_diff(self, repo: RepoRef, number: int, *, max_bytes: int = 512 * 1024) -> Text:
        """Returns a pull request's diff, cut at `max_bytes`."""
        path = f"{repo.path}/pulls/{number}.diff"
        answer = await self._ask("GET", path, limit=max_bytes, cut=True)
        await self._check(answer, path, repo)
        return Text(answer.body.decode("utf-8", "replace"), answer.truncated)

    # --- writes: Done, Refused or Unknown; Moved when the name was old and nothing was written ---

    async def create_comment(self, repo: RepoRef, number: int, body: str) -> Outcome:
        """Posts a comment on an issue or pull request."""
        return await self._write("POST", f"{repo.path}/issues/{number}/comments", {"body": body}, repo)

    async def edit_comment(self, repo: RepoRef, comment_id: int, body: str) -> Outcome:
        """Replaces a comment's text."""
        return await self._write("PATCH", f"{repo.path}/issues/comments/{comment_id}", {"body": body}, repo)

    async def create_pull(self, repo: RepoRef, *, title: str, body: str, head: str, base: str) -> Outcome:
        """Opens a pull request between two branches of one repository."""
        content = {"title": title, "body": body, "head": head, "base": base}
        return await self._write("POST", f"{repo.path}/pulls", content, repo)

    # --- how ---

    async def _write(self, method: str, path: str, content: Mapping[str, Any], repo: RepoRef) -> Outcome:
        try:
            answer = await self._ask(method, path, content=content)
        except _NoAnswer as none:
            return Unknown(none.code, sent=none.sent)
        status = answer.status
        if status in _REDIRECTS:
            raise await self._moved(repo)
        if _FIRST_ERROR <= status < _FIRST_SERVER_ERROR and status not in _UNSURE:
            return Refused(status, _code_of(status), _words(answer))
        if status not in (200, 201):
            return Unknown(codes.FORGE_ERROR)
        try:
            created = msgspec.json.decode(answer.body, type=Created)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return Unknown(codes.FORGE_BAD_ANSWER)
        return Done(created.id, created.number)

    async def _read(self, path: str, kind: type[T], *, repo: RepoRef | None = None) -> T:
        answer = await self._asked(path)
        await self._check(answer, path, repo)
        return _decode(answer, kind, path)

    async def _list(
        self, path: str, kind: type[T], repo: RepoRef, params: Mapping[str, str], *, paged: bool = True
    ) -> list[T]:
        """Reads a whole list; a list shorter than the forge's own count is an error, never an answer (GW-R-167)."""
        rows: list[T] = []
        async for answer in self._pages(path, params, paged=paged):
            await self._check(answer, path, repo)
            rows += _decode(answer, list[kind], path)  # type: ignore[valid-type]
            if not answer.headers.get("link", "").count('rel="next"'):
                total = answer.headers.get("x-total-count", "")
                if total.isdecimal() and len(rows) < int(total):
                    raise _unavailable(codes.FORGE_PARTIAL, path)
                return rows
        raise _unavailable(codes.FORGE_TOO_LARGE, path)

    async def _pages(self, path: str, params: Mapping[str, str], *, paged: bool) -> AsyncIterator[_Answer]:
        for page in range(1, _MOST_PAGES + 1):
            # Some lists have no pages today; the first question is then asked plainly, in case they get some.
            at = {"page": str(page), "limit": str(_PAGE)} if paged or page > 1 else {}
            yield await self._asked(path, {**params, **at})

    async def _asked(self, path: str, params: Mapping[str, str] | None = None) -> _Answer:
        try:
            return await self._ask("GET", path, params=params)
        except _NoAnswer as none:
            raise _unavailable(none.code, path) from none

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: Mapping[str, Any] | None = None,
        limit: int | None = None,
        cut: bool = False,
    ) -> _Answer:
        """Makes one request within the time and size limits; raises _NoAnswer when there is no whole answer."""
        assert_outside("a request to the forge")
        headers = {"Authorization": f"token {self._token.reveal().strip()}"}
        data = None
        if content is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(content)
        request = self._http.build_request(method, self._api + path, params=params, headers=headers, content=data)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._http.send(request, stream=True)
                try:
                    body, more = await _bounded(response, limit or self._max_bytes)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _NoAnswer(codes.FORGE_UNREACHABLE, sent=False) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _NoAnswer(codes.FORGE_TIMEOUT, sent=True) from error
        except httpx.HTTPError as error:
            raise _NoAnswer(codes.FORGE_UNREACHABLE, sent=True) from error
        if more and not cut:
            raise _NoAnswer(codes.FORGE_TOO_LARGE, sent=True)
        return _Answer(response.status_code, response.headers, body, more)

    async def _check(self, answer: _Answer, path: str, repo: RepoRef | None) -> None:
        status = answer.status
        if status == 200:  # noqa: PLR2004 - the one status of a read
            return
        if status in _REDIRECTS and repo is not None:
            raise await self._moved(repo)
        if status == 204:  # noqa: PLR2004 - the forge's answer for a comment that is not a plain one
            raise NotFound("The forge does not hand out this comment.", code=codes.FORGE_NOT_PLAIN_COMMENT)
        raise _refusal(status, _words(answer), path)

    async def _moved(self, repo: RepoRef) -> Moved | Unavailable:
        if repo.native_id is None:
            return Unavailable(
                f"The repository {repo.owner}/{repo.name} was renamed and its id is not known.",
                code=codes.FORGE_MOVED,
                hint="Ask for it again by its new name.",
            )
        now = await self.get_repository_by_id(repo.native_id)
        if (now.owner.name, now.name) == (repo.owner, repo.name):
            # The redirect had another cause, such as a proxy that wants https: no new name would help.
            return Unavailable(
                "The forge redirects its own API.", code=codes.FORGE_ERROR, hint="Set gitea.base_url to its address."
            )
        return Moved(now.owner.name, now.name, repo.native_id)


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


def _decode(answer: _Answer, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _unavailable(codes.FORGE_BAD_ANSWER, path) from error


def _comment(row: CommentRow, path: str) -> Comment:
    try:
        return row.comment()
    except (ValueError, OverflowError) as error:
        raise _unavailable(codes.FORGE_BAD_ANSWER, path) from error


def _code_of(status: int) -> str:
    known = {
        401: codes.FORGE_AUTH,
        403: codes.FORGE_DENIED,
        404: codes.FORGE_NOT_FOUND,
        409: codes.FORGE_CONFLICT,
        423: codes.FORGE_LOCKED,
        429: codes.FORGE_RATE_LIMITED,
    }
    return known.get(status, codes.FORGE_INVALID)


def _refusal(status: int, words: str, path: str) -> StationmasterError:
    said = f": {words}" if words else ""
    where = f"(GET {path}, status {status})"
    code = _code_of(status)
    if status in (401, 403):
        hint = "Check the bot's token and its scopes." if status == 401 else ""  # noqa: PLR2004
        return Denied(f"The forge refuses the bot{said} {where}.", code=code, hint=hint)
    if status in (404, 410):
        return NotFound(f"The forge does not show this to the bot{said} {where}.", code=codes.FORGE_NOT_FOUND)
    if code == codes.FORGE_RATE_LIMITED:
        return Unavailable(f"The forge asks to slow down {where}.", code=code)
    return Unavailable(f"The forge did not answer the question{said} {where}.", code=codes.FORGE_ERROR)


def _unavailable(code: str, path: str) -> Unavailable:
    sentence = codes.text(code)
    return Unavailable(f"{sentence[0].upper()}{sentence[1:]} (GET {path}).", code=code)


def _words(answer: _Answer) -> str:
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


def explain(error: StationmasterError) -> str:
    """Returns an error's code if it is registered here, else the internal one; for rows and receipts."""
    return error.code if codes.known(error.code) else codes.INTERNAL_ERROR
