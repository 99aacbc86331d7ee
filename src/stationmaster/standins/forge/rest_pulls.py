"""REST: pull requests, their diff, files, commits, reviews and merge."""

from __future__ import annotations

from stationmaster.standins.forge import access
from stationmaster.standins.forge.rest import REPO, Call, Routes
from stationmaster.standins.forge.rest_issues import find_issue
from stationmaster.standins.forge.store import Row
from stationmaster.standins.forge.wire import ApiError, Response, as_json, not_found, paged

routes = Routes()
PULLS = f"{REPO}/pulls"
SAME = "Invalid PullRequest: There are no changes between the head and the base"


def find_pull(call: Call) -> Row:
    """Returns the pull request of the path as its issue row."""
    issue = find_issue(call)
    if not issue["is_pull"]:
        raise not_found()
    return issue


@routes("GET", PULLS, "repository", unit="pulls")
def list_pulls(call: Call) -> Response:
    """Lists pull requests; the default is open ones, newest first."""
    params = call.request.params
    state = params.get("state", "") or "open"
    sql = """SELECT issue.*, base_branch FROM issue JOIN pull ON pull.issue_id=issue.id WHERE repo_id=?
             ORDER BY issue.id DESC"""
    rows = [
        row
        for row in call.api.store.many(sql, call.repo["id"])
        if (state == "all" or row["state"] == state)
        and params.get("base_branch", row["base_branch"]) == row["base_branch"]
    ]
    if params.get("sort") in {"oldest", "leastupdate"}:
        rows.reverse()
    if params.get("poster"):
        poster = access.account_named(call.api.store, params["poster"])
        if poster is None:
            raise ApiError(400, f"user does not exist [uid: 0, name: {params['poster']}]")
        rows = [row for row in rows if row["poster_id"] == poster["id"]]
    page, headers = paged(call.request, rows)
    return as_json(200, [call.api.pulls.pull(call.repo, row, call.caller.account) for row in page], headers)


@routes("POST", PULLS, "repository", unit="pulls", token=True, archived=True, required=("head", "base", "title"))
def create_pull(call: Call) -> Response:
    """Opens a pull request between two branches of this repository (`branch` or `owner:branch`)."""
    head, base = str(call.form["head"]), str(call.form["base"])
    if head == base:
        raise ApiError(422, SAME)
    owner, colon, branch = head.partition(":")
    if colon:
        known = access.account_named(call.api.store, owner)
        if known is None:
            raise not_found(message="GetUserByName")
        if known["id"] != call.repo["owner_id"]:
            raise not_found(message="head repository not found")
        head = branch
    body = str(call.form.get("body") or "")
    issue = call.api.deeds.open_pull(
        call.repo, call.who, head=head, base=base, title=str(call.form["title"]), body=body
    )
    return as_json(201, call.api.pulls.pull(call.repo, issue, call.who))


@routes("GET", f"{PULLS}/(?P<index>[0-9]+)", "repository", unit="pulls")
def get_pull(call: Call) -> Response:
    """Returns a pull request."""
    return as_json(200, call.api.pulls.pull(call.repo, find_pull(call), call.caller.account))


@routes("PATCH", f"{PULLS}/(?P<index>[0-9]+)", "repository", unit="pulls", token=True)
def edit_pull(call: Call) -> Response:
    """Changes title, body, state or base; the status is 201."""
    issue, form = find_pull(call), call.form
    if call.who["id"] != issue["poster_id"] and call.mode < access.WRITE:
        return Response(403)
    state = form.get("state")
    if state is not None and state not in {"open", "closed"}:
        raise ApiError(412, f"unknown state: {state}")
    if state is not None and call.api.pulls.pull_row(issue)["merged"]:
        raise ApiError(412, "cannot change state of this pull request, it was already merged")
    title, body = form.get("title") or None, form.get("body")
    issue = call.api.deeds.edit_issue(call.repo, issue, call.who, title=title, body=body, state=state)
    if form.get("base"):
        if call.api.views.bare(call.repo["id"]).tip(form["base"]) is None:
            raise ApiError(404, f"new base '{form['base']}' not exist")
        call.api.store.run("UPDATE pull SET base_branch=? WHERE issue_id=?", form["base"], issue["id"])
    return as_json(201, call.api.pulls.pull(call.repo, issue, call.who))


