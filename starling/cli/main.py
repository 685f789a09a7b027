"""The ``starling`` command."""

from __future__ import annotations

import errno
import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from starling import __version__
from starling.cli.output import degrade_output
from starling.core.errors import EnvError, StarlingError, UnknownNameError

__all__ = ["main"]

COMMANDS = {
    "train": "train an algorithm on an environment",
    "resume": "go on with an interrupted run",
    "replay": "run a recorded run again, and compare",
    "eval": "play greedy episodes with a run's policy",
    "collect": "record episodes of a run's policy as a data set",
    "doctor": "tell who waits for whom in a run, and what to change",
    "advise": "time an algorithm here and recommend how to run it",
    "list": "algorithms, components, plans, formations, environments, presets",
    "graph": "draw an algorithm's component graph",
    "formation": "draw a formation: roles, and what flows between them",
    "check-env": "explain what is wrong with an environment",
}

_MODULES = {
    "train": "train",
    "resume": "runs",
    "eval": "runs",
    "collect": "runs",
    "replay": "runs",
    "doctor": "doctor",
    "advise": "advise",
    "list": "listing",
    "graph": "graph",
    "formation": "formation",
    "check-env": "checks",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a failed run, 2 a request that cannot be met, 130 an interruption."""
    degrade_output()
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if args else 2
    if args[0] in ("-V", "--version"):
        print(f"starling {__version__}")
        return 0
    try:
        if args[0] not in COMMANDS:
            raise UnknownNameError("command", args[0], COMMANDS)
        module = importlib.import_module(f"starling.cli.{_MODULES[args[0]]}")
        command = getattr(module, args[0].replace("-", "_"))
        return command(args[1:])
    except StarlingError as error:
        print(f"starling: {error}", file=sys.stderr)
        if isinstance(error, EnvError):
            print(_foreign_frames(error), end="", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interruption:
        why = f": {interruption}" if str(interruption) else ""
        print(f"starling: interrupted{why}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away: nothing more to say to it
        return 141
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):  # what else the system refuses is explained where it does
            raise
        print(
            "starling: no more files can be opened here. Allow more (`ulimit -n 4096`), or use fewer roles.",
            file=sys.stderr,
        )
        return 1


def _foreign_frames(error: EnvError) -> str:
    """Where in the environment's own code an exception came from; empty where it came from ours."""
    frames = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ is not None else []
    ours = str(Path(__file__).parent.parent)
    last = max((i for i, frame in enumerate(frames) if frame.filename.startswith(ours)), default=-1)
    return "".join(traceback.format_list(frames[last + 1 :]))


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            f"starling {__version__}: one algorithm, any formation",
            "",
            "usage: starling COMMAND [options]      (starling COMMAND --help for its options)",
            "",
            *lines,
            "",
            "starling train --algo ppo --env CartPole-v1",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
