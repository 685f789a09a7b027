"""Checkpoints and journals whose checksums hold, and whose contents lead elsewhere."""

import json
import struct
import zlib

import numpy as np
import pytest
from safetensors.numpy import load

from starling.core.errors import CheckpointError, DataError
from starling.data import Checkpointer, FramePool, Table, prioritized
from starling.data.saving import loading
from starling.data.saving.durable_log import DurableLog
from starling.data.saving.files import _as_safetensors
from starling.data.saving.journal import DRAW, INSERT, UPDATE, read_journals
from tests.chaos.data_files import packed, signed

from .helpers import POINT, points
from .test_damaged_states import FRAME, TRANSITION


def table_of(remover="uniform"):
    return Table(POINT, 50, sampler=prioritized(0.5), remover=remover)


def saved(directory, compress=False, remover="uniform", also=None):
    """A checkpoint of twenty items in a table of fifty."""
    table = table_of(remover)
    table.insert(points(*range(20)), np.arange(20.0))
    Checkpointer(directory, {"t": table}, block_bytes=100, compress=compress, also=also).save(1)
    return table


def rewrite(directory, change):
    """Change a manifest, and sign it again."""
    path = directory / "manifest-00000001.json"
    manifest = json.loads(json.loads(path.read_text())["manifest"])
    change(manifest)
    path.write_bytes(signed(manifest))


def rewrite_file(directory, entry, change):
    """Change the arrays of a file of a manifest, and its checksum there."""
    path = directory / entry["file"]
    tensors = {name: array.copy() for name, array in load(path.read_bytes()).items()}
    change(tensors)
    content = b"".join(_as_safetensors(tensors))
    path.write_bytes(content)
    entry.update(size=len(content), crc32=zlib.crc32(content))


def refused(directory, match, remover="uniform"):
    """The checkpoint is refused before anything changes."""
    table = table_of(remover)
    table.insert(points(7))
    with pytest.raises(CheckpointError, match=match):
        Checkpointer(directory, {"t": table}).load(1)
    assert table.state()["columns"]["n"].tolist() == [7]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t["blocks"][0].update(file="../x.safetensors"), "the plain name of a safetensors file"),
        (lambda t: t["blocks"][0].update(file="a\0.safetensors"), "the plain name of a safetensors file"),
        (lambda t: t["blocks"][0].update(file=3), "'file' = 3 arrived"),
        (lambda t: t["blocks"][0].update(size=10**400), "'size'"),
        (lambda t: t["small"].update(scalars=["y"]), "'scalars' breaks the rule"),
        (lambda t: t["blocks"][0].update(rows=[0, 2**40]), "'rows'"),
        (lambda t: t["blocks"].pop(0), "'blocks' breaks the rule that its pieces cover 0 to 20"),
        (lambda t: t["blocks"].append(t["blocks"][0]), "'blocks' breaks the rule that its pieces cover 0 to 20"),
        (lambda t: t["blocks"].append([]), "an object with named parts"),
        (lambda t: t.update(blocks={}), "'blocks' = {} arrived, a list"),
        (lambda t: t["arrays"]["pieces"].pop(), "its pieces cover 0 to"),
        (lambda t: t["arrays"]["lengths"].update(keys=[50, "|O"]), "'keys' breaks the rule that it has a size and"),
        (lambda t: t["arrays"]["lengths"].pop("keys"), "nothing under 'keys'"),
        (lambda t: t.pop("small"), "nothing under 'file'"),
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(tmp_path, change, match):
    saved(tmp_path)
    rewrite(tmp_path, lambda manifest: change(manifest["sources"]["t"]))
    refused(tmp_path, match)


