"""Tables across processes: everything arrives once, also when somebody is killed."""

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Float, Int
from starling.core.trees import items
from starling.data import (
    FramePool,
    MinSize,
    NStepAdder,
    RateLimitTimeout,
    Sampler,
    SamplesPerInsert,
    ServerLostError,
    ShardedSampler,
    ShardedWriter,
    Table,
    TableServer,
    Writer,
    ask_server,
    prioritized,
    queue,
    transition_signature,
)
from starling.data.saving.journal import DRAW, INSERT, UPDATE, Journal, read_journals
from starling.data.server.protocol import HEAD, UPDATE_TAIL

from .helpers import POINT, points
from .remote import (
    ITEM,
    SPAWN,
    kill,
    process,
    sample_until,
    serve,
    serve_queue,
    wait_for,
    write_for_ever,
    write_many,
    write_until,
)
from .test_frames import Stacks


@pytest.fixture
def here(tmp_path):
    """Start servers in threads of this process, and stop them at the end."""
    running = []

    def start(table, name="s", **options):
        server = TableServer({"t": table}, tmp_path / f"{name}.sock", **options)
        running.append((server, server.start()))
        return server.address

    start.running = running
    yield start
    for server, thread in running:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_items_and_samples_go_through_and_priorities_come_back(here):
    table = Table(POINT, 100, sampler="max_heap")
    address = here(table)
    writer = Writer(address, "t", POINT, slots=8)
    writer.insert(points(*range(20)), np.arange(20.0))  # more than the ring holds
    writer.insert(points(20))
    writer.flush(5)
    assert writer.acknowledged == 21
    sampler = Sampler(address, "t", POINT, 3, prefetch=1)
    sample = sampler.sample(5)
    assert sample.data["n"].tolist() == [19, 19, 19]
    np.testing.assert_array_equal(sample.data["x"], points(19, 19, 19)["x"])
    keys = sample.keys.copy()
    sampler.update_priorities(keys[:1], [0.5])
    wait_for(lambda: table.index.priorities[table.index.slot_of(int(keys[0]))] == 0.5)
    for _ in range(3):
        sample = sampler.sample(5)
    assert sample.data["n"].tolist() == [20, 20, 20]  # inserted without a priority: the largest so far, 19
    assert ask_server(address, "stats")["t"]["inserts"] == 21
    writer.close()
    sampler.close()


def test_an_adder_writes_to_a_server_as_to_a_table(here):
    signature = transition_signature(Float((2,)), Int(()))
    table = Table(signature, 100)
    writer = Writer(here(table), "t", signature)
    adder = NStepAdder(writer, 2, 1)
    obs, no = np.zeros((2, 2), np.float32), np.zeros(2, bool)
    adder.add(obs, np.zeros(2, np.int32), None, np.array([1.0, 2.0]), no, no, obs)
    writer.close()
    assert sorted(table.state()["columns"]["reward"].tolist()) == [1.0, 2.0]


def test_frames_are_stored_once_for_all_writers_and_survive_the_server(tmp_path):
    space = Int((4, 5, 3), 0, 256, "uint8")
    signature = transition_signature(space, Int(()))
    steps = {actor: [env.step() for _ in range(12)] for actor, env in enumerate(Stacks(s, 2, -1, 0.2) for s in (1, 2))}

    def serving():
        pool = FramePool(space, 200, -1)
        table = Table(signature, 100, sampler="fifo", shared={"obs": pool, "next_obs": pool})
        server = TableServer({"t": table}, tmp_path / "s.sock", directory=tmp_path / "d")
        return server, server.start(), table, pool

    plain = Table(signature, 100, sampler="fifo")
    server, thread, table, pool = serving()
    for actor, stream in steps.items():
        writer = Writer(server.address, "t", signature, actor=actor)
        adders = [NStepAdder(writer, 2), NStepAdder(plain, 2)]
        for t, step in enumerate(stream):
            for adder in adders:
                adder.add(**step)
            if actor == 0 and t == 6:
                ask_server(server.address, "checkpoint")
        writer.close()
    frames = pool.in_use
    made = {
        step[name][b].tobytes() for s in steps.values() for step in s for name in ("obs", "next_obs") for b in (0, 1)
    }
    assert frames <= len(made) + 4  # each observation brings one new frame
    server.stop()
    thread.join(10)
    server, thread, table, pool = serving()
    assert pool.in_use == frames
    sampler = Sampler(server.address, "t", signature, 4)
    assert sampler.sample(5).data["obs"].shape == (4, 4, 5, 3)
    sampler.close()
    server.stop()
    thread.join(10)
    for name in ("obs", "next_obs"):
        out = np.empty((len(plain), 4, 5, 3), np.uint8)
        i = table.columns.paths.index(name)
        pool.gather(table.columns.arrays[i], np.arange(len(plain)), out)
        np.testing.assert_array_equal(out, plain.state()["columns"][name])


