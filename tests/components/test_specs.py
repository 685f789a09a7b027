import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pytest
import yaml

from starling.backends import ops
from starling.components import optimisers, schedules
from starling.components.base import Component, api
from starling.components.networks import (
    encoders,
    exploration,
    heads,
    images,
    layers,
    preprocessing,
    recurrent,
)
from starling.components.networks.layers import MLP, Linear
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.networks.whole import seeing, torso_for
from starling.components.optimisers import Adam, Optimiser
from starling.components.schedules import Constant, Schedule
from starling.components.specs import COMPONENTS, as_layer, from_spec, to_spec
from starling.core.errors import ConfigError, UnknownNameError
from starling.core.spaces import Float, Int


class Net(Component):
    """Fields of every kind a spec can write."""

    torso: Component
    heads: tuple[Linear, ...] = ()
    named: Mapping[str, Component] = dataclasses.field(default_factory=dict)
    rate: Schedule = Constant(0.5)
    pair: tuple[int, float] = (1, 2.0)
    mode: Literal["sum", "mean"] = "sum"
    limit: float | None = None
    flag: bool = False
    free: Any = None
    either: int | str = 0


class NotAComponent:
    pass


NET = f"{__name__}:Net"
FULL = {
    "type": NET,
    "torso": {"type": "mlp", "sizes": [64, 32]},
    "heads": [{"type": "linear", "size": 2}, {"type": "linear", "size": 3}],
    "named": {"left": {"type": "linear", "size": 1}},
    "rate": 0.25,
    "pair": [3, 4],
    "mode": "mean",
    "limit": 2,
    "flag": True,
    "free": {"a": [1, {"type": "linear", "size": 9}]},
    "either": "x",
}


def test_a_spec_names_a_component_and_its_fields():
    made = from_spec({"type": "mlp", "sizes": [64, 64], "activation": "tanh"})
    assert isinstance(made, MLP)
    assert (made.sizes, made.activation, made.init) == ((64, 64), "tanh", "lecun")


def test_components_nest_in_fields_lists_and_dicts():
    net = from_spec(FULL)
    assert isinstance(net, Net)
    assert net.torso.sizes == (64, 32)
    assert [head.size for head in net.heads] == [2, 3]
    assert net.named["left"].size == 1
    assert net.rate.value == 0.25
    assert net.pair == (3, 4.0)
    assert isinstance(net.pair[1], float)
    assert (net.mode, net.limit, net.flag, net.either) == ("mean", 2.0, True, "x")
    assert net.free["a"][1].size == 9


def test_a_spec_survives_the_round_trip():
    spec = to_spec(from_spec(FULL))
    assert to_spec(from_spec(spec)) == spec
    assert to_spec(from_spec(json.loads(json.dumps(spec)))) == spec
    assert spec["torso"] == {"type": "mlp", "sizes": [64, 32]} | {
        name: getattr(MLP((1,)), name) for name in ("activation", "init", "layer_norm")
    }
    assert spec["rate"] == {"type": "constant_schedule", "value": 0.25}


def test_an_instance_is_its_own_component():
    made = Linear(3)
    assert from_spec(made) is made


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_specs_are_read_from_files(tmp_path, suffix):
    path = tmp_path / f"net{suffix}"
    spec = {"type": "adam", "learning_rate": 0.003, "clip": 10}
    path.write_text(json.dumps(spec) if suffix == ".json" else yaml.safe_dump(spec))
    for place in (path, str(path)):
        made = from_spec(place)
        assert isinstance(made, Adam)
        assert made.learning_rate.value == 0.003


def test_a_string_of_json_is_a_spec():
    assert from_spec('{"type": "linear", "size": 4}').size == 4


def test_numbers_that_yaml_reads_as_text_are_numbers():
    spec = yaml.safe_load("{type: adam, eps: 1e-5, learning_rate: 3e-4}")
    assert spec["eps"] == "1e-5"
    assert from_spec(spec).eps == 1e-5
    assert from_spec(spec).learning_rate.value == 3e-4


def test_unknown_types_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown component type 'mpl' in spec. Did you mean 'mlp'"):
        from_spec({"type": "mpl"})
    with pytest.raises(UnknownNameError, match=r"type 'liner' in spec.heads.1. Did you mean 'linear'"):
        from_spec(FULL | {"heads": [{"type": "linear", "size": 2}, {"type": "liner"}]})


