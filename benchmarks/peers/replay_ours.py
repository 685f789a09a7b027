"""Starling's tables as contenders: ``replay_ours.py TASK``."""

from __future__ import annotations

import atexit
import multiprocessing
import tempfile
import time
from collections.abc import Callable

import numpy as np
from replay_task import ALPHA, BATCH, ITEMS, Trial, cartpole, cycles, serve

from starling.core.spaces import Dict, Float, Int
from starling.data import (
    FramePool,
    NStepAdder,
    Sampler,
    Store,
    Table,
    TableServer,
    Writer,
    prioritized,
    transition_signature,
)


def signature() -> Dict:
    return transition_signature(Float((4,)), Int((), high=2, dtype="int64"))


def by_priority(items: int = ITEMS, stored: bool = False) -> Trial:
    """Draw and update; ``stored`` keeps the items in a store that another table could share."""
    store = Store(signature(), items) if stored else None
    table = Table(signature(), items, sampler=prioritized(ALPHA), beta=0.4, store=store)
    rng = np.random.default_rng(1)
    step = min(items, 100_000)
    for start in range(0, items, step):
        n = min(step, items - start)
        table.insert(cartpole(n, seed=start), rng.random(n))
    errors = rng.random((64, BATCH)) + 0.01

    def cycle(i: int) -> None:
        table.update_priorities(table.sample(BATCH).keys, errors[i % 64])

    return lambda: cycles(cycle, 1000)


def adder(num_envs: int) -> Trial:
    """One vector step through a one-step adder into a table."""
    into = NStepAdder(Table(signature(), ITEMS), num_envs, 1)
    obs, action = np.zeros((num_envs, 4), np.float32), np.zeros(num_envs, np.int64)
    reward, no = np.zeros(num_envs), np.zeros(num_envs, bool)

    def cycle(i: int) -> None:
        into.add(obs, action, None, reward, no, no, obs)

    return lambda: cycles(cycle, 5000)


def images(shared_axis: int | None) -> Trial:
    """Gigabytes a second of drawn 84×84×4 transitions, and of memcpy of as many bytes between two large arrays."""
    shape = (4, 84, 84) if shared_axis == 0 else (84, 84, 4)
    obs = Int(shape, 0, 256, "uint8")
    items_like = transition_signature(obs, Int((), high=18))
    count = 20_000
    rng = np.random.default_rng(0)
    if shared_axis is None:
        table = Table(items_like, count)
        block = rng.integers(0, 256, (500, *shape), np.uint8)
        numbers = np.zeros(500, np.float32)
        for _ in range(count // 500):
            items = {"obs": block, "action": np.zeros(500, np.int32), "reward": numbers, "discount": numbers}
            table.insert({**items, "next_obs": block})
    else:
        pool = FramePool(obs, FramePool.frames_for(count), shared_axis)
        table = Table(items_like, count, shared={"obs": pool, "next_obs": pool})
        into = NStepAdder(table, 1)
        frames = [rng.integers(0, 256, (84, 84), np.uint8) for _ in range(4)]
        no = np.zeros(1, bool)
        now = np.stack(frames, shared_axis)[None]
        for _ in range(count):
            frames = [*frames[1:], np.roll(frames[-1], 1)]
            after = np.stack(frames, shared_axis)[None]
            into.add(now, np.zeros(1, np.int32), None, np.zeros(1), no, no, after)
            now = after
    out = table.buffers(BATCH)
    moved = 2 * BATCH * obs.size
    source, target = np.ones(1_200_000_000, np.uint8), np.empty(moved, np.uint8)
    places = rng.integers(0, source.size - moved, 64)

    def trial() -> dict[str, float]:
        sampling = cycles(lambda i: table.sample(BATCH, out=out), 20)["microseconds"]
        copying = cycles(lambda i: np.copyto(target, source[places[i] : places[i] + moved]), 20)["microseconds"]
        return {"sampled GB/s": moved / sampling / 1e3, "memcpy GB/s": moved / copying / 1e3}

    return trial


def serve_table(address: str) -> None:
    TableServer({"t": Table(signature(), ITEMS)}, address).serve()


def remote(batch: int) -> Trial:
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    address = f"{directory.name}/tables.sock"
    process = multiprocessing.get_context("spawn").Process(target=serve_table, args=(address,), daemon=True)
    process.start()
    writer = Writer(address, "t", signature(), patience=60)
    sampler = Sampler(address, "t", signature(), BATCH, prefetch=4)
    data = cartpole(batch)
    for _ in range(2 * BATCH):
        writer.insert(data)
    writer.flush()

    def trial() -> dict[str, float]:
        count = 100_000 // batch if batch > 1 else 20_000
        start = time.perf_counter()
        for _ in range(count):
            writer.insert(data)
        writer.flush()
        middle = time.perf_counter()
        for _ in range(1000):
            sampler.sample()
        end = time.perf_counter()
        return {"inserts/s": count * batch / (middle - start), "samples/s": 1000 * BATCH / (end - middle)}

    return trial


TASKS: dict[str, Callable[[], Trial]] = {
    "prioritized": by_priority,
    "stored": lambda: by_priority(stored=True),
    "adder-1": lambda: adder(1),
    "adder-64": lambda: adder(64),
    "images": lambda: images(None),
    "frames-first": lambda: images(0),
    "frames-last": lambda: images(-1),
    "remote": lambda: remote(1),
    "remote-64": lambda: remote(64),
    **{f"scale-{n}": (lambda n=n: by_priority(n)) for n in (10**4, 10**5, 10**6, 10**7)},
}

if __name__ == "__main__":
    serve(TASKS)
