"""A run saves of its replay tables what changed, and goes on exactly, whenever it was killed."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from starling.core.errors import CheckpointError
from starling.core.spaces import Float, Int
from starling.data import EpisodeWriter, RecordedEpisode
from starling.executors import get_executor
from starling.experiments.program import Program
from starling.formations import RoleId, Start
from starling.records.checkpoints import Checkpoints
from starling.records.hashes import parameter_hash
from tests.executors.programs import program_of as formed
from tests.executors.watchers import Watcher
from tests.experiments.programs import Keeping, finish, program_of
from tests.experiments.toys import Toy

EVERY, STEPS = 200, 600


class Wide(Toy):
    """Observations of 4 kB, each another."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(-100, 100, (1000,), np.float32)

    def observe(self):
        return self.np_random.random(1000, np.float32)


class Film(Toy):
    """Stacks of the last four pictures of one that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (32, 32, 4), np.uint8)

    def observe(self):
        still = np.arange(1024, dtype=np.int64).reshape(32, 32) * int(1e6 * self.number)
        return np.stack([(still + t) % 251 for t in range(self.t, self.t + 4)], axis=-1).astype(np.uint8)


CNN = {"type": "cnn", "layers": [[2, 8, 8]], "size": 8}
DQN = {"batch_size": 16, "learning_starts": 16, "capacity": 300, "hidden": [8], "envs": 2}
RUNS = {
    "dqn": ("dqn", "CartPole-v1", DQN),
    "prioritized dqn": ("dqn", "CartPole-v1", {**DQN, "alpha": 0.6}),
    "sac": ("sac", "Pendulum-v1", {"batch_size": 16, "learning_starts": 16, "capacity": 300, "hidden": [8]}),
    "r2d2": (
        "r2d2", "CartPole-v1",
        {"envs": 2, "length": 6, "burn_in": 2, "overlap": 2, "batch_size": 4, "learning_starts": 64, "train_every": 8,
         "capacity": 64, "hidden": [8], "memory_size": 4},
    ),
    "images": ("dqn", Film, {**DQN, "capacity": 300, "image": CNN, "train_every": 8}),
    "images, seen too few": ("dqn", Film, {**DQN, "capacity": 300, "image": CNN, "learning_starts": 500}),
    "demonstrations": ("dqn", "CartPole-v1", {**DQN, "alpha": 0.6}),
}  # fmt: skip


def run_of(name, directory, **options):
    """The program of one of these runs."""
    algo, env, settings = RUNS[name]
    if name == "demonstrations":
        data = directory.parent / "data"
        if not data.exists():
            with EpisodeWriter(data, Float((4,)), Int((), high=2)) as writer:
                rng, over = np.random.default_rng(0), np.arange(10) == 9
                for _ in range(3):
                    seen = rng.random((11, 4), np.float32)
                    writer.write(RecordedEpisode(seen, np.ones(10, np.int32), np.ones(10), over, np.zeros(10, bool)))
        settings = {**settings, "demonstrations": str(data)}
    options = {"steps": STEPS, "checkpoint_every": EVERY, "keep_checkpoints": 1, **options}
    return program_of(env, directory, algo=algo, **{algo: settings}, **options)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    @cache
    def hashed(name):
        return parameter_hash(finish(run_of(name, tmp_path_factory.mktemp("whole") / "run"))[0])

    return hashed


class Killed(BaseException):
    """What a run is not prepared for."""


def die_at(monkeypatch, name, target, after=False):
    """Die where a file or a directory would get the name ``target``."""
    real = getattr(os, name)

    def dying(source, destination, *args, **kwargs):
        if Path(destination).name == target:
            if after:
                real(source, destination)
            raise Killed
        return real(source, destination, *args, **kwargs)

    monkeypatch.setattr(os, name, dying)


def moments(step):
    return {
        "before the table": ("replace", f"manifest-{step:08d}.json"),
        "between the table and the role": ("rename", f"step-{step:012d}"),
        "before what is old goes": ("rename", f"step-{step:012d}", True),
    }


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        *[("dqn", moment) for moment in moments(0)],
        *[(name, "between the table and the role") for name in RUNS if name != "dqn"],
    ],
)
def test_a_run_that_was_killed_while_it_saved_goes_on_as_if_it_had_not(
    name, moment, uninterrupted, tmp_path, monkeypatch
):
    directory = tmp_path / "run"
    directory.mkdir()
    with monkeypatch.context() as patch:
        die_at(patch, *moments(2 * EVERY)[moment])
        with pytest.raises(Killed):
            finish(run_of(name, directory))
    program = run_of(name, directory)
    found = program.checkpoints(RoleId("learner", 0)).latest()
    assert found == (2 * EVERY if moment == "before what is old goes" else EVERY)
    weights, heard = finish(program, restore=True)
    assert [steps for _, steps in heard.checkpoints][-1] == STEPS
    assert parameter_hash(weights) == uninterrupted(name)
    for part in (directory / "checkpoints" / "parts").iterdir():
        assert [path.name for path in part.glob("manifest-*")] == [f"manifest-{STEPS:08d}.json"]


def files_under(directory):
    return {path: (path.stat().st_ino, path.stat().st_size) for path in directory.rglob("*") if path.is_file()}


class Counting(Keeping):
    """Counts the bytes of the files that each checkpoint writes."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.written: list[int] = []

    def checkpoint(self, role, checkpoint):
        before = set(files_under(self._program.directory).values())
        super().checkpoint(role, checkpoint)
        now = files_under(self._program.directory).values()
        self.written.append(sum(size for inode, size in now if (inode, size) not in before))


