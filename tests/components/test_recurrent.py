import numpy as np
import pytest
import torch

from starling.backends import get_backend
from starling.components.networks.recurrent import GRU, LSTM, Embedding, memory_for
from starling.core.params import Params
from starling.core.spaces import Bool, Dict, Float, Int
from starling.core.trees import map_leaves
from tests.components.building import assert_same, everywhere, initial

rng = np.random.default_rng(19)
F, H, B, T = 4, 3, 5, 6


def normals(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def spaces(core):
    return {
        "x": Float((F,)).ranked(batch=True),
        "xs": Float((F,)).ranked(batch=True, time=True),
        "memory": core.memory.ranked(batch=True),
        "reset": Bool().ranked(batch=True, time=True),
    }


def fresh(core):
    return core.memory.ranked(batch=True).zeros_with({"batch": B})


@pytest.mark.parametrize(("core", "memory"), [(GRU(H), ("h",)), (LSTM(H), ("c", "h"))])
def test_a_memory_has_a_space_of_one_row_by_the_names_of_its_parts(core, memory):
    assert core.memory == Dict({name: Float((H,)) for name in memory})
    _, new = core.step(initial(core, **spaces(core)), normals(B, F), fresh(core))
    assert {name: part.shape for name, part in new.items()} == dict.fromkeys(memory, (B, H))


def test_the_setting_memory_names_a_layer_or_none():
    assert memory_for("none", H) is None
    for kind, layer in (("gru", GRU), ("lstm", LSTM)):
        core = memory_for(kind, H)
        assert type(core) is layer
        assert core.size == H


def gru_of_pytorch():
    """A cell of PyTorch, and its weights by our names."""
    cell = torch.nn.GRUCell(F, H)
    w_ih, w_hh, b_ih, b_hh = (weight.detach().numpy() for weight in cell.parameters())
    bias = b_ih + np.concatenate([b_hh[: 2 * H], np.zeros(H, np.float32)])
    return cell, Params(w=w_ih.T.copy(), u=w_hh.T.copy(), b=bias, b_candidate=b_hh[2 * H :].copy())


def lstm_of_pytorch():
    cell = torch.nn.LSTMCell(F, H)
    w_ih, w_hh, b_ih, b_hh = (weight.detach().numpy() for weight in cell.parameters())
    return cell, Params(w=w_ih.T.copy(), u=w_hh.T.copy(), b=b_ih + b_hh)


def test_a_gru_step_is_pytorchs():
    cell, params = gru_of_pytorch()
    x, state = normals(B, F), {"h": normals(B, H)}
    y, new = everywhere(GRU(H), spaces(GRU(H)), "step", x, state, params=params)
    expected = cell(torch.from_numpy(x), torch.from_numpy(state["h"])).detach().numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(new["h"], y)


def test_an_lstm_step_is_pytorchs():
    cell, params = lstm_of_pytorch()
    core = LSTM(H, forget_bias=0.0)
    x, state = normals(B, F), {"c": normals(B, H), "h": normals(B, H)}
    y, new = everywhere(core, spaces(core), "step", x, state, params=params)
    h, c = cell(torch.from_numpy(x), (torch.from_numpy(state["h"]), torch.from_numpy(state["c"])))
    np.testing.assert_allclose(y, h.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new["c"], c.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(new["h"], y)


def test_an_lstm_begins_by_remembering():
    core = LSTM(H)
    params = map_leaves(np.zeros_like, initial(core, **spaces(core)))
    state = {"c": np.ones((B, H), np.float32), "h": np.zeros((B, H), np.float32)}
    _, new = core.step(params, normals(B, F), state)
    np.testing.assert_allclose(new["c"], 1 / (1 + np.exp(-1.0)), rtol=1e-6)


@pytest.mark.parametrize("core", [GRU(H), LSTM(H)])
def test_an_unrolled_sequence_is_its_steps_with_the_state_cleared_where_episodes_begin(core):
    xs, reset = normals(T, B, F), rng.random((T, B)) < 0.3
    reset[2, 0], reset[0, 1] = True, True
    state = map_leaves(lambda leaf: normals(*leaf.shape), fresh(core))
    params = initial(core, **spaces(core))
    ys, final = everywhere(core, spaces(core), "unroll", xs, state, reset)
    assert ys.shape == (T, B, H)
    for t in range(T):
        state = map_leaves(lambda leaf, t=t: np.where(reset[t][:, None], 0, leaf), state)
        y, state = core.step(params, xs[t], state)
        np.testing.assert_allclose(ys[t], y, rtol=1e-4, atol=1e-6)
    assert_same(state, final, tolerance=1e-5)


@pytest.mark.parametrize("core", [GRU(H), LSTM(H)])
def test_nothing_of_one_episode_reaches_the_next(core):
    params, reset = initial(core, **spaces(core)), np.zeros((T, B), bool)
    reset[3] = True
    first = normals(T, B, F)
    second = np.concatenate([normals(3, B, F), first[3:]])
    ys, _ = core.unroll(params, first, fresh(core), reset)
    other, _ = core.unroll(params, second, fresh(core), reset)
    np.testing.assert_array_equal(ys[3:], other[3:])
    assert np.abs(ys[:3] - other[:3]).max() > 1e-3


@pytest.mark.parametrize("core", [GRU(H), LSTM(H)])
def test_compiled_code_holds_one_step_however_long_the_sequence(core):
    import jax

    backend = get_backend("jax")
    params = backend.from_numpy(initial(core, **spaces(core)))

    def lines(length):
        args = (normals(length, B, F), fresh(core), np.zeros((length, B), bool))
        return len(str(jax.make_jaxpr(core.unroll)(params, *backend.from_numpy(args))).splitlines())

    assert lines(100) == lines(3)


def test_gradients_reach_the_first_step():
    core = GRU(H)
    params, reset = initial(core, **spaces(core)), np.zeros((T, B), bool)

    def influence(reset):
        xs = torch.from_numpy(normals(T, B, F)).requires_grad_(True)
        torch_params = get_backend("torch").from_numpy(params)
        ys, _ = core.unroll(torch_params, xs, {"h": torch.zeros(B, H)}, torch.from_numpy(reset))
        return torch.autograd.grad(ys[-1].sum(), xs)[0][0].abs().max().item()

    assert influence(reset) > 0
    reset[1] = True
    assert influence(reset) == 0


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_an_embedding_looks_rows_up(lead, dtype):
    x = rng.integers(0, 7, lead).astype(dtype)
    x = np.asarray(x)
    space = {"x": Int((), 0, 7, dtype).ranked(batch=True)}
    table = initial(Embedding(7, 3), **space)["table"]
    found = everywhere(Embedding(7, 3), space, "__call__", x)
    np.testing.assert_array_equal(found, table[x])
