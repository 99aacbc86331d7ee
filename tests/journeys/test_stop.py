"""An orderly stop: what was accepted is kept, and nobody waits for nothing."""

from __future__ import annotations

import time

from tests.journeys.rig import Rig


def test_what_was_accepted_just_before_a_stop_is_done_after_the_next_start(rig: Rig) -> None:
    task_id = rig.accepted(rig.mention())
    assert rig.product.stop() == 0
    rig.start()
    rig.proves(rig.rests(task_id))


def test_an_idle_product_stops_at_once(rig: Rig) -> None:
    rig.proves(rig.rests(rig.accepted(rig.mention())))
    began = time.monotonic()
    assert rig.product.stop() == 0
    assert time.monotonic() - began < 10
