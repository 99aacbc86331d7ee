"""What a bare repository holds of ours travels in one file, whole, and without the forge."""

from __future__ import annotations

from pathlib import Path

import pytest

from stationmaster.errors import Invalid
from stationmaster.workspaces import bundles, mirror, worktree
from tests.workspaces.conftest import BRANCH, Place


def test_a_repository_made_of_a_bundle_has_our_branches_and_goes_on(ready: Place, tmp_path: Path) -> None:
    (ready.tree / "new.txt").write_text("work\n")
    saved = ready.save().after
    folder = tmp_path / "copies"
    folder.mkdir()
    heads = bundles.write(ready.git, ready.bare, folder / "one.bundle")
    assert heads == {f"refs/heads/{BRANCH}": saved}
    bare = ready.layout.bare("repo_2")
    assert bundles.plant(ready.git, bare, str(ready.remote), folder / "one.bundle") == heads
    assert mirror.ensure(ready.git, bare, str(ready.remote), None) is False
    mirror.fetch(ready.git, bare, None)
    tree = ready.layout.tree("repo_2", "issue-7")
    worktree.ensure(ready.git, bare, tree, BRANCH, ready.main())
    assert (tree / "new.txt").read_text() == "work\n"
    assert mirror.push(ready.git, bare, None, saved, BRANCH).kind == "done"


def test_a_repository_without_branches_of_ours_needs_no_bundle(place: Place, tmp_path: Path) -> None:
    place.clone()
    assert bundles.write(place.git, place.bare, tmp_path / "one.bundle") == {}
    assert not (tmp_path / "one.bundle").exists()


def test_a_damaged_bundle_is_refused(ready: Place, tmp_path: Path) -> None:
    file = tmp_path / "one.bundle"
    bundles.write(ready.git, ready.bare, file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    bare = ready.layout.bare("repo_2")
    with pytest.raises(Invalid, match=r"one\.bundle"):
        bundles.plant(ready.git, bare, str(ready.remote), file)
    assert not bare.exists()
