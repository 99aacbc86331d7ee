from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from stationmaster import faults
from stationmaster.errors import Invalid
from stationmaster.ops import config, config_text
from stationmaster.ops.home import Home, prepare
from stationmaster.ops.settings import Config


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return prepare(tmp_path / "home")


def _load(home: Home, text: str) -> Config:
    home.config_file.write_text(text)
    return config.load(home)


def test_without_a_file_the_defaults_are_in_effect(home: Home) -> None:
    loaded = config.load(home)
    # GW-R-119
    assert (loaded.gitea.lease.heartbeat_s, loaded.gitea.lease.ttl_s, loaded.gitea.lease.max_loss_s) == (30, 90, 120)
    assert loaded.gitea.bot_login == "ccweb-bot"
    assert loaded.workspace.root == home.path / "workspaces"
    assert loaded.codex.home == home.path / "codex"
    assert loaded.codex.command is None
    assert loaded.database.url is None


def test_every_key_that_the_specification_names_is_there() -> None:
    # GW-R-238; lease, retry, abort, verify and mcp stand under gitea, the app-server's keys under codex.
    named = (
        "gitea.base_url gitea.host_ref gitea.token_ref gitea.webhook_secret_ref gitea.bot_login"
        " gitea.disabled_repo_policy workspace.root gitea.lease.ttl_s gitea.lease.heartbeat_s gitea.lease.max_loss_s"
        " gitea.retry.delay_s gitea.abort.timeout_s gitea.verify.settle_s git.timeout_s codex.command"
        " codex.request_timeout_s codex.model codex.reasoning_effort codex.developer_instructions"
        " retention.delivery_days gitea.mcp.command gitea.mcp.handshake_timeout_s"
    )
    defaults = tomllib.loads(config.default_text())
    for key in named.split():
        value = defaults
        for part in key.split("."):
            value = value[part]
    assert "appserver.command" in config.default_text()
    assert "appserver.request_timeout_s" in config.default_text()


def test_every_default_is_commented() -> None:
    lines = config.default_text().splitlines()
    bare = [line for above, line in pairwise(lines) if "=" in line and line[0] != "#" and above[:1] != "#"]
    assert not bare


