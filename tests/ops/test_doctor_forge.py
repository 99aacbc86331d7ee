"""The stand-in forge, with everything that can be wrong between it and a bot."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from stationmaster.ops.doctor import checks, forge
from tests.gitea import conftest as gitea
from tests.gitea.bridges import NEEDS, program
from tests.gitea.world import ASKER, BOT, World
from tests.ops.patient import Patient, look, one, patient

world = gitea.world

REPO = "acme/widgets"
SECRET = "seeded-webhook-secret-0815"


def configured(tmp_path: Path, world: World, token: str = "", more: str = "") -> Patient:
    """A home of this forge, whose ledger is the world's."""
    (tmp_path / "token").write_text(token or world.admin.token(BOT))
    (tmp_path / "token").chmod(0o600)
    made = patient(
        tmp_path / "operator",
        f'[gitea]\nbase_url = "{world.standin.url}"\nbot_login = "{BOT}"\ntoken_ref = "file:{tmp_path}/token"\n{more}',
    )
    if not made.home.database.exists():
        made.home.database.symlink_to(tmp_path / "ledger.db")
    return made


def may(here: Patient) -> str:
    return one(forge.permissions(here.home, here.config), "permission")


# --- secrets ---


def secrets(tmp_path: Path, text: str) -> list[str]:
    return look(forge.secrets(patient(tmp_path / "home", f"[gitea]\n{text}").config))


def test_secrets_that_can_be_read_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_HOOK", SECRET)
    found = secrets(tmp_path, 'webhook_secret_ref = "env:SM_HOOK"')
    assert found == ["ok    secrets: Every secret that is referred to can be read, and none is empty."]


def test_a_secret_that_cannot_be_resolved_is_named(tmp_path: Path) -> None:
    [line] = secrets(tmp_path, 'token_ref = "env:SM_NOT_SET"')
    assert line.startswith("fail  secrets: gitea.token_ref refers to the environment variable SM_NOT_SET, which is not")
    assert "must be set where Stationmaster starts" in line
    [line] = secrets(tmp_path, f'token_ref = "file:{tmp_path}/none"')
    assert f"gitea.token_ref refers to {tmp_path}/none, which cannot be read: No such file or directory." in line


def test_an_empty_webhook_secret_is_said(tmp_path: Path) -> None:
    # GW-R-048
    (tmp_path / "hook").write_text(" \n")
    (tmp_path / "hook").chmod(0o600)
    [line] = secrets(tmp_path, f'webhook_secret_ref = "file:{tmp_path}/hook"')
    assert line.startswith(f"fail  secrets: gitea.webhook_secret_ref refers to an empty secret (file:{tmp_path}/hook).")


