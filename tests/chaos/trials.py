"""Trials: something goes wrong with a run on the real command line, and what is seen from outside must be as promised.

A trial gets a generator and an empty folder. It gives figures for the table, and raises ``AssertionError`` where a
promise was broken. Its oracle does not ask the code under test how it went: hashes of runs that nothing disturbed,
exit codes, chunks by their numbers, processes and files that are left.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.chaos.mutations import mutated_bytes
from tests.chaos.watching import Holding, Launched, holding, left_in_shared_memory

__all__ = ["ALONE", "TOGETHER", "TRIALS", "Figures", "Trial"]

Figures = dict[str, float]
Trial = Callable[[np.random.Generator, Path], Figures]

TOYS = "tests.experiments.toys"
COMMON = ["--quiet", "--eval-episodes", "2", "--preset", "none", "--log-every", "500", "--checkpoint-every", "1000"]
TINY = {
    "a2c": ["--a2c.hidden", "8", "--a2c.envs", "4", "--a2c.rollout", "16"],
    "dqn": ["--dqn.hidden", "8", "--dqn.learning-starts", "100", "--dqn.capacity", "2000", "--dqn.alpha", "0.6"],
    "es": ["--es.hidden", "8", "--es.population", "8"],
    "impala": ["--impala.hidden", "8", "--impala.envs", "4", "--impala.rollout", "16"],
    "ppo": ["--ppo.hidden", "8", "--ppo.envs", "4", "--ppo.rollout", "32", "--ppo.minibatch", "64"],
    "r2d2": ["--r2d2.hidden", "8", "--r2d2.memory-size", "8", "--r2d2.learning-starts", "200"],
    "sac": ["--env", "Pendulum-v1", "--sac.hidden", "8", "--sac.train-every", "10", "--sac.capacity", "2000"],
}
ALONE = ("dqn", "ppo", "sac", "a2c", "r2d2")  # in one process: their hash must be that of the undisturbed run
TOGETHER = (  # of every formation and family one
    ("a2c", "sync"), ("dqn", "sync"), ("a2c", "async_gradients"), ("dqn", "sharded_ps"), ("dqn", "apex"),
    ("r2d2", "apex"), ("impala", "actor_learner"), ("sac", "actor_learner"), ("impala", "central_inference"),
    ("ppo", "allreduce"), ("es", "evolution"),
)  # fmt: skip


def command(algo: str, out: Path, steps: int, *more: str) -> list[str]:
    return ["train", "--algo", algo, "--steps", str(steps), "--out", str(out), *COMMON, *TINY[algo], *more]


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def steps_of(run: Path) -> list[int]:
    """The steps of its reports."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines() if (run / "metrics.jsonl").exists() else []
    return [json.loads(line)["env_steps"] for line in lines]


def last_report(run: Path) -> dict[str, Any]:
    return json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])


