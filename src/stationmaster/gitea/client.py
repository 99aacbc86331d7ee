"""The forge's REST interface, thin and distrustful: what was read is complete, what was written is known or Unknown.

Redirects are never followed (a renamed repository would turn a write into a read), proxies of the environment are not
used, the token is read at each request and stays in its header. Nothing here retries.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec

from stationmaster import clock, redact
from stationmaster.errors import NotFound, Stale, StationmasterError, Unavailable
from stationmaster.gitea import codes
from stationmaster.gitea.transport import Answer, NoAnswer, Transport, code_of, refusal, unavailable, words
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
from stationmaster.measure import Taken

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


class TooMany(Exception):
    """Says that more rows were asked for than the caller takes at once; nothing of them was returned."""

    def __init__(self, total: int) -> None:
        super().__init__(f"{total} rows")
        self.total = total


@dataclass(frozen=True, slots=True)
class Text:
    """Text that may have been cut at the size limit."""

    text: str
    truncated: bool


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
        self._to = Transport(base_url, token, timeout_s=timeout_s, max_bytes=max_bytes, verify=verify)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        await self._to.close()

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
        answer = await self._to.ask("GET", path, limit=max_bytes, cut=True)
        await self._check(answer, path, repo)
        return Text(answer.body.decode("utf-8", "replace"), answer.truncated)

    # --- reads of what changed, for whoever was away ---

    @property
    def date(self) -> int | None:
        """The newest time that the forge said it was, in microseconds; None before its first answer."""
        return self._to.date

    @property
    def returns(self) -> int:
        """How often the forge answered again after it had not."""
        return self._to.returns

    @property
    def asked(self) -> dict[str, float]:
        """How often the forge was asked, by what came of it: a class of status, or the code of no answer."""
        return {outcome: count for (outcome,), count in self._to.asked.taken().items()}

    @property
    def seconds(self) -> Taken:
        """What its answers, or waiting for them, took."""
        return self._to.seconds.taken()

    async def list_repositories(self) -> list[Repository]:
        """Returns the repositories that the bot owns or is given: as a collaborator or through a team."""
        return await self._list("/user/repos", Repository, None, {})

    async def list_changed_comments(self, repo: RepoRef, since: int, before: int, *, most: int) -> list[CommentRow]:
        """Returns the plain comments of a repository changed within two times, both included; see `_span`."""
        return await self._span(f"{repo.path}/issues/comments", CommentRow, repo, {}, (since, before), most)

    async def list_changed_issues(self, repo: RepoRef, since: int, before: int, *, most: int) -> list[Issue]:
        """Returns the issues and pull requests changed within two times, both included; see `_span`."""
        return await self._span(f"{repo.path}/issues", Issue, repo, {"state": "all"}, (since, before), most)

    async def _span(
        self, path: str, kind: type[T], repo: RepoRef, params: Mapping[str, str], span: tuple[int, int], most: int
    ) -> list[T]:
        """Reads a whole span of time, or raises TooMany when it holds more rows than `most`.

        A span that is over can only lose rows, by a deletion or a later change. Then a page may have skipped one, which
        the forge's own count tells: that is an error, to be read again. One page is complete by itself.
        """
        # The forge compares whole seconds.
        since, before = (clock.iso(at - at % clock.MICROS) for at in span)
        params = {**params, "since": since, "before": before}
        answer = await self._page(path, params, 1, repo)
        total = _total(answer)
        if total is not None and total > most:
            raise TooMany(total)
        rows = _decode(answer, list[kind], path)  # type: ignore[valid-type]
        batch, page = rows, 1
        while len(rows) < total if total is not None else len(batch) >= _PAGE:
            page += 1
            answer = await self._page(path, params, page, repo)
            batch = _decode(answer, list[kind], path)  # type: ignore[valid-type]
            rows = [*rows, *batch]
            if _total(answer) != total or not batch:
                raise unavailable(codes.FORGE_PARTIAL, path)
            if total is None and len(rows) > most:
                raise TooMany(len(rows))
        return rows

    async def _page(self, path: str, params: Mapping[str, str], page: int, repo: RepoRef) -> Answer:
        answer = await self._asked(path, {**params, "page": str(page), "limit": str(_PAGE)})
        await self._check(answer, path, repo)
        return answer

    # --- writes: Done, Refused or Unknown; what is raised instead (Moved above all) means that nothing was written ---

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

    async def _write(self, method: str, path: str, content: Mapping[str, str], repo: RepoRef) -> Outcome:
        try:
            answer = await self._to.ask(method, path, content=content)
        except NoAnswer as none:
            return Unknown(none.code, sent=none.sent)
        status = answer.status
        if status in _REDIRECTS:
            raise await self._moved(repo)
        if _FIRST_ERROR <= status < _FIRST_SERVER_ERROR and status not in _UNSURE:
            return Refused(status, code_of(status), words(answer))
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
        self, path: str, kind: type[T], repo: RepoRef | None, params: Mapping[str, str], *, paged: bool = True
    ) -> list[T]:
        """Reads a whole list; a list shorter than the forge's own count is an error, never an answer (GW-R-167)."""
        rows: list[T] = []
        for page in range(1, _MOST_PAGES + 1):
            at = {"page": str(page), "limit": str(_PAGE)} if paged else {}
            answer = await self._asked(path, {**params, **at})
            await self._check(answer, path, repo)
            batch = _decode(answer, list[kind], path)  # type: ignore[valid-type]
            rows += batch
            more = 'rel="next"' in answer.headers.get("link", "")
            if more and not paged:
                # This list has no pages today; should it get some, it is read again from its first one.
                return await self._list(path, kind, repo, params)
            total = _total(answer)
            if more or (paged and total is None and len(batch) >= _PAGE):
                continue
            if total is not None and len(rows) < total:
                raise unavailable(codes.FORGE_PARTIAL, path)
            return rows
        raise unavailable(codes.FORGE_TOO_LARGE, path)

    async def _asked(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        try:
            return await self._to.ask("GET", path, params=params)
        except NoAnswer as none:
            raise unavailable(none.code, path) from none

    async def _check(self, answer: Answer, path: str, repo: RepoRef | None) -> None:
        status = answer.status
        if status == 200:  # noqa: PLR2004 - the one status of a read
            return
        if status in _REDIRECTS and repo is not None:
            raise await self._moved(repo)
        if status == 204:  # noqa: PLR2004 - the forge's answer for a comment that is not a plain one
            raise NotFound("The forge does not hand out this comment.", code=codes.FORGE_NOT_PLAIN_COMMENT)
        raise refusal(status, words(answer), path)

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


def _total(answer: Answer) -> int | None:
    count = answer.headers.get("x-total-count", "")
    return int(count) if count.isdecimal() else None


def _decode(answer: Answer, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise unavailable(codes.FORGE_BAD_ANSWER, path) from error


def _comment(row: CommentRow, path: str) -> Comment:
    try:
        return row.comment()
    except (ValueError, OverflowError) as error:
        raise unavailable(codes.FORGE_BAD_ANSWER, path) from error


def explain(error: StationmasterError) -> str:
    """Returns an error's code if it is registered here, else the internal one; for rows and receipts."""
    return error.code if codes.known(error.code) else codes.INTERNAL_ERROR
