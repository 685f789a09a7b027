"""Settings refuse what lies outside their ranges, and carry the sentences that explain them."""

import dataclasses
import math

import pytest

from starling.core.errors import ConfigError
from starling.core.settings import Settings, help_of, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(Settings):
    rate: float = setting(0.5, "how fast it learns", 0, 1)
    steps: int = setting(10, "steps in a row", 1)
    bias: float = setting(0.0, "added at the end", high=3)
    sizes: tuple[int, ...] = setting((64, 64), "units of each layer", 1, 4096)
    limit: float | None = setting(None, "largest norm; none for no limit", 0.1, 10)
    kind: str = setting("relu", "activation of the layers", 0, 1)
    options: dict = setting({"depth": 2}, "what the maker takes")
    free: float = 7.0

    def check(self) -> None:
        if self.steps > 100 and self.rate > 0.9:
            raise ConfigError(f"steps={self.steps} and rate={self.rate} do not go together; lower one of them.")


def test_defaults_are_what_was_written():
    made = Example()
    assert (made.rate, made.steps, made.sizes, made.limit, made.free) == (0.5, 10, (64, 64), None, 7.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": 1.5}, r"^rate=1\.5; it must be from 0 to 1\.$"),
        ({"rate": -0.1}, r"^rate=-0\.1; it must be from 0 to 1\.$"),
        ({"steps": 0}, r"^steps=0; it must be at least 1\.$"),
        ({"bias": 3.5}, r"^bias=3\.5; it must be at most 3\.$"),
        ({"limit": 0.0}, r"^limit=0\.0; it must be from 0\.1 to 10\.$"),
        ({"sizes": (64, 0)}, r"^sizes=\(64, 0\); it must be from 1 to 4096\.$"),
    ],
)
def test_numbers_outside_their_range_are_refused_with_the_range(given, message):
    with pytest.raises(ConfigError, match=message):
        Example(**given)


@pytest.mark.parametrize("given", [{"rate": math.nan}, {"steps": math.nan}, {"bias": math.nan}])
def test_what_is_no_number_lies_in_no_range(given):
    with pytest.raises(ConfigError, match="=nan; it must be"):
        Example(**given)


@pytest.mark.parametrize("given", [{"rate": 0}, {"rate": 1}, {"steps": 1}, {"bias": 3}, {"sizes": (1, 4096)}])
def test_both_ends_of_a_range_belong_to_it(given):
    ((name, value),) = given.items()
    assert getattr(Example(**given), name) == value


def test_sides_without_a_bound_are_open():
    assert Example(steps=10**12).steps == 10**12
    assert Example(bias=-1e30).bias == -1e30
    assert Example(free=-1e30).free == -1e30


def test_none_texts_and_dicts_have_no_range():
    made = Example(limit=None, kind="tanh", options={"depth": -5})
    assert (made.limit, made.kind, made.options) == (None, "tanh", {"depth": -5})


def test_an_empty_tuple_holds_nothing_to_refuse():
    assert Example(sizes=()).sizes == ()


def test_settings_that_do_not_go_together_are_refused_when_they_are_made():
    with pytest.raises(ConfigError, match=r"steps=200 and rate=1\.0 do not go together"):
        Example(steps=200, rate=1.0)
    with pytest.raises(ConfigError, match="do not go together"):
        dataclasses.replace(Example(steps=200), rate=1.0)


def test_ranges_are_looked_at_before_what_goes_together():
    with pytest.raises(ConfigError, match=r"rate=2\.0; it must be from 0 to 1"):
        Example(steps=200, rate=2.0)


def test_a_dict_by_default_is_not_shared():
    Example().options["depth"] = 9
    assert Example().options == {"depth": 2}


def test_settings_are_frozen_and_named():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Example().rate = 0.1
    with pytest.raises(TypeError, match="positional"):
        Example(0.1)


def test_the_help_is_a_sentence_for_each_field_that_has_one():
    assert help_of(Example) == {
        "rate": "how fast it learns",
        "steps": "steps in a row",
        "bias": "added at the end",
        "sizes": "units of each layer",
        "limit": "largest norm; none for no limit",
        "kind": "activation of the layers",
        "options": "what the maker takes",
    }


def test_a_subclass_has_the_settings_of_its_base_and_its_own():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class More(Example):
        width: int = setting(2, "rows at once", 1, 8)

    assert list(help_of(More))[-2:] == ["options", "width"]
    with pytest.raises(ConfigError, match="width=9; it must be from 1 to 8"):
        More(width=9)
    with pytest.raises(ConfigError, match=r"rate=2\.0"):
        More(rate=2.0)
