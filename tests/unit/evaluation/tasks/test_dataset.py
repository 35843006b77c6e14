from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import DatasetError, UnknownName
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import sampling
from pytest_vlmrobust.datasets.protocol import Dataset, Entity
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.evaluation.tasks import TASKS, TaskDataset, task_dataset
from pytest_vlmrobust.evaluation.tasks.dataset import other_place
from pytest_vlmrobust.evaluation.tasks.pictures import Moved

from .fakes import FACE_BOXES, FakeCollection, cells_of, faces, whose, words

HERE = Path(__file__).parent


def facts(sample: Sample) -> list[object]:
    """Returns what a sample shows, asks and takes for right."""
    shown = [image.identity() for image in sample.images]
    return [sample.id, shown, sample.question, dict(sample.options), sample.target, dict(sample.keys)]


def digest_of_samples(dataset: Dataset) -> str:
    return fingerprint(sorted((facts(sample) for sample in dataset.samples()), key=str))


def test_the_names_of_tasks() -> None:
    assert list(TASKS) == [
        "matching",
        "matching_published",
        "pointing",
        "pointing_3x3",
        "pointing_4x4",
        "guided",
        "semi_guided",
        "unguided",
        "guided_published",
        "semi_guided_published",
    ]


def test_a_misspelt_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown task 'semiguided'\. Did you mean 'semi_guided'\? Known: guided, guided_published, m"
    ):
        task_dataset("semiguided", faces(), words())


def test_a_smaller_data_set_has_whole_identities_the_same_for_every_task() -> None:
    taken = {
        task: list(sampling.chosen(task_dataset(task, faces(), words()), "50%")) for task in ("matching", "pointing", "guided")
    }
    assert [len(samples) for samples in taken.values()] == [6, 24, 6]
    assert len({frozenset(sample.group for sample in samples) for samples in taken.values()}) == 1
    assert Counter(sample.category for sample in taken["pointing"]) == {"female": 12, "male": 12}


def test_a_number_of_samples_is_one_of_identities_the_same_for_every_task() -> None:
    tasks = ("matching", "pointing", "guided")
    taken = {task: list(sampling.chosen(task_dataset(task, faces(), words()), "6")) for task in tasks}
    assert [len(samples) for samples in taken.values()] == [6, 24, 6]
    assert len({frozenset(sample.group for sample in samples) for samples in taken.values()}) == 1
    assert set(Counter(sample.keys["position"] for sample in taken["pointing"]).values()) == {6}
    assert all(count == 4 for count in Counter(sample.group for sample in taken["pointing"]).values())


@pytest.mark.parametrize("count", ["8", "12", "17", "50%"])
def test_letters_are_balanced_in_a_smaller_data_set_too(count: str) -> None:
    """In each group they differ by one at most."""
    samples = sampling.chosen(task_dataset("matching", faces(count=40), words()), count)
    for group in ("female", "male"):
        targets = [sample.target for sample in samples if sample.category == group]
        counts = [targets.count(letter) for letter in "ABCD"]
        assert max(counts) - min(counts) <= 1


@pytest.mark.cases("task", TASKS)
def test_it_is_a_data_set_whose_samples_are_made_once(task: str) -> None:
    made: Dataset = task_dataset(task, faces(), words(), id_prefix="f-")
    assert isinstance(made, TaskDataset)
    assert (made.name, made.task) == (f"faces.{task}", task)
    assert made.samples() is made.samples()
    ids = [sample.id for sample in made.samples()]
    assert len(set(ids)) == len(ids)
    assert all(name.startswith("f-faces-") for name in ids)


