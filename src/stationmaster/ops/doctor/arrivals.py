"""Checks of how mentions arrive: whether the webhook's address takes deliveries, and how far the forge was read."""

from __future__ import annotations

from collections.abc import Iterator

from stationmaster.clock import MICROS, iso
from stationmaster.errors import StationmasterError
from stationmaster.ops import config as configuration
from stationmaster.ops.doctor import database
from stationmaster.ops.doctor.report import Finding, ok, warn
from stationmaster.ops.home import Home
from stationmaster.ops.init import proof
from stationmaster.ops.settings import Config

# A round of readings that is this many times overdue is told.
_OVERDUE = 3


def webhook(config: Config, forge: str = configuration.DEFAULT) -> Iterator[Finding]:
    """Tells whether a signed test delivery is taken where the forge is told to send them; it starts nothing."""
    given = configuration.forges(config).get(forge)
    if given is None or given.webhook_secret_ref is None:
        return
    if not config.web.public_url:
        yield ok("webhook", "It is not tried whether deliveries arrive: web.public_url does not say where they go.")
        return
    path = "/api/gitea/webhook" + ("" if forge == configuration.DEFAULT else f"/{forge}")
    url = config.web.public_url.rstrip("/") + path
    try:
        secret = given.webhook_secret_ref.reveal().strip()
    except StationmasterError:
        # The line about secrets says why.
        return
    wrong = proof.round_trip(url, secret)
    if wrong:
        yield warn("webhook", wrong, "Mentions are then found by reading only, which takes minutes.")
    else:
        yield ok("webhook", f"{url} takes signed deliveries.")


def reading(place: Home, config: Config) -> Iterator[Finding]:
    """Tells how far each forge was read for what no webhook brought."""
    for row in database.readings(place, config):
        name, every_s = str(row["instance_id"]), config.gitea.catchup.every_s
        unread = int(row["unread"])
        if row["round_at"] is None:
            yield warn("reading", f"The forge {name} was never read through.", "It is read when Stationmaster runs.")
            continue
        age_s = (int(row["now"]) - int(row["round_at"])) / MICROS
        at = iso(int(row["round_at"]))
        if unread:
            why = str(row["error_code"] or "The log says why.")
            yield warn("reading", f"{unread} repositories of {name} could not be read last.", why)
        elif age_s > _OVERDUE * every_s:
            yield warn("reading", f"The forge {name} was read through last at {at}.", "Look at daemon and forge.")
        else:
            yield ok("reading", f"The forge {name} was read through at {at}, {row['watched']} repositories.")
