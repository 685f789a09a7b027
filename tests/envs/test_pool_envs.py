"""PoolEnvs: the steps of GymEnvs whatever the number of workers, their states, their errors, and no process left."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from starling.core.errors import CheckpointError, ConfigError, EnvError, RequestError, SpaceError
from starling.core.spaces import Bool
from starling.core.trees import items
from starling.envs import GymEnvs, PoolEnvs, make
from starling.envs.channels import STEP, Channel, Packet, pack, unpack
from starling.envs.tolerant import Tolerance
from starling.envs.worker_processes import WorkerTraceback

from .broken import Good
from .pooled import CrashingOnce, Elsewhere, Repeating, Seeded, Telling, vector

B = 5
CASES = {
    "float32 actions": ("Pendulum-v1", {"max_episode_steps": 7}, (2, 3)),
    "choices": ("FrozenLake-v1", {"max_episode_steps": 9}, (3,)),
    "tree of observations": (Repeating, {"form": "dict"}, (3,)),
    "tuple of observations": (Repeating, {"form": "tuple"}, (3,)),
    "masks and extras": (Telling, {"extras": ("at", "half")}, (2, 3)),
}


def facts(tree):
    """Everything in a tree, with types and bits."""
    return [
        (path, leaf.dtype, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else (path, leaf)
        for path, leaf in items(tree)
    ]


def step_facts(step):
    parts = (step.obs, step.reward, step.terminated, step.truncated, step.final_obs, step.valid, step.extras)
    return facts(parts), [tuple(episode) for episode in step.episodes]


def random_actions(envs, steps, seed=0):
    space, rng = envs.action_space.ranked(batch=True), np.random.default_rng(seed)
    return [space.sample(rng, (envs.count,)) for _ in range(steps)]


def play(envs, actions):
    return [step_facts(envs.step(action)) for action in actions]


def still(envs):
    return np.zeros((envs.count, 1), np.float32)


def pids(envs):
    return [process.pid for process in envs._workers._processes]


def gone(pid):
    """Whether a process has ended, once there was time for it."""
    for _ in range(3000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_workers_gives_the_same_steps_states_and_returns_to_them(case):
    env, kwargs, numbers = CASES[case]
    with make(env, B, 3, **kwargs) as alone:
        assert type(alone) is GymEnvs
        first, actions = facts(alone.reset()), random_actions(alone, 40)
        expected = play(alone, actions[:25])
        state = alone.state()
        later = play(alone, actions[25:])
        assert sum(len(episodes) for _, episodes in expected) > 5
        for workers in numbers:
            with make(env, B, 3, workers=workers, **kwargs) as pool:
                assert type(pool) is PoolEnvs
                assert pool.exact_resume
                assert (pool.observation_space, pool.action_space) == (alone.observation_space, alone.action_space)
                assert pool.extras_space == alone.extras_space
                assert facts(pool.reset()) == first
                assert play(pool, actions[:25]) == expected
                assert facts(pool.state()) == facts(state)
                assert play(pool, actions[25:]) == later
                assert facts(pool.restore(state)) == facts(state["obs"])
                assert pool.exact_resume
                assert play(pool, actions[25:]) == later


def test_a_run_may_go_on_with_another_number_of_workers():
    with make("Pendulum-v1", B, 0, workers=2) as two, make("Pendulum-v1", B, 9, workers=3) as three:
        two.reset()
        actions = random_actions(two, 30)
        for action in actions[:12]:
            last = two.step(action)
        restored = three.restore(two.state())
        assert three.exact_resume
        assert facts(restored) == facts(last.obs)
        assert play(three, actions[12:]) == play(two, actions[12:])
        with make("Pendulum-v1", B, 5) as alone:
            alone.restore(two.state())
            assert alone.exact_resume
            assert play(alone, actions) == play(two, actions)


def test_an_environment_that_does_not_repeat_itself_is_noticed_across_processes():
    with make(Good, 2, 0, workers=2, fault="not deterministic") as envs:
        envs.reset()
        for _ in range(3):
            envs.step(still(envs))
        envs.restore(envs.state())
        assert not envs.exact_resume


def test_kept_arrays_are_never_written_again():
    with make("Pendulum-v1", 3, 0, workers=2, max_episode_steps=3) as envs:
        kept = [envs.reset()]
        for _ in range(8):
            step = envs.step(still(envs))
            kept += [step.obs, step.reward, step.terminated, step.truncated, step.valid]
            kept += [] if step.final_obs is None else [step.final_obs]
        before = facts(kept)
        for _ in range(5):
            envs.step(still(envs) + 1)
        assert facts(kept) == before


def test_masks_join_the_observation_as_without_workers():
    with make(Telling, 2, 0, workers=2) as envs:
        assert envs.observation_space["action_mask"] == Bool((5,))
        envs.reset()
        assert envs.step([0, 0]).obs["action_mask"].tolist() == [[True, True, False, False, False]] * 2


@pytest.mark.parametrize("fault", ["step raises", "nan observation", "nan reward", "reset raises"])
def test_an_error_in_a_worker_has_the_text_that_it_has_without(fault):
    """Row 3 of 4, which is in the second worker, and in its second episode for the fault at reset."""
    with make(Good, 4, 0, max_episode_steps=2) as probe:
        probe.reset()
        if fault == "reset raises":
            probe.step(still(probe))
            probe.step(still(probe))
        seed = probe.state()["envs"][3]["seed"]
    texts = []
    for workers in (0, 2):
        limit = {"max_episode_steps": 2} if fault == "reset raises" else {}
        with make(Seeded, 4, 0, workers=workers, fault=fault, wanted=seed, **limit) as envs:
            envs.reset()
            with pytest.raises(EnvError) as caught:
                play(envs, [still(envs)] * 3)
            texts.append(str(caught.value))
            cause = caught.value.__cause__
    assert texts[0] == texts[1]
    assert f"environment 3, episode seed {seed}" in texts[0]
    if fault.endswith("raises"):
        assert isinstance(cause, WorkerTraceback)
        assert ("go_wrong" if fault == "step raises" else "no ground to stand on") in str(cause)
    else:
        assert cause is None, "nothing was raised by the environment"


def test_after_an_error_the_others_are_where_they_would_be():
    with make(Seeded, 3, 0, workers=3, fault="step raises", wanted=-1) as envs:
        envs.reset()
        with pytest.raises(SpaceError):
            envs.step(np.zeros((2, 1), np.float32))
        assert envs.step(still(envs)).obs.shape == (3, 2)


def test_an_answer_that_nobody_waited_for_does_not_spoil_what_comes_after():
    with make("Pendulum-v1", 3, 0, workers=2) as envs, make("Pendulum-v1", 3, 0) as alone:
        envs.reset()
        alone.reset()
        envs._rows.write_actions(slice(None), still(envs))
        envs._workers.ask_all(STEP)
        envs._own.do(STEP, None)  # and then somebody was interrupted
        alone.step(still(alone))
        assert facts(envs.state()) == facts(alone.state())
        assert play(envs, [still(envs)]) == play(alone, [still(alone)])


def test_a_killed_worker_is_an_error_with_its_number_and_rows():
    envs = make("Pendulum-v1", 4, 0, workers=2)
    envs.reset()
    os.kill(pids(envs)[0], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(EnvError, match=r"worker 0 with environments 2 to 3 was killed by SIGKILL .* checkpoint"):
            envs.step(still(envs))
    others = pids(envs)
    envs.close()
    assert all(map(gone, others))


@pytest.mark.parametrize(
    ("way", "kind", "message"),
    [
        ("raises", EnvError, "Elsewhere: the constructor raised RuntimeError: no map here"),
        ("differs", SpaceError, r"the action_space of environment 2 is Box\(-2.0, 2.0.*that of 0 is Box\(-1.0, 1.0"),
        ("exits", EnvError, "worker 0 with environments 2 to 3 ended with code 7 while it started"),
    ],
)
def test_a_worker_that_cannot_make_its_environments_is_told_and_the_others_end(way, kind, message):
    with pytest.raises(kind, match=message):
        make(Elsewhere, 4, 0, workers=2, home=os.getpid(), way=way)


def test_interruptions_from_the_keyboard_are_not_for_workers():
    with make("Pendulum-v1", 2, 0, workers=2) as envs:
        envs.reset()
        for pid in pids(envs):
            os.kill(pid, signal.SIGINT)
            assert os.getpgid(pid) != os.getpgid(0)
        assert envs.step(still(envs)).valid.all()


def test_closing_leaves_no_process_and_no_descriptor():
    make("Pendulum-v1", 2, 0, workers=2).close()  # whatever is opened once for all
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    envs = make("Pendulum-v1", 2, 0, workers=2)
    started = pids(envs)
    envs.close()
    envs.close()
    assert all(map(gone, started))
    del envs  # the memory goes with the last array that looks into it
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pool_that_is_forgotten_ends_its_workers():
    envs = make("Pendulum-v1", 2, 0, workers=2)
    started = pids(envs)
    del envs
    gc.collect()
    assert all(map(gone, started))


def test_workers_die_with_the_process_that_started_them_even_in_the_middle_of_a_step(tmp_path):
    code = f"""
