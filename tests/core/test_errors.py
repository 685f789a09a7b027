import inspect

import pytest

from starling.core import errors
from starling.core.errors import MissingExtraError, RequestError, RunError, SpaceError, StarlingError, UnknownNameError


def test_every_error_is_public_and_under_one_root():
    found = {name for name, member in vars(errors).items() if inspect.isclass(member) and issubclass(member, Exception)}
    assert found == set(errors.__all__)
    assert all(issubclass(getattr(errors, name), StarlingError) for name in found)


def test_requests_exit_with_two_and_runs_with_one():
    for name in errors.__all__:
        error = getattr(errors, name)
        if error is not StarlingError:
            assert error.exit_code == (2 if issubclass(error, RequestError) else 1)
            assert issubclass(error, (RequestError, RunError))


def test_an_unknown_name_suggests_the_nearest_and_says_where():
    error = UnknownNameError("algorithm", "pppo", ["dqn", "ppo", "sac"], "run.yaml")
    assert str(error) == "unknown algorithm 'pppo' in run.yaml. Did you mean 'ppo'? Known: dqn, ppo, sac."
    assert error.known == ["dqn", "ppo", "sac"]


def test_an_unknown_name_far_from_all_suggests_nothing():
    assert "Did you mean" not in str(UnknownNameError("backend", "zzz", ["numpy", "jax"]))
    assert str(UnknownNameError("key", "x", [])) == "unknown key 'x'. Known: none."


def test_a_missing_extra_names_the_command_that_installs_it():
    assert "pip install 'starling-rl[ray]'" in str(MissingExtraError("ray", "ray"))


def test_a_space_error_carries_the_graph_so_far():
    assert SpaceError("no").assembly is None
    graph = object()
    with pytest.raises(SpaceError, match="no") as caught:
        raise SpaceError("no", graph)
    assert caught.value.assembly is graph
    assert caught.value.args == ("no",)
