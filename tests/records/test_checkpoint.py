"""Checkpoints: what goes in comes out, and nothing that went wrong on the way is accepted."""

import hashlib
import json
import math
import os
import time
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file

from starling.core.errors import CheckpointError
from starling.core.random import generator_state, restore_generator, stream
from starling.core.trees import map_leaves
from starling.records import checkpoint

STORABLE = [*(f"float{n}" for n in (16, 32, 64)), *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))]


def same(a, b):
    """Equal in type, structure and every bit that matters."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b or (a != a and b != b)


def round_trip(directory, tree, meta=None):
    return checkpoint.load(checkpoint.save(directory, "one", tree, meta))


def rewrite_manifest(path, **changes):
    """Change the manifest as an attacker would: with a checksum that fits."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("sha256")
    manifest |= changes
    text = json.dumps(manifest, sort_keys=True)
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


def forge(path, name, data):
    """Replace a file and make the manifest vouch for it."""
    (path / name).write_bytes(data)
    files = json.loads((path / "manifest.json").read_text())["files"]
    files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    rewrite_manifest(path, files=files)


def forge_tensors(path, header, payload=b""):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    forge(path, "arrays.safetensors", len(text).to_bytes(8, "little") + text + payload)


@pytest.mark.parametrize(
    "leaf",
    [
        *(None, True, False, 0, -1, 2**53, 2**53 + 1, -(2**64), 16**6000 + 1, 0.0, -0.0, 0.1, 5e-324, 1.7e308),
        *(math.inf, -math.inf, math.nan, "", "Grüße\n\0\ud800", np.float32(0.1), np.int64(7), np.bool_(True)),
        *([], (), {}, [()], ([],), {"a": ()}, {"dict": {"tuple": 1}}, {"__metadata__": np.ones(2)}, {"": np.zeros(1)}),
    ],
    ids=lambda leaf: f"{leaf:#x}"[:20] if type(leaf) is int else repr(leaf)[:20],
)
def test_a_leaf_comes_back_as_it_was(tmp_path, leaf):
    tree, _ = round_trip(tmp_path, leaf)
    assert same(tree, leaf)
    assert math.copysign(1, tree) == math.copysign(1, leaf) if isinstance(leaf, float) else True


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [*STORABLE, "bool", "complex64"])
def test_an_array_comes_back_as_it_was(tmp_path, dtype, shape):
    array = (np.arange(math.prod(shape)) % 2).astype(dtype).reshape(shape)
    assert same(round_trip(tmp_path, {"x": array})[0], {"x": array})


def test_lists_tuples_and_the_order_of_dicts_are_kept_apart(tmp_path):
    tree = {"z": [1, (2, [3.5])], "a": ([], ()), "m": {"y": np.ones(2, np.float32), "b": [np.zeros(3), None]}}
    assert same(round_trip(tmp_path, tree)[0], tree)


def test_layout_in_memory_does_not_matter(tmp_path):
    base = np.arange(24, dtype=np.float64).reshape(4, 6)
    tree = {"fortran": np.asfortranarray(base), "strided": base[::2, ::-1], "big": base.astype(">f8")}
    loaded, _ = round_trip(tmp_path, tree)
    for name, array in tree.items():
        np.testing.assert_array_equal(loaded[name], array)
    assert loaded["big"].dtype == np.dtype("<f8")


def test_colliding_paths_keep_their_own_arrays(tmp_path):
    tree = {"a.b": np.array([1.0]), "a": {"b": np.array([2.0])}, "a.b~": np.array([3.0])}
    assert same(round_trip(tmp_path, tree)[0], tree)


def test_a_generator_continues_where_it_was(tmp_path):
    rng = stream(0, "actor", 3)
    rng.random(5)
    state, _ = round_trip(tmp_path, generator_state(rng))
    other = stream(1)
    restore_generator(other, state)
    np.testing.assert_array_equal(other.random(10), rng.random(10))


def test_a_named_tuple_can_be_put_back(tmp_path):
    class Moments(NamedTuple):
        mean: np.ndarray
        count: int

    state = {"adam": Moments(np.ones(2), 3)}
    loaded, _ = round_trip(tmp_path, state)
    assert type(loaded["adam"]) is tuple
    again = map_leaves(lambda _, new: new, state, loaded)
    assert isinstance(again["adam"], Moments)
    assert again["adam"].count == 3


