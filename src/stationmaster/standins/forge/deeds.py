"""What people do on the forge: write, edit, close, merge, push; each is one transaction with its webhooks."""

from __future__ import annotations

from stationmaster.standins.forge import access
from stationmaster.standins.forge.bare import ZERO
from stationmaster.standins.forge.events import Events
from stationmaster.standins.forge.hooks import Hooks
from stationmaster.standins.forge.store import Row, Store, now
from stationmaster.standins.forge.views import Views
from stationmaster.standins.forge.wire import ApiError, not_found

PULL_EXISTS = (
    "pull request already exists for these targets [id: {id}, issue_id: {number}, head_repo_id: {repo}, "
    "base_repo_id: {repo}, head_branch: {head}, base_branch: {base}]"
)
MERGED = "cannot change state of this pull request, it was already merged"


class Deeds:
    """The forge's verbs on issues, comments, pull requests and branches."""

    def __init__(self, store: Store, views: Views, events: Events, hooks: Hooks) -> None:
        self.store, self.views, self.events, self.hooks = store, views, events, hooks

    # --- issues and comments ------------------------------------------------------------------------------------------

    def open_issue(self, repo: Row, who: Row, title: str, body: str, *, is_pull: bool = False) -> Row:
        """Writes an issue with the next number of its repository; tells nobody about a pull request yet."""
        if access.blocked(self.store, who, repo, repo["owner_id"]):
            raise ApiError(403, "user is blocked")
        with self.store.tx():
            last = self.store.one("SELECT max(number) AS n FROM issue WHERE repo_id=?", repo["id"])
            at = now()
            issue_id = self.store.insert(
                "issue", repo_id=repo["id"], number=((last and last["n"]) or 0) + 1, is_pull=int(is_pull),
                poster_id=who["id"], title=title, body=body, state="open", locked=0, created=at, updated=at,
            )  # fmt: skip
            issue = self.store.get("issue", issue_id)
            if not is_pull:
                self.events.issue("opened", repo, issue, who)
        self.hooks.wake()
        return issue

    def edit_issue(
        self, repo: Row, issue: Row, who: Row, *, title: str | None = None, body: str | None = None,
        state: str | None = None,
    ) -> Row:  # fmt: skip
        """Changes title, body and state; each real change is an event of its own."""
        with self.store.tx():
            for name, value in (("title", title), ("body", body)):
                if value is not None and value != issue[name]:
                    self.store.update("issue", issue["id"], **{name: value, "updated": now()})
                    changes = {name: {"from": issue[name]}}
                    issue = self.store.get("issue", issue["id"])
                    self.events.issue("edited", repo, issue, who, changes=changes)
            if state is not None and state != issue["state"]:
                self._require_unmerged(issue)
                closed = now() if state == "closed" else None
                self.store.update("issue", issue["id"], state=state, closed=closed, updated=now())
                issue = self.store.get("issue", issue["id"])
                self.events.issue("closed" if state == "closed" else "reopened", repo, issue, who)
        self.hooks.wake()
        return issue

    def _require_unmerged(self, issue: Row) -> None:
        if issue["is_pull"] and self.events.pulls.pull_row(issue)["merged"]:
            raise ApiError(412, MERGED)

    def comment(self, repo: Row, issue: Row, who: Row, body: str) -> Row:
        """Writes a comment; its body is kept byte for byte."""
        if access.blocked(self.store, who, repo, issue["poster_id"]):
            raise ApiError(403, "user is blocked")
        with self.store.tx():
            at = now()
            comment_id = self.store.insert(
                "comment", issue_id=issue["id"], kind="comment", poster_id=who["id"], body=body, created=at, updated=at
            )
            self.store.update("issue", issue["id"], updated=at)
            comment = self.store.get("comment", comment_id)
            self.events.comment("created", repo, self.store.get("issue", issue["id"]), comment, who)
        self.hooks.wake()
        return comment

    def edit_comment(self, repo: Row, issue: Row, comment: Row, who: Row, body: str) -> Row:
        """Changes a comment; the same text again changes nothing and tells nobody."""
        if body == comment["body"]:
            return comment
        if access.blocked(self.store, who, repo, issue["poster_id"]):
            raise ApiError(403, "user is blocked")
        with self.store.tx():
            self.store.update("comment", comment["id"], body=body, updated=now())
            changed = self.store.get("comment", comment["id"])
            self.events.comment("edited", repo, issue, changed, who, before=comment["body"])
        self.hooks.wake()
        return changed

    def delete_comment(self, repo: Row, issue: Row, comment: Row, who: Row) -> None:
        """Removes a comment; the event still holds its whole text."""
        with self.store.tx():
            self.store.run("DELETE FROM comment WHERE id=?", comment["id"])
            self.events.comment("deleted", repo, self.store.get("issue", issue["id"]), comment, who)
        self.hooks.wake()

    # --- pull requests ------------------------------------------------------------------------------------------------

    def open_pull(
        self, repo: Row, who: Row, *, head: str, base: str, title: str, body: str, fork: Row | None = None
    ) -> Row:
        """Opens a pull request from a branch of the repository, or of a fork; one open one for each pair."""
        bare = self.views.bare(repo["id"])
        head_sha, base_sha = self.views.bare((fork or repo)["id"]).tip(head), bare.tip(base)
        if head_sha is None or base_sha is None:
            raise not_found()
        may = access.mode(self.store, repo, who) >= access.WRITE or access.is_member(self.store, repo, who)
        if fork is None and not may:
            raise ApiError(403, "user must be a collaborator")
        with self.store.tx():
            self._require_no_other(repo, head, base, 0 if fork is None else fork["id"])
            issue = self.open_issue(repo, who, title, body, is_pull=True)
            kept = f"refs/pull/{issue['number']}/head"
            if fork is None:
                bare.set_ref(kept, head_sha)
            else:
                bare.bring(self.views.bare(fork["id"]).path, head, kept)
            self.store.insert(
                "pull", issue_id=issue["id"], base_branch=base, head_branch=head, merged=0,
                merge_base=bare.merge_base(base_sha, head_sha), head_repo_id=0 if fork is None else fork["id"],
            )  # fmt: skip
            self.events.issue("opened", repo, issue, who)
        self.hooks.wake()
        return issue

    def _require_no_other(self, repo: Row, head: str, base: str, head_repo: int) -> None:
        other = self.store.one(
            """SELECT pull.id, issue.number FROM pull JOIN issue ON issue.id=pull.issue_id WHERE issue.repo_id=?
               AND head_branch=? AND base_branch=? AND head_repo_id=? AND NOT merged AND state='open'""",
            repo["id"], head, base, head_repo,
        )  # fmt: skip
        if other:
            raise ApiError(409, PULL_EXISTS.format(**other, repo=repo["id"], head=head, base=base))

    def merge(self, repo: Row, issue: Row, who: Row, *, style: str = "merge") -> str:
        """Merges a pull request (`merge`, `squash` or `fast-forward-only`) and closes it; returns the new base tip."""
        pull, bare = self.events.pulls.pull_row(issue), self.views.bare(repo["id"])
        ends = self.events.pulls.ends(repo, issue, pull)
        if pull["merged"] or issue["state"] != "open":
            raise ApiError(405, "The pull request is closed")
        tree = bare.merge_tree(ends.base_sha, ends.head_sha)
        if tree is None:
            raise ApiError(409, "merge conflict")
        name, email = who["full_name"] or who["login"], who["email"]
        if style == "fast-forward-only":
            if not bare.is_ancestor(ends.base_sha, ends.head_sha):
                raise ApiError(409, "fast forward only is not possible")
            sha = ends.head_sha
        else:
            parents = [ends.base_sha] + ([ends.head_sha] if style == "merge" else [])
            message = f"{issue['title']} (#{issue['number']})\n"
            if style == "merge":
                message = f"Merge pull request '{issue['title']}' (#{issue['number']}) from {pull['head_branch']}\n"
            sha = bare.commit_tree(tree, parents, message=message, name=name, email=email)
        base_ref = f"refs/heads/{pull['base_branch']}"
        with self.store.tx():
            bare.set_ref(base_ref, sha)
            at = now()
            self.store.update(
                "pull", pull["id"], merged=1, merged_at=at, merged_by=who["id"], merge_sha=sha,
                merge_base=ends.merge_base,
            )  # fmt: skip
            self.store.update("issue", issue["id"], state="closed", closed=at, updated=at)
            self.events.pushed(repo, base_ref, ends.base_sha, sha, who)
            self.events.issue("closed", repo, self.store.get("issue", issue["id"]), who)
        self.hooks.wake()
        return sha

    def review(
        self, repo: Row, issue: Row, who: Row, *, kind: str, body: str, lines: list[tuple[str, int, str]]
    ) -> Row:
        """Submits a review with its code-line comments: one event without any of them."""
        with self.store.tx():
            head = self.events.pulls.ends(repo, issue, self.events.pulls.pull_row(issue)).head_sha
            at = now()
            review_id = self.store.insert(
                "review", issue_id=issue["id"], reviewer_id=who["id"], type=kind, body=body, commit_id=head, created=at
            )
            for path, line, text in lines:
                self._code_comment(issue, who, text, review_id, path, line)
            self.store.update("issue", issue["id"], updated=at)
            review = self.store.get("review", review_id)
            self.events.reviewed(repo, issue, review, who)
        self.hooks.wake()
        return review

    def answer_line(self, repo: Row, issue: Row, who: Row, body: str, *, review_id: int, path: str, line: int) -> Row:
        """Writes a reply in a code-line thread: the event looks like any comment, the comment list never shows it."""
        with self.store.tx():
            comment = self._code_comment(issue, who, body, review_id, path, line)
            self.store.update("issue", issue["id"], updated=now())
            self.events.comment("created", repo, issue, comment, who)
        self.hooks.wake()
        return comment

    def _code_comment(self, issue: Row, who: Row, body: str, review_id: int, path: str, line: int) -> Row:
        at = now()
        comment_id = self.store.insert(
            "comment", issue_id=issue["id"], kind="code", poster_id=who["id"], body=body, created=at, updated=at,
            review_id=review_id, path=path, line=line,
        )  # fmt: skip
        return self.store.get("comment", comment_id)

    # --- branches -----------------------------------------------------------------------------------------------------

    def landed(self, repo: Row, before: dict[str, str], after: dict[str, str], pusher: Row) -> None:
        """Takes note of moved refs: pull request heads follow, gone head branches close theirs, hooks hear of it."""
        moved = {ref: (before.get(ref, ZERO), after.get(ref, ZERO)) for ref in sorted({*before, *after})}
        with self.store.tx():
            for ref, (old, new) in moved.items():
                if old == new:
                    continue
                self.store.update("repo", repo["id"], updated=now())
                self.events.pushed(repo, ref, old, new, pusher)
                if ref.startswith("refs/heads/"):
                    self._follow(repo, ref.removeprefix("refs/heads/"), new, pusher)
        self.hooks.wake()

    def _follow(self, repo: Row, branch: str, tip: str, pusher: Row) -> None:
        sql = """SELECT issue.* FROM issue JOIN pull ON pull.issue_id=issue.id WHERE issue.repo_id=?
                 AND head_branch=? AND head_repo_id=0 AND state='open' AND NOT merged"""
        for issue in self.store.many(sql, repo["id"], branch):
            if tip == ZERO:
                self.edit_issue(repo, issue, pusher, state="closed")
                continue
            self.views.bare(repo["id"]).set_ref(f"refs/pull/{issue['number']}/head", tip)
            self.store.update("issue", issue["id"], updated=now())
            self.events.synchronized(repo, self.store.get("issue", issue["id"]), pusher)

    def delete_branch(self, repo: Row, branch: str, who: Row) -> None:
        """Removes a branch."""
        bare = self.views.bare(repo["id"])
        before = bare.refs()
        bare.set_ref(f"refs/heads/{branch}", None)
        self.landed(repo, before, bare.refs(), who)
