"""Turns one verified delivery into a `Normalised` comment, or says why it starts nothing; pure, and never raises.

Nothing in a payload is trusted beyond its signature: shapes are checked, names and hosts are held against rules, and
text stays data. The raw payload is not kept (GW-R-029).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from stationmaster import clock
from stationmaster.clock import MICROS
from stationmaster.gitea import closed_event, codes, payload, signature, triggers
from stationmaster.gitea.closed_event import Closed
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.triggers import TRIGGERS, Origin, Trigger, Unasked, ask

ISSUE: Final = "issue"
PULL: Final = "pull_request"
ISSUE_COMMENT: Final = "issue_comment"
PULL_COMMENT: Final = "pull_request_comment"

GHOST: Final = -1
_COMMENT_ROUTES = frozenset({ISSUE_COMMENT, PULL_COMMENT})
_REVIEW_WORDS = ("_review", "pull_request_approved", "pull_request_rejected")
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}", re.ASCII)
_LOGIN = re.compile(r"[^\s\x00-\x1f\x7f/\\@<>`]{1,255}")
_DELIVERY_ID = re.compile(r"[\x21-\x7e]{1,200}")
_PORTS = {"http": 80, "https": 443}


class Rules(msgspec.Struct, frozen=True):
    """What a delivery is held against: the configured forge and the bot.

    `hosts` are `host:port` of the forge's own addresses (see `host_of`); `bot_id` is None until the forge told it;
    `started_by` is what may start something, whether a delivery brings it or a reading.
    """

    hosts: frozenset[str]
    bot_login: str
    bot_id: int | None = None
    instance_id: str = "default"
    started_by: frozenset[Trigger] = TRIGGERS

    def starts(self, origin: Origin, *, edited: bool = False) -> bool:
        """Tells whether words of this kind may start something here."""
        return triggers.OF[origin] in self.started_by and (not edited or "edit" in self.started_by)


class Repo(msgspec.Struct, frozen=True, rename="camel"):
    """The repository; `id` is the forge's own number and stays the same through renames."""

    id: int
    owner: str
    name: str
    clone_url: str
    default_branch: str
    private: bool


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """The issue or pull request."""

    kind: str
    number: int
    title: str
    html_url: str


class Comment(msgspec.Struct, frozen=True, rename="camel"):
    """The comment; times are microseconds."""

    id: int
    body: str
    created_at: int
    updated_at: int
    html_url: str
    author_id: int
    author_login: str


class Actor(msgspec.Struct, frozen=True, rename="camel"):
    """Who caused the event: the sender."""

    id: int
    login: str
    is_bot: bool


class Refs(msgspec.Struct, frozen=True, rename="camel"):
    """The two sides of a pull request; `head_repo_id` is -1 when the head's repository is gone."""

    base: str
    base_sha: str
    head: str
    head_sha: str
    head_repo_id: int
    head_repo: str


class Normalised(msgspec.Struct, frozen=True, rename="camel"):
    """A comment that asks something of the bot (GW-R-051).

    `origin`, `comment.id` and `version` name what was written, for ever: `comment.id` is the forge's number of the
    comment, or of whatever else of `origin` the words stand in; `version` is 0 for its first wording.
    """

    instance_id: str
    delivery_id: str
    event_type: str
    route: str
    repo: Repo
    resource: Resource
    comment: Comment
    actor: Actor
    refs: Refs | None
    permissions: Permissions | None
    instruction: str
    origin: Origin = "comment"
    version: int = 0

    @property
    def delivery_key(self) -> str:
        """Returns the key of GW-R-015."""
        return delivery_key(self.instance_id, self.delivery_id)

    @property
    def task_id(self) -> str:
        """Returns the id this delivery's task has, whoever computes it (GW-R-016)."""
        return task_id(self.delivery_key)

    @property
    def repo_key(self) -> str:
        """Returns the key of GW-R-012."""
        return repo_key(self.instance_id, self.repo.owner, self.repo.name)

    @property
    def resource_key(self) -> str:
        """Returns the key of GW-R-013, which is also the session's (GW-R-014)."""
        return f"{self.repo_key}:{self.resource.kind}:{self.resource.number}"


class Ignored(msgspec.Struct, frozen=True):
    """A valid delivery that starts nothing; `reason` is a registered code (GW-R-054)."""

    reason: str
    delivery_id: str
    event_type: str
    actor: str = ""
    repo_key: str = ""


class Rejected(msgspec.Struct, frozen=True):
    """A delivery that cannot be used; without `delivery_id` there is no row to write (GW-R-064)."""

    code: str
    message: str
    delivery_id: str = ""
    event_type: str = ""


