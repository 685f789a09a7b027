"""Chunks gather what adders make; an actor that is restored goes on with both."""

import numpy as np
import pytest

from starling.core.errors import CheckpointError, ConfigError, DataError
from starling.core.spaces import Dict, Float, Int, Tuple
from starling.core.trees import items, nest
from starling.data import Chunk, NStepAdder, SequenceAdder, Table, TransitionAdder, sequence_signature
from starling.data import transition_signature as transitions

from .helpers import POINT, points
from .streams import MODES, random_stream


def gathered(*numbers, rows=4):
    chunk = Chunk(POINT, rows)
    for number in numbers:
        chunk.insert_leaves([leaf for _, leaf in items(points(number))], 1)
    return chunk


def through_files(tree):
    """A tree as it comes back from a checkpoint: flattened, every leaf an array, empty parts gone."""
    return nest({path: np.asarray(leaf) for path, leaf in items(tree)})


def test_items_come_out_in_the_order_in_which_they_became_complete():
    # γ = 1/2, n = 2, two environments; the second ends at its second step, which completes two items of it at once.
    chunk = Chunk(transitions(Float(()), Int(())), 1)
    adder = NStepAdder(chunk, 2, 2, 0.5)
    no, action = np.zeros(2, bool), np.zeros(2, np.int32)
    assert adder.add(np.float32([0, 10]), action, None, np.array([1.0, 4.0]), no, no, np.float32([1, 11])) == 0
    ends = np.array([False, True])
    after = (np.float32([2, 50]), np.float32([0, 12]))  # the second is reset to 50; its final observation is 12
    assert adder.add(np.float32([1, 11]), action, None, np.array([2.0, 8.0]), ends, no, *after) == 3
    assert adder.add(np.float32([2, 50]), action, None, np.array([4.0, 1.0]), no, no, np.float32([3, 51])) == 1
    taken, n = chunk.take()
    assert n == 4
    assert taken["obs"].tolist() == [0, 10, 11, 1]
    assert taken["next_obs"].tolist() == [2, 12, 12, 3]
    assert taken["reward"].tolist() == [2.0, 8.0, 8.0, 4.0]  # 1 + 2/2, 4 + 8/2, 8, 2 + 4/2
    assert taken["discount"].tolist() == [0.25, 0.0, 0.0, 0.25]


def test_a_chunk_grows_and_is_empty_when_taken():
    chunk = gathered(*range(9), rows=2)
    assert len(chunk) == 9
    taken, n = chunk.take()
    assert n == 9
    assert taken["n"].tolist() == list(range(9))
    np.testing.assert_array_equal(taken["x"], points(*range(9))["x"])
    nothing, n = chunk.take()
    assert n == 0
    assert nothing["x"].shape == (0, 2)


def test_what_was_taken_is_never_written_again():
    chunk = gathered(1, 2)
    first, _ = chunk.take()
    chunk.insert_leaves([leaf for _, leaf in items(points(7, 8))], 2)
    second, _ = chunk.take()
    assert first["n"].tolist() == [1, 2]
    assert second["n"].tolist() == [7, 8]
    assert not np.shares_memory(first["n"], second["n"])


def test_items_keep_the_shape_of_their_signature():
    signature = Dict(a=Tuple(Float((2,)), Int(())), b=Float(()))
    chunk = Chunk(signature, 3)
    chunk.insert_leaves([np.ones((1, 2), np.float32), np.int32([4]), np.float32([5])], 1)
    taken, _ = chunk.take()
    assert isinstance(taken["a"], tuple)
    assert taken["a"][0].tolist() == [[1, 1]]
    assert (taken["a"][1].tolist(), taken["b"].tolist()) == ([4], [5])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 3])
def test_a_chunk_holds_what_a_table_would(n, mode):
    signature = transitions(Float((2,)), Int((), high=9), version=True, log_prob=Float(()))
    chunk, table = Chunk(signature, 8), Table(signature, 1000)
    adder = NStepAdder([chunk, table], 3, n)
    made = sum(adder.add(**step) for step in random_stream(1, mode, 3, 50, 0.2)[0])
    taken, count = chunk.take()
    assert count == made == len(table)
    for name, column in table.state()["columns"].items():
        np.testing.assert_array_equal(taken[name], column, err_msg=name)


def with_memory(stream):
    return [{**step, "extras": {**step["extras"], "memory": 2 * step["obs"]}} for step in stream]


ADDERS = {
    "one step": lambda chunk: TransitionAdder(chunk, 3),
    "three steps": lambda chunk: NStepAdder(chunk, 3, 3),
    "sequences": lambda chunk: SequenceAdder(chunk, 3, overlap=2, burn_in=1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ADDERS)
def test_a_restored_actor_sends_what_it_would_have_sent(kind, mode):
    memory, extras = Float((2,)), {"log_prob": Float(())}
    signature = transitions(Float((2,)), Int((), high=9), version=True, **extras)
    if kind == "sequences":
        signature = sequence_signature(Float((2,)), Int((), high=9), 5, memory, version=True, **extras)
    stream = with_memory(random_stream(2, mode, 3, 60, 0.1)[0])
    for step in stream:
        del step["extras"]["version"]
    chunks = [Chunk(signature, 4) for _ in range(2)]
    whole, resumed = (ADDERS[kind](chunk) for chunk in chunks)
    for adder in (whole, resumed):
        adder.version = 6
        for step in stream[:31]:
            adder.add(**step)
    saved = through_files({"adder": resumed.state(), "chunk": chunks[1].state()})
    chunk = Chunk(signature, 4)
    continued = ADDERS[kind](chunk)
    continued.restore(saved["adder"])
    chunk.restore(saved["chunk"])
    assert continued.version == 6
    for step in stream[31:]:
        whole.add(**step)
        continued.add(**step)
    (a, n), (b, m) = chunks[0].take(), chunk.take()
    assert n == m > 10
    for (path, expected), (_, got) in zip(items(a), items(b)):
        np.testing.assert_array_equal(expected, got, err_msg=path)


def test_what_a_chunk_cannot_keep_is_refused():
    with pytest.raises(ConfigError, match="rows=0"):
        Chunk(POINT, 0)
    with pytest.raises(DataError, match=r"priorities of 1 items arrived.*take\(\)"):
        gathered().insert_leaves([leaf for _, leaf in items(points(1))], 1, np.ones(1))
    with pytest.raises(CheckpointError, match="another signature"):
        gathered().restore(Chunk(Dict(x=Float(())), 1).state())
