import importlib
import inspect
import pkgutil

import pytest

import starling.maths

MODULES = [module.name for module in pkgutil.iter_modules(starling.maths.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_and_class_is_listed_and_described(name):
    module = importlib.import_module(f"starling.maths.{name}")
    own = {
        key
        for key, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and not key.startswith("_")
    }
    assert own == set(module.__all__)
    assert all(inspect.getdoc(getattr(module, key)) for key in own)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_knows_a_framework(name):
    source = inspect.getsource(importlib.import_module(f"starling.maths.{name}"))
    assert not any(f"import {framework}" in source for framework in ("jax", "torch", "optax"))
