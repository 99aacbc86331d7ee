"""Keeps the work of a bare repository in one file, and makes a bare repository of such a file again.

A bundle holds our branches with everything that leads to them, so it needs neither the forge nor the network.
"""

from __future__ import annotations

from pathlib import Path

from stationmaster.errors import Invalid, StationmasterError
from stationmaster.workspaces import mirror, paths
from stationmaster.workspaces.git import Git

_OURS = "refs/heads/"


def write(git: Git, bare: Path, file: Path) -> dict[str, str]:
    """Writes every branch of ours to `file`; returns their tips, none (and no file) when there are no branches."""
    if not git.bare(bare, "for-each-ref", "--count=1", _OURS).stdout.strip():
        return {}
    git.bare(bare, "bundle", "create", "--quiet", str(file), "--branches", filling=file.parent)
    return _heads(git.bare(bare, "bundle", "list-heads", str(file), filling=file.parent).stdout)


def plant(git: Git, bare: Path, url: str, file: Path) -> dict[str, str]:
    """Makes the bare repository of `url` from a bundle and proves that it is whole; returns the tips of its branches.

    Nothing may be there yet. What the forge has is fetched when the repository is used next.
    """
    mirror.check_url(git, url)
    part = mirror.part_of(bare)
    mirror.begin(git, part, url)
    try:
        told = git.bare(part, "bundle", "unbundle", str(file), filling=file.parent).stdout
        heads = _heads(told)
        orders = "".join(f"create {paths.check_ref(ref)} {paths.check_sha(sha)}\n" for ref, sha in heads.items())
        git.bare(part, "update-ref", "--stdin", input=orders)
        git.bare(part, "rev-list", "--objects", "--quiet", "--branches")
    except StationmasterError as error:
        raise Invalid(
            f"The bundle {file.name} does not make a whole repository: {error.message}", code="backup_damaged"
        ) from error
    part.rename(bare)
    return heads


def _heads(listed: str) -> dict[str, str]:
    rows = (line.split(" ", 1) for line in listed.splitlines() if " " in line)
    return {ref: sha for sha, ref in rows if ref.startswith(_OURS)}
