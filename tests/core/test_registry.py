"""Registries: their own parts first, those of plugins when they are asked for, and what is wrong with some."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from starling.core.errors import ConfigError, PluginError, UnknownNameError
from starling.core.registry import _REGISTRIES, KINDS, Registry, carried, register, registry_of

KIND = "toy"  # the group of its entry points is starling.toys


class Toy(dict):
    """What the registries here hold."""


class Better(Toy):
    """What a program registers."""


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Install a distribution that offers parts: ``offer("acme-toys", robot="acme:Robot")``."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution, **parts):
        info = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {path}" for name, path in parts.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[starling.{KIND}s]", *lines, ""]))

    return install


@pytest.fixture
def toys(monkeypatch):
    monkeypatch.setattr("starling.core.registry.KINDS", {**KINDS, KIND: __name__})
    yield Registry(KIND, {"ball": Toy, "kite": f"{__name__}:Toy"}, dict)
    del _REGISTRIES[KIND]


def test_own_parts_are_there_without_a_look_at_what_is_installed(toys):
    assert toys["ball"] is toys["kite"] is Toy
    assert "ball" in toys
    assert toys.source("ball") == ""
    assert "_offers" not in vars(toys), "nothing was read"


def test_an_unknown_name_gets_the_nearest_of_all(toys, offer):
    offer("acme-toys", robot="collections:OrderedDict")
    with pytest.raises(UnknownNameError, match=r"unknown toy 'robto'. Did you mean 'robot'\? Known: ball, kite, robot"):
        toys["robto"]
    assert "robto" not in toys


def test_a_plugin_s_part_is_found_by_its_name_and_tells_where_it_comes_from(toys, offer):
    offer("acme-toys", robot="collections:OrderedDict")
    assert toys["robot"] is OrderedDict
    assert list(toys) == ["ball", "kite", "robot"]
    assert len(toys) == 3
    assert toys.source("robot") == "acme-toys"
    assert toys.problems == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Robot", r"\(no_such_module:Robot\) cannot be loaded: ModuleNotFoundError"),
        ("collections:Robot", "cannot be loaded: AttributeError"),
        ("math:pi", "is no dict: 3.14"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_and_leaves_others_alone(toys, offer, path, message):
    offer("acme-toys", robot=path)
    offer("other-toys", doll="collections:OrderedDict")
    assert set(toys) == {"ball", "kite", "doll"}
    assert dict(toys.items()) == {"ball": Toy, "kite": Toy, "doll": OrderedDict}
    assert "the toy 'robot' of acme-toys" in toys.problems[0]
    with pytest.raises(PluginError, match=rf"the toy 'robot' of acme-toys.*{message}"):
        toys["robot"]


def test_two_plugins_with_one_name_are_both_named(toys, offer):
    offer("acme-toys", robot="collections:OrderedDict")
    offer("other-toys", robot="collections:UserDict")
    with pytest.raises(PluginError, match=r"'robot' is offered by (acme|other)-toys and (acme|other)-toys; uninstall"):
        toys["robot"]
    assert len(toys.problems) == 1
    assert "robot" not in list(toys)


def test_a_plugin_does_not_take_a_name_of_starling_s_own(toys, offer):
    offer("acme-toys", ball="collections:OrderedDict")
    assert toys["ball"] is Toy
    assert toys.problems == ["the toy 'ball' of acme-toys is not used: Starling has one of that name."]


def test_what_a_program_registers_is_known_and_checked_at_once(toys):
    register(KIND, "robot", Better)
    assert toys["robot"] is Better
    assert list(toys) == ["ball", "kite", "robot"]
    register(KIND, "robot", Better)  # a module that is loaded again
    register(KIND, "late", f"{__name__}:Better")
    assert toys["late"] is Better
    with pytest.raises(PluginError, match="the toy 'ball' of Starling is there already; register another name"):
        register(KIND, "ball", Better)
    with pytest.raises(PluginError, match=rf"the toy 'robot' of {__name__} is there already"):
        register(KIND, "robot", OrderedDict)
    with pytest.raises(PluginError, match="the toy 'five' of this program is no dict: 5 arrived"):
        register(KIND, "five", 5)
    with pytest.raises(UnknownNameError, match=r"unknown kind of part 'algoritm'. Did you mean 'algorithm'"):
        register("algoritm", "mine", Better)


def test_what_was_looked_up_travels_as_where_to_import_it_from(toys, offer):
    class Local(Toy):
        pass

    offer("acme-toys", robot="collections:OrderedDict", doll="collections:UserDict")
    register(KIND, "better", Better)
    register(KIND, "local", Local)
    assert carried([KIND]) == [], "nobody has asked for any"
    assert (toys["robot"], toys["better"], toys["ball"]) == (OrderedDict, Better, Toy)
    assert carried([KIND]) == [(KIND, "robot", "collections:OrderedDict"), (KIND, "better", f"{__name__}:Better")]
    assert carried([]) == []
    assert toys["local"] is Local
    with pytest.raises(ConfigError, match=r"Local .*cannot be made in another process.*top level of a module"):
        carried([KIND])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_registry_whose_own_parts_load(kind):
    registry = registry_of(kind)
    own = [name for name in registry if not registry.source(name)]
    assert own
    for name in own:
        assert registry[name] is not None
