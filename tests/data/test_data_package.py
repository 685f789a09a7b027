"""The package as a whole: its names, its imports, its memory."""

import ast
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import starling.data
from starling.data import Table

from .helpers import POINT, points

SOURCES = sorted(Path(starling.data.__file__).parent.rglob("*.py"))


def test_every_public_name_loads_when_first_used_and_is_known_to_type_checkers():
    assert len(set(starling.data.__all__)) == len(starling.data.__all__)
    for name in starling.data.__all__:
        assert getattr(starling.data, name) is not None
    assert set(starling.data.__all__) <= set(dir(starling.data))
    tree = ast.parse(Path(starling.data.__file__).read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    declared = {alias.name: node.module for node in nodes for alias in node.names}
    assert declared == starling.data._HOMES
    assert set(declared) == set(starling.data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Tabel'"):
        starling.data.Tabel  # noqa: B018


WITHOUT_NUMBA = """
import sys
import numpy as np
from starling.core.spaces import Float, Int
from starling.data import Chunk, NStepAdder, SequenceAdder, sequence_signature, transition_signature

obs, no = np.zeros(2, np.float32), np.zeros(2, bool)
one = Chunk(transition_signature(Float(()), Int(())), 8)
two = Chunk(sequence_signature(Float(()), Int(()), 2), 8)
for adder in (NStepAdder(one, 2, 3), SequenceAdder(two, 2)):
    for _ in range(4):
        adder.add(obs, np.zeros(2, np.int32), None, np.ones(2), no, no, obs)
foreign = {"numba", "llvmlite", "safetensors", "pyarrow"} & set(sys.modules)
print(one.take()[1], two.take()[1], sorted(foreign))
"""


def test_adders_need_numpy_alone():
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], check=True, capture_output=True, text=True)
    assert done.stdout == "4 4 []\n"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_module_imports_only_what_the_layer_allows(path):
    allowed = {"numpy", "numba", "llvmlite", "safetensors"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            inside = name.startswith(("starling.core", "starling.data"))
            assert inside or top in allowed or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def grown_after(table, batches):
    batch = points(*range(1000))
    for _ in range(20):
        table.insert(batch)
        table.sample(256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(batches):
        table.insert(batch)
        table.sample(256)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


@pytest.mark.parametrize("remover", ["fifo", "max_heap"])
def test_memory_does_not_grow_with_inserts(remover):
    table = Table(POINT, 10_000, sampler="prioritized", remover=remover)
    assert grown_after(table, 300) < 2_000  # kilobytes


@pytest.mark.slow
def test_memory_does_not_grow_over_ten_million_inserts():
    table = Table(POINT, 100_000, sampler="prioritized")
    assert grown_after(table, 10_000) < 2_000
    assert table.inserts > 10**7
    assert np.isfinite(table.sample(256).weights).all()
