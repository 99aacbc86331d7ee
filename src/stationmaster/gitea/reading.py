"""What the agent may read of its issue or pull request: by REST, this resource only, wrapped as untrusted data."""

from __future__ import annotations

from typing import Literal

from stationmaster.clock import iso
from stationmaster.errors import Invalid
from stationmaster.gitea import codes, texts
from stationmaster.gitea.client import Forge, RepoRef
from stationmaster.gitea.model import Session
from stationmaster.gitea.wire import Comment, Issue

Part = Literal["summary", "comments", "diff"]

_COMMENTS_A_PAGE = 20
_DIFF_A_PAGE = 24_000
_LONGEST_BODY = 24_000
_LONGEST_COMMENT = 6_000
_MOST_FILES = 200


async def read(forge: Forge, repo: RepoRef, session: Session, part: Part, page: int, key: str) -> str:
    """Returns one page of a part; raises Invalid for a part or page that is not there, and what a read raises."""
    if part == "summary":
        return await _summary(forge, repo, session, key)
    if part == "comments":
        return await _comments(forge, repo, session, page, key)
    if session.kind != "pull_request":
        raise Invalid("An issue has no diff.", code=codes.INVALID_REQUEST, hint="Read summary or comments.")
    diff = await forge.get_diff(repo, session.number)
    cut = ""
    if diff.truncated:
        page_of_it = (await forge.get_pull(repo, session.number)).html_url
        cut = f"\n(The forge's diff is longer than the host reads. All of it: {page_of_it}.diff)"
    return _paged("Diff", diff.text + cut, page, key)


async def _summary(forge: Forge, repo: RepoRef, session: Session, key: str) -> str:
    issue = await forge.get_issue(repo, session.number)
    lines = [_about(issue, session)]
    if session.kind == "pull_request":
        pull = await forge.get_pull(repo, session.number)
        lines.append(
            f"From {texts.word(pull.head.ref)} at {texts.word(pull.head.sha)} into {texts.word(pull.base.ref)} "
            f"at {texts.word(pull.base.sha)}; {'merged' if pull.merged else 'not merged'}."
        )
        files = await forge.list_pull_files(repo, session.number)
        listed = [f"{file.status} +{file.additions} -{file.deletions} {file.filename}" for file in files[:_MOST_FILES]]
        if len(files) > _MOST_FILES:
            listed.append(f"and {len(files) - _MOST_FILES} more")
        lines.append(texts.untrusted("Changed files", "\n".join(listed), key))
    lines.append(texts.untrusted("Title", issue.title, key))
    lines.append(texts.untrusted("Text", _cut(issue.body or "(empty)", _LONGEST_BODY), key))
    return "\n".join(lines)


def _about(issue: Issue, session: Session) -> str:
    what = session.kind.replace("_", " ").capitalize()
    author = texts.word(issue.user.name) if issue.user else "nobody"
    labels = ", ".join(texts.plain(label.name, 60) for label in issue.labels or ()) or "none"
    return f"{what} #{session.number}, {issue.state}, by {author}; labels: {labels}; comments: {issue.comments}."


async def _comments(forge: Forge, repo: RepoRef, session: Session, page: int, key: str) -> str:
    found = await forge.list_issue_comments(repo, session.number)
    pages = max(1, -(-len(found) // _COMMENTS_A_PAGE))
    _check_page(page, pages)
    shown = found[(page - 1) * _COMMENTS_A_PAGE : page * _COMMENTS_A_PAGE]
    head = f"Page {page} of {pages}, {len(found)} comments, oldest first."
    return "\n".join([head, *(_one(comment, key) for comment in shown)])


def _one(comment: Comment, key: str) -> str:
    title = f"Comment {comment.id} of {texts.word(comment.author_login)} at {iso(comment.created_at)}"
    return texts.untrusted(title, _cut(comment.body, _LONGEST_COMMENT), key)


def _paged(title: str, text: str, page: int, key: str) -> str:
    pages = max(1, -(-len(text) // _DIFF_A_PAGE))
    _check_page(page, pages)
    shown = text[(page - 1) * _DIFF_A_PAGE : page * _DIFF_A_PAGE]
    return f"Page {page} of {pages}.\n{texts.untrusted(title, shown, key)}"


def _check_page(page: int, pages: int) -> None:
    if page > pages:
        raise Invalid(f"There is no page {page}.", code=codes.INVALID_REQUEST, hint=f"The last page is {pages}.")


def _cut(text: str, longest: int) -> str:
    over = len(text) - longest
    return text if over <= 0 else f"{text[:longest]}\n(cut by the host: {over} more characters)"
