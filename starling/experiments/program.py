"""A run as a program for executors: its formation, and what the code of its roles is made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.compiled.learner import fitted
from starling.algorithms.compiled.policy import acting_part
from starling.algorithms.compiled.shards import merged
from starling.backends import check_elsewhere
from starling.components.graph.assembly import Assembly, assemble
from starling.core.effects import Checkpoint, RoleCode
from starling.core.errors import ConfigError, RunDirError
from starling.core.importing import import_path, imported
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.registry import KINDS, carried, register
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.data.datasets.schema import space_from_plain, space_to_plain
from starling.data.saving.saved import SavedTable
from starling.envs import EnvLike, Envs, make
from starling.envs.ready_rows import ReadyRows
from starling.envs.tolerant import Tolerance
from starling.envs.vector_envs import VectorEnvs
from starling.experiments.compatibility import check_fits, tolerates_lag
from starling.experiments.config import Run, resolve
from starling.formations import FORMATIONS, RoleId, Start, form, resolved_counts
from starling.records.checkpoint import restoring
from starling.records.checkpoints import Checkpoints
from starling.records.files import write_atomic
from starling.roles.context import Context
from starling.roles.run_counters import RunLength

__all__ = ["CUT_SHORT", "Program", "assemble_for", "weights_in"]

CUT_SHORT = "cut-short"  # a file in the record of a run that was interrupted and resumed


def assemble_for(run: Run, obs: Space, action: Space) -> Assembly:
    """The run's algorithm, assembled for these spaces."""
    algorithm = ALGORITHMS[run.options.algo].compose(run.algorithm, obs, action)
    return assemble(algorithm, inputs_of(algorithm), algorithm.traced)


