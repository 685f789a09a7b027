"""Each module says what is public, and imports nothing heavy until it is needed."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import starling.records

MODULES = [f"starling.records.{found.name}" for found in pkgutil.iter_modules(starling.records.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_and_class_is_in_all(name):
    module = importlib.import_module(name)
    own = {
        key
        for key, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name and key[0] != "_"
    }
    assert own == set(module.__all__)


def test_importing_records_is_light():
    heavy = "{'jax', 'torch', 'matplotlib', 'tensorboardX', 'rich'}"
    script = f"import sys\nfor name in {MODULES}: __import__(name)\nassert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
