"""Devices by name, and what keeps a process to its own."""

import os
import subprocess
import sys

import pytest

from starling.backends import available, check_elsewhere, parse_devices
from starling.backends.devices import environment_for, renumbered
from starling.core.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("", ()),
        ("cpu", ("cpu:0",)),
        ("cuda:0,cuda:1", ("cuda:0", "cuda:1")),
        (" cuda:03 , tpu:0 ", ("cuda:3", "tpu:0")),
        (["cuda:0", "cuda:1"], ("cuda:0", "cuda:1")),
        ([], ()),
    ],
)
def test_a_text_or_a_list_names_devices_by_kind_and_number(text, devices):
    assert parse_devices(text) == devices


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("cudo:0", UnknownNameError, "Did you mean 'cuda'"),
        ("cuda:x", ConfigError, r"devices='cuda:x': 'cuda:x' arrived; expected a kind and a number, such as cuda:0\."),
        ("cuda:-1", ConfigError, "'cuda:-1' arrived"),
        ("cpu:0,", UnknownNameError, "kind of device"),
        ("cuda,cuda:0", ConfigError, "names cuda:0 twice; name each device once"),
        (3, ConfigError, r"devices=3; a list of devices was expected, such as \[cuda:0, cuda:1\]"),
        ([0], ConfigError, r"devices=\[0\]; a list of devices"),
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
        ((), {"CUDA_VISIBLE_DEVICES": "1"}, {}),
    ],
)
def test_a_process_sees_its_own_devices_alone(devices, before, after):
    assert environment_for(devices, before) == after


def test_a_gpu_that_is_hidden_already_is_refused():
    with pytest.raises(ConfigError, match="device cuda:2 was asked for, but CUDA_VISIBLE_DEVICES='4,7' shows 2"):
        environment_for(("cuda:0", "cuda:2"), {"CUDA_VISIBLE_DEVICES": "4,7"})


def test_visible_devices_are_numbered_from_zero():
    assert renumbered(("cuda:2", "cuda:3")) == ("cuda:0", "cuda:1")
    assert renumbered(("cpu:1", "cuda:7", "cpu:0")) == ("cpu:1", "cuda:0", "cpu:0")


@pytest.mark.parametrize("backend", available())
def test_devices_that_are_not_there_are_refused_by_another_process(backend):
    check_elsewhere(backend, ["cpu:0"])
    with pytest.raises(
        ConfigError, match=rf"^device 'tpu:7' is not there; {backend} sees: cpu:0.* Name one of these\.$"
    ):
        check_elsewhere(backend, ["tpu:7"])


def test_jax_and_pytorch_see_the_processor_alone_where_they_are_kept_to_it():
    script = (
        "from starling.backends import get_backend\n"
        "import os; print(os.environ['JAX_PLATFORMS'], get_backend('jax').devices(), get_backend('torch').devices())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "XLA_FLAGS")}
    environment |= environment_for(("cpu:0",), environment)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cpu ['cpu:0'] ['cpu:0']\n"
