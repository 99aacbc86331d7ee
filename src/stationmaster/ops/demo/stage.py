"""The stage: a forge with people, a repository and an issue, a scripted model, and the product in between."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from stationmaster.ops.demo.product import Product, scripted_model
from stationmaster.standins.forge import Forge, ForgeAdmin
from stationmaster.standins.responses_model import ResponsesModel

BOT = "ccweb-bot"
PERSON = "maria"
OWNER = "acme"
REPO = "acme/greeter"
CHECKED = "all greetings are right"
_FILES = {
    "README.md": "# Greeter\n\n`sh greet.sh NAME` greets somebody.\n",
    "greet.sh": '#!/bin/sh\n# Greets somebody by name.\necho "Hello, ${1:-world}!"\n',
    "test.sh": f'#!/bin/sh\nset -e\ntest "$(sh greet.sh Ada)" = "Hello, Ada!"\necho "{CHECKED}"\n',
}
_TITLE = "Greetings are too quiet"
_BODY = "At the fair nobody hears `greet.sh`. It should be able to greet loudly."


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that runs, and where a person would look."""

    folder: Path
    forge: Forge
    admin: ForgeAdmin
    model: ResponsesModel
    product: Product
    issue: int
    bot_id: int
    token: str
    password: str

    @property
    def issue_url(self) -> str:
        """Returns the address of the issue's page."""
        return f"{self.forge.url}/{REPO}/issues/{self.issue}"


def scenario() -> Path:
    """Returns the file of what the model says."""
    return Path(str(resources.files("stationmaster.ops.demo").joinpath("scenario.json")))


@contextlib.contextmanager
def raised() -> Iterator[Stage]:
    """Sets the stage up in a fresh folder, and takes it down again whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="stationmaster-demo-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        forge = stack.enter_context(Forge(folder / "forge"))
        admin = stack.enter_context(ForgeAdmin(forge.url))
        model = stack.enter_context(ResponsesModel(scenario()))
        token, password, hook_secret = (secrets.token_hex(20) for _ in range(3))
        bot_id = _seed(admin, token, password)
        product = Product(folder / "home")
        product.configure(_settings(forge, model), token=token, webhook_secret=hook_secret)
        stack.callback(product.stop)
        product.start()
        admin.hook(f"{product.web}/api/gitea/webhook", repo=REPO, secret=hook_secret)
        issue = admin.issue(REPO, PERSON, _TITLE, _BODY)
        yield Stage(folder, forge, admin, model, product, issue, bot_id, token, password)


def _seed(admin: ForgeAdmin, token: str, password: str) -> int:
    admin.org(OWNER)
    admin.user(PERSON, full_name="Maria Rossi", password=password)
    bot_id = admin.bot(BOT)
    # The bot may write and no more, so who may ask is read from the signed event.
    admin.repo(OWNER, REPO.partition("/")[2], _FILES, collaborators={PERSON: "write", BOT: "write"})
    admin.token(BOT, scopes=["write:issue", "write:repository", "read:user"], value=token)
    return bot_id


def _settings(forge: Forge, model: ResponsesModel) -> dict[str, Any]:
    return {
        "gitea": {"base_url": forge.url, "bot_login": BOT, "language": "en"},
        "web": {"port": 0},
        "codex": {"config": scripted_model(model.base_url)},
    }
