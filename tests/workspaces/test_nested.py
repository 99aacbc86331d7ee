from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stationmaster.workspaces import nested


@pytest.mark.parametrize(
    "name", [".git", ".GIT", ".Git", "git~1", "GIT~1", ".git ", ".git.", ".git . .", ".git::$DATA"]
)
def test_every_spelling_that_git_refuses_is_known(name: str) -> None:
    assert nested.is_dot_git(name)


@pytest.mark.parametrize("name", [".gitignore", ".gitmodules", ".github", "git", "x.git", "git~2", ".git-x", "..git"])
def test_ordinary_names_are_left(name: str) -> None:
    assert not nested.is_dot_git(name)


def test_it_finds_folders_files_and_links_but_never_follows_one(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    outside = tmp_path / "outside"
    (outside / ".git").mkdir(parents=True)
    (tree / ".git").mkdir(parents=True)
    (tree / "a" / ".git" / "deep" / ".git").mkdir(parents=True)
    (tree / "b").mkdir()
    (tree / "b" / ".git").write_text("gitdir: /elsewhere")
    (tree / "c").mkdir()
    (tree / "c" / ".GIT").symlink_to("/nowhere")
    (tree / "link").symlink_to(outside)
    assert nested.find(tree) == ["a/.git", "b/.git", "c/.GIT"]


def test_a_move_never_overwrites(tmp_path: Path) -> None:
    to = tmp_path / "run" / "nested"
    for number in range(3):
        (tmp_path / "tree" / "a" / ".git").mkdir(parents=True)
        (tmp_path / "tree" / "a" / ".git" / "HEAD").write_text(str(number))
        nested.move_out(tmp_path / "tree", "a/.git", to)
    kept = [(to / "a" / name / "HEAD").read_text() for name in (".git", ".git.2", ".git.3")]
    assert kept == ["0", "1", "2"]
    assert not (tmp_path / "tree" / "a" / ".git").exists()


def test_a_link_moves_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".GIT").symlink_to("/nowhere")
    assert nested.move_out(tmp_path / "tree", ".GIT", tmp_path / "to").is_symlink()


def test_another_file_system_is_reached_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / "a" / ".git").mkdir(parents=True)
    (tmp_path / "tree" / "a" / ".git" / "HEAD").write_text("x")

    def other_device(self: Path, target: Path) -> Path:
        raise OSError(errno.EXDEV, "other device")

    monkeypatch.setattr(Path, "rename", other_device)
    moved = nested.move_out(tmp_path / "tree", "a/.git", tmp_path / "to")
    assert (moved / "HEAD").read_text() == "x"
