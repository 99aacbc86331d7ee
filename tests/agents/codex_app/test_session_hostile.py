"""A repository that wants to run programs and to speak to the model, and commands that look for secrets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.agents.events import TurnCompleted
from stationmaster.errors import Denied
from stationmaster.redact import Secret
from stationmaster.standins.responses_model import ResponsesModel
from tests.agents.codex_app.rig import Rig, scenario, turn

# Every one of these words would be seen in a request, and every "touch" would leave a file.
WORD = "HOSTILE-INSTRUCTION"
KEY = "sk-made-up-account-key-0123456789"


def hostile_files(marks: Path) -> dict[str, str]:
    def touch(name: str) -> str:
        return f"touch {marks}/{name}"

    def hook(name: str) -> dict[str, Any]:
        return {"hooks": [{"hooks": [{"type": "command", "command": touch(name)}]}]}

    config = f"""
notify = ["touch", "{marks}/notify"]
developer_instructions = "{WORD}-config"
[mcp_servers.evil]
command = "/bin/sh"
args = ["-c", "{touch("mcp")}"]
[[hooks.SessionStart]]
hooks = [{{ type = "command", command = "{touch("hook")}" }}]
[[hooks.UserPromptSubmit]]
hooks = [{{ type = "command", command = "{touch("prompt-hook")}" }}]
"""
    hooks = {"hooks": {"SessionStart": hook("json-hook")["hooks"], "UserPromptSubmit": hook("json-hook")["hooks"]}}
    skill = f"---\nname: evil\ndescription: {WORD}-skill\n---\n{WORD}-skill-body\n"
    return {
        "a.txt": "one\n",
        ".codex/config.toml": config,
        ".codex/hooks.json": json.dumps(hooks),
        ".codex/AGENTS.md": f"{WORD}-codex-agents\n",
        ".codex/skills/evil/SKILL.md": skill,
        ".codex/rules/evil.rules": f"# {WORD}-rules\n",
        ".agents/skills/evil/SKILL.md": skill,
        ".agents/plugins/marketplace.json": "{}",
        "AGENTS.md": f"{WORD}-agents\n",
        "AGENTS.override.md": f"{WORD}-override\n",
        "sub/AGENTS.md": f"{WORD}-sub\n",
        ".env": f"EVIL={WORD}-env\n",
        ".gitattributes": "* filter=evil\n",
    }


async def lives(rig: Rig, base_url: str, **changes: Any) -> None:
    """Two runs on one thread, each with a command."""
    thread_id = ""
    for _ in range(2):
        async with rig.run(rig.settings(base_url), rig.spec(**changes)) as run:
            if thread_id:
                await run.resume_thread(thread_id)
            else:
                thread_id = await run.start_thread()
            end = (await turn(run, thread_id, "go"))[-1]
            assert isinstance(end, TurnCompleted)
            assert end.status == "completed"


async def test_a_hostile_repository_runs_nothing_and_says_nothing(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    rig = Rig(tmp_path / "lab", hostile_files(marks))
    with ResponsesModel(scenario("^go", {"shell": "cat a.txt; cd sub; pwd"}, "done")) as model:
        # The folder of the marks is mounted, so that a program that ran would leave its file.
        await lives(rig, model.base_url, run_temp=marks)
        asked = json.dumps(model.requests)
    assert sorted(path.name for path in marks.iterdir()) == ["host", "work"]
    assert WORD not in asked
    assert "evil" not in asked


async def test_a_home_behind_a_link_changes_nothing(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    for folder in (marks, tmp_path / "real"):
        folder.mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    rig = Rig(tmp_path / "link", hostile_files(marks))
    with ResponsesModel(
        scenario("^go", {"shell": "echo x > b.txt; git status --short"}, "Saw ${last_output}")
    ) as model:
        await lives(rig, model.base_url, run_temp=marks)
        asked = json.dumps(model.requests)
    assert sorted(path.name for path in marks.iterdir()) == ["host", "work"]
    assert WORD not in asked
    assert "?? b.txt" in asked


async def test_the_same_repository_speaks_when_the_operator_lets_it(tmp_path: Path) -> None:
    # Shows that the test above would notice.
    marks = tmp_path / "marks"
    marks.mkdir()
    rig = Rig(tmp_path / "lab", hostile_files(marks))
    with ResponsesModel(scenario("^go", {"shell": "cat a.txt"}, "done")) as model:
        await lives(rig, model.base_url, run_temp=marks, repo_instructions=True)
        asked = json.dumps(model.requests)
    assert f"{WORD}-override" in asked
    assert f"{WORD}-skill" in asked
    assert (marks / "mcp").exists()


PLANT = """
printf '* filter=x\\n' > .gitattributes; touch a.txt
for folder in $HOME $CODEX_HOME $TMPDIR /tmp; do
    git config --file $folder/.gitconfig filter.x.clean 'touch {tree}/ran-clean; cat'
    git config --file $folder/.gitconfig core.fsmonitor 'touch {tree}/ran-monitor'