def test_a_full_queue_holds_the_writer_and_says_why(here):
    address = here(queue(POINT, 4))
    writer = Writer(address, "t", POINT, slots=2)
    writer.insert(points(0, 1, 2, 3, 4, 5))  # four in the table, two in the ring
    with pytest.raises(RateLimitTimeout, match="4 of 4 places taken"):
        writer.insert(points(6), timeout=0.2)
    sampler = Sampler(address, "t", POINT, 2)
    assert sampler.sample(5).data["n"].tolist() == [0, 1]
    assert sampler.sample(5).data["n"].tolist() == [2, 3]
    assert sampler.sample(5).data["n"].tolist() == [4, 5]
    with pytest.raises(RateLimitTimeout, match="the table is empty"):
        sampler.sample(0.2)
    writer.close()
    sampler.close()


def test_what_does_not_fit_is_refused(here, tmp_path):
    address = here(Table(POINT, 10, limiter=MinSize(5)))
    with pytest.raises(DataError, match="unknown table 'x'"):
        Writer(address, "x", POINT)
    with pytest.raises(DataError, match="the client's items are"):
        Sampler(address, "t", Dict(n=Int(())), 2)
    with pytest.raises(ConfigError, match="slots=0"):
        Writer(address, "t", POINT, slots=0)
    writer = Writer(address, "t", POINT)
    with pytest.raises(DataError, match="at least 0"):
        writer.insert(points(1), [-1.0])
    with pytest.raises(DataError, match="'n'"):
        writer.insert({"n": np.zeros(1), "x": np.zeros((1, 2), np.float32)})
    with pytest.raises(ServerLostError, match="connected already"):
        Writer(address, "t", POINT, patience=0.1)
    with pytest.raises(ServerLostError, match=r"within 0\.1 s"):
        Writer(tmp_path / "nobody.sock", "t", POINT, patience=0.1)
    with pytest.raises(ConfigError, match="another server"):
        TableServer({"t": Table(POINT, 1)}, address)
    with pytest.raises(ConfigError, match="no comma"):
        TableServer({"a,b": Table(POINT, 1)}, tmp_path / "names.sock")
    with pytest.raises(ConfigError, match="too long"):
        TableServer({"t": Table(POINT, 1)}, tmp_path / ("x" * 120))
    with pytest.raises(DataError, match="needs one"):
        ask_server(address, "checkpoint")
    with pytest.raises(DataError, match="unknown role 'nonsense'"):
        ask_server(address, "nonsense")
    writer.close()


def test_beta_may_change_from_draw_to_draw(here):
    table = Table(POINT, 4, sampler=prioritized(1.0, epsilon=0), beta=1.0)
    table.insert(points(0, 1), [1.0, 4.0])  # the second is four times as likely
    sampler = ShardedSampler([Sampler(here(table), "t", POINT, 5)])
    for beta, weight in ((None, 0.25), (0.0, 1.0), (0.5, 0.5)):  # 4^−β, of which the table's is 1
        sample = sampler.sample(60, beta=beta)
        np.testing.assert_allclose(sample.weights, np.where(sample.data["n"] == 0, 1.0, weight))
    with pytest.raises(ConfigError, match="beta=7"):
        sampler.sample(5, beta=7)
    sampler.close()


def test_a_sampler_that_attaches_leaves_the_batches_that_are_there_already(here):
    table = Table(POINT, 4, sampler=prioritized(1.0, epsilon=0))
    table.insert(points(0, 1), [1.0, 4.0])
    sampler = Sampler(here(table), "t", POINT, 5, prefetch=1)
    wait_for(lambda: int(sampler._counters[HEAD]) == 3)  # all its batches are filled
    sampler._attach()
    sample = sampler.sample(60)
    np.testing.assert_allclose(sample.weights, np.where(sample.data["n"] == 0, 1.0, 0.25))
    sampler.close()


