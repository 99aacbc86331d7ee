"""Checks of the forge: that it answers, keeps the same time, knows the bot, and lets it do its work."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from stationmaster.errors import Denied, NotFound, StationmasterError
from stationmaster.gitea import codes, mcp
from stationmaster.gitea.client import Forge, Moved, RepoRef
from stationmaster.gitea.wire import Permissions, User
from stationmaster.ops import config as configuration
from stationmaster.ops import wiring
from stationmaster.ops.doctor import database
from stationmaster.ops.doctor.database import Known
from stationmaster.ops.doctor.report import Finding, fail, ok, warn
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config, Gitea
from stationmaster.redact import Secret

_WAIT_S = 10.0
_SKEW_S = 30.0
_OTHERS = 0o077
_SCOPES = "Make an access token of the bot with the scopes write:issue, write:repository and read:user."
_PAYLOAD = (
    "Comments work; mentions in new issues, pull requests and reviews, and those that were missed while Stationmaster "
    "was down, are refused (author_not_verifiable) unless the bot administers the repository."
)


def secrets(config: Config) -> Iterator[Finding]:
    """Tells whether every secret can be read, says something, and is ours alone."""
    named = configuration.named_secrets(config)
    found = [finding for key, secret in named.items() if secret for finding in _secret(key, secret)]
    yield from found
    if not found:
        yield ok("secrets", "Every secret that is referred to can be read, and none is empty.")


def bridge(place: Home, config: Config, forge: str = configuration.DEFAULT) -> Iterator[Finding]:
    """Tells whether the gitea-mcp of official mode works, by starting it as before a turn."""
    given = configuration.forges(config).get(forge)
    if given is None or given.reply_mode != "official":
        return
    at = replace(wiring.station(config, place, "doctor", "doctor"), runs=place.path)
    settings = wiring.gitea_settings(config, forge)
    found = asyncio.run(mcp.probe(settings, at, f"doctor-mcp-{os.getpid()}"))
    yield ok("gitea-mcp", f"{found.program} {found.version} greets back and writes comments by {found.tool.name}.")


def _secret(key: str, secret: Secret) -> Iterator[Finding]:
    try:
        value = secret.reveal().strip()
    except StationmasterError as error:
        hint = "Put it there; what the environment holds must be set where Stationmaster starts."
        yield fail("secrets", error.message, hint)
        return
    if not value:
        yield fail("secrets", f"{key} refers to an empty secret ({secret.ref}).", "Put the secret there.")
    scheme, _, name = secret.ref.partition(":")
    if scheme == "file" and Path(name).stat().st_mode & _OTHERS:
        yield warn("secrets", f"{key} refers to {name}, which other users may open.", f"Run: chmod 600 {name}")


def answers(config: Config, forge: str = configuration.DEFAULT) -> Iterator[Finding]:
    """Tells whether the forge answers, in which version, and whether its clock agrees with ours."""
    url, section = _given(config, forge).base_url, configuration.section_of(forge)
    advice = (
        f"Check {section}.base_url, and that this machine reaches it directly: proxies of the environment are not used."
    )
    began = time.time()
    try:
        with httpx.Client(follow_redirects=False, trust_env=False, timeout=_WAIT_S) as client:
            answer = client.get(f"{url}/api/v1/version")
    except httpx.HTTPError as error:
        yield fail("forge", f"{url} does not answer: {str(error)[:200].rstrip('.') or type(error).__name__}.", advice)
        return
    ours = (began + time.time()) / 2
    if answer.is_redirect:
        yield fail("forge", f"{url} redirects its own API.", f"Set {section}.base_url to the address it redirects to.")
    elif answer.status_code in (401, 403):
        yield ok("forge", f"{url} answers, and shows its version to its users only.")
    elif (version := _version(answer)) is not None:
        own, forgejo, gitea = version.partition("+gitea-")
        said = (
            f"it is Forgejo {own}, which keeps to the API of Gitea {gitea}" if forgejo else f"its version is {version}"
        )
        yield ok("forge", f"{url} answers; {said}.")
    else:
        yield fail("forge", f"{url} answers with status {answer.status_code}, not as a Gitea does.", advice)
    yield from _clock(answer.headers.get("date", ""), ours)


def _given(config: Config, forge: str) -> Gitea:
    return config.gitea if forge == configuration.DEFAULT else config.instances[forge]


def _version(answer: httpx.Response) -> str | None:
    try:
        body = answer.json()
    except ValueError:
        return None
    version = body.get("version") if isinstance(body, dict) else None
    return version[:60] if isinstance(version, str) and answer.status_code == httpx.codes.OK else None


def _clock(date: str, ours: float) -> Iterator[Finding]:
    try:
        # The header has whole seconds: half of one is the best guess.
        ahead = parsedate_to_datetime(date).timestamp() + 0.5 - ours
    except ValueError:
        yield warn("forge clock", "The forge does not say what time it has.", "Let its proxy pass the Date header.")
        return
    if abs(ahead) > _SKEW_S:
        way = "ahead of" if ahead > 0 else "behind"
        yield warn("forge clock", f"The forge's clock is {abs(ahead):.0f} s {way} ours.", "Let both follow NTP.")
    else:
        yield ok("forge clock", f"The forge's clock and ours differ by less than {abs(ahead) + 1:.0f} s.")


def bot(config: Config, forge: str = configuration.DEFAULT) -> Iterator[Finding]:
    """Tells whose the token is."""
    given = _given(config, forge)
    token, wanted, key = given.token_ref, given.bot_login, f"{configuration.section_of(forge)}.bot_login"
    if token is None:
        return
    try:
        user = _run(_whose(given, token))
    except Denied as error:
        yield fail("token", error.message, _SCOPES)
        return
    if user.name.lower() != wanted.lower():
        yield fail(
            "token",
            f"The token belongs to {user.name}, and {key} is {wanted}.",
            f"Take a token of the bot, or set {key} to whose it is.",
        )
    elif user.is_admin:
        yield warn(
            "token",
            f"The bot {user.name} administers the whole forge.",
            "Take away its site administration: rights on its repositories are all it needs.",
        )
    else:
        yield ok("token", f"The token belongs to the bot {user.name} (id {user.id}).")


def permissions(place: Home, config: Config, forge: str = configuration.DEFAULT) -> Iterator[Finding]:
    """Tells of each known repository of a forge whether the bot may work there, and how it learns who may ask."""
    given = _given(config, forge)
    token = given.token_ref
    if token is None:
        return
    all_known = database.repositories(place, config)
    known = [each for each in all_known if each.state != "disabled" and each.instance_id == forge]
    if not known:
        yield ok("permission", "No enabled repository has asked for anything yet.")
    for repository in known:
        name = f"permission {repository.owner}/{repository.name}"
        try:
            yield from _run(_permission(given, token, repository, name))
        except Moved as moved:
            yield warn(name, moved.message, "Nothing to do: the next event or task records it.")
        except (Denied, NotFound) as error:
            if error.code == codes.FORGE_AUTH:
                yield fail("permission", error.message, _SCOPES)
                return
            yield fail(name, error.message, "Give the bot write permission there, or `stationmaster repo disable` it.")


async def _permission(given: Gitea, token: Secret, known: Known, name: str) -> list[Finding]:
    ref = RepoRef(known.owner, known.name, known.native_id)
    async with Forge(given.base_url, token, timeout_s=_WAIT_S) as forge:
        repository = await forge.get_repository(ref)
        may = repository.permissions or Permissions()
        if repository.archived:
            return [warn(name, "The repository is archived.", "Nothing can be written there: disable it.")]
        if given.push != "off" and not may.push:
            return [fail(name, "The bot may not push there.", "Give it write permission, or set gitea.push off.")]
        if given.allow == "list":
            return [ok(name, "The bot may work there; gitea.allow_list says who may ask.")]
        try:
            await forge.permission(ref, repository.owner.name)
        except Denied:
            return [warn(name, "The bot may work there; permission is read from the signed payload.", _PAYLOAD)]
        except NotFound:
            # It looked, so it may.
            pass
    return [ok(name, "The bot may work there and asks the forge who may ask.")]


async def _whose(given: Gitea, token: Secret) -> User:
    async with Forge(given.base_url, token, timeout_s=_WAIT_S) as forge:
        return await forge.get_user()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)
