"""Whoever connects to a table server, and whatever it sends first: others are served as before."""

import contextlib
import os
import threading
import time
from socket import send_fds

import pytest

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Int
from starling.data import Sampler, ServerLimits, ServerLostError, Table, Writer, ask_server
from starling.data.server.wire import connect

from .bad_clients import (
    SAMPLER,
    WRITER,
    ask,
    assert_served,
    close_all,
    connected,
    flood,
    framed,
    is_closed,
    serve_with_few_descriptors,
)
from .helpers import POINT
from .remote import process, wait_for

REFUSED = [
    ({**WRITER, "tables": []}, "'tables' breaks the rule that it has one name at least"),
    ({**SAMPLER, "tables": []}, "'tables' breaks the rule that it has one name at least"),
    ({**WRITER, "tables": ["t", "t"]}, "each once"),
    ({**WRITER, "tables": [["t"]]}, "'tables' = "),
    ({**WRITER, "tables": {"t": 1}}, "'tables' = "),
    ({**WRITER, "tables": ["x"]}, "unknown table 'x'"),
    ({**SAMPLER, "tables": ["t", "x"]}, "unknown table 'x'"),
    ({**WRITER, "actor": True}, "'actor' = True arrived, a whole number"),
    ({**WRITER, "actor": 10**400}, "'actor'"),
    ({**WRITER, "actor": -1}, "'actor' = -1"),
    ({**WRITER, "actor": "3"}, "'actor' = '3'"),
    ({**WRITER, "slots": 0}, "'slots' = 0"),
    ({**WRITER, "slots": 65_537}, "'slots' = 65537 arrived, a whole number from 1 to 65536"),
    ({**WRITER, "slots": 2**62}, "'slots'"),
    ({**WRITER, "slots": 8.0}, "'slots' = 8.0"),
    ({**WRITER, "extra": 1}, r"\['extra'\] beside role, tables"),
    ({**WRITER, "layout": [["n", [], "float32"]]}, "the client's items are"),
    ({**WRITER, "layout": None}, "the client's items are None"),
    ({**SAMPLER, "batch": -1}, "'batch' = -1"),
    ({**SAMPLER, "batch": 2**40}, "'batch'"),
    ({**SAMPLER, "depth": 2_000}, "'depth' = 2000 arrived, a whole number from 1 to 1024"),
    ({**SAMPLER, "updates": 0}, "'updates' = 0"),
    ({**SAMPLER, "updates": None}, "'updates' = None"),
    ({"role": ["writer"]}, r"'role' = \['writer'\]"),
    ({"role": "stats", "tables": []}, r"\['tables'\] beside role"),
    ({"role": None}, "'role' = None"),
    ({}, "nothing under 'role'"),
    ([WRITER], "an object was expected"),
    (b'{"role": "writer", "actor": Infinity}', "Infinity is no number"),
    (b'{"role": "writer", "actor": NaN}', "NaN is no number"),
    (b'{"role": "writer", "tables": ["t"], "layout": [], "actor": 1e999}', "the client's items are"),
    (b'{"a": ' * 1_000 + b"1" + b"}" * 1_000, "cannot be read as JSON|more than 16 brackets"),
    (b"[" * 100_000, "cannot be read as JSON"),
    (b'{"role": "writer", "tables": ' + b"[" * 50 + b"]" * 50 + b"}", "more than 16 brackets within each other"),
    (b"9" * 5_000, "cannot be read as JSON"),
    (b"\xff\xfe{", "cannot be read as JSON"),
    (b"", "cannot be read as JSON"),
]


@pytest.mark.parametrize(("request_", "match"), REFUSED)
def test_a_request_that_cannot_be_served_is_refused_with_a_reason(attacked, request_, match):
    address = attacked()
    with pytest.raises(DataError, match=match):
        raise DataError(ask(address, framed(request_))["error"])
    assert_served(address)


