"""A program that writes and says what was acknowledged; it dies at a named place. Run by `test_ledger`."""

from __future__ import annotations

import sys

from stationmaster import faults
from stationmaster.clock import SystemClock
from stationmaster.ledger.ledger import Ledger
from tests.contract.test_commands import cmd, post
from tests.crash.places import COUNT, place
from tests.ledger import parcels


def tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main(where: str, point: str, nth: str) -> None:
    with Ledger.open(place(where), [parcels.SLICE], clock=SystemClock()) as ledger:
        faults.arm(point, nth=int(nth))
        for number in range(COUNT):
            ledger.do(cmd(dedupe=f"r{number}"), post, f"p{number}", address=f"a{number}")
            tell(number)
        # What waits while a group is written becomes the next group.
        waiting = [
            ledger.submit(cmd(dedupe=f"r{number}"), post, f"p{number}", address=f"a{number}")
            for number in range(COUNT, 2 * COUNT)
        ]
        for number, future in enumerate(waiting, COUNT):
            future.result(30)
            tell(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
