"""The conversation over standard input and output, and the forge's REST interface behind it."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPMessage, HTTPResponse
from typing import IO, Any

from stationmaster.standins.gitea_mcp import dialects
from stationmaster.standins.gitea_mcp.dialects import DIALECTS, Dialect, Json

NAME = "Gitea MCP Server"
# What the product of the same name on the Python index calls itself.
STRANGER = "gitea-mcp"
# exit: ends at once. silent: never answers. stranger: another product of the same name. read_only: no tool that
# writes. garbage: answers what is no JSON. dies: ends once it was greeted. refuses: answers the greeting with an error.
PLAYS = ("exit", "silent", "stranger", "read_only", "garbage", "dies", "refuses")
_REFUSED, _UNKNOWN, _FAILED = -32602, -32601, -32603
_TIMEOUT_S = 20.0


class ToolError(Exception):
    """What a tool says when it could not do its work."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follows nothing: a write to a renamed repository fails instead of being lost."""


class GiteaMcp:
    """One server for one client; it answers messages and keeps nothing."""

    def __init__(self, dialect: Dialect, *, host: str, token: str, play: str = "") -> None:
        self._dialect = dialect
        self._host = host.rstrip("/")
        self._token = token
        self._play = play
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())

    def answer(self, message: Json) -> Json | None:
        """Answers one message; None for a notification."""
        if "id" not in message:
            return None
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            return self._greeted(message, params)
        if method == "ping":
            return _result(message, {})
        if method == "tools/list":
            read_only = self._play == "read_only"
            return _result(message, {"tools": dialects.tools(self._dialect, read_only=read_only)})
        if method == "tools/call":
            return self._called(message, str(params.get("name")), params.get("arguments") or {})
        return _error(message, _UNKNOWN, f"method not found: {method}")

    def _greeted(self, message: Json, params: Json) -> Json:
        if self._play == "refuses":
            return _error(message, _FAILED, "not today")
        name = STRANGER if self._play == "stranger" else NAME
        told = {"protocolVersion": params.get("protocolVersion", "2024-11-05"), "capabilities": {"tools": {}}}
        return _result(message, {**told, "serverInfo": {"name": name, "version": self._dialect.version}})

    def _called(self, message: Json, tool: str, arguments: Json) -> Json:
        if tool not in {each["name"] for each in dialects.tools(self._dialect, read_only=self._play == "read_only")}:
            return _error(message, _REFUSED, f"tool '{tool}' not found")
        try:
            words, failed = json.dumps(dialects.shape(self._dialect, self._do(tool, arguments))), False
        except ToolError as error:
            if not self._dialect.soft:
                return _error(message, _FAILED, str(error))
            words, failed = str(error), True
        said = {"content": [{"type": "text", "text": words}]}
        return _result(message, {**said, "isError": True} if failed else said)

    def _do(self, tool: str, given: Json) -> Any:
        wanted = dialects.operation(self._dialect, tool, given)
        if wanted is None:
            raise ToolError(f"unknown method: {given.get('method')}")
        where = f"/repos/{_text(given, 'owner')}/{_text(given, 'repo')}/issues"
        if wanted == "edit":
            changed = {"body": _text(given, "body")}
            return self._ask("PATCH", f"{where}/comments/{self._number(given, 'commentID')}", changed)
        issue = f"{where}/{self._number(given, self._dialect.number)}"
        if wanted == "create":
            return self._ask("POST", f"{issue}/comments", {"body": _text(given, "body")})
        return self._ask("GET", f"{issue}/comments" if wanted == "comments" else issue)

    def _number(self, given: Json, name: str) -> int:
        value = given.get(name)
        if isinstance(value, str) and value.isdecimal() and self._dialect.loose:
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ToolError(f"{name} is required")
        return int(value)

    def _ask(self, method: str, path: str, body: Json | None = None) -> Any:
        if not self._host:
            # The real program would send the token to its default host.
            raise ToolError("GITEA_HOST is not set: https://gitea.com would be asked")
        asked = urllib.request.Request(  # noqa: S310 - the scheme is the operator's, as with the real program
            f"{self._host}/api/v1{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"token {self._token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with self._opener.open(asked, timeout=_TIMEOUT_S) as response:
                return _body(response)
        except urllib.error.HTTPError as error:
            raise ToolError(f"{method} {path} err: {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise ToolError(f"{method} {path} err: {error}") from None


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Serves standard input until it ends; returns the exit status."""
    own, given = _own(argv)
    dialect, play = DIALECTS[own.get("dialect", "1.8")], own.get("play", "")
    flags = _flags(given)
    unknown = sorted(set(flags) - dialect.flags)
    if unknown:
        sys.stderr.write(f"flag provided but not defined: -{unknown[0]}\n")
        return 2
    if play == "exit":
        sys.stderr.write("log: failed to start\n")
        return 1
    mode = env.get("MCP_MODE") or flags.get("t") or flags.get("transport") or "stdio"
    host = flags.get("H") or flags.get("host") or env.get("GITEA_HOST", "")
    token = flags.get("T") or flags.get("token") or env.get("GITEA_ACCESS_TOKEN", "")
    server = GiteaMcp(dialect, host=host, token=token, play=play)
    for line in sys.stdin:
        # Over HTTP, which MCP_MODE may have chosen, nobody listens here.
        if play == "silent" or mode != "stdio":
            continue
        answer = "{oops" if play == "garbage" else _line(server.answer(json.loads(line)))
        if answer:
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
        if play == "dies":
            return 1
    return 0


def _line(answer: Json | None) -> str:
    return "" if answer is None else json.dumps(answer)


def _own(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Takes what steers the stand-in out of the arguments: `--dialect V` and `--play WHAT`."""
    own, rest, words = {}, [], list(argv)
    while words:
        word = words.pop(0)
        if word in {"--dialect", "--play"} and words:
            own[word[2:]] = words.pop(0)
        else:
            rest.append(word)
    return own, rest


def _flags(argv: Sequence[str]) -> dict[str, str]:
    found, words = {}, list(argv)
    while words:
        name, equals, value = words.pop(0).lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name] = value
    return found


def _text(given: Json, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"{name} is required")
    return value


def _body(response: HTTPResponse) -> Any:
    if response.status >= 300:  # noqa: PLR2004 - a redirect that nobody follows
        raise ToolError(f"{response.status} {response.reason}")
    return json.loads(response.read() or b"null")


def _result(message: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _error(message: Json, code: int, words: str) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words}}
