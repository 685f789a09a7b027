"""Progress: a live bar, plain lines, or nothing."""

import io
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console

import starling.records.progress as module
from starling.records.progress import Progress, _duration, _number


@pytest.fixture
def clock(monkeypatch):
    """Time that moves when told to."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(module.time, "monotonic", lambda: Clock.now)
    return Clock


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, highlight=False, _environ={"TERM": "xterm"})


def test_a_file_gets_a_plain_line_every_five_seconds(clock):
    output = console(False)
    with Progress(1000, "ppo on CartPole-v1", console=output) as progress:
        for second in range(11):
            clock.now = 100.0 + second
            progress.update(50 * second, episode_return=20.0 + second, losses={"policy": 0.0123456})
        lines = output.file.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0] == "ppo on CartPole-v1: 250/1,000 steps (25%)  50 steps/s  return 25  policy 0.01235  15 s left"
    assert "500/1,000 steps (50%)" in lines[1]
    assert "\x1b" not in output.file.getvalue()


def test_the_last_line_tells_how_long_it_took(clock):
    output = console(False)
    with Progress(100, "x", console=output) as progress:
        progress.update(0)
        clock.now += 2
        progress.update(100)
    assert output.file.getvalue() == "x: 100/100 steps (100%)  50 steps/s  2 s taken\n"


def test_a_terminal_gets_a_bar_with_everything_on_it(clock):
    output = console(True)
    with Progress(1000, "ppo [bold]", console=output) as progress:
        progress.update(0)
        clock.now += 10
        progress.update(500, episode_return=123.456, losses={"value": float("nan")})
    text = output.file.getvalue()
    for part in ("ppo [bold]", "━", "500/1,000 steps", "50 steps/s", "10 s left", "return 123.5", "value nan"):
        assert part in text


def test_a_terminal_is_redrawn_at_most_ten_times_a_second(clock):
    output = console(True)
    with Progress(1000, "x", console=output) as progress:
        progress.update(1)
        size = len(output.file.getvalue())
        for step in range(2, 50):
            progress.update(step)
        assert len(output.file.getvalue()) == size
        clock.now += 0.11
        progress.update(50)
        assert len(output.file.getvalue()) > size


@pytest.mark.parametrize("width", [20, 50, 80])
def test_a_narrow_terminal_cuts_lines_and_never_wraps_them(clock, width):
    output = Console(
        file=io.StringIO(), force_terminal=True, width=width, color_system=None, _environ={"TERM": "xterm"}
    )
    progress = Progress(10**6, "a rather long title of a run on an environment", console=output)
    progress.update(123_456, episode_return=1.0, losses={f"loss_{i}": float(i) for i in range(20)})
    output.print(progress._picture())
    lines = output.file.getvalue().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)


def test_no_thread_is_started():
    before = threading.active_count()
    with Progress(10, "x", console=console(True)) as progress:
        progress.update(1)
        assert threading.active_count() == before


def test_quiet_prints_nothing(capfd):
    with Progress(10, "x", quiet=True) as progress:
        progress.update(5, episode_return=1.0)
    assert capfd.readouterr() == ("", "")


def test_standard_output_is_left_to_others(capfd):
    with Progress(10, "x") as progress:
        progress.update(10)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("x: 10/10 steps")


def test_nothing_is_said_of_a_run_that_did_nothing(capfd):
    with Progress(10, "x"):
        pass
    assert capfd.readouterr() == ("", "")


def test_the_rate_is_that_of_the_last_while_and_of_a_resumed_run_its_own(clock):
    progress = Progress(10**6, "x")
    progress.update(500_000)
    clock.now += 1
    progress.update(500_100)
    assert "  100 steps/s" in progress.line()
    for _ in range(30):
        clock.now += 1
        progress.update(progress._steps + 10)
    assert "  10 steps/s" in progress.line()


def test_more_steps_than_planned_are_fine():
    with Progress(0, "x", console=console(True)) as progress:
        progress.update(5)
        assert "5/1 steps" in progress.line()


def test_ctrl_c_on_a_terminal_gives_the_cursor_back():
    script = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from starling.records.progress import Progress
try:
    with Progress(10**6, "x") as progress:
        for step in range(10**6):
            progress.update(step)
            time.sleep(0.01)
except KeyboardInterrupt:
    sys.exit(7)
"""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while b"steps/s" not in shown:
        shown += os.read(leader, 4096)
    process.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(leader)
    assert process.wait(timeout=10) == 7
    assert shown.count(b"\x1b[?25l") == 1, "hidden once"
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "and shown again"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (7500, "2 h 05 min")])
def test_durations_in_words(seconds, text):
    assert _duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346"), (0.012345, "0.01235"), (-1e6, "-1,000,000")])
def test_numbers_in_few_digits(value, text):
    assert _number(value) == text
