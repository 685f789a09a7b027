"""What a run takes of memory is known, and refused where it is not there, before anything is made."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms.compiled.learner import Learner
from starling.algorithms.compiled.sizes import acting_bytes, state_bytes
from starling.backends import get_backend
from starling.cli.main import main
from starling.components.graph.build import build
from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float, Int
from starling.core.trees import leaves
from starling.data.frames.images import least_bytes
from starling.data.tables.pooled import PooledTable
from starling.executors.shared_edges import SharedEdges, sizes_of
from starling.experiments.reserving import check_memory, reserved
from starling.formations import FORMATIONS, Counts, form
from starling.formations.parts import parts_of
from tests.executors.programs import SMALL, program_of

HUGE = 10**9


def found(program):
    parts = {(each.whose, each.purpose): each for each in reserved(program)}
    program.close()
    return parts


@pytest.mark.parametrize("algo", SMALL)
def test_the_size_of_a_learner_s_state_is_that_of_its_arrays(algo):
    with_memory = {"ppo": {"memory": "lstm"}}.get(algo, {})
    program = program_of(algo, "single", settings=with_memory)
    learner = Learner(build(program.assembly, get_backend("numpy"), 0), 0)
    assert state_bytes(program.assembly) == sum(np.asarray(leaf).nbytes for leaf in leaves(learner._state))
    assert acting_bytes(program.assembly) == sum(leaf.nbytes for leaf in leaves(learner.acting_weights()))
    program.close()


def test_a_table_is_as_large_as_its_items():
    signature = Dict({"obs": Float((6,)), "reward": Float()})
    expected = PooledTable(signature, 1_000).table.bytes_needed()
    del expected["(index)"]
    assert least_bytes(signature, 1_000) == {"table": sum(expected.values()) + 16 * 1_000}


def test_of_stacked_images_each_item_brings_one_plane():
    image = Int((84, 84, 4), 0, 256, "uint8")
    assert least_bytes(Dict({"obs": image, "next_obs": image}), 10)["frames, at least"] == 10 * 84 * 84


@pytest.mark.parametrize(
    ("algo", "formation"),
    [("impala", "actor_learner"), ("dqn", "apex"), ("a2c", "sharded_ps"), ("ppo", "allreduce"), ("es", "evolution")],
)
def test_edges_are_as_large_as_their_segments(algo, formation):
    program = program_of(algo, formation, actors=2)
    edges = SharedEdges(program.formation, program.messages())
    sizes = dict.fromkeys((edge.name for edge in program.formation.edges), 0)
    for part in [part for parts in parts_of(program.formation) for part in parts]:
        sizes[part.edge.name] += edges._parts[part.name].segment.size
    assert sizes_of(program.formation, program.messages()) == sizes
    edges.close()
    program.close()


def test_every_role_of_our_formations_says_what_it_takes():
    for name in FORMATIONS:
        evaluated = {"evaluators": 1} if "evaluators" in FORMATIONS[name].defaults else {}
        for roles in form(name, Counts(**evaluated)).roles:
            assert roles.reserves, (name, roles.kind)


@pytest.mark.parametrize(
    ("algo", "formation", "settings", "counts", "largest"),
    [
        ("impala", "actor_learner", {}, {"queue": HUGE}, "experience"),
        ("dqn", "apex", {}, {"queue": HUGE}, "samples"),
        ("dqn", "single", {"capacity": 10**10}, {}, "table"),
        ("r2d2", "single", {"capacity": 10**9}, {}, "table"),
        ("impala", "actor_learner", {"rollout": 10**6, "envs": 2**16}, {"actors": 1}, "chunk|fit"),
        ("a2c", "sync", {"hidden": (2_000, 2_000), "envs": 2**16, "rollout": 10**5}, {}, "chunk|fit"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(algo, formation, settings, counts, largest):
    program = program_of(algo, formation, settings=settings, **counts)
    with pytest.raises(ConfigError, match=largest):
        check_memory(program)
    program.close()


def test_the_command_line_refuses_it_before_a_directory_is_made(tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--algo", "impala", "--formation", "actor_learner", "--preset", "none", "--queue", str(HUGE)]
    assert main(["train", *flags, "--out", str(out)]) == 2
    assert "is available" in capsys.readouterr().err
    assert not out.exists()


def test_a_table_lists_what_a_run_takes(capsys):
    assert main(["formation", "apex", "--memory", "--algo", "dqn", "--dqn.capacity", "123456", "--actors", "3"]) == 0
    shown = capsys.readouterr().out
    assert "1 learner, 1 buffer, 3 actors" in shown
    assert any("buffer" in line and "table" in line and "MB" in line for line in shown.splitlines())
    assert "that is available" in shown


def test_memory_without_a_name_is_refused(capsys):
    assert main(["formation", "--memory"]) == 2
    assert "no formation was named" in capsys.readouterr().err