@pytest.mark.cases("task", TASKS)
def test_the_order_of_the_identities_does_not_matter(task: str) -> None:
    straight, turned = task_dataset(task, faces(), words()), task_dataset(task, faces(turned=5), words(turned=7))
    assert digest_of_samples(straight) == digest_of_samples(turned)
    assert [sample.group for sample in straight.samples()] != [sample.group for sample in turned.samples()]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_makes_the_same_samples(hash_seed: str) -> None:
    program = (
        "import fakes\n"
        "from pytest_vlmrobust.core.fingerprint import fingerprint\n"
        "from pytest_vlmrobust.evaluation.tasks import TASKS, task_dataset\n"
        "for task in TASKS:\n"
        "    made = task_dataset(task, fakes.faces(), fakes.words()).samples()\n"
        "    print(fingerprint([[s.id, [i.identity() for i in s.images], dict(s.options), s.target] for s in made]))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    here = [
        fingerprint(
            [
                [sample.id, [image.identity() for image in sample.images], dict(sample.options), sample.target]
                for sample in task_dataset(task, faces(), words()).samples()
            ]
        )
        for task in TASKS
    ]
    assert done.stdout.split() == here


def test_another_seed_makes_other_samples() -> None:
    for task in ("matching", "pointing"):
        first, second = (task_dataset(task, faces(), words(), seed=seed) for seed in (1, 2))
        assert digest_of_samples(first) != digest_of_samples(second)
        assert first.digest != second.digest


def test_the_digest_follows_task_seed_prefix_and_both_collections() -> None:
    base = task_dataset("matching", faces(), words())
    others = [
        dataclasses.replace(base, task="pointing"),
        dataclasses.replace(base, seed=1),
        dataclasses.replace(base, id_prefix="x"),
        dataclasses.replace(base, collection=faces(count=13)),
        dataclasses.replace(base, other=words(count=13)),
    ]
    assert base.digest == task_dataset("matching", faces(), words()).digest
    assert len({base.digest, *(other.digest for other in others)}) == 6


@pytest.mark.cases(
    ("task", "edge", "native"),
    [
        ("matching", 160, 160),
        ("guided", None, None),
        ("pointing", 160, None),
        ("pointing", 1024, 1024),
        ("pointing_3x3", 1024, None),
        ("pointing", None, None),
    ],
)
def test_the_long_edge_is_known_where_a_collage_has_that_of_the_pictures(task: str, edge: int | None, native: int | None) -> None:
    collection = faces(native_long_edge=edge, size=(edge or 100, edge or 100))
    assert task_dataset(task, collection, words()).native_long_edge == native


def test_strata_are_categories_and_else_groups() -> None:
    assert {sample.category for sample in task_dataset("matching", faces(), words()).samples()} == {"female", "male"}
    assert {sample.category for sample in task_dataset("matching", words(), faces()).samples()} == {""}
    assert all("group" not in sample.keys for sample in task_dataset("matching", words(), faces()).samples())


TOO_FEW = (
    "faces.pointing_4x4: 14 near neighbours are shown beside the target, and 'faces' has 8 identities. Add images of others "
    "until it has 15"
)
ONE_DOMAIN = (
    "faces.matching: one candidate comes from another domain, and 'people' is of the same one, 'face'. "
    "Pass a collection of another domain"
)
EMPTY = "faces.pointing: the collection 'words', from which one candidate comes, is empty"
DUPLICATE = (
    "faces.matching: two of the 4 candidates for 'faces-0000' are one and the same image, so that the right answer "
    "cannot be told. Remove the duplicate from the collection"
)


@pytest.mark.parametrize(
    ("task", "collection", "other", "message"),
    [
        ("pointing_4x4", faces(most_neighbours=7), words(), TOO_FEW),
        ("matching", faces(), faces(name="people"), ONE_DOMAIN),
        ("pointing", faces(), words(count=0), EMPTY),
        ("matching", faces(same=True), words(), DUPLICATE),
    ],
    ids=["too_few", "one_domain", "empty", "duplicate"],
)
def test_what_a_collection_lacks_is_said(task: str, collection: FakeCollection, other: FakeCollection, message: str) -> None:
    with pytest.raises(DatasetError) as error:
        task_dataset(task, collection, other).samples()
    assert str(error.value) == message


def test_a_collection_that_gives_too_few_neighbours_without_a_word_is_refused() -> None:
    class Mean(FakeCollection):
        def neighbours(self, entity, count):  # type: ignore[no-untyped-def]
            return super().neighbours(entity, count)[:1]

    with pytest.raises(DatasetError, match="2 near neighbours of 'faces-0000' are needed, and the collection gave 1"):
        task_dataset("matching", Mean(), words()).samples()


