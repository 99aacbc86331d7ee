"""The bare repository of one forge repository: made once, fetched, asked, pushed from; never forced, never mirrored.

Remote branches live under refs/remotes/origin; our task branches under refs/heads are never a fetch target, so no
fetch can overwrite or prune them (architecture §8, GW-R-129).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from stationmaster import faults
from stationmaster.errors import Invalid, Unavailable
from stationmaster.workspaces import paths
from stationmaster.workspaces.failures import Result, error_of, words
from stationmaster.workspaces.git import Git, GitCredential

REFSPEC = "+refs/heads/*:refs/remotes/origin/*"
_CONFIG = (
    ("remote.origin.fetch", REFSPEC),
    ("core.logAllRefUpdates", "true"),
    ("gc.auto", "0"),
)
_FETCH = ("fetch", "--quiet", "--prune", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")


@dataclass(frozen=True, slots=True)
class PushOutcome:
    """What became of a push.

    `unknown` means that the connection ended before an answer: read `remote_tip` back. `words` are the forge's own,
    shortened and redacted. Every reason of a refusal is definite: the branch was not moved.
    """

    kind: Literal["done", "refused", "unknown"]
    reason: Literal["", "non_fast_forward", "protected", "forbidden", "hook", "auth", "missing", "other"] = ""
    words: str = ""


def part_of(bare: Path) -> Path:
    """Returns where a clone grows until it is whole."""
    return bare.with_name(f"{bare.name}.part")


def check_url(git: Git, url: str) -> None:
    """Raises Invalid for an address that git should never be given: another transport, or a name or word in it."""
    parts = urlsplit(url)
    by_path = git.allows_path(url)
    if not by_path and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise Invalid("The clone address is not http or https.", code="invalid_payload")
    if parts.username is not None or parts.password is not None:
        raise Invalid("The clone address holds a user name or password.", code="invalid_payload")


def ensure(git: Git, bare: Path, url: str, credential: GitCredential | None) -> bool:
    """Makes the bare repository when it is missing, and tells whether it did; else only keeps its address current.

    A clone grows in `<bare>.part` and is renamed when it is whole (GW-R-126). A `.part` that is already there stops
    it: the caller knows whose it is, and may move its own away with `worktree.orphan`.
    """
    check_url(git, url)
    if bare.is_dir():
        if address(git, bare) != url:
            git.bare(bare, "config", "remote.origin.url", url)
        return False
    part = part_of(bare)
    if part.exists():
        raise Unavailable(
            f"An unfinished clone is in the way: {part}.",
            code="workspace_missing",
            hint="If it holds nothing you need, move it away; then unblock the task.",
        )
    # Refusals and wrong addresses show here, before anything is on disk that somebody would have to move away.
    git.anywhere("ls-remote", "--quiet", "--", url, "HEAD", credential=credential)
    begin(git, part, url)
    fetch(git, part, credential)
    faults.point("workspace.clone.before_rename")
    part.rename(bare)
    return True


def begin(git: Git, part: Path, url: str) -> None:
    """Makes an empty repository that knows its forge, in a folder that is not there yet."""
    part.mkdir(parents=True)
    git.bare(part, "init", "--quiet", "--bare", "--template=", "--initial-branch=main")
    (part / "hooks").mkdir()
    for key, value in (("remote.origin.url", url), *_CONFIG):
        git.bare(part, "config", key, value)


def address(git: Git, bare: Path) -> str:
    """Returns the address of the forge that a repository knows."""
    return git.bare(bare, "config", "--get", "remote.origin.url", check=False).stdout.rstrip("\n")


def fetch(git: Git, bare: Path, credential: GitCredential | None, extra_refspecs: Sequence[str] = ()) -> None:
    """Brings every remote branch to refs/remotes/origin, and forgets those that are gone; moves no branch of ours.

    `extra_refspecs` are such as `+refs/pull/7/head:refs/remotes/pull/7/head`; their targets stay under refs/remotes.
    """
    for extra in extra_refspecs:
        _check_refspec(extra)
    git.bare(bare, *_FETCH, "--", "origin", REFSPEC, *extra_refspecs, credential=credential, network=True)


def pull_refspec(number: int) -> str:
    """Returns what fetches the head of a pull request, also one from a fork (GW-R-129)."""
    return f"+refs/pull/{number}/head:{pull_ref(number)}"


def pull_ref(number: int) -> str:
    """Returns where the head of a pull request is kept after a fetch with `pull_refspec`."""
    return f"refs/remotes/pull/{number}/head"


def _check_refspec(spec: str) -> None:
    source, _, target = spec.removeprefix("+").partition(":")
    paths.check_ref(source)
    paths.check_ref(target)
    if not target.startswith("refs/remotes/") or target.startswith("refs/remotes/origin/"):
        raise Invalid(f"{target!r} may not be a fetch target.", code="workspace_path_invalid")


def remote_tip(git: Git, bare: Path, credential: GitCredential | None, branch: str) -> str | None:
    """Asks the forge where a branch is now; None when it has none."""
    ref = paths.check_branch(branch)
    asked = git.bare(bare, "ls-remote", "--quiet", "--refs", "--", "origin", ref, credential=credential, network=True)
    # The pattern also matches the tail of longer names.
    found = [line.split("\t", 1)[0] for line in asked.stdout.splitlines() if line.endswith(f"\t{ref}")]
    return found[0] if found else None


def holds(git: Git, bare: Path, credential: GitCredential | None, branch: str, sha: str) -> bool:
    """Proves whether the forge's branch contains `sha`: the read-back of a push, also when somebody pushed after us."""
    there = remote_tip(git, bare, credential, branch)
    if there is None or there == sha:
        return there == sha
    if tip(git, bare, there) is None:
        fetch(git, bare, credential)
    return is_ancestor(git, bare, sha, there)