def test_unknown_keys_suggest_the_nearest_and_say_where(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown key 'size' in spec.torso \(mlp\). Did you mean 'sizes'"):
        from_spec(FULL | {"torso": {"type": "mlp", "size": [3]}})
    path = tmp_path / "net.yaml"
    path.write_text("{type: linear, siz: 3}")
    with pytest.raises(UnknownNameError, match=r"unknown key 'siz' in net.yaml \(linear\). Did you mean 'size'"):
        from_spec(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"torso": 3}, r"spec.torso: 3 arrived; expected a dict with a 'type'"),
        ({"torso": {"sizes": [3]}}, r"spec.torso: no 'type' among 'sizes'"),
        ({"torso": {"type": "mlp", "sizes": 3}}, r"spec.torso.sizes: 3 \(int\) arrived; expected a list"),
        (
            {"torso": {"type": "mlp", "sizes": [3, 2.5]}},
            r"spec.torso.sizes.1: 2.5 \(float\) arrived; expected a whole number",
        ),
        ({"torso": {"type": "mlp"}}, r"spec.torso \(mlp\): key 'sizes' is missing"),
        ({"heads": [{"type": "mlp", "sizes": [1]}]}, "spec.heads.0: MLP, where a Linear belongs"),
        ({"pair": [1, 2, 3]}, r"spec.pair: \[1, 2, 3\] \(list\) arrived; expected a list of 2"),
        ({"mode": "max"}, "unknown mode 'max' in spec.mode. Did you mean 'mean'"),
        ({"limit": "high"}, r"spec.limit: 'high' \(str\) arrived; expected a number"),
        ({"flag": 1}, r"spec.flag: 1 \(int\) arrived; expected true or false"),
        ({"either": 1.5}, r"spec.either: 1.5 \(float\) arrived"),
        ({"rate": "fast"}, r"spec.rate: 'fast' \(str\) arrived; expected a number"),
        ({"named": [1]}, r"spec.named: \[1\] \(list\) arrived; expected a dict"),
        ({"type": 3}, r"spec.type: 3 arrived; expected a name such as 'mlp'"),
        ({"type": "no.such.module:Net"}, "cannot import 'no.such.module'"),
        ({"type": f"{__name__}:Nett"}, "has no 'Nett'. Did you mean 'Net'"),
        ({"type": f"{__name__}:NotAComponent"}, "is not a Component class"),
        ({"type": "os:system"}, "is not a Component class"),
        ({"type": ":Net"}, "cannot import ''"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change, message):
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        from_spec(FULL | change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{not json", "not JSON"),
        ("mlp", "expected a dict, a string of JSON, or a .yaml or .json file"),
        ("missing.yaml", "cannot read missing.yaml"),
    ],
)
def test_texts_that_are_no_specs_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        from_spec(text)


def test_files_that_are_no_specs_are_refused(tmp_path):
    (tmp_path / "bad.yaml").write_text("{type: [")
    with pytest.raises(ConfigError, match=r"bad.yaml is not valid YAML: line 1"):
        from_spec(tmp_path / "bad.yaml")
    nine = {b: ", ".join([f"*{a}"] * 9) for a, b in zip("abcdefg", "bcdefgh")}  # of the one before, each
    bomb = "a: &a [x, x]\n" + "".join(f"{name}: &{name} [{of}]\n" for name, of in nine.items())
    (tmp_path / "bomb.yaml").write_text(bomb)
    with pytest.raises(ConfigError, match=r"bomb.yaml is not valid YAML: line \d+: it stands for more than"):
        from_spec(tmp_path / "bomb.yaml")
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.getcwd []")
    with pytest.raises(ConfigError, match=r"code.yaml is not valid YAML: line 1"):
        from_spec(tmp_path / "code.yaml")