def test_a_collection_that_refuses_neighbours_says_why() -> None:
    class Poor(FakeCollection):
        def neighbours(self, entity, count):  # type: ignore[no-untyped-def]
            raise DatasetError(f"there are no {count} others of {entity.id}")

    expected = (
        "faces.pointing: 2 near neighbours of 'faces-0000' are needed, and there are no 2 others of faces-0000. Add identities "
        "to the collection, or ask for a task with fewer candidates"
    )
    with pytest.raises(DatasetError) as caught:
        task_dataset("pointing", Poor(), words()).samples()
    assert str(caught.value) == expected


def test_localisation_needs_nothing_of_the_other_domain() -> None:
    assert len(task_dataset("guided", faces(), words(count=0)).samples()) == 12


def matching(collection: FakeCollection, task: str = "matching", seed: int = 42) -> list[Sample]:
    return list(task_dataset(task, collection, words(), seed=seed).samples())


def strange_letter(sample: Sample) -> str:
    (place,) = (place for place, image in enumerate(sample.images) if whose(image) == "words")
    return "ABCD"[place - 1]


def spread(counts: Counter[str], names: str = "ABCD") -> int:
    numbers = [counts[name] for name in names]
    return max(numbers) - min(numbers)


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
    for sample, other in zip(ours, published, strict=True):
        assert other.perturbed == (1 + "ABCD".index(str(other.target)),)
        assert (sample.id, sample.question, sample.target, sample.options) == (
            other.id,
            other.question,
            other.target,
            other.options,
        )
        assert [image.identity() for image in sample.images] == [image.identity() for image in other.images]


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
    return [list(group) for _, group in groupby(samples, key=lambda sample: sample.group)]


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
        max(counts) - min(counts) <= 1
        for position in samples[0].options.values()
        for counts in [[n for (at, _), n in beside.items() if at == position]]
        if len(counts) == 3
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


MOVED = ("guided", "semi_guided", "unguided")
PUBLISHED = ("guided_published", "semi_guided_published")
BOX_TASKS = (*MOVED, *PUBLISHED)


def samples_of(task: str, collection: FakeCollection) -> list[Sample]:
    return list(task_dataset(task, collection, words()).samples())


def told_and_asked(task: str, collection: FakeCollection) -> tuple[dict[str, object], dict[str, object]]:
    about = samples_of(task, collection)[0].localisation
    assert about is not None
    return dict(about.given), dict(about.boxes)


Told = tuple[dict[str, object], dict[str, object]]
REST = {name: box for name, box in FACE_BOXES.items() if name != "nose"}
WORD = {"word": (12.0, 70.0, 148.0, 101.0)}
CORNER = {"corner": (12.0, 70.0, 12.0, 70.0)}


@pytest.mark.parametrize(
    ("task", "of_face", "of_word"),
    [
        ("guided", (FACE_BOXES, FACE_BOXES), (WORD, WORD)),
        ("semi_guided", ({"nose": FACE_BOXES["nose"]}, REST), (CORNER, WORD)),
        ("unguided", ({}, REST), ({}, WORD)),
    ],
)
def test_what_is_told_and_what_is_asked(task: str, of_face: Told, of_word: Told) -> None:
    for collection, (hints, targets) in ((faces(), of_face), (words(), of_word)):
        given, wanted = told_and_asked(task, collection)
        assert list(given) == list(hints)
        assert (given == hints) == (task != "semi_guided")  # the hint is told where the query has it
        assert list(wanted) == list(targets)
        assert wanted != targets
        if f"{task}_published" in PUBLISHED:
            assert told_and_asked(f"{task}_published", collection) == (hints, targets)


def test_the_hint_is_where_the_query_has_it_and_everything_else_is_told_of_the_support() -> None:
    hinted, whole = samples_of("semi_guided", faces())[0], samples_of("guided", faces())[0]
    assert hinted.localisation is not None
    assert whole.localisation is not None
    assert hinted.localisation.given["nose"] == whole.localisation.boxes["nose"]
    assert (hinted.localisation.given_in, whole.localisation.given_in) == (1, 0)


