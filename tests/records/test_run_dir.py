"""Run directories: where they lie, what they hold, and that one process uses one."""

import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from starling.core.errors import CheckpointError, ConfigError, RunDirError, UnknownNameError
from starling.records.manifest import git_commit
from starling.records.run_dir import RunDir


@pytest.fixture(autouse=True)
def _work_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


SUMMARY = {"status": "finished", "env_steps": 5, "seconds": 1.5, "env_steps_per_second": 3.3, "parameter_hash": None}
SETTINGS = {"algo": "ppo", "env": "CartPole-v1", "seed": 3}


def made(path, settings=SETTINGS, **more):
    """A run directory with a manifest, given free again."""
    with RunDir.create(path, "ppo", "CartPole-v1") as run:
        run.write_manifest(settings, ["starling", "train"], **more)
    return run


def test_the_default_name_tells_time_algorithm_and_environment():
    with RunDir.create(None, "ppo", "ALE/Pong-v5 $(rm)/../..") as run:
        assert re.fullmatch(r"runs/\d{8}-\d{6}-ppo-ALE-Pong-v5-rm", str(run.path))
        stamp = datetime.strptime(run.path.name[:15], "%Y%m%d-%H%M%S")
        assert abs((datetime.now() - stamp).total_seconds()) < 5


def test_a_taken_default_name_gets_a_number(monkeypatch):
    import starling.records.run_dir as module

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 31, 14, 25, 0)

    monkeypatch.setattr(module, "datetime", Clock)
    names = [made(None).path.name for _ in range(3)]
    assert names == [f"20260131-142500-ppo-CartPole-v1{end}" for end in ("", "-2", "-3")]


@pytest.mark.parametrize("name", ["", "...", "///", "--"])
def test_a_name_without_letters_is_still_a_name(name):
    with RunDir.create(None, "ppo", name) as run:
        assert run.path.name.endswith("-ppo-unnamed")


def test_an_empty_directory_may_be_used(tmp_path):
    (tmp_path / "out").mkdir()
    with RunDir.create(tmp_path / "out", "ppo", "x") as run:
        assert run.path == tmp_path / "out"


def test_the_manifest_tells_what_the_run_is_made_of(tmp_path):
    made("out", inexact="four actor processes race")
    manifest = RunDir.open("out", lock=False).read_manifest()
    assert manifest["seed"] == 3
    assert manifest["command"] == ["starling", "train"]
    assert (manifest["resume_exact"], manifest["resume_reason"]) == (False, "four actor processes race")
    assert manifest["python"] == ".".join(map(str, sys.version_info[:3]))
    assert manifest["packages"]["numpy"] == np.__version__
    assert manifest["git_commit"] is None
    assert abs((datetime.now(UTC) - datetime.fromisoformat(manifest["created"])).total_seconds()) < 60