def default_branch(git: Git, bare: Path, credential: GitCredential | None) -> str | None:
    """Asks the forge for its default branch; None when the repository has no commits."""
    asked = git.bare(
        bare, "ls-remote", "--quiet", "--symref", "--", "origin", "HEAD", credential=credential, network=True
    )
    symbolic = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", asked.stdout, re.MULTILINE)
    born = re.search(r"^[0-9a-f]{40,64}\tHEAD$", asked.stdout, re.MULTILINE)
    return symbolic[1] if symbolic and born else None


def tip(git: Git, bare: Path, ref: str) -> str | None:
    """Returns the commit that a full reference or a commit id names here, or None."""
    if "/" in ref:
        paths.check_ref(ref)
    else:
        paths.check_sha(ref)
    asked = git.bare(bare, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", check=False)
    return asked.stdout.strip() or None


def local_tip(git: Git, bare: Path, branch: str) -> str | None:
    """Returns the tip of a branch of ours, or None."""
    return tip(git, bare, paths.check_branch(branch))


def remote_tracking_tip(git: Git, bare: Path, branch: str) -> str | None:
    """Returns where the forge's branch was at the last fetch, or None."""
    paths.check_branch(branch)
    return tip(git, bare, f"refs/remotes/origin/{branch}")


def is_ancestor(git: Git, bare: Path, a: str, b: str) -> bool:
    """Tells whether commit `b` contains commit `a`; a commit that is not here is contained in nothing."""
    asked = git.bare(bare, "merge-base", "--is-ancestor", paths.check_sha(a), paths.check_sha(b), check=False)
    if asked.code not in {0, 1} and tip(git, bare, a) and tip(git, bare, b):
        raise error_of(asked, what="merge-base", network=False, seconds=git.timeout_s)
    return asked.code == 0


def merge_base(git: Git, bare: Path, a: str, b: str) -> str | None:
    """Returns the newest common ancestor of two commits, or None when they share none."""
    asked = git.bare(bare, "merge-base", paths.check_sha(a), paths.check_sha(b), check=False)
    return asked.stdout.strip() or None


def branches(git: Git, bare: Path, prefix: str) -> frozenset[str]:
    """Returns the names, ours and the forge's, of all branches that start with `prefix`."""
    listed = git.bare(bare, "for-each-ref", "--format=%(refname)", "refs/heads/", "refs/remotes/origin/")
    names = {
        ref.split("/", 2)[2] if ref.startswith("refs/heads/") else ref.split("/", 3)[3]
        for ref in listed.stdout.splitlines()
    }
    return frozenset(name for name in names if name.startswith(prefix))


def rename_branch(git: Git, bare: Path, old: str, new: str) -> None:
    """Renames a branch of ours, never over another; a worktree that stands on it stands on the new name afterwards.

    Doing it again changes nothing.
    """
    before, after = local_tip(git, bare, old), local_tip(git, bare, new)
    if before is None and after is not None:
        return
    moved = git.bare(bare, "branch", "--move", "--", old, new, check=False)
    # Git renames first and looks for a section of the branch in `config` last; ours have none, so a lock there only
    # makes it say that it failed. A second try would not find the old name any more.
    if (moved.code or moved.timed_out) and (local_tip(git, bare, old), local_tip(git, bare, new)) != (None, before):
        raise error_of(moved, what="branch", network=False, seconds=git.timeout_s)


def push(git: Git, bare: Path, credential: GitCredential | None, sha: str, branch: str) -> PushOutcome:
    """Moves the forge's branch forward to `sha`, never by force, and says what came of it.

    Nothing is raised for what the forge answered; only for what keeps git from running at all.
    """
    refspec = f"{paths.check_sha(sha)}:{paths.check_branch(branch)}"
    done = git.bare(
        bare,
        "push",
        "--porcelain",
        "--no-verify",
        "--no-progress",
        "--",
        "origin",
        refspec,
        credential=credential,
        network=True,
        check=False,
    )
    return outcome_of(done)


def outcome_of(done: Result) -> PushOutcome:
    """Reads git's report about one reference; what no report and no status explains is unknown."""
    said = words(done.stderr)
    report = re.search(r"^([ +\-*=!])\t[^\t\n]*\t(.*)$", done.stdout, re.MULTILINE)
    if report is None or done.timed_out:
        refused = None if done.timed_out else _refused_before(said)
        return PushOutcome("refused", refused, said) if refused else PushOutcome("unknown", words=said)
    flag, summary = report[1], report[2]
    if flag != "!":
        return PushOutcome("done")
    everything = words(f"{done.stderr}\n! {summary}")
    if "[remote failure]" in summary or "remote failed to report status" in summary:
        return PushOutcome("unknown", words=everything)
    if "[remote rejected]" not in summary:
        behind = ("non-fast-forward", "fetch first", "stale info", "needs force")
        return PushOutcome("refused", "non_fast_forward" if any(b in summary for b in behind) else "other", everything)
    if re.search(r"protected branch", f"{summary} {done.stderr}", re.IGNORECASE):
        return PushOutcome("refused", "protected", everything)
    return PushOutcome("refused", "hook" if "hook declined" in summary else "other", everything)


def _refused_before(said: str) -> Literal["auth", "forbidden", "missing", "other", ""]:
    # These come from the first request, before any reference was offered.
    if re.search(r"returned error: 403|HTTP 403", said):
        return "forbidden"
    if re.search(r"Authentication failed|could not read (Username|Password)|returned error: 401|HTTP 401", said):
        return "auth"
    if re.search(r"returned error: (404|30[12378])|repository '[^'\n]*' not found", said):
        return "missing"
    return "other" if re.search(r"src refspec .* does not match any|bad object", said) else ""