class Unread(msgspec.Struct, frozen=True):
    """A delivery that says where something was written and too little of what: it has to be read at the forge."""

    instance_id: str
    delivery_id: str
    event_type: str
    repo: Repo
    kind: Literal["issue", "pull_request"]
    number: int
    actor: str
    # Its text was changed: it may be older than what is read otherwise.
    edited: bool = False

    @property
    def repo_key(self) -> str:
        """Returns the key of GW-R-012."""
        return repo_key(self.instance_id, self.repo.owner, self.repo.name)


Outcome = Normalised | Closed | Unread | Ignored | Rejected


def delivery_key(instance_id: str, delivery_id: str) -> str:
    """Makes the key under which a delivery is known once and for all."""
    return f"{instance_id}:{delivery_id}"


def task_id(key: str) -> str:
    """Derives a task's id from its delivery key (GW-R-016)."""
    return f"gitea-task-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def repo_key(instance_id: str, owner: str, name: str) -> str:
    """Makes a repository's key; names differ only by case never on the forge (GW-R-012)."""
    return f"{instance_id}:{owner.lower()}/{name.lower()}"


def valid_name(name: str) -> bool:
    """Tells whether an owner or repository name is safe as a path component and argument (GW-R-033)."""
    return _NAME.fullmatch(name) is not None and name != "." and ".." not in name


def host_of(url: str) -> str | None:
    """Returns `host:port` of an http or https address, lower-case and with the default port; None for any other."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return f"{parts.hostname}:{port}" if parts.hostname else None


def header_delivery_id(headers: Mapping[str, str]) -> str:
    """Returns the sender's delivery id; empty when there is none that can be used."""
    return _delivery_id(signature.lowered(headers))


def normalise(headers: Mapping[str, str], body: bytes, rules: Rules) -> Outcome:
    """Reads the signed JSON bytes of a delivery; every input gives one of the outcomes."""
    have = signature.lowered(headers)
    route = _header(have, "event-type") or _header(have, "event")
    sent_id = _delivery_id(have)
    if route and route not in _COMMENT_ROUTES:
        closed = closed_event.read(route, sent_id, body, rules.instance_id)
        return closed or _unread_event(route, sent_id, body, rules) or _other_event(route, sent_id, body)
    try:
        return _from_payload(_decoder.decode(body), route, sent_id, rules)
    except msgspec.ValidationError as error:
        return Rejected(codes.INVALID_PAYLOAD, f"The payload has an unexpected form: {error}.", sent_id, route)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Rejected(codes.INVALID_PAYLOAD, "The payload is not JSON.", sent_id, route)
    except Unusable as problem:
        return Rejected(problem.code, problem.message, sent_id, route)


_decoder = msgspec.json.Decoder(payload.Payload)
_shallow = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Unusable(Exception):
    """Ends the reading of one payload, or of one thing found at the forge; never leaves those who read."""

    def __init__(self, message: str, code: str = codes.INVALID_PAYLOAD) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


_FAMILIES = ("gitea", "forgejo", "gogs")


def _header(have: Mapping[str, str], name: str) -> str:
    return next((have[full] for family in _FAMILIES if have.get(full := f"x-{family}-{name}")), "")


def _delivery_id(have: Mapping[str, str]) -> str:
    sent = _header(have, "delivery")
    return sent if _DELIVERY_ID.fullmatch(sent) else ""


def _is_review(event: str) -> bool:
    return any(word in event for word in _REVIEW_WORDS)


def _unread_event(route: str, sent_id: str, body: bytes, rules: Rules) -> Unread | Ignored | None:
    if not sent_id or not (route in closed_event.ROUTES or _is_review(route)):
        return None
    try:
        return _unread(_decoder.decode(body), route, sent_id, rules)
    except (msgspec.DecodeError, UnicodeError, RecursionError, Unusable):
        return None


def _unread(read: payload.Payload, route: str, sent_id: str, rules: Rules) -> Unread | Ignored | None:
    """Returns what has to be read: a review, or an issue or pull request whose text mentions the bot from now on.

    A review's event has no number of its own and none of its remarks on code; the text of an issue or pull request has
    to be known by the number that readings know it by.
    """
    pull, issue, repository, sender = read.pull_request, read.issue, read.repository, read.sender
    about = pull or issue
    if about is None or repository is None or sender is None or not _has_something(read, about.body, rules):
        return None
    login = login_of(sender)
    repo = repo_of(repository, rules)
    if is_bot(sender, rules):
        code = codes.BOT_SELF_COMMENT if is_ours(sender.id, login, rules) else codes.BOT_COMMENT
        return Ignored(code, sent_id, route, login, repo_key(rules.instance_id, repo.owner, repo.name))
    plain = pull is None and issue is not None and issue.pull_request is None
    edited = read.action == "edited" and read.review is None
    return Unread(rules.instance_id, sent_id, route, repo, ISSUE if plain else PULL, about.number, login, edited)


