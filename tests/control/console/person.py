"""Somebody at a browser without scripts: keeps cookies, reads pages, sends the forms that stand in them."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

import httpx

from tests.control.conftest import Running

ROOT = "/console"


@dataclass
class Person:
    """One browser."""

    client: httpx.AsyncClient
    page: str = ""
    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)

    async def go(self, path: str = "/") -> str:
        """Opens a page of the console and returns its text."""
        return await self._shown(await self.client.get(f"{ROOT}{path}"))

    async def send(self, act: str, **given: str) -> str:
        """Sends the form with this address that stands in the page, with some fields filled in."""
        return await self.post(act, self.form(act) | given)

    async def post(self, act: str, fields: dict[str, str]) -> str:
        """Sends fields to an address as a form of the same site."""
        headers = {"Origin": str(self.client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        return await self._shown(await self.client.post(f"{ROOT}{act}", data=fields, headers=headers))

    def form(self, act: str, nth: int = 0) -> dict[str, str]:
        """Returns the fields of a form in the page."""
        found = re.findall(rf'<form method="post" action="{ROOT}{re.escape(act)}".*?</form>', self.page, re.DOTALL)
        assert found, f"no form {act} in the page"
        tags = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input[^>]*>", found[nth])]
        return {tag["name"]: html.unescape(tag["value"]) for tag in tags if "value" in tag}

    def has(self, act: str) -> bool:
        """Tells whether the page has a form with this address."""
        return f'action="{ROOT}{act}"' in self.page

    def said(self, name: str) -> str:
        """Returns the text of the part with a test id."""
        found = re.search(rf'data-testid="{name}"[^>]*>(.*?)</(?:p|section|table)>', self.page, re.DOTALL)
        return html.unescape(re.sub(r"<[^>]+>", "", found[1])).strip() if found else ""

    async def _shown(self, answer: httpx.Response) -> str:
        self.page, self.status, self.headers = answer.text, answer.status_code, answer.headers
        return self.page


class Crowd:
    """The people of one test, whose browsers are closed at its end."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._clients: list[httpx.AsyncClient] = []

    def browser(self) -> Person:
        """Returns a browser that nobody has logged in with."""
        client = httpx.AsyncClient(base_url=self.running.url, trust_env=False, follow_redirects=True)
        self._clients.append(client)
        return Person(client)

    async def logged_in(self, name: str = "ann", scope: str = "operate") -> Person:
        """Returns the browser of an operator who is logged in."""
        person = self.browser()
        await person.go("/login")
        await person.send("/login", key=await self.running.key(name, scope))
        assert person.status == 200, person.page
        return person

    async def close(self) -> None:
        """Closes every browser."""
        for client in self._clients:
            await client.aclose()
