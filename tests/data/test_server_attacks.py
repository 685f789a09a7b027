"""What a client does with the memory and the bell that it shares with a table server: nobody else notices."""

import contextlib
import fcntl
import os
import threading

import numpy as np
import pytest

from starling.core.errors import DataError
from starling.core.segments import Segment
from starling.core.spaces import Dict, Int
from starling.data import FramePool, RateLimitTimeout, Sampler, ServerLimits, Table, Writer, ask_server, queue
from starling.data.server.protocol import HEAD, PROBABILITIES, TAIL, UPDATE_HEAD, writer_fields
from starling.data.server.sealed import make_segment, open_segment
from starling.data.server.wire import connect, receive

from .bad_clients import LAYOUT, SAMPLER, WRITER, assert_served, connected, framed, is_closed
from .helpers import POINT, points
from .remote import wait_for

FIELDS = writer_fields(LAYOUT, 8)


@pytest.mark.parametrize(
    ("request_", "counter", "value"),
    [
        (WRITER, HEAD, -1),
        (WRITER, HEAD, 9),
        (WRITER, HEAD, 2**62),
        (WRITER, HEAD, -(2**63)),
        (SAMPLER, TAIL, -1),
        (SAMPLER, TAIL, 2**62),
        (SAMPLER, UPDATE_HEAD, -1),
        (SAMPLER, UPDATE_HEAD, 5),
        (SAMPLER, UPDATE_HEAD, 2**62),
    ],
)
def test_a_counter_that_cannot_be_costs_its_client_the_connection(attacked, request_, counter, value):
    address = attacked()
    assert_served(address)  # the sampler has something to draw
    connection, segment = connected(address, request_)
    segment.counters[counter] = value
    connection.sendall(b"!")
    assert is_closed(connection)
    assert "says that it" in segment.text
    assert segment.text == ask_server(address, "stats")["(server)"]["client_error"]
    connection.close()
    segment.close()
    assert_served(address)


def test_counters_of_the_server_may_be_overwritten_by_a_client_without_harm(attacked):
    address = attacked()
    assert_served(address)
    connection, segment = connected(address, WRITER)
    segment.counters[TAIL] = 2**62
    segment.counters[HEAD] = 2
    connection.sendall(b"!")
    wait_for(lambda: segment.counters[TAIL] == 2)
    connection.close()
    segment.close()
    assert ask_server(address, "stats")["t"]["inserts"] == 4


def test_shared_memory_keeps_its_size(attacked):
    address = attacked()
    connection = connect(address, 5.0)
    connection.sendall(framed(WRITER))
    _, (descriptor,) = receive(connection, 1)
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(descriptor)
    connection.close()
    assert_served(address)


def test_a_segment_of_another_size_or_without_a_seal_is_refused(tmp_path):
    good = make_segment(FIELDS)
    assert open_segment(FIELDS, os.dup(good.descriptor)).size == good.size
    with pytest.raises(DataError, match=rf"a segment of {good.size} bytes arrived, \d+ were expected"):
        open_segment(writer_fields(LAYOUT, 9_000), os.dup(good.descriptor))
    good.close()
    plain = Segment(FIELDS)
    with pytest.raises(DataError, match="whose size is not sealed"):
        open_segment(FIELDS, os.dup(plain.descriptor))
    plain.close()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, good.size)
    with pytest.raises(DataError, match="whose size is not sealed"):
        open_segment(FIELDS, file)


def test_numbers_that_a_client_changes_meanwhile_harm_only_itself(attacked):
    table = Table(POINT, 50, sampler="prioritized")
    address = attacked(table)
    assert_served(address)
    connection, segment = connected(address, SAMPLER)
    stop = threading.Event()

    def scribble():
        while not stop.is_set():
            segment.arrays[PROBABILITIES][...] = 0.0
            segment.arrays["n"][...] = 2**40
            segment.counters[TAIL] = segment.counters[HEAD]

    thread = threading.Thread(target=scribble)
    thread.start()
    drawn = table.samples
    wait_for(lambda: table.samples > drawn + 500)
    stop.set()
    thread.join()
    connection.close()
    segment.close()
    assert_served(address)


@pytest.mark.parametrize("content", [b"?", framed({"role": "stats"})])
def test_a_client_that_sends_anything_but_bells_is_left(attacked, content):
    address = attacked()
    connection, segment = connected(address, WRITER)
    connection.sendall(content)
    assert is_closed(connection)
    connection.close()
    segment.close()
    assert_served(address)


def test_a_client_that_rings_without_end_holds_up_nobody(attacked):
    address = attacked()
    connection, segment = connected(address, WRITER)
    stop = threading.Event()

    def ring():
        with contextlib.suppress(OSError):
            while not stop.is_set():
                connection.sendall(b"!" * 100_000)

    thread = threading.Thread(target=ring)
    thread.start()
    try:
        assert_served(address)
    finally:
        stop.set()
        thread.join()
        connection.close()
        segment.close()


def test_whatever_fails_for_one_client_the_others_are_served(attacked, monkeypatch):
    table = Table(POINT, 50)
    address = attacked(table)
    good, bad = Writer(address, "t", POINT, actor=1), connected(address, WRITER)
    server = attacked.running[0][0]
    wait_for(lambda: len(server._ends) == 2)
    end = next(end for end in server._ends.values() if end.writer == "7/t")
    monkeypatch.setattr(end, "serve", lambda: 1 // 0)
    bad[0].sendall(b"!")
    assert is_closed(bad[0])
    bad[0].close()
    bad[1].close()
    good.insert(points(1, 2, 3))
    good.close(5)
    assert ask_server(address, "stats")["(server)"]["client_error"] == "integer division or modulo by zero"


def test_items_of_more_frames_than_a_pool_holds_go_in_a_few_at_a_time(attacked):
    image = Dict(image=Int((8, 8), 0, 256, "uint8"))
    table = Table(image, 500, shared={"image": FramePool(image["image"], 20)})
    address = attacked(table)
    writer = Writer(address, "t", image)
    writer.insert(image.ranked(batch=True).sample(np.random.default_rng(0), (300,)))
    writer.close(5)
    assert table.inserts == 300
    assert len(table) == 20


def test_what_a_writer_that_is_gone_writes_later_is_not_taken(attacked):
    table = queue(POINT, 4)
    address = attacked(table)
    connection, segment = connected(address, WRITER)
    segment.counters[HEAD] = 6  # two more than there is room for
    connection.sendall(b"!")
    wait_for(lambda: table.inserts == 4)
    connection.close()
    wait_for(lambda: ask_server(address, "stats")["(server)"]["orphans"] == 1)
    segment.counters[HEAD] = 8
    sampler = Sampler(address, "t", POINT, 1)
    for _ in range(6):
        sampler.sample(5)
    with pytest.raises(RateLimitTimeout):
        sampler.sample(0.2)
    assert table.inserts == 6
    assert ask_server(address, "stats")["(server)"]["orphans"] == 0
    sampler.close()
    segment.close()


def test_writers_that_are_gone_and_wait_for_room_are_not_kept_without_end(attacked):
    table = queue(POINT, 1)
    address = attacked(table, limits=ServerLimits(orphans=3))
    for actor in range(8):
        connection, segment = connected(address, {**WRITER, "actor": actor})
        segment.counters[HEAD] = 2
        connection.close()
        segment.close()
    wait_for(lambda: ask_server(address, "stats")["(server)"]["connections"] == 0)
    assert ask_server(address, "stats")["(server)"]["orphans"] <= 3
