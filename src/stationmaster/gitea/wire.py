"""What the forge's REST answers look like, as far as they are read; unknown fields are passed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from stationmaster import clock

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
GHOST = -1


class User(msgspec.Struct, frozen=True):
    """A user; `login` and `username` are the same name, and only newer servers say the `type`."""

    id: Int64
    login: str = ""
    username: str = ""
    is_admin: bool = False
    type: Any = None

    @property
    def name(self) -> str:
        """Returns the login."""
        return self.login or self.username


NOBODY = User(GHOST, "Ghost")


class Permissions(msgspec.Struct, frozen=True):
    """What the token's user may do in a repository."""

    admin: bool = False
    push: bool = False
    pull: bool = False


class Repository(msgspec.Struct, frozen=True):
    """A repository."""

    id: Int64
    owner: User
    name: str
    clone_url: str = ""
    default_branch: str = ""
    private: bool = False
    archived: bool = False
    empty: bool = False
    has_pull_requests: bool = True
    permissions: Permissions | None = None


class Label(msgspec.Struct, frozen=True):
    """A label."""

    name: str = ""


class Issue(msgspec.Struct, frozen=True):
    """An issue or pull request; `id` is the issue's own number at the forge, also for a pull request."""

    number: Int64
    id: Int64 = 0
    title: str = ""
    body: str | None = None
    state: str = ""
    is_locked: bool = False
    user: User | None = None
    labels: list[Label] | None = None
    comments: int = 0
    created_at: str = ""
    updated_at: str = ""
    closed_at: str | None = None
    html_url: str = ""
    pull_request: dict[str, msgspec.Raw] | None = None

    @property
    def is_pull(self) -> bool:
        """Tells whether this is a pull request."""
        return self.pull_request is not None


class HeadRepo(msgspec.Struct, frozen=True):
    """The repository of one side of a pull request."""

    full_name: str = ""
    clone_url: str = ""


class Side(msgspec.Struct, frozen=True):
    """One side of a pull request; `repo` is None when a fork is gone."""

    ref: str = ""
    sha: str = ""
    repo_id: Int64 = -1
    repo: HeadRepo | None = None


class Pull(msgspec.Struct, frozen=True):
    """A pull request; its `id` is another than that of the issue behind it."""

    number: Int64
    base: Side
    head: Side
    id: Int64 = 0
    title: str = ""
    body: str | None = None
    state: str = ""
    merged: bool = False
    draft: bool = False
    user: User | None = None
    html_url: str = ""


class PullFile(msgspec.Struct, frozen=True):
    """A file that a pull request changes."""

    filename: str = ""
    status: str = ""
    additions: int = 0
    deletions: int = 0


class Review(msgspec.Struct, frozen=True):
    """A review."""

    id: Int64
    user: User | None = None
    body: str | None = None
    state: str = ""
    submitted_at: str | None = None
    updated_at: str | None = None
    dismissed: bool = False
    comments_count: int | None = None
    html_url: str = ""


class ReviewComment(msgspec.Struct, frozen=True):
    """A comment on a line of code."""

    id: Int64
    user: User | None = None
    body: str | None = None
    path: str = ""
    position: int | None = None
    diff_hunk: str | None = None
    created_at: str = ""
    updated_at: str = ""
    html_url: str = ""


class BranchCommit(msgspec.Struct, frozen=True):
    """The tip of a branch."""

    id: str = ""


class Branch(msgspec.Struct, frozen=True):
    """A branch."""

    name: str
    commit: BranchCommit
    protected: bool = False


class Permission(msgspec.Struct, frozen=True):
    """A person's permission in a repository."""

    permission: str


class Created(msgspec.Struct, frozen=True):
    """The part of a write's answer that is kept."""

    id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    number: Int64 | None = None


class CommentRow(msgspec.Struct, frozen=True):
    """A comment as the forge writes it."""

    id: Int64
    body: str | None
    created_at: str
    updated_at: str
    user: User | None = None
    html_url: str = ""
    issue_url: str = ""
    pull_request_url: str = ""

    def comment(self) -> Comment:
        """Returns the comment as it is used; raises ValueError for a time that is none."""
        user = self.user or NOBODY
        return Comment(
            id=self.id,
            body=self.body or "",
            author_id=user.id,
            author_login=user.name,
            created_at=clock.from_iso(self.created_at),
            updated_at=clock.from_iso(self.updated_at),
            html_url=self.html_url,
        )


@dataclass(frozen=True, slots=True)
class Comment:
    """A plain comment; times are microseconds."""

    id: int
    body: str
    author_id: int
    author_login: str
    created_at: int
    updated_at: int
    html_url: str
