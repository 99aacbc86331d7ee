"""K11: a known secret is shown by nothing; a reference shows where it is, never what it is."""  # GW-R-239

from __future__ import annotations

import pytest

from stationmaster import redact
from stationmaster.redact import MASK, Secret


def test_known_secrets_are_masked_wherever_they_stand() -> None:
    redact.register("sesame-41")
    redact.register("sesame-41-and-more")
    redact.register("sesame-41")
    assert redact.clean("a sesame-41 b sesame-41-and-more.") == f"a {MASK} b {MASK}."


def test_a_secret_is_matched_as_written() -> None:
    redact.register("se.ame(42")
    assert redact.clean("se.ame(42") == MASK
    assert redact.clean("seXame(42") == "seXame(42"


def test_a_short_value_would_mask_ordinary_words() -> None:
    redact.register("admin")
    assert redact.clean("the admin") == "the admin"


def test_a_reference_reveals_only_on_demand_and_registers() -> None:
    reads: list[str] = []

    def read() -> str:
        reads.append("read")
        return "sesame-43"

    secret = Secret("file:/run/key", read)
    assert repr(secret) == "Secret('file:/run/key')"
    assert reads == []
    assert secret.reveal() == "sesame-43"
    assert redact.clean("it is sesame-43") == f"it is {MASK}"


def test_a_reader_that_fails_is_heard() -> None:
    def read() -> str:
        raise FileNotFoundError("no such file")

    with pytest.raises(FileNotFoundError):
        Secret("file:/nowhere", read).reveal()
