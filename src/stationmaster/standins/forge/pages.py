"""A few pages for a person's browser: what is there, a thread with its diff, and a form to say something.

They show everything to everybody on this machine: a stand-in has no web login. All text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from urllib.parse import parse_qsl

from stationmaster.standins.forge import access
from stationmaster.standins.forge.rest import Api
from stationmaster.standins.forge.store import Row
from stationmaster.standins.forge.wire import Request, Response

REPO = re.compile(r"^/(?P<owner>[^/]+)/(?P<name>[^/]+)(?:/(?P<what>issues|pulls|commit)(?:/(?P<key>[0-9a-f]+))?)?/?$")
HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)
HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}}article{{border:1px solid #8886;border-radius:6px;
padding:.5rem 1rem;margin:1rem 0}}small{{opacity:.7}}textarea{{width:100%;box-sizing:border-box}}</style>
<p><a href="/">all repositories</a> <small>stand-in forge, for demo and tests</small></p><h1>{title}</h1>"""
SECURE = [("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")]


class Pages:
    """Answers a browser."""

    def __init__(self, api: Api) -> None:
        self.api, self.store, self.views = api, api.store, api.views

    def handle(self, request: Request) -> Response | None:
        """Returns a page, the redirect after a form, or None when there is nothing at this path."""
        if request.path == "/":
            rows = self.store.many("SELECT * FROM repo ORDER BY id")
            return _page("Repositories", _links((f"/{name}", name) for name in map(self.views.full_name, rows)))
        match = REPO.match(request.path)
        repo = self._repo(match["owner"], match["name"]) if match else None
        if match is None or repo is None:
            return None
        if match["what"] == "commit" and match["key"]:
            return self._commit(repo, match["key"])
        if not match["key"]:
            return self._write(repo, None, request) if request.method == "POST" else self._repository(repo)
        sql = "SELECT * FROM issue WHERE repo_id=? AND number=?"
        issue = self.store.one(sql, repo["id"], int(match["key"])) if match["key"].isdigit() else None
        if issue is None:
            return None
        return self._write(repo, issue, request) if request.method == "POST" else self._thread(repo, issue)

    def _repo(self, owner: str, name: str) -> Row | None:
        who = access.account_named(self.store, owner)
        sql = "SELECT * FROM repo WHERE owner_id=? AND lower_name=?"
        return self.store.one(sql, who["id"], name.lower()) if who else None

    def _repository(self, repo: Row) -> Response:
        rows = self.store.many("SELECT * FROM issue WHERE repo_id=? ORDER BY number DESC", repo["id"])
        path = f"/{self.views.full_name(repo)}"
        listed = _links(
            (f"{path}/issues/{row['number']}", f"#{row['number']} {row['title']} ({row['state']})") for row in rows
        )
        branches = "".join(f"<li>{escape(name)} {sha[:10]}" for name, sha in self.views.bare(repo["id"]).refs().items())
        title = '<p><input name="title" required placeholder="title">'
        form = self._form(f"{path}/issues", "New issue", title)
        return _page(self.views.full_name(repo), f"{listed}<h2>Branches</h2><ul>{branches}</ul>{form}")

    def _thread(self, repo: Row, issue: Row) -> Response:
        rows = self.store.many("SELECT * FROM comment WHERE issue_id=? ORDER BY id", issue["id"])
        said = [self._said(row, f"issuecomment-{row['id']}") for row in rows]
        diff = ""
        if issue["is_pull"]:
            pull = self.api.pulls.pull_row(issue)
            ends = self.api.pulls.ends(repo, issue, pull)
            text = self.views.bare(repo["id"]).diff(ends.merge_base, ends.head_sha).decode(errors="replace")
            names = f"{pull['head_branch']} into {pull['base_branch']}"
            diff = f"<details><summary>{escape(names)}</summary><pre>{escape(text)}</pre></details>"
        path = f"/{self.views.full_name(repo)}/issues/{issue['number']}"
        state = "merged" if issue["is_pull"] and self.api.pulls.pull_row(issue)["merged"] else issue["state"]
        body = f"<p>{state}{self._said(issue, 'top')}{diff}{''.join(said)}{self._form(path, 'Comment')}"
        return _page(f"#{issue['number']} {issue['title']}", body)

    def _said(self, row: Row, anchor: str) -> str:
        who = access.account(self.store, row["poster_id"])["login"]
        text = HIDDEN.sub("", row["body"]).strip()  # a reader never sees an HTML comment
        when = self.views.time(row["created"])
        return f'<article id="{anchor}"><small>{escape(who)} {when}</small><pre>{escape(text)}</pre></article>'

    def _commit(self, repo: Row, sha: str) -> Response | None:
        bare = self.views.bare(repo["id"])
        found = bare.resolve(sha)
        if found is None:
            return None
        text = bare.git("show", "--stat", "--patch", found).decode(errors="replace")
        return _page(f"Commit {found[:10]}", f"<pre>{escape(text)}</pre>")

    def _form(self, path: str, verb: str, more: str = "") -> str:
        rows = self.store.many("SELECT login FROM account WHERE NOT is_org AND NOT is_bot ORDER BY id")
        people = "".join(f"<option>{escape(row['login'])}" for row in rows)
        return (
            f'<form method="post" action="{escape(path)}"><h2>{verb}</h2>{more}'
            f'<p><textarea name="body" rows="5" aria-label="Text"></textarea>'
            f'<p>as <select name="author" aria-label="Author">{people}</select> <button>{verb}</button></form>'
        )

    def _write(self, repo: Row, issue: Row | None, request: Request) -> Response:
        """Says something as the chosen person; only a form of this very site may."""
        form = dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
        who = access.account_named(self.store, form.get("author", ""))
        if request.headers.get("origin") != self.views.base_url or who is None:
            return _page("Refused", "<p>This form is not of this site.", 403)
        if issue is None:
            issue = self.api.deeds.open_issue(repo, who, form.get("title") or "Untitled", form.get("body", ""))
        elif form.get("body", "").strip():
            self.api.deeds.comment(repo, issue, who, form["body"])
        return Response(303, b"", [("Location", f"/{self.views.full_name(repo)}/issues/{issue['number']}")])


def _links(pairs: Iterable[tuple[str, str]]) -> str:
    return "<ul>" + "".join(f'<li><a href="{escape(to)}">{escape(name)}</a>' for to, name in pairs) + "</ul>"


def _page(title: str, body: str, status: int = 200) -> Response:
    text = HEAD.format(title=escape(title)) + body
    return Response(status, text.encode(), [("Content-Type", "text/html; charset=utf-8"), *SECURE])