WRONG = [
    ("colour = 1", "has an unknown key: colour."),
    ("[gitea]\nbot_name = 'x'", "has an unknown key: gitea.bot_name."),
    ("[gitea.lease]\nttl = 1", "has an unknown key: gitea.lease.ttl."),
    ("gitea = 1", "gitea must be a table."),
    ("[gitea]\nlease = 1", "gitea.lease must be a table."),
    ("[codex]\nconfig = 1", "codex.config must be a table."),
    ("[gitea.lease]\nttl_s = '90'", "gitea.lease.ttl_s must be a number."),
    ("[gitea.lease]\nttl_s = true", "gitea.lease.ttl_s must be a number."),
    ("[gitea.lease]\nttl_s = nan", "gitea.lease.ttl_s must be between 0.001 and 86400."),
    ("[gitea.lease]\nttl_s = inf", "gitea.lease.ttl_s must be between 0.001 and 86400."),
    ("[gitea.lease]\nheartbeat_s = 0", "gitea.lease.heartbeat_s must be between 0.001 and 86400."),
    ("[gitea.lease]\nttl_s = 59.9", "gitea.lease.ttl_s must be at least twice gitea.lease.heartbeat_s (30.0)."),
    ("[gitea.lease]\nttl_s = 121", "gitea.lease.ttl_s must be at most gitea.lease.max_loss_s (120.0)."),
    ("[gitea]\ndisabled_repo_policy = 'drop'", 'gitea.disabled_repo_policy must be one of "reject", "ignore".'),
    ("[gitea]\nreply_mode = 'mcp'", 'gitea.reply_mode must be one of "scoped", "official".'),
    ("[gitea]\nreply_mode = 'official'\n[gitea.mcp]\ncommand = ''", "gitea.mcp.command must be a name or an absolute"),
    ("[gitea]\nreply_mode = 'official'\n[gitea.mcp]\ncommand = 'bin/x'", "gitea.mcp.command must be a name or an"),
    ("[gitea.mcp]\nhandshake_timeout_s = 0", "gitea.mcp.handshake_timeout_s must be between 0.001 and 86400."),
    (
        "[gitea]\nreply_mode = 'official'\n[codex]\nsandbox = 'danger-full-access'",
        'codex.sandbox must be "workspace-write" when gitea.reply_mode = "official"',
    ),
    (
        "[gitea]\nreply_mode = 'official'\n[codex.config.mcp_servers.gitea]\ncommand = 'x'",
        "codex.config.mcp_servers.gitea must be left out",
    ),
    ("[gitea]\nallow = 'all'", 'gitea.allow must be one of "write", "read", "admin", "list".'),
    ("[gitea]\nallow = 'list'", 'gitea.allow_list must name somebody when gitea.allow = "list".'),
    ("[gitea]\nallow_list = 'ann'", "gitea.allow_list must be a list."),
    ("[gitea]\nallow_list = [1]", "gitea.allow_list must be text."),
    ("[gitea]\nbot_login = ''", "gitea.bot_login must not be empty."),
    ("[gitea]\nbase_url = 7", "gitea.base_url must be text."),
    ("[gitea]\nbase_url = 'git.example.com'", "gitea.base_url must be an address such as https://git.example.com."),
    ("[gitea]\nbase_url = 'http://['", "gitea.base_url must be an address such as https://git.example.com."),
    ("[gitea]\nbase_url = 'http://a:b@c'", "gitea.base_url must hold no user, password, query or fragment."),
    ("[workspace]\nroot = 'here'", "workspace.root must be an absolute path."),
    ("[agents]\nmounts = ['/opt', 'x']", "agents.mounts must be an absolute path."),
    ("[agents]\nisolation = 'none'", 'agents.isolation must be one of "required", "codex_only".'),
    ("[agents]\nrepo_instructions = 1", "agents.repo_instructions must be true or false."),
    ("[web]\nport = 65536", "web.port must be between 0 and 65535."),
    ("[web]\nport = 80.5", "web.port must be a whole number."),
    ("[web]\nwebhook_max_bytes = 1", "web.webhook_max_bytes must be between 1024 and 1.07374e+09."),
    (
        "[codex.config]\napproval_policy = 'x'",
        "codex.config.approval_policy must be left out: Stationmaster sets it itself.",
    ),
    ("[log]\nlevel = 'loud'", 'log.level must be one of "debug", "info", "warning", "error".'),
    ("[gitea", "is not TOML:"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG, ids=[text.replace("\n", " ") for text, _ in WRONG])
def test_a_wrong_configuration_is_one_sentence_with_file_and_key(home: Home, text: str, sentence: str) -> None:
    # GW-R-238
    with pytest.raises(Invalid) as caught:
        _load(home, text)
    assert sentence in str(caught.value)
    assert str(home.config_file) in str(caught.value)
    assert "\n" not in str(caught.value)


PLAIN = [
    "[gitea]\ntoken_ref = 'PLAINSECRET'",
    "[gitea]\nwebhook_secret_ref = 'PLAINSECRET'",
    "[gitea]\nwebhook_secret_ref = 'file:PLAINSECRET'",
    "[codex]\napi_key = 'sk-PLAINSECRET'",
    "[database]\nurl = 'postgresql://me:PLAINSECRET@db/x'",
    "[codex.config.model_providers.x]\nexperimental_bearer_token = 'PLAINSECRET'",
    "[codex.config.model_providers.x.http_headers]\nAuthorization = 'Bearer PLAINSECRET'",
    "[codex.config.model_providers.x.http_headers]\nX-Api-Key = 'PLAINSECRET'",
]


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_secret_is_refused_and_not_repeated(home: Home, text: str) -> None:
    # GW-R-239
    with pytest.raises(Invalid) as caught:
        _load(home, text)
    assert "PLAINSECRET" not in str(caught.value)


def test_codex_settings_pass_through_when_they_hold_no_secret(home: Home) -> None:
    loaded = _load(home, "[codex.config]\nmodel_provider = 'x'\n[codex.config.model_providers.x]\nenv_key = 'X_KEY'")
    assert loaded.codex.config == {"model_provider": "x", "model_providers": {"x": {"env_key": "X_KEY"}}}


def test_references_are_read_where_they_point_and_only_then(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "token"
    loaded = _load(home, f"[gitea]\ntoken_ref = 'file:{kept}'\nwebhook_secret_ref = 'env:HOOK_SECRET'")
    assert loaded.gitea.token_ref is not None
    assert loaded.gitea.webhook_secret_ref is not None
    with pytest.raises(Invalid, match=r"gitea.token_ref refers to .*token, which cannot be read: No such file"):
        loaded.gitea.token_ref.reveal()
    with pytest.raises(Invalid, match="environment variable HOOK_SECRET, which is not set"):
        loaded.gitea.webhook_secret_ref.reveal()
    kept.write_text("abc-token\n")
    monkeypatch.setenv("HOOK_SECRET", "hook-secret")
    assert loaded.gitea.token_ref.reveal() == "abc-token"
    assert loaded.gitea.webhook_secret_ref.reveal() == "hook-secret"


def test_a_forge_is_configured_whole_or_not_at_all(home: Home) -> None:
    # GW-R-007
    nothing = config.load(home)
    config.check_secrets(nothing)
    assert not config.has_forge(nothing)
    half = _load(home, "[gitea]\nbase_url = 'http://gitea:3000'")
    with pytest.raises(Invalid, match=r"gitea.token_ref, gitea.webhook_secret_ref are not set in"):
        config.check_secrets(half)


def test_an_empty_webhook_secret_is_refused(home: Home, tmp_path: Path) -> None:
    # GW-R-048
    (tmp_path / "token").write_text("abc-token")
    (tmp_path / "hook").write_text(" \n")
    loaded = _load(
        home,
        f"[gitea]\nbase_url = 'http://gitea:3000/'\ntoken_ref = 'file:{tmp_path}/token'\n"
        f"webhook_secret_ref = 'file:{tmp_path}/hook'",
    )
    assert loaded.gitea.base_url == "http://gitea:3000"
    assert loaded.gitea.host_ref == "gitea"
    with pytest.raises(Invalid, match=r"gitea.webhook_secret_ref refers to an empty secret"):
        config.check_secrets(loaded)


def test_the_effective_configuration_can_be_read_again(home: Home, tmp_path: Path) -> None:
    text = (
        "[gitea]\ntoken_ref = 'env:GITEA_TOKEN'\nallow = 'list'\nallow_list = ['ann', 'ö\"']\n"
        "[codex]\ndeveloper_instructions = 'a\\n\"b\"'\n"
        "[codex.config]\n'odd key' = 1\n[codex.config.model_providers.x]\nname = 'y'\nlist = [1, {a = true}]"
    )
    shown = config_text.toml(config_text.plain(_load(home, text)))
    assert "env:GITEA_TOKEN" in shown
    assert config_text.plain(_load(home, shown)) == tomllib.loads(shown)


def test_fault_points_are_armed_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATIONMASTER_FAULT", "a.b,c.d:3")
    try:
        config.arm_faults()
        assert faults._armed == {"a.b": 1, "c.d": 3}
    finally:
        faults.disarm()


def test_the_home_is_the_option_then_the_variable_then_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATIONMASTER_HOME", raising=False)
    assert config.home_path(None) == Path("~/.stationmaster").expanduser()
    monkeypatch.setenv("STATIONMASTER_HOME", "/srv/sm")
    assert config.home_path(None) == Path("/srv/sm")
    assert config.home_path(Path("/other")) == Path("/other")


# --- several forges ---

FIRST = (
    "[gitea]\nbase_url = 'https://one.example'\ntoken_ref = 'env:A'\nwebhook_secret_ref = 'env:B'\nbot_login = 'one'\n"
)
SECOND = (
    "[gitea.instances.second]\nbase_url = 'https://two.example/'\ntoken_ref = 'env:C'\nwebhook_secret_ref = 'env:D'\n"
    "bot_login = 'two'\n"
)


def test_another_forge_inherits_what_it_does_not_set_and_never_what_makes_it_another(home: Home) -> None:
    # GW-R-011
    loaded = _load(home, FIRST + "host_ref = 'first'\nlanguage = 'en'\n[gitea.lease]\nttl_s = 100.0\n" + SECOND
                   + "push = 'off'\n[gitea.instances.second.lease]\nheartbeat_s = 10.0\n")  # fmt: skip
    found = config.forges(loaded)
    assert list(found) == ["default", "second"]
    second = found["second"]
    assert (second.base_url, second.host_ref, second.bot_login) == ("https://two.example", "two.example", "two")
    assert second.token_ref is not None
    assert second.token_ref.ref == "env:C"
    assert (second.language, second.push) == ("en", "off")
    assert (second.lease.ttl_s, second.lease.heartbeat_s) == (100.0, 10.0)
    assert (found["default"].push, found["default"].lease.heartbeat_s) == ("pull_request", 30.0)
    assert {secret.ref for secret in loaded.secrets()} == {"env:A", "env:B", "env:C", "env:D"}


def test_what_is_shown_of_several_forges_can_be_read_again(home: Home) -> None:
    text = FIRST + SECOND + "[gitea.instances.second.limits]\nday_turns = 3\n"
    loaded = _load(home, text)
    shown = config_text.toml(config_text.plain(loaded))
    again = _load(home, shown)
    assert config_text.plain(again) == config_text.plain(loaded)
    assert again.instances["second"].limits.day_turns == 3
    assert again.gitea.limits.day_turns == 0


def test_a_forge_may_stand_alone_under_a_name(home: Home) -> None:
    loaded = _load(home, SECOND)
    assert list(config.forges(loaded)) == ["second"]
    assert config.has_forge(loaded)


@pytest.mark.parametrize("missing", ["base_url", "token_ref", "webhook_secret_ref", "bot_login"])
def test_a_forge_has_its_own_address_bot_token_and_secret(home: Home, missing: str) -> None:
    text = "\n".join(line for line in SECOND.splitlines() if not line.startswith(missing))
    with pytest.raises(Invalid, match=rf"gitea\.instances\.second\.{missing} must be set: a forge has its own"):
        _load(home, FIRST + text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gitea.instances.default]\nbase_url = 'https://x'", r"instances\.default must be named by"),
        ("[gitea.instances.'A b']\nbase_url = 'https://x'", r"instances\.A b must be named by"),
        ("[gitea.instances]\nx = 1", r"gitea\.instances\.x must be a table"),
        (SECOND + "odd = 1", r"unknown key: gitea\.instances\.second\.odd"),
        (SECOND + "[gitea.instances.second.instances.x]\na = 1", r"unknown key: gitea\.instances\.second\.instances"),
        (SECOND.replace("https://two", "two"), r"gitea\.instances\.second\.base_url must be an address"),
        (SECOND.replace("env:C", "plain"), r"gitea\.instances\.second\.token_ref must be a reference"),
        (SECOND + "allow = 'list'", r"gitea\.instances\.second\.allow_list must name somebody"),
    ],
)
def test_what_is_wrong_with_another_forge_is_said_by_its_key(home: Home, text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        _load(home, text)


def test_an_empty_secret_of_another_forge_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # GW-R-048
    for name in "ABC":
        monkeypatch.setenv(name, "something")
    monkeypatch.setenv("D", "")
    with pytest.raises(Invalid, match=r"gitea\.instances\.second\.webhook_secret_ref refers to an empty secret"):
        config.check_secrets(_load(home, FIRST + SECOND))
