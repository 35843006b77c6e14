from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import SettingError, UsageError
from pytest_vlmrobust.perturbations import corruption
from pytest_vlmrobust.perturbations.registry import REGISTRY, Numbered, aspects

Image = NDArray[np.uint8]
LEVELS: dict[str, Any] = {"low": {"amount": 1}, "mid": {"amount": 2}, "high": {"amount": 3}}


def shade(image: Image, *, amount: int) -> Image:
    """Darkens."""
    return image - np.minimum(image, amount).astype(np.uint8)


def grain(image: Image, rng: np.random.Generator, *, amount: int) -> Image:
    return image ^ rng.integers(0, amount + 1, image.shape, dtype=np.uint8)


def same(image: Image) -> Image:
    return image


def test_an_own_one_is_used_like_a_built_in_one() -> None:
    assert corruption(family="blur", **LEVELS, changes={"high": ["colour"]}, source="here", version=3)(shade) is shade
    facts = perturbations.info("shade:high")
    assert (facts.family, facts.category, facts.version, facts.stochastic) == ("blur", "Blur", 3, False)
    assert facts.label_changing == {"colour"}
    assert perturbations.info("shade:low").label_changing == frozenset()
    assert perturbations.fingerprint("shade:mid") == [{"name": "shade", "level": "mid", "params": {"amount": 2}, "version": 3}]
    assert perturbations.get("shade:mid")(np.full((2, 2, 3), 9, np.uint8), seed=1).max() == 7
    assert perturbations.names("all")[-3:] == ["shade:low", "shade:mid", "shade:high"]
    assert len(perturbations.names("robustbench")) == 133


def test_where_letters_cannot_be_read_smaller_ones_can_neither() -> None:
    corruption(family="blur", **LEVELS, changes={"low": ["text_12"], "mid": ["text_24", "colour"], "high": ["text"]})(shade)
    low, mid, high = (perturbations.info(f"shade:{level}").label_changing for level in LEVELS)
    assert low == {"text_12"}
    assert mid == {"colour", "text_12", "text_18", "text_24", "text"}
    assert high == {"text_12", "text_18", "text_24", "text_36", "text"}
    assert [aspects(tags) for tags in (low, mid, high)] == [["text up to 12 px"], ["colour", "text up to 24 px"], ["text"]]


def test_an_own_stochastic_one_gets_a_generator_of_its_setting() -> None:
    corruption(family="noise", **LEVELS, stochastic=True)(grain)
    picture = np.zeros((16, 16, 3), np.uint8)
    render = perturbations.get("grain:high")
    np.testing.assert_array_equal(render(picture, seed=1), render(picture, seed=1))
    assert (render(picture, seed=1) != render(picture, seed=2)).any()


def test_a_binary_one_takes_no_levels_and_may_have_another_name_and_family() -> None:
    corruption(family="mine", name="nothing_at_all")(same)
    facts = perturbations.info("nothing_at_all")
    assert (facts.level, facts.family, facts.category) == (None, "mine", "Mine")
    picture = np.ones((2, 2, 3), np.uint8)
    assert not np.shares_memory(perturbations.get("nothing_at_all")(picture, seed=1), picture)


def test_writing_into_the_input_fails_at_once() -> None:
    def careless(image: Image) -> Image:
        image[:] = 0
        return image

    corruption(family="mine")(careless)
    with pytest.raises(ValueError, match="read-only"):
        perturbations.get("careless")(np.ones((2, 2, 3), np.uint8), seed=1)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (np.zeros((2, 2, 3)), r"float64 of shape \(2, 2, 3\)"),
        (np.zeros((2, 2), np.uint8), r"uint8 of shape \(2, 2\)"),
        (np.zeros((0, 2, 3), np.uint8), r"uint8 of shape \(0, 2, 3\)"),
        (None, "NoneType"),
    ],
)
def test_a_result_that_is_no_picture_is_refused(result: object, problem: str) -> None:
    corruption(family="mine", name="wrong")(lambda image: result)
    with pytest.raises(UsageError, match=rf"perturbation 'wrong' returned {problem}. Expected uint8 of shape \(H, W, 3\)"):
        perturbations.get("wrong")(np.ones((2, 2, 3), np.uint8), seed=1)


