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


@pytest.mark.parametrize(
    "damage",
    [
        '{"env_steps": 15, "seconds": 1.0, "loss": [1]}',
        '{"env_steps": 15, "seconds": 1.0, "loss": "large"}',
        '{"env_steps": 15, "seconds": 1.0, "loss": true}',
        '{"env_steps": 15, "seconds": 1.0, "loss": null}',
        '{"env_steps": 15, "seconds": 1.0, "loss": 1' + 400 * "0" + "}",
        '{"env_steps": 15, "seconds": 1.0, "loss": ' + 5_000 * "9" + "}",
        '{"env_steps": 15.5, "seconds": 1.0}',
        '{"env_steps": -1, "seconds": 1.0}',
        '{"env_steps": 1' + 30 * "0" + ', "seconds": 1.0}',
        '{"env_steps": 1e999, "seconds": 1.0}',
        '{"env_steps": 15, "seconds": NaN}',
        '{"env_steps": 15, "seconds": "nan"}',
        '{"env_steps": true, "seconds": 1.0}',
        100_000 * "[",
        "\udc80",
    ],
    ids=lambda damage: damage[:50],
)
def test_a_line_that_nobody_wrote_is_no_report(tmp_path, damage):
    filled(tmp_path, [10])
    path = tmp_path / "metrics.jsonl"
    first = path.read_bytes()
    path.write_bytes(first + damage.encode(errors="surrogateescape") + b"\n")
    assert steps(tmp_path) == [10]
    path.write_bytes(path.read_bytes() + first.replace(b"10", b"20"))
    with pytest.raises(RunDirError, match=r"metrics\.jsonl, line 2, is no report, yet reports follow"):
        read(tmp_path)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(RunDirError, match="cannot be read"):
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


class TestOneHistory:
    """A role that went on from an older checkpoint reports steps that were reported before."""

    def test_what_came_after_its_checkpoint_is_dropped(self, tmp_path):
        with Metrics(tmp_path) as metrics:
            for step in (10, 20, 30, 40):
                metrics.write(step, {"a": step})
            metrics.write(33, {"a": -1}, began_at=20)
            metrics.write(43, {"a": -2})
        assert steps(tmp_path) == [10, 20, 33, 43]
        assert [row["a"] for row in read(tmp_path)] == [10, 20, -1, -2]

    def test_also_where_it_is_ahead_again_when_it_first_reports(self, tmp_path):
        filled(tmp_path, [10, 20, 30])
        with Metrics(tmp_path, tensorboard=False) as metrics:
            metrics.write(35, {}, began_at=15)
        assert steps(tmp_path) == [10, 35]

    def test_steps_never_go_backwards_whatever_is_said_of_where_it_began(self, tmp_path):
        filled(tmp_path, [10, 20, 30])
        filled(tmp_path, [20, 25])
        assert steps(tmp_path) == [10, 20, 25]
        assert read(tmp_path)[1]["episode_return"] == 10.0

    def test_a_run_that_begins_loses_nothing(self, tmp_path):
        with Metrics(tmp_path, tensorboard=False) as metrics:
            metrics.write(10, {}, began_at=0)
            before = os.stat(tmp_path / "metrics.jsonl").st_ino
            metrics.write(20, {}, began_at=10)
        assert steps(tmp_path) == [10, 20]
        assert os.stat(tmp_path / "metrics.jsonl").st_ino == before, "nothing was written anew"

    def test_tensorboard_hides_what_was_dropped(self, tmp_path):
        with Metrics(tmp_path) as metrics:
            metrics.write(10, {"a": 1})
            metrics.write(20, {"a": 2})
            metrics.write(15, {"a": 3}, began_at=10)
        (start,) = [event for event in events(tmp_path) if event.session_log.status == SessionLog.START]
        assert start.step == 11


