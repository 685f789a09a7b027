"""Clients of a table server that keep to nothing, and a server to try them on."""

import contextlib
import json
import resource
import socket
import time

from starling.core.errors import DataError
from starling.data import Table, TableServer, Writer, ask_server
from starling.data.server.limits import ServerLimits
from starling.data.server.protocol import describe
from starling.data.server.requests import parse_request
from starling.data.server.sealed import open_segment
from starling.data.server.wire import LENGTH, connect, receive

from .helpers import POINT

LAYOUT = describe(POINT)
WRITER = {"role": "writer", "tables": ["t"], "actor": 7, "slots": 8, "layout": LAYOUT}
SAMPLER = {"role": "sampler", "tables": ["t"], "batch": 2, "depth": 3, "updates": 4, "layout": LAYOUT}


def framed(content):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return LENGTH.pack(len(content)) + content


def ask(address, content):
    """What a server answers to a first message, which may be anything; None where it says nothing and leaves."""
    with connect(address, 5.0) as connection:
        try:
            connection.sendall(content)
            return receive(connection)[0]
        except (ConnectionError, DataError):
            return None


def connected(address, request):
    """A connection that was accepted, and its segment."""
    connection = connect(address, 5.0)
    connection.sendall(framed(request))
    _, (descriptor,) = receive(connection, 1)
    return connection, open_segment(parse_request(request, {"t": Table(POINT, 10)}).fields(), descriptor)


def is_closed(connection, seconds=5.0):
    """Whether the server leaves the connection in time."""
    connection.settimeout(seconds)
    with contextlib.suppress(ConnectionError):
        try:
            while connection.recv(4096):
                pass
        except TimeoutError:
            return False
    return True


def serve_with_few_descriptors(address, most):
    """A server in a process that may have so many files."""
    server = TableServer({"t": Table(POINT, 50)}, address, limits=ServerLimits(newcomers=1_000))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server.serve()


def flood(address, count):
    """So many connections that say nothing."""
    found = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            found.append(connect(address, 0.2))
    return found


def assert_served(address, actor=99, signature=POINT):
    """A good client is served, and soon."""
    start = time.monotonic()
    writer = Writer(address, "t", signature, actor=actor)
    writer.insert(signature.ranked(batch=True).zeros((2,)))
    writer.close(5)
    ask_server(address, "stats", 5.0)
    assert time.monotonic() - start < 5


def close_all(connections):
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