@pytest.mark.cases(
    ("function", "arguments", "message"),
    [
        (shade, {"low": {"amount": 1}}, "perturbation 'shade' lacks mid, high. Give low, mid and high, or none"),
        (shade, {}, r"called as shade\(image\).* missing a required argument: 'amount'"),
        (shade, {**LEVELS, "mid": {"sigma": 2}}, r"'shade' at level mid is called as shade\(image, sigma=2\)"),
        (shade, {**LEVELS, "stochastic": True}, r"at level low is called as shade\(image, rng, amount=1\).*too many positional"),
        (grain, LEVELS, r"called as grain\(image, amount=1\).*missing a required argument: 'rng'"),
        (
            same,
            {"changes": ["color"]},
            r"'same': changes names 'color'. Did you mean 'colour'\? Expected tags among colour, count",
        ),
        (same, {"changes": {"low": ["colour"]}}, "'same': changes names 'low'"),
        (shade, {**LEVELS, "levels": {"dusk": {"amount": 1}}}, "'shade': levels= takes the place of low, mid and high"),
        (shade, {"levels": {}}, "'shade': levels= takes the place of low, mid and high, and names at least one"),
        (shade, {"levels": {"Dusk": {"amount": 1}}}, "'shade': level 'Dusk' could not be written. Expected a-z"),
        (
            shade,
            {**LEVELS, "mid": {"amount": np.float32(2)}},
            r"'shade': amount is .* of type float32\. Expected an int, a float",
        ),
        (same, {"version": 0}, "'same': got version=0. Expected a whole number of at least 1"),
        (same, {"version": "2"}, "'same': got version='2'. Expected a whole number of at least 1"),
        (functools.partial(shade, amount=1), {}, r"a perturbation has no name: functools.partial.* is no function. Say name="),
        (same, {"name": "Fog-2"}, "'Fog-2' could not be written in a setting"),
        (same, {"name": "fog:low"}, "'fog:low' could not be written in a setting"),
        (same, {"name": "clean"}, "'clean': the name is reserved"),
        (same, {"name": "fog"}, "perturbation 'fog' is registered already by pytest_vlmrobust.perturbations.weather.fog"),
        (same, {"name": "fog", "replace": True}, "'fog' is built in, and its published results mean these pixels"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(function: Callable[..., Any], arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        corruption(family="mine", **arguments)(function)


def test_levels_may_have_names_of_their_own_and_whole_numbers() -> None:
    tone: dict[str, Any] = {
        "levels": {"dusk": {"amount": 1}, "dawn.2": {"amount": 2}},
        "numbered": Numbered("amount", 3, 5, "grey levels"),
    }
    corruption(family="mine", **tone, changes={"dusk": ["colour"]})(shade)
    assert perturbations.names("all")[-2:] == ["shade:dusk", "shade:dawn.2"]
    assert perturbations.get("shade:4")(np.full((1, 1, 3), 9, np.uint8), seed=1).max() == 5
    assert perturbations.info("shade:dawn.2").label_changing == frozenset()
    assert perturbations.info("shade:4").label_changing == {"colour"}
    for level in ("6", "2", "04", "dark", "4" * 5000):
        with pytest.raises(
            SettingError, match=rf"no level '{level}'\. Expected 'shade:N' with a whole number N from 3 to 5 grey"
        ):
            perturbations.get(f"shade:{level}")


def test_several_parameters_are_given_as_numbers_in_their_order() -> None:
    @corruption(
        family="mine",
        low={"amount": 1, "shift": 0.5, "colour": "red"},
        mid={"amount": 3, "shift": 0.5, "colour": "red"},
        high={"amount": 5, "shift": -2.5, "colour": "red"},
    )
    def tilt(image: Image, *, amount: int, shift: float, colour: str) -> Image:
        assert (type(amount), type(shift), colour) == (int, float, "red")
        return image + np.uint8(amount) + np.uint8(shift * 10)

    assert perturbations.get("tilt:amount=2,shift=0.3")(np.zeros((1, 1, 3), np.uint8), seed=1).max() == 5
    for level in ("amount=2", "shift=0.3,amount=2"):
        with pytest.raises(SettingError, match=r"not amount, shift in this order\. Expected 'tilt:amount=N,shift=N' with amount"):
            perturbations.get(f"tilt:{level}")
    with pytest.raises(SettingError, match=r"with amount from 1 to 5 and shift from -2\.5 to 0\.5"):
        perturbations.get("tilt:amount=2,shift=0.6")


def split(image: Image, *, amount: int) -> Image:
    """Repeats."""
    return np.stack([image] * amount)


def test_a_perturbation_may_make_several_pictures() -> None:
    corruption(family="mine", **LEVELS, views=lambda amount: amount)(split)
    assert [perturbations.info(f"split:{level}").views for level in ("low", "mid", "high")] == [1, 2, 3]
    assert perturbations.get("flip_h+split:high")(np.zeros((4, 5, 3), np.uint8), seed=1).shape == (3, 4, 5, 3)


def test_several_pictures_are_refused_where_none_were_announced() -> None:
    corruption(family="mine", **LEVELS)(split)
    with pytest.raises(
        UsageError, match=r"'split:low' returned uint8 of shape \(1, 4, 5, 3\)\. Expected uint8 of shape \(H, W, 3\)"
    ):
        perturbations.get("split:low")(np.zeros((4, 5, 3), np.uint8), seed=1)


def test_another_number_of_pictures_than_announced_is_refused() -> None:
    corruption(family="mine", **LEVELS, views=lambda amount: amount + 1)(split)
    with pytest.raises(UsageError, match=r"'split:mid' returned 2 images, and its views= announces 3\. Make the two agree"):
        perturbations.get("split:mid")(np.zeros((4, 5, 3), np.uint8), seed=1)


def test_another_size_is_refused_unless_declared() -> None:
    corruption(family="mine", name="cropped")(lambda image: image[:2])
    message = r"'cropped' returned an image of 5 x 2 pixels for one of 5 x 4, .*Register it with keeps_size=False"
    with pytest.raises(UsageError, match=message):
        perturbations.get("flip_h+cropped")(np.zeros((4, 5, 3), np.uint8), seed=1)
    corruption(family="mine", name="cropped", keeps_size=False, replace=True)(lambda image: image[:2])
    assert perturbations.get("flip_h+cropped")(np.zeros((4, 5, 3), np.uint8), seed=1).shape == (2, 5, 3)


def test_what_is_called_may_be_an_object() -> None:
    corruption(family="mine", name="darker")(functools.partial(shade, amount=2))
    assert perturbations.get("darker")(np.full((1, 1, 3), 9, np.uint8), seed=1).max() == 7
    with pytest.raises(UsageError, match=r"'darker' is registered already by functools\.partial"):
        corruption(family="mine", name="darker")(functools.partial(shade, amount=3))


def test_a_note_says_what_could_not_be_done_at_the_size_a_step_meets() -> None:
    corruption(family="mine", **LEVELS, note=lambda height, width, amount: f"{height}x{width}" if amount == 2 else "")(shade)
    picture = np.zeros((4, 5, 3), np.uint8)
    assert perturbations.get("shade:low").render(picture, seed=1).notes == ()
    rendering = perturbations.get("shade:mid+add_border:low+shade:mid").render(picture, seed=1)
    assert rendering.notes == ("shade:mid: 4x5", "shade:mid: 24x25")


def test_an_own_one_can_be_registered_again_only_when_asked() -> None:
    corruption(family="mine")(same)
    with pytest.raises(UsageError, match=r"'same' is registered already by .*test_registry.same. .*pass replace=True"):
        corruption(family="mine")(same)
    for version in range(2, 40):  # the place in memory of an earlier one is used again
        corruption(family="mine", version=version, replace=True)(same)
        assert perturbations.info("same").version == version


def test_an_entry_point_may_lead_to_a_decorated_function(monkeypatch: pytest.MonkeyPatch) -> None:
    corruption(family="mine")(same)
    del REGISTRY._things["same"]
    monkeypatch.setattr(EntryPoint, "load", lambda self: same)
    REGISTRY._entry_points = {"same": EntryPoint("same", "package:same", "pytest_vlmrobust.perturbations")}
    assert REGISTRY.get("same").family == "mine"
    assert REGISTRY.loaded_things()["same"].family == "mine", "whoever reads the loaded things gets records"
    assert "same" in perturbations.names("all")


def test_an_entry_point_to_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntryPoint, "load", lambda self: 3)
    REGISTRY._entry_points = {"three": EntryPoint("three", "package:three", "pytest_vlmrobust.perturbations")}
    message = r"perturbation 'three' of an installed package: its entry point leads to 3\. .*set PYTEST_VLMROBUST_NO_PLUGINS=1"
    with pytest.raises(UsageError, match=message):
        perturbations.get("three")