class Program(Context):
    """What executors run, and what roles are made from: see ``starling.executors.base`` and ``Context``."""

    def __init__(
        self,
        run: Run,
        env: EnvLike | None = None,
        directory: Path | None = None,
        spaces: tuple[Space, Space] | None = None,
    ) -> None:
        """``env`` is what to make environments from where a name is not enough; ``directory`` the run's; ``spaces``
        those of an environment, where they are known already."""
        options = run.options
        self.run, self.directory = run, directory
        self.pin_cpus, self.heartbeat, self.recording = options.pin_cpus, options.heartbeat, options.record
        self.step_note: Path | None = None
        self.simulation: Mapping[str, Any] = {"seed": options.seed, **options.simulation}
        self.env: EnvLike = options.env if env is None else env
        self._ready: Envs | None = None  # made to ask for its spaces, and not used yet
        self._prepared: RoleCode | None = None  # of a fused role that has not begun
        self.vectorised = False  # whether ``env`` makes a VectorEnv, and so a number of environments of its own
        counts, cls = run.counts, ALGORITHMS[options.algo]
        careful = FORMATIONS[options.formation].careful and counts.max_lag is None
        if careful and not tolerates_lag(cls, run.algorithm):
            counts = replace(counts, max_lag=0)
        counts = resolved_counts(options.formation, counts)
        self.formation = form(options.formation, counts)
        self._check_env()
        self.spaces = spaces or self._ask_spaces()
        algorithm: Algorithm = cls.compose(run.algorithm, *self.spaces)
        check_fits(algorithm, options.formation, self.formation.lockstep)
        acts = algorithm.plan.acts
        if options.updates and acts:
            raise ConfigError(f"updates={options.updates} has no effect where {options.algo} acts; give steps.")
        if options.env_async and not acts:
            raise ConfigError(f"env_async has no effect where nobody acts: {options.algo} learns from a data set.")
        total = options.steps if acts else options.updates or options.steps
        super().__init__(
            algorithm,
            options.formation,
            counts,
            RunLength(total, options.log_every, options.checkpoint_every),
            options.seed,
            backends=(options.backend, options.act_backend),
            devices=run.devices,
            summaries=options.summaries,
        )

    def _check_env(self) -> None:
        if isinstance(self.env, VectorEnv) and not self.formation.fused:
            raise ConfigError(
                f"{self.env} is one object, and the roles of {self.formation.name} each make environments of their "
                "own; give an id or a constructor."
            )

    def _ask_spaces(self) -> tuple[Space, Space]:
        """The spaces of the environments; those of a fused role are the ones that it will use."""
        if self.formation.fused:
            self._ready = self._make(self.run.algorithm.envs, self.run.options.seed)
            self.vectorised = isinstance(self._ready, VectorEnvs) and not isinstance(self.env, str)
            return self._ready.observation_space, self._ready.action_space
        with self._make(1, self.run.options.seed) as envs:
            return envs.observation_space, envs.action_space

    def _make(self, count: int, seed: int, acting: bool = True) -> Envs:
        options = self.run.options
        tolerance = None if self.formation.fused else Tolerance(options.env_timeout)
        settings = {
            "tolerance": tolerance,
            "workers": options.env_workers,
            "step_note": self.step_note,
            **options.env_options,
        }
        if options.env_async and acting:
            return ReadyRows(make(self.env, count, seed, asynchronous=True, **settings))
        return make(self.env, count, seed, **settings)

    def spec(self) -> dict[str, Any]:
        """What another process needs to make this program again."""
        return {
            "factory": f"{__name__}:remake",
            "settings": {**self.run.to_mapping(), "preset": "none", "record": self.recording},  # they are all there
            "directory": None if self.directory is None else str(self.directory),
            "env": None if isinstance(self.env, str) else import_path(self.env),
            "spaces": [space_to_plain(space) for space in self.spaces],
            "parts": carried(KINDS.keys() - {"preset"}),
        }

    def prepare(self) -> None:
        """Make what a new run needs, as far as this process does: what cannot be made leaves nothing behind."""
        self.check_devices()
        if self.formation.fused:
            (role,) = self.formation
            self._prepared = self.role(role, Start())

    def check_devices(self) -> None:
        """Refuse devices that are not there."""
        chosen = (self.backends.learn, self.backends.act)
        for backend, devices in {pair for role in self.formation for pair in zip(chosen, self.placement.of(role))}:
            if devices not in ((), ("cpu:0",)):
                check_elsewhere(backend, devices)

    # -- what executors ask for

    def environment(self, role: RoleId) -> dict[str, str]:
        return self.placement.environment(role, os.environ)

    def role(self, role: RoleId, start: Start) -> RoleCode:
        """The code of a role."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            return prepared
        make_role: Callable[..., RoleCode] = imported(self.formation.of_kind(role.kind).make)
        if not start.restore and start.state is None:
            return make_role(self, role, start)
        with restoring(role):
            return make_role(self, role, start)

    def messages(self) -> dict[str, Tree]:
        """A blank message of every edge: its shapes and dtypes are those of all."""
        found: dict[str, Tree] = {}
        for edge in self.formation.edges:
            blank = imported(edge.message)(self)
            if isinstance(blank, list):
                found |= {f"{edge.name}/{i}": each for i, each in enumerate(blank)}
            else:
                found[edge.name] = blank
        return found

    @property
    def record(self) -> Path | None:
        """Where the choices of the run are written down, if they are."""
        return self.directory / "record" if self.recording and self.directory is not None else None

    def stop_recording(self) -> None:
        """What a run that was interrupted does from here on is not recorded: a replay begins at the beginning."""
        if self.record is not None:
            write_atomic(self.record / CUT_SHORT, b"", RunDirError)
            self.recording = False

    # -- what roles have

    def envs(self, count: int, *who: Any) -> Envs:
        ready, self._ready = self._ready, None
        if ready is not None:
            return ready
        acting = who[0] == "actor"
        named = (not acting or any(who[1:])) and not self.formation.fused
        return self._make(count, int(stream(self.seed, "envs", *who).integers(2**31)) if named else self.seed, acting)

    @property
    def ready_envs(self) -> Envs:
        """The environments of a fused role, before it has begun."""
        assert self._ready is not None
        return self._ready

    # -- what is kept

    def checkpoints(self, role: RoleId) -> Checkpoints:
        """The role's checkpoints; of roles that are joined, those that all of them have."""
        keep, beside = self.run.options.keep_checkpoints, []
        if self.formation.joined(role.kind):
            others = [other for other in self.formation if other.kind == role.kind and other != role]
            beside = [self._checkpoint_directory(other) for other in others]
            keep = max(2, keep)  # while one saves its newest, another has only the one before
        return Checkpoints(self._checkpoint_directory(role), keep, beside, SavedTable)

    def _checkpoint_directory(self, role: RoleId) -> Path:
        """Those of the first learner or server lie where a run's always do."""
        if self.directory is None:
            raise ConfigError(f"{role} has nowhere to keep checkpoints: the run has no directory.")
        first = role == RoleId(self.formation.ends, 0)
        return self.directory / "checkpoints" if first else self.directory / "roles" / str(role)

    def save(self, role: RoleId, checkpoint: Checkpoint, seconds: float) -> None:
        """Write a role's checkpoint."""
        self.checkpoints(role).save(checkpoint.steps, checkpoint.live(), {"seconds": seconds})

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

    def weights(self, results: Mapping[RoleId, Tree]) -> Params:
        """The parameters that a finished run came to, from the results of the roles that ended it."""
        return self._whole([results[role] for role in sorted(results)])

    def newest_weights(self) -> Tree:
        """The parameters of the newest checkpoint."""
        states = [self.checkpoints(role).load()[0] for role in self.formation if role.kind == self.formation.ends]
        return self._whole([weights_in(state) for state in states])

    def _whole(self, parts: list[Tree]) -> Params:
        """Learners that end a run together have the same weights, servers a part each."""
        return with_scopes(parts[0] if self.formation.joined(self.formation.ends) else merged(parts), Params)

    def fitted(self, weights: Tree) -> Params:
        """Weights from a file as this algorithm's parameters; refuses those of another."""
        return with_scopes(fitted(with_scopes(self.initial, dict), weights), Params)

    def acting_part(self, params: Params) -> Params:
        return acting_part(self.assembly, params)

    def close(self) -> None:
        """Free what the program itself holds."""
        if self._ready is not None:
            self._ready.close()


def weights_in(state: Tree) -> Tree:
    """The parameters in a checkpoint of a learner or a server."""
    return state["learner"]["learned"]["params"]


def remake(spec: dict[str, Any]) -> Program:
    """The program of a ``spec``, in the process of one of its roles."""
    for part in spec["parts"]:
        register(*part)
    env = None if spec["env"] is None else imported(spec["env"])
    obs, action = (space_from_plain(plain) for plain in spec["spaces"])
    directory = None if spec["directory"] is None else Path(spec["directory"])
    program = Program(resolve(spec["settings"]), env, directory, (obs, action))
    program.placement = replace(program.placement, apart=True)
    return program
