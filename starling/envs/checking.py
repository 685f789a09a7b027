"""``check``: what is wrong with an environment, before any training."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from starling.core.errors import SpaceError, StarlingError
from starling.core.random import stream
from starling.core.trees import leaves
from starling.envs.bounds import OutOfBounds, outside_bounds
from starling.envs.check_results import CheckResult, error, ok, warning
from starling.envs.constructing import EnvLike, adapter_of, constructor_of, name_of, takes_num_envs
from starling.envs.determinism import first_difference
from starling.envs.making import WORTH_A_VECTOR, own_vector
from starling.envs.protocol import Envs
from starling.envs.random_play import RandomPlay
from starling.envs.spaces import KINDS, SUPPORTED, declared_space, to_gymnasium
from starling.envs.vector_envs import VectorEnvs, autoreset_mode

__all__ = ["CheckResult", "check"]

SUPPORTED_RULE = f"Supported are {SUPPORTED}, with at least one number."


def check(env: EnvLike, seed: int = 0, steps: int = 1000, **kwargs: Any) -> list[CheckResult]:
    """Play ``steps`` random steps and report what was found, errors first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutOfBounds)  # it is among the findings
        findings = _check(env, seed, steps, kwargs)
    return sorted(findings, key=lambda finding: ("error", "warning", "ok").index(finding.level))


def _check(env: EnvLike, seed: int, steps: int, kwargs: dict[str, Any]) -> list[CheckResult]:
    try:
        if (found := adapter_of(env)) is not None:
            with found[0](found[1], 2, seed, **kwargs) as envs:
                spaces = [ok(kind, str(getattr(envs, kind)), SUPPORTED_RULE) for kind in KINDS]
                return [*spaces, *_look_at_actions(to_gymnasium(envs.action_space)), *_play(envs, seed, steps)]
        if isinstance(env, VectorEnv):
            return _check_vector(env, name_of(env), seed, steps)
        construct = constructor_of(env, **({"num_envs": 2} | kwargs if takes_num_envs(env) else kwargs))
        made = construct()
    except StarlingError as problem:
        return [error("making", str(problem), "The environment can be made.", "See the message.")]
    if isinstance(made, VectorEnv):
        return _check_vector(made, name_of(env), seed, steps)
    findings = _look_at_spaces(made, name_of(env))
    if _any_error(findings):
        return findings
    findings += RandomPlay(made, seed, steps).run()
    if isinstance(env, str) and not _any_error(findings):
        findings += _look_at_vector(own_vector(env, made, WORTH_A_VECTOR, seed, **kwargs), seed, steps)
    made.close()
    if not _any_error(findings):
        findings.append(_look_at_repeating(construct, seed, min(steps, 200)))
    return findings


def _any_error(findings: list[CheckResult]) -> bool:
    return any(finding.level == "error" for finding in findings)


def _look_at_vector(envs: VectorEnvs | None, seed: int, steps: int) -> list[CheckResult]:
    """What many environments at once would be: the environment's own vectorised form, where it is taken."""
    if envs is None:
        return []
    with envs:
        return [dataclasses.replace(found, what=f"vectorised {found.what}") for found in _play(envs, seed, steps)]


def _look_at_spaces(env: Any, name: str, prefix: str = "") -> list[CheckResult]:
    """What ``env`` declares as its spaces; vectorised ones have a ``prefix`` before theirs."""
    findings = []
    for kind in KINDS:
        try:
            findings.append(ok(kind, str(declared_space(env, prefix + kind, name)), SUPPORTED_RULE))
        except SpaceError as problem:
            remedy = (
                "Declare one of these, or wrap the environment with a wrapper of gymnasium's that transforms spaces."
            )
            findings.append(error(kind, str(problem), SUPPORTED_RULE, remedy))
    return findings if _any_error(findings) else [*findings, *_look_at_actions(getattr(env, f"{prefix}action_space"))]


def _look_at_actions(space: gym.Space[Any]) -> list[CheckResult]:
    if not isinstance(space, gym.spaces.Box):
        return []
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        rule = "Continuous actions have finite bounds: policies scale their output to them."
        remedy = "Declare the largest useful action as the bound."
        return [warning("action bounds", f"action_space is {space}, without finite bounds", rule, remedy)]
    if not (np.allclose(space.low, -1) and np.allclose(space.high, 1)):
        rule = "Actions between -1 and 1 let one set of hyper-parameters fit many tasks."
        remedy = "Nothing must be done; gymnasium.wrappers.RescaleAction(env, -1, 1) normalises them."
        return [
            warning("action bounds", f"actions lie between {space.low.min():g} and {space.high.max():g}", rule, remedy)
        ]
    return [ok("action bounds", "actions lie between -1 and 1")]