import numpy as np, sys
from starling.envs import make
from tests.envs.pooled import Waiting
with make(Waiting, 3, 0, wanted=0, until="never") as probe:
    probe.reset()
    seed = probe.state()["envs"][1]["seed"]
envs = make(Waiting, 3, 0, workers=3, wanted=seed, until={str(tmp_path / "never")!r})
envs.reset()
print(*[process.pid for process in envs._workers._processes], flush=True)
envs.step(np.zeros((3, 1), np.float32))
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        started = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(started) == 2
        parent.kill()
    assert all(map(gone, started))


def test_crashes_are_tolerated_in_workers_too(monkeypatch):
    monkeypatch.setattr(CrashingOnce, "crashed", False)
    with make(CrashingOnce, 2, 0, workers=2, tolerance=Tolerance()) as envs:
        envs.reset()
        steps = [envs.step(still(envs)) for _ in range(3)]
    assert steps[2].truncated.tolist() == [True, True]


def local_names():
    class Local(Good):
        pass

    return [Local, lambda: Good(), functools.partial(Good, "")]


@pytest.mark.parametrize("index", range(3))
def test_a_constructor_that_cannot_be_imported_is_refused_with_the_remedy(index):
    with pytest.raises(ConfigError, match=r"cannot be made in another process.*at the top level of a module"):
        make(local_names()[index], 2, 0, workers=2)


