"""A server that bad clients are tried on."""

import pytest

from starling.data import Table, TableServer

from .helpers import POINT


@pytest.fixture
def attacked(tmp_path):
    """Start a server in a thread, which must still be served by it at the end."""
    running = []

    def start(table=None, **options):
        server = TableServer({"t": Table(POINT, 50) if table is None else table}, tmp_path / "s.sock", **options)
        running.append((server, server.start()))
        return server.address

    start.running = running
    yield start
    for server, thread in running:
        assert thread.is_alive()
        server.stop()
        thread.join(10)
        assert not thread.is_alive()