class TestBounds:
    MOST = 40_000  # bytes

    def sizes(self, directory):
        return [path.stat().st_size for path in (directory / "tensorboard").iterdir()]

    def test_lines_are_thinned_and_the_last_ones_kept(self, tmp_path):
        with Metrics(tmp_path, tensorboard=False, most_bytes=self.MOST) as metrics:
            for step in range(5_000):
                metrics.write(step, {"a": step})
                assert (tmp_path / "metrics.jsonl").stat().st_size <= self.MOST
        found = steps(tmp_path)
        assert found == sorted(set(found))
        assert (found[0], found[-100:]) == (0, list(range(4_900, 5_000)))
        gaps = np.diff(found)
        assert gaps.max() < 4 * np.median(gaps[:100]), "older ones lie evenly apart"
        assert len(found) > 300
        assert os.listdir(tmp_path) == ["metrics.jsonl"]

    def test_a_file_that_was_too_large_before_is_thinned_too(self, tmp_path):
        filled(tmp_path, range(2_000))
        assert (tmp_path / "metrics.jsonl").stat().st_size > self.MOST
        filled(tmp_path, [2_000], resume_step=1_999, most_bytes=self.MOST)
        assert (tmp_path / "metrics.jsonl").stat().st_size <= self.MOST
        assert steps(tmp_path)[-1] == 2_000

    def test_the_clock_and_the_steps_go_on_after_thinning(self, tmp_path):
        with Metrics(tmp_path, tensorboard=False, most_bytes=self.MOST) as metrics:
            for step in range(2_000):
                metrics.write(step, {"a": 1})
            metrics.write(1_500, {"a": 2}, began_at=1_490)
        rows = read(tmp_path)
        assert rows[-1]["env_steps"] == 1_500
        assert rows[-2]["env_steps"] <= 1_490
        assert (np.diff([row["seconds"] for row in rows]) >= 0).all()

    def test_events_are_thinned_and_the_last_ones_kept(self, tmp_path):
        with Metrics(tmp_path, most_bytes=self.MOST) as metrics:
            for step in range(3_000):
                metrics.write(step, {"a": step}, {"h": np.arange(3.0)} if step % 50 == 0 else None)
                assert sum(self.sizes(tmp_path)) <= self.MOST
        found = [event.step for event in events(tmp_path) if event.summary.value]
        assert found == sorted(set(found))
        assert (found[0], found[-50:]) == (0, list(range(2_950, 3_000)))
        assert np.diff(found).max() < 4 * np.median(np.diff(found)[:50])
        assert len(self.sizes(tmp_path)) <= 9
        assert all(path.name.startswith("events.out.tfevents.") for path in (tmp_path / "tensorboard").iterdir())

    def test_events_of_many_resumed_stretches_are_bounded_together(self, tmp_path):
        for begun in range(0, 3_000, 100):
            with Metrics(tmp_path, resume_step=begun, most_bytes=self.MOST) as metrics:
                for step in range(begun + 1, begun + 151):  # the last fifty are given up
                    metrics.write(step, {"begun": begun})
                    assert sum(self.sizes(tmp_path)) <= self.MOST
        shown = {}
        for event in events(tmp_path):
            if event.session_log.status == SessionLog.START:
                shown = {step: begun for step, begun in shown.items() if step < event.step}
            for value in event.summary.value:
                shown[event.step] = value.simple_value
        assert list(shown) == sorted(shown)
        assert max(shown) == 3_050
        assert all(begun == min((step - 1) // 100 * 100, 2_900) for step, begun in shown.items())

    def test_thinned_events_are_whole_records(self, tmp_path):
        with Metrics(tmp_path, most_bytes=self.MOST) as metrics:
            metrics.write(0, {"a": 0})
            (first,) = (tmp_path / "tensorboard").iterdir()
            for step in range(1, 300):
                metrics.write(step, {"a": step})
        with first.open("ab") as file:
            for damage in (b"", b"\x08", b"\x10" * 10, b"\x80" * 300):
                file.write(len(damage).to_bytes(8, "little") + b"\0" * 4 + damage + b"\0" * 4)
            file.write(b"\xff" * 11)  # as a killed process leaves it
        with Metrics(tmp_path, resume_step=299, most_bytes=self.MOST) as metrics:
            for step in range(300, 2_000):
                metrics.write(step, {"a": step})
        assert events(tmp_path)[-1].step == 1_999


def test_reporting_does_not_start_threads(tmp_path):
    import threading

    before = threading.active_count()
    with Metrics(tmp_path) as metrics:
        metrics.write(1, {"a": 1.0})
        assert threading.active_count() == before