@pytest.mark.cases("task", BOX_TASKS)
def test_the_query_is_under_the_setting_and_the_support_is_not(task: str) -> None:
    for sample in samples_of(task, faces()):
        assert sample.perturbed == (1,)
        assert (sample.images[0].identity() == sample.images[1].identity()) == (task in PUBLISHED)
        assert (sample.task, sample.scorer, sample.seeded_by, sample.group) == ("boxes", "boxes", sample.id, sample.id)
        assert sample.localisation is not None
        assert sample.localisation.size == (160, 160)
    support, query = ViewMaker(1).view(samples_of(task, faces())[0], Setting.parse("gaussian_blur:high")).images
    assert not np.array_equal(support, query)


def test_tasks_with_and_without_a_hint_have_the_same_ids() -> None:
    ids = [[sample.id for sample in samples_of(task, faces())] for task in BOX_TASKS]
    assert all(other == ids[0] for other in ids)


def test_the_move_is_one_for_all_tasks_and_another_for_each_identity_and_seed() -> None:
    made = {task: samples_of(task, faces()) for task in MOVED}
    queries = [[sample.images[1].identity() for sample in samples] for samples in made.values()]
    assert queries[0] == queries[1] == queries[2]
    moves = {query.move for sample in made["guided"] if isinstance(query := sample.images[1], Moved)}
    assert len(moves) == len(made["guided"])
    other = task_dataset("guided", faces(), words(), seed=1).samples()
    assert other[0].images[1].identity() != queries[0][0]


def test_what_moves_things_makes_other_boxes_right_and_what_blurs_them_does_not() -> None:
    changed = samples_of("guided", faces())[0].changed_by
    assert {"left_right", "up_down", "position", "rotate", "shear", "elastic_transform"} <= changed
    assert not {"gaussian_blur", "colour", "pixelate", "jpeg_compression"} & changed


@pytest.mark.cases("task", BOX_TASKS)
def test_nothing_is_asked_where_nobody_has_boxes(task: str) -> None:
    made = task_dataset(task, faces(boxes={}), words())
    assert made.lacking == (
        f"faces.{task}: boxes are asked for, and none of 12 identities has them (the first, 'faces-0000', has no boxes). Give "
        "them in the collection's annotations. Matching and pointing need no boxes"
    )
    assert made.notes == ()
    with pytest.raises(DatasetError) as error:
        made.samples()
    assert str(error.value) == made.lacking


@pytest.mark.cases("task", BOX_TASKS)
def test_who_has_no_boxes_is_left_out_and_counted(task: str) -> None:
    class Some(FakeCollection):
        def entities(self) -> list[Entity]:
            return [replace(entity, boxes=FACE_BOXES if place % 3 else {}) for place, entity in enumerate(super().entities())]

    some, everyone = task_dataset(task, Some(), words()), task_dataset(task, faces(), words())
    assert list(some.samples()) == [sample for place, sample in enumerate(everyone.samples()) if place % 3]
    assert some.lacking == ""
    (note,) = some.notes
    assert note == (
        "faces: 4 of 12 identities are left out where boxes are asked for (the first, 'faces-0000', has no boxes). Give them in "
        "the collection's annotations"
    )
    assert everyone.notes == task_dataset("matching", Some(), words()).notes == ()


@pytest.mark.parametrize("task", ["semi_guided", "unguided"])
def test_the_hint_has_to_be_known_and_not_be_everything(task: str) -> None:
    with pytest.raises(DatasetError, match="has no box of 'nose', only of 'left_eye', 'mouth', 'right_eye'"):
        samples_of(task, faces(boxes=REST))
    with pytest.raises(DatasetError, match="has a box of 'nose' and no other: nothing is left to ask for"):
        samples_of(task, faces(boxes={"nose": FACE_BOXES["nose"]}))


def test_guided_needs_no_hint() -> None:
    assert told_and_asked("guided_published", faces(boxes=REST)) == (REST, REST)
    assert told_and_asked("guided", faces(boxes=REST))[0] == REST
