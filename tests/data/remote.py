"""Processes for the tests of the table server."""

import contextlib
import multiprocessing
import os
import signal
import time

import numpy as np

from starling.core.spaces import Dict, Int
from starling.data import RateLimitTimeout, Sampler, SamplesPerInsert, Table, TableServer, Writer, queue

from .helpers import POINT

ITEM = Dict(actor=Int((), 0, 2**31, "int64"), number=Int((), 0, 2**62, "int64"), body=Int((8,), 0, 2**62, "int64"))
SPAWN = multiprocessing.get_context("spawn")


def items(actor, first, n):
    """Items that say where they come from; the body repeats the number, so that a torn item shows."""
    number = np.arange(first, first + n)
    return {"actor": np.full(n, actor), "number": number, "body": np.repeat(number[:, None], 8, 1)}


def serve(address, directory, capacity, every, options):
    options = dict(options)
    ratio = options.pop("ratio", None)
    if ratio:
        options["limiter"] = SamplesPerInsert(ratio, 64.0)
    table = Table(ITEM, capacity, **options)
    TableServer({"t": table}, address, directory=directory, checkpoint_every=every).serve()


def serve_queue(address, directory):
    TableServer({"t": queue(POINT, 50)}, address, directory=directory, checkpoint_every=0).serve()


def write_for_ever(address, actor, batch):
    """Send numbered items until killed; a restarted writer goes on behind what the server accepted."""
    writer = Writer(address, "t", ITEM, actor=actor, slots=64, patience=120)
    while True:
        writer.insert(items(actor, writer.sent, batch))


def write_until(stop, address, actor, batch, done):
    """Send numbered items until told to stop; then report how many the server has, and how often it was lost."""
    writer = Writer(address, "t", ITEM, actor=actor, slots=64, patience=120)
    while not stop.is_set():
        writer.insert(items(actor, writer.sent, batch))
        time.sleep(0.0005)
    writer.flush(30)
    done.put((actor, writer.sent, writer.acknowledged, writer._client.reconnects))


@contextlib.contextmanager
def process(target, *args):
    running = SPAWN.Process(target=target, args=args, daemon=True)
    running.start()
    try:
        yield running
    finally:
        kill(running)


def kill(running):
    if running.is_alive():
        os.kill(running.pid, signal.SIGKILL)
    running.join(10)


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def write_many(address, actor, count):
    """Send ``count`` items, one at a time."""
    writer = Writer(address, "t", ITEM, actor=actor, slots=64, patience=120)
    for number in range(count):
        writer.insert(items(actor, number, 1))
    writer.close(timeout=None)


def sample_until(stop, address, batch):
    """Draw until told to stop."""
    sampler = Sampler(address, "t", ITEM, batch, prefetch=2, patience=120)
    while not stop.is_set():
        with contextlib.suppress(RateLimitTimeout):
            sampler.sample(timeout=0.2)
    sampler.close()
