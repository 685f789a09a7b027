"""Settings that are known to learn."""

from pathlib import Path

__all__ = ["CORRIDOR"]

CORRIDOR = Path(__file__).parent / "corridor.yaml"  # or the settings themselves, as a dict
