"""What the official gitea-mcp calls things: one operation for its different versions, chosen by what it lists.

Pure. It names a tool and its arguments for the agent and reads what a call reported; it makes no call and changes none
(GW-R-160, GW-R-162).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from stationmaster.gitea import codes

SERVER = "gitea"
# Known versions write a comment with the first or the second, and call an issue's number one of these.
_PLAIN, _MERGED, _METHOD = "create_issue_comment", "issue_write", "add_comment"
_NUMBERS = ("issue_number", "index", "pull_number")
# The id comes first in every known result, also in one that was cut.
_ID = re.compile(r'\s*\{\s*(?:"Result"\s*:\s*\{\s*)?"id"\s*:\s*(\d{1,18})\b')


@dataclass(frozen=True, slots=True)
class Create:
    """The operation `gitea.comment.create`: a comment on an issue or pull request.

    No version takes a key: `mark`, the last line of the body, is what makes a repeat known again.
    """

    owner: str
    repo: str
    number: int
    body: str
    mark: str


@dataclass(frozen=True, slots=True)
class Created:
    """What a call says became of a comment; the forge alone proves it (GW-R-161)."""

    accepted: bool
    comment_id: int | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class CommentTool:
    """The tool of one gitea-mcp that writes comments, and what it calls its arguments."""

    name: str
    number: str
    method: str | None = None

    @classmethod
    def listed(cls, tools: Sequence[Mapping[str, Any]]) -> Self | None:
        """Finds it among the tools that a server lists; None when there is none of a known form."""
        known = {str(tool.get("name")): _schema(tool) for tool in tools}
        for name, method in ((_MERGED, _METHOD), (_PLAIN, None)):
            properties = known.get(name)
            if properties is None or "body" not in properties or not _offers(properties, method):
                continue
            number = next((each for each in _NUMBERS if each in properties), None)
            if number is not None:
                return cls(name, number, method)
        return None

    def arguments(self, what: Create) -> dict[str, Any]:
        """Returns the arguments of the call that creates a comment."""
        body = f"{what.body}\n\n{what.mark}"
        said = {"owner": what.owner, "repo": what.repo, self.number: what.number, "body": body}
        return said if self.method is None else {"method": self.method, **said}


def created(result: str, *, failed: bool) -> Created:
    """Reads what a call of the tool answered, whichever version did (both shapes, both forms of an error)."""
    if failed:
        return Created(accepted=False, error_code=codes.MCP_CALL_FAILED)
    found = _ID.match(result)
    if found is not None:
        return Created(accepted=True, comment_id=int(found[1]))
    try:
        said = json.loads(result)
    except ValueError:
        return Created(accepted=True)
    inside = said.get("Result", said) if isinstance(said, dict) else None
    number = inside.get("id") if isinstance(inside, dict) else None
    return Created(accepted=True, comment_id=number if type(number) is int and number > 0 else None)


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _offers(properties: Mapping[str, Any], method: str | None) -> bool:
    if method is None:
        return True
    given = properties.get("method")
    choices = given.get("enum") if isinstance(given, Mapping) else None
    return isinstance(given, Mapping) and (not isinstance(choices, list) or method in choices)
