"""A table server: tables in one process, writers and samplers in others.

    server = TableServer({"replay": table}, "run/tables.sock", directory="run/tables")
    server.serve()                                # until stop(), in this thread

With a ``directory`` the tables survive the server's crash: a checkpoint from time to time, and a journal of what was
inserted, drawn and updated since. A writer is told that an item is safe only after it is in both the table and the
journal. Every writer numbers its items; the server remembers how many it has of each, across restarts, so that a writer
which sends again after a break doubles nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starling.core.errors import ConfigError, StarlingError
from starling.data.saving.durable_log import DurableLog
from starling.data.server.connections import SamplerEnd, WriterEnd, close_end
from starling.data.server.handshake import Handshake
from starling.data.server.wire import drain
from starling.data.tables.kernels import fence
from starling.data.tables.table import Table

__all__ = ["TableServer"]

LONGEST_ADDRESS = 100  # the system's limit for the path of a socket, less a little
IDLE = 0.05  # seconds after which a sleeping server looks around by itself
DROWSY = 0.02  # seconds without work after which writers must ring the bell: until then short naps are cheaper for both
NAP = 0.0003  # seconds


class TableServer:
    """Serves tables at a socket.

    ``checkpoint_every`` is in seconds; 0 leaves it to ``checkpoint()``, and the journal grows until then. A periodic
    checkpoint that fails is reported among the stats, and tried again. ``durable`` has the disk confirm the journal
    before a writer is told that its items are safe: they then survive a crash of the machine, not only of the
    server.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        address: str | Path,
        *,
        directory: str | Path | None = None,
        checkpoint_every: float = 60.0,
        compress: bool = False,
        durable: bool = False,
    ) -> None:
        self.tables, self.address = dict(tables), Path(address)
        for name in self.tables:
            if not name or set(name) & set(",/"):
                raise ConfigError(f"a table is named {name!r}; names are not empty and have no comma and no slash.")
        if len(os.fsencode(self.address)) > LONGEST_ADDRESS:
            raise ConfigError(f"the address {self.address} is too long for a socket; at most {LONGEST_ADDRESS} bytes.")
        self._every = 0.0 if directory is None else checkpoint_every
        self._ends: dict[int, WriterEnd | SamplerEnd] = {}
        self._checkpoint_error = ""
        self._orphans: list[WriterEnd] = []
        self._stopping = False
        self._last_busy = 0.0
        self._lock_file = self._take_address()
        self._log = DurableLog(self.tables, None if directory is None else Path(directory), compress, durable)
        self._handshake = Handshake(self.tables, self._log, self._is_connected, self._stats, self.checkpoint)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.address))
        self._listener.listen(128)
        self._wake_in, self._wake_out = socket.socketpair()
        for readable in (self._listener, self._wake_in):
            readable.setblocking(False)
            self._selector.register(readable, selectors.EVENT_READ)

    def _take_address(self) -> int:
        """Make sure that no other server is at this address; the socket of one that crashed is removed."""
        self.address.parent.mkdir(parents=True, exist_ok=True)
        fcntl = importlib.import_module("fcntl")  # not everywhere; whoever serves has it
        lock = os.open(self.address.with_name(self.address.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigError(f"another server is at {self.address}; choose another address or stop it.") from error
        self.address.unlink(missing_ok=True)
        return lock

    def serve(self) -> None:
        """Serve until ``stop``; afterwards everything is released."""
        next_save = time.monotonic() + self._every if self._every else float("inf")
        saving: threading.Thread | None = None
        turn = 0
        try:
            while not self._stopping:
                busy = self._serve_all()
                turn += 1
                if not busy or turn % 16 == 0:
                    self._look_around(busy)
                if time.monotonic() >= next_save and not (saving and saving.is_alive()):
                    saving = threading.Thread(target=self._checkpoint_from_time_to_time)
                    saving.start()
                    next_save = time.monotonic() + self._every
        finally:
            if saving:
                saving.join()
            self._release()

    def _serve_all(self) -> bool:
        """Give each connection its turn, make what they did safe, and tell them; returns whether anything was done."""
        ends = [*self._orphans, *self._ends.values()]
        busy = False
        for end in ends:
            busy |= end.serve()
        if self._log.flush(idle=not busy):
            for end in ends:
                end.acknowledge()
        for orphan in [end for end in self._orphans if not end.pending()]:
            self._orphans.remove(orphan)
            close_end(orphan)
        return busy

    def start(self) -> threading.Thread:
        """Serve in a thread of this process."""
        thread = threading.Thread(target=self.serve, name=f"tables at {self.address.name}", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake_out.send(b"!")

    def checkpoint(self) -> None:
        """Save the tables now, while serving goes on."""
        self._log.checkpoint()

    def _checkpoint_from_time_to_time(self) -> None:
        try:
            self.checkpoint()
            self._checkpoint_error = ""
        except (StarlingError, OSError) as error:
            self._checkpoint_error = str(error)

    def _look_around(self, busy: bool) -> None:
        """Accept and drop connections; where nothing is to be done, sleep until a bell rings."""
        timeout = 0.0
        if busy:
            self._last_busy = time.monotonic()
        else:
            deep = time.monotonic() - self._last_busy > DROWSY
            for end in self._ends.values():
                end.sleep(deep or isinstance(end, SamplerEnd))
            fence()
            waiting = [type(end) for end in (*self._ends.values(), *self._orphans) if end.pending()]
            timeout = 0.0 if SamplerEnd in waiting else NAP if waiting or not deep else IDLE
        for key, _ in self._selector.select(timeout):
            connection: Any = key.fileobj
            if connection is self._listener:
                self._accept()
            elif connection is self._wake_in:
                drain(connection)
            elif key.data == "handshake":
                self._shake_hands(connection)
            elif not drain(connection):
                self._drop(connection)
        if not busy:
            for end in self._ends.values():
                end.sleep(False)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.settimeout(0.5)
            self._selector.register(connection, selectors.EVENT_READ, "handshake")

    def _shake_hands(self, connection: socket.socket) -> None:
        """Answer the first message of a connection."""
        self._selector.unregister(connection)
        end = self._handshake.answer(connection)
        if end is not None:
            self._ends[connection.fileno()] = end
            self._selector.register(connection, selectors.EVENT_READ, "bell")

    def _is_connected(self, writer: str) -> bool:
        ends = (*self._ends.values(), *self._orphans)
        return any(end.writer == writer for end in ends if isinstance(end, WriterEnd))

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = {name: table.stats() for name, table in self.tables.items()}
        return {**stats, "(server)": {"checkpoint_error": self._checkpoint_error}}

    def _drop(self, connection: socket.socket) -> None:
        """The other side is gone. What a writer had published is still taken, as the limiter allows."""
        end = self._ends.pop(connection.fileno())
        self._selector.unregister(connection)
        if isinstance(end, WriterEnd) and end.pending():
            end.connection.close()
            self._orphans.append(end)
        else:
            close_end(end)

    def _release(self) -> None:
        self._listener.close()
        self.address.unlink(missing_ok=True)
        for end in (*self._ends.values(), *self._orphans):
            close_end(end)
        self._ends.clear()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        self._log.close()
        os.close(self._lock_file)
