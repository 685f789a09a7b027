"""Every module says what is public: all of it is there, and nothing that others use is missing."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import pytest

import starling

MODULES = ["starling", *sorted(found.name for found in pkgutil.walk_packages(starling.__path__, "starling."))]


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse(Path(importlib.import_module(name).__file__).read_text())


@cache
def used_elsewhere() -> dict[str, set[str]]:
    """Module -> the names that other modules import from it."""
    used: dict[str, set[str]] = {name: set() for name in MODULES}
    for user in MODULES:
        for node in ast.walk(parsed(user)):
            if isinstance(node, ast.ImportFrom) and node.module in used:
                used[node.module] |= {alias.name for alias in node.names}
    return used


@pytest.mark.parametrize("name", MODULES)
def test_what_is_in_all_can_be_imported(name):
    module = importlib.import_module(name)
    if not parsed(name).body[1:]:
        return  # a package with a docstring at most: its modules speak for themselves
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public, None) is not None, f"{public} is in __all__ and is not there"


@pytest.mark.parametrize("name", MODULES)
def test_classes_and_functions_that_other_modules_import_are_in_all(name):
    module = importlib.import_module(name)
    defined = {node.name for node in parsed(name).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert used_elsewhere()[name] & defined <= set(getattr(module, "__all__", ()))


def test_the_names_of_the_package_load_when_first_used():
    for name in starling.__all__:
        assert getattr(starling, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        starling.tarin  # noqa: B018
