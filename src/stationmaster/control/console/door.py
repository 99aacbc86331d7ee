"""The door of the console: who may come in, which page an address is, and that nothing but a page ever goes out.

A form is taken only from a page of ours: by the word that belongs to the login, and by where the browser says that it
comes from. Errors are pages too.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from importlib import resources
from urllib.parse import parse_qsl, quote, urlsplit

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from stationmaster.control import errors
from stationmaster.control.console import acts, pages, sessions, task
from stationmaster.control.console.frame import ROOT, Console, Frame, frame, inside
from stationmaster.control.console.live import Live
from stationmaster.errors import Bug, Denied, Invalid, StationmasterError

_COOKIE = "sm_session"
_YEAR = 31_536_000
_FORM_LIMIT = 65_536
_STATIC = {"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"}
_MOST_TRIES = 10
_TRIES_WITHIN_S = 60.0
_MOST_SOURCES = 1000

Page = Callable[[Frame], Awaitable[Response]]

_log = structlog.get_logger(__name__)


class Door:
    """The routes of the console over one product."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live()
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def routes(self) -> list[Route]:
        """Returns every address of the console."""
        read: dict[str, Page] = {
            "/": pages.overview,
            "/tasks": pages.tasks,
            "/tasks/{task_id}": task.page,
            "/tasks/{task_id}/text/{part}": task.text,
            "/repositories": pages.repositories,
            "/limits": pages.limits,
            "/audit": pages.audit,
            "/audit.ndjson": pages.export,
            "/health": pages.health,
            "/settings": pages.settings,
            "/events": self._live.stream,
        }
        return [
            Route("/", _to_console, methods=["GET"]),
            Route(ROOT, _to_console, methods=["GET"]),
            *(Route(f"{ROOT}{path}", self._page(page), methods=["GET"]) for path, page in read.items()),
            Route(f"{ROOT}/login", self._guarded(self._login), methods=["GET", "POST"]),
            Route(f"{ROOT}/logout", self._guarded(self._logout), methods=["POST"]),
            Route(f"{ROOT}/act/{{verb}}", self._guarded(self._act), methods=["POST"]),
            Route(f"{ROOT}/choose", self._guarded(self._choose), methods=["POST"]),
            Route(f"{ROOT}/static/{{name}}", _static, methods=["GET"]),
        ]

    async def no_page(self, request: Request, *, method: bool = False) -> Response:
        """Says that an address of the console is none, or does not take a method."""
        made = frame(self._console, request, await self._session(request))
        return made.page("error.html", status=405 if method else 404, message="no_method" if method else "no_page")

    # Guards

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(made: Frame) -> Response:
            if made.session is None:
                query = f"?{made.request.url.query}" if made.request.url.query else ""
                return RedirectResponse(f"{ROOT}/login?next={quote(made.request.url.path + query, safe='')}", 303)
            return await page(made)

        return self._guarded(endpoint)

    def _guarded(self, endpoint: Page) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            made = frame(self._console, request, None)
            try:
                made = frame(self._console, request, await self._session(request))
                return await endpoint(made)
            except ClientDisconnect:
                return Response(status_code=400)
            except StationmasterError as error:
                if isinstance(error, Bug):
                    _log.error("console.bug", path=request.url.path, exc_info=error)
                return self._told(made, error)
            except Exception as error:  # noqa: BLE001 - the last fence before the server
                _log.error("console.broken", path=request.url.path, exc_info=error)
                return self._told(made, Bug("BUG: unforeseen."))

        return guarded

    def _told(self, made: Frame, error: StationmasterError) -> Response:
        status, headers = errors.status(error), errors.headers(error)
        problem = None if isinstance(error, Bug) else str(errors.body(error)["message"])
        page = made.page("error.html", status=status, problem=problem, message="own_mistake")
        for name, value in headers.items():
            page.headers[name] = value
        return page

    async def _session(self, request: Request) -> sessions.Session | None:
        cookie = request.cookies.get(_COOKIE, "")
        return await sessions.find(self._console.site.port, cookie, self._console.lasting)

    async def _form(self, made: Frame, *, own: bool = True) -> dict[str, str]:
        """Reads a form that comes from a page of ours; with `own` it must bring the word of this login."""
        _check_source(made.request)
        parts, size = [], 0
        async for part in made.request.stream():
            size += len(part)
            if size > _FORM_LIMIT:
                raise Invalid("The form is too large.", code="payload_too_large")
            parts.append(part)
        try:
            form = dict(parse_qsl(b"".join(parts).decode(), keep_blank_values=True, max_num_fields=50))
        except ValueError:
            raise Invalid("The form cannot be read.", code="invalid_request") from None
        if own and (made.session is None or form.get("word") != made.session.form_word):
            raise Denied("This form is from another login. Go back and try again.", code="forbidden")
        return form

    # What is done

    async def _login(self, made: Frame) -> Response:
        onward = inside(made.request.query_params.get("next"))
        if made.request.method == "GET":
            if made.session is not None:
                return RedirectResponse(onward, 303)
            return made.page("login.html", onward=onward, out=made.request.query_params.get("out") == "1")
        form = await self._form(made, own=False)
        source = made.request.client.host if made.request.client else ""
        if self._too_often(source):
            return made.page("login.html", status=429, onward=onward, out=False, wrong="too_often")
        try:
            cookie = await sessions.log_in(self._console.site.port, form.get("key", ""), self._console.lasting)
        except Denied:
            self._tries.setdefault(source, deque(maxlen=_MOST_TRIES)).append(time.monotonic())
            return made.page("login.html", status=401, onward=onward, out=False, wrong="wrong_key")
        answer = RedirectResponse(inside(form.get("next")), 303)
        self._set(made, answer, cookie, int(self._console.lasting.max_s))
        return answer

    def _too_often(self, source: str) -> bool:
        while len(self._tries) > _MOST_SOURCES:
            self._tries.popitem(last=False)
        tries = self._tries.get(source)
        return tries is not None and len(tries) == _MOST_TRIES and time.monotonic() - tries[0] < _TRIES_WITHIN_S

    async def _logout(self, made: Frame) -> Response:
        await self._form(made)
        if made.session is not None:
            await sessions.log_out(self._console.site.port, made.session)
        answer = RedirectResponse(f"{ROOT}/login?out=1", 303)
        self._set(made, answer, "", 0)
        return answer

    def _set(self, made: Frame, answer: Response, value: str, age_s: int) -> None:
        answer.set_cookie(
            _COOKIE, value, max_age=age_s, path=ROOT, httponly=True, samesite="lax", secure=_is_secure(made.request)
        )

    async def _act(self, made: Frame) -> Response:
        form = await self._form(made)
        return await acts.perform(made, form)

    async def _choose(self, made: Frame) -> Response:
        """Keeps the language or the colours that somebody chose."""
        form = await self._form(made, own=False)
        answer = RedirectResponse(inside(form.get("back")), 303)
        for name, values in (("lang", {"en", "zh"}), ("theme", {"auto", "light", "dark"})):
            if form.get(name) in values:
                answer.set_cookie(f"sm_{name}", form[name], max_age=_YEAR, path=ROOT, httponly=True, samesite="lax")
        return answer


def _check_source(request: Request) -> None:
    """Refuses a form that another site sent, where the browser says which."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()
    if site not in {"same-origin", "none"} or foreign:
        raise Denied("This form comes from another site.", code="forbidden", hint="Open the console itself.")


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"


async def _to_console(_request: Request) -> Response:
    return RedirectResponse(f"{ROOT}/", 307)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    kind = _STATIC.get(name)
    if kind is None:
        return Response("There is no such file.", 404, media_type="text/plain")
    body = resources.files("stationmaster.control.console").joinpath("static", name).read_bytes()
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Content-Type": kind}
    return Response(body, headers=headers)