def test_what_a_spec_cannot_hold_is_refused():
    class Local(Component):
        size: int = 1

    with pytest.raises(ConfigError, match="Local is defined inside a function"):
        to_spec(Local())
    with pytest.raises(ConfigError, match=r"Net.free is a function"):
        to_spec(Net(Linear(1), free=lambda x: x))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "lstm", "size": 4}, r"torso: LSTM arrived, which is no plain layer: .* Give it as `memory`\."),
        ({"type": "gru", "size": 4}, r"torso: GRU arrived, .* Give it as `memory`\."),
        (
            ObservationNormaliser(Float((4,))),
            r"torso: ObservationNormaliser .* updates its statistics here. Use the setting normalise_observations\.",
        ),
        (ReturnScale(), r"torso: ReturnScale .* updates its statistics here. Use the setting normalise_rewards\."),
        (
            {"type": "noisy_linear", "size": 4},
            r"nobody draws its noise here. Use a layer without noise",
        ),
        (
            {"type": "sequential", "layers": [{"type": "mlp", "sizes": [4]}, {"type": "noisy_linear", "size": 4}]},
            r"torso.layers_1: NoisyLinear arrived, which is no plain layer: nobody draws its noise",
        ),
        (
            {"type": "dict_encoder", "encoders": {"camera": {"type": "lstm", "size": 4}}},
            r"torso.encoders_camera: LSTM arrived",
        ),
        ({"type": "adam"}, "torso: Adam arrived; a layer is expected, .* such as mlp, cnn or sequential"),
        ({"type": "epsilon_greedy"}, "torso: EpsilonGreedy arrived; a layer is expected"),
        ({"type": "constant_schedule", "value": 1}, "torso: Constant arrived; a layer is expected"),
        ({"type": "stack", "count": 4}, "torso: Stack arrived; a layer is expected"),
        ({"type": f"{__name__}:Cautious"}, "torso: Cautious arrived, .* nobody gives it the advice that it needs here"),
    ],
)
def test_a_component_that_would_have_no_effect_as_a_layer_is_refused(spec, message):
    with pytest.raises(ConfigError, match=message):
        as_layer(spec, "torso")
    with pytest.raises(ConfigError, match=message):
        torso_for(from_spec(spec), (4,), "relu", "lecun")


class Cautious(Component):
    """A need that this project does not know."""

    needs: ClassVar[str] = "advice"


class Remembering(Component):
    """Gives its part what it needs itself."""

    core: recurrent.GRU

    @api
    def __call__(self, p, x):
        return self.core.step(p.core, x, {"h": ops(x).zeros_like(x[..., : self.core.size])})[0]


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "mlp", "sizes": [8]},
        {"type": "layer_norm"},
        {"type": "cnn", "layers": [[8, 3, 1]]},
        {"type": "sequential", "layers": [{"type": "flatten"}, {"type": "linear", "size": 2}]},
        {"type": f"{__name__}:Remembering", "core": {"type": "gru", "size": 2}},
    ],
)
def test_layers_are_taken_as_they_are(spec):
    layer = from_spec(spec)
    assert as_layer(layer, "torso") is layer
    assert type(as_layer(spec, "torso")) is type(layer)


def test_a_network_for_images_must_be_a_layer_too():
    with pytest.raises(ConfigError, match=r"image: LSTM arrived"):
        seeing(Int((36, 36, 3), 0, 256, "uint8"), {"type": "lstm", "size": 4})


MODULES = (encoders, exploration, heads, images, layers, optimisers, preprocessing, recurrent, schedules)


def test_every_component_is_registered_once():
    found = {
        member
        for module in MODULES
        for name in module.__all__
        if isinstance(member := getattr(module, name), type) and issubclass(member, Component)
    } - {Optimiser, Schedule}
    assert found == set(COMPONENTS.values())
    assert len(COMPONENTS) == len(found)


def test_names_are_in_snake_case():
    assert all(name == name.lower() and name.isidentifier() for name in COMPONENTS)


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_registered_component_round_trips(name):
    given = {
        "sizes": [4, 2], "layers": [[8, 3, 1]], "size": 3, "actions": 2, "count": 3, "categories": 5, "value": 0.5,
        "start": 1.0, "end": 0.1, "rate": 0.9, "boundaries": [0.5], "values": [1.0, 0.5],
        "torso": {"type": "linear", "size": 2}, "critics": {"type": "linear", "size": 1},
        "encoders": [{"type": "flatten"}], "parts": [{"type": "flatten"}],
    }  # fmt: skip
    cls = COMPONENTS[name]
    required = [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING]
    spec = {"type": name} | {key: given[key] for key in required}
    if name == "sequential":
        spec["layers"] = [{"type": "linear", "size": 2}, {"type": "layer_norm"}]
    if name == "dict_encoder":
        spec["encoders"] = {"a": {"type": "flatten"}}
    made = from_spec(spec)
    assert type(made) is cls
    assert to_spec(from_spec(to_spec(made))) == to_spec(made)
