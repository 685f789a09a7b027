"""Random vector streams as each autoreset mode yields them, and brute force over the same episodes.

same_step   the step that ends an episode already returns the reset observation; the true last one comes beside it
next_step   the step after an episode's end ignores its action and returns the reset observation: not a transition
disabled    the caller resets by itself before the next step, so that the stream looks like same_step
stalling    like same_step; now and then an environment is late and makes no step: not a transition
"""

import numpy as np

MODES = ("same_step", "next_step", "disabled", "stalling")


class Episodes:
    """One environment: observations count upwards, all numbers differ."""

    def __init__(self, rng, end):
        self.rng, self.end, self.number = rng, end, float(rng.integers(1000))

    def reset(self):
        self.number += 1.0
        return np.float32([self.number, 0.0])

    def step(self, obs):
        self.number += 1.0
        over = self.rng.random() < self.end
        terminated = over and self.rng.random() < 0.5
        return (
            np.float32([self.number, obs[1] + 1]),
            float(self.rng.integers(-5, 6)),
            terminated,
            over and not terminated,
        )


def random_stream(seed, mode, num_envs, steps, end):
    """The vector steps for an adder, and per environment the list of episodes: lists of plain steps."""
    rng = np.random.default_rng(seed)
    envs = [Episodes(rng, end) for _ in range(num_envs)]
    obs = np.stack([env.reset() for env in envs])
    episodes = [[[]] for _ in envs]
    wasted = np.zeros(num_envs, bool)
    stream = []
    for _ in range(steps):
        action = rng.integers(0, 9, num_envs).astype(np.int32)
        log_prob = rng.integers(0, 100, num_envs).astype(np.float32)
        reward, terminated, truncated = np.zeros(num_envs), np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        stalls = (rng.random(num_envs) < 0.3) & (mode == "stalling")
        next_obs, final_obs, valid = obs.copy(), np.full_like(obs, np.nan), ~wasted & ~stalls
        for b, env in enumerate(envs):
            if stalls[b]:
                reward[b] = 88.0
                continue
            if wasted[b]:
                next_obs[b], reward[b], wasted[b] = env.reset(), 77.0, False
                continue
            after, reward[b], terminated[b], truncated[b] = env.step(obs[b])
            row = (obs[b], action[b], log_prob[b], reward[b], terminated[b], truncated[b], after)
            episodes[b][-1].append(row)
            next_obs[b] = after
            if terminated[b] or truncated[b]:
                episodes[b].append([])
                final_obs[b] = after
                if mode == "next_step":
                    wasted[b] = True
                else:
                    next_obs[b] = env.reset()
        ended = bool((terminated | truncated).any())
        stream.append(
            {
                "obs": obs,
                "action": action,
                "extras": {"log_prob": log_prob, "version": action + 40},
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "next_obs": next_obs,
                "final_obs": final_obs if ended else None,
                "valid": valid,
            }
        )
        obs = next_obs
    return stream, episodes


def brute_force_items(episodes, n, gamma):
    """Every n-step item, leaves in sorted order: action, discount, log_prob, next_obs, obs, reward, version."""
    items = []
    for env in episodes:
        for episode in env:
            ended = bool(episode) and (episode[-1][4] or episode[-1][5])
            for start, (obs, action, log_prob, *_) in enumerate(episode):
                window = episode[start : start + n]
                if len(window) < n and not ended:
                    continue
                earned = sum(gamma**k * row[3] for k, row in enumerate(window))
                discount = 0.0 if window[-1][4] else gamma ** len(window)
                after, version = window[-1][6], action + 40.0
                items.append(
                    (float(action), discount, float(log_prob), *map(float, after), *map(float, obs), earned, version)
                )
    return items


def brute_force_sequences(episodes, length, overlap, burn_in):
    """Every sequence as flat numbers, leaves in sorted order: action, log_prob, mask, memory, obs, reward …"""
    items = []
    for env in episodes:
        for episode in env:
            ended = bool(episode) and (episode[-1][4] or episode[-1][5])
            for start in range(0, len(episode), length - overlap):
                window = episode[start : start + length]
                covered = start > 0 and start + overlap >= len(episode)
                if covered or (len(window) < length and (not ended or len(window) <= burn_in)):
                    continue
                blank = [0.0] * (length - len(window))
                items.append(
                    [
                        *[float(row[1]) for row in window], *blank,
                        *[float(row[2]) for row in window], *blank,
                        *[1.0 for _ in window], *blank,
                        *[2.0 * float(x) for x in window[0][0]],
                        *[float(x) for row in window for x in row[0]], *map(float, window[-1][6]), *blank, *blank,
                        *[row[3] for row in window], *blank,
                        *[float(row[4]) for row in window], *blank,
                        *[float(row[5]) for row in window], *blank,
                        *[row[1] + 40.0 for row in window], *blank,
                    ]
                )  # fmt: skip
    return items
