"""Output where not every character can be shown: signs are replaced by ones of ASCII that mean the same."""

from __future__ import annotations

import codecs
import io
import sys

__all__ = ["PLAIN", "degrade_output"]

PLAIN = {
    **dict.fromkeys("─–—…", "-"),
    **dict.fromkeys("├└┌┐┘┼", "+"),
    **{"│": "|", "→": "->", "▶": ">", "◀": "<", "↻": "@", "■": "#", "▲": "^"},
    **{"✓": "ok", "✗": "x", "·": "*", "×": "x", "±": "+-", "µ": "u", "λ": "lambda", "ε": "epsilon"},
}


def degrade_output() -> None:
    """From now on print what can be shown of a text, instead of failing at what cannot."""
    codecs.register_error("starling.plain", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="starling.plain")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end
