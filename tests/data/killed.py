"""Kill a process at every moment of saving, or of rewinding, and load what it leaves; prints how many there were.

``role`` saves a table as a part of a role's state, and goes on with the newest checkpoint that there is.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from starling.core.spaces import Dict, Int
from starling.data import Checkpointer, FramePool, Table
from starling.data.saving import files, manifests
from starling.data.saving.saveable import SaveableTable
from starling.data.saving.saved import SavedTable
from starling.records.checkpoints import Checkpoints

FRAME = Int((8,), 0, 256, "uint8")
CAPACITY = 20


def empty():
    """A table of numbered items whose frames, eight times the number, lie in a pool."""
    signature = Dict(frame=FRAME, n=Int((), 0, 2**40, "int64"))
    return Table(signature, CAPACITY, sampler="prioritized", shared={"frame": FramePool(FRAME, 64)})


def insert(table, first, behind):
    for number in range(first, behind):
        table.insert({"frame": np.full((1, 8), number, np.uint8), "n": np.array([number])})


def saver_of(directory, table):
    return Checkpointer(directory, {"t": table}, also=lambda: {"inserts": table.inserts}, block_bytes=64)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before(operation):
    """Die before the operation with this number, of all that are done to the disk; of a file the half is written."""
    left = operation

    def counted(function):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if left < 0:
                die()
            return function(*args, **kwargs)

        return call

    write = files._write_synced

    def write_half(path, *parts):
        nonlocal left
        left -= 1
        if left < 0:
            path.write_bytes(bytes(parts[0])[: len(parts[0]) // 2])
            die()
        write(path, *parts)

    files._write_synced = write_half
    manifests.sync_directory = counted(manifests.sync_directory)
    for owner, name in ((os, "replace"), (os, "rename"), (os, "fsync"), (os, "rmdir"), (Path, "unlink")):
        setattr(owner, name, counted(getattr(owner, name)))


def in_child(work):
    """Do the work in a process of its own; True where it came to its end, False where it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def loaded(directory):
    """A table with the newest whole checkpoint, which holds the last items that were inserted, frames and all."""
    table = empty()
    also = saver_of(directory, table).load()
    assert table.inserts == int(also["inserts"])
    check(table)
    return table


def check(table):
    """The last items that were inserted are there, frames and all."""
    assert sorted(table.state()["columns"]["n"].tolist()) == list(range(table.inserts - CAPACITY, table.inserts))
    sample = table.sample(4 * CAPACITY)
    assert (sample.data["frame"] == sample.data["n"][:, None]).all()


def main(root, step):
    os.fsync = lambda descriptor: None  # what a killed process has written is there without it
    directory, before = root / "tables", root / "before"
    table = empty()
    saver = saver_of(directory, table)
    for number, (first, behind) in {10: (0, 25), 20: (25, 37), 30: (37, 45)}.items():
        insert(table, first, behind)
        if number < 30:
            saver.save(number)
    shutil.copytree(directory, before)

    def work(operation):
        kill_before(operation)
        if step == "save":
            saver.save(30)
        else:
            saver.rewind(10)

    killed, finished = 0, False
    while not finished:
        shutil.rmtree(directory)
        shutil.copytree(before, directory)
        finished = in_child(lambda operation=killed: work(operation))
        old, new = (37, 45) if step == "save" else (37, 25)
        resumed = loaded(directory)
        assert resumed.inserts in ((new,) if finished else (old, new))
        saved = {25: 10, 37: 20, 45: 30}[resumed.inserts]
        again = saver_of(directory, resumed)
        again.rewind(saved)
        insert(resumed, resumed.inserts, resumed.inserts + 3)
        again.save(saved + 1)
        assert again.numbers()[-2:] == [max(n for n in (10, 20, 30) if n <= saved), saved + 1]
        assert loaded(directory).inserts == resumed.inserts
        killed += not finished
    print(killed)


class Role:
    """What is saved of a role that has a table, one checkpoint of which is kept."""

    def __init__(self, directory):
        self.checkpoints = Checkpoints(directory, keep=1, saved_in=SavedTable)
        self.table = empty()
        self.part = SaveableTable(self.table)

    def save(self, step):
        self.checkpoints.save(step, {"of": {"table": self.part}, "inserts": self.table.inserts})

    def resume(self):
        step = self.checkpoints.latest()
        self.checkpoints.rewind(step)
        state, _ = self.checkpoints.load(step)
        self.part.restore(state["of"]["table"])
        assert self.table.inserts == state["inserts"]
        check(self.table)
        return step


def main_of_role(root):
    os.fsync = lambda descriptor: None
    directory, before = root / "checkpoints", root / "before"
    role = Role(directory)
    for step, (first, behind) in {0: (0, 0), 10: (0, 25), 20: (25, 37)}.items():
        insert(role.table, first, behind)
        role.save(step)
    shutil.copytree(directory, before)
    insert(role.table, 37, 45)

    def work(operation):
        kill_before(operation)
        role.save(30)

    killed, finished, found = 0, False, set()
    while not finished:
        shutil.rmtree(directory)
        shutil.copytree(before, directory)
        finished = in_child(lambda operation=killed: work(operation))
        resumed = Role(directory)
        step = resumed.resume()
        found.add(step)
        assert resumed.table.inserts == {20: 37, 30: 45}[step]
        insert(resumed.table, resumed.table.inserts, resumed.table.inserts + 3)
        resumed.save(step + 1)
        assert resumed.checkpoints.steps() == [step + 1]
        assert manifests.Manifests(directory / "parts" / "of.table").numbers() == [step + 1]
        assert Role(directory).resume() == step + 1
        killed += not finished
    assert step == 30
    assert found == {20, 30}
    print(killed)


if __name__ == "__main__":
    if sys.argv[2] == "role":
        main_of_role(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
