import numpy as np
import pytest
import torch

from starling.components.networks.images import CNN, ImpalaResNet, NatureCNN
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.spaces import Float, Int
from tests.components.building import everywhere, initial

rng = np.random.default_rng(5)
FRAME = Int((36, 36, 3), 0, 256, "uint8").ranked(batch=True)


def frames(*lead):
    return rng.integers(0, 256, (*lead, 36, 36, 3)).astype(np.uint8)


def kernel_of(p, name):
    return torch.from_numpy(p[name]).permute(3, 2, 0, 1)


def torch_nature(p, x):
    y = torch.from_numpy(x.astype(np.float32) / 255).permute(0, 3, 1, 2)
    for i, stride in enumerate((4, 2, 1)):
        y = torch.relu(torch.conv2d(y, kernel_of(p, f"kernel{i}"), torch.from_numpy(p[f"bias{i}"]), stride))
    flat = y.permute(0, 2, 3, 1).flatten(1)
    return torch.relu(flat @ torch.from_numpy(p["w"]) + torch.from_numpy(p["b"])).numpy()


def test_nature_cnn_is_the_three_convolutions_and_the_linear_layer_of_dqn():
    x = frames(2)
    p = initial(NatureCNN(), x=FRAME)
    shapes = [p[f"kernel{i}"].shape for i in range(3)]
    assert shapes == [(8, 8, 3, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    found = everywhere(NatureCNN(), {"x": FRAME}, "__call__", x)
    assert found.shape == (2, 512)
    np.testing.assert_allclose(found, torch_nature(p, x), rtol=1e-4, atol=1e-6)


def test_the_nature_network_on_atari_frames_has_its_published_size():
    atari = Int((84, 84, 4), 0, 256, "uint8").ranked(batch=True)
    weights = sum(leaf.size for leaf in initial(NatureCNN(), x=atari).values())
    assert weights == 8 * 8 * 4 * 32 + 32 + 4 * 4 * 32 * 64 + 64 + 3 * 3 * 64 * 64 + 64 + 7 * 7 * 64 * 512 + 512


@pytest.mark.parametrize("network", [CNN(((4, 3, 2),), size=8), ImpalaResNet((4,), size=8)])
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_leading_dimensions_are_given_back(network, lead):
    x = frames(*lead)
    found = everywhere(network, {"x": FRAME}, "__call__", x, gradient=False)
    flat = everywhere(network, {"x": FRAME}, "__call__", x.reshape(-1, 36, 36, 3), gradient=False)
    assert found.shape == (*lead, 8)
    np.testing.assert_allclose(found.reshape(-1, 8), flat, rtol=1e-4, atol=1e-6)


def test_bytes_are_scaled_and_floats_are_not():
    network, x = CNN(((4, 3, 2),), size=8), frames(2)
    floats = Float((36, 36, 3)).ranked(batch=True)
    p = Params(initial(network, x=FRAME))
    by_bytes = everywhere(network, {"x": FRAME}, "__call__", x, params=p)
    by_floats = everywhere(network, {"x": floats}, "__call__", x.astype(np.float32) / 255, params=p)
    np.testing.assert_allclose(by_bytes, by_floats, rtol=1e-4, atol=1e-6)


def torch_impala(p, x, channels, blocks=2):
    def conv(y, tag):
        return torch.conv2d(y, kernel_of(p, "kernel" + tag), torch.from_numpy(p["bias" + tag]), padding=1)

    y = torch.from_numpy(x.astype(np.float32) / 255).permute(0, 3, 1, 2)
    for i in range(len(channels)):
        y = conv(y, str(i))
        odd = y.shape[-1] % 2
        # "SAME" with a window of 3 and a stride of 2 pads both sides of an odd image, the far side of an even one.
        y = torch.max_pool2d(torch.nn.functional.pad(y, (odd, 1, odd, 1), value=-torch.inf), 3, 2)
        for j in range(blocks):
            y = y + conv(torch.relu(conv(torch.relu(y), f"{i}_{j}_0")), f"{i}_{j}_1")
    flat = torch.relu(y).permute(0, 2, 3, 1).flatten(1)
    return torch.relu(flat @ torch.from_numpy(p["w"]) + torch.from_numpy(p["b"])).numpy()


def test_impala_resnet_has_fifteen_convolutions_and_computes_what_pytorch_does():
    x = frames(2)
    p = initial(ImpalaResNet(), x=FRAME)
    assert sum(name.startswith("kernel") for name in p) == 15
    found = everywhere(ImpalaResNet(), {"x": FRAME}, "__call__", x, gradient=False)
    assert found.shape == (2, 256)
    np.testing.assert_allclose(found, torch_impala(p, x, (16, 32, 32)), rtol=1e-4, atol=1e-6)


def test_gradients_flow_through_residual_blocks_alike_on_all_backends():
    everywhere(ImpalaResNet((4,), blocks=1, size=8), {"x": FRAME}, "__call__", frames(2))


def test_size_zero_leaves_the_convolutions_features():
    found = everywhere(CNN(((4, 3, 2),), size=0), {"x": FRAME}, "__call__", frames(2), gradient=False)
    assert found.shape == (2, 17 * 17 * 4)


def test_what_is_no_image_is_refused_with_the_shape_that_arrived():
    with pytest.raises(SpaceError, match=r"float32\[B, 7\] arrived, \[\*, H, W, C\] was expected"):
        initial(NatureCNN(), x=Float((7,)).ranked(batch=True))
