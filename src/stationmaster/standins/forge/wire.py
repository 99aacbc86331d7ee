"""Requests and answers as plain values, and Gitea's error bodies and paging."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

DEFAULT_PAGE, MAX_PAGE = 30, 50
SWAGGER_PATH = "/api/swagger"


@dataclass
class Request:
    """One HTTP request, its body already read and de-chunked."""

    method: str
    path: str
    query: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    base_url: str
    peer: str = "127.0.0.1"

    @property
    def params(self) -> dict[str, str]:
        """Returns the query parameters; the first of a repeated name counts."""
        found: dict[str, str] = {}
        for key, value in parse_qsl(self.query, keep_blank_values=True):
            found.setdefault(key, value)
        return found

    @property
    def target(self) -> str:
        """Returns path and query as sent."""
        return f"{self.path}?{self.query}" if self.query else self.path


@dataclass
class Response:
    """One answer; the server adds Date and Content-Length."""

    status: int
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)


class ApiError(Exception):
    """An answer of the API that is not the wanted one."""

    def __init__(self, status: int, message: str = "", *, bare: bool = False, **more: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.bare, self.more = status, message, bare, more


def dump(value: object, *, indent: int | None = None, escape_html: bool = True) -> str:
    """Writes JSON as Go does: raw UTF-8, and (up to 1.25) with <, > and & escaped."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    if escape_html:
        text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text


def as_json(status: int, value: object, headers: list[tuple[str, str]] | None = None) -> Response:
    """Answers with JSON in Gitea's form: compact, one line feed at the end."""
    kind = [("Content-Type", "application/json;charset=utf-8")]
    return Response(status, (dump(value) + "\n").encode(), kind + (headers or []))


def plain(status: int, text: str, headers: list[tuple[str, str]] | None = None) -> Response:
    """Answers with plain text."""
    return Response(status, text.encode(), [("Content-Type", "text/plain;charset=utf-8"), *(headers or [])])


def as_error(error: ApiError, base_url: str) -> Response:
    """Answers with Gitea's error body; `bare` ones have none."""
    if error.bare:
        return Response(error.status)
    body: dict[str, Any] = {"message": error.message, "url": base_url + SWAGGER_PATH}
    if error.status == HTTPStatus.NOT_FOUND:
        body = {"errors": error.more.get("errors"), "message": error.message or "not found", "url": body["url"]}
    return as_json(error.status, body)


def not_found(*errors: str, message: str = "") -> ApiError:
    """Makes the 404 of the API, with what was not found where Gitea says it."""
    return ApiError(404, message, errors=list(errors) or None)


def number(text: str | None, default: int = 0) -> int:
    """Reads a whole number as Gitea's forms do: rubbish is the default."""
    try:
        return int(text or default)
    except ValueError:
        return default


def page_of(request: Request) -> tuple[int, int]:
    """Returns (page, size): page from 1, size 30 unless asked, at most 50."""
    size = number(request.params.get("limit"))
    return max(number(request.params.get("page")), 1), DEFAULT_PAGE if size <= 0 else min(size, MAX_PAGE)


def paged(request: Request, rows: list[Any]) -> tuple[list[Any], list[tuple[str, str]]]:
    """Cuts the asked page out of all rows and returns it with Link and X-Total-Count."""
    page, size = page_of(request)
    last = max((len(rows) + size - 1) // size, 1)
    wanted = [("next", page + 1)] if page < last else []
    wanted += [("last", last)] if page < last else []
    wanted += [("first", 1), ("prev", page - 1)] if page > 1 else []
    links = []
    for name, target in wanted:
        query = urlencode(sorted({**request.params, "page": str(target)}.items()))
        links.append(f'<{request.base_url}{request.path}?{query}>; rel="{name}"')
    headers = [("Access-Control-Expose-Headers", "Link, X-Total-Count"), ("Link", ",".join(links))] if links else []
    return rows[(page - 1) * size : page * size], [*headers, ("X-Total-Count", str(len(rows)))]
