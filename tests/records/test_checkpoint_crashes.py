"""Full disks, missing permission and sudden death while saving: the previous checkpoint can always be loaded."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from starling.core.errors import CheckpointError
from starling.records import checkpoint
from starling.records.checkpoints import Checkpoints


def tree(step):
    """A state whose every part tells its step."""
    return {"w": np.full((64, 3), float(step)), "n": [step, np.full(5, step)], "empty": np.zeros((0, 2))}


def is_tree(loaded, step):
    return (loaded["w"] == step).all() and loaded["n"][0] == step and (loaded["n"][1] == step).all()


def fail_at(monkeypatch, name, k, error):
    """Let the k-th call of ``os.<name>`` fail, a write after half its bytes; how many calls there were."""
    real, calls = getattr(os, name), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == k:
            if name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            raise OSError(error, os.strerror(error))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, failing)
    return calls


def count_calls(tmp_path, monkeypatch, name, save):
    with monkeypatch.context() as patch:
        calls = fail_at(patch, name, -1, 0)
        save(tmp_path / "count")
    return len(calls)


def save_replacing(directory):
    checkpoint.save(directory, "policy", tree(2))


@pytest.mark.parametrize(("name", "error"), [("write", errno.ENOSPC), ("fsync", errno.EIO), ("rename", errno.EACCES)])
def test_the_old_policy_survives_a_failure_of_any_call(tmp_path, monkeypatch, name, error):
    checkpoint.save(tmp_path / "count", "policy", tree(1))
    calls = count_calls(tmp_path, monkeypatch, name, save_replacing)
    assert calls >= 2
    for k in range(1, calls + 1):
        directory = tmp_path / f"run{k}"
        checkpoint.save(directory, "policy", tree(1))
        with monkeypatch.context() as patch:
            fail_at(patch, name, k, error)
            with pytest.raises(CheckpointError, match="cannot save the checkpoint"):
                save_replacing(directory)
        loaded, _ = checkpoint.load(directory / "policy")
        assert is_tree(loaded, 1) or (name, k) == ("fsync", calls)  # the last one comes after the rename
        save_replacing(directory)
        assert is_tree(checkpoint.load(directory / "policy")[0], 2)
        assert os.listdir(directory) == ["policy"]


def test_a_full_disk_leaves_the_checkpoints_before_it_and_no_litter(tmp_path, monkeypatch):
    writes = count_calls(tmp_path, monkeypatch, "write", lambda directory: Checkpoints(directory).save(2, tree(2)))
    assert writes >= 5  # the header, each array that is not empty, the tree, the manifest
    checkpoints = Checkpoints(tmp_path / "run", keep=2)
    checkpoints.save(1, tree(1))
    for k in range(1, writes + 1):
        with monkeypatch.context() as patch:
            fail_at(patch, "write", k, errno.ENOSPC)
            with pytest.raises(CheckpointError, match=r"the disk is full; [\d,]+ bytes were needed, [\d,]+ bytes"):
                checkpoints.save(2, tree(2))
        assert os.listdir(checkpoints.directory) == ["step-000000000001"]
        assert checkpoints.latest() == 1
    checkpoints.save(2, tree(2))
    assert checkpoints.latest() == 2


def test_a_disk_known_to_be_too_small_is_not_written_to(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1234))
    with pytest.raises(CheckpointError, match=r"8,\d\d\d,\d\d\d bytes were needed, 1,234 bytes are free there"):
        checkpoint.save(tmp_path, "one", {"w": np.zeros(10**6)})
    assert os.listdir(tmp_path) == []


LIMITED = """
import resource, sys, numpy as np
from pathlib import Path
from starling.core.errors import CheckpointError
from starling.records.checkpoints import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]))
checkpoints.save(1, {"w": np.ones(10)})
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    checkpoints.save(2, {"w": np.ones(100_000)})
except CheckpointError as reason:
    print(reason)
