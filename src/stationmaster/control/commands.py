"""What a command of the doors is: one declaration from which its REST route, command line and reference page come.

A handler's signature is the declaration: its grant says who may call it, its input what it takes (unknown fields are
refused, GW-R-225), its docstring what it does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import msgspec

from stationmaster.command import LedgerPort
from stationmaster.control.grants import Read
from stationmaster.errors import Bug
from stationmaster.gitea.settings import GiteaSettings

Method = Literal["GET", "POST"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]

_PARAM = re.compile(r"\{(\w+)\}")


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The base of every input: camelCase on the wire, nothing unknown."""


class Nothing(Input, frozen=True, kw_only=True):
    """No input."""


class Request(Input, frozen=True, kw_only=True):
    """A change asked for by a person: repeated with the same id it has no second effect (GW-R-223, GW-R-224)."""

    request_id: Annotated[Text, msgspec.Meta(description="Your own id of this request; a repeat gets its first answer")]
    reason: Annotated[Text, msgspec.Meta(description="Why, for the audit")]


@dataclass(frozen=True, slots=True)
class Site:
    """What handlers work on: the ledger, a bell for the loops that should look at once, and the forge's settings."""

    port: LedgerPort
    wake: Callable[[], None]
    # The first forge; None while none is configured.
    gitea: GiteaSettings | None = None
    # Where this host keeps repositories and worktrees.
    workspaces: Path | None = None
    # Upkeep: a backup into a file or folder, and letting old payloads go or telling which; absent in parts of tests.
    backup: Callable[[Path | None], Awaitable[dict[str, Any]]] | None = None
    retain: Callable[[bool], Awaitable[dict[str, Any]]] | None = None
    # The forges beside the first.
    others: tuple[GiteaSettings, ...] = ()

    def forge(self, instance_id: str) -> GiteaSettings | None:
        """Returns the settings of a forge, or None when it is not configured."""
        return next((each for each in (self.gitea, *self.others) if each and each.instance_id == instance_id), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler returns: a body that becomes JSON, or with `lines` an async iterator of bodies, one a line."""

    body: Any
    status: int = 200
    lines: bool = False


G = TypeVar("G", bound=Read)
I = TypeVar("I", bound=Input)  # noqa: E741 - the input
Handler = Callable[[Site, G, I], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Command(Generic[G, I]):
    """One command as every door sees it; `cli` is empty when the command line has a form of its own.

    `later` tells that a worker finishes what the command accepts: its answer says `pending` until then. `slow` tells
    that its work is done before it is answered, however long that takes.
    """

    name: str
    method: Method
    path: str
    cli: str
    grant: type[G]
    inputs: type[I]
    summary: str
    run: Handler[G, I]
    later: bool = False
    slow: bool = False

    @property
    def in_path(self) -> tuple[str, ...]:
        """The wire names of the inputs that are part of the path."""
        return tuple(_PARAM.findall(self.path))


def command(
    name: str, method: Method, path: str, *, cli: str = "", later: bool = False, slow: bool = False
) -> Callable[[Handler[G, I]], Command[G, I]]:
    """Declares the decorated handler as a command; raises Bug when its declaration does not hold together."""

    def declare(handler: Handler[G, I]) -> Command[G, I]:
        hints = get_type_hints(handler)
        made: Command[G, I] = Command(
            name=name,
            method=method,
            path=path,
            cli=cli,
            grant=hints["grant"],
            inputs=hints["given"],
            summary=(inspect.getdoc(handler) or "").partition("\n")[0],
            run=handler,
            later=later,
            slow=slow,
        )
        wire = {field.encode_name for field in msgspec.structs.fields(made.inputs)}
        if not made.summary or not wire.issuperset(made.in_path):
            raise Bug(f"BUG: the command {name} lacks a docstring or an input for its path.")
        return made

    return declare


@dataclass(frozen=True, slots=True)
class Field:
    """One input as a person sees it."""

    name: str
    wire: str
    type: Any
    required: bool
    default: Any
    about: str
    choices: tuple[str, ...]


def fields(inputs: type[Input]) -> list[Field]:
    """Returns the inputs of a command, in order, with what their declaration says about them."""
    info = {field.name: field for field in msgspec.inspect.type_info(inputs).fields}  # type: ignore[attr-defined]
    found = []
    for field in msgspec.structs.fields(inputs):
        inner = info[field.name].type
        extra = getattr(inner, "extra_json_schema", None) or {}
        found.append(
            Field(
                name=field.name,
                wire=field.encode_name,
                type=_plain(inner),
                required=field.required,
                default=None if field.required else field.default,
                about=extra.get("description", ""),
                choices=_choices(inner),
            )
        )
    return found


def _bare(info: Any) -> Any:
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if isinstance(info, msgspec.inspect.UnionType):
        info = next(_bare(each) for each in info.types if not isinstance(each, msgspec.inspect.NoneType))
    return info


def _plain(info: Any) -> type:
    bare = _bare(info)
    if isinstance(bare, msgspec.inspect.BoolType):
        return bool
    return int if isinstance(bare, msgspec.inspect.IntType) else str


def _choices(info: Any) -> tuple[str, ...]:
    bare = _bare(info)
    return tuple(str(value) for value in bare.values) if isinstance(bare, msgspec.inspect.LiteralType) else ()