def test_loaded_arrays_can_be_written_to(tmp_path):
    loaded, _ = round_trip(tmp_path, {"x": np.zeros(3)})
    loaded["x"] += 1
    assert loaded["x"].tolist() == [1, 1, 1]


def test_meta_comes_back_and_holds_no_arrays(tmp_path):
    meta = {"step": 10**30, "lr": math.inf, "spaces": ("a", [1])}
    assert same(round_trip(tmp_path, {}, meta)[1], meta)
    with pytest.raises(CheckpointError, match="put them into the tree"):
        checkpoint.save(tmp_path, "two", {}, {"x": np.ones(1)})


def test_the_arrays_file_is_a_safetensors_file(tmp_path):
    tree = {"q": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(True)}, "k": [np.int8([1, 2, 3])]}
    path = checkpoint.save(tmp_path, "one", tree)
    loaded = load_file(path / "arrays.safetensors")
    expected = {"q.w": tree["q"]["w"], "q.n": tree["q"]["n"], "k.0": tree["k"][0]}
    assert loaded.keys() == expected.keys()
    assert all(same(loaded[name], expected[name]) for name in expected)


def test_a_file_written_by_the_safetensors_library_is_read(tmp_path):
    from safetensors.numpy import save as library_save

    tree = {"w": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2, 3], np.int8), "flag": np.array([True, False])}
    path = checkpoint.save(tmp_path, "one", tree)
    forge(path, "arrays.safetensors", library_save(tree, metadata={"by": "the library"}))
    assert same(checkpoint.load(path)[0], tree)


def test_saving_and_loading_large_arrays_makes_no_second_copy(tmp_path):
    array = np.zeros(2**23)  # 64 MiB
    tracemalloc.start()
    path = checkpoint.save(tmp_path, "one", {"x": array})
    saving = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    loaded, _ = checkpoint.load(path)
    loading = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert saving < 2**20
    assert array.nbytes <= loading < array.nbytes + 2**20
    assert loaded["x"].nbytes == array.nbytes


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        (b"bytes", "builtins.bytes"),
        (object(), "builtins.object"),
        ({1, 2}, "builtins.set"),
        (1j, "builtins.complex"),
        (np.array([object()]), "dtype object"),
        (np.array(["a"]), "dtype <U1"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.zeros(2, [("a", "f4")]), "dtype"),
        (np.bytes_(b"x"), "dtype|bytes"),
        ({1: 2}, "key 1 is no string"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_cannot_be_stored_is_refused_with_its_path(tmp_path, leaf, says):
    with pytest.raises(CheckpointError, match=says) as caught:
        checkpoint.save(tmp_path, "one", {"agent": [leaf]})
    assert "agent.0" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_tree_that_contains_itself_is_refused(tmp_path):
    tree = []
    tree.append(tree)
    with pytest.raises(CheckpointError, match="contains itself"):
        checkpoint.save(tmp_path, "one", tree)


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".", "..", ".hidden", "/etc", "a\0b", "x" * 300, "a\n"])
def test_names_that_leave_the_directory_are_refused(tmp_path, name):
    with pytest.raises(CheckpointError, match="no checkpoint name"):
        checkpoint.save(tmp_path, name, {})