def _look_at_repeating(construct: Callable[[], gym.Env[Any, Any]], seed: int, steps: int) -> CheckResult:
    try:
        return _determinism(first_difference(construct, seed, steps))
    except Exception as problem:  # the environment's own code, which went well before
        found = f"another one raised {type(problem).__name__}: {problem}"
        remedy = "Let nothing that environments share, such as a file or a port, be in the way of a second one."
        return error("exceptions", found, "Environments can be made and played beside each other.", remedy)


def _determinism(difference: str | None) -> CheckResult:
    rule = "The same seed and the same actions give the same episode, bit for bit."
    if difference is None:
        return ok("determinism", "two fresh environments agreed to the last bit", rule)
    remedy = "Draw every random number from self.np_random. Until then a resumed run begins its episodes anew."
    return warning("determinism", difference, rule, remedy)


def _check_vector(env: VectorEnv[Any, Any, Any], name: str, seed: int, steps: int) -> list[CheckResult]:
    findings = _look_at_spaces(env, name, "single_")
    rule = "metadata['autoreset_mode'] says how new episodes begin; guessing spoils every episode's last transition."
    try:
        findings.append(ok("autoreset", autoreset_mode(env, name).name, rule))
    except StarlingError as problem:
        remedy = "Set metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP} (or the mode it really has)."
        findings.append(error("autoreset", str(problem), rule, remedy))
    if _any_error(findings):
        return findings
    try:
        findings += _play(VectorEnvs(env, seed, name), seed, steps)
    except StarlingError as problem:
        findings.append(_broken(problem))
    if not _any_error(findings):
        findings.append(_determinism(_vector_difference(env, seed)))
    return findings


def _broken(problem: StarlingError) -> CheckResult:
    rule = "What the environment returns fits its spaces and its autoreset mode."
    return error("results", str(problem), rule, "Correct the environment, or what it declares.")


def _play(envs: Envs, seed: int, steps: int) -> list[CheckResult]:
    """Random play through the protocol; the protocol's own checks do most of the looking."""
    rng = stream(seed, "check")
    space = envs.action_space.ranked(batch=True)
    ended = 0
    try:
        outside = outside_bounds(envs.observation_space, envs.reset())
        for _ in range(max(steps // envs.count, 1)):
            step = envs.step(space.sample(rng, (envs.count,)))
            outside = outside or outside_bounds(envs.observation_space, step.obs)
            ended += len(step.episodes)
            wasted = ~step.valid
            if (step.reward[wasted] != 0).any() or (step.terminated | step.truncated)[wasted].any():
                rule = "Under NEXT_STEP the row after an end only delivers the reset observation."
                found = "the row after an end carries a reward or an end of its own"
                return [error("autoreset", found, rule, "Declare the autoreset mode the environment really has.")]
    except StarlingError as problem:
        return [_broken(problem)]
    findings = [ok("results", "observations and rewards fit their spaces")]
    if outside is not None:
        findings.append(warning("bounds", outside.found, outside.rule, outside.remedy))
    if ended:
        return [*findings, ok("ends", f"{ended} episodes ended")]
    rule = "Episodes end: learning from returns, evaluation and resuming need them to."
    remedy = "Set a time limit where the environment is made, unless the task is long or goes on for ever."
    return [*findings, warning("ends", f"no episode ended in {steps} random steps", rule, remedy)]


def _vector_difference(env: VectorEnv[Any, Any, Any], seed: int) -> str | None:
    """Whether resetting twice with one seed gives the same play."""
    runs = []
    for _ in range(2):
        envs = VectorEnvs(env, seed, "vector")
        rng = stream(seed, "check", "determinism")
        space = envs.action_space.ranked(batch=True)
        run = [envs.reset()]
        for _ in range(50):
            step = envs.step(space.sample(rng, (envs.count,)))
            run += [step.obs, step.reward, step.terminated, step.truncated]
        runs.append(run)
    for position, (left, right) in enumerate(zip(*runs)):
        if any(a.tobytes() != b.tobytes() for a, b in zip(leaves(left), leaves(right))):
            return f"two runs from the same seed differ after {(position + 3) // 4} steps"
    return None
