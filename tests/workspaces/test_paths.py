from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stationmaster.errors import Invalid
from stationmaster.workspaces import paths
from stationmaster.workspaces.paths import Layout


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a\\b", "a\0b", "-rf", "/etc", "", "a..b", ".hidden"])
def test_names_that_could_leave_the_root_are_refused(name: str) -> None:  # GW-R-033
    for pair in ((name, "repo"), ("owner", name)):
        with pytest.raises(Invalid) as refused:
            paths.check_name(*pair)
        assert refused.value.code == "invalid_payload"


@pytest.mark.parametrize("name", ["acme", "parcel.js", "a-b_c", "Ünïcode", "x"])
def test_ordinary_names_pass(name: str) -> None:
    paths.check_name(name, name)


def test_the_layout_keeps_a_repository_together(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert layout.bare("repo_1").parent == layout.tree("repo_1", "issue-7").parent.parent
    assert layout.nested("run_1") == tmp_path / "runs" / "run_1" / "nested"
    assert Layout(tmp_path, tmp_path / "elsewhere").nested("run_1") == tmp_path / "elsewhere" / "run_1" / "nested"


@pytest.mark.parametrize("name", ["..", "a/b", "", "a.lock", "-x", "a b", "a\nb", ".git", "x" * 200, "a..b", "a."])
def test_only_plain_words_become_folders(tmp_path: Path, name: str) -> None:
    layout = Layout(tmp_path)
    for make in (layout.bare, layout.nested, lambda word: layout.tree("repo_1", word)):
        with pytest.raises(Invalid):
            make(name)


def test_a_path_inside_the_root_passes_before_and_after_it_exists(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert paths.ensure_inside(tmp_path, path) == path
    path.mkdir(parents=True)
    assert paths.ensure_inside(tmp_path, path) == path


def test_the_root_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert paths.ensure_inside(tmp_path / "link", tmp_path / "link" / "a")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "relative"])
def test_a_path_outside_the_root_is_refused(tmp_path: Path, path: str) -> None:
    target = Path(path) if path == "relative" else tmp_path / path
    with pytest.raises(Invalid) as refused:
        paths.ensure_inside(tmp_path, target)
    assert refused.value.code == "workspace_path_invalid"  # GW-R-131


def test_a_link_on_the_way_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "in").symlink_to(root / "real")
    (root / "round").symlink_to(root / "round")
    for name in ("out", "in", "round"):
        with pytest.raises(Invalid, match="symbolic link"):
            paths.ensure_inside(root, root / name / "x")


@pytest.mark.parametrize("sha", ["", "HEAD", "a" * 39, "A" * 40, "a" * 41, "--all", "a" * 40 + "\n"])
def test_only_whole_commit_ids_pass(sha: str) -> None:
    with pytest.raises(Invalid):
        paths.check_sha(sha)
    assert paths.check_sha("a" * 40) == "a" * 40
    assert paths.check_sha("0" * 64) == "0" * 64


_PIECES = ["a", "B", "7", "-", ".", "..", "/", "//", "@", "{", "@{", "~", "^", ":", "?", "*", "[", "\\", " ", "\x7f",
           "\x01", ".lock", "é", "_", "HEAD", "heads"]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5).map("".join))
def test_branch_names_are_judged_as_git_judges_them(name: str) -> None:  # GW-R-132
    git = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=False, capture_output=True)
    by_git = git.returncode == 0 and not name.startswith("-") and name != "HEAD"
    try:
        paths.check_branch(name)
        by_us = True
    except Invalid:
        by_us = False
    assert by_us == by_git


def test_references_are_full_names() -> None:
    assert paths.check_ref("refs/remotes/origin/main") == "refs/remotes/origin/main"
    for name in ("main", "--upload-pack=x", "heads/main", "refs/heads/a..b", "refs/"):
        with pytest.raises(Invalid):
            paths.check_ref(name)
