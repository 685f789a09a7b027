"""The handshake of a table server: who connects, what for, and the shared memory that the two will use."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starling.core.errors import DataError, StarlingError, UnknownNameError
from starling.core.segments import Segment
from starling.data.saving.durable_log import DurableLog, writer_name
from starling.data.server.connections import SamplerEnd, WriterEnd
from starling.data.server.protocol import describe, sampler_fields, writer_fields
from starling.data.server.wire import receive, send
from starling.data.tables.table import Table

__all__ = ["Handshake"]


class _BusyError(DataError):
    """The same writer's earlier connection is not finished; it may try again."""


class Handshake:
    """Answers the first message of a connection.

    ``is_connected`` tells whether a writer of this name is; ``stats`` and ``checkpoint`` are the server's own.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        log: DurableLog,
        is_connected: Callable[[str], bool],
        stats: Callable[[], dict[str, Any]],
        checkpoint: Callable[[], None],
    ) -> None:
        self._tables, self._log = tables, log
        self._is_connected, self._stats, self._checkpoint = is_connected, stats, checkpoint

    def answer(self, connection: socket.socket) -> WriterEnd | SamplerEnd | None:
        """The server's end of a connection that lasts; None where all is said, and the connection closed."""
        try:
            message, _ = receive(connection)
        except (OSError, ValueError, DataError):
            connection.close()
            return None
        try:
            end = self._connect(connection, message)
        except (StarlingError, KeyError, TypeError, ValueError) as error:
            reason = f"the request lacks {error}." if isinstance(error, KeyError) else str(error)
            with contextlib.suppress(OSError):
                send(connection, {"busy" if isinstance(error, _BusyError) else "error": reason})
            connection.close()
            return None
        except OSError:
            connection.close()
            return None
        if end is not None:
            connection.setblocking(False)
        return end

    def _connect(self, connection: socket.socket, message: dict[str, Any]) -> WriterEnd | SamplerEnd | None:
        role = message["role"]
        if role == "stats":
            send(connection, self._stats())
            connection.close()
            return None
        if role == "checkpoint":
            threading.Thread(target=self._checkpoint_for, args=(connection,)).start()
            return None
        names = [str(name) for name in message["tables"]]
        for name in names:
            if name not in self._tables:
                raise UnknownNameError("table", name, self._tables)
            layout = describe(self._tables[name].signature)
            if message["layout"] != layout:
                raise DataError(f"the client's items are {message['layout']}, those of the table {name!r} {layout}.")
        if role == "writer":
            return self._writer(connection, names, message)
        return self._sampler(connection, self._tables[names[0]], message)

    def _writer(self, connection: socket.socket, names: Sequence[str], message: dict[str, Any]) -> WriterEnd:
        writer = writer_name(int(message["actor"]), names)
        if self._is_connected(writer):
            raise _BusyError(f"the writer {writer!r} is connected already; each writer needs its own actor.")
        segment = Segment(writer_fields(message["layout"], int(message["slots"])))
        accepted = self._log.accepted(writer)
        segment.counters[:2] = accepted
        send(connection, {"accepted": accepted}, [segment.descriptor])
        return WriterEnd(connection, segment, [self._tables[name] for name in names], writer, self._log)

    def _sampler(self, connection: socket.socket, table: Table, message: dict[str, Any]) -> SamplerEnd:
        batch, depth, updates = (int(message[key]) for key in ("batch", "depth", "updates"))
        segment = Segment(sampler_fields(message["layout"], batch, depth, updates))
        send(connection, {}, [segment.descriptor])
        return SamplerEnd(connection, segment, table, batch, depth, self._log)

    def _checkpoint_for(self, connection: socket.socket) -> None:
        answer: dict[str, Any] = {"saved": True}
        try:
            self._checkpoint()
        except (StarlingError, OSError) as error:
            answer = {"error": str(error)}
        with contextlib.suppress(OSError):
            send(connection, answer)
        connection.close()
