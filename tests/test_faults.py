"""K10: a named place kills the process, at the pass that was asked for and nowhere else."""

from __future__ import annotations

import signal
import subprocess
import sys

SCRIPT = """
from stationmaster import faults
faults.arm("here.there", nth=3)
for number in range(5):
    faults.point("elsewhere.too")
    print(number, flush=True)
    {disarm}
    faults.point("here.there")
"""


def run(disarm: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(disarm=disarm)], capture_output=True, text=True, check=False, timeout=60
    )


def test_it_dies_at_the_pass_that_was_asked_for() -> None:
    done = run()
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["0", "1", "2"])


def test_a_disarmed_point_is_only_a_name() -> None:
    done = run("faults.disarm()")
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2", "3", "4"])
