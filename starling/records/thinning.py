"""Records with a bound: where they fill their room, older ones are thinned, evenly over all that they tell of."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["thinned"]

Stepped = Sequence[tuple[int, bytes]]  # records, and the steps after which they were made


def thinned(records: Stepped, most_bytes: int) -> list[bytes]:
    """Records of at most ``most_bytes``: the newest quarter of them, and of the others those that lie evenly apart."""
    found = list(records)
    while sum(len(record) for _, record in found) > most_bytes:
        newest = len(found) * 3 // 4
        fewer = [*_spaced(found[:newest]), *found[newest:]]
        if len(fewer) == len(found):
            break
        found = fewer
    return [record for _, record in found]


def _spaced(records: Stepped) -> Stepped:
    """About half of the records: where they lie closer than they would if as many were spread evenly, fewer."""
    kept = list(records[:1])
    gap = 2 * (records[-1][0] - records[0][0]) / len(records) if records else 0.0
    for step, record in records[1:]:
        if step >= kept[-1][0] + gap:
            kept.append((step, record))
    return kept
