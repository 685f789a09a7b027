"""A table server: tables in one process, writers and samplers in others.

    server = TableServer({"replay": table}, "run/tables.sock", directory="run/tables")
    server.serve()                                # until stop(), in this thread

With a ``directory`` the tables survive the server's crash: a checkpoint from time to time, and a journal of what was
inserted, drawn and updated since. A writer is told that an item is safe only after it is in both the table and the
journal. Every writer numbers its items; the server remembers how many it has of each, across restarts, so that a writer
which sends again after a break doubles nothing.
"""

from __future__ import annotations

import importlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starling.core.errors import ConfigError, StarlingError
from starling.data.saving.durable_log import DurableLog
from starling.data.server.acceptor import Acceptor
from starling.data.server.connections import End, SamplerEnd, WriterEnd
from starling.data.server.handshake import Handshake, Prepared
from starling.data.server.limits import ServerLimits
from starling.data.server.wire import drain, ring_bell
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
        limits: ServerLimits | None = None,
    ) -> None:
        self.tables, self.address = dict(tables), Path(address)
        for name in self.tables:
            if not name or set(name) & set(",/"):
                raise ConfigError(f"a table is named {name!r}; names are not empty and have no comma and no slash.")
        if len(os.fsencode(self.address)) > LONGEST_ADDRESS:
            raise ConfigError(f"the address {self.address} is too long for a socket; at most {LONGEST_ADDRESS} bytes.")
        self._every = 0.0 if directory is None else checkpoint_every
        self._limits = limits or ServerLimits()
        self._ends: dict[int, End] = {}
        self._orphans: list[WriterEnd] = []
        self._prepared: deque[Prepared] = deque()  # by the acceptor's thread
        self._checkpoint_error = self._client_error = ""
        self._stopping = False
        self._last_busy = 0.0
        self._lock_file = self._take_address()
        self._log = DurableLog(self.tables, None if directory is None else Path(directory), compress, durable)
        answers = (self._is_connected, self._stats, self.checkpoint)
        self._handshake = Handshake(self.tables, self._log, self._limits, *answers)
        self._acceptor = Acceptor(self.address, self._limits, self._receive)
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

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
        accepting = threading.Thread(target=self._acceptor.run, name=f"clients of {self.address.name}", daemon=True)
        accepting.start()
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
            self._acceptor.stop()
            accepting.join()
            if saving:
                saving.join()
            self._release()

    def _serve_all(self) -> bool:
        """Give each connection its turn, make what they did safe, and tell them; returns whether anything was done."""
        busy = False
        for end in self._all():
            busy |= self._ask(end, end.serve)
        if self._log.flush(idle=not busy):
            for end in self._all():
                end.acknowledge()
        for orphan in self._orphans.copy():
            if not self._ask(orphan, orphan.pending):
                self._let_go(orphan)
        return busy

    def _all(self) -> list[End]:
        return [*self._orphans, *self._ends.values()]

    def _ask(self, end: End, question: Callable[[], bool]) -> bool:
        """What a connection's end answers; whatever goes wrong with one client, the others do not notice."""
        try:
            return question()
        except Exception as error:
            self._client_error = str(error)
            end.segment.text = self._client_error
            self._let_go(end)
            return False

    def start(self) -> threading.Thread:
        """Serve in a thread of this process."""
        thread = threading.Thread(target=self.serve, name=f"tables at {self.address.name}", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        ring_bell(self._wake_out)

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
        """Admit and drop connections; where nothing is to be done, sleep until a bell rings."""
        timeout = 0.0
        while self._prepared:
            self._admit(self._prepared.popleft())
        if busy:
            self._last_busy = time.monotonic()
        else:
            deep = time.monotonic() - self._last_busy > DROWSY
            for end in self._ends.values():
                end.sleep(deep or isinstance(end, SamplerEnd))
            fence()
            waiting = [type(end) for end in self._all() if self._ask(end, end.pending)]
            timeout = 0.0 if SamplerEnd in waiting else NAP if waiting or not deep else IDLE
        for key, _ in self._selector.select(timeout):
            connection: Any = key.fileobj
            if not drain(connection) and connection is not self._wake_in:
                self._drop(self._ends[connection.fileno()])
        if not busy:
            for end in self._ends.values():
                end.sleep(False)

    def _receive(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """A first message has arrived; called by the acceptor's thread."""
        prepared = self._handshake.prepare(connection, message)
        if prepared is not None:
            self._prepared.append(prepared)
            self._wake()

    def _admit(self, prepared: Prepared) -> None:
        end = self._handshake.admit(prepared)
        if end is not None:
            self._ends[end.connection.fileno()] = end
            self._selector.register(end.connection, selectors.EVENT_READ)

    def _is_connected(self, writer: str) -> bool:
        return any(end.writer == writer for end in self._all() if isinstance(end, WriterEnd))

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = {name: table.stats() for name, table in self.tables.items()}
        errors = {"checkpoint_error": self._checkpoint_error, "client_error": self._client_error}
        return {**stats, "(server)": {"connections": len(self._ends), "orphans": len(self._orphans), **errors}}

    def _drop(self, end: End) -> None:
        """The other side is gone. What a writer had published is still taken, as the limiter allows."""
        if not isinstance(end, WriterEnd) or not self._ask(end, end.leave):
            self._let_go(end)
            return
        self._disconnect(end)
        self._orphans.append(end)
        if len(self._orphans) > self._limits.orphans:
            self._let_go(self._orphans[0])

    def _let_go(self, end: End) -> None:
        """Be done with a connection, or with what it left; once more does no harm."""
        if end in self._orphans:
            self._orphans.remove(end)
        elif not self._disconnect(end):
            return
        self._handshake.release(end.segment)

    def _disconnect(self, end: End) -> bool:
        """Close a connection; False where that was done before."""
        if self._ends.pop(end.connection.fileno(), None) is None:
            return False
        self._selector.unregister(end.connection)
        end.connection.close()
        return True

    def _release(self) -> None:
        self._acceptor.close()
        self.address.unlink(missing_ok=True)
        for prepared in self._prepared:
            prepared.connection.close()
            self._handshake.release(prepared.segment)
        for end in self._all():
            self._let_go(end)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        self._log.close()
        os.close(self._lock_file)