@pytest.mark.parametrize(
    ("place", "change", "match"),
    [
        ("small", lambda t: t.update({"counters.size": np.array([2**40])}), "'size'"),
        ("small", lambda t: t.update({"counters": np.zeros(1)}), "no leaf lies within another"),
        ("small", lambda t: t.pop("generator.position"), "nothing under 'position'"),
        ("arrays", lambda t: t.update({"keys:0": np.full(50, 2**40)}), "'keys' breaks the rule|keys:0"),
        ("arrays", lambda t: t.update({"keys:٣": np.zeros(1, np.int64)}), "breaks the rule|its pieces cover"),
        ("arrays", lambda t: t.update({"other:0": np.zeros(1, np.int64)}), "'other:0' breaks the rule"),
        ("arrays", lambda t: t.update({"keys:99": np.zeros(1, np.int64)}), "'keys:99' breaks the rule"),
    ],
)
def test_numbers_that_lead_elsewhere_are_refused_before_anything_changes(tmp_path, place, change, match):
    saved(tmp_path)

    def damage(manifest):
        entry = manifest["sources"]["t"]
        rewrite_file(tmp_path, entry["small"] if place == "small" else entry["arrays"]["pieces"][0], change)

    rewrite(tmp_path, damage)
    refused(tmp_path, match)


def test_what_is_compressed_takes_no_more_than_the_layout_has_room_for(tmp_path):
    saved(tmp_path, compress=True)

    def bomb(manifest):
        entry = manifest["sources"]["t"]["blocks"][0]
        packed = np.frombuffer(zlib.compress(bytes(300_000_000), 9), np.uint8)
        rewrite_file(tmp_path, entry, lambda tensors: tensors.update(n=packed))

    rewrite(tmp_path, bomb)
    with pytest.raises(CheckpointError, match="takes 48 bytes when it is decompressed"):
        Checkpointer(tmp_path, {"t": table_of()}).load(1)
    rewrite(tmp_path, lambda m: m["sources"]["t"]["blocks"][0]["compressed"].update(n=["<i8", [2**40]]))
    with pytest.raises(CheckpointError, match="all that was compressed takes 96 bytes at most"):
        Checkpointer(tmp_path, {"t": table_of()}).load(1)


