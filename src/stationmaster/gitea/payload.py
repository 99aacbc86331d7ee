"""What webhook payloads look like, as far as they are read: unknown fields are passed over, wrong types refused."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Permissions(msgspec.Struct, frozen=True):
    """What the sender of a comment may do in the repository, as the signed payload says."""

    admin: bool = False
    push: bool = False
    pull: bool = False


class User(msgspec.Struct, frozen=True):
    """A user; only newer servers say the `type`."""

    id: Int64
    login: str = ""
    username: str = ""
    type: Any = None

    @property
    def name(self) -> str:
        """Returns the login."""
        return self.login or self.username


class Repository(msgspec.Struct, frozen=True):
    """A repository; `permissions` are those of a comment's sender."""

    id: Id
    owner: User
    name: str
    clone_url: str
    default_branch: str | None = None
    private: bool | None = None
    permissions: Permissions | None = None


class Issue(msgspec.Struct, frozen=True):
    """An issue, or a pull request seen as one."""

    number: Id
    title: str | None = None
    body: str | None = None
    html_url: str | None = None
    pull_request: dict[str, msgspec.Raw] | None = None


class Comment(msgspec.Struct, frozen=True):
    """A comment."""

    id: Id
    body: str
    created_at: str
    updated_at: str | None = None
    html_url: str | None = None
    user: User | None = None


class Before(msgspec.Struct, frozen=True, rename={"text": "from"}):
    """What a text was before an edit."""

    text: str = ""


class Changes(msgspec.Struct, frozen=True):
    """What an edit changed; `body` is there only when the text was changed."""

    body: Before | None = None


class HeadRepo(msgspec.Struct, frozen=True):
    """The repository a pull request comes from."""

    full_name: str = ""


class Side(msgspec.Struct, frozen=True):
    """One side of a pull request; `repo` is null when a fork is gone."""

    ref: str = ""
    sha: str = ""
    repo_id: Int64 = -1
    repo: HeadRepo | None = None


class Pull(msgspec.Struct, frozen=True):
    """A pull request."""

    number: Id
    body: str | None = None
    base: Side | None = None
    head: Side | None = None


class Payload(msgspec.Struct, frozen=True):
    """The top of a payload; which parts are there depends on the event."""

    action: str | None = None
    comment: Comment | None = None
    review: dict[str, msgspec.Raw] | None = None
    issue: Issue | None = None
    pull_request: Pull | None = None
    is_pull: bool | None = None
    repository: Repository | None = None
    sender: User | None = None
    changes: Changes | None = None
