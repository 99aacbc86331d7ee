"""The set-up from nothing, on a real command line against a forge: once, twice, and after a kill in between."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stationmaster.ops.demo.product import Product
from stationmaster.ops.init.hooks import EVENTS
from stationmaster.standins.forge import Forge
from tests import warm

REPO = "acme/widgets"


@dataclass
class Site:
    """A forge, an empty home, and the files with tokens that a person would have."""

    forge: Forge
    home: Path
    bot: Path
    admin: Path
    port: int

    @property
    def public(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def init(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        given = ["--forge-url", self.forge.url, "--bot", "codebot", "--token-file", str(self.bot)]
        given += ["--public-url", self.public, "--port", str(self.port), *words]
        return warm.run(["--home", str(self.home), "init", *given], {**os.environ, **(env or {})}, timeout=60)

    def done(self, *words: str) -> dict[str, Any]:
        done = self.init("--json", *words)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def hooks(self, url: str = "") -> list[dict[str, Any]]:
        sql = "SELECT * FROM hook WHERE url=? ORDER BY id"
        return list(self.forge.store.many(sql, url or f"{self.public}/api/gitea/webhook"))

    def secret(self) -> str:
        return (self.home / "webhook-secret").read_text().strip()


@pytest.fixture
def site(tmp_path: Path, unused_port: int) -> Iterator[Site]:
    with Forge(tmp_path / "forge") as forge:
        verbs = forge.verbs
        verbs["user"](login="acme", org=True)
        verbs["user"](login="codebot")
        verbs["user"](login="root", admin=True)
        verbs["repo"](owner="acme", name="widgets", files={"a.txt": "one\n"}, collaborators={"codebot": "write"})
        files = {}
        for login in ("codebot", "root"):
            files[login] = tmp_path / f"{login}.token"
            files[login].write_text(verbs["token"](login=login)["token"] + "\n")
        yield Site(forge, tmp_path / "home", files["codebot"], files["root"], unused_port)


@pytest.fixture
def unused_port() -> int:
    import socket  # noqa: PLC0415 - only here

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_from_nothing_to_a_product_that_takes_deliveries(site: Site) -> None:
    told = site.done("--repo", REPO, "--admin-token-file", str(site.admin))
    assert told[f"webhook {REPO}"]["how"] == "made"
    assert told["round trip"]["ok"] is False  # nothing runs yet, and it says so
    assert "start Stationmaster" in told["round trip"]["problem"]
    [hook] = site.hooks()
    assert (hook["secret"], hook["active"], hook["content_type"]) == (site.secret(), 1, "json")
    # The forge names by its group what was asked for as the group's first event alone.
    assert {event.removesuffix("_only") for event in EVENTS} == set(json.loads(hook["events"]))
    for name in ("token", "webhook-secret", "stationmaster.toml"):
        assert stat.S_IMODE((site.home / name).stat().st_mode) == 0o600
    text = (site.home / "stationmaster.toml").read_text()
    for hidden in (site.bot, site.admin):
        assert hidden.read_text().strip() not in text
    assert site.admin.read_text().strip() not in "".join(
        path.read_text() for path in site.home.iterdir() if path.is_file()
    )
    assert "# Who may ask" in text
    unit = (site.home / "stationmaster.service").read_text()
    assert f"--home {site.home} up" in unit
    product = Product(site.home)
    product.start()
    try:
        again = site.done("--repo", REPO, "--admin-token-file", str(site.admin))
        assert again["round trip"]["ok"] is True
        assert again[f"webhook {REPO}"]["how"] == "kept"
        assert site.hooks() == [hook]
        tasks = json.loads(product.command_line("task", "list", "--json").stdout)
        assert tasks["tasks"] == []  # a test starts nothing
    finally:
        product.stop()


def test_a_hook_that_was_set_up_by_half_is_mended_and_doubles_go(site: Site) -> None:
    site.done("--repo", REPO, "--admin-token-file", str(site.admin))
    url = site.hooks()[0]["url"]
    site.forge.verbs["hook_settings"](hook=site.hooks()[0]["id"], active=False)
    site.forge.verbs["hook"](url=url, repo=REPO, secret="another")
    told = site.done("--repo", REPO, "--admin-token-file", str(site.admin))
    assert told[f"webhook {REPO}"]["how"] == "mended"
    [hook] = site.hooks()
    assert (hook["active"], hook["secret"]) == (1, site.secret())


def test_a_new_secret_needs_a_new_hook(site: Site) -> None:
    site.forge.verbs["hook"](url=f"{site.public}/api/gitea/webhook", repo=REPO, secret="of somebody before us")
    told = site.done("--repo", REPO, "--admin-token-file", str(site.admin))
    assert told[f"webhook {REPO}"]["how"] == "made"
    assert [hook["secret"] for hook in site.hooks()] == [site.secret()]


@pytest.mark.parametrize("place", [["--org", "acme"], ["--everywhere"]])
def test_an_organisation_or_the_whole_forge_gets_one(site: Site, place: list[str]) -> None:
    for how in ("made", "kept"):
        told = site.done(*place, "--admin-token-file", str(site.admin))
        assert [step["how"] for name, step in told.items() if name.startswith("webhook ")] == [how]
    assert len(site.hooks()) == 1


@pytest.mark.parametrize("point", ["init.secrets_written", "init.files_written", "init.hook_made"])
def test_a_kill_in_between_is_mended_by_another_run(site: Site, point: str) -> None:
    site.forge.verbs["hook"](url=f"{site.public}/api/gitea/webhook", repo=REPO, secret="of somebody before us")
    words = ("--repo", REPO, "--admin-token-file", str(site.admin))
    killed = site.init("--json", *words, env={"STATIONMASTER_FAULT": point})
    assert killed.returncode == -9, killed.stderr
    site.done(*words)
    assert [hook["secret"] for hook in site.hooks()] == [site.secret()]


def test_a_hook_whose_making_was_not_answered_is_not_made_twice(site: Site) -> None:
    fault = {"match": {"method": "POST", "path": "/hooks$"}, "action": {"kind": "drop_after"}}
    site.forge.verbs["add_fault"](fault=fault)
    told = site.done("--repo", REPO, "--admin-token-file", str(site.admin))
    assert told[f"webhook {REPO}"]["how"] == "made"
    assert len(site.hooks()) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--public-url", "ftp://x"], 2, "--public-url is not an address"),
        (["--repo", "widgets"], 2, "is not owner/name"),
        (["--repo", REPO], 2, "needs --admin-token-file"),
        (["--language", "fr"], 2, "--language is zh or en"),
        (["--bot", "somebody"], 3, "The token belongs to codebot, not to somebody"),
        (["--token-file", "/nowhere"], 2, "/nowhere cannot be read"),
    ],
)
def test_what_cannot_be_is_one_sentence(site: Site, words: list[str], code: int, said: str) -> None:
    done = site.init(*words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_everything_that_is_missing_is_named_at_once(site: Site) -> None:
    done = warm.run(["--home", str(site.home), "init"], dict(os.environ), timeout=60)
    assert done.returncode == 2
    assert "--forge-url, --bot, --token-file, --public-url are needed" in done.stderr


def test_a_token_that_may_not_make_hooks_is_told(site: Site) -> None:
    done = site.init("--repo", REPO, "--admin-token-file", str(site.bot))
    assert done.returncode == 3
    assert f"does not let this token manage the webhooks of {REPO}" in done.stderr


def test_another_configuration_is_left_alone_unless_forced(site: Site) -> None:
    site.home.mkdir(mode=0o700)
    mine = site.home / "stationmaster.toml"
    mine.write_text("[log]\nlevel = 'debug'\n")
    done = site.init()
    assert done.returncode == 6
    assert mine.read_text() == "[log]\nlevel = 'debug'\n"
    site.done("--force")
    assert (site.home / "stationmaster.toml.bak").read_text() == "[log]\nlevel = 'debug'\n"