def test_the_git_commit_has_a_plus_when_files_differ(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert git_commit(tmp_path) == head
    (tmp_path / "file").write_text("two")
    assert git_commit(tmp_path) == head + "+"


def test_config_and_summary_come_back():
    config = {"algo": "ppo", "lr": 2.5e-05, "layers": [64, 64], "note": "Größe", "clip": None, "nested": {"on": True}}
    with RunDir.create("out", "ppo", "x") as run:
        assert run.read_summary() == {}
        run.write_config(config)
        run.write_summary(SUMMARY | {"best": 1.0})
        run.write_summary(SUMMARY | {"best": math.inf, "last": (1.5, math.nan)})
        assert run.read_config() == config
        assert run.read_summary() == SUMMARY | {"best": None, "last": [1.5, None]}


def test_a_config_of_objects_is_refused():
    with RunDir.create("out", "ppo", "x") as run, pytest.raises(ConfigError, match="plain values"):
        run.write_config({"env": object()})


def test_a_config_that_would_run_code_is_refused():
    run = made("out")
    (run.path / "config.yaml").write_text("a: !!python/object/apply:os.system ['touch owned']")
    with pytest.raises(RunDirError, match=r"python/object/apply:os\.system, which no setting is"):
        run.read_config()
    assert not os.path.exists("owned")


def test_the_manifest_keeps_settings_as_json_has_them():
    made("out", SETTINGS | {"sizes": (64, 32), "env_options": {"since": date(2020, 1, 31)}})
    settings = RunDir.open("out", lock=False).read_manifest()["settings"]
    assert settings == SETTINGS | {"sizes": [64, 32], "env_options": {"since": "2020-01-31"}}


def test_the_manifest_of_a_run_that_goes_on_keeps_what_it_began_with():
    made("out")
    with RunDir.open("out") as run:
        run.write_manifest(SETTINGS | {"seed": 4}, ["starling", "resume"], "seed was edited", SETTINGS)
        manifest = run.read_manifest()
    assert (manifest["seed"], manifest["settings"]["seed"], manifest["resume_exact"]) == (4, 3, False)


@pytest.mark.parametrize("changes", [{"algo": 5}, {"env": None}, {"settings": [1]}, {"processors": "two"}])
def test_a_manifest_that_was_changed_is_refused(changes):
    path = made("out").path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(RunDirError, match=f"was changed, or is of another version: {next(iter(changes))} is"):
        RunDir.open("out", lock=False)


@pytest.mark.parametrize("changes", [{"status": 5}, {"env_steps": None}, {"seconds": "long"}, {"parameter_hash": 1}])
def test_a_summary_that_was_changed_is_refused(changes):
    with made("out") as run:
        run.write_summary(SUMMARY | changes)
        with pytest.raises(RunDirError, match=f"was changed, or is of another version: {next(iter(changes))} is"):
            run.read_summary()


@pytest.mark.parametrize("value", [date(2020, 1, 31), 2**64, [0] * 60_000], ids=["date", "number", "list"])
def test_a_config_that_could_not_be_read_again_is_refused(value):
    with RunDir.create("out", "ppo", "x") as run, pytest.raises(ConfigError, match="the configuration is not valid"):
        run.write_config({"env_options": {"since": value}})


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', '{"format": "starling-run", "version": 99}'])
def test_a_manifest_that_is_not_ours_is_refused(text):
    run = made("out")
    (run.path / "manifest.json").write_text(text)
    with pytest.raises(RunDirError):
        RunDir.open("out")


def test_the_policy_comes_back():
    with RunDir.create("out", "ppo", "x") as run:
        run.save_policy({"w": np.ones(2)}, {"env": "x"})
        tree, meta = run.load_policy()
    assert tree["w"].tolist() == [1, 1]
    assert meta == {"env": "x"}


def test_what_a_killed_process_was_writing_is_cleared_away(tmp_path):
    run = made("out")
    (run.path / ".writing-summary.json-ab").write_text("{")
    (run.path / ".writing-policy-ab").mkdir()
    RunDir.open("out", lock=False)
    assert len(list(run.path.glob(".writing-*"))) == 2, "a reader must not disturb the writer"
    RunDir.open("out").close()
    assert sorted(os.listdir("out")) == [".lock", "manifest.json"]


def test_a_run_killed_before_its_manifest_leaves_a_directory_that_may_be_used():
    RunDir.create("out", "ppo", "x").close()
    Path("out/.writing-manifest.json-ab").write_text("{")
    RunDir.create("out", "ppo", "x").close()


def test_a_missing_policy_is_a_checkpoint_error():
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        made("out").load_policy()


class TestRefusals:
    def test_an_interrupted_run(self):
        made("out")
        with pytest.raises(RunDirError, match="out holds an interrupted run; use `starling resume out`, or choose"):
            RunDir.create("out", "ppo", "x")

    def test_a_finished_run(self):
        made("out").save_policy({})
        with pytest.raises(RunDirError, match="out holds a finished run"):
            RunDir.create("out", "ppo", "x")

    def test_a_directory_with_other_things(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("")
        with pytest.raises(RunDirError, match=r"is not empty \(it holds thesis.tex\)"):
            RunDir.create(tmp_path, "ppo", "x")

    def test_a_file(self, tmp_path):
        (tmp_path / "out").write_text("")
        for attempt in (lambda: RunDir.create("out", "ppo", "x"), lambda: RunDir.open("out")):
            with pytest.raises(RunDirError, match="out is a file"):
                attempt()

    def test_a_file_named_runs(self, tmp_path):
        (tmp_path / "runs").write_text("")
        with pytest.raises(RunDirError, match="runs is a file"):
            RunDir.create(None, "ppo", "x")

    @pytest.mark.parametrize("name", ["x" * 300, "a\0b"], ids=["long", "nul"])
    def test_a_name_that_no_file_can_have(self, name):
        with pytest.raises(RunDirError, match="Choose another"):
            RunDir.create(name, "ppo", "x")
        with pytest.raises(RunDirError, match="does not exist"):
            RunDir.open(name)
        with pytest.raises(UnknownNameError):
            RunDir.find(name)

    def test_a_missing_parent(self):
        with pytest.raises(RunDirError, match=r"no/such, in which out would lie, does not exist"):
            RunDir.create("no/such/out", "ppo", "x")

    def test_a_missing_run(self):
        with pytest.raises(RunDirError, match="none does not exist"):
            RunDir.open("none")

    def test_a_directory_that_is_no_run(self, tmp_path):
        with pytest.raises(RunDirError, match=r"has no manifest\.json"):
            RunDir.open(tmp_path)

    def test_no_permission(self, forbidden_directory, monkeypatch):
        with pytest.raises(RunDirError, match=r"permission denied"):
            RunDir.create(forbidden_directory, "ppo", "x")
        with pytest.raises(RunDirError, match=r"permission denied"):
            RunDir.create(forbidden_directory / "out", "ppo", "x")
        monkeypatch.chdir(forbidden_directory)
        with pytest.raises(RunDirError, match=r"permission denied"):
            RunDir.create(None, "ppo", "x")

    def test_a_full_disk_leaves_the_old_summary(self, monkeypatch):
        with RunDir.create("out", "ppo", "x") as run:
            run.write_summary(SUMMARY)

            def full(fd, data):
                raise OSError(errno.ENOSPC, "full")

            with monkeypatch.context() as patch:
                patch.setattr(os, "write", full)
                with pytest.raises(RunDirError, match=r"the disk is full; \d+ bytes were needed, [\d,]+ bytes"):
                    run.write_summary(SUMMARY | {"env_steps": 6})
            assert run.read_summary() == SUMMARY
            assert sorted(os.listdir("out")) == [".lock", ".lock.json", "summary.json"]


class TestLinks:
    def test_one_that_leads_out_is_refused_where_the_directory_is_opened_to_be_written(self, tmp_path):
        run = made("out")
        (tmp_path / "elsewhere").mkdir()
        (run.path / "checkpoints").mkdir()
        (run.path / "checkpoints" / "step-000000000001").symlink_to("../../elsewhere")
        RunDir.open("out", lock=False)
        with pytest.raises(RunDirError, match=r"step-0+1 is a link to \.\./\.\./elsewhere, which leads out"):
            RunDir.open("out")
        assert not os.path.exists("out/.lock.json")

    def test_one_that_leads_nowhere_yet_is_refused_too(self):
        (made("out").path / "curve.png").symlink_to("/none/curve.png")
        with pytest.raises(RunDirError, match=r"curve\.png is a link"):
            RunDir.open("out")

    def test_one_out_by_way_of_one_inside_is_refused(self, tmp_path):
        run = made("out")
        (run.path / "a").symlink_to("b")
        (run.path / "b").symlink_to(tmp_path)
        with pytest.raises(RunDirError, match="is a link"):
            RunDir.open("out")

    def test_one_that_stays_inside_is_none_of_our_business(self):
        (made("out").path / "manifest-too.json").symlink_to("manifest.json")
        (Path("out") / "self").symlink_to(".")
        RunDir.open("out").close()

    def test_the_directory_itself_may_be_reached_through_one(self):
        made("out")
        os.symlink("out", "link")
        RunDir.open("link").close()

    def test_a_lock_that_leads_out_is_refused_where_a_run_is_made(self, tmp_path):
        (tmp_path / "mine").write_text("mine")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / ".lock").symlink_to(tmp_path / "mine")
        with pytest.raises(RunDirError, match=r"\.lock is a link"):
            RunDir.create("out", "ppo", "x")
        assert (tmp_path / "mine").read_text() == "mine"


class TestLock:
    HOLD = """
import sys
from starling.records.run_dir import RunDir
run = RunDir.open(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

    @pytest.fixture
    def holder(self):
        made("out")
        command = [sys.executable, "-c", self.HOLD, "out"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "held\n"
            yield process
            process.kill()

    def test_a_second_process_is_refused_and_told_who_holds_it(self, holder):
        with pytest.raises(RunDirError, match=rf"out is in use by process {holder.pid} on .*, since 20\d\d-"):
            RunDir.open("out")

    def test_creating_over_a_run_that_goes_on_names_its_process(self, holder):
        with pytest.raises(RunDirError, match=f"out is in use by process {holder.pid}"):
            RunDir.create("out", "ppo", "x")

    def test_a_refused_directory_is_left_as_it_was(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("")
        with pytest.raises(RunDirError):
            RunDir.create(tmp_path, "ppo", "x")
        assert os.listdir(tmp_path) == ["thesis.tex"]
        made("out")
        with pytest.raises(RunDirError):
            RunDir.create("out", "ppo", "x")
        RunDir.open("out").close()

    def test_reading_needs_no_lock(self, holder):
        assert RunDir.open("out", lock=False).read_manifest()["seed"] == 3

    def test_a_lock_of_a_killed_process_is_taken_over(self, holder):
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert json.loads(Path("out/.lock.json").read_text())["pid"] == holder.pid
        with RunDir.open("out"):
            assert json.loads(Path("out/.lock.json").read_text())["pid"] == os.getpid()

    def test_the_same_process_is_refused_too(self):
        made("out")
        with RunDir.open("out"), pytest.raises(RunDirError, match=f"in use by process {os.getpid()}"):
            RunDir.open("out")

    def test_closing_gives_it_free_and_may_be_done_twice(self):
        run = made("out")
        run.close()
        assert not os.path.exists("out/.lock.json")
        RunDir.open("out").close()

    def test_creating_where_another_is_about_to_begin_is_refused(self):
        with RunDir.create("out", "ppo", "x"), pytest.raises(RunDirError, match="in use by process"):
            RunDir.create("out", "ppo", "x")

    def test_an_orphaned_child_does_not_keep_it(self):
        """A forked actor outlives its killed parent: the lock must not live on in the child."""
        made("out")
        script = """
import os, sys, time
from starling.records.run_dir import RunDir
run = RunDir.open("out")
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(60)
"""
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "forked\n"
            process.kill()
            process.wait()
            RunDir.open("out").close()
            process.stdin.close()


class TestFind:
    def test_by_path_or_by_name(self, tmp_path):
        run = made(None)
        assert RunDir.find(run.path) == run.path
        assert RunDir.find(run.path.name) == run.path
        assert RunDir.find(tmp_path / run.path) == tmp_path / run.path

    def test_a_misspelt_name_gets_a_suggestion(self):
        run = made(None)
        with pytest.raises(UnknownNameError, match=f"Did you mean '{run.path.name}'"):
            RunDir.find(run.path.name.replace("Cart", "Kart"))

    def test_without_any_runs(self):
        with pytest.raises(UnknownNameError, match="Known: none"):
            RunDir.find("anything")

    def test_a_directory_that_is_no_run(self, tmp_path):
        with pytest.raises(RunDirError, match=r"no manifest\.json"):
            RunDir.find(tmp_path)
