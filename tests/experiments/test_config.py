"""Where settings come from, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import yaml

from starling.algorithms import ALGORITHMS
from starling.cli.train import parse
from starling.core.errors import ConfigError, UnknownNameError
from starling.core.settings import help_of
from starling.experiments.config import RunOptions, resolve
from starling.experiments.presets import PRESETS
from starling.experiments.program import Program
from starling.formations import Counts

APEX = {"algo": "dqn", "formation": "apex"}


@pytest.fixture
def write(tmp_path):
    def write(text):
        file = tmp_path / "run.yaml"
        file.write_text(text)
        return str(file)

    return write


def test_each_layer_lies_over_the_one_before(write):
    settings = PRESETS["ppo-cartpole"]
    config = write("steps: 777\nppo:\n  clip: 0.3\n  gamma: 0.5\n")
    run = resolve({"algo": "ppo", "env": "CartPole-v1", "ppo": {"gamma": 0.6}}, config=config)
    assert run.preset == "ppo-cartpole"
    assert run.algorithm.value_weight == ALGORITHMS["ppo"].Config().value_weight  # a default
    assert run.algorithm.learning_rate == settings["ppo"]["learning_rate"]  # of the preset
    assert (run.options.steps, run.algorithm.clip) == (777, 0.3)  # of the file
    assert run.algorithm.gamma == 0.6  # of the call


def test_flags_lie_over_the_file(write):
    config = write("algo: dqn\nenv: Acrobot-v1\nsteps: 777\ndqn: {gamma: 0.5, n-step: 2}\n")
    run = parse(["--config", config, "--steps", "888", "--dqn.learning-rate", "0.25", "--dqn.no-double"])
    assert (run.options.algo, run.options.env, run.options.steps) == ("dqn", "Acrobot-v1", 888)
    assert (run.algorithm.gamma, run.algorithm.n_step, run.algorithm.learning_rate) == (0.5, 2, 0.25)
    assert run.algorithm.double is False


def test_devices_of_each_kind_of_role_come_from_the_file_and_from_flags(write):
    config = write("{formation: sync, devices: {learner: [cuda:0, cuda:1], actor: cpu}}")
    flags = ["--devices.actor", "cuda:2", "--evaluators", "1", "--devices.evaluator", "cpu"]
    run = parse(["--config", config, *flags])
    assert run.devices == {"learner": ("cuda:0", "cuda:1"), "actor": ("cuda:2",), "evaluator": ("cpu:0",)}
    assert resolve(run.to_mapping()).devices == run.devices


def test_dashes_and_underscores_name_the_same_setting_in_every_layer(write):
    config = write("checkpoint-every: 5\nppo:\n  learning-rate: 1e-3\n  gae_lambda: '0.5'\n")
    run = resolve({"checkpoint_every": 6, "ppo": {"gae-lambda": 0.25}}, {"checkpoint-every": 7}, config=config)
    assert run.options.checkpoint_every == 7
    assert (run.algorithm.learning_rate, run.algorithm.gae_lambda) == (0.001, 0.25)
    assert resolve({"log-every": 3}, {"log_every": 4}, {"log-every": 5}, {"log_every": 6}).options.log_every == 6


def test_numbers_may_come_as_text_and_whole_ones_as_floats(write):
    run = resolve(config=write("steps: 1e5\nseed: '3'\nppo: {learning_rate: 3e-4, hidden: [16.0, '8'], epochs: 4.0}\n"))
    assert (run.options.steps, run.options.seed) == (100_000, 3)
    assert (run.algorithm.learning_rate, run.algorithm.hidden, run.algorithm.epochs) == (3e-4, (16, 8), 4)
    assert type(run.options.steps) is int


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_run_reads_back_from_what_it_writes(name):
    run = resolve({"preset": name, "summaries": ["*"], "env_options": {"a-b": 1}})
    again = resolve(yaml.safe_load(yaml.safe_dump(run.to_mapping())))
    assert (again.options, again.to_mapping()) == (run.options, run.to_mapping())
    assert run.options.env_options["a-b"] == 1


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_complete_and_found_by_algorithm_and_environment(name):
    settings = PRESETS[name]
    run = resolve({key: settings[key] for key in ("algo", "env", "formation") if key in settings})
    assert run.preset == name
    assert run.options.steps == settings["steps"]


def test_a_preset_can_be_declined_or_taken_for_another_environment():
    assert resolve({"preset": "none"}).algorithm == ALGORITHMS["ppo"].Config()
    other = resolve({"preset": "ppo-cartpole", "env": "Acrobot-v1"})
    assert other.options.env == "Acrobot-v1"
    assert other.algorithm == resolve({"algo": "ppo", "env": "CartPole-v1"}).algorithm
    with pytest.raises(ConfigError, match=r"for ppo; algo=dqn"):
        resolve({"preset": "ppo-cartpole", "algo": "dqn"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algo": "pqo"}, "unknown algorithm 'pqo'. Did you mean 'ppo'?"),
        ({"stpes": 1}, "unknown setting 'stpes' in the run's configuration. Did you mean 'steps'?"),
        ({"ppo": {"learning_rte": 1}}, "unknown setting 'learning_rte' in ppo. Did you mean 'learning_rate'?"),
        ({"preset": "ppo-cartpol"}, "Did you mean 'ppo-cartpole'?"),
        ({"backend": "jx"}, "Did you mean 'jax'?"),
        ({"executor": "procesess"}, "unknown executor 'procesess'. Did you mean 'processes'?"),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(settings, message):
    with pytest.raises(UnknownNameError) as error:
        resolve(settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0; it must be at least 1"),
        ({"steps": "many"}, "run.steps: 'many' (str) arrived; expected a whole number"),
        ({"steps": 1.5}, "steps: 1.5"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": True}, "seed: True"),
        ({"eval_episodes": -1}, "eval_episodes=-1"),
        ({"keep_checkpoints": 0}, "keep_checkpoints=0"),
        ({"quiet": "yes"}, "quiet: 'yes'"),
        ({"env": 5}, "env=5; a name"),
        ({"algo": ["ppo"]}, "algo=['ppo']; a name"),
        ({"summaries": "ppo.loss.*"}, "summaries: 'ppo.loss.*'"),
        ({"env_options": []}, "env_options: []"),
        ({"ppo": None}, "ppo=None; the settings"),
        ({"ppo": {"gamma": 1.5}}, "gamma=1.5; it must be from 0 to 1"),
        ({"ppo": {"gamma": "nan"}}, "gamma=nan"),
        ({"ppo": {"hidden": [64, 0]}}, "hidden=(64, 0)"),
        ({"ppo": {"hidden": 64}}, "hidden: 64"),
        ({"ppo": {"max_gradient": -1}}, "max_gradient=-1"),
        ({"ppo": {"minibatch": 7}}, "does not divide"),
        ({"algo": "dqn", "dqn": {"batch_size": 0}}, "batch_size=0"),
        ({"algo": "sac", "sac": {"tau": 2}}, "tau=2"),
        ({"algo": "a2c", "a2c": {"rollout": 0}}, "rollout=0"),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        resolve(settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "holds list; settings are a mapping"),
        ("just words", "holds str"),
        ("", "holds NoneType"),
        ("a: [", "is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("1: 2", "unknown setting '1'"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(write, text, message):
    with pytest.raises((ConfigError, UnknownNameError)) as error:
        resolve(config=write(text))
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        resolve(config=tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        resolve(config=tmp_path)


def test_every_setting_of_every_algorithm_is_a_flag_or_a_mapping():
    for algo, cls in ALGORITHMS.items():
        config, flags = cls.Config(), []
        for field in dataclasses.fields(config):
            value, flag = getattr(config, field.name), field.name.replace("_", "-")
            if isinstance(value, bool):
                flags.append(f"--{algo}.{'' if value else 'no-'}{flag}")
            elif not isinstance(value, dict):
                flags += [f"--{algo}.{flag}", *map(str, value if isinstance(value, tuple) else [value])]
        assert parse(["--algo", algo, "--env", "X", *flags]).algorithm == config


def test_a_preset_gives_its_counts_to_its_own_formation_alone():
    assert resolve({"preset": "impala"}).options.actors == 2
    other = resolve({"preset": "impala", "formation": "single"})
    assert (other.options.formation, other.options.actors) == ("single", None)
    assert other.algorithm.envs == resolve({"preset": "impala"}).algorithm.envs


def test_a_preset_for_another_formation_leaves_out_what_has_no_effect_there():
    acrobot = {"algo": "dqn", "env": "Acrobot-v1"}
    single = resolve(acrobot)
    assert single.options.overlap
    for formation in ("sync", "apex"):
        other = resolve({**acrobot, "formation": formation})
        assert other.preset == "dqn-acrobot"
        assert other.options.overlap is None
        assert other.algorithm == single.algorithm, "the algorithm's own settings have an effect everywhere"
        assert resolve(other.to_mapping()) == other


@pytest.mark.parametrize(("every", "updates", "ratio"), [(8, 1, 16), (16, 1, 8), (1, 4, 512), (2, 3, 192)])
def test_apex_draws_an_item_as_often_as_the_algorithm_s_pace_asks_for(every, updates, ratio):
    """128 rows a batch, ``updates`` of them every so many steps, however many buffers and learners share them."""
    settings = {"batch_size": 128, "train_every": every, "updates": updates}
    plan = Program(resolve({**APEX, "preset": "none", "dqn": settings})).whole_plan
    assert plan.samples_per_insert == ratio
    for learners, buffers in ((1, 4), (2, 1), (2, 4)):
        assert plan.buffered(learners, buffers).samples_per_insert * learners == ratio


@pytest.mark.parametrize("more", [{}, APEX, APEX | {"samples_per_insert": 0}])
def test_a_schedule_runs_over_the_run_s_progress_in_every_formation(more):
    settings = {"learning_rate": 0.5, "anneal": True}
    optimiser = Program(resolve({"algo": "dqn", **more, "preset": "none", "dqn": settings})).algorithm.optimisers["q"]
    assert [float(optimiser.learning_rate(progress)) for progress in (0.0, 0.5, 1.0)] == [0.5, 0.25, 0.0]


@pytest.mark.parametrize("ladder", [False, True])
def test_exploration_is_the_algorithm_s_setting_in_apex_too(ladder):
    """Without a ladder epsilon falls from 1 to 0.05 over a tenth of the run; Ape-X's is 0.4 ^ (1 + 7 i / (N − 1))."""
    algorithm = Program(resolve({**APEX, "preset": "none", "dqn": {"ladder": ladder}})).algorithm
    found = np.broadcast_to(algorithm.exploration(0.05, np.arange(2), 2), 2)
    np.testing.assert_allclose(found, [0.4, 0.4**8] if ladder else [0.525, 0.525], rtol=1e-5)


