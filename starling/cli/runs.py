"""``starling resume`` and ``starling eval``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from starling.cli.train import report
from starling.experiments import running, trained

__all__ = ["collect", "eval", "replay", "resume"]


@dataclass(frozen=True)
class ResumeArguments:
    """Go on with an interrupted run from its last checkpoint."""

    run: Annotated[str, tyro.conf.Positional]  # a run directory, or the name of one below runs/
    quiet: bool = False  # no progress display


@dataclass(frozen=True)
class EvalArguments:
    """Play greedy episodes with a run's policy."""

    run: Annotated[str, tyro.conf.Positional]  # a run directory, or the name of one below runs/
    episodes: int = 100
    seed: int | None = None  # of the environments; None: one that training did not use
    json: bool = False  # print JSON


def resume(args: list[str]) -> int:
    """Go on with an interrupted run."""
    arguments = tyro.cli(ResumeArguments, args=args, prog="starling resume")
    result = running.resume(arguments.run, command=["starling", "resume", *args], quiet=arguments.quiet)
    for note in result.notes:
        print(f"starling: {note}", file=sys.stderr)
    report(result)
    return 130 if result.summary["status"] == "interrupted" else 0


def eval(args: list[str]) -> int:
    """Play greedy episodes with a run's policy."""
    arguments = tyro.cli(EvalArguments, args=args, prog="starling eval")
    result = trained.evaluate(arguments.run, arguments.episodes, arguments.seed, quiet=arguments.json)
    if arguments.json:
        lengths, returns = result.lengths, result.returns
        about = {"mean": result.mean, "std": result.std, "returns": returns, "lengths": lengths, "cut": result.cut}
        print(json.dumps(about))
    else:
        print(f"return {result.mean:.2f} ± {result.std:.2f} over {len(result.returns)} greedy episodes")
        print(f"  lowest {min(result.returns):.2f}, highest {max(result.returns):.2f}")
        if result.cut:
            print(
                f"  {result.cut} had no end after {max(result.lengths):,} steps, and count with what they had by then"
            )
    return 0


@dataclass(frozen=True)
class CollectArguments:
    """Record greedy episodes of a run's policy as a data set, for bc or as dqn's demonstrations."""

    run: Annotated[str, tyro.conf.Positional]  # a run directory, or the name of one below runs/
    out: str  # directory of the data set
    episodes: int = 50
    seed: int | None = None  # of the environments; None: one that training did not use


def collect(args: list[str]) -> int:
    """Record episodes of a run's policy."""
    arguments = tyro.cli(CollectArguments, args=args, prog="starling collect")
    from starling.experiments import collecting

    returns = collecting.collect(arguments.run, arguments.episodes, arguments.out, arguments.seed, quiet=False)
    mean = sum(returns) / len(returns)
    print(f"recorded {len(returns)} episodes in {arguments.out}: return {mean:.2f} on average")
    print(f"  starling train --algo bc --bc.data {arguments.out} --updates 2000")
    return 0


@dataclass(frozen=True)
class ReplayArguments:
    """Run a recorded run again in one thread, and compare the parameters it comes to."""

    run: Annotated[str, tyro.conf.Positional]  # a run directory, or the name of one below runs/
    quiet: bool = False  # no progress display


def replay(args: list[str]) -> int:
    """Run a recorded run again."""
    arguments = tyro.cli(ReplayArguments, args=args, prog="starling replay")
    from starling.experiments.replaying import replay_run

    result = replay_run(arguments.run, quiet=arguments.quiet)
    print(f"recorded {result.recorded}")
    print(f"replayed {result.replayed}  after {result.updates:,} updates")
    print("the same, bit for bit" if result.same else "they differ")
    return 0 if result.same else 1
