"""Git's pre-receive and post-receive hooks of the stand-in, in Gitea's words.

Runs as a script of its own inside a push, so it imports nothing but the standard library; the server puts the rules
for this pusher into FORGE_RULES.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Callable

ZERO = "0" * 40


def refusal(rules: dict[str, object], old: str, new: str, ref: str, is_forced: Callable[[str, str], bool]) -> str:
    """Returns why this ref may not move, or nothing."""
    if not rules["can_write"]:
        return "User permission denied for writing."
    return _branch_refusal(rules, old, new, ref, is_forced) if ref.startswith("refs/heads/") else ""


def _branch_refusal(
    rules: dict[str, object], old: str, new: str, ref: str, is_forced: Callable[[str, str], bool]
) -> str:
    branch = ref.removeprefix("refs/heads/")
    if new == ZERO and branch == rules["default_branch"]:
        return f"branch {branch} is the default branch and cannot be deleted"
    protections = rules["protections"]
    rule = next((r for r in protections if fnmatch.fnmatchcase(branch, r["rule"])), None)  # type: ignore[attr-defined]
    if rule is None:
        return ""
    if new == ZERO:
        return f"branch {branch} is protected from deletion"
    if old != ZERO and is_forced(old, new) and not rule["can_force"]:
        return f"branch {branch} is protected from force push"
    return "" if rule["can_push"] else f"Not allowed to push to protected branch {branch}"


def _is_forced(old: str, new: str) -> bool:
    words = ["git", "rev-list", "--max-count=1", old, f"^{new}"]
    return bool(subprocess.run(words, capture_output=True, check=False).stdout.strip())


def _pre_receive(rules: dict[str, object]) -> int:
    for line in sys.stdin:
        old, new, ref = line.rstrip("\n").split(" ", 2)
        words = refusal(rules, old, new, ref, _is_forced)
        if words:
            sys.stderr.write(f"error:\nerror: {words}\nerror:\n")
            return 1
    return 0


def _post_receive(rules: dict[str, object]) -> int:
    pulls: dict[str, str] = rules["pulls"]  # type: ignore[assignment]
    for line in sys.stdin:
        _, new, ref = line.rstrip("\n").split(" ", 2)
        branch = ref.removeprefix("refs/heads/")
        if new == ZERO or branch == rules["default_branch"] or not ref.startswith("refs/heads/"):
            continue
        where = pulls.get(branch)
        head = "Visit the existing pull request:" if where else f"Create a new pull request for '{branch}':"
        sys.stderr.write(f"\n{head}\n  {where or rules['new_pull'] + branch}\n\n")  # type: ignore[operator]
    return 0


if __name__ == "__main__":
    sys.exit((_pre_receive if sys.argv[1] == "pre-receive" else _post_receive)(json.loads(os.environ["FORGE_RULES"])))