def test_what_workers_are_not_for_is_refused():
    with pytest.raises(ConfigError, match="workers=2 has no effect on envpool:Pong-v5, which steps its rows itself"):
        make("envpool:Pong-v5", 2, 0, workers=2)
    with pytest.raises(ConfigError, match="vector is a VectorEnv, which steps its rows together"):
        make(vector, 2, 0, workers=2)
    with pytest.raises(ConfigError, match="SyncVectorEnv is a VectorEnv, which steps its rows together"):
        make(vector(), 2, 0, workers=2)
    with pytest.raises(ConfigError, match=r"fault=<object.* cannot be sent to a worker"):
        make(Good, 2, 0, workers=2, fault=object())
    for workers in (-1, 1.5, True):
        with pytest.raises(ConfigError, match="the number of processes must be an integer of at least 0"):
            make(Good, 2, 0, workers=workers)


def test_an_id_that_only_this_process_knows_is_told_with_the_remedy():
    gym.register("Mine-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv")
    try:
        with pytest.raises(RequestError, match=r"unknown environment 'Mine-v0'.*'my_package:MyEnv-v0'"):
            make("Mine-v0", 2, 0, workers=2)
    finally:
        del gym.registry["Mine-v0"]


def test_there_are_no_more_workers_than_environments_this_process_is_one_and_there_is_no_vectorised_form():
    with make("CartPole-v1", 2, 0, workers=5) as few, make("CartPole-v1", 8, 0, workers=3) as many:
        assert (len(pids(few)), len(pids(many))) == (1, 2)
        assert type(many) is PoolEnvs
    with make("Pendulum-v1", 2, 0, workers=1) as alone:
        assert type(alone) is GymEnvs


def test_a_state_of_another_count_is_refused():
    with make("Pendulum-v1", 2, 0) as two:
        state = two.state()
    refused = pytest.raises(CheckpointError, match="holds 2 environments and 3 were asked for")
    with make("Pendulum-v1", 3, 0, workers=2) as three, refused:
        three.restore(state)


def test_a_tree_comes_through_a_message_as_it_was():
    tree = {"a": np.arange(6, dtype=np.uint64).reshape(2, 3), "b": (1, [2.5, None, "ü"]), "c": {"d": np.zeros((0, 2))}}
    back = unpack(pack(tree))
    assert facts(back) == facts(tree)
    assert isinstance(back["b"], tuple)
    assert back["a"].flags.writeable


def test_messages_arrive_whole_and_in_order_and_an_end_is_noticed():
    import socket

    left, right = (Channel(end) for end in socket.socketpair())
    assert right.poll() is None
    left.send(Packet(3), Packet(-1, b"x" * 100_000), Packet(4))
    received = [right.receive(spin=0.001) for _ in range(3)]
    assert [message.code for message in received] == [3, -1, 4]
    assert [len(message.content) for message in received] == [0, 100_000, 0]
    left.close()
    with pytest.raises(EOFError):
        right.receive()
    right.close()
