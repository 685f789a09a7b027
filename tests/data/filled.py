"""Fill a table with a million steps of 84×84×4 stacks and print the gigabytes that the process took at most."""

import resource

import numpy as np

from starling.core.spaces import Int
from starling.data import FramePool, NStepAdder, Table, transition_signature

STEPS, ENVS, EPISODE = 1_000_000, 8, 2_000


def main() -> None:
    obs = Int((84, 84, 4), 0, 256, "uint8")
    pool = FramePool(obs, FramePool.frames_for(STEPS), stack_axis=-1)
    signature = transition_signature(obs, Int((), high=6, dtype="int64"), version=True)
    table = Table(signature, STEPS, sampler="prioritized", shared={"obs": pool, "next_obs": pool})
    adder = NStepAdder(table, num_envs=ENVS)
    rng = np.random.default_rng(0)
    no, nothing = np.zeros(ENVS, bool), np.zeros(ENVS, np.float32)
    seen = rng.integers(0, 256, (ENVS, 84, 84, 4), np.uint8)
    for step in range(STEPS // ENVS + 100):
        following = np.concatenate([seen[..., 1:], rng.integers(0, 256, (ENVS, 84, 84, 1), np.uint8)], axis=-1)
        ends = np.full(ENVS, step % EPISODE == EPISODE - 1)
        action, extras = rng.integers(0, 6, ENVS), {"version": np.full(ENVS, step)}
        final = following if ends[0] else None
        after = rng.integers(0, 256, seen.shape, np.uint8) if ends[0] else following
        adder.add(seen, action, extras, nothing, ends, no, after, final, ~no)
        seen = after
    assert len(table) == STEPS
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


if __name__ == "__main__":
    main()