@pytest.mark.parametrize("reader", [checkpoint.load, checkpoint.verify])
class TestDefects:
    """Each defect is named, whether the checkpoint is loaded or only verified."""

    @pytest.fixture
    def path(self, tmp_path):
        return checkpoint.save(tmp_path, "one", {"w": np.arange(8.0), "n": [1, "two"]}, {"step": 7})

    def test_missing(self, tmp_path, reader):
        with pytest.raises(CheckpointError, match="there is no checkpoint"):
            reader(tmp_path / "none")

    @pytest.mark.parametrize("name", ["manifest.json", "tree.json", "arrays.safetensors"])
    def test_a_missing_file(self, path, reader, name):
        (path / name).unlink()
        with pytest.raises(CheckpointError, match=f"{name} cannot be read: no such file"):
            reader(path)

    @pytest.mark.parametrize("name", ["manifest.json", "tree.json", "arrays.safetensors"])
    def test_every_truncation(self, path, reader, name):
        whole = (path / name).read_bytes()
        for size in range(len(whole) - 1 if name == "manifest.json" else len(whole)):  # its newline means nothing
            (path / name).write_bytes(whole[:size])
            with pytest.raises(CheckpointError):
                reader(path)

    @pytest.mark.parametrize("name", ["manifest.json", "tree.json", "arrays.safetensors"])
    def test_every_flipped_byte(self, path, reader, name):
        whole = (path / name).read_bytes()
        for place in range(len(whole)):
            (path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
            with pytest.raises(CheckpointError):
                reader(path)

    def test_a_file_instead_of_a_directory(self, tmp_path, reader):
        (tmp_path / "model.pt").write_bytes(b"\x80\x04cos\nsystem\n")
        with pytest.raises(CheckpointError, match="is a file; a checkpoint is a directory"):
            reader(tmp_path / "model.pt")

    def test_a_foreign_format(self, path, reader):
        rewrite_manifest(path, format="other")
        with pytest.raises(CheckpointError, match="foreign"):
            reader(path)

    def test_a_newer_version(self, path, reader):
        rewrite_manifest(path, version=2)
        with pytest.raises(CheckpointError, match="has version 2; this Starling reads 1"):
            reader(path)

    @pytest.mark.parametrize("text", ["[]", "null", "1", '"x"', "{}", "", "\xff", "[" * 100_000])
    def test_a_manifest_that_is_none(self, path, reader, text):
        (path / "manifest.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError):
            reader(path)

    def test_files_that_no_checkpoint_has(self, path, reader):
        (path / "optimizer.pkl").write_bytes(b"\x80\x04.")
        with pytest.raises(CheckpointError, match=r"holds optimizer\.pkl"):
            reader(path)

    @pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "weights.pkl"])
    def test_a_manifest_that_names_other_files(self, path, reader, name):
        entry = {"bytes": 1, "sha256": "0" * 64}
        rewrite_manifest(path, files={name: entry, "tree.json": entry})
        with pytest.raises(CheckpointError, match="and nothing else"):
            reader(path)

    @pytest.mark.parametrize("name", ["manifest.json", "tree.json", "arrays.safetensors"])
    def test_links_are_not_followed(self, path, tmp_path, reader, name):
        os.rename(path / name, tmp_path / "elsewhere")
        (path / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CheckpointError, match="links are not followed"):
            reader(path)

    @pytest.mark.parametrize("name", ["manifest.json", "tree.json", "arrays.safetensors"])
    def test_pipes_do_not_make_it_wait(self, path, reader, name):
        (path / name).unlink()
        os.mkfifo(path / name)
        with pytest.raises(CheckpointError, match="not a regular file"):
            reader(path)

    def test_a_linked_directory(self, path, tmp_path, reader):
        (tmp_path / "link").symlink_to(path)
        with pytest.raises(CheckpointError, match="is a link"):
            reader(tmp_path / "link")

    def test_absurd_sizes_in_the_manifest(self, path, reader):
        files = json.loads((path / "manifest.json").read_text())["files"]
        for size in (2**63, 10**30, -1, "8", None, [1]):
            files["arrays.safetensors"]["bytes"] = size
            rewrite_manifest(path, files=files)
            with pytest.raises(CheckpointError, match="manifest says"):
                reader(path)
        rewrite_manifest(path, files={"arrays.safetensors": 5, "tree.json": None})
        with pytest.raises(CheckpointError, match="manifest says"):
            reader(path)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "header",
    [
        {"w": entry(shape=[2**62], offsets=[0, 2**64])},
        {"w": entry(shape=[10**30], offsets=[0, 4 * 10**30])},
        {"w": entry(shape=[-2], offsets=[0, -8])},
        {"w": entry(shape=[2.0])},
        {"w": entry(shape=[True, 2])},
        {"w": entry(offsets=[8, 16])},
        {"w": entry(offsets=[0, 4])},
        {"w": entry(offsets=[0])},
        {"w": entry(shape=[1])},
        {"w": entry(), "v": entry()},
        {"w": entry(dtype="OBJECT")},
        {"w": entry(dtype=["F32"])},
        {"w": None},
        {"w": {}},
        {"w": entry(), "empty": entry(shape=[0, 10**30], offsets=[8, 8])},
        {"w": entry(), "empty": entry(shape=[0] * 100, offsets=[8, 8])},
        {"w": entry(dtype="BOOL", shape=[8])},
        {"w": entry(shape=[2**40, 2**40], offsets=[0, 2**82])},
        {"w": entry(shape=[2**40, 2**40, 0], offsets=[0, 0]), "v": entry()},
        {"w": entry(shape=[1], offsets=[0, 4]), "v": entry(shape=[1], offsets=[2, 6])},
        {"w": entry(), "scalar": {"dtype": "F32", "shape": {}, "data_offsets": [0, 4]}},
        {"w": {"dtype": "F64", "shape": {}, "data_offsets": [0, 8]}},
        b'{"w":%b,"w":%b}' % ((json.dumps(entry()).encode(),) * 2),
        b'{"w":{"dtype":"F64","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        {},
        b"[]",
        b"null",
        b"{",
        b"[" * 100_000,
    ],
    ids=lambda header: str(header)[:50],
)
def test_a_tensor_header_that_lies_is_refused_even_with_fitting_checksums(tmp_path, header):
    path = checkpoint.save(tmp_path, "one", {"w": np.zeros(2, np.float32)})
    forge_tensors(path, header, b"\x07" * 8)
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