@routes("GET", rf"{PULLS}/(?P<index>[0-9]+)\.(?P<kind>diff|patch)", "repository", unit="pulls")
def get_diff(call: Call) -> Response:
    """Returns the whole difference as text."""
    issue = find_pull(call)
    ends = call.api.pulls.ends(call.repo, issue, call.api.pulls.pull_row(issue))
    bare = call.api.views.bare(call.repo["id"])
    make = bare.diff if call.values["kind"] == "diff" else bare.patch
    return Response(200, make(ends.merge_base, ends.head_sha), [("Content-Type", "text/plain; charset=utf-8")])


@routes("GET", f"{PULLS}/(?P<index>[0-9]+)/files", "repository", unit="pulls")
def list_files(call: Call) -> Response:
    """Lists the changed files."""
    page, headers = paged(call.request, call.api.pulls.files(call.repo, find_pull(call)))
    return as_json(200, page, headers)


@routes("GET", f"{PULLS}/(?P<index>[0-9]+)/merge", "repository", unit="pulls")
def is_merged(call: Call) -> Response:
    """Says by 204 or 404 whether a pull request is merged."""
    if call.api.pulls.pull_row(find_pull(call))["merged"]:
        return Response(204)
    raise not_found()


@routes("POST", f"{PULLS}/(?P<index>[0-9]+)/merge", "repository", unit="pulls", token=True, archived=True)
def merge_pull(call: Call) -> Response:
    """Merges a pull request."""
    issue = find_pull(call)
    if call.mode < access.WRITE:
        raise ApiError(405, "User not allowed to merge PR")
    call.api.deeds.merge(call.repo, issue, call.who, style=str(call.form.get("Do") or call.form.get("do") or "merge"))
    return Response(200)


@routes("GET", f"{PULLS}/(?P<index>[0-9]+)/reviews", "repository", unit="pulls")
def list_reviews(call: Call) -> Response:
    """Lists the submitted reviews."""
    issue = find_pull(call)
    rows = call.api.store.many("SELECT * FROM review WHERE issue_id=? ORDER BY id", issue["id"])
    page, headers = paged(call.request, rows)
    return as_json(200, [call.api.pulls.review(call.repo, issue, row) for row in page], headers)


@routes("GET", f"{PULLS}/(?P<index>[0-9]+)/reviews/(?P<id>[^/]+)", "repository", unit="pulls")
def get_review(call: Call) -> Response:
    """Returns a review."""
    issue = find_pull(call)
    return as_json(200, call.api.pulls.review(call.repo, issue, _review(call, issue)))


@routes("GET", f"{PULLS}/(?P<index>[0-9]+)/reviews/(?P<id>[^/]+)/comments", "repository", unit="pulls")
def list_review_comments(call: Call) -> Response:
    """Lists the code-line comments of a review: the only place that has their text."""
    issue = find_pull(call)
    rows = call.api.store.many("SELECT * FROM comment WHERE review_id=? ORDER BY id", _review(call, issue)["id"])
    return as_json(200, [call.api.pulls.review_comment(call.repo, issue, row) for row in rows])


def _review(call: Call, issue: Row) -> Row:
    row = call.api.store.one("SELECT * FROM review WHERE issue_id=? AND id=?", issue["id"], call.id("id"))
    if row is None:
        raise not_found()
    return row


@routes("GET", f"{PULLS}/(?P<base>[^/]+)/(?P<head>.+)", "repository", unit="pulls")
def get_pull_by_branches(call: Call) -> Response:
    """Returns the pull request from one branch to another."""
    sql = """SELECT issue.* FROM issue JOIN pull ON pull.issue_id=issue.id
             WHERE repo_id=? AND base_branch=? AND head_branch=? AND head_repo_id=0 ORDER BY issue.id DESC"""
    issue = call.api.store.one(sql, call.repo["id"], call.values["base"], call.values["head"])
    if issue is None:
        raise not_found()
    return as_json(200, call.api.pulls.pull(call.repo, issue, call.caller.account))