def test_priorities_go_back_to_the_shard_that_owns_the_item(here):
    tables = [Table(POINT, 10, sampler="max_heap", seed=i) for i in range(2)]
    addresses = [here(table, f"s{i}") for i, table in enumerate(tables)]
    writer = ShardedWriter([Writer(address, "t", POINT) for address in addresses])
    for i in range(4):
        writer.insert(points(i))
    writer.flush(5)
    assert [len(table) for table in tables] == [2, 2]
    sampler = ShardedSampler([Sampler(address, "t", POINT, 1) for address in addresses])
    for priority in (0.25, 0.125):
        sample = sampler.sample(5)
        owner = int(sample.keys[0]) % 2
        key = int(sample.keys[0]) // 2
        sampler.update_priorities(sample.keys, [priority])
        index = tables[owner].index
        wait_for(lambda i=index, k=key, p=priority: i.priorities[i.slot_of(k)] == p)
    writer.close()
    sampler.close()


def test_a_journal_gives_back_whole_records_and_stops_at_a_torn_one(tmp_path):
    journal = Journal(tmp_path)
    journal.append(INSERT, "1/t", 0, 2, [np.arange(2), np.zeros((2, 3), np.float32)])
    journal.append(DRAW, "t", 0, 256, [])
    second = journal.rotate()
    journal.append(UPDATE, "t", 0, 1, [np.arange(1), np.ones(1)])
    journal.append(INSERT, "1/t", 3, 1, [np.arange(1)])
    journal.close()
    path = tmp_path / f"journal-{second:08d}.bin"
    path.write_bytes(path.read_bytes()[:-3])
    records = list(read_journals(tmp_path, 0))
    assert [(r.kind, r.name, r.sequence, r.items, len(r.content)) for r in records] == [
        (INSERT, "1/t", 0, 2, 40),
        (DRAW, "t", 0, 256, 0),
        (UPDATE, "t", 0, 1, 16),
    ]
    assert [record.kind for record in read_journals(tmp_path, second)] == [UPDATE]


@pytest.mark.parametrize("place", [1, 5, 13, 25, 40])
def test_a_journal_notices_any_changed_byte(tmp_path, place):
    journal = Journal(tmp_path)
    journal.append(INSERT, "1/t", 7, 2, [np.arange(2)])
    journal.close()
    path = tmp_path / "journal-00000001.bin"
    content = bytearray(path.read_bytes())
    assert len(content) > place
    content[place] ^= 4
    path.write_bytes(content)
    assert list(read_journals(tmp_path, 0)) == []


def test_many_records_are_written_in_order_whatever_the_system_takes_at_once(tmp_path, monkeypatch):
    write = os.writev
    monkeypatch.setattr(os, "writev", lambda file, buffers: write(file, [buffers[0][:17]]))  # a bit at a time
    journal = Journal(tmp_path)
    for i in range(20):
        journal.append(INSERT, f"{i}/t", i, 3, [np.full(3, i), np.arange(i)])
    journal.close()
    records = list(read_journals(tmp_path, 0))
    assert [record.sequence for record in records] == list(range(20))
    assert np.frombuffer(records[9].content, np.int64).tolist() == [9, 9, 9, *range(9)]


def test_a_stopped_server_gives_back_its_memory_and_a_new_one_continues(tmp_path):
    address, directory = tmp_path / "s.sock", tmp_path / "d"
    before = len(os.listdir("/proc/self/fd"))
    for round_ in range(2):
        table = Table(POINT, 50)
        server = TableServer({"t": table}, address, directory=directory)
        thread = server.start()
        assert len(table) == 3 * round_
        writer = Writer(address, "t", POINT)
        assert writer.sent == 3 * round_
        writer.insert(points(*range(3)))
        writer.close()
        if round_ == 0:
            ask_server(address, "checkpoint")
        server.stop()
        thread.join(10)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "options", [{"sampler": "prioritized"}, {"sampler": "prioritized", "remover": "uniform", "max_times_sampled": 3}]
)
def test_a_server_comes_back_exactly_where_it_was(tmp_path, options, saved):
    address, directory, rng = tmp_path / "s.sock", tmp_path / "d", np.random.default_rng(0)
    table = Table(POINT, 50, seed=4, **options)
    server = TableServer({"t": table}, address, directory=directory)
    thread = server.start()
    writer, sampler = Writer(address, "t", POINT), Sampler(address, "t", POINT, 4, prefetch=1)
    for i in range(30):
        writer.insert(points(*range(3 * i, 3 * i + 3)), rng.random(3))
        writer.flush(5)
        sampler.update_priorities(sampler.sample(5).keys.copy(), rng.random(4))
        if saved and i == 12:
            ask_server(address, "checkpoint")
    wait_for(lambda: int(sampler._counters[UPDATE_TAIL]) == 120)
    writer.close()
    sampler.close()
    server.stop()
    thread.join(10)
    again = Table(POINT, 50, seed=4, **options)
    TableServer({"t": again}, address, directory=directory)._release()
    before, after = dict(items(table.state())), dict(items(again.state()))
    assert int(before["counters.samples"]) >= 120
    for path in before:
        np.testing.assert_array_equal(before[path], after[path], err_msg=path)


