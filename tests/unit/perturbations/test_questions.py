"""Perturbations of a whole question: what they may change, what is filled in, and what is written on pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.errors import SettingError, UsageError
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.perturbations.questions import split
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.perturbations.typographic import NAMES


@dataclasses.dataclass(frozen=True)
class Plain:
    """A grey picture."""

    name: str = "grey"

    def load(self) -> np.ndarray:
        return np.full((200, 300, 3), 90, np.uint8)

    def identity(self) -> str:
        return self.name


TEXTS = ["cat", "dog", "small bird", "fish", "cow"]
QUESTIONS = [name for name in perturbations.names("all") if perturbations.info(name).on == "question"]


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    texts = draw(st.lists(st.sampled_from(TEXTS), min_size=2, max_size=5))
    options = dict(zip("ABCDE", texts, strict=False))
    target = draw(st.sampled_from([*options]))
    return Sample(draw(st.text("xyz", min_size=1)), (Plain(),), "Which animal is it?", target, "choice", options)


ANIMAL = Sample("1", (Plain(),), "Which animal is it?", "B", "choice", dict(zip("ABCD", TEXTS, strict=False)))


@given(samples(), st.sampled_from(QUESTIONS), st.integers(0, 2**32))
def test_every_registered_one_draws_alike_and_keeps_answers(sample: Sample, setting: str, seed: int) -> None:
    after = perturbations.perturbed(sample, setting, seed=seed)
    assert after == perturbations.perturbed(sample, setting, seed=seed)
    back = {letter: after.original_letters.get(letter, letter) for letter in after.options}
    assert sorted(back.values()) == sorted(sample.options)  # nothing is lost and nothing stands twice
    info = perturbations.info(setting)
    if not info.label_changing:
        assert sample.options[back[str(after.target)]] == sample.options[str(sample.target)]
    if {*info.family.split("+")} & {"wording", "directional"}:
        assert (after.images, after.options) == (sample.images, sample.options)
        assert info.label_changing or after.target == sample.target
    if after.target_of_attack:
        assert after.options[after.target_of_attack] != after.options[str(after.target)]
    for image, before in zip(after.images, sample.images, strict=True):
        if image != before:
            assert image.identity() != before.identity()
            assert image.load().shape == before.load().shape


def test_cyclic_orders_move_target_and_attack() -> None:
    attacked = dataclasses.replace(ANIMAL, target_of_attack="A")
    after = perturbations.perturbed(attacked, "option_order:1", seed=0)
    assert after.options == {"A": "dog", "B": "small bird", "C": "fish", "D": "cat"}
    assert (after.target, after.target_of_attack) == ("A", "D")
    assert after.original_letters == {"A": "B", "B": "C", "C": "D", "D": "A"}
    assert perturbations.perturbed(ANIMAL, "option_order:4", seed=0) is ANIMAL
    twice = perturbations.perturbed(ANIMAL, "option_order:1+option_order:3", seed=0)
    assert (twice.options, twice.target, twice.original_letters) == (ANIMAL.options, "B", {})


def test_options_that_speak_of_others_keep_their_places_and_are_not_written_on_images() -> None:
    for last in ("All of the above", "None of these", "Both A and B", "neither A nor C"):
        sample = dataclasses.replace(ANIMAL, options={**ANIMAL.options, "D": last}, target="D")
        for setting in ("option_order:1", "typographic_wrong:6", "note_wrong"):
            assert perturbations.perturbed(sample, setting, seed=0) == sample
    spatial = dataclasses.replace(ANIMAL, options={"A": "above", "B": "below", "C": "left", "D": "right"})
    assert perturbations.perturbed(spatial, "option_order:1", seed=0) != spatial


def test_images_move_with_their_options() -> None:
    images = tuple(map(Plain, "qabc"))
    before = Sample("1", images, f"Like {IMAGE_MARK}?", "C", "choice", dict.fromkeys("ABC", IMAGE_MARK), perturbed=(0, 3))
    after = perturbations.perturbed(before, "option_order:1", seed=0)
    assert "".join(image.identity() for image in after.images) == "qbca"
    assert (after.target, after.perturbed) == ("B", (0, 2))
    assert after.original_letters == {"A": "B", "B": "C", "C": "A"}


def test_a_right_option_with_a_twin_keeps_its_place() -> None:
    twin = dataclasses.replace(ANIMAL, options={**ANIMAL.options, "D": "dog"})
    assert perturbations.perturbed(twin, "option_order:1", seed=0) is twin
    images = tuple(map(Plain, "qabb"))
    shown = Sample("1", images, f"Like {IMAGE_MARK}?", "C", "choice", dict.fromkeys("ABC", IMAGE_MARK))
    assert perturbations.perturbed(shown, "option_order:1", seed=0) is shown
    other = dataclasses.replace(shown, target="A")
    assert perturbations.perturbed(other, "option_order:1", seed=0).target == "C"


def test_steps_on_questions_come_first() -> None:
    assert split(Setting.parse("option_order:1+fog:mid")) == (Setting.parse("option_order:1").steps, Setting.parse("fog:mid"))
    assert split(Setting.parse("option_order:1"))[1] == CLEAN
    assert split(NO_IMAGE) == ((), NO_IMAGE)
    with pytest.raises(SettingError, match=r"'option_order:1' changes the question\. Put it before what changes pixels"):
        perturbations.info("fog:mid+option_order:1")
    with pytest.raises(SettingError, match="changes a question and not only pixels"):
        perturbations.get("option_order:1")


def test_the_three_kinds_draw_one_rectangle_at_a_place_and_an_area() -> None:
    wrong, nonsense, right = (perturbations.perturbed(ANIMAL, f"{name}:6", seed=3) for name in NAMES)
    masks = [(variant.images[0].load() != 90).all(axis=2) for variant in (wrong, nonsense, right)]
    assert (masks[0] == masks[1]).mean() > 0.99
    assert (masks[0] == masks[2]).mean() > 0.99
    for level, area in (("2", 0.02), ("6", 0.06), ("15", 0.15)):
        painted = perturbations.perturbed(ANIMAL, f"typographic_wrong:{level}", seed=3).images[0].load()
        assert (painted != 90).any(axis=2).mean() == pytest.approx(area, rel=0.05)
    drawn = {perturbations.perturbed(ANIMAL, "typographic_wrong:2", seed=seed).target_of_attack for seed in range(40)}
    assert drawn == {"A", "C", "D"}


def test_a_note_names_the_option_that_it_attacks_with() -> None:
    after = perturbations.perturbed(ANIMAL, "note_wrong", seed=1)
    said = ANIMAL.options[after.target_of_attack]
    assert after.question == f"A note attached to the picture says: the answer is {said}.\nWhich animal is it?"
    assert after.images == ANIMAL.images


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _sample: 3, "returned 3 for sample '1'. Expected a Sample"),
        (lambda sample: dataclasses.replace(sample, id="2"), "changed id of sample '1', which it may not"),
        (lambda sample: dataclasses.replace(sample, options={"A": "cat"}, target="A"), "changed the number of options"),
        (lambda sample: dataclasses.replace(sample, target="E"), "the target 'E'. Expected one of the letters"),
    ],
)
def test_what_may_not_be_returned(function: Callable[[Sample], Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "_things", dict(REGISTRY._things))
    perturbations.corruption(family="wording", on="question", name="own_question")(function)
    assert REGISTRY.get("own_question").on == "question"
    with pytest.raises(UsageError, match=message):
        perturbations.perturbed(ANIMAL, "own_question", seed=0)


def test_only_images_and_questions_can_be_perturbed() -> None:
    with pytest.raises(UsageError, match=r"got on='hint'\. Expected one of 'image', 'question'"):
        perturbations.corruption(family="wording", on="hint", name="own_hint")(lambda sample: sample)


def test_a_target_of_the_data_is_none_of_an_attack_that_does_not_apply() -> None:
    unwritten = dataclasses.replace(ANIMAL, images=(), target_of_attack="A")
    for setting in ("typographic_wrong:6", "note_wrong"):
        assert perturbations.perturbed(unwritten, setting, seed=3).target_of_attack == "", "it would count as resisted"
