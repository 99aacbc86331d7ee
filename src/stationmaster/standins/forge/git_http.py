"""Git's smart HTTP, served by `git http-backend`, with Gitea's rules about who may do what."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from collections import defaultdict
from functools import cache
from http import HTTPStatus
from pathlib import Path

from stationmaster.standins.forge import access, pre_receive
from stationmaster.standins.forge.bare import environment
from stationmaster.standins.forge.deeds import Deeds
from stationmaster.standins.forge.store import Row, Store
from stationmaster.standins.forge.views import Views
from stationmaster.standins.forge.wire import ApiError, Request, Response, plain

PATH = re.compile(
    r"^/(?P<owner>[^/]+)/(?P<name>[^/]+?)(?:\.git)?/(?P<what>info/refs|git-upload-pack|git-receive-pack)$"
)
ARCHIVED = "This repo is archived. You can view files and clone it, but cannot push or open issues/pull-requests."
BACKEND_TIMEOUT_S = 300


def hook_scripts() -> dict[str, str]:
    """Returns the server hooks of a new repository: both call pre_receive.py with this interpreter."""
    call = f"exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(Path(pre_receive.__file__).resolve()))}"
    return {name: f"#!/bin/sh\n{call} {name}\n" for name in ("pre-receive", "post-receive")}


class GitHttp:
    """Answers clone, fetch and push."""

    def __init__(self, store: Store, views: Views, deeds: Deeds) -> None:
        self.store, self.views, self.deeds = store, views, deeds
        self._pushing: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def handle(self, request: Request) -> Response | None:
        """Returns the answer, or None when the path is not git's."""
        match = PATH.match(request.path)
        if match is None:
            return None
        service = request.params.get("service", "") if match["what"] == "info/refs" else match["what"]
        is_push = service == "git-receive-pack"
        owner = access.account_named(self.store, match["owner"])
        repo = self._find(owner, match["name"])
        if owner and repo is None:
            moved = self._moved(owner, match["name"])
            if moved:
                target = request.target.replace(f"/{match['owner']}/{match['name']}", f"/{moved}", 1)
                return Response(301, b"", [("Location", target)])
        try:
            caller = access.identify(self.store, request)
        except ApiError as error:
            return _ask() if error.status == HTTPStatus.UNAUTHORIZED else plain(error.status, error.message)
        refused = self._refusal(repo, caller, is_push=is_push)
        if refused is not None or repo is None:
            return refused
        if not is_push or match["what"] == "info/refs":
            return self._backend(request, repo, match["what"], caller)
        return self._push(request, repo, caller)

    def _find(self, owner: Row | None, name: str) -> Row | None:
        if owner is None:
            return None
        return self.store.one("SELECT * FROM repo WHERE owner_id=? AND lower_name=?", owner["id"], name.lower())

    def _moved(self, owner: Row, name: str) -> str | None:
        sql = """SELECT repo.* FROM redirect JOIN repo ON repo.id=repo_id
                 WHERE redirect.owner_id=? AND redirect.lower_name=?"""
        row = self.store.one(sql, owner["id"], name.lower())
        return self.views.full_name(row) if row else None

    def _refusal(self, repo: Row | None, caller: access.Caller, *, is_push: bool) -> Response | None:
        """Returns why this caller may not go on; a missing write permission is left to the pre-receive hook."""
        if repo is not None and repo["archived"] and is_push:
            return plain(403, ARCHIVED)
        if not caller.signed:
            open_to_all = repo is not None and not repo["private"] and not is_push
            return None if open_to_all else _ask()
        scopes = caller.scopes if caller.basic else None
        if scopes is not None and not access.scope_allows(scopes, "repository", "write" if is_push else "read"):
            return plain(403, "Forbidden\n")
        if repo is None and is_push:
            return plain(403, "Push to create is not enabled for users.")
        if repo is None or access.mode(self.store, repo, caller.account) < access.READ:
            return plain(404, "Repository not found")
        return None

    def _push(self, request: Request, repo: Row, caller: access.Caller) -> Response:
        bare = self.views.bare(repo["id"])
        with self._pushing[repo["id"]]:
            before = {**bare.refs(), **bare.refs("refs/tags")}
            response = self._backend(request, repo, "git-receive-pack", caller)
            after = {**bare.refs(), **bare.refs("refs/tags")}
        if before != after and caller.account is not None:
            self.deeds.landed(repo, before, after, caller.account)
        return response

    def _rules(self, repo: Row, who: Row | None) -> str:
        """Returns what the receiving hooks need to know about this pusher."""
        rows = self.store.many("SELECT * FROM protection WHERE repo_id=? ORDER BY rule GLOB '*[*?]*', rule", repo["id"])
        login = who["lower_login"] if who else ""
        sql = """SELECT head_branch, number FROM pull JOIN issue ON issue.id=issue_id
                 WHERE repo_id=? AND head_repo_id=0 AND state='open' ORDER BY number DESC"""
        page = self.views.html_url(repo)
        return json.dumps({
            "can_write": access.mode(self.store, repo, who) >= access.WRITE,
            "default_branch": repo["default_branch"],
            "protections": [
                {
                    "rule": row["rule"],
                    "can_force": bool(row["can_force"]),
                    "can_push": bool(row["can_push"]) or login in row["whitelist"].split(","),
                }
                for row in rows
            ],
            "pulls": {row["head_branch"]: f"{page}/pulls/{row['number']}" for row in self.store.many(sql, repo["id"])},
            "new_pull": f"{page}/pulls/new/",
        })  # fmt: skip

    def _backend(self, request: Request, repo: Row, what: str, caller: access.Caller) -> Response:
        bare = self.views.bare(repo["id"])
        env = environment(
            bare.path.parent,
            GIT_PROJECT_ROOT=str(bare.path.parent),
            GIT_HTTP_EXPORT_ALL="1",
            PATH_INFO=f"/{bare.path.name}/{what}",
            REQUEST_METHOD=request.method,
            QUERY_STRING=request.query,
            CONTENT_TYPE=request.headers.get("content-type", ""),
            CONTENT_LENGTH=str(len(request.body)),
            HTTP_CONTENT_ENCODING=request.headers.get("content-encoding", ""),
            GIT_PROTOCOL=request.headers.get("git-protocol", ""),
            REMOTE_ADDR=request.peer,
            REMOTE_USER=str(caller.account["login"]) if caller.account else "",
            FORGE_RULES=self._rules(repo, caller.account),
        )
        done = subprocess.run(
            [_backend_path()],
            input=request.body,
            capture_output=True,
            env=env,
            timeout=BACKEND_TIMEOUT_S,
            check=False,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split(" ")[0]) for name, value in headers if name == "Status"), 200)
        kept = [(name, value) for name, value in headers if name != "Status"]
        return Response(status if done.stdout else 500, body, kept)


@cache
def _backend_path() -> str:
    folder = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(folder, "git-http-backend"))


def _ask() -> Response:
    return plain(401, "Unauthorized\n", [("WWW-Authenticate", 'Basic realm="Gitea"')])
