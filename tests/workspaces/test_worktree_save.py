"""What an agent left is saved as a commit, whatever it left, and nothing of it runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from stationmaster.errors import Unavailable
from stationmaster.workspaces import mirror, worktree
from stationmaster.workspaces.failures import Result
from tests.workspaces.conftest import BRANCH, Place, person
from tests.workspaces.test_worktree import ADMIN


def test_everything_an_agent_left_is_saved(ready: Place) -> None:
    tree = ready.tree
    (tree / "line\nbreak.txt").write_text("n")
    (tree / "umlaut ü.txt").write_text("u")
    Path(os.fsdecode(bytes(tree) + b"/bytes-\xff")).write_text("b")
    (tree / "-rf").write_text("dash")
    (tree / ":(top)odd").write_text("magic")
    (tree / "src" / "app.py").unlink()
    (tree / "README.md").chmod(0o755)
    (tree / "link").symlink_to("/etc/passwd")
    (tree / "empty").mkdir()
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "er" / "x").write_text("x")
    person("add", "--intent-to-add", "umlaut ü.txt", cwd=tree)
    saved = ready.save("stationmaster: task_1 t1 answered\n\nMore.")
    assert saved.changed
    assert saved.before == ready.main()
    assert ready.inspect().problem is None
    assert ready.inspect().head == saved.after
    names = ready.saved_files(saved.after)
    assert {"line\nbreak.txt", "umlaut ü.txt", "-rf", ":(top)odd", "link", "deep/er/x"} <= names
    assert "src/app.py" not in names
    assert len([name for name in names if name.startswith("bytes-")]) == 1
    modes = person("-C", str(ready.bare), "ls-tree", saved.after)
    assert "120000" in modes
    assert "100755" in modes
    assert person("-C", str(ready.bare), "cat-file", "-p", saved.after).splitlines()[1] == f"parent {saved.before}"
    log = person("-C", str(ready.bare), "log", "-1", "--format=%an|%ae|%cn|%ce|%B", saved.after)
    assert log == "Station Bot|bot@example.test|Station Bot|bot@example.test|stationmaster: task_1 t1 answered\n\nMore."


def test_an_unchanged_tree_makes_no_commit(ready: Place) -> None:
    os.utime(ready.tree / "README.md", (1, 1))
    assert ready.save() == worktree.Saved(ready.main(), ready.main(), changed=False)
    assert ready.save("again").after == ready.main()


def test_a_file_that_is_replaced_by_a_folder_and_back(ready: Place) -> None:
    (ready.tree / "README.md").unlink()
    (ready.tree / "README.md").mkdir()
    (ready.tree / "README.md" / "x").write_text("x")
    assert "README.md/x" in ready.saved_files(ready.save().after)
    (ready.tree / "README.md" / "x").unlink()
    (ready.tree / "README.md").rmdir()
    (ready.tree / "README.md").write_text("file")
    assert "README.md" in ready.saved_files(ready.save().after)


def test_a_pipe_or_socket_is_passed_over(ready: Place) -> None:
    os.mkfifo(ready.tree / "pipe")
    (ready.tree / "x.txt").write_text("x")
    assert "pipe" not in ready.saved_files(ready.save().after)
    assert stat.S_ISFIFO((ready.tree / "pipe").lstat().st_mode)
    assert ready.inspect().problem is None


def test_a_large_file_is_saved(ready: Place) -> None:
    with (ready.tree / "large.bin").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    saved = ready.save()
    size = person("-C", str(ready.bare), "cat-file", "-s", f"{saved.after}:large.bin")
    assert size == str(200 * 1024 * 1024)


def test_a_pointer_of_large_file_storage_stays_a_pointer(place: Place) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
    place.commit_at_remote("main", "film.bin", pointer)
    place.commit_at_remote("main", ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    place.ready()
    assert (place.tree / "film.bin").read_text() == pointer
    assert not place.save().changed


def test_nested_repositories_are_moved_away_and_their_files_saved(ready: Place) -> None:
    # Acceptance 3: an agent ran `git init` of its own.
    for folder in ("inner", "src", "inner/deeper"):
        person("init", "-q", str(ready.tree / folder))
        (ready.tree / folder / "made.txt").write_text(folder)
    person("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm", "x", cwd=ready.tree / "src")
    (ready.tree / "file-style").mkdir()
    (ready.tree / "file-style" / ".git").write_text("gitdir: /elsewhere\n")
    (ready.tree / "file-style" / "y").write_text("y")
    (ready.tree / ".GIT").mkdir()
    (ready.tree / ".GIT" / "config").write_text("odd")
    saved = ready.save()
    assert saved.nested == (".GIT", "file-style/.git", "inner/.git", "inner/deeper/.git", "src/.git")
    assert {"inner/made.txt", "src/made.txt", "inner/deeper/made.txt", "file-style/y"} <= ready.saved_files(saved.after)
    assert (ready.nested / "src" / ".git" / "HEAD").is_file()
    assert (ready.nested / "file-style" / ".git").read_text() == "gitdir: /elsewhere\n"
    assert ready.inspect().problem is None
    assert ready.save() == worktree.Saved(saved.after, saved.after, changed=False)


def test_repositories_in_an_ignored_folder_stay(ready: Place) -> None:
    person("init", "-q", str(ready.tree / "ignored" / "dep"))
    saved = ready.save()
    assert saved.nested == ()
    assert (ready.tree / "ignored" / "dep" / ".git" / "HEAD").is_file()


def with_submodule(place: Place) -> None:
    work = place.root / "sub-work"
    person("clone", "-q", str(place.remote), str(work))
    (work / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib.git\n')
    person("add", "-A", cwd=work)
    person("update-index", "--add", "--cacheinfo", f"160000,{person('rev-parse', 'HEAD', cwd=work)},lib", cwd=work)
    person("commit", "-qm", "Add lib", cwd=work)
    person("push", "-q", "origin", "HEAD:main", cwd=work)


def test_a_registered_submodule_is_left_alone(place: Place) -> None:
    with_submodule(place)
    place.ready()
    person("init", "-q", str(place.tree / "lib"))
    (place.tree / "lib" / "inside.txt").write_text("x")
    person("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm", "x", cwd=place.tree / "lib")
    assert place.inspect().problem is None
    (place.tree / "new.txt").write_text("x")
    saved = place.save()
    assert saved.nested == ()
    assert (place.tree / "lib" / ".git").is_dir()
    changed = person("-C", str(place.bare), "diff", "--name-only", saved.before, saved.after)
    assert changed == "new.txt"
    assert place.inspect().problem is None


def test_a_submodule_that_was_removed_is_saved_as_removed(place: Place) -> None:
    with_submodule(place)
    place.ready()
    (place.tree / "lib").rmdir()
    assert place.inspect().dirty == ("lib",)
    assert "lib" not in place.saved_files(place.save().after)
    assert place.inspect().problem is None


def trap(folder: Path, mark: Path) -> None:
    """Fills a repository's config with everything that makes git run a program when it reads the tree."""
    program = folder.parent / "program.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {mark}\ncat\n')
    program.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.editor", "core.sshCommand", "gpg.program",
                "filter.trap.clean", "filter.trap.smudge", "filter.trap.process", "diff.trap.textconv",
                "diff.trap.command", "merge.trap.driver", "alias.status", "core.askPass"):  # fmt: skip
        person("config", "-f", str(folder / "config"), key, str(program))
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    person("config", "-f", str(folder / "config"), "core.hooksPath", str(hooks))


