"""The handshake of a table server: what a client asked for, and the shared memory that the two will use.

What takes time, such as reserving memory, is done by ``prepare``, in the thread that accepts connections; ``admit``
ends the handshake between two turns of the thread that serves.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starling.core.errors import DataError, StarlingError
from starling.core.segments import Segment, segment_size
from starling.data.saving.durable_log import DurableLog, writer_name
from starling.data.server.connections import End, SamplerEnd, WriterEnd
from starling.data.server.limits import BusyError, Quota, ServerLimits
from starling.data.server.protocol import HEAD, TAIL
from starling.data.server.requests import Question, Request, SamplerRequest, WriterRequest, parse_request
from starling.data.server.sealed import make_segment
from starling.data.server.wire import send
from starling.data.tables.table import Table

__all__ = ["Handshake", "Prepared", "refuse"]

LONGEST_REASON = 2_000  # characters: more might not fit into a socket that nobody reads


@dataclass(frozen=True)
class Prepared:
    """What a client asked for, and its memory where the connection is to last."""

    connection: socket.socket
    request: Request
    segment: Segment | None


def refuse(connection: socket.socket, error: Exception) -> None:
    """Tell a client why it is not served, and leave it."""
    reason = "busy" if isinstance(error, (BusyError, OSError)) else "error"
    with contextlib.suppress(OSError):
        send(connection, {reason: str(error)[:LONGEST_REASON]})
    connection.close()


class Handshake:
    """Answers the first message of a connection.

    ``is_connected`` tells whether a writer of this name is; ``stats`` and ``checkpoint`` are the server's own.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        log: DurableLog,
        limits: ServerLimits,
        is_connected: Callable[[str], bool],
        stats: Callable[[], dict[str, Any]],
        checkpoint: Callable[[], None],
    ) -> None:
        self._tables, self._log, self._quota = tables, log, Quota(limits)
        self._is_connected, self._stats, self._checkpoint = is_connected, stats, checkpoint
        self._saving = threading.BoundedSemaphore(limits.checkpoints)

    def prepare(self, connection: socket.socket, message: dict[str, Any]) -> Prepared | None:
        """What is asked for; None where it was refused."""
        try:
            request = parse_request(message, self._tables)
            segment = None if isinstance(request, Question) else self._reserve(request)
            return Prepared(connection, request, segment)
        except (StarlingError, OSError) as error:
            refuse(connection, error)
            return None

    def _reserve(self, request: WriterRequest | SamplerRequest) -> Segment:
        fields = request.fields()
        self._quota.take(segment_size(fields))
        try:
            return make_segment(fields)
        except BaseException:
            self._quota.give_back(segment_size(fields))
            raise

    def _answer(self, connection: socket.socket, question: Question) -> None:
        if question.name == "stats":
            send(connection, self._stats())
            connection.close()
        elif not self._saving.acquire(blocking=False):
            raise DataError("as many clients as may wait for a checkpoint already; ask again when it is there.")
        else:
            threading.Thread(target=self._checkpoint_for, args=(connection,)).start()

    def _checkpoint_for(self, connection: socket.socket) -> None:
        answer: dict[str, Any] = {"saved": True}
        try:
            self._checkpoint()
        except (StarlingError, OSError) as error:
            answer = {"error": str(error)}
        finally:
            self._saving.release()
        with contextlib.suppress(OSError):
            send(connection, answer)
        connection.close()

    def admit(self, prepared: Prepared) -> End | None:
        """The server's end of the connection; None where all is said, and the connection closed."""
        connection, request, segment = prepared.connection, prepared.request, prepared.segment
        try:
            if isinstance(request, Question):
                self._answer(connection, request)
                return None
            assert segment is not None
            if isinstance(request, WriterRequest):
                return self._writer(connection, request, segment)
            return self._sampler(connection, request, segment)
        except (StarlingError, OSError) as error:
            refuse(connection, error)
            self.release(segment)
            return None

    def _writer(self, connection: socket.socket, request: WriterRequest, segment: Segment) -> WriterEnd:
        writer = writer_name(request.actor, request.tables)
        if self._is_connected(writer):
            raise BusyError(f"the writer {writer!r} is connected already; each writer needs its own actor.")
        accepted = self._log.accepted(writer)
        segment.counters[[HEAD, TAIL]] = accepted
        tables = [self._tables[name] for name in request.tables]
        end = WriterEnd(connection, segment, tables, writer, self._log, accepted)
        _hand_over(connection, {"accepted": accepted}, segment)
        return end

    def _sampler(self, connection: socket.socket, request: SamplerRequest, segment: Segment) -> SamplerEnd:
        table = self._tables[request.table]
        end = SamplerEnd(connection, segment, table, request.batch, request.depth, self._log)
        _hand_over(connection, {}, segment)
        return end

    def release(self, segment: Segment | None) -> None:
        """Let go of a connection's memory."""
        if segment is not None:
            segment.close()
            self._quota.give_back(segment.size)


def _hand_over(connection: socket.socket, answer: dict[str, Any], segment: Segment) -> None:
    """Send a client its memory; the descriptor is not needed any more, and others may need one."""
    send(connection, answer, [segment.descriptor])
    segment.close()