@pytest.mark.parametrize("length", [0, 7, 2**40, 2**64 - 1])
def test_an_absurd_header_length_is_refused_without_allocating(tmp_path, length):
    path = checkpoint.save(tmp_path, "one", {})
    forge(path, "arrays.safetensors", length.to_bytes(8, "little"))
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


def test_endless_dimensions_are_refused_without_multiplying_them(tmp_path):
    path = checkpoint.save(tmp_path, "one", {})
    forge_tensors(path, {"w": entry(shape=[2**63 - 1] * 300_000)})
    began = time.perf_counter()
    with pytest.raises(CheckpointError, match="at most 64 dimensions"):
        checkpoint.load(path)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("reader", [checkpoint.load, checkpoint.verify])
@pytest.mark.parametrize("meta", [[1], 5, None, {"array": "w"}])
def test_meta_that_holds_nothing_by_name_is_refused(tmp_path, reader, meta):
    path = checkpoint.save(tmp_path, "one", {"w": np.zeros(2)})
    rewrite_manifest(path, meta=meta)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        reader(path)


def test_a_pickle_in_the_place_of_arrays_is_not_run(tmp_path):
    path = checkpoint.save(tmp_path, "one", {})
    forge(path, "arrays.safetensors", b"cos\nsystem\n(S'touch " + str(tmp_path / "owned").encode() + b"'\ntR.")
    with pytest.raises(CheckpointError):
        checkpoint.load(path)
    assert not (tmp_path / "owned").exists()


def test_a_file_larger_than_the_memory_that_is_available_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("starling.records.tensors.available_memory", lambda: 2**30)
    path = checkpoint.save(tmp_path, "one", {})
    size = 2**31
    with open(path / "arrays.safetensors", "wb") as file:
        file.write((2).to_bytes(8, "little") + b"{}")
        file.truncate(size)  # sparse: it takes no room
    files = json.loads((path / "manifest.json").read_text())["files"]
    files["arrays.safetensors"]["bytes"] = size
    rewrite_manifest(path, files=files)
    with pytest.raises(CheckpointError, match=r"2\.15 GB.*1\.07 GB is available"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "structure",
    [
        {"array": "missing"},
        {"array": ["w"]},
        {"scalar": "w"},
        {"pickle": "x"},
        {"a": 1, "b": 2},
        {},
        {"dict": [1]},
        {"tuple": "ab"},
        {"tuple": {"a": 1}},
        {"int": 5},
        {"int": "zz"},
        {"float": "1e5"},
        {"float": [1]},
        [[{"eval": "1"}]],
    ],
    ids=str,
)
def test_a_structure_that_we_never_write_is_refused(tmp_path, structure):
    path = checkpoint.save(tmp_path, "one", {"w": np.zeros(2)})
    forge(path, "tree.json", json.dumps(structure).encode())
    with pytest.raises(CheckpointError, match="describes no tree"):
        checkpoint.load(path)


def test_a_structure_nested_without_end_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, "one", {})
    forge(path, "tree.json", b"[" * 10**5 + b"]" * 10**5)
    with pytest.raises(CheckpointError):
        checkpoint.load(path)
