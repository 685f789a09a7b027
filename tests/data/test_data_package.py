"""The package as a whole: its names, its imports, its memory."""

import ast
import resource
import sys
from pathlib import Path

import numpy as np
import pytest

import starling.data
from starling.data import Table

from .helpers import POINT, points

SOURCES = sorted(Path(starling.data.__file__).parent.glob("*.py"))


def test_every_public_name_is_there_and_every_import_is_public():
    assert len(set(starling.data.__all__)) == len(starling.data.__all__)
    tree = ast.parse(Path(starling.data.__file__).read_text())
    imported = {a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert imported == set(starling.data.__all__)


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
