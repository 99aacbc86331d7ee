"""What of the machine a run may see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stationmaster.agents import isolation
from stationmaster.agents.codex_app.settings import packaged_binary
from stationmaster.agents.isolation import Rooms


def rooms(tmp_path: Path) -> Rooms:
    made = [tmp_path / name for name in ("tree", "bare", "home", "temp", "mount")]
    for folder in made:
        folder.mkdir()
    (tmp_path / "tree" / ".git").write_text("gitdir: x\n")
    tree, bare, home, temp, mount = made
    return Rooms(packaged_binary(), tree, bare, home, temp, mounts=(mount,))


def test_the_box_shows_the_run_and_nothing_else(tmp_path: Path) -> None:
    given = rooms(tmp_path)
    box = isolation.box(given)
    package = packaged_binary().resolve().parent.parent
    assert box.read_write == (given.worktree, given.provider_home, given.temp)
    assert box.read_only == (package, *given.mounts, given.bare)
    assert box.read_only_over == (given.worktree / ".git",)
    assert (box.cwd, box.network, box.nested) == (given.worktree, True, True)


def test_the_whole_package_is_shown_and_a_foreign_binary_brings_its_folder(tmp_path: Path) -> None:
    package = isolation.package_folder(packaged_binary())
    assert (package / "codex-package.json").is_file()
    lone = tmp_path / "bin" / "codex"
    lone.parent.mkdir()
    lone.touch()
    (tmp_path / "link").symlink_to(lone)
    assert isolation.package_folder(tmp_path / "link") == lone.parent


def test_isolation_is_only_left_out_by_choice(tmp_path: Path) -> None:
    given = rooms(tmp_path)
    assert isolation.wrap("codex_only", given, ["codex", "x"]) == ["codex", "x"]
    wrapped = isolation.wrap("required", given, ["codex", "x"], bwrap="/opt/bwrap")
    assert wrapped[0] == "/opt/bwrap"
    assert wrapped[-3:] == ["--", "codex", "x"]
    assert "--disable-userns" not in wrapped


def test_mounted_toolchains_are_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "go" / "bin").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    path = isolation.search_path([tmp_path / "go", tmp_path / "data"])
    assert path == f"/usr/local/bin:/usr/bin:/bin:{tmp_path}/go/bin"


def test_a_worktree_without_git_has_nothing_to_lay_over_it(tmp_path: Path) -> None:
    given = rooms(tmp_path)
    (given.worktree / ".git").unlink()
    assert isolation.box(replace(given, mounts=())).read_only_over == ()
