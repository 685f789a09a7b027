"""``starling check-env``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from starling.core.errors import RunError, SpaceError
from starling.envs import check, make

__all__ = ["check_env"]

_SIGNS = {"ok": "✓", "warning": "!", "error": "✗"}


@dataclass(frozen=True)
class CheckArguments:
    """Play an environment and explain what is wrong with it."""

    env: Annotated[str, tyro.conf.Positional]  # a Gymnasium id, module:ID, or envpool:ID
    steps: int = 1_000  # to play
    seed: int = 0
    json: bool = False  # print JSON


def check_env(args: list[str]) -> int:
    """Explain what is wrong with an environment; 1 where something is."""
    arguments = tyro.cli(CheckArguments, args=args, prog="starling check-env")
    with suppress(RunError, SpaceError):  # what is wrong with one is explained below; that it is not there is not
        make(arguments.env, 1, arguments.seed).close()
    findings = check(arguments.env, seed=arguments.seed, steps=arguments.steps)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{_SIGNS[finding.level]} {finding.what}: {finding.found}")
            if finding.level != "ok":
                print(f"    rule:   {finding.rule}\n    remedy: {finding.remedy}")
    return 1 if any(finding.level == "error" for finding in findings) else 0