def test_a_queue_hands_out_each_item_once_although_its_server_dies(tmp_path):
    address, directory, got = tmp_path / "s.sock", tmp_path / "d", []
    with process(serve_queue, address, directory):
        writer = Writer(address, "t", POINT, patience=200)
        sampler = Sampler(address, "t", POINT, 2, prefetch=3, patience=200)
        writer.insert(points(*range(20)))
        writer.flush(5)
        wait_for(lambda: int(sampler._counters[HEAD]) == 5)  # as many batches as the ring holds
        got += sampler.sample(5).data["n"].tolist()
        got += sampler.sample(5).data["n"].tolist()
        time.sleep(0.2)  # until the draws that this made room for are noted
    with process(serve_queue, address, directory):
        sampler.update_priorities(np.arange(20_000), np.ones(20_000))  # too many for a dead server: reconnects
        while len(got) < 20:
            got += sampler.sample(5).data["n"].tolist()
        assert got == list(range(20))
        with pytest.raises(RateLimitTimeout, match="the table is empty"):
            sampler.sample(0.2)
        writer.close()
        sampler.close()


def test_a_durable_server_tells_a_writer_only_what_the_disk_has_confirmed(tmp_path, monkeypatch):
    address, directory = tmp_path / "s.sock", tmp_path / "d"
    server = TableServer({"t": Table(POINT, 50)}, address, directory=directory, durable=True)
    thread = server.start()
    disk, synced, sync = threading.Event(), [], os.fsync

    def slow_sync(file):
        disk.wait(10)
        sync(file)
        synced.append(os.readlink(f"/proc/self/fd/{file}"))

    monkeypatch.setattr(os, "fsync", slow_sync)
    writer = Writer(address, "t", POINT)
    writer.insert(points(1, 2, 3))
    wait_for(lambda: server.tables["t"].inserts == 3)
    time.sleep(0.1)
    assert writer.acknowledged == 0
    disk.set()
    writer.flush(5)
    assert writer.acknowledged == 3
    assert synced == [str(directory / "journal-00000001.bin"), str(directory)]  # its contents, and its name
    ask_server(address, "checkpoint")
    writer.insert(points(4))
    writer.close()
    assert synced[-2:] == [str(directory / "journal-00000002.bin"), str(directory)]
    server.stop()
    thread.join(10)
    with pytest.raises(ConfigError, match="durable=True without a directory"):
        TableServer({"t": Table(POINT, 5)}, tmp_path / "t.sock", durable=True)


def test_a_rotated_journal_is_synced_with_the_next_one(tmp_path):
    journal = Journal(tmp_path)
    journal.append(INSERT, "1/t", 0, 1, [np.arange(1)])
    journal.rotate(keep_open=True)
    open_files = len(os.listdir("/proc/self/fd"))
    journal.sync()
    assert len(os.listdir("/proc/self/fd")) == open_files - 1
    journal.close()
    assert [record.sequence for record in read_journals(tmp_path, 0)] == [0]


