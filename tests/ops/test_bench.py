"""The bench runs, prints its lines, and measured what it says it measured; how fast is nobody's assertion."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from stationmaster import canonical
from stationmaster.command import Cmd
from stationmaster.gitea import normalise, webhook
from stationmaster.ops.bench import accept, deliveries, seed
from stationmaster.ops.bench.plain import PlainAccept
from stationmaster.ops.bench.report import Report
from stationmaster.ops.bench.stores import Place, place
from tests.conftest import PostgresServer

Run = Callable[..., CompletedProcess[str]]
# What differs between any two writers of the same delivery: their own ids, their clock, and what they hash.
OWN = {"seq", "at", "args_hash", "received_at", "expires_at", "ready_at", "registered_at", "created_at", "updated_at"}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def counts(folder: Path) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(folder / "ledger.db")) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def test_accept_answers_only_what_is_stored(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    accept.run(accept.Plan(0.2, 1, (1, 3)), tmp_path, Report("accept", as_json=True))
    told = lines(capfd.readouterr().out)
    speeds = [(line["connections"], line["variant"]) for line in told if line["line"] == "speed"]
    assert speeds == [(at, variant) for at in (1, 3) for variant in ("product", "none", "plain")]
    assert {"machine", "ratio", "time at 1", "commits", "stored"} <= {line["line"] for line in told}
    for line in (line for line in told if line["line"] == "stored"):
        kept = counts(tmp_path / line["variant"])
        assert line["answered"] > 0
        assert kept["gitea_task"] == kept["gitea_delivery"] == kept["inbox"] == line["answered"]
        # A conversation, a birth and a move for each, beside one row for each repository.
        assert kept["journal"] == 3 * line["answered"] + kept["gitea_repository"]
    assert counts(tmp_path / "none")["gitea_task"] == 0


def one_delivery(here: Place, write: Callable[[normalise.Normalised, str], None]) -> dict[str, list[dict[str, Any]]]:
    made = deliveries.Deliveries()
    body = made.body(7)
    settings = deliveries.settings()
    rules = normalise.Rules(frozenset({"gitea.example.com:443"}), settings.bot_login)
    said = normalise.normalise(made.headers(7, body), body, rules)
    assert isinstance(said, normalise.Normalised)
    write(said, canonical.sha256(body))
    with contextlib.closing(sqlite3.connect(here.folder / "ledger.db")) as db:
        db.row_factory = sqlite3.Row
        return {
            table: [masked(dict(row)) for row in db.execute(f"SELECT * FROM {table}")]
            for table in counts(here.folder)
            if table not in {"edge", "schema_version"}
        }


def masked(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what is its writer's own; made ids keep their prefix."""
    kept = {name: value for name, value in row.items() if name not in OWN and not name.endswith("command")}
    return {
        name: value.partition("_")[0] if str(value).startswith(("repo_", "session_")) else value
        for name, value in kept.items()
    }


def test_bare_sql_writes_the_rows_that_the_ledger_writes(tmp_path: Path) -> None:
    def take(said: normalise.Normalised, payload_hash: str) -> None:
        actor, cause = f"gitea:user:{said.actor.login}", f"delivery:{said.delivery_id}"
        refs = {"delivery": said.delivery_id, "repo": said.repo_key}
        refs |= {"resource": said.resource_key, "session": said.resource_key}
        cmd = Cmd("webhook.take", actor, cause, refs=refs)
        with contextlib.closing(ours.ledger()) as ledger:
            ledger.do(cmd, webhook.take, said, payload_hash, deliveries.settings())

    def write(said: normalise.Normalised, payload_hash: str) -> None:
        theirs.ledger().close()
        with contextlib.closing(theirs.plain()) as store:
            PlainAccept(store)(said, payload_hash)

    with place(tmp_path, "ours", None) as ours, place(tmp_path, "theirs", None) as theirs:
        ledgers, bare = one_delivery(ours, take), one_delivery(theirs, write)
    for table, rows in ledgers.items():
        assert sorted(map(repr, rows)) == sorted(map(repr, bare[table])), table


def test_a_place_for_claims_lies_as_it_says(tmp_path: Path) -> None:
    shape = seed.Shape(1_000, repositories=50, leased=5)
    assert sum(shape.share(number) for number in range(50)) == 1_000
    with place(tmp_path, "rows", None) as here, contextlib.closing(here.ledger()) as ledger:
        seed.fill(ledger, shape)
    with contextlib.closing(sqlite3.connect(here.folder / "ledger.db")) as db:
        most = db.execute(
            "SELECT repository_id, count(*) FROM gitea_task WHERE state = 'queued' GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
        ).fetchone()
        leased = db.execute("SELECT count(*) FROM lease WHERE lease_id IS NOT NULL").fetchone()[0]
        heads = {row[0] for row in db.execute("SELECT repository_id FROM gitea_ready ORDER BY ready_at LIMIT 5")}
    assert most == (seed.name(0), 500)
    assert leased == 5
    assert heads == {seed.name(number) for number in range(5)}


@pytest.mark.parametrize(
    ("verb", "parts"),
    [
        ("claim", {"machine", "rows", "claim", "ratio", "aim"}),
        ("command", {"machine", "command", "aim", "written"}),
    ],
)
def test_a_verb_prints_one_object_a_line_and_leaves_nothing(
    run: Run, tmp_path: Path, verb: str, parts: set[str]
) -> None:
    (tmp_path / "disk").mkdir()
    done = run("bench", verb, "--quick", "--json", "--dir", str(tmp_path / "disk"))
    assert done.returncode == 0, done.stderr
    assert {line["line"] for line in lines(done.stdout)} == parts
    assert not list((tmp_path / "disk").iterdir())


def test_people_get_tables(run: Run, tmp_path: Path) -> None:
    done = run("bench", "command", "--quick", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "guarded_ms" in done.stdout
    assert "alone, a commit each" in done.stdout


@pytest.mark.parametrize("verb", ["claim", "command"])
def test_postgres_is_measured_too(run: Run, tmp_path: Path, postgres: PostgresServer, verb: str) -> None:
    small = ("--rows", "1000") if verb == "claim" else ()
    words = ("bench", verb, "--quick", *small, "--json", "--dir", str(tmp_path), "--postgres", postgres.owner_dsn)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    told = lines(done.stdout)
    assert told[0]["engine"] == "postgres"
    assert verb in {line["line"] for line in told}
