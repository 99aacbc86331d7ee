"""The command line of the set-up: tells each step as it is done; run again, it goes on where it broke off."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import typer

from stationmaster import faults, redact
from stationmaster.errors import Denied, Invalid, Unavailable
from stationmaster.ops.home import Home
from stationmaster.ops.init import files, hooks, proof
from stationmaster.ops.init.given import Given, asked, secret_of

_TIMEOUT_S = 30.0
_REPOSITORY = 2


@dataclass(slots=True)
class _Told:
    """Says each step, as words at once or as one object at the end."""

    as_json: bool
    steps: dict[str, Any]

    def step(self, name: str, words: str, **data: Any) -> None:
        self.steps[name] = data or words
        if not self.as_json:
            typer.echo(redact.clean(f"{name:<14} {words}"))


def mount(root: typer.Typer, prepare: Callable[[], Home], arm: Callable[[], None]) -> None:
    """Adds the command; `prepare` makes the home."""

    @root.command("init", help="Sets Stationmaster up: configuration, service, webhook, and the proof that they meet.")
    def _init(
        *,
        forge_url: Annotated[str, typer.Option(help="Address of your Gitea.")] = "",
        bot: Annotated[str, typer.Option(help="Login of the bot's account.")] = "",
        token_file: Annotated[Path | None, typer.Option(help="File with the bot's access token.")] = None,
        secret_file: Annotated[
            Path | None, typer.Option(help="File with the webhook's secret; one is made up otherwise.")
        ] = None,
        public_url: Annotated[str, typer.Option(help="Address at which Gitea reaches Stationmaster.")] = "",
        port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8420,
        language: Annotated[str, typer.Option(help="Language of the bot's short receipts: zh or en.")] = "en",
        repo: Annotated[list[str] | None, typer.Option(help="Make the webhook of this owner/name; repeatable.")] = None,
        org: Annotated[list[str] | None, typer.Option(help="… of this organisation; repeatable.")] = None,
        everywhere: Annotated[bool, typer.Option("--everywhere", help="… of the whole forge.")] = False,
        admin_token_file: Annotated[
            Path | None, typer.Option(help="File with a token that may make webhooks; used once, kept nowhere.")
        ] = None,
        force: Annotated[bool, typer.Option("--force", help="Replace another configuration; it is kept.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Ask nothing and print one JSON object.")] = False,
    ) -> None:
        arm()
        answers = {"forge_url": forge_url, "bot": bot, "token": secret_of(token_file), "public_url": public_url}
        said = asked(answers, silent=as_json)
        given = _checked(
            Given(
                **said,
                language=language,
                port=port,
                admin_token=secret_of(admin_token_file),
                repos=tuple(repo or ()),
                orgs=tuple(org or ()),
                everywhere=everywhere,
            )
        )
        told = _Told(as_json, {})
        _set_up(prepare(), given, secret_of(secret_file), told, force=force)
        if as_json:
            typer.echo(json.dumps(told.steps))


def _checked(given: Given) -> Given:
    for name, address in (("--forge-url", given.forge_url), ("--public-url", given.public_url)):
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise Invalid(f"{name} is not an address such as https://git.example.com.", code="invalid_request")
    if given.language not in {"zh", "en"}:
        raise Invalid("--language is zh or en.", code="invalid_request")
    for name in given.repos:
        if len([part for part in name.split("/") if part]) != _REPOSITORY:
            raise Invalid(f"--repo {name} is not owner/name.", code="invalid_request")
    if given.wants_hooks and not given.admin_token:
        raise Invalid(
            "Making a webhook needs --admin-token-file.",
            code="invalid_request",
            hint="Or leave out --repo, --org and --everywhere, and make it in Gitea yourself.",
        )
    for value in (given.token, given.admin_token):
        redact.register(value)
    return given


def _set_up(home: Home, given: Given, webhook_secret: str, told: _Told, *, force: bool) -> None:
    account = _account(given)
    told.step("bot", f"{account} at {given.forge_url}", login=account)
    token, _ = files.secret(home, "token", given.token)
    file, fresh = files.secret(home, "webhook-secret", webhook_secret)
    secret = file.read_text().strip()
    redact.register(secret)
    unused = files.unused(home, fresh=fresh)
    faults.point("init.secrets_written")
    chosen = {
        "gitea.base_url": given.forge_url.rstrip("/"),
        "gitea.bot_login": account,
        "gitea.token_ref": f"file:{token}",
        "gitea.webhook_secret_ref": f"file:{file}",
        "gitea.language": given.language,
        "web.port": given.port,
        "web.public_url": given.public_url.rstrip("/"),
    }
    changed = files.configuration(home, chosen, force=force)
    told.step("configuration", f"{home.config_file}{'' if changed else ' (as it was)'}", file=str(home.config_file))
    unit = files.unit(home)
    told.step(
        "service",
        f"{unit}\n{'':<14} mkdir -p ~/.config/systemd/user && cp {unit} ~/.config/systemd/user/\n"
        f"{'':<14} systemctl --user enable --now stationmaster",
        file=str(unit),
    )
    faults.point("init.files_written")
    for made in hooks.ensure(given, secret, fresh=unused) if given.wants_hooks else ():
        told.step(f"webhook {made.place}", f"{made.how} ({given.hook_url})", **asdict(made))
    if given.wants_hooks:
        files.used(home)
    else:
        told.step("webhook", f"make it in Gitea: {given.hook_url}, secret in {file}; events: {', '.join(hooks.EVENTS)}")
    wrong = proof.round_trip(given.hook_url, secret)
    told.step("round trip", wrong or "a signed test delivery was taken", ok=not wrong, problem=wrong)


def _account(given: Given) -> str:
    """Returns the login that the token belongs to; raises Denied when it is not the bot's."""
    headers = {"Authorization": f"token {given.token}"}
    url = f"{given.forge_url.rstrip('/')}/api/v1/user"
    try:
        answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, UnicodeError) as error:
        raise Unavailable(
            f"{given.forge_url} cannot be reached: {type(error).__name__}.",
            code="forge_unreachable",
            hint="Check the address.",
        ) from None
    login = ""
    if answer.is_success and "json" in answer.headers.get("content-type", ""):
        login = str(answer.json().get("login", ""))
    if not login:
        raise Denied(
            f"{given.forge_url} does not accept the bot's token (status {answer.status_code}).",
            code="forge_auth",
            hint="Make one as the bot, with the scopes write:issue, write:repository and read:user.",
        )
    if login.lower() != given.bot.lower():
        raise Denied(f"The token belongs to {login}, not to {given.bot}.", code="forge_auth", hint="Use the bot's own.")
    return login
