"""Components by name: what a configuration file may say instead of Python.

    from_spec({"type": "mlp", "sizes": [64, 64]})
    from_spec("networks/torso.yaml")                          # or a string of JSON
    from_spec({"type": "my_package.nets:MyTorso", "width": 3})  # a Component, torch.nn.Module or such

Fields that are components are specs in their turn, lists become tuples, and a plain number stands for a constant
schedule. ``to_spec`` is the way back. A type is a name of ``COMPONENTS``, or where a Component class, or a framework's
module class, can be imported from.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from starling.backends.modules import kind_of_class
from starling.components import optimisers, schedules
from starling.components.base import Component, children
from starling.components.networks import (
    encoders,
    exploration,
    heads,
    images,
    layers,
    preprocessing,
    recurrent,
)
from starling.components.networks.modules import Module, as_component
from starling.components.spec_values import to_value
from starling.core.errors import ConfigError, UnknownNameError
from starling.core.registry import Registry
from starling.core.yaml_files import read_settings

__all__ = ["COMPONENTS", "as_layer", "from_spec", "to_spec"]

_OWN: dict[str, type[Component]] = {
    "linear": layers.Linear,
    "layer_norm": layers.LayerNorm,
    "noisy_linear": layers.NoisyLinear,
    "mlp": layers.MLP,
    "sequential": layers.Sequential,
    "cnn": images.CNN,
    "nature_cnn": images.NatureCNN,
    "impala_resnet": images.ImpalaResNet,
    "gru": recurrent.GRU,
    "lstm": recurrent.LSTM,
    "embedding": recurrent.Embedding,
    "flatten": encoders.Flatten,
    "channels_last": encoders.ChannelsLast,
    "dict_encoder": encoders.DictEncoder,
    "tuple_encoder": encoders.TupleEncoder,
    "scale": preprocessing.Scale,
    "one_hot": preprocessing.OneHot,
    "stack": preprocessing.Stack,
    "q_head": heads.QHead,
    "dueling_head": heads.DuelingHead,
    "categorical_q_head": heads.CategoricalQHead,
    "quantile_head": heads.QuantileHead,
    "implicit_quantile_head": heads.ImplicitQuantileHead,
    "value_head": heads.ValueHead,
    "action_critic": heads.ActionCritic,
    "twin_critics": heads.TwinCritics,
    "categorical_head": heads.CategoricalHead,
    "multi_discrete_head": heads.MultiDiscreteHead,
    "bernoulli_head": heads.BernoulliHead,
    "gaussian_head": heads.GaussianHead,
    "tanh_gaussian_head": heads.TanhGaussianHead,
    "deterministic_head": heads.DeterministicHead,
    "epsilon_greedy": exploration.EpsilonGreedy,
    "boltzmann": exploration.Boltzmann,
    "gaussian_noise": exploration.GaussianNoise,
    "ornstein_uhlenbeck": exploration.OrnsteinUhlenbeck,
    "sgd": optimisers.SGD,
    "rmsprop": optimisers.RMSProp,
    "adam": optimisers.Adam,
    "constant_schedule": schedules.Constant,
    "linear_schedule": schedules.LinearSchedule,
    "exponential_schedule": schedules.Exponential,
    "cosine_schedule": schedules.Cosine,
    "piecewise_schedule": schedules.Piecewise,
}
COMPONENTS: Registry[type[Component]] = Registry("component", _OWN, Component)


def from_spec(spec: Mapping[str, Any] | str | Path | Component, where: str = "spec") -> Component:
    """The component that ``spec`` describes: a dict, a string of JSON, or the path of a YAML or JSON file."""
    if isinstance(spec, Component):
        return spec
    if isinstance(spec, (str, Path)):
        spec, where = _read(spec, where)
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"{where}: {spec!r:.60} arrived; expected a dict with a 'type', such as {{type: mlp, sizes: [64]}}."
        )
    if "type" not in spec:
        raise ConfigError(
            f"{where}: no 'type' among {', '.join(map(repr, spec)) or 'its no keys'}; say which component it is."
        )
    cls = _class_of(spec["type"], where)
    if not issubclass(cls, Component):
        return _module_of(cls, spec, where)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    hints = _hints(cls)
    given: dict[str, Any] = {}
    for key, value in spec.items():
        if key == "type":
            continue
        if key not in fields:
            raise UnknownNameError("key", key, [*fields, "type"], f"{where} ({spec['type']})")
        given[key] = to_value(hints.get(key, Any), value, f"{where}.{key}", from_spec)
    for name, field in fields.items():
        if name not in given and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(
                f"{where} ({spec['type']}): key {name!r} is missing; it needs {' and '.join(_required(fields))}."
            )
    return cls(**given)


_REMEDIES = {  # by what a component needs
    "memory": "it keeps a state from step to step, which nobody does for it here. Give it as `memory`",
    "statistics": "nobody updates its statistics here. Use the setting normalise_observations",
    "returns": "nobody updates its statistics here. Use the setting normalise_rewards",
    "noise": "nobody draws its noise here. Use a layer without noise, such as linear",
}


def as_layer(spec: Mapping[str, Any] | str | Path | Component, where: str) -> Component:
    """The component that ``spec`` describes, where it is called with its parameters and one input and nothing else.

    Refuses one that would have no effect there, or could not be called.
    """
    component = from_spec(spec, where)
    for path, part in _handed_on(component, where):
        name = type(part).__name__
        if part.needs:
            remedy = _REMEDIES.get(part.needs, f"nobody gives it the {part.needs} that it needs here")
            raise ConfigError(f"{path}: {name} arrived, which is no plain layer: {remedy}.")
        if not _takes_one_input(part):
            raise ConfigError(
                f"{path}: {name} arrived; a layer is expected, which makes one array of its parameters and one input, "
                "such as mlp, cnn or sequential."
            )
    return component


def _handed_on(component: Component, path: str) -> Iterator[tuple[str, Component]]:
    """The component, and those of its parts that are called with what it is called with."""
    yield path, component
    if component.hands_on:
        for name, part in children(component):
            yield from _handed_on(part, f"{path}.{name}")


def _takes_one_input(component: Component) -> bool:
    if not callable(component):
        return False
    arguments = list(inspect.signature(component).parameters.values())
    needed = [a.name for a in arguments if a.default is a.empty and a.kind is a.POSITIONAL_OR_KEYWORD]
    return len(needed) == 2 and needed[0] == "p"


def _hints(cls: type[Component]) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError:  # a user's class whose annotations name what its module does not import: its own checks must do
        return {}


def to_spec(component: Component) -> dict[str, Any]:
    """The spec of a component, every field written out: ``from_spec`` makes an equal one of it."""
    if isinstance(component, Module):
        if component.spec is not None:
            return dict(component.spec)
        raise ConfigError(
            f"{type(component.module).__name__} arrived, an object that no configuration can hold. Give its class by "
            "name, {'type': 'my_package.nets:MyTorso'}, or use starling.Agent, which takes objects."
        )
    spec: dict[str, Any] = {"type": _name_of(type(component))}
    for field in dataclasses.fields(component):  # type: ignore[arg-type]
        if field.init:
            spec[field.name] = _plain(getattr(component, field.name), f"{type(component).__name__}.{field.name}")
    return spec


def _read(text: str | Path, where: str) -> tuple[Any, str]:
    """The spec in a file, or in a string of JSON; and what to call it in messages."""
    if isinstance(text, str) and text.lstrip().startswith("{"):
        try:
            return json.loads(text), where
        except json.JSONDecodeError as error:
            raise ConfigError(f"{where}: not JSON ({error}); arrived: {text!r:.80}.") from None
    path = Path(text)
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ConfigError(
            f"{where}: {str(text)!r:.80} arrived; expected a dict, a string of JSON, or a .yaml or .json file."
        )
    return read_settings(path, ConfigError), path.name


def _module_of(cls: type, spec: Mapping[str, Any], where: str) -> Component:
    """A framework's module, made with a spec's other keys."""
    arguments = {key: value for key, value in spec.items() if key != "type"}
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{where} ({cls.__name__}): {error}.") from None
    return as_component(cls(**arguments), spec=dict(spec))


def _class_of(name: Any, where: str) -> type:
    if not isinstance(name, str):
        raise ConfigError(f"{where}.type: {name!r} arrived; expected a name such as 'mlp'.")
    if ":" not in name:
        if name not in COMPONENTS:
            raise UnknownNameError("component type", name, COMPONENTS, where)
        return COMPONENTS[name]
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}.type: cannot import {module_name!r} of {name!r}: {error}.") from error
    found = vars(module).get(class_name)
    if found is None:
        near = difflib.get_close_matches(class_name, vars(module), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{where}.type: module {module_name!r} has no {class_name!r}.{hint}")
    if not (isinstance(found, type) and (issubclass(found, Component) or kind_of_class(found))):
        raise ConfigError(
            f"{where}.type: {name!r} is not a Component class; expected a subclass of Component, torch.nn.Module, "
            "flax.linen.Module, flax.nnx.Module or equinox.Module."
        )
    return found


def _required(fields: Mapping[str, Any]) -> list[str]:
    return [repr(name) for name, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING]


def _name_of(cls: type[Component]) -> str:
    for name, known in COMPONENTS.items():
        if known is cls:
            return name
    if "." in cls.__qualname__:
        raise ConfigError(
            f"{cls.__qualname__} is defined inside a function or class; a spec can name only a module's own."
        )
    return f"{cls.__module__}:{cls.__name__}"


def _plain(value: Any, where: str) -> Any:
    """A field's value as JSON could hold it."""
    if isinstance(value, Component):
        return to_spec(value)
    if isinstance(value, (tuple, list)):
        return [_plain(child, f"{where}.{i}") for i, child in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: _plain(child, f"{where}.{key}") for key, child in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(
        f"{where} is a {type(value).__name__}; a spec holds numbers, texts, lists, dicts and components only."
    )
