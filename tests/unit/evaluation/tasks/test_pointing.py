from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.tasks import task_dataset

from .fakes import cells_of, faces, whose, words

SIDES = {"pointing": 2, "pointing_3x3": 3, "pointing_4x4": 4}


def pointing(task: str = "pointing", count: int = 12, seed: int = 42) -> list[Sample]:
    return list(task_dataset(task, faces(count=count), words(), seed=seed).samples())


def strange_cell(sample: Sample) -> int:
    (cell,) = (cell for cell, part in enumerate(cells_of(sample)) if whose(part) == "words")
    return cell


def by_entity(samples: list[Sample]) -> list[list[Sample]]:
    return [list(found) for _, found in groupby(samples, key=lambda sample: sample.group)]


@pytest.mark.parametrize(("task", "side"), SIDES.items())
def test_the_cell_that_the_target_letter_stands_for_holds_the_support(task: str, side: int) -> None:
    for sample in pointing(task):
        position = sample.options[str(sample.target)]
        row, column = map(int, position.strip("[]").split(","))
        assert cells_of(sample)[row * side + column].identity() == sample.images[0].identity()
        assert sample.keys["position"] == position
        assert sample.chance == 1 / side**2
        assert Counter(map(whose, cells_of(sample))) == {"faces": 1, "near": side**2 - 2, "words": 1}


@pytest.mark.parametrize(("task", "side"), SIDES.items())
def test_every_identity_is_asked_about_with_the_target_in_each_cell(task: str, side: int) -> None:
    for samples in by_entity(pointing(task)):
        everywhere = {f"[{row},{column}]" for row in range(side) for column in range(side)}
        assert [sample.keys["position"] for sample in samples] == sorted(everywhere)
        assert all(set(sample.options.values()) == everywhere for sample in samples)
        assert len({str(sample.target) for sample in samples}) == side**2
        assert len({strange_cell(sample) for sample in samples}) == side**2


@given(st.sampled_from([("pointing", 2), ("pointing_3x3", 3)]), st.integers(1, 20), st.integers(0, 2**32))
def test_letters_and_cells_are_balanced_against_each_other(task: tuple[str, int], count: int, seed: int) -> None:
    name, side = task
    samples = pointing(name, count, seed)
    pairs = Counter((str(sample.target), sample.keys["position"]) for sample in samples)
    every = [pairs[letter, position] for letter in samples[0].options for position in samples[0].options.values()]
    assert len(every) == side**4
    assert max(every) - min(every) <= 1


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_the_place_of_the_other_domain_beside_the_target_is_balanced(count: int, seed: int) -> None:
    samples = pointing(count=count, seed=seed)
    beside = Counter((sample.keys["position"], strange_cell(sample)) for sample in samples)
    assert all(
        max(found) - min(found) <= 1
        for position in samples[0].options.values()
        for found in [[n for (at, _), n in beside.items() if at == position]]
        if len(found) == 3
    )
    assert len(beside) == 4 * min(count, 3)


def test_a_model_that_always_gives_one_letter_always_gives_one_cell_of_an_identity() -> None:
    for samples in by_entity(pointing()):
        for letter in "ABCD":
            assert len({sample.options[letter] for sample in samples}) == 1


def test_neighbours_are_shuffled_anew_for_every_placement() -> None:
    orders = [
        [part.identity() for part in cells_of(sample) if whose(part) == "near"]
        for sample in pointing("pointing_3x3")
        if sample.group == "faces-0003"
    ]
    assert len(orders) == 9
    assert len({tuple(order) for order in orders}) >= 8
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_the_support_is_under_the_setting_and_the_collage_is_not() -> None:
    assert {sample.perturbed for sample in pointing()} == {(0,)}
    assert {sample.seeded_by for sample in pointing()} == {f"faces-{number:04d}" for number in range(12)}


def test_ids_are_unique_and_name_the_cell() -> None:
    ids = [sample.id for sample in pointing("pointing_3x3")]
    assert len(set(ids)) == 12 * 9
    assert ids[:3] == ["faces-0000-r0c0", "faces-0000-r0c1", "faces-0000-r0c2"]
