"""Programs made of a few generators, to try effects on every executor.

A script is a function ``script(role, start)`` of a module that worker processes can import; what it returns goes to the
watcher as the result of the role, ``say`` keeps a line where the test finds it, whichever process wrote it.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from starling.formations import Edge, Formation, Roles

BLANK = {"x": np.zeros(3, np.float64), "n": np.int64(0)}


def item(number):
    """A message that holds its number in every place."""
    return {"x": np.full(3, float(number)), "n": np.int64(number)}


def number_of(message):
    """The number of a message; it must be in every place."""
    assert (message["x"] == message["n"]).all(), message
    return int(message["n"])


class Script:
    """See ``starling.executors.base.Executable``."""

    pin_cpus = False
    heartbeat = 0.0
    step_note = None
    simulation: ClassVar[Mapping[str, Any]] = {"seed": 3}

    def __init__(self, name: str, formation: Formation, directory: Path, record: Path | None = None) -> None:
        self.name, self.formation, self.directory, self.record = name, formation, directory, record

    def role(self, role, start):
        module, _, name = self.name.partition(":")
        return getattr(importlib.import_module(module), name)(self, role, start)

    def spec(self):
        roles = [[roles.kind, roles.count] for roles in self.formation.roles]
        edges = [vars(edge) for edge in self.formation.edges]
        settings = {"roles": roles, "edges": edges, "ends": self.formation.ends, "lockstep": self.formation.lockstep}
        paths = {"directory": str(self.directory), "record": self.record and str(self.record)}
        return {"factory": f"{__name__}:remake", "script": self.name, **paths, **settings}

    def environment(self, role):
        return {}

    def save(self, role, checkpoint, seconds):
        state = {key: int(value) for key, value in checkpoint.state().items()}
        path = self.directory / f"{role}.state"
        path.with_suffix(".new").write_text(json.dumps(state))
        os.replace(path.with_suffix(".new"), path)

    def saved(self, role, start):
        """The state that a role goes on from."""
        path = self.directory / f"{role}.state"
        if start.state is not None:
            return start.state
        return json.loads(path.read_text()) if start.restore and path.exists() else None

    def messages(self):
        return {edge.name: BLANK for edge in self.formation.edges}

    def say(self, role, *words):
        """Keep a line."""
        with open(self.directory / f"{role}.lines", "a") as lines:
            lines.write(json.dumps(words) + "\n")

    def said(self, role):
        path = self.directory / f"{role}.lines"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def remake(spec):
    """The script of a ``spec``."""
    roles = tuple(Roles(kind, count) for kind, count in spec["roles"])
    edges = tuple(Edge(**{**edge, "also": tuple(edge["also"])}) for edge in spec["edges"])
    formation = Formation("script", roles, edges, spec["ends"], spec["lockstep"])
    return Script(spec["script"], formation, Path(spec["directory"]), spec["record"] and Path(spec["record"]))
