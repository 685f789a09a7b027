"""A worker of the replay benchmark: sets up one task, then runs one trial for every line on its input.

Each contender runs in its own process and its own environment; only this file and its library are needed there:

    PYTHON replay_workers.py CONTENDER TASK

Prints "ready", then one JSON object of measurements for each line.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

ITEMS, BATCH, ALPHA = 131_072, 256, 0.6
Trial = Callable[[], dict[str, float]]


def cartpole(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.standard_normal((n, 4)).astype(np.float32),
        "action": rng.integers(0, 2, n),
        "reward": np.ones(n, np.float32),
        "discount": np.full(n, 0.99, np.float32),
        "next_obs": rng.standard_normal((n, 4)).astype(np.float32),
    }


def cycles(cycle: Callable[[int], None], count: int) -> dict[str, float]:
    start = time.perf_counter()
    for i in range(count):
        cycle(i)
    return {"microseconds": (time.perf_counter() - start) / count * 1e6}


def starling_signature():  # type: ignore[no-untyped-def]
    from starling.core.spaces import Float, Int
    from starling.data import transition_signature

    return transition_signature(Float((4,)), Int((), high=2, dtype="int64"))


def starling_prioritized(items: int = ITEMS) -> Trial:
    from starling.data import Table, prioritized

    table = Table(starling_signature(), items, sampler=prioritized(ALPHA), beta=0.4)
    rng = np.random.default_rng(1)
    step = min(items, 100_000)
    for start in range(0, items, step):
        n = min(step, items - start)
        table.insert(cartpole(n), rng.random(n))
    errors = rng.random((64, BATCH)) + 0.01

    def cycle(i: int) -> None:
        table.update_priorities(table.sample(BATCH).keys, errors[i % 64])

    return lambda: cycles(cycle, 1000)


def tianshou_prioritized() -> Trial:
    from tianshou.data import Batch, PrioritizedReplayBuffer

    data, rng = cartpole(ITEMS), np.random.default_rng(1)
    buffer = PrioritizedReplayBuffer(ITEMS, alpha=ALPHA, beta=0.4)
    for i in range(ITEMS):
        buffer.add(
            Batch(
                obs=data["obs"][i], act=data["action"][i], rew=data["reward"][i], terminated=False, truncated=False,
                obs_next=data["next_obs"][i], info={},
            )
        )  # fmt: skip
    buffer.update_weight(np.arange(ITEMS), rng.random(ITEMS))
    errors = rng.random((64, BATCH)) + 0.01

    def cycle(i: int) -> None:
        _, indices = buffer.sample(BATCH)
        buffer.update_weight(indices, errors[i % 64])

    return lambda: cycles(cycle, 300)


def cpprb_prioritized() -> Trial:
    from cpprb import PrioritizedReplayBuffer

    fields = {
        "obs": {"shape": 4}, "action": {"dtype": np.int64}, "reward": {}, "discount": {}, "next_obs": {"shape": 4},
    }  # fmt: skip
    buffer, rng = PrioritizedReplayBuffer(ITEMS, fields, alpha=ALPHA), np.random.default_rng(1)
    buffer.add(**cartpole(ITEMS), priorities=rng.random(ITEMS))
    errors = rng.random((64, BATCH)) + 0.01

    def cycle(i: int) -> None:
        sample = buffer.sample(BATCH, beta=0.4)
        buffer.update_priorities(sample["indexes"], errors[i % 64])

    return lambda: cycles(cycle, 300)


def starling_adder(num_envs: int) -> Trial:
    """One vector step through a one-step adder into a table."""
    from starling.data import NStepAdder, Table

    adder = NStepAdder(Table(starling_signature(), ITEMS), num_envs, 1)
    obs, action = np.zeros((num_envs, 4), np.float32), np.zeros(num_envs, np.int64)
    reward, no = np.zeros(num_envs), np.zeros(num_envs, bool)

    def cycle(i: int) -> None:
        adder.add(obs, action, None, reward, no, no, obs)

    return lambda: cycles(cycle, 5000)


def starling_images(shared_axis: int | None) -> Trial:
    """Gigabytes a second of drawn 84×84×4 transitions, and of memcpy of as many bytes between two large arrays."""
    from starling.core.spaces import Int
    from starling.data import FramePool, NStepAdder, Table, transition_signature

    shape = (4, 84, 84) if shared_axis == 0 else (84, 84, 4)
    obs = Int(shape, 0, 256, "uint8")
    signature = transition_signature(obs, Int((), high=18))
    count = 20_000
    rng = np.random.default_rng(0)
    if shared_axis is None:
        table = Table(signature, count)
        block = rng.integers(0, 256, (500, *shape), np.uint8)
        numbers = np.zeros(500, np.float32)
        for _ in range(count // 500):
            items = {"obs": block, "action": np.zeros(500, np.int32), "reward": numbers, "discount": numbers}
            table.insert({**items, "next_obs": block})
    else:
        pool = FramePool(obs, FramePool.frames_for(count), shared_axis)
        table = Table(signature, count, shared={"obs": pool, "next_obs": pool})
        adder = NStepAdder(table, 1)
        frames = [rng.integers(0, 256, (84, 84), np.uint8) for _ in range(4)]
        no = np.zeros(1, bool)
        now = np.stack(frames, shared_axis)[None]
        for _ in range(count):
            frames = [*frames[1:], np.roll(frames[-1], 1)]
            after = np.stack(frames, shared_axis)[None]
            adder.add(now, np.zeros(1, np.int32), None, np.zeros(1), no, no, after)
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


def serve_starling(address: str) -> None:
    from starling.data import Table, TableServer

    TableServer({"t": Table(starling_signature(), ITEMS)}, address).serve()


def starling_remote(batch: int) -> Trial:
    import multiprocessing

    from starling.data import Sampler, Writer

    address = tempfile.mkdtemp() + "/tables.sock"
    process = multiprocessing.get_context("spawn").Process(target=serve_starling, args=(address,), daemon=True)
    process.start()
    writer = Writer(address, "t", starling_signature(), patience=60)
    sampler = Sampler(address, "t", starling_signature(), BATCH, prefetch=4)
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


def reverb_signature():  # type: ignore[no-untyped-def]
    import tensorflow as tf

    data = cartpole(1)
    return {key: tf.TensorSpec((1, *value.shape[1:]), value.dtype) for key, value in data.items()}


def serve_reverb(port: int) -> None:
    import reverb

    table = reverb.Table(
        "t", reverb.selectors.Uniform(), reverb.selectors.Fifo(), ITEMS, reverb.rate_limiters.MinSize(1),
        signature=reverb_signature(),
    )  # fmt: skip
    reverb.Server([table], port=port).wait()


def dataset(address: str):  # type: ignore[no-untyped-def]
    """Its fastest reader: batches through TensorFlow."""
    import reverb

    made = reverb.TrajectoryDataset.from_table_signature(
        address, "t", max_in_flight_samples_per_worker=2 * BATCH, num_workers_per_iterator=2
    )
    return made.batch(BATCH, drop_remainder=True).prefetch(4)


def reverb_remote() -> Trial:
    import multiprocessing
    import socket

    import reverb

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve_reverb, args=(port,), daemon=True)
    process.start()
    client = reverb.Client(f"localhost:{port}")
    data = {key: value[0] for key, value in cartpole(1).items()}

    def insert(count: int) -> None:
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for i in range(count):
                writer.append(data)
                writer.create_item("t", 1.0, {key: value[-1:] for key, value in writer.history.items()})
                if i % 128 == 127:
                    writer.flush(block_until_num_items=256)
            writer.flush()

    insert(2000)
    batches = iter(dataset(f"localhost:{port}"))

    def trial() -> dict[str, float]:
        start = time.perf_counter()
        insert(3000)
        middle = time.perf_counter()
        drawn = sum(1 for _ in client.sample("t", 3000, emit_timesteps=False))
        by_client = drawn / (time.perf_counter() - middle)
        middle_of_dataset = time.perf_counter()
        for _ in range(40):
            next(batches)
        by_dataset = 40 * BATCH / (time.perf_counter() - middle_of_dataset)
        return {"inserts/s": 3000 / (middle - start), "samples/s": max(by_client, by_dataset)}

    return trial


TASKS: dict[tuple[str, str], Callable[[], Trial]] = {
    ("starling", "prioritized"): starling_prioritized,
    ("tianshou", "prioritized"): tianshou_prioritized,
    ("cpprb", "prioritized"): cpprb_prioritized,
    ("starling", "adder-1"): lambda: starling_adder(1),
    ("starling", "adder-64"): lambda: starling_adder(64),
    ("starling", "images"): lambda: starling_images(None),
    ("starling", "frames-first"): lambda: starling_images(0),
    ("starling", "frames-last"): lambda: starling_images(-1),
    ("starling", "remote"): lambda: starling_remote(1),
    ("starling", "remote-64"): lambda: starling_remote(64),
    ("reverb", "remote"): reverb_remote,
    **{("starling", f"scale-{n}"): (lambda n=n: starling_prioritized(n)) for n in (10**4, 10**5, 10**6, 10**7)},
}


def main() -> None:
    trial = TASKS[sys.argv[1], sys.argv[2]]()
    trial()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(trial()), flush=True)


if __name__ == "__main__":
    main()
