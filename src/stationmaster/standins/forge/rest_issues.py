"""REST: issues, comments and reactions, quirks included."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from stationmaster.standins.forge import access
from stationmaster.standins.forge.rest import REPO, Call, Routes, created_before_since
from stationmaster.standins.forge.store import Row, now
from stationmaster.standins.forge.wire import ApiError, Response, as_json, not_found, paged

routes = Routes()
ISSUES, COMMENTS = f"{REPO}/issues", f"{REPO}/issues/comments"
REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")
LOCKED = "You cannot comment on a locked issue."
NO_ISSUE = "issue does not exist [id: 0, repo_id: {repo}, index: {index}]"


def find_issue(call: Call, name: str = "index", *, unknown: int = 404) -> Row:
    """Returns the issue of the path; what is unknown is 404, or 500 on the comment routes, as in Gitea."""
    sql = "SELECT * FROM issue WHERE repo_id=? AND number=?"
    issue = call.api.store.one(sql, call.repo["id"], call.id(name))
    if issue is None and unknown == HTTPStatus.NOT_FOUND:
        raise not_found()
    if issue is None:
        words = NO_ISSUE.format(repo=call.repo["id"], index=call.id(name))
        raise ApiError(500, words if call.caller.site_admin else "")
    if not call.can_read(issue):
        raise not_found()
    return issue


def find_comment(call: Call) -> tuple[Row, Row]:
    """Returns the comment of the path and its issue."""
    comment = call.api.store.one("SELECT * FROM comment WHERE id=?", call.id("id"))
    if comment is None:
        raise not_found(f"comment does not exist [id: {call.id('id')}, issue_id: 0]")
    issue = call.api.store.get("issue", comment["issue_id"])
    if issue["repo_id"] != call.repo["id"]:
        raise ApiError(404, bare=True)
    return comment, issue


def shown_comments(call: Call, comments: list[Row], where: str) -> tuple[list[Row], int]:
    """Returns comments as this read shows them and their number, faults included."""
    logins = {row["id"]: str(access.account(call.api.store, row["poster_id"])["login"]) for row in comments}
    return call.api.faults.on_read(comments, logins, where)


@routes("GET", ISSUES, "issue", unit="either")
def list_issues(call: Call) -> Response:
    """Lists issues and pull requests, newest first."""
    since, before = created_before_since(call.request)
    rows = call.api.store.many("SELECT * FROM issue WHERE repo_id=? ORDER BY id DESC", call.repo["id"])
    state, kind = call.request.params.get("state", "open"), call.request.params.get("type", "")
    kept = [
        row
        for row in rows
        if (state == "all" or row["state"] == ("closed" if state == "closed" else "open"))
        and (kind not in {"issues", "pulls"} or bool(row["is_pull"]) == (kind == "pulls"))
        and (since is None or row["updated"] >= since)
        and (before is None or row["updated"] <= before)
        and call.can_read(row)
    ]
    page, headers = paged(call.request, kept)
    return as_json(200, [call.api.views.issue(call.repo, row, call.caller.account) for row in page], headers)


@routes("POST", ISSUES, "issue", unit="either", token=True, archived=True, required=("title",))
def create_issue(call: Call) -> Response:
    """Opens an issue."""
    if not call.repo["has_issues"]:
        raise ApiError(403, "user should have specific read permission or be a repo admin or a site admin")
    issue = call.api.deeds.open_issue(call.repo, call.who, str(call.form["title"]), str(call.form.get("body") or ""))
    return as_json(201, call.api.views.issue(call.repo, issue, call.who))


@routes("GET", COMMENTS, "issue", unit="either")
def list_repo_comments(call: Call) -> Response:
    """Lists the comments of a repository; without `page` it returns all of them, whatever `limit` says."""
    since, before = created_before_since(call.request)
    sql = """SELECT comment.* FROM comment JOIN issue ON issue.id=issue_id WHERE repo_id=? AND kind='comment'
             AND comment.updated BETWEEN ? AND ? ORDER BY comment.created, comment.id"""
    rows = call.api.store.many(sql, call.repo["id"], since or 0, 1 << 60 if before is None else before)
    rows, total = shown_comments(call, rows, "list")
    headers = [("X-Total-Count", str(total))]
    if "page" in call.request.params:
        rows = paged(call.request, rows)[0]
    return as_json(200, [_comment(call, row) for row in rows], headers)


@routes("GET", f"{COMMENTS}/(?P<id>[^/]+)", "issue", unit="either")
def get_comment(call: Call) -> Response:
    """Returns a comment; 204 and nothing for any other kind than a plain one."""
    comment, issue = find_comment(call)
    if not call.can_read(issue):
        raise not_found()
    if comment["kind"] != "comment":
        return Response(204)
    shown, _ = shown_comments(call, [comment], "single")
    if not shown:
        raise not_found(f"comment does not exist [id: {comment['id']}, issue_id: 0]")
    return as_json(200, call.api.views.comment(call.repo, issue, shown[0]))


@routes("PATCH", f"{COMMENTS}/(?P<id>[^/]+)", "issue", unit="either", token=True, archived=True, required=("body",))
def edit_comment(call: Call) -> Response:
    """Changes a comment: its author and writers may."""
    comment, issue = find_comment(call)
    if call.who["id"] != comment["poster_id"] and call.mode < access.WRITE:
        return Response(403)
    changed = call.api.deeds.edit_comment(call.repo, issue, comment, call.who, str(call.form["body"]))
    return as_json(200, call.api.views.comment(call.repo, issue, changed))


@routes("DELETE", f"{COMMENTS}/(?P<id>[^/]+)", "issue", unit="either", token=True)
def delete_comment(call: Call) -> Response:
    """Removes a comment: its author and writers may."""
    comment, issue = find_comment(call)
    if call.who["id"] != comment["poster_id"] and call.mode < access.WRITE:
        return Response(403)
    if comment["kind"] == "comment":
        call.api.deeds.delete_comment(call.repo, issue, comment, call.who)
    return Response(204)


@routes("GET", f"{ISSUES}/(?P<index>[^/]+)", "issue", unit="either")
def get_issue(call: Call) -> Response:
    """Returns an issue or the issue side of a pull request."""
    return as_json(200, call.api.views.issue(call.repo, find_issue(call), call.caller.account))


@routes("PATCH", f"{ISSUES}/(?P<index>[^/]+)", "issue", unit="either", token=True)
def edit_issue(call: Call) -> Response:
    """Changes title, body or state: its author and writers may; the status is 201."""
    issue = find_issue(call)
    if call.who["id"] != issue["poster_id"] and call.mode < access.WRITE:
        return Response(403)
    issue = call.api.deeds.edit_issue(call.repo, issue, call.who, **_changes(call.form))
    return as_json(201, call.api.views.issue(call.repo, issue, call.who))


def _changes(form: dict[str, Any]) -> dict[str, str | None]:
    state = form.get("state")
    if state is not None and state not in {"open", "closed"}:
        raise ApiError(412, f"unknown state: {state}")
    return {"title": form.get("title") or None, "body": form.get("body"), "state": state}


@routes("GET", f"{ISSUES}/(?P<index>[^/]+)/comments", "issue", unit="either")
def list_comments(call: Call) -> Response:
    """Lists all plain comments of an issue, oldest first; there are no pages."""
    since, before = created_before_since(call.request)
    issue = find_issue(call, unknown=500)
    sql = """SELECT * FROM comment WHERE issue_id=? AND kind='comment' AND updated BETWEEN ? AND ?
             ORDER BY created, id"""
    rows = call.api.store.many(sql, issue["id"], since or 0, 1 << 60 if before is None else before)
    rows, total = shown_comments(call, rows, "list")
    shown = [call.api.views.comment(call.repo, issue, row) for row in rows]
    return as_json(200, shown, [("X-Total-Count", str(total))])


@routes(
    "POST", f"{ISSUES}/(?P<index>[^/]+)/comments", "issue", unit="either", token=True, archived=True,
    required=("body",),
)  # fmt: skip
def create_comment(call: Call) -> Response:
    """Writes a comment on an issue or pull request."""
    issue = find_issue(call, unknown=500)
    if issue["locked"] and call.mode < access.WRITE and not call.caller.site_admin:
        raise ApiError(403, LOCKED)
    body, who = str(call.form["body"]), call.who
    comment = call.api.deeds.comment(call.repo, issue, who, body)
    if call.api.faults.on_create(call.request, str(who["login"])):
        call.api.deeds.comment(call.repo, issue, who, body)
    return as_json(201, call.api.views.comment(call.repo, issue, comment))


@routes("GET", f"{COMMENTS}/(?P<id>[^/]+)/reactions", "issue", unit="either")
@routes("POST", f"{COMMENTS}/(?P<id>[^/]+)/reactions", "issue", unit="either", token=True)
@routes("DELETE", f"{COMMENTS}/(?P<id>[^/]+)/reactions", "issue", unit="either", token=True)
def comment_reactions(call: Call) -> Response:
    """Reads, adds or removes reactions on a comment."""
    comment, issue = find_comment(call)
    return _reactions(call, issue, f"comment/{comment['id']}")


@routes("GET", f"{ISSUES}/(?P<index>[^/]+)/reactions", "issue", unit="either")
@routes("POST", f"{ISSUES}/(?P<index>[^/]+)/reactions", "issue", unit="either", token=True)
@routes("DELETE", f"{ISSUES}/(?P<index>[^/]+)/reactions", "issue", unit="either", token=True)
def issue_reactions(call: Call) -> Response:
    """Reads, adds or removes reactions on an issue."""
    issue = find_issue(call)
    return _reactions(call, issue, f"issue/{issue['id']}")


def _reactions(call: Call, issue: Row, target: str) -> Response:
    """201 for a new reaction, 200 for one that is there already, 403 for what is not allowed."""
    store = call.api.store
    if call.request.method == "GET":
        rows = store.many("SELECT * FROM reaction WHERE target=? ORDER BY id", target)
        return as_json(200, [call.api.views.reaction(row) for row in rows] or None)
    if issue["locked"] and call.mode < access.WRITE:
        raise ApiError(403, "no permission to change reaction")
    content, key = str(call.form.get("content", "")), "target=? AND account_id=? AND content=?"
    if call.request.method == "DELETE":
        store.run(f"DELETE FROM reaction WHERE {key}", target, call.who["id"], content)
        return Response(200)
    if content not in REACTIONS:
        raise ApiError(403, f"'{content}' is not an allowed reaction")
    old = store.one(f"SELECT * FROM reaction WHERE {key}", target, call.who["id"], content)
    if old is None:
        store.insert("reaction", target=target, account_id=call.who["id"], content=content, created=now())
    row = old or store.one(f"SELECT * FROM reaction WHERE {key}", target, call.who["id"], content)
    return as_json(200 if old else 201, call.api.views.reaction(row or {}))


def _comment(call: Call, row: Row) -> dict[str, Any]:
    return call.api.views.comment(call.repo, call.api.store.get("issue", row["issue_id"]), row)