@pytest.mark.parametrize("fails", ["damaged", "cannot be read"])
def test_rows_that_fail_half_way_leave_an_empty_table(tmp_path, monkeypatch, fails):
    table = saved(tmp_path, remover="fifo")
    read, calls = loading.read_tensors, []

    def fail(directory, entry, most=0):
        calls.append(entry)
        if len(calls) == 4 and fails == "cannot be read":
            raise MemoryError("no room")
        return {} if len(calls) == 4 else read(directory, entry, most)

    other = table_of("fifo")
    other.insert(points(1, 2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(loading, "read_tensors", fail)
        with pytest.raises(MemoryError if fails == "cannot be read" else CheckpointError):
            Checkpointer(tmp_path, {"t": other}).load(1)
    assert (len(other), other.inserts) == (0, 0)
    for first in (0, 30):
        other.insert(points(*range(first, first + 30)))
    assert other.sample(5).data["n"].min() >= 10
    Checkpointer(tmp_path, {"t": other}).load(1)
    assert other.inserts == table.inserts


def test_frames_that_tables_refer_to_more_often_than_counted_leave_empty_tables(tmp_path):
    pool = FramePool(FRAME, 40, -1)
    shared = {"obs": pool, "next_obs": pool}
    tables = {name: Table(TRANSITION, 8, shared=shared, name=name) for name in "ab"}
    items = TRANSITION.ranked(batch=True).sample(np.random.default_rng(0), (3,))
    for table in tables.values():
        table.insert(items)
    Checkpointer(tmp_path, tables).save(1)

    def damage(manifest):
        entry = manifest["sources"]["a@next_obs"]["arrays"]["pieces"][0]
        rewrite_file(tmp_path, entry, lambda t: np.minimum(t["references:0"], 1, out=t["references:0"]))

    rewrite(tmp_path, damage)  # each of the tables alone refers to a frame as often as counted
    with pytest.raises(CheckpointError, match="more often than their pool has counted"):
        Checkpointer(tmp_path, tables).load(1)
    assert [len(table) for table in tables.values()] == [0, 0]
    assert pool.in_use == 0


# Durable logs

LEAVES = [np.arange(2), np.zeros((2, 2), np.float32), np.ones(2)]
BODY = b"".join(leaf.tobytes() for leaf in LEAVES)


def log_of(directory):
    return DurableLog({"a": Table(POINT, 5), "b": Table(TRANSITION, 5)}, directory)


@pytest.mark.parametrize(
    ("record", "match"),
    [
        ((DRAW, b"a", 2**31, 0, b""), "a draw has 1 to 65536 items"),
        ((DRAW, b"a", 1, 0, b"x"), "a draw has 1 to 65536 items, and no content"),
        ((DRAW, b"c", 1, 0, b""), "a table 'c'; this server has"),
        ((UPDATE, b"a", 3, 0, bytes(16)), "a key and a priority for each"),
        ((INSERT, b"a", 2, 0, BODY), "a table ''; this server has"),
        ((INSERT, b"1/a", 3, 0, BODY), "an item has 24 bytes"),
        ((INSERT, b"1/a", 6, 0, BODY * 3), "1 to 5 items are inserted at once"),
        ((INSERT, b"1/a", 0, 0, b""), "1 to 5 items are inserted at once"),
        ((INSERT, b"1/a", 2, 2**64 - 1, BODY), "1 to 5 items are inserted at once"),
        ((INSERT, b"1/a,b", 2, 0, BODY), "all of the tables hold the same kind of items"),
        ((INSERT, b"1/\xff", 2, 0, BODY), "which is no text"),
    ],
)
def test_a_record_that_no_server_wrote_is_refused(tmp_path, record, match):
    (tmp_path / "journal-00000001.bin").write_bytes(packed(INSERT, b"1/a", 2, 0, BODY) + packed(*record))
    with pytest.raises(CheckpointError, match=match):
        log_of(tmp_path)


def test_a_record_that_says_it_is_longer_than_its_file_ends_the_journal(tmp_path):
    torn = packed(INSERT, b"1/a", 2, 2, BODY)[:-8]
    for lengths in ((2**32 - 1, len(BODY)), (3, 2**32 - 1)):
        name, content = lengths
        head = torn[:8] + struct.pack("<IIQI", name, 2, 2, content) + torn[28:]
        (tmp_path / "journal-00000001.bin").write_bytes(packed(INSERT, b"1/a", 2, 0, BODY) + head)
        assert [record.sequence for record in read_journals(tmp_path, 0)] == [0]


@pytest.mark.parametrize(
    ("position", "match"),
    [
        ({"accepted": {"1/a": -1}, "journal": 2}, "'1/a' = -1"),
        ({"accepted": {"1/a": 1.5}, "journal": 2}, "'1/a' = 1.5"),
        ({"accepted": [], "journal": 2}, "an object with named parts"),
        ({"accepted": {}, "journal": 2**70}, "'journal'"),
        ({"accepted": {}}, "nothing under 'journal'"),
    ],
)
def test_a_position_of_a_log_that_cannot_be_is_refused(tmp_path, position, match):
    also = {"position": np.frombuffer(json.dumps(position).encode(), np.uint8)}
    tables = {"a": Table(POINT, 5)}
    Checkpointer(tmp_path, tables, also=lambda: also).save()
    with pytest.raises(CheckpointError, match=match):
        DurableLog(tables, tmp_path)


def test_a_client_that_changes_its_memory_damages_no_journal(tmp_path):
    log = log_of(tmp_path)
    leaves, priorities = [leaf.copy() for leaf in LEAVES[:2]], np.ones(2)
    log.insert([log._tables["a"]], "1/a", 0, 2, leaves, priorities)
    for array in (*leaves, priorities):  # as a client may, at any time
        array[...] = 9
    log.insert([log._tables["a"]], "1/a", 2, 2, leaves, priorities)
    log.flush(idle=True)
    log.close()
    assert [record.sequence for record in read_journals(tmp_path, 0)] == [0, 2]
    again = log_of(tmp_path)
    assert again.accepted("1/a") == 4
    assert again._tables["a"].state()["columns"]["n"].tolist() == [0, 1, 9, 9]
    again.close()


def test_items_that_are_refused_leave_no_record(tmp_path):
    pool = FramePool(FRAME, 6, -1)
    table = Table(TRANSITION, 50, shared={"obs": pool, "next_obs": pool})
    log = DurableLog({"a": table}, tmp_path)
    items = TRANSITION.ranked(batch=True).sample(np.random.default_rng(0), (5,))
    leaves = [leaf for _, leaf in sorted(items.items())]
    with pytest.raises(DataError, match="held by unfinished items"):
        log.insert([table], "1/a", 0, 5, leaves, np.ones(5))
    assert pool.in_use == 0
    assert log.accepted("1/a") == 0
    log.close()
    assert list(read_journals(tmp_path, 0)) == []
