"""What every page of the console is made in: who asks, in which language and colours, and what the product offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from stationmaster import ids
from stationmaster.control.commands import Site
from stationmaster.control.console import show, words
from stationmaster.control.console.sessions import Lasting, Session
from stationmaster.control.console.words import Language
from stationmaster.control.grants import Operate
from stationmaster.control.readiness import Standing

ROOT = "/console"
Theme = Literal["auto", "light", "dark"]

_PAGES = ("overview", "tasks", "repositories", "limits", "audit", "health", "settings")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Console:
    """What the console works on: the product's site, how it stands, its settings, how long a login lasts."""

    site: Site
    ready: Callable[[], bool] = lambda: True
    standing: Callable[[], Standing] = Standing
    # The effective configuration, secrets as references.
    settings: Callable[[], Mapping[str, Any]] = dict
    lasting: Lasting = field(default_factory=Lasting)


@dataclass(frozen=True, slots=True)
class Frame:
    """One request of a page."""

    console: Console
    request: Request
    session: Session | None
    language: Language
    theme: Theme
    # The address of the page that is shown, where it is not the request's own: that of a form that was refused.
    at: str = ""

    def page(self, template: str, *, status: int = 200, **given: Any) -> Response:
        """Renders a page for this request."""
        session = self.session
        context = {
            "t": words.say(self.language),
            "lang": self.language,
            "theme": self.theme,
            "session": session,
            "may_act": session is not None and isinstance(session.grant, Operate),
            "pages": [(name, f"{ROOT}/" if name == "overview" else f"{ROOT}/{name}") for name in _PAGES],
            "here": self.at.partition("?")[0] or self.request.url.path,
            "again": self.at or _again(self.request),
            "fresh": lambda: ids.new("req"),
            "problem": None,
            "did": _known(self.request.query_params.get("did")),
            "asked": _known(self.request.query_params.get("asked")),
            "pulse": "",
            "watch": "",
            **given,
        }
        return HTMLResponse(show.page(template, context), status, headers=_HEADERS)


def frame(console: Console, request: Request, session: Session | None) -> Frame:
    """Makes the frame of a request: language and colours are cookies, the language else what the browser prefers."""
    chosen = request.cookies.get("sm_lang")
    language = chosen if chosen in {"en", "zh"} else _preferred(request.headers.get("accept-language", ""))
    theme = request.cookies.get("sm_theme")
    return Frame(
        console,
        request,
        session,
        cast("Language", language),
        cast("Theme", theme if theme in {"light", "dark"} else "auto"),
    )


def inside(path: str | None) -> str:
    """Returns an address of the console that a form or link named, or the first page when it leads elsewhere."""
    parts = urlsplit(path or "")
    fits = not parts.scheme and not parts.netloc and parts.path.startswith(f"{ROOT}/") and "\\" not in (path or "")
    return path or "" if fits and (path or "").isprintable() else f"{ROOT}/"


def _preferred(accepted: str) -> Language:
    for part in accepted.lower().split(","):
        if part.strip().startswith("zh"):
            return "zh"
        if part.strip().startswith("en"):
            return "en"
    return "en"


def _again(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return inside(f"{request.url.path}{query}")


def _known(verb: str | None) -> str | None:
    return verb if verb is not None and f"act_{verb}" in words.WORDS else None
