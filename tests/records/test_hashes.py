"""The fingerprint of parameters."""

import hashlib

import numpy as np
import pytest

from starling.core.errors import DataError
from starling.records.hashes import parameter_hash

BASE = {"q": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3, np.float32)}, "n": [1, 2.0]}


def test_the_digest_is_what_the_docstring_says():
    array = np.array([1, 2], np.int16)
    expected = hashlib.sha256(b"1:w|int16|(2,)|4:" + bytes([1, 0, 2, 0])).hexdigest()
    assert parameter_hash({"w": array}) == expected


def test_the_order_of_insertion_does_not_matter():
    other = {"n": BASE["n"], "q": dict(reversed(BASE["q"].items()))}
    assert parameter_hash(other) == parameter_hash(BASE)


def test_layout_and_byte_order_do_not_matter():
    w = BASE["q"]["w"]
    for same in (np.asfortranarray(w), w.astype(">f4"), np.repeat(w, 2, axis=1)[:, ::2]):
        assert parameter_hash({"w": same}) == parameter_hash({"w": w})


@pytest.mark.parametrize(
    "other",
    [
        {"w": np.zeros(4, np.float64)},
        {"w": np.zeros((2, 2), np.float32)},
        {"w": np.zeros(4, np.int32)},
        {"w": np.array([0, 0, 0, 1e-45], np.float32)},
        {"w": np.array([0, 0, 0, -0.0], np.float32)},
        {"v": np.zeros(4, np.float32)},
        {"w": {"x": np.zeros(4, np.float32)}},
        {"w": np.zeros(4, np.float32), "x": np.zeros(0)},
        [np.zeros(4, np.float32)],
        {},
    ],
    ids=str,
)
def test_any_difference_changes_it(other):
    assert parameter_hash(other) != parameter_hash({"w": np.zeros(4, np.float32)})


def test_bytes_do_not_slip_from_one_leaf_to_the_next():
    one = {"a": np.uint8([1, 2]), "b": np.uint8([3])}
    two = {"a": np.uint8([1]), "b": np.uint8([2, 3])}
    assert parameter_hash(one) != parameter_hash(two)


def test_reduced_precision_has_a_hash_too():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert parameter_hash([np.ones(3, bfloat16)]) != parameter_hash([np.ones(3, np.float16)])


def test_objects_are_refused():
    with pytest.raises(DataError, match=r"'a\.0' is a object"):
        parameter_hash({"a": [object()]})
