"""``starling advise``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, fields

import tyro

from starling.core.errors import ConfigError
from starling.core.machine import processors
from starling.experiments.compatibility import traits_of
from starling.experiments.config import resolve
from starling.formations import FORMATIONS, Counts
from starling.insight.advice import Advice, Timings, recommend
from starling.insight.timing import Timed, programs_of, time_parts

__all__ = ["advise"]

_PARTS = {
    "env": "environment step",
    "inference": "inference",
    "acting": "acting: both, and bookkeeping",
    "update": "update",
    "transport": "transport of a chunk",
}


@dataclass(frozen=True, kw_only=True)
class AdviseArguments:
    """Time an algorithm's parts on this machine, and recommend backends, formation and counts."""

    algo: str = "ppo"
    env: str = "CartPole-v1"  # a Gymnasium id, or envpool:ID
    seconds: float = 5.0  # to time for, over all parts; compiling comes on top
    config: str | None = None  # a YAML file of settings
    json: bool = False  # print JSON


def advise(args: list[str]) -> int:
    """Recommend how to run an algorithm here."""
    arguments = tyro.cli(AdviseArguments, args=args, prog="starling advise")
    if not 0 < arguments.seconds <= 3600:
        raise ConfigError(f"seconds={arguments.seconds}; it must be above 0, up to 3600.")
    run = resolve({"algo": arguments.algo, "env": arguments.env}, config=arguments.config)
    options, load, programs = run.options, os.getloadavg()[0], programs_of(run)
    out = sys.stderr if arguments.json else sys.stdout
    cores, envs = processors(), run.algorithm.envs
    preset = f" (settings of preset {run.preset})" if run.preset else ""
    print(f"{options.algo} on {options.env}, {envs} environments, {cores} processors{preset}", file=out)
    print(f"\n{'timed':<32}{'on':<8}{'rows':>5}{'a call':>12}{'env steps/s':>14}", file=out)
    parts = []
    for timed in time_parts(programs, arguments.seconds):
        print(_row(timed), file=out, flush=True)
        parts.append(timed)
    traits = traits_of(next(iter(programs.values())).algorithm)
    advice = recommend(Timings(parts=tuple(parts), envs=envs, cores=cores, load=load), traits)
    command = command_of(advice, arguments)
    if arguments.json:
        found = {"timed": [asdict(timed) for timed in parts], **asdict(advice)}
        print(json.dumps({**found, "command": command}, indent=2))
    else:
        print(_report(advice, command))
    return 0


def command_of(advice: Advice, arguments: AdviseArguments) -> str:
    """The command line that does what was advised."""
    chosen = advice.option
    more = _also(arguments, chosen.formation)
    counts = "" if chosen.actors is None else f" --actors {chosen.actors}"
    backends = f" --backend {advice.backend} --act-backend {advice.act_backend}"
    run = f"--algo {arguments.algo} --env {arguments.env}{more}"
    return f"starling train {run} --formation {chosen.formation}{counts}{backends}"


def _also(arguments: AdviseArguments, formation: str) -> str:
    """What else the command line needs: the file of settings, and an end to its counts that the formation ignores."""
    if arguments.config is None:
        return ""
    given = {"algo": arguments.algo, "env": arguments.env, "formation": formation}
    options = resolve(given, config=arguments.config).options
    counts = [each.name for each in fields(Counts) if getattr(options, each.name) is not None]
    unset = [name for name in counts if name not in FORMATIONS[formation].defaults]
    return f" --config {arguments.config}" + "".join(f" --{name.replace('_', '-')} None" for name in unset)


def _row(timed: Timed) -> str:
    name = _PARTS[timed.part] + (f", {_size(timed.kilobytes)}" if timed.kilobytes else "")
    row = f"{name:<32}{timed.backend:<8}{timed.rows:>5}{_duration(timed.seconds):>12}"
    row += f"{timed.steps / timed.seconds:>14,.0f}"
    return row + (f"   first call {_duration(timed.first)}" if timed.first > 0.1 else "")


def _report(advice: Advice, command: str) -> str:
    lines = ["", f"{'estimated':<32}{'actors':>8}{'env steps/s':>14}   held up by"]
    for option in advice.options:
        actors = "" if option.actors is None else str(option.actors)
        lines.append(f"{option.formation:<32}{actors:>8}{option.rate:>14,.0f}   {option.limited_by}")
    chosen = advice.option
    with_actors = "" if chosen.actors is None else f" with {chosen.actors} actor{'s' if chosen.actors > 1 else ''}"
    lines += [
        "",
        f"recommended: {chosen.formation}{with_actors}, {advice.backend} learns, {advice.act_backend} acts: "
        f"up to {_rounded(chosen.rate)} env steps/s",
        f"  {command}",
        "",
        *(f"· {note}" for note in advice.notes),
        "· timed is what was measured, part by part in one process; estimated is what follows from it for runs that",
        "  nobody measured: the few that were compared came to 1.0 to 1.2 of it on an idle machine, 0.4 to 0.8 on a",
        "  busy one, and formations within 20 % of each other in another order. Start-up is left out, and speed says",
        "  nothing of how much a step teaches. Try the best two, and see with `starling doctor RUN` how they go.",
    ]
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def _size(kilobytes: float) -> str:
    return f"{kilobytes:.0f} kB" if kilobytes < 1_000 else f"{kilobytes / 1e3:.1f} MB"


def _rounded(rate: float) -> str:
    """Two digits: more would claim to know more."""
    return f"{float(f'{rate:.2g}'):,.0f}"
