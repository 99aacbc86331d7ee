"""Turns what was read at the forge into a `Normalised` question, by the same rules as a delivery.

Pure but for `complete`, which asks the forge for what a list does not say. What is read carries no signed event: whose
rights they are is unknown, so the permission check of `prepare` decides (the repository's own `permissions` are the
bot's).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stationmaster import clock
from stationmaster.clock import MICROS
from stationmaster.gitea import normalise, payload, triggers, wire
from stationmaster.gitea.client import Forge, RepoRef
from stationmaster.gitea.closed_event import Closed
from stationmaster.gitea.normalise import Normalised, Repo, Rules, Unusable, text_of
from stationmaster.gitea.triggers import Origin

ROUTE = "read"
PENDING = "PENDING"

# A comment names its issue by its page only.
_PLACE = re.compile(r"/(?:issues|pulls)/([1-9][0-9]{0,17})$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Words:
    """What somebody wrote: where it stands, when it was written, and when it was changed last, in microseconds.

    `native_id` of a pull request is the issue's number until `complete` has asked for its own.
    """

    origin: Origin
    native_id: int
    number: int
    body: str
    author: payload.User
    created_at: int
    updated_at: int
    html_url: str
    version: int = 0


def of_comment(row: wire.CommentRow) -> Words:
    """Reads a plain comment; raises Unusable for one that cannot be placed."""
    place = _PLACE.search(row.pull_request_url or row.issue_url)
    if place is None:
        raise Unusable("The comment does not say where it stands.")
    return _words("comment", row.id, int(place[1]), row.body, row.user, (row.created_at, row.updated_at), row.html_url)


def of_issue(row: wire.Issue) -> Words:
    """Reads the text of an issue or pull request, which does not tell when it was changed: any remark changes it."""
    origin: Origin = "pull" if row.is_pull else "issue"
    return _words(origin, row.id, row.number, row.body, row.user, (row.created_at, row.created_at), row.html_url)


def of_review(row: wire.Review, number: int) -> Words | None:
    """Reads what a review says as a whole; None for one that is not submitted yet, or was dismissed.

    A review that was begun as a draft carries the time of its beginning, and was changed when it was submitted.
    """
    if row.state.upper() == PENDING or row.dismissed or not row.submitted_at:
        return None
    since = max(row.submitted_at, row.updated_at or row.submitted_at, key=_time)
    return _words("review", row.id, number, row.body, row.user, (since, since), row.html_url)


def of_remark(row: wire.ReviewComment, number: int, review: Words) -> Words:
    """Reads a remark on a line of code, or an answer to one; it is said when its review is, or later."""
    said = _words(
        "code_comment", row.id, number, row.body, row.user, (row.created_at, row.created_at), row.html_url or ""
    )
    at = max(said.created_at, review.created_at)
    return replace(said, created_at=at, updated_at=max(at, said.updated_at))


def closed(row: wire.Issue, native_id: int, instance_id: str) -> Closed | None:
    """Reads that an issue or pull request of a repository is closed, or merged; None while it is open."""
    if row.state != "closed" or not row.closed_at:
        return None
    kind = normalise.PULL if row.is_pull else normalise.ISSUE
    return Closed(instance_id, f"{ROUTE}:closed:{row.id}", ROUTE, native_id, kind, row.number, _time(row.closed_at))


def edited(words: Words) -> Words:
    """Gives words that were changed after they were written the version that their change's event has."""
    return replace(words, version=words.updated_at // MICROS) if words.updated_at > words.created_at else words


def asks(words: Words, rules: Rules) -> str | None:
    """Returns what somebody asks of the bot, or None: nothing, or nobody who may start anything."""
    who = words.author
    # Remarks of a review that is not submitted stand on the page of its files.
    if who.id == normalise.GHOST or normalise.is_bot(who, rules) or "/files#" in words.html_url:
        return None
    if not rules.starts(words.origin, edited=words.version > 0):
        return None
    asked = triggers.ask(text_of(words.body), rules.bot_login)
    return asked if isinstance(asked, str) else None


def repo_of(seen: wire.Repository, rules: Rules) -> Repo:
    """Returns a repository as a delivery would name it; raises Unusable for one that cannot be used."""
    return normalise.repo_of(
        payload.Repository(
            id=seen.id,
            owner=payload.User(id=seen.owner.id, login=seen.owner.name),
            name=seen.name,
            clone_url=seen.clone_url,
            default_branch=seen.default_branch,
            private=seen.private,
        ),
        rules,
    )


async def complete(
    forge: Forge, ref: RepoRef, repo: Repo, words: Words, instruction: str, rules: Rules
) -> Normalised | None:
    """Returns the whole question; raises what a read raises.

    None when the words stand in an issue that is a pull request's, or the other way round: then they are no longer
    what the list said.
    """
    login = normalise.login_of(words.author)
    issue = await forge.get_issue(ref, words.number)
    pull = await forge.get_pull(ref, words.number) if issue.is_pull else None
    if pull is None and words.origin in {"pull", "review", "code_comment"}:
        return None
    native_id = pull.id if pull is not None and words.origin == "pull" else words.native_id
    event = normalise.PULL_COMMENT if pull is not None else normalise.ISSUE_COMMENT
    return Normalised(
        instance_id=rules.instance_id,
        delivery_id=f"{ROUTE}:{words.origin}:{native_id}:{words.version}",
        event_type=event if words.origin == "comment" else words.origin,
        route=ROUTE,
        repo=repo,
        resource=normalise.Resource(
            normalise.PULL if pull is not None else normalise.ISSUE,
            words.number,
            text_of(issue.title),
            text_of(issue.html_url),
        ),
        comment=normalise.Comment(
            id=native_id,
            body=text_of(words.body),
            created_at=words.created_at,
            updated_at=words.updated_at,
            html_url=text_of(words.html_url),
            author_id=words.author.id,
            author_login=login,
        ),
        actor=normalise.Actor(words.author.id, login, is_bot=False),
        refs=None if pull is None else normalise.refs_of(_sides(pull)),
        permissions=None,
        instruction=instruction,
        origin=words.origin,
        version=words.version,
    )


def _sides(pull: wire.Pull) -> payload.Pull:
    return payload.Pull(number=pull.number, base=_side(pull.base), head=_side(pull.head))


def _side(side: wire.Side) -> payload.Side:
    repo = None if side.repo is None else payload.HeadRepo(full_name=side.repo.full_name)
    return payload.Side(ref=side.ref, sha=side.sha, repo_id=side.repo_id, repo=repo)


def _words(
    origin: Origin,
    native_id: int,
    number: int,
    body: str | None,
    user: wire.User | None,
    times: tuple[str, str],
    html_url: str,
) -> Words:
    who = user or wire.NOBODY
    created, updated = (_time(text) for text in times)
    author = payload.User(id=who.id, login=who.login, username=who.username, type=who.type)
    return Words(origin, native_id, number, body or "", author, created, max(created, updated), html_url)


def _time(text: str) -> int:
    try:
        return clock.from_iso(text)
    except (ValueError, OverflowError) as error:
        raise Unusable("What was found has no usable time.") from error
