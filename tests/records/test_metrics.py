"""Metrics: one consistent history, in JSON lines and TensorBoard events."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from starling.core.errors import DataError, RunDirError
from starling.records.metrics import Metrics, read


def events(directory):
    """The events of all files, oldest file first, parsed from the record format: length, crc, bytes, crc."""
    found = []
    for path in sorted((directory / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            found.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


def filled(directory, steps, **options):
    with Metrics(directory, tensorboard=False, **options) as metrics:
        for step in steps:
            metrics.write(step, {"episode_return": step / 2})


def steps(directory):
    return [row["env_steps"] for row in read(directory)]


def test_a_line_holds_steps_seconds_and_values(tmp_path):
    with Metrics(tmp_path) as metrics:
        metrics.write(128, {"loss/policy": np.float32(0.5), "episode_return": 21})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert 0 <= row.pop("seconds") < 10
    assert row == {"env_steps": 128, "loss/policy": 0.5, "episode_return": 21.0}


def test_numbers_that_are_not_finite_stay_valid_json_and_come_back(tmp_path):
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1e308}
    with Metrics(tmp_path) as metrics:
        metrics.write(1, values, {"h": np.array([np.nan, np.inf])})

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    (row,) = read(tmp_path)
    assert math.isnan(row["a"])
    assert (row["b"], row["c"], row["d"]) == (math.inf, -math.inf, 1e308)


def test_tensorboard_gets_scalars_and_histograms(tmp_path):
    numbers = np.array([[0.0, 1.0], [1.0, 10.0]])
    with Metrics(tmp_path) as metrics:
        metrics.write(7, {"loss": 0.25}, {"weights": numbers, "constant": np.full(4, 3.0)})
        written = events(tmp_path)[-1]  # before closing: a crash must not lose it
    assert written.step == 7
    values = {value.tag: value for value in written.summary.value}
    assert values["loss"].simple_value == 0.25
    histogram = values["weights"].histo
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0, 10, 4, 12)
    counts, _ = np.histogram(numbers, 30)
    assert [c for c in histogram.bucket if c] == [c for c in counts if c]
    constant = values["constant"].histo
    assert (constant.min, constant.max, sum(constant.bucket)) == (3, 3, 4)


@pytest.mark.parametrize("numbers", [[1e308, -1e308], [1.0, np.nextafter(1, 2)], [0.0], [], [1e-320, 0.0], [True]])
def test_odd_histograms_do_no_harm(tmp_path, numbers):
    with Metrics(tmp_path) as metrics:
        metrics.write(1, {"a": 1.0}, {"odd": np.array(numbers)})
    found = [value for value in events(tmp_path)[-1].summary.value if value.tag == "odd"]
    assert [sum(value.histo.bucket) for value in found] == ([len(numbers)] if numbers else [])


def test_resuming_drops_what_came_after(tmp_path):
    filled(tmp_path, [10, 20, 30, 40])
    before = (tmp_path / "metrics.jsonl").read_text().splitlines()
    filled(tmp_path, [25, 35], resume_step=20)
    assert steps(tmp_path) == [10, 20, 25, 35]
    assert (tmp_path / "metrics.jsonl").read_text().splitlines()[:2] == before[:2]


def test_resuming_from_the_start_drops_everything(tmp_path):
    filled(tmp_path, [10, 20])
    filled(tmp_path, [5], resume_step=0)
    assert steps(tmp_path) == [5]


def test_resuming_keeps_numbers_that_are_not_finite(tmp_path):
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.write(1, {"loss": math.nan})
        metrics.write(2, {"loss": 0.0})
    Metrics(tmp_path, resume_step=1, tensorboard=False).close()
    (row,) = read(tmp_path)
    assert math.isnan(row["loss"])


def test_resuming_hides_later_tensorboard_events(tmp_path):
    with Metrics(tmp_path) as metrics:
        metrics.write(10, {"a": 1})
        metrics.write(20, {"a": 2})
    with Metrics(tmp_path, resume_step=10) as metrics:
        metrics.write(15, {"a": 3})
    found = events(tmp_path)
    assert [event.step for event in found if event.summary.value] == [10, 20, 15], "no event file was overwritten"
    (start,) = [event for event in found if event.session_log.status == SessionLog.START]
    assert start.step == 11


def test_the_clock_goes_on_after_resuming(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"env_steps": 1, "seconds": 100.0}\n{"env_steps": 2, "seconds": 900.0}\n')
    filled(tmp_path, [3], resume_step=1)
    assert 100 <= read(tmp_path)[-1]["seconds"] < 110


@pytest.mark.parametrize(
    "torn", ['{"env_steps": 30, "seco', "{", "null\n", "\0\0\0", '{"env_steps": 30}\n', "\0\n\0\n"]
)
def test_a_torn_end_is_left_out_and_repaired(tmp_path, torn):
    filled(tmp_path, [10, 20])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(torn)
    assert steps(tmp_path) == [10, 20]
    filled(tmp_path, [30])
    assert steps(tmp_path) == [10, 20, 30]
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_damage_in_the_middle_is_told_not_hidden(tmp_path):
    filled(tmp_path, [10, 20])
    path = tmp_path / "metrics.jsonl"
    path.write_text("oops\n" + path.read_text())
    with pytest.raises(RunDirError, match="line 1, is no report"):
        read(tmp_path)


def test_a_run_without_metrics_has_no_rows(tmp_path):
    assert read(tmp_path) == []


@pytest.mark.parametrize("name", ["env_steps", "seconds"])
def test_names_that_each_line_has_already_are_refused(tmp_path, name):
    with Metrics(tmp_path, tensorboard=False) as metrics, pytest.raises(DataError, match=name):
        metrics.write(1, {name: 2.0})


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.write(1, {"a": 1.0})
        real = os.write

        def half(fd, data):
            if len(data) > 8:
                return real(fd, bytes(data)[:8])
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(RunDirError, match=r"the disk is full; \d+ bytes were needed"):
                metrics.write(2, {"a": 2.0})
        metrics.write(3, {"a": 3.0})
    assert steps(tmp_path) == [1, 3]


def test_a_full_disk_leaves_whole_events(tmp_path, monkeypatch):
    with Metrics(tmp_path) as metrics:
        metrics.write(1, {"a": 1.0})
        real, calls = os.write, []

        def half(fd, data):
            calls.append(data)
            if len(calls) == 2:  # the first is the line
                return real(fd, bytes(data)[:8])
            if len(calls) == 3:
                raise OSError(errno.ENOSPC, "full")
            return real(fd, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(RunDirError, match="the disk is full"):
                metrics.write(2, {"a": 2.0})
        metrics.write(3, {"a": 3.0})
    assert [event.step for event in events(tmp_path) if event.summary.value] == [1, 3]


def test_event_files_are_those_that_tensorboardx_writes(tmp_path):
    from tensorboardX.record_writer import RecordWriter

    with Metrics(tmp_path) as metrics:
        metrics.write(7, {"loss": 0.25}, {"weights": np.arange(100.0)})
    writer = RecordWriter(str(tmp_path / "theirs"))
    for event in events(tmp_path):
        writer.write(event.SerializeToString())
    writer.flush()
    writer.close()
    (ours,) = (tmp_path / "tensorboard").iterdir()
    assert ".tfevents." in ours.name
    assert ours.read_bytes() == (tmp_path / "theirs").read_bytes()


def test_a_killed_process_loses_no_line(tmp_path):
    script = """
import itertools, sys
from starling.records.metrics import Metrics
metrics = Metrics(sys.argv[1], tensorboard=False)
for step in itertools.count():
    metrics.write(step, {"a": 1.0})
    print(step, flush=True)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        told = process.stdout.read().split("\n")
    last = int(told[-2])
    assert steps(tmp_path)[: last + 1] == list(range(last + 1))


def test_a_missing_directory_is_explained(tmp_path):
    with pytest.raises(RunDirError, match="cannot write"):
        Metrics(tmp_path / "none")


def test_reporting_does_not_start_threads(tmp_path):
    import threading

    before = threading.active_count()
    with Metrics(tmp_path) as metrics:
        metrics.write(1, {"a": 1.0})
        assert threading.active_count() == before
