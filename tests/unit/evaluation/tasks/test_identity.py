from __future__ import annotations

from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.evaluation.tasks.material import other_place

from .fakes import FakeCollection, cells_of, faces, whose, words


def matching(collection: FakeCollection, task: str = "matching", seed: int = 42) -> list[Sample]:
    return list(task_dataset(task, collection, words(), seed=seed).samples())


def strange_letter(sample: Sample) -> str:
    (place,) = (place for place, image in enumerate(sample.images) if whose(image) == "words")
    return "ABCD"[place - 1]


def spread(counts: Counter[str], names: str = "ABCD") -> int:
    found = [counts[name] for name in names]
    return max(found) - min(found)


def test_a_sample_shows_the_support_the_target_two_neighbours_and_one_of_the_other_domain() -> None:
    for sample in matching(faces()):
        support, *candidates = sample.images
        assert candidates["ABCD".index(str(sample.target))].identity() == support.identity()
        assert Counter(map(whose, candidates)) == {"faces": 1, "near": 2, "words": 1}
        assert sample.seeded_by == sample.group == sample.keys["entity"] == sample.id
        assert sample.keys["group"] in {"female", "male"}
        assert sample.chance == 0.25
        assert (sample.question + "".join(sample.options.values())).count("\ufffc") == 5


@given(count=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_each_letter_is_the_target_and_the_other_domain_equally_often_but_for_one(count: int, seed: int) -> None:
    samples = matching(faces(count=count), seed=seed)
    assert spread(Counter(str(sample.target) for sample in samples)) <= 1
    assert spread(Counter(map(strange_letter, samples))) <= 1


@given(count=st.integers(2, 40), seed=st.integers(0, 2**32))
def test_letters_are_balanced_in_each_group_too(count: int, seed: int) -> None:
    samples = matching(faces(count=count), seed=seed)
    for group in ("female", "male"):
        assert spread(Counter(str(sample.target) for sample in samples if sample.keys["group"] == group)) <= 1


def test_every_pair_of_places_is_taken_equally_often() -> None:
    pairs = Counter((str(sample.target), strange_letter(sample)) for sample in matching(faces(count=24)))
    assert len(pairs) == 12
    assert set(pairs.values()) == {2}


def test_the_nearest_neighbour_does_not_always_come_first() -> None:
    firsts = Counter(
        next(image.identity().split()[2] for image in sample.images[1:] if whose(image) == "near")
        for sample in matching(faces(count=60))
    )
    assert min(firsts["0"], firsts["1"]) >= 15


@given(st.integers(2, 30), st.integers(0, 1000))
def test_the_other_place_is_another_and_differs_by_target(count: int, turn: int) -> None:
    places = [other_place(target, turn, count) for target in range(count)]
    assert sorted(places) == list(range(count))
    assert all(place != target for target, place in enumerate(places))


def test_all_candidates_are_under_the_setting_and_the_support_is_not() -> None:
    sample = matching(faces())[0]
    assert sample.perturbed is not None
    assert sorted(sample.perturbed) == [1, 2, 3, 4]
    assert sample.perturbed[0] == 1 + "ABCD".index(str(sample.target))  # its draw is that of the other tasks
    clean, changed = (ViewMaker(1).view(sample, Setting.parse(name)).images for name in ("clean", "gaussian_blur:high"))
    assert [bool(np.array_equal(*pair)) for pair in zip(clean, changed, strict=True)] == [True, False, False, False, False]


def test_as_published_the_target_alone_is_under_the_setting() -> None:
    ours, published = matching(faces()), matching(faces(), "matching_published")
    for one, other in zip(ours, published, strict=True):
        assert other.perturbed == (1 + "ABCD".index(str(other.target)),)
        assert (one.id, one.question, one.target, one.options) == (other.id, other.question, other.target, other.options)
        assert [image.identity() for image in one.images] == [image.identity() for image in other.images]


def test_the_picture_of_the_other_domain_does_not_show_by_its_size() -> None:
    for sample in task_dataset("matching", faces(size=(120, 90)), words(size=(60, 60))).samples():
        assert {image.load().shape for image in sample.images} == {(90, 120, 3)}


@pytest.mark.parametrize("collection", [faces(), words()], ids=["faces", "words"])
def test_every_candidate_has_pixels_of_its_own(collection: FakeCollection) -> None:
    other = faces() if collection.domain == "word" else words()
    for sample in task_dataset("matching", collection, other).samples():
        assert len({image.load().tobytes() for image in sample.images[1:]}) == 4


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
