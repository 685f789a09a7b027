"""``starling list``."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tyro

from starling.algorithms import ALGORITHMS
from starling.backends import available
from starling.components.specs import COMPONENTS
from starling.core.registry import KINDS, registry_of
from starling.envs.constructing import environment_ids
from starling.executors import EXECUTORS
from starling.experience import PLANS
from starling.experiments.compatibility import compatibility
from starling.experiments.presets import PRESETS
from starling.formations import FORMATIONS
from starling.formations.catalogue import free_settings

__all__ = ["list"]

_Table = Mapping[str, Mapping[str, str | None]]


@dataclass(frozen=True)
class ListArguments:
    """List algorithms, components, plans, formations, executors, environments, presets and backends."""

    formations: bool = False  # only formations: their settings, and which algorithm fits which
    json: bool = False  # print JSON


def list(args: list[str]) -> int:  # type: ignore[valid-type]
    """List what there is."""
    arguments = tyro.cli(ListArguments, args=args, prog="starling list")
    formations = {name: {"text": kind.text, "settings": free_settings(name)} for name, kind in FORMATIONS.items()}
    fits = compatibility()
    found: dict[str, Any] = {} if arguments.formations else _everything_else()
    problems = [problem for kind in KINDS for problem in registry_of(kind).problems]
    if arguments.json:
        listed = {**found, "formations": formations, "compatibility": fits, "problems": problems}
        print(json.dumps(listed, indent=2))
        return 0
    for title, entries in found.items():
        print(f"{title} ({len(entries)})")
        if any(entries.values()):
            width = max(map(len, entries))
            print("\n".join(f"  {name:<{width}}  {text}" for name, text in entries.items()))
        else:
            print("  " + ", ".join(entries))
        print()
    print(_formations_text(formations))
    print()
    print(_table_text(fits))
    for problem in problems:
        print(f"starling: {problem}", file=sys.stderr)
    return 0


def _everything_else() -> dict[str, dict[str, str]]:
    return {
        "algorithms": {name: _first_line(cls) for name, cls in ALGORITHMS.items()},
        "components": {name: _first_line(cls) for name, cls in sorted(COMPONENTS.items())},
        "plans": {name: _first_line(cls) for name, cls in PLANS.items()},
        "presets": {name: f"{p['algo']} on {p['env']}, {p['steps']:,} steps" for name, p in PRESETS.items()},
        "environments": dict.fromkeys(environment_ids(), ""),
        "backends": dict.fromkeys(available(), ""),
        "executors": {name: kind.text for name, kind in EXECUTORS.items()},
        "plugins": {
            f"{kind} {name}": f"from {source}"
            for kind in KINDS
            for name in registry_of(kind)
            if (source := registry_of(kind).source(name))
        },
    }


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def _formations_text(formations: Mapping[str, Any]) -> str:
    width = max(map(len, formations))
    lines = [f"formations ({len(formations)}), with their settings: starling formation NAME draws one"]
    for name, about in formations.items():
        lines.append(f"  {name:<{width}}  {about['text']}")
        settings = (f"--{key.replace('_', '-')} {value}" for key, value in about["settings"].items())
        text = " ".join(each.replace(" ", "\0") for each in settings) or "no settings"
        wrapped = textwrap.wrap(text, 100 - width, break_on_hyphens=False)
        lines += [f"  {'':<{width}}    {line.replace(chr(0), ' ')}" for line in wrapped]
    return "\n".join(lines)


def _table_text(fits: _Table) -> str:
    """Which algorithm fits which formation; a number stands for the reason why not, below."""
    names = [*FORMATIONS]
    width = max(map(len, fits))
    reasons: dict[str, int] = {}
    lines = [f"{'algorithm':<{max(width, 9)}}  " + "  ".join(names)]
    for algorithm, row in fits.items():
        cells = []
        for name in names:
            reason = row[name]
            sign = "✓" if reason is None else f"✗ {reasons.setdefault(reason, len(reasons) + 1)}"
            cells.append(sign.center(len(name)))
        lines.append(f"{algorithm:<{max(width, 9)}}  " + "  ".join(cells).rstrip())
    if reasons:
        lines.append("")
        for reason, number in reasons.items():
            lines += textwrap.wrap(f"✗ {number}  {reason}", 110, subsequent_indent="     ", break_on_hyphens=False)
    return "\n".join(lines)