def test_every_setting_of_a_run_is_explained():
    for cls in (RunOptions, *(algorithm.Config for algorithm in ALGORITHMS.values())):
        assert set(help_of(cls)) == {field.name for field in dataclasses.fields(cls)}
        assert all(len(text) > 5 for text in help_of(cls).values())


def test_the_counts_of_formations_are_settings_of_a_run():
    run = resolve({"preset": "none", "formation": "apex", "algo": "dqn", "actors": 3, "buffers": 2})
    assert run.counts == Counts(actors=3, buffers=2)
    for count in dataclasses.fields(Counts):
        assert getattr(RunOptions(), count.name) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pin_cpus": True}, "pin_cpus has no effect on the executor inline; it is for processes"),
        ({"heartbeat": 10.0}, "heartbeat has no effect on the executor inline"),
        ({"record": True}, "record has no effect on the executor inline"),
        ({"simulation": {"loss": 0.1}}, "simulation has no effect on the executor inline; it is for simulated"),
        ({"env_timeout": 1.0}, "env_timeout has no effect in single"),
        ({"formation": "sync", "heartbeat": -1.0}, r"heartbeat=-1\.0; it must be at least 0"),
        ({"formation": "sync", "overlap": True}, r"overlap=True has no effect in the formation sync"),
        ({"formation": "sync", "buffers": 2}, r"buffers=2 has no effect in the formation sync"),
        ({"formation": "sync", "samples_per_insert": 8}, r"samples_per_insert=8.* has no effect .* one in apex"),
        (APEX | {"overlap": True}, r"overlap=True has no effect in the formation apex: it takes actors"),
        (APEX | {"dqn": {"ladder": True, "epsilon_end": 0.1}}, r"epsilon_end .* have no effect with ladder; drop them"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Program(resolve({"preset": "none", **settings}))
