"""A table as a part of a role's state."""

import errno
import json
import os

import numpy as np
import pytest

from starling.core.errors import CheckpointError
from starling.core.saveable import copied
from starling.core.spaces import Dict, Float
from starling.data import Table
from starling.data.saving import files
from starling.data.saving.saveable import BLOCK, SaveableTable
from starling.data.saving.saved import SavedTable
from starling.records.checkpoints import Checkpoints

from .helpers import points
from .test_checkpoints import assert_continue_alike, filled, make


def kept(directory, keep=2):
    return Checkpoints(directory, keep, saved_in=SavedTable)


def contents(directory):
    return {str(path.relative_to(directory)): path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_a_state_comes_back_with_what_stands_for_its_tables(tmp_path):
    tables = {"own": filled(), "shown": filled(20, sampler="uniform")}
    parts = {name: SaveableTable(table) for name, table in tables.items()}
    kept(tmp_path).save(10**9, {"feed": parts, "none": None, "many": [1, (2.0, "x")]})
    state, meta = kept(tmp_path).load()
    assert meta == {"step": 10**9, "parts": ["feed.own", "feed.shown"]}
    assert (state["none"], state["many"]) == (None, [1, (2.0, "x")])
    for name, options in (("own", {}), ("shown", {"sampler": "uniform"})):
        other = make(seed=9, **options)
        SaveableTable(other).restore(state["feed"][name])
        assert_continue_alike(tables[name], other)


def test_a_copy_does_not_change_with_the_table(tmp_path):
    table, again = filled(20), make(seed=9)
    state = copied({"table": SaveableTable(table), "n": 3})
    table.insert(points(7777))
    assert state["n"] == 3
    SaveableTable(again).restore(state["table"])
    assert again.inserts == 20


def test_a_part_goes_on_from_what_it_was_loaded_from(tmp_path):
    table = filled(20)
    SaveableTable(table).save(tmp_path, 5)
    other = make()
    part = SaveableTable(other)
    part.restore(SavedTable(tmp_path, 5))
    before = contents(tmp_path)
    part.save(tmp_path, 6)
    assert set(contents(tmp_path)) - set(before) == {"manifest-00000006.json", "00000006-table.safetensors"}
    part.restore(SaveableTable(table).copy())  # what is on the disk is not of this table any more
    part.save(tmp_path, 7)
    assert "00000007-table-000000.safetensors" in contents(tmp_path)


def test_a_number_of_a_history_that_was_given_up_is_written_again(tmp_path):
    table = filled(20)
    for number in (1, 2, 3):
        SaveableTable(table).save(tmp_path, number)
    other = make()
    part = SaveableTable(other)
    part.restore(SavedTable(tmp_path, 1))
    other.insert(points(7777))
    part.save(tmp_path, 2)
    last = make()
    SaveableTable(last).restore(SavedTable(tmp_path, 2))
    assert last.inserts == 21
    with pytest.raises(CheckpointError, match=r"has \[1, 2\]"):
        SaveableTable(last).restore(SavedTable(tmp_path, 3))


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_full_disk_leaves_the_checkpoints_before_it_and_nothing_of_the_new_one(tmp_path, monkeypatch, fails):
    table = filled(20)
    part = SaveableTable(table)
    checkpoints = kept(tmp_path)
    checkpoints.save(1, {"table": part})
    table.insert(points(7777))
    before, write, calls = contents(tmp_path), files._write_synced, []

    def full(path, *data):
        calls.append(path)
        if len(calls) == fails:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write_synced", full)
        with pytest.raises(CheckpointError, match=r"cannot save table of .*the disk is full; [\d,]+ bytes are free"):
            checkpoints.save(2, {"table": part})
    assert contents(tmp_path).keys() == before.keys()
    assert kept(tmp_path).latest() == 1
    checkpoints.save(2, {"table": part})
    assert kept(tmp_path).latest() == 2


def test_parts_that_no_checkpoint_has_are_refused(tmp_path):
    checkpoints = kept(tmp_path)
    with pytest.raises(CheckpointError, match="is no name of a part"):
        checkpoints.save(1, {"..": {"/": SaveableTable(filled(20))}})
    for parts in (["../other"], 3, [None, "a/b"]):
        Checkpoints(tmp_path).save(1, {"table": "table"}, {"parts": parts})
        with pytest.raises(CheckpointError, match=r"is no name of a part|parts beside it that cannot be read"):
            checkpoints.load(1)
        assert checkpoints.latest() is None


def test_what_is_missing_or_torn_is_noticed_before_it_is_loaded(tmp_path):
    part = SaveableTable(filled(20))
    checkpoints = kept(tmp_path, keep=3)
    for step in (1, 2, 3):
        checkpoints.save(step, {"table": part})
    (tmp_path / "parts" / "table" / "manifest-00000003.json").unlink()
    next((tmp_path / "parts" / "table").glob("00000002-*")).write_bytes(b"x")
    assert checkpoints.latest() == 1
    assert checkpoints.load()[1]["step"] == 1
    assert len(checkpoints.skipped) == 2


def test_a_block_is_the_least_that_is_written(tmp_path):
    table = Table(Dict(x=Float((1_000,))), 2_000)
    part = SaveableTable(table)
    for number in range(2):
        table.insert({"x": np.zeros((1_000, 1_000), np.float32)})
        part.save(tmp_path, number)
    table.insert({"x": np.ones((1, 1_000), np.float32)})
    part.save(tmp_path, 2)
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("00000002-*.safetensors")}
    assert sum(sizes.values()) < 1.1 * BLOCK
    manifest = json.loads(json.loads((tmp_path / "manifest-00000002.json").read_text())["manifest"])
    assert len(manifest["sources"]["table"]["blocks"]) == 8