def test_a_server_saves_from_time_to_time_and_reports_failures(tmp_path):
    address, directory = tmp_path / "s.sock", tmp_path / "d"
    server = TableServer({"t": Table(POINT, 50)}, address, directory=directory, checkpoint_every=0.05)
    thread = server.start()
    writer = Writer(address, "t", POINT)
    writer.insert(points(1, 2, 3))
    writer.flush(5)
    wait_for(lambda: any(directory.glob("manifest-*")))
    assert ask_server(address, "stats")["(server)"]["checkpoint_error"] == ""
    server._log._saver.directory = tmp_path / "s.sock" / "no directory"
    wait_for(lambda: "s.sock" in ask_server(address, "stats")["(server)"]["checkpoint_error"])
    writer.close()
    server.stop()
    thread.join(10)


def test_a_server_that_forgot_is_noticed_by_its_writer(tmp_path):
    address = tmp_path / "s.sock"
    server = TableServer({"t": Table(POINT, 50)}, address)
    thread = server.start()
    writer = Writer(address, "t", POINT, slots=2)
    writer.insert(points(*range(6)))
    writer.flush(5)
    server.stop()
    thread.join(10)
    server = TableServer({"t": Table(POINT, 50)}, address)  # no directory: nothing is kept
    thread = server.start()
    with pytest.raises(ServerLostError, match="6 are lost"):
        writer.insert(points(*range(6)))
    server.stop()
    thread.join(10)


def test_a_lost_server_is_a_typed_error_within_the_patience(tmp_path):
    address = tmp_path / "s.sock"
    with process(serve, address, None, 10, 0.0, {}) as server:
        sampler = Sampler(address, "t", ITEM, 1, patience=200)
        sampler._client.patience = 0.3
        threading.Timer(0.3, kill, [server]).start()
        start = time.monotonic()
        with pytest.raises(ServerLostError, match=r"within 0\.3 s"):
            sampler.sample()
        assert time.monotonic() - start < 5


def present(table):
    columns, keys = table.columns, table.index.keys
    by_path = dict(zip(columns.paths, columns.arrays))
    live = keys >= 0
    assert (by_path["body"][live] == by_path["number"][live][:, None]).all(), "a torn item"
    return np.stack([by_path["actor"][live], by_path["number"][live]], axis=1)


def assert_exactly_once(table, actors):
    rows = present(table)
    for actor in actors:
        numbers = np.sort(rows[rows[:, 0] == actor][:, 1])
        np.testing.assert_array_equal(numbers, np.arange(numbers.size), err_msg=f"actor {actor}")
    return rows


def kill_writers(here, kills):
    table = Table(ITEM, 4_000_000)
    address = here(table)
    rng = np.random.default_rng(0)
    for _ in range(kills):
        with process(write_for_ever, address, 1, 7):
            seen = table.inserts
            wait_for(lambda n=seen: table.inserts > n)
            time.sleep(rng.random() * 0.02)
    server = here.running[0][0]
    wait_for(lambda: not server._ends and not server._orphans)  # what the last one left is kept
    rows = assert_exactly_once(table, [1])
    assert len(rows) == table.inserts


def test_killed_writers_leave_every_item_once(here):
    kill_writers(here, 3)


@pytest.mark.slow
def test_a_hundred_killed_writers_leave_every_item_once(here):
    kill_writers(here, 100)


def keep_the_ratio(here, ratio, margin, batch, count):
    """Two writers and two samplers, each a process; the balance is looked at after each of their operations."""
    table = Table(ITEM, 1_000, limiter=SamplesPerInsert(ratio, margin))
    worst = [0.0, 0.0]

    def look():
        ahead = (table.inserts - 1) * ratio - table.samples  # counting starts at the first item
        worst[:] = min(worst[0], ahead), max(worst[1], ahead)

    inserted, drawn = table.admission.inserted, table.admission.drawn  # called with the lock held, when all is counted
    table.admission.inserted = lambda: (look(), inserted())
    table.admission.drawn = lambda: (look(), drawn())
    address, stop = here(table), SPAWN.Event()
    with contextlib.ExitStack() as running:
        writers = [running.enter_context(process(write_many, address, actor, count)) for actor in (1, 2)]
        samplers = [running.enter_context(process(sample_until, stop, address, batch)) for _ in range(2)]
        for writer in writers:
            writer.join(240)
            assert writer.exitcode == 0
        stop.set()
        for sampler in samplers:
            sampler.join(20)
            assert sampler.exitcode == 0
    assert table.inserts == 2 * count
    assert abs((table.inserts - 1) * ratio - table.samples) <= margin
    assert -margin <= worst[0] <= worst[1] <= margin
    assert worst[1] - worst[0] > margin  # it did come to waiting