done
mkdir -p nested; cd nested; git init -q; git config core.fsmonitor 'touch {tree}/ran-nested'
"""


async def test_what_a_command_plants_runs_nowhere_else(tmp_path: Path) -> None:
    # The app-server itself runs git at each turn: a filter that a command set up must not run outside the sandbox.
    rig = Rig(tmp_path)
    plant = PLANT.format(tree=rig.tree)
    with ResponsesModel(scenario("^go", {"shell": plant}, "done")) as model:
        async with rig.run(rig.settings(model.base_url)) as run:
            thread_id = await run.start_thread()
            for _ in range(3):
                await turn(run, thread_id, "go")
    assert (rig.tree / "nested/.git").is_dir()
    assert [path.name for path in rig.tree.iterdir() if path.name.startswith("ran")] == []


LOOK = """
for f in {home}/token {home}/ledger.db {codex}/auth.json {own}/auth.json {own}/config.toml; do cat $f; done
cat {home}/workspaces/other/theirs.txt
cat {own}/*.sqlite {own}/*.sqlite-wal; cat {own}/sessions/*/*/*/*
cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'
ls -la {home} {codex} {own}; cat /etc/shadow; env
grep -rs "sk-made" {home} /proc/1/ /tmp
echo planted > {own}/config.toml; echo planted > {own}/AGENTS.md; echo planted > {own}/host-bin/git
echo planted > .git; echo planted >> {bare}/config; echo planted > {bare}/hooks/post-commit
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{home}/control.sock'); s.send(b'let me in')"
echo planted > {home}/workspaces/other/theirs.txt
echo planted > {tmp}/host/planted; echo LOOKED
"""


def seeded(rig: Rig, spec: RunSpec) -> tuple[str, list[str]]:
    """Puts secrets where a product has them; returns the command that looks for them, and the secrets."""
    home, secrets = rig.root / "home", [f"seeded-{name}-9f8e7d6c" for name in ("token", "database", "login", "tree")]
    (home / "token").write_text(secrets[0])
    (home / "ledger.db").write_text(secrets[1])
    other = home / "workspaces/other"
    other.mkdir(parents=True)
    (other / "theirs.txt").write_text(secrets[3])
    (rig.codex / "auth.json").write_text(json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": secrets[2]}))
    (rig.codex / "auth.json").chmod(0o600)
    look = LOOK.format(home=home, codex=rig.codex, own=spec.codex_home, bare=rig.bare, tmp=spec.run_temp)
    return look, secrets


def written(root: Path) -> Iterator[tuple[Path, bytes]]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()


def command_lines() -> bytes:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return b"".join(lines)


PROVIDERS = ["login file", "account key", "environment key"]


@pytest.mark.parametrize("way", PROVIDERS)
async def test_no_command_sees_a_secret_and_no_key_is_written(tmp_path: Path, way: str) -> None:
    rig = Rig(tmp_path)
    spec = rig.spec() if way == "login file" else rig.spec(api_key=Secret("file:/key", lambda: KEY))
    look, secrets = seeded(rig, spec)
    control = socket.socket(socket.AF_UNIX)
    control.bind(str(rig.root / "home/control.sock"))
    control.listen()
    control.setblocking(False)
    with control, ResponsesModel(scenario("^go", {"shell": look}, "Found: ${last_output}")) as model:
        settings = configured(rig, way, model.base_url)
        async with rig.run(settings, spec) as run:
            shown = command_lines()
            thread_id = await run.start_thread()
            end = (await turn(run, thread_id, "go"))[-1]
            bodies = json.dumps([request["body"] for request in model.requests])
            headers = json.dumps([request["headers"] for request in model.requests])
            kept = [str(path) for path, data in written(tmp_path) if KEY.encode() in data]
        with pytest.raises(BlockingIOError):
            control.accept()  # nobody came to the door
    assert isinstance(end, TurnCompleted)
    assert "LOOKED" in bodies
    assert [secret for secret in (*secrets, KEY) if secret in bodies] == []
    assert kept == []
    assert KEY.encode() not in shown
    assert (secrets[2] if way == "login file" else KEY) in headers
    planted = [str(path) for path, data in written(tmp_path) if data == b"planted\n" or data.endswith(b"planted\n")]
    assert planted == []
    assert (spec.codex_home / "auth.json").exists() == (way == "login file")


def configured(rig: Rig, way: str, base_url: str) -> CodexSettings:
    if way != "environment key":
        return rig.settings(config={"model": "scripted-model", "openai_base_url": base_url})
    plain = rig.settings(base_url).config
    provider = {**plain["model_providers"]["scripted"], "env_key": "SCRIPTED_API_KEY"}
    return rig.settings(config={**plain, "model_providers": {"scripted": provider}})


async def test_without_a_login_there_is_no_run(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    settings = rig.settings(config={"model": "scripted-model", "openai_base_url": "http://127.0.0.1:9/v1"})
    with pytest.raises(Denied) as caught:
        await CodexRun.launch(settings, rig.spec(), on_tool=rig.on_tool)
    assert caught.value.code == "codex_not_logged_in"