def _has_something(read: payload.Payload, text: str | None, rules: Rules) -> bool:
    if read.pull_request is not None and read.review is not None:
        return rules.starts("review") or rules.starts("code_comment")
    edit = triggers.edit_of_a_text(read, rules.bot_login)
    if not (edit or read.action == "opened"):
        return False
    origin: Origin = "issue" if read.pull_request is None else "pull"
    asked = isinstance(ask(text_of(text or ""), rules.bot_login), str)
    return asked and rules.starts(origin, edited=edit)


def _other_event(route: str, sent_id: str, body: bytes) -> Outcome:
    """Answers an event that is no comment, by its header; its shape is only asked to be JSON."""
    event = route if _DELIVERY_ID.fullmatch(route) else "unknown"
    try:
        fields = _shallow.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Rejected(codes.INVALID_PAYLOAD, "The payload is not JSON.", sent_id, event)
    if not sent_id:
        return Rejected(codes.INVALID_PAYLOAD, "The delivery has no id.", "", event)
    if event == "push":
        # A test delivery is a push of nothing: the same commit before and after.
        before, after = fields.get("before"), fields.get("after")
        nothing = before is not None and after is not None and bytes(before) == bytes(after)
        reason = codes.TEST_DELIVERY if nothing else codes.NOT_A_COMMENT
    elif _is_review(event):
        reason = codes.REVIEW_EVENT
    else:
        reason = codes.NOT_A_COMMENT
    return Ignored(reason, sent_id, event)


def _from_payload(read: payload.Payload, route: str, sent_id: str, rules: Rules) -> Outcome:
    # `pull_request_comment` names a comment in one header and a review in the other: the shape decides (GW-R-050).
    if read.comment is None:
        if route in _COMMENT_ROUTES and read.review is None:
            raise Unusable("The payload has no comment.")
        if not sent_id:
            raise Unusable("The delivery has no id.")
        event = route or "unknown"
        reason = codes.NOT_A_COMMENT if read.review is None else codes.REVIEW_EVENT
        return _unread(read, event, sent_id, rules) or Ignored(reason, sent_id, event)
    comment, issue, repository, sender = read.comment, read.issue, read.repository, read.sender
    if issue is None or repository is None or sender is None or read.action is None:
        missing = next(name for name in ("issue", "repository", "sender", "action") if getattr(read, name) is None)
        raise Unusable(f"The payload has no {missing}.")
    repo = repo_of(repository, rules)
    is_pull = bool(read.is_pull) or issue.pull_request is not None or read.pull_request is not None
    if read.pull_request is not None and read.pull_request.number != issue.number:
        raise Unusable("The payload names two different pull requests.")
    event_type = PULL_COMMENT if is_pull else ISSUE_COMMENT
    delivery = sent_id or _fallback_id(event_type, repo, comment.id, read.action)
    actor = Actor(sender.id, login_of(sender), is_bot(sender, rules))
    author = comment.user
    key = repo_key(rules.instance_id, repo.owner, repo.name)
    edit = triggers.edit_of_a_comment(read, rules.bot_login)
    reason = _reason("created" if edit else read.action, comment, actor, rules)
    if reason:
        return Ignored(reason, delivery, event_type, actor.login, key)
    if not rules.starts("comment", edited=edit):
        return Ignored(codes.TRIGGER_OFF, delivery, event_type, actor.login, key)
    asked = ask(text_of(comment.body), rules.bot_login)
    if isinstance(asked, Unasked):
        return Ignored(asked.reason, delivery, event_type, actor.login, key)
    return Normalised(
        instance_id=rules.instance_id,
        delivery_id=delivery,
        event_type=event_type,
        route=route,
        repo=repo,
        resource=Resource(
            PULL if is_pull else ISSUE, issue.number, text_of(issue.title or ""), text_of(issue.html_url or "")
        ),
        comment=Comment(
            id=comment.id,
            body=text_of(comment.body),
            created_at=_time(comment.created_at),
            updated_at=_time(comment.updated_at or comment.created_at),
            html_url=text_of(comment.html_url or ""),
            author_id=author.id if author else sender.id,
            author_login=login_of(author) if author else actor.login,
        ),
        actor=actor,
        refs=refs_of(read.pull_request),
        permissions=repository.permissions,
        instruction=asked,
        # As a reading would number this wording.
        version=_time(comment.updated_at or comment.created_at) // MICROS if edit else 0,
    )