def test_the_ratio_stays_within_its_margin_across_processes(here):
    keep_the_ratio(here, 2.0, 16.0, 4, 2_000)


@pytest.mark.slow
def test_the_ratio_stays_within_its_margin_over_a_million_operations_of_four_processes(here):
    # Half a million items inserted one by one and as many drawn one by one; the server may take a few at once.
    keep_the_ratio(here, 1.0, 8.0, 1, 250_000)


def kill_servers(tmp_path, kills, capacity=1_000_000):
    """Two writers; the server dies again and again, every other time while it saves."""
    address, directory = tmp_path / "s.sock", tmp_path / "d"
    rng = np.random.default_rng(0)
    stop, done = SPAWN.Event(), SPAWN.Queue()
    shared_memory = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    with process(write_until, stop, address, 1, 5, done), process(write_until, stop, address, 2, 3, done):
        for i in range(kills):
            with process(serve, address, directory, capacity, 0.0, {}):
                wait_for(lambda: _answers(address))
                time.sleep(rng.random() * 0.1)
                if i % 2:
                    threading.Thread(target=_checkpoint_quietly, args=(address,)).start()
                    time.sleep(rng.random() * 0.05)
        with process(serve, address, directory, capacity, 0.0, {}):
            wait_for(lambda: _answers(address))
            stop.set()
            results = sorted(done.get(timeout=60) for _ in range(2))
    table = Table(ITEM, capacity)
    server = TableServer({"t": table}, address, directory=directory)
    rows = assert_exactly_once(table, [1, 2])
    for actor, sent, acknowledged, reconnects in results:
        assert sent == acknowledged == (rows[:, 0] == actor).sum()
        assert reconnects >= kills // 2
    server._release()
    if Path("/dev/shm").is_dir():
        assert {name for name in set(os.listdir("/dev/shm")) - shared_memory if "starling" in name} == set()


def _answers(address):
    try:
        ask_server(address, "stats", 1.0)
    except ServerLostError:
        return False
    return True


def _checkpoint_quietly(address):
    with contextlib.suppress(ServerLostError):
        ask_server(address, "checkpoint", 10.0)


def test_killed_servers_lose_and_double_nothing(tmp_path):
    kill_servers(tmp_path, 3)


@pytest.mark.slow
def test_fifty_killed_servers_lose_and_double_nothing(tmp_path):
    kill_servers(tmp_path, 50)


def kill_queues(tmp_path, kills):
    """A writer and a sampler on both sides of a queue whose server dies again and again."""
    address, directory, batch = tmp_path / "s.sock", tmp_path / "d", 2
    rng, got, sent, stop, written = np.random.default_rng(0), [], [0], threading.Event(), threading.Event()

    def write():
        writer = Writer(address, "t", POINT, slots=16, patience=30)
        while not stop.is_set():
            writer.insert(points(*range(sent[0], sent[0] + 2)))
            sent[0] += 2
            time.sleep(0.001)
        written.set()  # not before the last insert: until then more may come than ``sent`` says
        writer.close(30)

    def draw():
        sampler = Sampler(address, "t", POINT, batch, prefetch=2, patience=30)
        while not written.is_set() or len(set(got)) < sent[0]:
            with contextlib.suppress(RateLimitTimeout):
                got.extend(sampler.sample(0.5).data["n"].tolist())
        sampler.close()

    threads = [threading.Thread(target=target) for target in (write, draw)]
    for thread in threads:
        thread.start()
    for i in range(kills):
        with process(serve_queue, address, directory):
            wait_for(lambda: _answers(address))
            seen = len(got)
            wait_for(lambda n=seen: len(got) > n)
            if i % 2:
                threading.Thread(target=_checkpoint_quietly, args=(address,)).start()
            time.sleep(rng.random() * 0.05)
    with process(serve_queue, address, directory):
        wait_for(lambda: _answers(address))
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), f"{sent[0]} were sent, {len(set(got))} arrived"
    assert set(got) == set(range(sent[0]))
    assert len(got) - len(set(got)) <= batch * kills  # the batch that was drawn and not yet noted


def test_killed_queues_lose_nothing(tmp_path):
    kill_queues(tmp_path, 2)


@pytest.mark.slow
def test_twenty_five_killed_queues_lose_nothing(tmp_path):
    kill_queues(tmp_path, 25)
