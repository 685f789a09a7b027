"""Damaged files of runs, read in a process of its own: when it crashes, its directory has the seed of the input.

    python -m tests.chaos.record_inputs /tmp/directory checkpoints=0:1000 records=7:8

It prints, for each kind, how often which of the project's errors came, how long it took and the longest input of it,
and how much memory was taken.
"""

from __future__ import annotations

import collections
import faulthandler
import hashlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from starling.core.errors import StarlingError
from starling.experiments.config import resolve
from starling.experiments.presets import PRESETS
from starling.records import checkpoint, metrics
from starling.records.checkpoints import Checkpoints
from starling.records.choices import LATEST, PULSE, TAKE, Choices
from starling.records.run_dir import RunDir

from .mutations import mutated_bytes, mutated_value

LONGEST = 1.0  # seconds of an input on a processor
STUCK = 30.0  # seconds after which an input is given up, whoever else has the processors
MOST_MEMORY = 200_000_000  # bytes more than after the first input
SEED = "seed"  # the file that has the kind and the seed of the input that is tried


def damaged(rng: np.random.Generator, data: bytes, is_json: bool) -> bytes:
    """The bytes of a file changed, or, where it is JSON, the values in it."""
    if is_json and rng.integers(2):
        return json.dumps(mutated_value(rng, json.loads(data))).encode()
    return mutated_bytes(rng, data)


