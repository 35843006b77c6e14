from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.evaluation.tasks.layout import other_place
from pytest_vlmrobust.evaluation.views import ViewMaker

from .fakes import FakeCollection, faces, whose, words


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
    assert sample.perturbed == (1, 2, 3, 4)
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
