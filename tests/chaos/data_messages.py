"""Damaged messages to a table server: the first of a connection, bells, and counters in shared memory."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import socket
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np

from starling.core.errors import StarlingError
from starling.data import Sampler, TableServer, Writer, ask_server
from starling.data.saving.durable_log import DurableLog
from starling.data.saving.journal import INSERT, read_journals
from starling.data.server.connections import SamplerEnd, WriterEnd
from starling.data.server.limits import ServerLimits
from starling.data.server.protocol import describe
from starling.data.server.requests import Question, SamplerRequest, parse_request
from starling.data.server.sealed import make_segment, open_segment
from starling.data.server.wire import LENGTH, Inbox, connect, receive

from .data_files import ITEM, log_tables, write_log
from .mutations import NUMBERS, mutated_bytes, mutated_value

LAYOUT = describe(ITEM)
REQUESTS = (
    {"role": "writer", "tables": ["a"], "actor": 3, "slots": 8, "layout": LAYOUT},
    {"role": "writer", "tables": ["a", "b"], "actor": 4, "slots": 8, "layout": LAYOUT},
    {"role": "sampler", "tables": ["a"], "batch": 4, "depth": 3, "updates": 16, "layout": LAYOUT},
    {"role": "stats"},
)
ANSWERS = ({"accepted": 7}, {"busy": "later"}, {"error": "no"}, {"a": {"size": 3, "inserts": 4}})
LARGEST_RESERVED = 50_000_000  # bytes: a request that is right may ask for more than a test has time for


def framed(content: bytes) -> bytes:
    return LENGTH.pack(len(content)) + content


def damaged(rng, message) -> bytes:
    """A message with one to four things changed."""
    choice = rng.random()
    if choice < 0.2:
        return mutated_bytes(rng, framed(json.dumps(message).encode()))
    if choice < 0.4:
        return framed(mutated_bytes(rng, json.dumps(message).encode()))
    return framed(json.dumps(mutated_value(rng, message)).encode())


def scribble(rng, segment) -> None:
    """What a client may do to the memory that it shares: other counters, and other numbers."""
    for place in range(6):
        if rng.random() < 0.4:
            number = NUMBERS[int(rng.integers(len(NUMBERS)))] if rng.random() < 0.5 else int(rng.integers(-2, 20))
            segment.counters[place] = np.array(number & (2**64 - 1), np.uint64).astype(np.int64)
    for array in segment.arrays.values():
        if rng.random() < 0.3:
            array.reshape(-1).view(np.uint8)[:] = rng.integers(0, 256, array.nbytes, np.uint8)
        if array.dtype.kind == "f" and rng.random() < 0.3:
            array[...] = (np.nan, np.inf, -1.0, 1e30)[int(rng.integers(4))]


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection that does not block."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


class Messages:
    """Each input goes through the functions that read it, in one of three places."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.tables = directory / "messages", log_tables()
        write_log(DurableLog(self.tables, None), self.tables)  # compiled loops are loaded when they are first used

    def attempt(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        (self.request, self.request, self.answer, self.segment)[seed % 4](rng)

    def request(self, rng) -> None:
        inbox, content = Inbox(), damaged(rng, REQUESTS[int(rng.integers(len(REQUESTS)))])
        places = sorted({0, len(content), *rng.integers(0, len(content) + 1, 3).tolist()})
        for start, end in pairwise(places):
            if (message := inbox.take(content[start:end])) is not None:
                request = parse_request(message, self.tables)
                if not isinstance(request, Question):
                    size = sum(math.prod(shape) * np.dtype(dtype).itemsize for _, shape, dtype in request.fields())
                    if size < LARGEST_RESERVED:
                        make_segment(request.fields()).close()

    def answer(self, rng) -> None:
        """What a client makes of an answer; damaged, it may wait for more until its patience ends."""
        one, other = socket.socketpair()
        with one, other:
            other.sendall(damaged(rng, ANSWERS[int(rng.integers(len(ANSWERS)))]))
            other.shutdown(socket.SHUT_WR)
            one.settimeout(0.5)
            with contextlib.suppress(OSError):  # the other side is gone: the client connects again
                receive(one, int(rng.integers(2)))

    def segment(self, rng) -> None:
        """What a server makes of memory in which a client has written."""
        tables = log_tables()
        request = parse_request(REQUESTS[int(rng.integers(3))], tables)
        shutil.rmtree(self.directory, ignore_errors=True)
        segment, log, (one, other) = make_segment(request.fields()), DurableLog(tables, self.directory), pair()
        if isinstance(request, SamplerRequest):
            write_log(log, tables)
            end = SamplerEnd(one, segment, tables["a"], request.batch, request.depth, log)
        else:
            end = WriterEnd(one, segment, [tables[name] for name in request.tables], "3/a", log, 0)
        try:
            for _ in range(3):
                scribble(rng, segment)
                end.serve()
                scribble(rng, segment)
                log.flush(idle=True)
                end.acknowledge()
                end.pending()
            if isinstance(end, WriterEnd) and end.leave():
                scribble(rng, segment)
                end.serve()
        finally:
            log.close()
            segment.close()
            one.close()
            other.close()
            records = list(read_journals(self.directory, 0))
            assert sum(record.items for record in records if record.kind == INSERT) >= tables["a"].inserts


class Connections:
    """Each input is a connection to a server that runs; every now and then a good client is served."""

    def __init__(self, directory: Path) -> None:
        limits = ServerLimits(patience=0.3, newcomers=8, segment_bytes=LARGEST_RESERVED)
        self.server = TableServer(log_tables(), directory / "s.sock", directory=directory / "d", limits=limits)
        self.thread = self.server.start()
        self.failures: list[BaseException] = []
        threading.excepthook = lambda arguments: self.failures.append(arguments.exc_value)
        self.check()

    def attempt(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with contextlib.suppress(OSError), connect(self.server.address, 0.2) as connection:
            request = REQUESTS[int(rng.integers(len(REQUESTS)))]
            if rng.random() < 0.6:
                connection.sendall(damaged(rng, request))
            else:
                connection.sendall(framed(json.dumps(request).encode()))
            answer, descriptors = receive(connection, 1)
            if descriptors:
                self.misuse(rng, connection, request, descriptors[0])
            elif "error" in answer:
                raise RefusedError(answer["error"])
        if seed % 20 == 0:
            self.check()

    def misuse(self, rng, connection, request, descriptor) -> None:
        """A client that is connected, and keeps to nothing."""
        with contextlib.suppress(StarlingError):
            segment = open_segment(parse_request(request, self.server.tables).fields(), descriptor)
            for _ in range(3):
                scribble(rng, segment)
                connection.sendall(b"!" if rng.random() < 0.8 else b"?" * 100)
            segment.close()

    def check(self) -> None:
        """A good client is served, whatever the bad ones do."""
        writer = Writer(self.server.address, "b", ITEM, actor=99, patience=5.0)
        writer.insert({"n": np.arange(3), "x": np.zeros((3, 3), np.uint8)})
        writer.close()
        sampler = Sampler(self.server.address, "b", ITEM, 2, patience=5.0)
        assert sampler.sample(5.0).data["n"].shape == (2,)
        sampler.close()
        assert ask_server(self.server.address, "stats")["b"]["inserts"] >= writer.acknowledged
        assert self.thread.is_alive()
        assert not self.failures, self.failures


class RefusedError(StarlingError):
    """What the server answered."""
