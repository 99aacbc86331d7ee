"""The JSON forms of what needs git: pull requests, their files, branches, reviews and pushes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from stationmaster.standins.forge import access
from stationmaster.standins.forge.bare import ZERO, Bare
from stationmaster.standins.forge.store import Row
from stationmaster.standins.forge.views import Views, is_draft

FILE_STATUS = {"A": "added", "D": "deleted", "R": "renamed", "C": "copied"}


@dataclass(frozen=True)
class Ends:
    """Where the two ends of a pull request are at this moment."""

    base_sha: str
    head_sha: str
    head_ref: str
    merge_base: str


class PullViews:
    """Reads the repository while it builds the answer, as Gitea does."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.store = views.store

    def ends(self, repo: Row, issue: Row, pull: Row) -> Ends:
        """Returns both shas from git; a head branch that is gone is `refs/pull/N/head`."""
        bare = self.views.bare(repo["id"])
        kept = f"refs/pull/{issue['number']}/head"
        branch = self._tip(bare, pull, kept)
        head, ref = (branch, pull["head_branch"]) if branch else (bare.resolve(kept) or "", kept)
        base = bare.tip(pull["base_branch"]) or ""
        fresh = bare.merge_base(base, head) if base and head and not pull["merged"] else ""
        return Ends(base, head, ref, fresh or pull["merge_base"])

    def _tip(self, bare: Bare, pull: Row, kept: str) -> str | None:
        """Returns the head branch's commit; of a fork's it is brought under `refs/pull/N/head` first, as Gitea does."""
        if pull["head_repo_id"] < 0:
            return None
        if pull["head_repo_id"] == 0:
            return bare.tip(pull["head_branch"])
        fork = self.views.bare(pull["head_repo_id"])
        tip = fork.tip(pull["head_branch"])
        return tip if tip is None or tip == bare.resolve(kept) else bare.bring(fork.path, pull["head_branch"], kept)

    def _head(self, repo: Row, pull: Row, ends: Ends, shown: dict[str, Any], doer: Row | None) -> dict[str, Any]:
        if pull["head_repo_id"] == 0:
            return _end(pull["head_branch"], ends.head_ref, ends.head_sha, repo, shown)
        if pull["head_repo_id"] < 0:
            return _end(pull["head_branch"], ends.head_ref, ends.head_sha, {"id": -1}, None)
        fork = self.store.get("repo", pull["head_repo_id"])
        of_fork = self.views.repository(fork, access.mode(self.store, fork, doer))
        return _end(f"{of_fork['owner']['login']}:{pull['head_branch']}", ends.head_ref, ends.head_sha, fork, of_fork)

    def pull(self, repo: Row, issue: Row, doer: Row | None) -> dict[str, Any]:
        """Returns a pull request as `doer` sees it."""
        pull = self.pull_row(issue)
        ends = self.ends(repo, issue, pull)
        changed = self.views.bare(repo["id"]).changed(ends.merge_base, ends.head_sha) if ends.merge_base else []
        mode = access.mode(self.store, repo, doer)
        page, shown = self.views.issue_url(repo, issue), self.views.repository(repo, mode)
        short = self.views.issue(repo, issue, doer)
        merger = access.account(self.store, pull["merged_by"]) if pull["merged"] else None
        return {
            "id": pull["id"],
            "url": page,
            **{key: short[key] for key in ("number", "user", "title", "body", "labels", "milestone", "assignee")},
            "assignees": [],
            "requested_reviewers": [],
            "requested_reviewers_teams": [],
            "state": issue["state"],
            "draft": is_draft(issue["title"]),
            "is_locked": bool(issue["locked"]),
            "comments": short["comments"],
            "additions": sum(file["added"] for file in changed),
            "deletions": sum(file["removed"] for file in changed),
            "changed_files": len(changed),
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "mergeable": not pull["merged"] and self._mergeable(repo, ends),
            "merged": bool(pull["merged"]),
            "merged_at": self.views.time(pull["merged_at"]),
            "merge_commit_sha": pull["merge_sha"],
            "merged_by": self.views.user(merger) if merger else None,
            "allow_maintainer_edit": False,
            "base": _end(pull["base_branch"], pull["base_branch"], ends.base_sha, repo, shown),
            "head": self._head(repo, pull, ends, shown, doer),
            "merge_base": ends.merge_base,
            "due_date": None,
            "created_at": short["created_at"],
            "updated_at": short["updated_at"],
            "closed_at": short["closed_at"],
            "pin_order": 0,
        }

    def pull_row(self, issue: Row) -> Row:
        """Returns the pull request behind an issue row."""
        row = self.store.one("SELECT * FROM pull WHERE issue_id=?", issue["id"])
        if row is None:
            raise LookupError(f"issue {issue['id']} is no pull request")
        return row

    def _mergeable(self, repo: Row, ends: Ends) -> bool:
        if not (ends.base_sha and ends.head_sha):
            return False
        return self.views.bare(repo["id"]).merge_tree(ends.base_sha, ends.head_sha) is not None

    def files(self, repo: Row, issue: Row) -> list[dict[str, Any]]:
        """Returns the changed files of a pull request."""
        ends = self.ends(repo, issue, self.pull_row(issue))
        page, api = self.views.html_url(repo), self.views.api_url(repo)
        found = []
        for file in self.views.bare(repo["id"]).changed(ends.merge_base, ends.head_sha):
            path, lines = quote(file["path"]), file["added"] + file["removed"]
            status = FILE_STATUS.get(file["status"], "changed" if lines else "unchanged")
            renamed = {"previous_filename": file["old"]} if status == "renamed" else {}
            found.append({
                "filename": file["path"],
                **renamed,
                "status": status,
                "additions": file["added"],
                "deletions": file["removed"],
                "changes": lines,
                "html_url": f"{page}/src/commit/{ends.head_sha}/{path}",
                "contents_url": f"{api}/contents/{path}?ref={ends.head_sha}",
                "raw_url": f"{page}/raw/commit/{ends.head_sha}/{path}",
            })  # fmt: skip
        return found

    def branch(self, repo: Row, name: str, doer: Row | None) -> dict[str, Any] | None:
        """Returns a branch with what its protection lets the caller do, or None."""
        bare = self.views.bare(repo["id"])
        tip = bare.tip(name)
        if tip is None:
            return None
        rule = access.protection(self.store, repo["id"], name)
        mode = access.mode(self.store, repo, doer)
        return {
            "name": name,
            "commit": self.views.commit(repo, bare.commits("-1", tip)[0]),
            "protected": rule is not None,
            "required_approvals": 0,
            "enable_status_check": False,
            "status_check_contexts": [],
            "user_can_push": access.can_push(self.store, repo, name, doer),
            "user_can_merge": mode >= access.WRITE,
            "effective_branch_protection_name": rule["rule"] if rule and mode >= access.ADMIN else "",
        }

    def review(self, repo: Row, issue: Row, review: Row) -> dict[str, Any]:
        """Returns a review."""
        page = self.views.issue_url(repo, issue)
        count = "SELECT count(*) AS n FROM comment WHERE review_id=?"
        return {
            "id": review["id"],
            "user": self.views.user(access.account(self.store, review["reviewer_id"])),
            "team": None,
            "state": review["type"],
            "body": review["body"],
            "commit_id": review["commit_id"],
            "stale": False,
            "official": False,
            "dismissed": False,
            "comments_count": self.store.many(count, review["id"])[0]["n"],
            "submitted_at": self.views.time(review["created"]),
            "updated_at": self.views.time(review["created"]),
            "html_url": f"{page}#issuecomment-{review['id']}",
            "pull_request_url": page,
        }

    def review_comment(self, repo: Row, issue: Row, comment: Row) -> dict[str, Any]:
        """Returns a code-line comment, which only the review shows."""
        page = self.views.issue_url(repo, issue)
        review = self.store.get("review", comment["review_id"])
        return {
            "id": comment["id"],
            "body": comment["body"],
            "user": self.views.user(access.account(self.store, comment["poster_id"])),
            "resolver": None,
            "pull_request_review_id": review["id"],
            "created_at": self.views.time(comment["created"]),
            "updated_at": self.views.time(comment["updated"]),
            "path": comment["path"],
            "commit_id": review["commit_id"],
            "original_commit_id": "",
            "diff_hunk": "",
            "position": comment["line"],
            "original_position": 0,
            "html_url": f"{page}#issuecomment-{comment['id']}",
            "pull_request_url": page,
        }

    def push(self, repo: Row, ref: str, before: str, after: str, pusher: Row, mode: int) -> dict[str, Any]:
        """Returns the payload of a push; `mode` is what its repository shows as permissions."""
        bare = self.views.bare(repo["id"])
        commits: list[dict[str, str]] = []
        if after != ZERO:
            scope = [f"{before}..{after}"] if before not in {ZERO, after} else ["-1", after]
            commits = bare.commits(*scope)
        shown = [self.views.commit(repo, commit, self._touched(repo, commit["sha"])) for commit in commits[:30]]
        person = self.views.user(pusher)
        return {
            "ref": ref,
            "before": before,
            "after": after,
            "compare_url": f"{self.views.html_url(repo)}/compare/{before}...{after}",
            "commits": shown,
            "total_commits": len(commits),
            "head_commit": shown[0] if shown else None,
            "repository": self.views.repository(repo, mode),
            "pusher": person,
            "sender": person,
        }

    def _touched(self, repo: Row, sha: str) -> dict[str, list[str]]:
        bare = self.views.bare(repo["id"])
        parent = bare.resolve(f"{sha}^") or bare.text("hash-object", "-t", "tree", "--stdin")
        found: dict[str, list[str]] = {"added": [], "removed": [], "modified": []}
        for file in bare.changed(parent, sha):
            found[{"A": "added", "D": "removed"}.get(file["status"], "modified")].append(file["path"])
        return found


def _end(label: str, ref: str, sha: str, repo: Row, shown: dict[str, Any] | None) -> dict[str, Any]:
    return {"label": label, "ref": ref, "sha": sha, "repo_id": repo["id"], "repo": shown}
