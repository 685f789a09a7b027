"""A table server: tables in one process, writers and samplers in others.

    server = TableServer({"replay": table}, "run/tables.sock", directory="run/tables")
    server.serve()                                # until stop(), in this thread

With a ``directory`` the tables survive the server's death: a checkpoint from time to time, and a journal of what was
inserted since. A writer is told that an item is safe only after it is in both the table and the journal. Every writer
numbers its items; the server remembers how many it has of each, across restarts, so that a writer which sends again
after a break doubles nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import CheckpointError, ConfigError, DataError, StarlingError, UnknownNameError
from starling.data.checkpoints import Checkpointer
from starling.data.connections import SamplerEnd, WriterEnd, close_end
from starling.data.journal import Journal, read_journals
from starling.data.protocol import describe, sampler_fields, writer_fields
from starling.data.segments import Segment
from starling.data.table import Table
from starling.data.wire import drain, receive, send

__all__ = ["TableServer"]

LONGEST_ADDRESS = 100  # the system's limit for the path of a socket, less a little
IDLE = 0.05  # seconds after which a sleeping server looks around by itself
DROWSY = 0.02  # seconds without work after which writers must ring the bell: until then short naps are cheaper for both
NAP = 0.0003  # seconds


class _BusyError(DataError):
    """The same writer's earlier connection is not finished; it may try again."""


