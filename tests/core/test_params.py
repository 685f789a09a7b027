from collections import namedtuple

import pytest

from starling.core.params import Params, with_scopes


def test_a_scope_reads_by_attribute_item_and_get():
    p = Params(torso=Params(w=1), b=2)
    assert p.torso.get("w", (3,), None) == p["torso"]["w"] == 1
    assert p.get("b", (), None) == 2


def test_a_parameter_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        Params().get("w", (), None)


def test_scopes_turn_into_plain_dicts_and_back():
    state = {"params": Params(q=Params(w=1)), "list": [Params(a=2)], "pair": (3, None)}
    plain = with_scopes(state, dict)
    assert type(plain["params"]["q"]) is dict
    assert type(plain["list"][0]) is dict
    back = with_scopes(plain, Params)
    assert back == state
    assert back.params.q.w == 1


def test_named_tuples_keep_their_type():
    pair = namedtuple("Pair", "first second")
    assert with_scopes(pair({"a": 1}, 2), Params).first.a == 1


def test_a_missing_name_is_both_a_key_error_and_an_attribute_error():
    scope = Params(w=1)
    assert not hasattr(scope, "b")
    with pytest.raises(KeyError, match="there are: w"):
        scope["b"]