class SavedCheckpoints:
    """One of the three files is damaged; half of the checkpoints have checksums that vouch for the damage."""

    def __init__(self, directory: Path) -> None:
        self._checkpoints = Checkpoints(directory)
        state = {
            "params": {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.zeros(4), "none": np.zeros((0, 3))},
            "rng": {"counter": np.uint64(7), "key": 2**127 + 1, "words": np.arange(4, dtype=np.uint64)},
            "episodes": [({"seed": 5, "actions": [0, 1, 1]}, True), (None, "x"), {"return": float("nan")}],
        }
        self._path = self._checkpoints.save(12, state, {"seconds": 1.5})
        self._files = {path.name: path.read_bytes() for path in self._path.iterdir()}

    def attempt(self, rng: np.random.Generator) -> None:
        name = sorted(self._files)[int(rng.integers(3))]
        change = self._damaged_tensors if name.endswith(".safetensors") else damaged
        files = self._files | {name: change(rng, self._files[name], True)}
        if rng.integers(2):
            files |= self._vouching(files)
        for each, data in files.items():
            (self._path / each).write_bytes(data)
        reads = (lambda: checkpoint.load(self._path), lambda: checkpoint.verify(self._path), self._checkpoints.load)
        reads[int(rng.integers(3))]()

    def _damaged_tensors(self, rng: np.random.Generator, data: bytes, is_json: bool) -> bytes:
        """The bytes of the stream changed, or the values in its header."""
        if rng.integers(2):
            return mutated_bytes(rng, data)
        end = 8 + int.from_bytes(data[:8], "little")
        header = damaged(rng, data[8:end], is_json)
        return len(header).to_bytes(8, "little") + header + data[end:]

    def _vouching(self, files: dict[str, bytes]) -> dict[str, bytes]:
        """A manifest whose checksums are those of the files."""
        try:
            manifest = json.loads(files["manifest.json"])
            for name, entry in manifest["files"].items():
                entry |= {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
            manifest.pop("sha256")
            manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        except (ValueError, LookupError, TypeError, AttributeError):
            return {}  # it is what is damaged, beyond repair
        return {"manifest.json": json.dumps(manifest).encode()}


class Records:
    """The recorded choices of a role."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "learner-0.0"
        rounds = ([LATEST, [1, 0, i]] for i in range(5)), ([TAKE, [0, i % 2, 0, 1]] for i in range(5))
        self._choices = [*(choice for each in zip(*rounds) for choice in each), [PULSE, [0]], [PULSE, [1]]]

    def attempt(self, rng: np.random.Generator) -> None:
        choices = mutated_value(rng, self._choices) if rng.integers(2) else self._choices
        data = "".join(json.dumps(choice) + "\n" for choice in choices).encode()
        self._path.write_bytes(data if choices is not self._choices else mutated_bytes(rng, data))
        found = Choices("learner-0", self._path)
        for kind, numbers in list(found):
            assert found.next(kind) == numbers
            assert {TAKE: len(numbers) % 2 == 0, LATEST: len(numbers) == 3, PULSE: len(numbers) == 1}[kind]
            found.pop()


class Configurations:
    """A run's configuration, as it is written by hand and by a run; read for a new run and to resume one."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "config.yaml"
        self._run = RunDir(directory, None)
        written = [PRESETS[name] for name in ("ppo-cartpole", "apex-dqn", "impala", "sac-pendulum")]
        written += [
            {"algo": "dqn", "formation": "apex", "dqn": {"torso": {"type": "mlp", "sizes": [8]}}, "env_timeout": 5.0},
            {"formation": "sync", "devices": {"learner": ["cpu:0"]}, "ppo": {"hidden": [8, 8], "gamma": 0.9}},
            {"executor": "simulated", "formation": "sync", "simulation": {"latency": 0.1, "crashes": {"actor": 2}}},
        ]
        self._configurations = [*written * 4, resolve(written[0]).to_mapping(), resolve(written[4]).to_mapping()]

    def attempt(self, rng: np.random.Generator) -> None:
        settings = self._configurations[int(rng.integers(len(self._configurations)))]
        if rng.integers(2):
            data = yaml.safe_dump(mutated_value(rng, json.loads(json.dumps(dict(settings))))).encode()
        else:
            data = mutated_bytes(rng, yaml.safe_dump(dict(settings)).encode())
        self._path.write_bytes(data)
        run = resolve(config=self._path) if rng.integers(2) else resolve(self._run.read_config())
        assert resolve(run.to_mapping()).to_mapping() == run.to_mapping()


class RunFiles:
    """What a run tells of itself: manifest, summary, status, metrics."""

    def __init__(self, directory: Path) -> None:
        self._run = RunDir(directory, None)
        self._run.write_manifest({"algo": "a2c", "env": "CartPole-v1", "seed": 1, "a2c": {"hidden": [4]}}, ["starling"])
        about = {"env_steps": 128, "seconds": 1.5, "env_steps_per_second": 85.3, "parameter_hash": "ab"}
        self._run.write_summary({"status": "finished", **about})
        wait = {"effect": "take", "edges": ["experience"], "reason": "", "seconds": None}
        wait |= dict.fromkeys(("sender", "receiver", "wanted"))
        role = {"role": "learner-0", "state": "waiting", "waiting": wait, "for_seconds": 0.1, "silent_seconds": None}
        role |= {"busy_seconds": 1.0, "waited_seconds": {"experience": 0.2}, "passed": {"experience": 9}}
        role |= {"steps": 128, "restarts": 0, "pid": 77}
        edge = {"edge": "experience", "kind": "queue", "from": "actor-0", "to": "learner-0", "sent": 9, "held": 1}
        status = {"formation": "sync", "ends": "learner", "seconds": 1.5, "time": 1e9, "roles": [role], "edges": [edge]}
        (directory / "status.json").write_text(json.dumps(status))
        with metrics.Metrics(directory, tensorboard=False) as reports:
            for step in range(5):
                reports.write(step, {"loss": 0.5, "episode_return": float("nan")})
        names = ("manifest.json", "summary.json", "status.json", "metrics.jsonl")
        self._files = {name: (directory / name).read_bytes() for name in names}

    def attempt(self, rng: np.random.Generator) -> None:
        name = sorted(self._files)[int(rng.integers(4))]
        data = damaged(rng, self._files[name], name.endswith(".json"))
        (self._run.path / name).write_bytes(data)
        try:
            self._run.read_manifest()
            self._run.read_summary()
            self._run.read_status()
            metrics.read(self._run)
        finally:
            (self._run.path / name).write_bytes(self._files[name])


INPUTS = {
    "checkpoints": SavedCheckpoints,
    "records": Records,
    "configurations": Configurations,
    "run files": RunFiles,
}


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attempt_all(kind: str, first: int, behind: int, directory: Path, seed_file: int) -> dict[str, Any]:
    """Try the inputs of these seeds; returns what came of it."""
    (directory / kind).mkdir()
    inputs, began, before, longest = INPUTS[kind](directory / kind), time.monotonic(), 0, 0.0
    errors: collections.Counter[str] = collections.Counter()
    beside = sorted(os.listdir(directory))
    for seed in range(first, behind):
        os.pwrite(seed_file, f"{kind}={seed}:{seed + 1}".ljust(40).encode(), 0)
        faulthandler.dump_traceback_later(STUCK, exit=True)
        start = time.process_time()
        try:
            inputs.attempt(np.random.default_rng(seed))
            errors["none"] += 1
        except StarlingError as error:
            errors[type(error).__name__] += 1
        longest = max(longest, time.process_time() - start)
        before = before or memory()  # what the first input loads stays
        assert longest < LONGEST, f"{longest:.1f} s"
        assert memory() - before < MOST_MEMORY, f"{(memory() - before) / 1e6:.0f} MB"
        assert sorted(os.listdir(directory)) == beside, "files beside the directory"
    faulthandler.cancel_dump_traceback_later()
    return {
        "inputs": behind - first,
        "errors": errors,
        "seconds": round(time.monotonic() - began, 1),
        "longest": round(longest, 3),
        "megabytes": round((memory() - before) / 1e6),
    }


def main(directory: Path, *ranges: str) -> None:
    os.chdir(directory)
    seed_file = os.open(directory / SEED, os.O_WRONLY | os.O_CREAT)
    for each in ranges:
        kind, _, seeds = each.partition("=")
        first, behind = map(int, seeds.split(":"))
        print(kind, json.dumps(attempt_all(kind, first, behind, directory, seed_file)), flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    main(Path(sys.argv[1]), *sys.argv[2:])
