from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from stationmaster.control import grants, server
from stationmaster.errors import Denied, Invalid
from stationmaster.ledger import history
from tests.control.conftest import Running


async def test_the_socket_is_its_owners_and_says_who_the_peer_is(running: Running) -> None:
    assert stat.S_IMODE(running.socket.stat().st_mode) == 0o600
    async with running.over_socket() as owner:
        answer = await owner.post("/api/stationmaster/operators", json={"name": "ann"})
    assert answer.status_code == 201
    [command] = running.ledger.read(history.by_ref, "operator", "ann")[:1]
    assert command.actor == grants.own().principal.actor


def test_a_peer_of_another_user_is_denied() -> None:
    with pytest.raises(Denied):
        grants.of_peer(os.geteuid() + 1)


def test_a_taken_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Invalid, match=rf"127\.0\.0\.1 port {port} cannot be used: .*Set web\.host and web\.port"):
            server.bind_tcp("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(Invalid, match=r"192\.0\.2\.1 port 80 cannot be used"):
        server.bind_tcp("192.0.2.1", 80)


def test_a_leftover_socket_is_replaced_and_a_deep_folder_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    server.bind_unix(deep / "c.sock").close()
    with server.bind_unix(deep / "c.sock") as listener, server.short(deep / "c.sock") as name:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(name)
        assert listener.family == socket.AF_UNIX