def everything(place: Place, *, branch: str = "stationmaster/other") -> None:
    """Runs every verb that reads the tree."""
    place.inspect()
    place.save()
    place.inspect()
    worktree.switch(place.git, place.bare, place.tree, branch, place.main())
    worktree.fast_forward(place.git, place.bare, place.tree, place.main())


def test_config_and_filters_of_a_nested_repository_never_run(ready: Place, tmp_path: Path) -> None:
    # Architecture §8: core.fsmonitor and a clean filter in a nested repository leave no file behind.
    mark = tmp_path / "trapped"
    for name in ("inner", "src"):
        person("init", "-q", str(ready.tree / name))
        (ready.tree / name / "x.txt").write_text("x")
        person("add", "-A", cwd=ready.tree / name)
        trap(ready.tree / name / ".git", mark)
        (ready.tree / name / ".gitattributes").write_text("* filter=trap diff=trap merge=trap\n")
        (ready.tree / name / "x.txt").write_text("changed")
    (ready.tree / ".gitattributes").write_text("* filter=trap diff=trap merge=trap\n")
    everything(ready)
    assert not mark.exists()


def test_config_and_filters_of_a_submodule_never_run(place: Place, tmp_path: Path) -> None:
    mark = tmp_path / "trapped"
    with_submodule(place)
    place.ready()
    lib = place.tree / "lib"
    person("init", "-q", str(lib))
    (lib / "x.txt").write_text("x")
    person("add", "-A", cwd=lib)
    person("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", cwd=lib)
    trap(lib / ".git", mark)
    (lib / ".gitattributes").write_text("* filter=trap\n")
    (lib / "x.txt").write_text("changed")
    os.utime(lib / "x.txt", (5, 5))
    (place.tree / "new.txt").write_text("x")
    everything(place)
    assert not mark.exists()
    # The same look without our precautions springs the trap: it is a real one.
    person(f"--git-dir={place.bare / ADMIN}", f"--work-tree={place.tree}", "status", check=False)
    assert mark.exists()