def _reason(action: str, comment: payload.Comment, actor: Actor, rules: Rules) -> str:
    """Returns why a comment event starts nothing whatever its words, or nothing (GW-R-054, GW-R-056, GW-R-058)."""
    people = [(actor.id, actor.login)]
    if comment.user is not None:
        people.append((comment.user.id, comment.user.name))
    if any(is_ours(number, login, rules) for number, login in people):
        return codes.BOT_SELF_COMMENT
    # Old servers announce edits of remarks in a review that its author has not submitted; nobody else may see those.
    if "/files#" in (comment.html_url or ""):
        return codes.DRAFT_REVIEW_COMMENT
    by_action = {"created": "", "edited": codes.COMMENT_EDITED, "deleted": codes.COMMENT_DELETED}
    reason = by_action.get(action, codes.ACTION_NOT_CREATED)
    if reason:
        return reason
    if actor.id == GHOST or any(number == GHOST for number, _ in people):
        return codes.AUTHOR_UNKNOWN
    if actor.is_bot or (comment.user is not None and is_bot(comment.user, rules)):
        return codes.BOT_COMMENT
    return ""


def is_ours(number: int, login: str, rules: Rules) -> bool:
    """Tells whether this is the bot itself."""
    return number == rules.bot_id or login.lower() == rules.bot_login.lower()


def is_bot(user: payload.User, rules: Rules) -> bool:
    """Tells whether this is the bot itself or another program."""
    # The forge's own users (Actions) have negative numbers; newer servers name the type of every user.
    declared = isinstance(user.type, str) and user.type.lower() == "bot"
    return declared or user.id < GHOST or is_ours(user.id, user.name, rules)


def login_of(user: payload.User) -> str:
    """Returns a login that can be used anywhere; raises Unusable for any other."""
    if not _LOGIN.fullmatch(user.name):
        raise Unusable("The payload names a user without a usable login.")
    return user.name


def repo_of(repository: payload.Repository, rules: Rules) -> Repo:
    """Returns a repository whose names and address are safe and on our forge; raises Unusable for any other."""
    owner = repository.owner.name
    if not (valid_name(owner) and valid_name(repository.name)):
        raise Unusable("The payload names a repository whose owner or name is not allowed.")
    return Repo(
        id=repository.id,
        owner=owner,
        name=repository.name,
        clone_url=_clone_url(repository.clone_url, rules),
        default_branch=text_of(repository.default_branch or ""),
        private=bool(repository.private),
    )


def _clone_url(url: str, rules: Rules) -> str:
    """Returns the address without user and password (GW-R-032); refuses another host than ours (GW-R-235)."""
    if not url.isprintable() or " " in url:
        raise Unusable("The payload's clone_url is not an address.")
    host = host_of(url)
    if host is None or host not in rules.hosts:
        raise Unusable("The payload's clone_url is not on the configured forge.", codes.FOREIGN_HOST)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path}"


def _fallback_id(event_type: str, repo: Repo, comment_id: int, action: str) -> str:
    # GW-R-015: without the sender's id the comment and what happened to it name the delivery.
    if not _DELIVERY_ID.fullmatch(action):
        raise Unusable("The delivery has no id.")
    return f"payload:{event_type}:{repo.owner}/{repo.name}:{comment_id}:{action}"


def refs_of(pull: payload.Pull | None) -> Refs | None:
    """Returns the two sides of a pull request, when they are told."""
    if pull is None or pull.base is None or pull.head is None:
        return None
    base, head = pull.base, pull.head
    return Refs(
        base=text_of(base.ref),
        base_sha=text_of(base.sha),
        head=text_of(head.ref),
        head_sha=text_of(head.sha),
        head_repo_id=head.repo_id if head.repo is not None else -1,
        head_repo=text_of(head.repo.full_name) if head.repo is not None else "",
    )


def _time(text: str) -> int:
    try:
        return clock.from_iso(text)
    except (ValueError, OverflowError) as error:
        raise Unusable("The payload's comment has no usable time.") from error


def text_of(text: str) -> str:
    """Returns a text that every database can hold."""
    # PostgreSQL cannot hold U+0000 in text; no forge shows it either.
    return text.replace("\x00", "\ufffd")
