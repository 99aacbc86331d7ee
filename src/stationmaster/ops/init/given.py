"""What the set-up has to be told: flags first, then questions at a terminal; all that is missing is named at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from stationmaster.errors import Invalid

Ask = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Given:
    """What was said; `repos` and `orgs` are where webhooks are wanted, `everywhere` means the whole forge."""

    forge_url: str
    bot: str
    token: str
    public_url: str
    language: str
    port: int
    admin_token: str
    repos: tuple[str, ...]
    orgs: tuple[str, ...]
    everywhere: bool

    @property
    def hook_url(self) -> str:
        """Returns where the forge is to send deliveries."""
        return f"{self.public_url.rstrip('/')}/api/gitea/webhook"

    @property
    def wants_hooks(self) -> bool:
        """Tells whether a webhook is to be made."""
        return bool(self.repos or self.orgs or self.everywhere)


def asked(answers: dict[str, str], *, silent: bool) -> dict[str, str]:
    """Asks at a terminal for what is missing; raises Invalid that names every flag where nobody can be asked."""
    questions = {
        "forge_url": ("--forge-url", "Address of your Gitea, such as https://git.example.com", False),
        "bot": ("--bot", "Login of the bot's account there", False),
        "token": ("--token-file", "The bot's access token (write:issue, write:repository, read:user)", True),
        "public_url": (
            "--public-url",
            "Address at which Gitea reaches it, such as https://sm.example.com",
            False,
        ),
    }
    missing = [flag for name, (flag, _, _) in questions.items() if not answers[name]]
    if missing and (silent or not sys.stdin.isatty()):
        raise Invalid(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed.",
            code="invalid_request",
            hint="Give them, or run this at a terminal and answer.",
        )
    ask: Ask = typer.prompt
    return answers | {
        name: ask(question, hide_input=hidden, err=True).strip()
        for name, (_, question, hidden) in questions.items()
        if not answers[name]
    }


def secret_of(file: Path | None) -> str:
    """Reads a secret from a file; empty without one. Raises Invalid when it cannot be read or holds nothing."""
    if file is None:
        return ""
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Invalid(f"{file} cannot be read: {why}.", code="invalid_request") from None
    if not text:
        raise Invalid(f"{file} is empty.", code="invalid_request", hint="Put the token alone into it.")
    return text