@pytest.mark.parametrize("kind", ["folder", "file", "link", "gone"])
def test_a_replaced_git_file_leads_nowhere(ready: Place, tmp_path: Path, kind: str) -> None:
    # Architecture §8: a replaced `.git` leaves no file behind; explicit folders are used, never discovery.
    mark = tmp_path / "trapped"
    evil = tmp_path / "evil"
    person("init", "-q", str(evil))
    person("config", "core.worktree", str(ready.tree), cwd=evil)
    trap(evil / ".git", mark)
    (ready.tree / ".git").rename(tmp_path / "was")
    if kind == "folder":
        (evil / ".git").rename(ready.tree / ".git")
    elif kind == "file":
        (ready.tree / ".git").write_text(f"gitdir: {evil / '.git'}\n")
    elif kind == "link":
        (ready.tree / ".git").symlink_to(evil / ".git")
    (ready.tree / ".gitattributes").write_text("* filter=trap\n")
    (ready.tree / "new.txt").write_text("x")
    assert ready.inspect().head == ready.main()
    saved = ready.save()
    assert saved.nested == (() if kind == "gone" else (".git",))
    assert "new.txt" in ready.saved_files(saved.after)
    assert worktree.has_own_git_file(ready.bare, ready.tree)
    everything(ready)
    assert not mark.exists()


def test_the_trap_would_have_sprung(ready: Place, tmp_path: Path) -> None:
    # The same tree under plain git by discovery: proof that the traps above are real.
    mark = tmp_path / "trapped"
    person("init", "-q", str(ready.tree / "inner"))
    (ready.tree / "inner" / "x.txt").write_text("x")
    trap(ready.tree / "inner" / ".git", mark)
    person("status", cwd=ready.tree / "inner", check=False)
    assert mark.exists()


def test_a_save_that_fails_says_so_in_gits_words_and_may_be_repeated(ready: Place) -> None:
    (ready.tree / "new.txt").write_text("x")
    lock = ready.bare / ADMIN / "index.lock"
    lock.touch()
    with pytest.raises(Unavailable, match=r"index\.lock") as failed:
        ready.save()
    assert failed.value.code == "workspace_save_failed"
    moved = worktree.orphan(lock, 41)
    assert moved.name == "index.lock.orphan-41"
    assert ready.save().changed


def test_a_head_that_moved_under_a_save_is_not_overwritten(ready: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (ready.tree / "new.txt").write_text("x")
    other = ready.commit_at_remote("main", "n.txt", "1")
    mirror.fetch(ready.git, ready.bare, None)

    plain = ready.git.tree

    def meanwhile(bare: Path, tree: Path, *args: str, **options: Any) -> Result:
        if args[0] == "update-ref":
            person("-C", str(ready.bare), "update-ref", f"refs/heads/{BRANCH}", other)
        return plain(bare, tree, *args, **options)

    monkeypatch.setattr(ready.git, "tree", meanwhile)
    with pytest.raises(Unavailable) as failed:
        ready.save()
    assert failed.value.code == "workspace_save_failed"
    assert mirror.local_tip(ready.git, ready.bare, BRANCH) == other