"""


def test_a_file_size_limit_of_the_kernel_is_explained(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "file size limit is reached; 800," in done.stdout
    assert os.listdir(tmp_path) == ["step-000000000001"]
    assert Checkpoints(tmp_path).latest() == 1


@pytest.mark.skipif(os.geteuid() == 0 and not sys.platform.startswith("linux"), reason="cannot drop privileges")
def test_missing_permission_is_explained(forbidden_directory):
    with pytest.raises(CheckpointError, match=r"permission denied.*Grant write permission"):
        checkpoint.save(forbidden_directory, "one", tree(1))
    with pytest.raises(CheckpointError, match="permission denied"):
        checkpoint.save(forbidden_directory / "below", "one", tree(1))


def test_bytes_are_on_the_disk_before_their_name_is(tmp_path, monkeypatch):
    events = []

    def spy(name, describe):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, **kw: (events.append((name, describe(*args))), real(*args, **kw))[1]
        )

    spy("fsync", lambda fd: os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).split("-")[0])
    spy("rename", lambda source, target: os.path.basename(target))
    checkpoint.save(tmp_path / "runs", "one", tree(1))
    assert events == [
        ("fsync", "arrays.safetensors"),
        ("fsync", "tree.json"),
        ("fsync", "manifest.json"),
        ("fsync", ".writing"),
        ("rename", "one"),
        ("fsync", "runs"),
    ]


# Forks a child per system call and kills it just before that call; the parent then looks at what is left.
EVERY_CALL = """
import itertools, os, signal, sys
from pathlib import Path
import numpy as np
from starling.records import checkpoint
from starling.records.checkpoints import Checkpoints

def tree(step):
    return {"w": np.full((64, 3), float(step)), "n": step}

def is_tree(loaded, step):
    return (loaded["w"] == step).all() and loaded["n"] == step

def die_at(k):
    calls = itertools.count(1)
    for name in ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir"):
        def dying(*args, real=getattr(os, name), **kwargs):
            if next(calls) == k:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        setattr(os, name, dying)

def killed(k, act):
    child = os.fork()
    if child == 0:
        die_at(k)
        act()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

root = Path(sys.argv[1])
for k in itertools.count(1):                       # replacing one name
    directory = root / f"a{k}"
    checkpoint.save(directory, "policy", tree(1))
    died = killed(k, lambda: checkpoint.save(directory, "policy", tree(2)))
    loaded, _ = checkpoint.load(directory / "policy")
    assert is_tree(loaded, 1) or is_tree(loaded, 2)
    checkpoint.clean(directory)
    assert os.listdir(directory) == ["policy"], os.listdir(directory)
    again, _ = checkpoint.load(directory / "policy")
    assert is_tree(again, loaded["n"])
    if not died:
        assert loaded["n"] == 2
        break
print(k)
for k in itertools.count(1):                       # a row of steps, of which two are kept
    checkpoints = Checkpoints(root / f"b{k}", keep=2)
    checkpoints.save(1, tree(1)); checkpoints.save(2, tree(2))
    died = killed(k, lambda: checkpoints.save(3, tree(3)))
    latest = checkpoints.latest()
    assert latest in (2, 3) and not checkpoints.skipped, (latest, checkpoints.skipped)
    assert is_tree(checkpoints.load()[0], latest)
    checkpoints.save(4, tree(4))
    assert checkpoints.latest() == 4
    assert sorted(os.listdir(checkpoints.directory)) == [f"step-{n:012d}" for n in (latest, 4)]
    if not died:
        break
print(k)
"""


def test_death_before_any_system_call_of_a_save_loses_nothing(tmp_path):
    command = [sys.executable, "-c", EVERY_CALL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(int(calls) > 15 for calls in done.stdout.split())


SAVE_FOR_EVER = """
import itertools, sys
from pathlib import Path
import numpy as np
from starling.records.checkpoints import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
first = (checkpoints.latest() or 0) + 1
for step in itertools.count(first):
    checkpoints.save(step, {"w": np.full((64, 3), float(step)), "n": [step, np.full(5, step)]})
    print(step, flush=True)
"""


def test_twenty_kills_at_random_moments_lose_nothing_that_was_saved(tmp_path):
    rng = random.Random(0)
    checkpoints = Checkpoints(tmp_path)
    reached = 0
    for _ in range(20):
        command = [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as saver:
            saver.stdout.readline()  # the first save is done: numpy is imported, the loop turns
            time.sleep(rng.uniform(0, 0.02))
            saver.send_signal(signal.SIGKILL)
            told = saver.stdout.read().split()
        loaded, meta = checkpoints.load()
        assert checkpoints.skipped == []
        assert is_tree(loaded, meta["step"])
        assert meta["step"] > reached
        assert meta["step"] >= max(map(int, told), default=reached + 1)
        reached = meta["step"]
