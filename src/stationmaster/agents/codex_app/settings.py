"""What an operator chooses for Codex, and what one run brings with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import codex_cli_bin

from stationmaster.agents.driver import ToolSpec
from stationmaster.agents.isolation import Isolation
from stationmaster.redact import Secret

Sandbox = Literal["workspace-write", "danger-full-access"]


def packaged_binary() -> Path:
    """Returns the pinned Codex binary; the rest of its package lies beside it."""
    return Path(codex_cli_bin.bundled_codex_path())


@dataclass(frozen=True, slots=True)
class CodexSettings:
    """The fixed configuration of Codex (GW-R-145); no comment and no API changes it.

    `home` is `codex.home`: the login lies in it and each repository's CODEX_HOME below it. `config` is passed through
    from `[codex.config]`. `sandbox` "danger-full-access" takes Codex's own walls away and is an explicit choice.
    """

    home: Path
    command: Path = field(default_factory=packaged_binary)
    model: str = ""
    reasoning_effort: str = ""
    developer_instructions: str = ""
    sandbox: Sandbox = "workspace-write"
    config: Mapping[str, Any] = field(default_factory=dict)
    request_timeout_s: float = 30.0
    probe_timeout_s: float = 5.0
    close_grace_s: float = 2.0
    bwrap: str = "bwrap"

    def repository_home(self, repository_id: str) -> Path:
        """Returns the CODEX_HOME of one repository: threads live there, and only one run uses it at a time."""
        return self.home / "repos" / repository_id


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run: where it works, what it may use, and what it is told.

    `developer_instructions` are the product's own rules (GW-R-155). `run_temp` is a folder of this run alone, outside
    `codex_home`. `mcp_servers` is Codex's table of the same name; `trusted_servers` names those of them whose tool
    calls are accepted when Codex asks, and `programs` are the files that they are started from. With `read_only` the
    worktree may be looked at and not changed. `log` receives the
    redacted error stream.
    """

    run_id: str
    worktree: Path
    bare: Path
    codex_home: Path
    run_temp: Path
    tools: tuple[ToolSpec, ...] = ()
    developer_instructions: str = ""
    api_key: Secret | None = None
    mounts: tuple[Path, ...] = ()
    isolation: Isolation = "required"
    repo_instructions: bool = False
    mcp_servers: Mapping[str, Any] = field(default_factory=dict)
    trusted_servers: frozenset[str] = frozenset()
    programs: tuple[Path, ...] = ()
    read_only: bool = False
    log: Path | None = None

    def resolved(self) -> RunSpec:
        """Returns the same run with no symbolic link in its paths.

        Codex looks a folder's trust up under its real path; an entry under another name would not hold.
        """
        return replace(
            self,
            worktree=self.worktree.resolve(),
            bare=self.bare.resolve(),
            codex_home=self.codex_home.resolve(),
            run_temp=self.run_temp.resolve(),
            mounts=tuple(mount.resolve() for mount in self.mounts),
            programs=tuple(program.resolve() for program in self.programs),
        )