def test_a_checkpoint_writes_what_changed_of_a_large_table(tmp_path):
    item, run = 8_032, tmp_path / "run"
    for restore, steps in ((False, 3_000), (True, 4_000)):
        settings = {**DQN, "capacity": 2_500, "learning_starts": 2_900, "batch_size": 4, "train_every": 500, "envs": 1}
        own = {"steps": steps, "checkpoint_every": 1_000, "dqn": settings}
        program = program_of(Wide, run, algo="dqn", **own)
        watcher = Counting(program)
        try:
            get_executor("inline")(program, watcher, restore)
        finally:
            program.close()
        written = watcher.written if restore else watcher.written[1:]  # the first has no items
        for size in written:  # of 20 MB when the table is full
            assert 1_000 * item <= size < 1_000 * item + 2_500_000  # networks, and two blocks of which a part is new
    files = [path for path in run.rglob("parts/feed.table/0*") if path.stat().st_size > 900_000]
    assert len({path.name[-18:] for path in files}) == 20, "the table is not in so many blocks: nothing is proved"


def test_a_torn_table_is_passed_over_with_its_checkpoint(tmp_path):
    finish(run_of("prioritized dqn", tmp_path / "run", keep_checkpoints=2))
    program = run_of("prioritized dqn", tmp_path / "run", keep_checkpoints=2)
    part = tmp_path / "run" / "checkpoints" / "parts" / "feed.table"
    newest = max(part.glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    checkpoints = program.checkpoints(RoleId("learner", 0))
    assert checkpoints.latest() == 2 * EVERY
    assert "is torn" in checkpoints.skipped[0]
    assert checkpoints.load()[1]["step"] == 2 * EVERY
    with pytest.raises(CheckpointError, match="is torn"):
        program.checkpoints(RoleId("learner", 0)).load(STEPS)[0]["feed"]["table"].verify()
    assert Checkpoints(tmp_path / "run" / "checkpoints").load(STEPS)[0]["feed"]["table"] == "feed.table"
    program.close()


def apex(directory, **options):
    return formed("dqn", "apex", directory, steps=2_000, checkpoint_every=200, **options)


@pytest.mark.parametrize(
    ("executor", "options"),
    [
        ("processes", {}),
        ("simulated", {"simulation": {"seed": 1, "crashes": 0.3, "mortal": ("buffer",), "restart": 0.5}}),
    ],
)
def test_the_buffer_of_apex_begins_again_with_its_table(executor, options, tmp_path):
    program = apex(tmp_path, **options)
    watcher = Keeping(program) if executor == "simulated" else Watcher()
    assert get_executor(executor)(program, watcher, False)
    buffer = RoleId("buffer", 0)
    (kept,) = list((tmp_path / "roles" / str(buffer) / "parts").iterdir()) if executor == "processes" else [None]
    for start, drawn_from in ((Start(), False), (Start(restore=True), True)):
        again = apex(tmp_path, **options)
        code = again.role(buffer, start)
        assert ("requests" in next(code).edges) == drawn_from
        code.close()
        again.close()
    assert kept is None or list(kept.glob("manifest-*"))
