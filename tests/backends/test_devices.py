"""Devices by name, and what keeps a process to its own."""

import os
import subprocess
import sys

import pytest

from starling.backends import parse_devices, restrict
from starling.backends.devices import environment_for
from starling.core.errors import ConfigError, RunError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("", ()),
        ("cpu", ("cpu:0",)),
        ("cuda:0,cuda:1", ("cuda:0", "cuda:1")),
        (" cuda:03 , tpu:0 ", ("cuda:3", "tpu:0")),
    ],
)
def test_a_text_names_devices_by_kind_and_number(text, devices):
    assert parse_devices(text) == devices


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("cudo:0", UnknownNameError, "Did you mean 'cuda'"),
        ("cuda:x", ConfigError, r"devices='cuda:x': 'cuda:x' arrived; expected a kind and a number, such as cuda:0\."),
        ("cuda:-1", ConfigError, "'cuda:-1' arrived"),
        ("cpu:0,", UnknownNameError, "kind of device"),
        ("cuda,cuda:0", ConfigError, "names cuda:0 twice; name each device once"),
    ],
)
def test_what_is_no_device_is_refused(text, error, message):
    with pytest.raises(error, match=message):
        parse_devices(text)


@pytest.mark.parametrize(
    ("devices", "before", "after"),
    [
        (("cpu:0",), {}, {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}),
        (("cpu:0", "cpu:1"), {"CUDA_VISIBLE_DEVICES": "0,1"}, {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}),
        (("cuda:2", "cuda:0"), {}, {"CUDA_VISIBLE_DEVICES": "2,0"}),
        (("cuda:1",), {"CUDA_VISIBLE_DEVICES": "4,7"}, {"CUDA_VISIBLE_DEVICES": "7"}),
        (("cuda:0",), {"CUDA_VISIBLE_DEVICES": "GPU-3a, GPU-5b"}, {"CUDA_VISIBLE_DEVICES": "GPU-3a"}),
        (("tpu:0",), {}, {"CUDA_VISIBLE_DEVICES": ""}),
    ],
)
def test_a_process_sees_its_own_devices_alone(devices, before, after):
    assert environment_for(devices, before) == after


def test_a_gpu_that_is_hidden_already_is_refused():
    with pytest.raises(ConfigError, match="device cuda:2 was asked for, but CUDA_VISIBLE_DEVICES='4,7' shows 2"):
        environment_for(("cuda:0", "cuda:2"), {"CUDA_VISIBLE_DEVICES": "4,7"})


def test_visible_devices_are_numbered_from_zero():
    environment = {"HOME": "/root"}
    assert restrict(("cuda:2", "cuda:3"), environment) == ("cuda:0", "cuda:1")
    assert environment == {"HOME": "/root", "CUDA_VISIBLE_DEVICES": "2,3"}


def test_no_devices_leave_a_process_as_it_is():
    environment = {"CUDA_VISIBLE_DEVICES": "1"}
    assert restrict((), environment) == ()
    assert environment == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_process_that_has_loaded_jax_can_no_longer_be_kept_from_its_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", sys)
    with pytest.raises(RunError, match=r"kept to cpu:0, but jax is loaded .* call restrict before the first use"):
        restrict(("cpu:0",), {})
    assert restrict(("cpu:0",), {"JAX_PLATFORMS": "cpu"}) == ("cpu:0",)


def test_jax_and_pytorch_see_the_processor_alone_where_they_are_kept_to_it():
    script = (
        "from starling.backends import get_backend, restrict\n"
        "restrict(('cpu:0',))\n"
        "import os; print(os.environ['JAX_PLATFORMS'], get_backend('jax').devices(), get_backend('torch').devices())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "XLA_FLAGS")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cpu ['cpu:0'] ['cpu:0']\n"