class TableServer:
    """Serves tables at a socket. ``checkpoint_every`` is in seconds; 0 leaves it to ``checkpoint()``."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        address: str | Path,
        *,
        directory: str | Path | None = None,
        checkpoint_every: float = 0.0,
        compress: bool = False,
    ) -> None:
        self.tables, self.address = dict(tables), Path(address)
        if len(os.fsencode(self.address)) > LONGEST_ADDRESS:
            raise ConfigError(f"the address {self.address} is too long for a socket; at most {LONGEST_ADDRESS} bytes.")
        for name, table in self.tables.items():
            if table.shared:
                raise ConfigError(
                    f"the table {name!r} shares frames with adders, which a server's clients cannot reach."
                )
        self._accepted: dict[str, int] = {}  # items inserted of each writer
        self._commit_lock = threading.Lock()
        self._every, self._ends = checkpoint_every, dict[int, WriterEnd | SamplerEnd]()
        self._orphans: list[WriterEnd] = []
        self._stopping = False
        self._last_busy = 0.0
        self._lock_file = self._take_address()
        self._journal: Journal | None = None
        self._saver: Checkpointer | None = None
        if directory is not None:
            self._recover(Path(directory), compress)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.address))
        self._listener.listen(128)
        self._wake_in, self._wake_out = socket.socketpair()
        for readable in (self._listener, self._wake_in):
            readable.setblocking(False)
            self._selector.register(readable, selectors.EVENT_READ)

    def _take_address(self) -> int:
        """Make sure that no other server is at this address; a dead one's socket is removed."""
        self.address.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.address.with_name(self.address.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigError(f"another server is at {self.address}; choose another address or stop it.") from error
        self.address.unlink(missing_ok=True)
        return lock

    def _recover(self, directory: Path, compress: bool) -> None:
        """Load the newest checkpoint and replay what was inserted after it."""
        saver = Checkpointer(directory, self.tables, also=self._bookkeeping, compress=compress, guard=self._commit_lock)
        first = 0
        if saver.exists:
            book = json.loads(bytes(saver.load()["book"]).decode())
            self._accepted, first = dict(book["accepted"]), int(book["journal"])
        for writer, sequence, n, content in read_journals(directory, first):
            self._replay(writer, sequence, n, content)
        self._journal, self._saver = Journal(directory), saver

    def _bookkeeping(self) -> dict[str, np.ndarray]:
        """What belongs to a checkpoint besides the tables; taken with all locks held."""
        assert self._journal is not None
        book = {"accepted": self._accepted, "journal": self._journal.rotate()}
        return {"book": np.frombuffer(json.dumps(book).encode(), np.uint8)}

    def _replay(self, writer: str, sequence: int, n: int, content: bytes) -> None:
        name = writer.split("/", 1)[1]
        if name not in self.tables:
            raise CheckpointError(f"the journal has items for a table {name!r}; this server has {sorted(self.tables)}.")
        table, offset, leaves = self.tables[name], 0, []
        columns = table.columns
        row = sum(columns.widths) + 8
        if len(content) != n * row:
            raise CheckpointError(
                f"the journal's items of {name!r} have {len(content) / n:g} bytes, the table's {row}."
            )
        for shape, dtype, width in zip(columns.shapes, columns.dtypes, columns.widths):
            leaves.append(np.frombuffer(content, dtype, n * width // dtype.itemsize, offset).reshape(n, *shape))
            offset += n * width
        priorities = np.frombuffer(content, np.float64, n, offset)
        known = max(0, self._accepted.get(writer, 0) - sequence)
        if known < n:
            self._insert(
                table, writer, sequence + known, n - known, [leaf[known:] for leaf in leaves], priorities[known:]
            )

    def _commit(
        self, table: Table, writer: str, sequence: int, n: int, leaves: list[np.ndarray], priorities: np.ndarray
    ) -> None:
        with self._commit_lock:
            if self._journal is not None:
                self._journal.append(writer, sequence, n, [*leaves, priorities])
            self._insert(table, writer, sequence, n, leaves, priorities)

    def _insert(
        self, table: Table, writer: str, sequence: int, n: int, leaves: list[np.ndarray], priorities: np.ndarray
    ) -> None:
        missing = np.isnan(priorities)
        given = None
        if not missing.all():  # an item without a priority gets the largest before it, in this batch too
            largest = np.fmax.accumulate(np.concatenate([[table.largest_priority], priorities]))
            given = np.where(missing, largest[1:], priorities)
        table.insert_leaves(leaves, n, given, force=True)
        self._accepted[writer] = sequence + n

    def serve(self) -> None:
        """Serve until ``stop``; afterwards everything is released."""
        next_save = time.monotonic() + self._every if self._every else float("inf")
        saving: threading.Thread | None = None
        turn = 0
        try:
            while not self._stopping:
                busy = self._serve_orphans() if self._orphans else False
                for end in list(self._ends.values()):
                    busy |= end.serve()
                turn += 1
                if not busy or turn % 16 == 0:
                    self._look_around(busy)
                if time.monotonic() >= next_save and not (saving and saving.is_alive()):
                    saving = threading.Thread(target=self.checkpoint)
                    saving.start()
                    next_save = time.monotonic() + self._every
        finally:
            if saving:
                saving.join()
            self._release()

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
        if self._saver is None or self._journal is None:
            raise ConfigError("the server has no directory; a checkpoint needs one.")
        self._saver.save()
        self._journal.drop_before(self._oldest_needed_journal())

    def _oldest_needed_journal(self) -> int:
        """The journals since the checkpoint before the newest stay: that one loads if the newest is damaged."""
        assert self._saver is not None
        books = self._saver.saved_trees()
        return min((int(json.loads(bytes(book["book"]).decode())["journal"]) for book in books), default=0)

    def _look_around(self, busy: bool) -> None:
        """Accept and drop connections; where nothing is to be done, sleep until a bell rings."""
        timeout = 0.0
        if busy:
            self._last_busy = time.monotonic()
        else:
            deep = time.monotonic() - self._last_busy > DROWSY
            for end in self._ends.values():
                end.sleep(deep or isinstance(end, SamplerEnd))
            waiting = [type(end) for end in (*self._ends.values(), *self._orphans) if end.pending()]
            timeout = 0.0 if SamplerEnd in waiting else NAP if waiting or not deep else IDLE
        for key, _ in self._selector.select(timeout):
            connection: Any = key.fileobj
            if connection is self._listener:
                self._accept()
            elif connection is self._wake_in:
                drain(connection)
            elif key.data == "greeting":
                self._greet(connection)
            elif not drain(connection):
                self._drop(connection)
        if not busy:
            for end in self._ends.values():
                end.sleep(False)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.settimeout(0.5)
            self._selector.register(connection, selectors.EVENT_READ, "greeting")

    def _greet(self, connection: socket.socket) -> None:
        """Answer a newcomer's first message."""
        self._selector.unregister(connection)
        try:
            message, _ = receive(connection)
        except (OSError, ValueError, DataError):
            connection.close()
            return
        try:
            self._welcome(connection, message)
        except (StarlingError, KeyError, TypeError, ValueError) as error:
            reason = f"the request lacks {error}." if isinstance(error, KeyError) else str(error)
            with contextlib.suppress(OSError):
                send(connection, {"busy" if isinstance(error, _BusyError) else "error": reason})
            connection.close()
        except OSError:
            connection.close()

    def _welcome(self, connection: socket.socket, message: dict[str, Any]) -> None:
        role = message["role"]
        if role == "stats":
            send(connection, {name: table.stats() for name, table in self.tables.items()})
            connection.close()
            return
        if role == "checkpoint":
            threading.Thread(target=self._checkpoint_for, args=(connection,)).start()
            return
        name = str(message["table"])
        if name not in self.tables:
            raise UnknownNameError("table", name, self.tables)
        table = self.tables[name]
        layout = describe(table.signature)
        if message["layout"] != layout:
            raise DataError(f"the client's items are {message['layout']}, those of the table {name!r} {layout}.")
        end: WriterEnd | SamplerEnd
        if role == "writer":
            end = self._writer(connection, table, f"{int(message['actor'])}/{name}", int(message["slots"]), layout)
        else:
            end = self._sampler(connection, table, message, layout)
        connection.setblocking(False)
        self._ends[connection.fileno()] = end
        self._selector.register(connection, selectors.EVENT_READ, "bell")

    def _writer(
        self, connection: socket.socket, table: Table, writer: str, slots: int, layout: list[list[Any]]
    ) -> WriterEnd:
        if any(end.writer == writer for end in (*self._ends.values(), *self._orphans) if isinstance(end, WriterEnd)):
            raise _BusyError(f"the writer {writer!r} is connected already; each writer needs its own actor.")
        segment = Segment(writer_fields(layout, slots))
        accepted = self._accepted.get(writer, 0)
        segment.counters[:2] = accepted
        send(connection, {"accepted": accepted}, [segment.descriptor])
        return WriterEnd(connection, segment, table, writer, self._commit)

    def _sampler(
        self, connection: socket.socket, table: Table, message: dict[str, Any], layout: list[list[Any]]
    ) -> SamplerEnd:
        batch, depth, updates = (int(message[key]) for key in ("batch", "depth", "updates"))
        segment = Segment(sampler_fields(layout, batch, depth, updates))
        send(connection, {}, [segment.descriptor])
        return SamplerEnd(connection, segment, table, batch, depth)

    def _checkpoint_for(self, connection: socket.socket) -> None:
        try:
            self.checkpoint()
            answer = {"saved": True}
        except (StarlingError, OSError) as error:
            answer = {"error": str(error)}  # type: ignore[dict-item]
        with contextlib.suppress(OSError):
            send(connection, answer)
        connection.close()

    def _drop(self, connection: socket.socket) -> None:
        """The other side is gone. What a writer had published is still taken, as the limiter allows."""
        end = self._ends.pop(connection.fileno())
        self._selector.unregister(connection)
        if isinstance(end, WriterEnd) and end.pending():
            end.connection.close()
            self._orphans.append(end)
        else:
            close_end(end)

    def _serve_orphans(self) -> bool:
        busy = False
        for end in list(self._orphans):
            busy |= end.serve()
            if not end.pending():
                self._orphans.remove(end)
                close_end(end)
        return busy

    def _release(self) -> None:
        self._listener.close()
        self.address.unlink(missing_ok=True)
        for end in (*self._ends.values(), *self._orphans):
            close_end(end)
        self._ends.clear()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        if self._journal is not None:
            self._journal.close()
        os.close(self._lock_file)