@pytest.mark.parametrize("content", [b"\xff" * 8, framed(WRITER) + b"!", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_message_is_refused(attacked, content):
    address = attacked()
    assert "a message of" in ask(address, content)["error"]
    assert_served(address)


def test_a_client_gets_so_much_memory_and_no_more(attacked):
    image = Dict(image=Int((84, 84, 4), 0, 256, "uint8"))
    address = attacked(Table(image, 50), limits=ServerLimits(segment_bytes=20_000_000, all_bytes=30_000_000))
    with pytest.raises(DataError, match=r"1\.85 GB of shared memory were asked for; a client gets 20 MB at most"):
        Writer(address, "t", image, slots=65_536)
    with pytest.raises(DataError, match="of shared memory were asked for"):
        Sampler(address, "t", image, batch_size=500)
    assert attacked.running[0][0]._handshake._quota.nbytes == 0
    first = Writer(address, "t", image, slots=600, actor=1)
    with pytest.raises(
        ServerLostError, match=r"16\.9 MB of shared memory were asked for, and clients have 16\.9 MB of 30"
    ):
        Writer(address, "t", image, slots=600, actor=2, patience=0.1)
    first.close()
    second = Writer(address, "t", image, slots=600, actor=2)
    second.close()
    with pytest.raises(ConfigError, match="all of them are positive"):
        ServerLimits(patience=0)


def test_only_so_many_clients_are_connected_at_once(attacked):
    address = attacked(limits=ServerLimits(connections=3))
    writers = [Writer(address, "t", POINT, actor=actor) for actor in range(3)]
    with pytest.raises(ServerLostError, match="the server has 3 connections, as many as its limits allow"):
        Sampler(address, "t", POINT, 1, patience=0.1)
    assert ask_server(address, "stats")["(server)"]["connections"] == 3
    for writer in writers:
        writer.close()
    assert_served(address)


def test_clients_that_ask_for_checkpoints_wait_in_a_short_queue(attacked, tmp_path, monkeypatch):
    address = attacked(directory=tmp_path / "d", limits=ServerLimits(checkpoints=1))
    server, go_on = attacked.running[0][0], threading.Event()
    monkeypatch.setattr(server._handshake, "_checkpoint", lambda: go_on.wait(10))
    asked = []
    thread = threading.Thread(target=lambda: asked.append(ask_server(address, "checkpoint")))
    thread.start()
    wait_for(lambda: server._handshake._saving._value == 0)
    with pytest.raises(DataError, match="may wait for a checkpoint already"):
        ask_server(address, "checkpoint")
    go_on.set()
    thread.join(10)
    assert asked == [{"saved": True}]


def test_a_client_that_sends_a_byte_now_and_then_holds_up_nobody(attacked):
    address = attacked(limits=ServerLimits(patience=1.0))
    with connect(address, 5.0) as slow:
        message = framed(WRITER)
        with contextlib.suppress(OSError):
            for place in range(8):
                slow.sendall(message[place : place + 1])
                assert_served(address, actor=place)
                time.sleep(0.2)
        assert is_closed(slow)


def test_connections_that_say_nothing_make_room_for_others(attacked):
    address = attacked(limits=ServerLimits(newcomers=10, patience=60.0))
    before = len(os.listdir("/proc/self/fd"))
    idle = flood(address, 50)
    assert_served(address)
    assert len(os.listdir("/proc/self/fd")) <= before + 50 + 10 + 6
    close_all(idle)


def test_a_server_without_descriptors_serves_again_and_does_not_spin(tmp_path):
    address = tmp_path / "s.sock"
    with process(serve_with_few_descriptors, address, 48) as server:
        wait_for(lambda: _answers(address))
        idle = flood(address, 100)
        start = processor_seconds(server.pid)
        time.sleep(1.0)
        assert processor_seconds(server.pid) - start < 0.5
        assert_served(address)
        close_all(idle)
        assert_served(address)


def _answers(address):
    with contextlib.suppress(ServerLostError):
        return bool(ask_server(address, "stats", 1.0))
    return False


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_descriptors_that_a_client_sends_along_are_not_kept(attacked):
    address = attacked()
    before = len(os.listdir("/proc/self/fd"))
    for request in ({"role": "stats"}, {"role": "x"}):
        for _ in range(20):
            with connect(address, 5.0) as connection:
                send_fds(connection, [framed(request)], [0, 1, 2])
                connection.recv(4096)
    connection, segment = connected(address, WRITER)
    for _ in range(20):
        send_fds(connection, [b"!"], [0, 1, 2])
    assert_served(address)
    connection.close()
    segment.close()
    del segment  # and its memory
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before)