def test_a_secret_open_to_others_is_said_with_the_command_and_without_the_secret(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(SECRET)
    (tmp_path / "hook").chmod(0o644)
    [line] = secrets(tmp_path, f'webhook_secret_ref = "file:{tmp_path}/hook"')
    assert line.startswith("warn  secrets: ")
    assert line.endswith(f"which other users may open. Run: chmod 600 {tmp_path}/hook")
    assert SECRET not in line


# --- whether it answers ---


async def test_a_forge_that_answers_says_its_version_and_time(world: World, tmp_path: Path) -> None:
    found = look(forge.answers(configured(tmp_path, world).config))
    assert found[0].startswith(f"ok    forge: {world.standin.url} answers; its version is 1.")
    assert found[1].startswith("ok    forge clock: The forge's clock and ours differ by less than ")


async def test_a_forgejo_is_said_to_be_one(world: World, tmp_path: Path) -> None:
    world.admin.settings(dialect="forgejo")
    line = look(forge.answers(configured(tmp_path, world).config))[0]
    assert (
        line
        == f"ok    forge: {world.standin.url} answers; it is Forgejo 11.0.1, which keeps to the API of Gitea 1.22.0."
    )


def test_a_forge_that_is_not_there_is_said(tmp_path: Path) -> None:
    here = patient(tmp_path / "home", '[gitea]\nbase_url = "http://127.0.0.1:9"')
    line = one(forge.answers(here.config))
    assert line.startswith("fail  forge: http://127.0.0.1:9 does not answer: ")
    assert "Check gitea.base_url" in line


@pytest.mark.parametrize(
    ("kind", "action", "words"),
    [
        ("redirect", {"location": "https://elsewhere.example"}, "redirects its own API. Set gitea.base_url"),
        ("answer", {"status": 502}, "answers with status 502, not as a Gitea does. Check gitea.base_url"),
        ("garble", {}, "answers with status 200, not as a Gitea does. Check gitea.base_url"),
        ("drop_before", {}, "does not answer: "),
    ],
)
async def test_what_does_not_answer_as_a_forge_is_said(
    world: World,
    tmp_path: Path,
    kind: str,
    action: dict[str, Any],
    words: str,
) -> None:
    world.fault(kind, match={"path": "/version"}, **action)
    line = look(forge.answers(configured(tmp_path, world).config))[0]
    assert line.startswith(f"fail  forge: {world.standin.url} ")
    assert words in line


async def test_a_forge_that_hides_its_version_still_answers(world: World, tmp_path: Path) -> None:
    world.fault("answer", match={"path": "/version"}, status=403)
    line = look(forge.answers(configured(tmp_path, world).config))[0]
    assert line == f"ok    forge: {world.standin.url} answers, and shows its version to its users only."


@pytest.fixture
def late() -> Iterator[str]:
    """A forge whose clock is five minutes behind."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            self.send_header("Date", formatdate(time.time() - 300, usegmt=True))
            self.end_headers()
            self.wfile.write(b'{"version": "1.25.5"}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_clocks_that_differ_are_said(late: str, tmp_path: Path) -> None:
    found = look(forge.answers(patient(tmp_path / "home", f'[gitea]\nbase_url = "{late}"').config))
    assert found[0].startswith("ok    forge: ")
    assert found[1].startswith("warn  forge clock: The forge's clock is ")
    assert found[1].endswith(" s behind ours. Let both follow NTP.")
    assert 298 <= int(found[1].split()[7]) <= 302


# --- who the bot is ---


async def test_the_bot_s_own_token_is_fine(world: World, tmp_path: Path) -> None:
    line = one(forge.bot(configured(tmp_path, world).config))
    assert line == f"ok    token: The token belongs to the bot {BOT} (id {world.bot_id})."


async def test_a_wrong_token_is_said_without_it(world: World, tmp_path: Path) -> None:
    wrong = "0123456789abcdef0123456789abcdef01234567"
    line = one(forge.bot(configured(tmp_path, world, wrong).config))
    assert line.startswith("fail  token: The forge refuses the bot")
    assert "Make an access token of the bot with the scopes write:issue, write:repository and read:user." in line
    assert wrong not in line


async def test_what_is_no_token_at_all_is_said_without_it(world: World, tmp_path: Path) -> None:
    line = one(forge.bot(configured(tmp_path, world, f"{SECRET} and\nmore").config))
    assert line.startswith(f"fail  token: The bot's token (file:{tmp_path}/token) is empty or not a token.")
    assert SECRET not in line


async def test_a_token_without_the_scope_is_said(world: World, tmp_path: Path) -> None:
    narrow = world.admin.token(BOT, scopes=["write:issue"])
    line = one(forge.bot(configured(tmp_path, world, narrow).config))
    assert line.startswith("fail  token: The forge refuses the bot")
    assert "read:user" in line


async def test_somebody_else_s_token_is_said(world: World, tmp_path: Path) -> None:
    line = one(forge.bot(configured(tmp_path, world, world.admin.token(ASKER)).config))
    assert line.startswith(f"fail  token: The token belongs to {ASKER}, and gitea.bot_login is {BOT}. Take a token of")


async def test_a_bot_that_administers_the_forge_is_said(world: World, tmp_path: Path) -> None:
    world.admin.user("root", admin=True)
    here = configured(tmp_path, world, world.admin.token("root"))
    mighty = patient(here.home.path, here.home.config_file.read_text().replace(f'"{BOT}"', '"root"'))
    assert one(forge.bot(mighty.config)).startswith("warn  token: The bot root administers the whole forge. Take away")


# --- what it may do ---


async def test_without_a_repository_there_is_nothing_to_ask(world: World, tmp_path: Path) -> None:
    assert may(configured(tmp_path, world)) == "ok    permission: No enabled repository has asked for anything yet."


async def test_a_bot_with_write_permission_reads_the_payload(world: World, tmp_path: Path) -> None:
    await world.mention()
    line = may(configured(tmp_path, world))
    assert line.startswith(
        f"warn  permission {REPO}: The bot may work there; permission is read from the signed payload. Comments work;"
    )
    assert "author_not_verifiable" in line


async def test_a_bot_that_administers_the_repository_asks_the_forge(world: World, tmp_path: Path) -> None:
    await world.mention()
    world.admin.collaborator(REPO, BOT, "admin")
    assert may(configured(tmp_path, world)) == (
        f"ok    permission {REPO}: The bot may work there and asks the forge who may ask."
    )


async def test_with_a_list_nobody_is_asked(world: World, tmp_path: Path) -> None:
    await world.mention()
    here = configured(tmp_path, world, more=f'allow = "list"\nallow_list = ["{ASKER}"]')
    assert may(here) == f"ok    permission {REPO}: The bot may work there; gitea.allow_list says who may ask."


async def test_a_bot_that_may_only_read_is_said(world: World, tmp_path: Path) -> None:
    await world.mention()
    world.admin.collaborator(REPO, BOT, "read")
    here = configured(tmp_path, world)
    assert may(here).startswith(f"fail  permission {REPO}: The bot may not push there. Give it write permission")
    silent = configured(tmp_path, world, more='push = "off"')
    assert may(silent).startswith(f"warn  permission {REPO}: The bot may work there;")


async def test_a_repository_that_the_bot_cannot_see_is_said(world: World, tmp_path: Path) -> None:
    await world.mention()
    world.admin.collaborator(REPO, BOT, "none")
    line = may(configured(tmp_path, world))
    assert line.startswith(f"fail  permission {REPO}: The forge does not show this to the bot")
    assert line.endswith("Give the bot write permission there, or `stationmaster repo disable` it.")


async def test_an_archived_and_a_renamed_repository_are_told_apart(world: World, tmp_path: Path) -> None:
    await world.mention()
    world.admin.repo_settings(REPO, archived=True)
    assert may(configured(tmp_path, world)).startswith(f"warn  permission {REPO}: The repository is archived.")
    world.admin.rename(REPO, name="gadgets")
    line = may(configured(tmp_path, world))
    assert line.startswith(f"warn  permission {REPO}: The repository is now acme/gadgets. Nothing to do")


async def test_a_wrong_token_is_said_once(world: World, tmp_path: Path) -> None:
    await world.mention()
    assert may(configured(tmp_path, world, "f" * 40)).startswith("fail  permission: The forge refuses the bot")


async def test_a_forge_that_went_away_is_said_once(world: World, tmp_path: Path) -> None:
    await world.mention()
    world.fault("drop_before", count=None, match={"path": "/repos/"})
    line = may(configured(tmp_path, world))
    assert line.startswith("fail  permission: ")
    assert line.endswith("See there.")


# --- gitea-mcp ---


def test_the_bridge_of_official_mode_is_started_and_greeted(tmp_path: Path, world: World) -> None:
    # GW-R-156
    path = program(tmp_path, "--dialect", "1.0")
    (tmp_path / "hook").write_text(SECRET)
    mounts = ", ".join(f'"{folder}"' for folder in NEEDS)
    more = (
        f'webhook_secret_ref = "file:{tmp_path}/hook"\nreply_mode = "official"\n'
        f'[gitea.mcp]\ncommand = "{path}"\n[agents]\nmounts = [{mounts}]\n'
    )
    here = configured(tmp_path, world, more=more)
    line = one(forge.bridge(here.home, here.config), "gitea-mcp")
    assert line == f"ok    gitea-mcp: {path} 1.0 greets back and writes comments by issue_write."
    program(tmp_path, "--play", "exit")
    line = one(forge.bridge(here.home, here.config), "gitea-mcp")
    assert line.startswith("fail  gitea-mcp: gitea-mcp ended at its start (status 1): log: failed to start.")
    scoped = configured(tmp_path, world)
    assert look(forge.bridge(scoped.home, scoped.config)) == []


# --- several forges ---


async def test_each_forge_is_looked_at_and_named(world: World, tmp_path: Path) -> None:
    token, other = tmp_path / "other-token", world.admin.token(ASKER)
    token.write_text(other)
    more = (
        f'[gitea.instances.lab]\nbase_url = "{world.standin.url}"\nbot_login = "helper"\n'
        f'token_ref = "file:{token}"\nwebhook_secret_ref = "file:{token}"\n'
    )
    here = configured(tmp_path, world, more=more)
    assert one(forge.bot(here.config)).startswith(f"ok    token: The token belongs to the bot {BOT}")
    line = one(forge.bot(here.config, "lab"))
    assert "The token belongs to alice, and gitea.instances.lab.bot_login is helper." in line
    await world.mention()
    assert "acme/widgets" in one(forge.permissions(here.home, here.config), "permission")
    # The ledger's only repository is the first forge's.
    assert "No enabled repository" in one(forge.permissions(here.home, here.config, "lab"), "permission")
    names = [check.name for check in checks._checks(here.home, here.config, spend=False)]
    assert names[-10:] == [
        *("forge", "token", "webhook", "gitea-mcp", "permission"),
        *("forge of lab", "token of lab", "webhook of lab", "gitea-mcp of lab", "permission of lab"),
    ]
    said = [
        line
        for check in checks._checks(here.home, here.config, spend=False)
        if check.name == "token of lab"
        for line in look(check.look(), check.name)
    ]
    assert said[0].startswith("fail  token of lab: The token belongs to alice")
