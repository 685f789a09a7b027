"""A run as a program for executors: its formation, the code of every role, and what their messages look like."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import VectorEnv

from starling.algorithms import get_algorithm
from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.plans import Replay, Rollouts
from starling.backends import get_backend
from starling.components.graph.assembly import Assembly, assemble
from starling.components.graph.build import Graph, build, create_parameters
from starling.core.effects import Checkpoint, RoleCode
from starling.core.errors import ConfigError
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.trees import Tree
from starling.envs import EnvLike, Envs, make
from starling.envs.tolerant import Tolerance
from starling.executors.base import Start
from starling.experiments.backends import Backends, choose_backends, limit_threads
from starling.experiments.compatibility import check_fits, tolerates_lag
from starling.experiments.config import Run, resolve
from starling.experiments.evaluation import evaluate
from starling.experiments.summaries import Summaries, check_summaries, component_patterns
from starling.formations import Formation, RoleId, form, settle
from starling.records.checkpoints import Checkpoints
from starling.roles.acting import actor, evaluator, inference, remote_actor
from starling.roles.chunks import Chunks, StepCollector
from starling.roles.collectors import RolloutCollector
from starling.roles.learner import fitted
from starling.roles.policy import ACTING, AnyPolicy, Policy, RemotePolicy
from starling.roles.run_counters import Accounts, Pace

if TYPE_CHECKING:
    from starling.experiments.training import Training

__all__ = ["Program"]

CHUNK = 32  # steps of each environment in a chunk of transitions, where nobody waits for them
PUBLISH_EVERY = 16  # updates of an Ape-X learner between its publications
WATCH_EVERY = 5.0  # seconds between an evaluator's looks at the weights
WATCHED_EPISODES = 5


class Program:
    """See ``starling.executors.base``."""

    def __init__(self, run: Run, env: EnvLike | None = None, directory: Path | None = None) -> None:
        """``env`` is what to make environments from where a name is not enough; ``directory`` the run's."""
        options = run.options
        self.run, self.directory = run, directory
        self.pin_cpus, self.heartbeat = options.pin_cpus, options.heartbeat
        self.simulation: Mapping[str, Any] = {"seed": options.seed, **options.simulation}
        self._training: Training | None = None
        self.env: EnvLike = options.env if env is None else env
        cls = get_algorithm(options.algo)
        counts = run.counts
        if (
            options.formation == "central_inference"
            and counts.max_lag is None
            and not tolerates_lag(cls, run.algorithm)
        ):
            counts = replace(counts, max_lag=0)  # the server alone can wait for the weights that it must have
        self.counts = settle(options.formation, counts)
        self.formation: Formation = form(options.formation, counts)
        self.learners = self.formation.count("learner") or 1
        self.workers = self.formation.count("worker")
        self.actors = self.formation.count("actor") or 1
        self.share = cls.share(run.algorithm, self.workers or self.learners)
        if self.counts.samples_per_insert and cls.pace_settings:
            self.share = cls.paced(self.share, self.counts.samples_per_insert)
        if options.formation == "single":
            return
        if isinstance(self.env, VectorEnv):
            raise ConfigError(
                f"{self.env} is one object, and the roles of {options.formation} each make environments of their own; "
                "give an id or a constructor."
            )
        with make(self.env, 1, options.seed, **options.env_options) as envs:
            self._spaces = envs.observation_space, envs.action_space
        check_fits(self.algorithm, options.formation, self.formation.lockstep)
        check_summaries(options.algo, options.summaries, self.assembly)
        self.acting_envs = self._acting_envs()

    @cached_property
    def algorithm(self) -> Algorithm:
        """The algorithm as each learner or worker has it."""
        options = self.run.options
        if options.formation == "single":
            return self.training.algorithm
        steps = options.steps if self.workers else options.steps // self.learners
        return get_algorithm(options.algo).compose(self.share, *self._spaces, self.share.envs, steps)

    @cached_property
    def assembly(self) -> Assembly:
        if self.formation.name == "single":
            return self.training.graph.assembly
        return assemble(self.algorithm, inputs_of(self.algorithm))

    @cached_property
    def backends(self) -> Backends:
        return choose_backends(self.assembly, self.run.options.backend, self.run.options.act_backend)

    def _acting_envs(self) -> int:
        """Environments of each role that acts."""
        if self.workers:
            return int(self.share.envs)
        actors = self.actors // self.learners
        if isinstance(self.algorithm.plan, Replay):
            return max(1, self.share.envs // actors)
        if self.share.envs % actors:
            raise ConfigError(
                f"{self.run.options.algo}.envs={self.run.algorithm.envs} cannot be shared equally by "
                f"actors={self.actors}; use a multiple."
            )
        return int(self.share.envs // actors)

    @property
    def chunk_length(self) -> int:
        """Steps of each environment in a chunk."""
        plan = self.algorithm.plan
        if isinstance(plan, Rollouts):
            return plan.length
        if self.formation.lockstep or self.workers:
            return max(1, plan.every // (self.acting_envs * (1 if self.workers else self.actors)))
        return CHUNK

    def spec(self) -> dict[str, Any]:
        """What another process needs to make this program again."""
        settings = {**self.run.to_mapping(), "directory": None if self.directory is None else str(self.directory)}
        return {"factory": f"{__name__}:remake", "settings": settings, "env": importable(self.env)}

    # -- roles

    def role(self, role: RoleId, start: Start) -> RoleCode:
        makers: dict[str, Callable[[RoleId, Start], RoleCode]] = {
            "actor": self._actor,
            "inference": self._inference,
            "evaluator": self._evaluator,
            "learner": self._learner,
            "buffer": self._buffer,
            "server": self._server,
            "worker": self._worker,
        }
        return makers[role.kind](role, start)

    def _actor(self, role: RoleId, start: Start) -> RoleCode:
        if self.formation.name == "central_inference":
            remote = RemotePolicy(self.algorithm, self.acting_envs)
            chunks = self.chunks(remote, role, start)
            return remote_actor(chunks, remote, self.formation.lockstep, sum(start.unanswered))
        policy = self.policy()
        return actor(self.chunks(policy, role, start), policy, self.formation.lockstep)

    def _inference(self, role: RoleId, start: Start) -> RoleCode:
        batch, wait = self.counts.inference_batch or 0, self.counts.inference_wait or 0.0
        return inference(self.policy(), self.messages()["replies"], self.actors, batch, wait)

    def _evaluator(self, role: RoleId, start: Start) -> RoleCode:
        def play(policy: Policy) -> dict[str, float]:
            with self._envs(1, "evaluator", role.index, start.incarnation) as envs:
                return {"eval_return": evaluate(policy, envs, WATCHED_EPISODES).mean}

        return evaluator(self.policy(), play, WATCH_EVERY, max(1, self.formation.count("server")))

    def _learner(self, role: RoleId, start: Start) -> RoleCode:
        from starling.experiments.learning import apex_role, learner_role, solo_role

        if self.formation.name == "single":
            return solo_role(self, start)
        return (apex_role if self.formation.name == "apex" else learner_role)(self, role, start)

    def _buffer(self, role: RoleId, start: Start) -> RoleCode:
        from starling.experiments.learning import buffer_role

        return buffer_role(self, role, start)

    def _server(self, role: RoleId, start: Start) -> RoleCode:
        from starling.experiments.learning import server_role

        return server_role(self, role, start)

    def _worker(self, role: RoleId, start: Start) -> RoleCode:
        from starling.experiments.learning import worker_role

        return worker_role(self, role, start)

    # -- what roles are made of

    def graph(self, backend: str) -> Graph:
        limit_threads(self.assembly, backend, len(list(self.formation)))
        return build(self.assembly, get_backend(backend), self.run.options.seed, self._devices(backend))

    def _devices(self, backend: str) -> tuple[str, ...]:
        return self.run.options.devices if backend == self.backends.learn else ()

    def policy(self) -> Policy:
        return Policy(self.graph(self.backends.act))

    def _envs(self, count: int, *who: Any) -> Envs:
        options = self.run.options
        seed = int(stream(options.seed, "envs", *who).integers(2**31)) if any(who[1:]) else options.seed
        return make(self.env, count, seed, tolerance=Tolerance(options.env_timeout), **options.env_options)

    def chunks(self, policy: AnyPolicy, role: RoleId, start: Start) -> Chunks:
        options, plan = self.run.options, self.algorithm.plan
        envs = self._envs(self.acting_envs, "actor", role.index, start.incarnation)
        number = role.index + start.incarnation * self.formation.count(role.kind)  # its own stream of noise
        apex = self.formation.name == "apex"
        collector = (
            RolloutCollector(policy, envs, options.seed, number)
            if isinstance(plan, Rollouts)
            else StepCollector(policy, envs, options.seed, self.chunk_length, number, prioritizes=apex)
        )
        count = self.formation.count(role.kind)
        return Chunks(collector, role.index, count, start.sent, ladder=apex)

    def accounts(self, max_lag: int | None = None) -> Accounts:
        options = self.run.options
        pace = Pace(options.steps, options.log_every, options.checkpoint_every)
        return Accounts(pace, max_lag, self.learners)

    def summaries(self) -> Summaries:
        return Summaries(self.run.options.algo, self.run.options.summaries)

    def patterns(self) -> list[str]:
        return component_patterns(self.run.options.algo, self.run.options.summaries)

    @property
    def training(self) -> Training:
        """The one role of ``single``; made once."""
        if self._training is None:
            from starling.experiments.training import Training

            self._training = Training(self.run, self.env)
        return self._training

    @cached_property
    def shards(self) -> list[set[str]]:
        """The parameters that each server holds."""
        from starling.roles.gradients import shards_of

        sizes = {path: int(np.prod(spec.shape)) for path, spec in self.assembly.parameters.items()}
        return shards_of(sizes, self.formation.count("server"))

    @property
    def publish_every(self) -> int:
        return PUBLISH_EVERY

    # -- what is kept

    @property
    def record(self) -> Path | None:
        """Where the choices of the run are written down, if they are."""
        return self.directory / "record" if self.run.options.record and self.directory is not None else None

    def checkpoints(self, role: RoleId) -> Checkpoints:
        """The role's checkpoints; of roles that are joined, those that all of them have."""
        keep, beside = self.run.options.keep_checkpoints, []
        if self.formation.joined(role.kind):
            others = [other for other in self.formation if other.kind == role.kind and other != role]
            beside = [self._checkpoint_directory(other) for other in others]
            keep = max(2, keep)  # while one saves its newest, another has only the one before
        return Checkpoints(self._checkpoint_directory(role), keep, beside)

    def _checkpoint_directory(self, role: RoleId) -> Path:
        """Those of the first learner or server lie where a run's always do."""
        if self.directory is None:
            raise ConfigError(f"{role} has nowhere to keep checkpoints: the run has no directory.")
        first = role == RoleId(self.formation.ends, 0)
        return self.directory / "checkpoints" if first else self.directory / "roles" / str(role)

    def save(self, role: RoleId, checkpoint: Checkpoint, seconds: float) -> None:
        """Write a role's checkpoint."""
        self.checkpoints(role).save(checkpoint.steps, checkpoint.state(), {"seconds": seconds})

    def weights(self, results: Mapping[RoleId, Tree]) -> Params:
        """The parameters that a finished run came to, from the results of the roles that ended it."""
        ordered = [results[role] for role in sorted(results)]
        if not self.workers:
            return with_scopes(ordered[0], Params)
        from starling.roles.gradients import merged

        return merged(ordered)

    def newest_weights(self) -> Tree:
        """The parameters of the newest checkpoint."""
        states = [self.checkpoints(role).load()[0] for role in self.formation if role.kind == self.formation.ends]
        if not self.workers:
            return states[0]["learner"]["learned"]["params"]
        from starling.roles.gradients import merged

        return merged([state["keeper"]["kept"]["params"] for state in states])

    def fitted(self, weights: Tree) -> Params:
        """Weights from a file as this algorithm's parameters; refuses those of another."""
        return with_scopes(fitted(with_scopes(self.initial, dict), weights), Params)

    def restored(self, role: RoleId, start: Start) -> Tree | None:
        """The state that the role goes on from; None to begin anew."""
        if start.state is not None:
            return start.state
        if not start.restore or self.directory is None:
            return None
        checkpoints = self.checkpoints(role)
        step = checkpoints.latest()
        checkpoints.rewind(-1 if step is None else step)
        return None if step is None else checkpoints.load(step)[0]

    def close(self) -> None:
        """Free what the program itself holds."""
        if self._training is not None:
            self._training.close()

    # -- what flows

    def messages(self) -> dict[str, Tree]:
        """A blank message of every edge: its shapes and dtypes are those of all."""
        from starling.experiments.messages import blank_messages

        return blank_messages(self)

    @cached_property
    def initial(self) -> Params:
        """The first parameters, without a backend."""
        return create_parameters(self.assembly, self.run.options.seed)

    def acting_part(self, params: Params) -> Params:
        return Params({scope: params[scope] for scope in self.assembly.scopes_read_by(*ACTING)})


def remake(spec: dict[str, Any]) -> Program:
    """The program of a ``spec``."""
    settings = dict(spec["settings"])
    directory = settings.pop("directory")
    env = None if spec["env"] is None else imported(spec["env"])
    return Program(resolve(settings), env, None if directory is None else Path(directory))


def importable(env: EnvLike) -> str | None:
    """Where a constructor can be imported from; None for an id, which needs none."""
    if isinstance(env, str):
        return None
    module, name = getattr(env, "__module__", ""), getattr(env, "__qualname__", "")
    if not module or "<" in name or module == "__main__":
        raise ConfigError(
            f"{name or env!r} cannot be made in a process of its own: give an id, or a class or function that can be "
            f"imported from a module (it is in {module or 'none'})."
        )
    return f"{module}:{name}"


def imported(path: str) -> Callable[..., Any]:
    """The constructor at ``module:name``."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
