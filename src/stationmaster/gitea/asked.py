"""What an operator asks of the reading: the forge or one repository, now. Accepted here, finished by `catchup`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stationmaster.command import Cmd
from stationmaster.errors import Invalid, NotFound, StationmasterError, Unavailable
from stationmaster.gitea import codes
from stationmaster.gitea.operate import REQUEST
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.ledger import history, receipts
from stationmaster.ledger.tx import Reader, Tx

ACTION = "catchup"


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants to read what; `repo_key` is empty for everything of the forge `instance_id`.

    An empty `instance_id` means the repository's forge, or the only one.
    """

    repo_key: str
    actor: str
    reason: str
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """An accepted wish; `owner` and `name` are empty for everything."""

    seq: int
    request_id: str
    repo_key: str
    owner: str
    name: str


def command(wish: Wish, request_id: str) -> Cmd:
    """Makes the command of a wish; a repeat of its id gets the first answer."""
    refs = {"request": request_id} | ({"repo": wish.repo_key.lower()} if wish.repo_key else {})
    return Cmd(REQUEST, wish.actor, f"request:{request_id}", request_id, refs)


def body(*forges: GiteaSettings | None) -> Callable[[Tx, Wish], dict[str, Any]]:
    """Returns the body of `command`; without settings no forge is configured."""
    known = [each.instance_id for each in forges if each is not None]

    def perform(tx: Tx, wish: Wish) -> dict[str, Any]:
        if not known:
            raise Unavailable(
                "No forge is configured, so none can be read.",
                code=codes.INVALID_CONFIGURATION,
                hint="Set [gitea] in the configuration.",
            )
        instance_id = _forge(wish, known)
        _place(wish.repo_key, instance_id)
        tx.intent(
            ACTION,
            subject=_subject(instance_id),
            request=tx.cmd.dedupe,
            repo_key=wish.repo_key.lower(),
            reason=wish.reason,
        )
        receipts.pending(tx)
        return {"repoKey": wish.repo_key or None, "pending": True}

    return perform


def waiting(reader: Reader, instance_id: str) -> list[Ask]:
    """Returns what is asked and not finished, oldest first."""
    return [
        Ask(
            intent.seq,
            intent.data["request"],
            intent.data["repo_key"],
            *_place(intent.data["repo_key"], instance_id),
        )
        for intent in history.open_intents(reader, subject=_subject(instance_id), action=ACTION)
    ]


def finish(tx: Tx, asks: list[Ask], *, found: int, taken: int, failed: int) -> None:
    """Answers wishes after the reading; a repeat changes nothing."""
    for ask in _open(tx, asks):
        said = {"repoKey": ask.repo_key or None, "found": found, "taken": taken, "failed": failed, "pending": False}
        tx.result(ask.seq, "done", found=found, taken=taken, failed=failed)
        receipts.finish(tx, REQUEST, ask.request_id, said)


def refuse(tx: Tx, ask: Ask, error: StationmasterError) -> None:
    """Answers a wish that cannot be met; a repeat changes nothing."""
    for each in _open(tx, [ask]):
        tx.result(each.seq, "refused", code=error.code)
        hint = "`stationmaster repo list` shows the repositories there are."
        receipts.refuse(tx, REQUEST, each.request_id, NotFound(error.message, code=error.code, hint=hint))


def _open(reader: Reader, asks: list[Ask]) -> list[Ask]:
    still = {intent.seq for intent in history.open_intents(reader, action=ACTION)}
    return [ask for ask in asks if ask.seq in still]


def _forge(wish: Wish, known: Sequence[str]) -> str:
    key, colon, _ = wish.repo_key.lower().partition(":")
    wanted = wish.instance_id or (key if colon else "")
    # A key without a forge was always one of the first.
    found = wanted or (known[0] if wish.repo_key or len(known) == 1 else "")
    if found not in known:
        raise Invalid(
            f"There is no forge {found} here." if found else "There are several forges; say which is to be read.",
            code=codes.INVALID_REQUEST,
            hint=f"The forges are: {', '.join(known)}.",
        )
    return found


def _subject(instance_id: str) -> str:
    return f"catchup:{instance_id}"


def _place(repo_key: str, instance_id: str) -> tuple[str, str]:
    """Returns owner and name of a key; raises Invalid for one that is none of this forge."""
    if not repo_key:
        return "", ""
    owner, slash, name = repo_key.lower().removeprefix(f"{instance_id}:").partition("/")
    if not (slash and owner and name) or ":" in owner or "/" in name:
        raise Invalid(
            f"{repo_key} is not the key of a repository here.",
            code=codes.INVALID_REQUEST,
            hint=f"It is {instance_id}:<owner>/<name>.",
        )
    return owner, name