def until(happened: Callable[[], Any], launched: Launched, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert launched.running, f"it ended early: {launched.finish()}"
        assert time.monotonic() < deadline, "it came to nothing"
        time.sleep(0.02)


def reported(run: Path) -> Callable[[], bool]:
    return lambda: bool(steps_of(run))


# -- killed


@cache
def undisturbed(algo: str, steps: int, folder: Path) -> tuple[str, float]:
    """The hash of a run that nothing disturbs, and how long it takes."""
    run, began = folder / f"undisturbed-{algo}-{steps}", time.monotonic()
    with Launched(*command(algo, run, steps)) as launched:
        code, errors = launched.finish()
    assert code == 0, errors
    return summary(run)["parameter_hash"], time.monotonic() - began


def go_on(run: Path, first: list[str]) -> Launched:
    """Whatever a person would do next: resume the run, or begin it where there is none yet."""
    return Launched("resume", run, "--quiet") if (run / "manifest.json").exists() else Launched(*first)


def killed_at_random_moments(algo: str, *more: str, steps: int = 4_000) -> Trial:
    """Kill −9 of anything, once to three times, from the first instant on; then let it come to its end."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run, first, kills = folder / "run", command(algo, folder / "run", steps, *more), 0
        expected, seconds = undisturbed(algo, steps, folder.parent) if not more else (None, 8.0)
        with left_in_shared_memory() as left:
            for _ in range(int(rng.integers(1, 4))):
                with go_on(run, first) as launched:
                    time.sleep(float(rng.uniform(0.0, 1.1 * seconds)))
                    if not launched.running:
                        break
                    family = launched.family()
                    victim = launched.process.pid if rng.random() < 0.5 else int(rng.choice(family))
                    os.kill(victim, signal.SIGKILL)
                    kills += 1
                    if victim == launched.process.pid:
                        launched.process.wait()
                        assert not launched.left(), "processes outlived their supervisor"
                    else:
                        launched.finish()
            if not (run / "summary.json").exists() or summary(run)["status"] != "finished":
                with go_on(run, first) as launched:
                    code, errors = launched.finish()
                assert code == 0, errors
                assert not launched.left()
        assert not left, left
        assert steps_of(run) == sorted(set(steps_of(run))), "steps went backwards"
        if expected is not None:
            assert summary(run)["parameter_hash"] == expected, "another hash than that of the undisturbed run"
        return {"kills": kills}

    return trial


def roles_killed(algo: str, formation: str, seconds: float = 15.0, every: float = 2.0) -> Trial:
    """Kill a role every so often; the run goes on, and what was sent arrives once."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run = folder / "run"
        with Launched(*command(algo, run, 10**8, "--formation", formation, "--actors", "2")) as launched:
            until(reported(run), launched)
            began, before, kills = time.monotonic(), steps_of(run)[-1], 0
            while time.monotonic() < began + seconds:
                time.sleep(every)
                roles = [pid for pid in launched.family() if pid != launched.process.pid]
                os.kill(int(rng.choice(roles)), signal.SIGKILL)
                kills += 1
            at = steps_of(run)[-1]
            until(lambda: steps_of(run)[-1] > at, launched)
            launched.send(signal.SIGINT)
            code, errors = launched.finish()
            assert code == 130, errors
            assert not launched.left()
        told, found = last_report(run), steps_of(run)
        assert found == sorted(set(found)), "steps went backwards"
        lost = {name: told.get(name, 0) for name in ("missing_chunks", "doubled_chunks")}
        assert not any(lost.values()), lost
        return {"kills": kills, "steps/s": (found[-1] - before) / (time.monotonic() - began)}

    return trial


def roles_frozen(algo: str, formation: str, seconds: float = 4.0) -> Trial:
    """Freeze a role for a while; nobody crashes for it, and the run goes on."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run = folder / "run"
        with Launched(*command(algo, run, 10**8, "--formation", formation, "--actors", "2")) as launched:
            until(reported(run), launched)
            frozen = int(rng.choice([pid for pid in launched.family() if pid != launched.process.pid]))
            os.kill(frozen, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(frozen, signal.SIGCONT)
            at, began = steps_of(run)[-1], time.monotonic()
            until(lambda: steps_of(run)[-1] > at, launched)
            back = time.monotonic() - began
            launched.send(signal.SIGINT)
            code, errors = launched.finish()
            assert code == 130, errors
            assert not launched.left()
        return {"back after s": back}

    return trial


# -- starved


def refused(*arguments: str, before: str = "", codes: tuple[int, ...] = (1, 2)) -> Trial:
    """What cannot be done is refused in words, and leaves nothing behind that runs."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        began = time.monotonic()
        with left_in_shared_memory() as left, Launched(*arguments, "--out", folder / "run", before=before) as launched:
            code, errors = launched.finish()
            assert not launched.left()
        assert code in codes, (code, errors)
        assert "Traceback" not in errors, errors
        assert not left, left
        return {"seconds": time.monotonic() - began}

    return trial


def disk_full(algo: str) -> Trial:
    """Files can grow no further while a checkpoint is written: the one before it loads, and the run goes on."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run, steps = folder / "run", 4_000
        expected, _ = undisturbed(algo, steps, folder.parent)
        blocks = int(rng.integers(1, 60))  # of 1,024 bytes
        with Launched(*command(algo, run, steps), before=f"ulimit -f {blocks}") as launched:
            code, errors = launched.finish()
        assert code in (0, 1, 2), errors
        assert "Traceback" not in errors, errors
        if code:
            with go_on(run, command(algo, run, steps)) as launched:
                code, errors = launched.finish()
            assert code == 0, errors
        assert summary(run)["parameter_hash"] == expected
        return {"KiB": blocks}

    return trial


# -- misled


def corrupted(algo: str, *more: str) -> Trial:
    """A file of an interrupted run is damaged: it goes on or says why not, and nothing else happens."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run = folder / "run"
        with Launched(*command(algo, run, 10**8, *more)) as launched:
            until(lambda: len(list((run / "checkpoints").glob("step-*"))) > 1, launched)
            launched.kill()
        files = sorted(path for path in run.rglob("*") if path.is_file() and not path.name.startswith(".lock"))
        damaged = files[int(rng.integers(len(files)))]
        damaged.write_bytes(mutated_bytes(rng, damaged.read_bytes()))
        outside = set(folder.iterdir())
        with Launched("resume", run, "--quiet") as launched:
            end = time.monotonic() + 12.0
            while launched.running and time.monotonic() < end:
                time.sleep(0.05)
            goes_on = launched.running
            launched.send(signal.SIGINT)
            code, errors = launched.finish()
            assert not launched.left()
        assert code in (0, 1, 2, 130), (damaged, code, errors)
        assert "Traceback" not in errors, (damaged, errors)
        assert set(folder.iterdir()) == outside
        return {"go on": float(goes_on)}

    return trial


def used_twice(rng: np.random.Generator, folder: Path) -> Figures:
    """A second run in a directory is refused, naming the process that has it."""
    run = folder / "run"
    with Launched(*command("a2c", run, 10**8)) as first:
        until(reported(run), first)
        with Launched("--version") as nothing:
            began = time.monotonic()
            nothing.finish()
            start_up = time.monotonic() - began
        began = time.monotonic()
        with Launched("resume", run) as second:
            code, errors = second.finish()
        took = time.monotonic() - began
    assert code == 2, errors
    assert f"process {first.process.pid}" in errors
    return {"s beyond start-up": took - start_up}


def hung_environment(rng: np.random.Generator, folder: Path) -> Figures:
    """Steps of an environment stop to end: a time-out replaces it, and the run goes on."""
    run, limits = folder / "run", ["--env-timeout", "1", "--formation", "actor_learner", "--actors", "2"]
    with Launched(*command("impala", run, 10**8, "--env", f"{TOYS}:Hanging-v0", *limits)) as launched:
        until(reported(run), launched)
        at = steps_of(run)[-1] + 4_000
        began = time.monotonic()
        until(lambda: steps_of(run)[-1] > at, launched)
        took = time.monotonic() - began
        launched.send(signal.SIGINT)
        code, errors = launched.finish()
        assert code == 130, errors
        assert not launched.left()
    return {"s for 4,000 steps": took}


def broken_environment(fault: str) -> Trial:
    """An environment that gives what it must not fails the run in words, and the last checkpoint loads."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run = folder / "run"
        with Launched(*command("a2c", run, 10**6, "--env", f"{TOYS}:Faulty-{fault}-v0")) as launched:
            code, errors = launched.finish()
            assert not launched.left()
        assert code == 1, errors
        assert "environment" in errors
        assert "seed" in errors
        with Launched("eval", run, "--episodes", "1", "--json") as launched:
            code, errors = launched.finish()
        assert code == 0, errors
        return {}

    return trial


# -- for long


def soaked(algo: str, formation: str, seconds: float, every: float) -> Trial:
    """Roles are killed now and then for a long time: what the run holds does not grow."""

    def trial(rng: np.random.Generator, folder: Path) -> Figures:
        run, seen = folder / "run", list[Holding]()
        arguments = command(algo, run, 10**9, "--formation", formation, "--actors", "2")
        with left_in_shared_memory() as left, Launched(*arguments) as launched:
            until(reported(run), launched)
            began, before, kills = time.monotonic(), steps_of(run)[-1], 0
            next_kill = began + every
            while time.monotonic() < began + seconds:
                time.sleep(min(1.0, seconds / 60))
                if every and time.monotonic() > next_kill:
                    next_kill += every
                    roles = [pid for pid in launched.family() if pid != launched.process.pid]
                    os.kill(int(rng.choice(roles)), signal.SIGKILL)
                    kills += 1
                else:
                    seen.append(holding(launched.family()))
            speed = (steps_of(run)[-1] - before) / (time.monotonic() - began)
            launched.send(signal.SIGINT)
            code, errors = launched.finish()
            assert code == 130, errors
            assert not launched.left()
        assert not left, left
        half = len(seen) // 2  # the first half fills buffers and caches
        growth = {name: _grows([getattr(each, name) for each in seen[half:]]) for name in Holding.__annotations__}
        assert growth["memory"] < 0.1, growth
        assert growth["descriptors"] < 0.1, growth
        assert growth["threads"] < 0.1, growth
        return {"kills": kills, "steps/s": speed, **{f"{name} grows": share for name, share in growth.items()}}

    return trial


def _grows(values: list[int]) -> float:
    """By which share of it the median of the last third exceeds that of the first."""
    third = max(1, len(values) // 3)
    first, last = float(np.median(values[:third])), float(np.median(values[-third:]))
    return (last - first) / max(first, 1.0)


HUGE = ("train", "--preset", "none", "--formation", "actor_learner")
TRIALS: dict[str, Trial] = {
    **{f"killed at random: {algo}": killed_at_random_moments(algo) for algo in ALONE},
    **{
        f"killed at random: {algo} {formation}": killed_at_random_moments(algo, "--formation", formation)
        for algo, formation in TOGETHER
    },
    **{f"roles killed: {algo} {formation}": roles_killed(algo, formation) for algo, formation in TOGETHER},
    **{f"roles frozen: {algo} {formation}": roles_frozen(algo, formation) for algo, formation in TOGETHER},
    "memory: a queue of a billion": refused(*HUGE, "--algo", "impala", "--queue", "1000000000"),
    "memory: 2 GB of address space": refused("train", "--algo", "ppo", before="ulimit -v 2000000", codes=(0, 1, 2)),
    "descriptors: 24": refused(*HUGE, "--algo", "impala", before="ulimit -n 24"),
    "disk full: dqn": disk_full("dqn"),
    "disk full: ppo": disk_full("ppo"),
    "damaged: dqn": corrupted("dqn"),
    "damaged: apex": corrupted("dqn", "--formation", "apex"),
    "used twice": used_twice,
    "environment hangs": hung_environment,
    **{f"environment gives {fault}": broken_environment(fault) for fault in ("raises", "nan", "shape", "dtype")},
    "for long: apex": soaked("dqn", "apex", 60.0, 10.0),
    "for long: impala": soaked("impala", "actor_learner", 60.0, 10.0),
}
