"""Whether a process is alive: it carries out effects, or it uses the processor.

A long computation or a slow environment is at work; a process that is stuck in a call that never returns, or that
somebody has stopped, does neither.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["Heartbeat"]


class Heartbeat:
    """Remembers when a process last gave a sign of life."""

    def __init__(self) -> None:
        self._sign: tuple[int, float, int | None] | None = None
        self._at = 0.0

    def silence(self, pid: int, beat: float, now: float) -> float:
        """Seconds since the last sign of life; ``beat`` is when the process last carried out an effect."""
        sign = (pid, beat, processor_ticks(pid))
        if sign != self._sign or sign[2] is None:
            self._sign, self._at = sign, now
        return now - self._at


def processor_ticks(pid: int) -> int | None:
    """Processor time that a process has used; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])  # in user mode and in the kernel
