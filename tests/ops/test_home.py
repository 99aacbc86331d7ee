from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stationmaster.errors import Busy, Invalid
from stationmaster.ops import home


def test_the_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    made = home.prepare(tmp_path / "a" / "home")
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    assert list(made.path.iterdir()) == []


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(Invalid, match=r"is open to other users. Run: chmod 700"):
        home.prepare(tmp_path / "open")


def test_a_folder_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match=r"cannot be written: Not a directory. Choose another folder with --home"):
        home.prepare(tmp_path / "file" / "home")
    with pytest.raises(Invalid, match="cannot be written"):
        home.prepare(Path("/proc/stationmaster"))


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    made = home.prepare(tmp_path / "home")
    with (
        home.locked(made, wait_s=0),
        pytest.raises(Busy, match=f"is in use by process {os.getpid()}"),
        home.locked(made, wait_s=0.1),
    ):
        pass
    with home.locked(made, wait_s=0):
        pass


def test_the_worker_keeps_its_name(tmp_path: Path) -> None:
    made = home.prepare(tmp_path / "home")
    first = home.worker_id(made)
    assert first.startswith("worker_")
    assert home.worker_id(made) == first
    assert home.worker_id(home.prepare(tmp_path / "other")) != first
