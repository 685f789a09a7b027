"""The public names: complete, and all there."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import starling.envs

MODULES = sorted(module.name for module in pkgutil.iter_modules(starling.envs.__path__, "starling.envs."))


@pytest.mark.parametrize("name", MODULES)
def test_every_public_definition_of_a_module_is_in_all_or_used_only_there(name):
    module = importlib.import_module(name)
    for public in module.__all__:
        assert public in vars(module)
    tree = ast.parse(Path(module.__file__).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    assert set(functions) <= set(module.__all__)


def test_the_package_exports_what_it_imports():
    tree = ast.parse(Path(starling.envs.__file__).read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(starling.envs.__all__)
