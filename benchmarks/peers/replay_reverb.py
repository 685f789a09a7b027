"""dm-reverb across processes as a contender: ``replay_reverb.py remote``."""

from __future__ import annotations

import multiprocessing
import socket
import time
from typing import Any

import reverb
import tensorflow as tf
from replay_task import BATCH, ITEMS, Trial, cartpole, serve


def signature() -> Any:
    data = cartpole(1)
    return {key: tf.TensorSpec((1, *value.shape[1:]), value.dtype) for key, value in data.items()}


def serve_table(port: int) -> None:
    table = reverb.Table(
        "t", reverb.selectors.Uniform(), reverb.selectors.Fifo(), ITEMS, reverb.rate_limiters.MinSize(1),
        signature=signature(),
    )  # fmt: skip
    reverb.Server([table], port=port).wait()


def dataset(address: str) -> Any:
    """Its fastest reader: batches through TensorFlow."""
    made = reverb.TrajectoryDataset.from_table_signature(
        address, "t", max_in_flight_samples_per_worker=2 * BATCH, num_workers_per_iterator=2
    )
    return made.batch(BATCH, drop_remainder=True).prefetch(4)


def remote() -> Trial:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve_table, args=(port,), daemon=True)
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


if __name__ == "__main__":
    serve({"remote": remote})
