"""Drawn faces: what is drawn where, and whether anything but the picture tells who is meant."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import datasets
from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import pixels_digest, rng_for
from pytest_vlmrobust.demo.faces import FaceCollection, PortraitImage
from pytest_vlmrobust.demo.painting import Canvas
from pytest_vlmrobust.demo.portrait_drawing import _placings, draw_portrait, feature_shapes, portrait_boxes
from pytest_vlmrobust.demo.portraits import (
    BOLD,
    CHOICES,
    FAMILY,
    GROUPS,
    TONES,
    VARIED,
    Portrait,
    families,
    random_portrait,
    relatives,
)

FEATURES = ("left_eye", "right_eye", "nose", "mouth")
COUNT = 24


@pytest.fixture(scope="module")
def faces() -> FaceCollection:
    return FaceCollection("faces_160", side=160, count=COUNT)


def somebody(seed: int = 0, group: str = "light", **changes: Any) -> Portrait:
    """A portrait whose features nothing covers."""
    plain: dict[str, Any] = {"hair": "buzz", "beard": "none", "glasses": "none", "detail": "none", "ears": "plain"}
    return replace(random_portrait(rng_for(seed, "somebody"), group), **(plain | changes))


def extent(ink: NDArray[np.bool_]) -> Box:
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def first_families(count: int, *, evaluation: bool) -> Iterator[tuple[Portrait, ...]]:
    return islice(families(rng_for(5, "families"), evaluation=evaluation), count)


# what is drawn


@pytest.mark.parametrize("side", [80, 160, 333, 1024])
def test_pictures_are_square_and_rgb(side: int) -> None:
    picture = draw_portrait(somebody(), side)
    assert picture.shape == (side, side, 3)
    assert picture.dtype == np.uint8


@pytest.mark.cases("feature", [*CHOICES, "tone"])
def test_each_choice_makes_another_picture(feature: str) -> None:
    values = [tone for tones in TONES.values() for tone in tones] if feature == "tone" else list(CHOICES[feature])
    changes: list[dict[str, Any]] = [{feature: value} for value in values]
    pictures = [draw_portrait(somebody(**change), 160) for change in changes]
    assert len({pixels_digest(picture) for picture in pictures}) == len(values)
    # to be seen, not only there
    assert all(np.abs(first.astype(int) - second).max() > 15 for first, second in pairwise(pictures))


@pytest.mark.parametrize("side", [80, 160, 1024])
@pytest.mark.parametrize("seed", range(6))
def test_boxes_hold_exactly_the_ink(side: int, seed: int) -> None:
    portrait = random_portrait(rng_for(seed, "ink"), GROUPS[seed % 2])
    boxes = portrait_boxes(portrait, side)
    for name in FEATURES:
        canvas = Canvas(np.full((side, side, 3), (0, 255, 0), np.uint8))
        canvas.paint(feature_shapes(portrait)[name], _placings(portrait, side)[1])
        ink = cv2.absdiff(canvas.pixels, np.full_like(canvas.pixels, (0, 255, 0))).max(axis=2) > 80
        assert np.abs(np.subtract(extent(ink), boxes[name])).max() <= 1, name


@pytest.mark.parametrize(("feature", "boxed"), [("mouth", "mouth"), ("nose", "nose")])
@pytest.mark.parametrize("side", [160, 1024])
def test_another_feature_changes_the_picture_inside_its_box_and_nowhere_else(feature: str, boxed: str, side: int) -> None:
    for first, second in pairwise(somebody(3, "dark", **{feature: value}) for value in CHOICES[feature]):
        changed = (draw_portrait(first, side) != draw_portrait(second, side)).any(axis=2)
        boxes = np.array([portrait_boxes(portrait, side)[boxed] for portrait in (first, second)])
        left, top, right, bottom = extent(changed)
        assert left >= boxes[:, 0].min() - 1
        assert top >= boxes[:, 1].min() - 1
        assert right <= boxes[:, 2].max() + 1
        assert bottom <= boxes[:, 3].max() + 1
        assert changed.sum() > 0.1 * (boxes[0, 2] - boxes[0, 0]) * (boxes[0, 3] - boxes[0, 1])


def test_left_and_right_are_the_viewers() -> None:
    boxes = portrait_boxes(somebody(), 160)
    assert tuple(boxes) == FEATURES
    assert boxes["left_eye"][2] < boxes["nose"][2]
    assert boxes["left_eye"][2] < boxes["right_eye"][0]
    assert boxes["left_eye"][3] < boxes["mouth"][1]


def test_nobody_who_wears_a_headscarf_has_a_beard() -> None:
    rng = rng_for(0, "scarves")
    drawn = [random_portrait(rng, "light") for _ in range(400)]
    drawn += [member for family in first_families(60, evaluation=False) for member in family]
    worn = [portrait for portrait in drawn if portrait.hair == "headscarf"]
    assert worn
    assert {portrait.beard for portrait in worn} == {"none"}


# the collection


def test_both_sizes_are_registered() -> None:
    for name, side, count in (("faces", 1024, 100), ("faces_160", 160, 24)):
        collection = datasets.COLLECTIONS.get(name)()
        assert (collection.name, collection.domain, collection.hinted) == (name, "face", "nose")
        assert collection.native_long_edge == side
        assert len(collection.entities()) == count


def test_entities_are_distinct_people_with_boxes_inside_the_picture(faces: FaceCollection) -> None:
    entities = faces.entities()
    assert len({entity.id for entity in entities}) == COUNT
    for entity in entities:
        assert entity.size == (160, 160)
        assert entity.image.load().shape == (160, 160, 3)
        assert tuple(entity.boxes) == FEATURES
        for left, top, right, bottom in entity.boxes.values():
            assert 0 <= left < right <= 160
            assert 0 <= top < bottom <= 160


def test_groups_are_balanced(faces: FaceCollection) -> None:
    assert Counter(entity.group for entity in faces.entities()) == {"light": COUNT // 2, "dark": COUNT // 2}


def test_the_tone_of_a_group_is_seen(faces: FaceCollection) -> None:
    brightness: dict[str, list[float]] = {group: [] for group in GROUPS}
    for entity in faces.entities():
        left, top, right, bottom = (int(edge) for edge in entity.boxes["nose"])
        brightness[entity.group].append(float(entity.image.load()[top:bottom, left:right].mean()))
    assert min(brightness["light"]) > max(brightness["dark"])


def test_no_box_stands_at_one_place_for_all(faces: FaceCollection) -> None:
    for name in FEATURES:
        spread = np.ptp([entity.boxes[name] for entity in faces.entities()], axis=0)
        assert spread.min() >= 8, name  # pixels of 160


def test_no_person_is_shown_under_two_names() -> None:
    faces = FaceCollection("faces", count=100)
    shown = [entity.image for entity in faces.entities()]
    shown += [image for entity in faces.entities() for image in faces.neighbours(entity, 3)]
    people = [image.portrait.signature for image in shown if isinstance(image, PortraitImage)]
    assert len(people) == 400
    assert len(set(people)) == 400


def test_pictures_are_the_same_in_every_process(faces: FaceCollection) -> None:
    code = (
        "from pytest_vlmrobust.core.fingerprint import pixels_digest as d\n"
        "from pytest_vlmrobust.demo.faces import FaceCollection\n"
        f"c = FaceCollection('faces_160', side=160, count={COUNT})\n"
        "e = c.entities()[3]\n"
        "print(c.digest, e.image.identity(), d(e.image.load()), *[d(n.load()) for n in c.neighbours(e, 5)])\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    entity = faces.entities()[3]
    here = [pixels_digest(image.load()) for image in (entity.image, *faces.neighbours(entity, 5))]
    assert printed == [faces.digest, entity.image.identity(), *here]


def test_digest_and_identity_tell_apart_what_is_drawn_differently(faces: FaceCollection) -> None:
    others = [replace(faces, side=80), replace(faces, count=4), replace(faces, seed=1)]
    assert len({collection.digest for collection in (faces, *others)}) == 4
    image = PortraitImage(somebody(), 160)
    different = [replace(image, side=80), replace(image, portrait=somebody(1))]
    assert len({picture.identity() for picture in (image, *different)}) == 3


def test_the_people_are_those_of_the_version(faces: FaceCollection) -> None:
    assert [entity.label for entity in faces.entities()[:4]] == [
        "square face, grey hair (side_part)",
        "oval face, brown hair (curly)",
        "round face, black hair (beanie)",
        "long face, white hair (curly)",
    ]


# splits


def test_training_and_evaluation_share_nobody() -> None:
    trained = {member.signature for family in first_families(60, evaluation=False) for member in family}
    evaluated = [member for family in first_families(60, evaluation=True) for member in family]
    assert all(member.held_out for member in evaluated)
    assert trained.isdisjoint(member.signature for member in evaluated)
    assert not any(member.held_out for family in first_families(60, evaluation=False) for member in family)


def test_who_is_held_out_does_not_depend_on_numbers() -> None:
    portrait = somebody()
    moved = replace(portrait, x=0.47, roll=1.0, nose_width=1.1)
    assert moved.held_out == portrait.held_out
    assert moved.signature == portrait.signature


def test_collections_are_of_the_evaluation_split(faces: FaceCollection) -> None:
    images = [image for entity in faces.entities() for image in (entity.image, *faces.neighbours(entity, 6))]
    assert all(image.portrait.held_out for image in images if isinstance(image, PortraitImage))
    assert len(images) == 7 * COUNT


@pytest.mark.parametrize("size", [0, FAMILY + 1])
def test_families_of_another_size_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a family has 1 to 4 members, not {size}; relatives"):
        next(families(rng_for(0, "x"), evaluation=True, size=size))


# neighbours, and what could give the target away


def differences(first: Portrait, second: Portrait) -> set[str]:
    return {name for name in CHOICES if getattr(first, name) != getattr(second, name)}


def test_every_two_of_a_family_differ_in_the_same_three_features() -> None:
    for family in first_families(40, evaluation=True):
        pairs = {frozenset(differences(first, second)) for i, first in enumerate(family) for second in family[:i]}
        assert len(pairs) == 1
        varied = pairs.pop()
        assert len(varied) == 3
        assert varied <= set(VARIED)
        assert varied & set(BOLD)
        assert len({(member.tone, member.x, member.y, member.scale, member.roll, member.light) for member in family}) == 1


def test_any_number_of_neighbours_may_be_asked_for(faces: FaceCollection) -> None:
    entity = faces.entities()[1]
    twelve = faces.neighbours(entity, 12)
    assert len({image.portrait.signature for image in twelve}) == 12
    assert faces.neighbours(entity, 2) == twelve[:2]
    assert faces.neighbours(entity, 0) == ()
    assert {image.portrait.group for image in twelve} == {entity.group}


def test_relatives_are_new_people_of_the_same_tone_and_split() -> None:
    family = next(families(rng_for(2, "f"), evaluation=False))
    more = list(islice(relatives(rng_for(3, "r"), family), 20))
    assert len({portrait.signature for portrait in (*family, *more)}) == 24
    assert {(portrait.tone, portrait.held_out) for portrait in more} == {(family[0].tone, False)}
    assert max(len(differences(family[0], portrait)) for portrait in more) <= 6


def most_alike(candidates: tuple[Portrait, ...]) -> float:
    """Whether the first differs least from all the others, ties by chance."""
    sums = [sum(len(differences(candidate, other)) for other in candidates) for candidate in candidates]
    return (sums[0] == min(sums)) / sums.count(min(sums))


@pytest.mark.parametrize("cells", [4, 9, 16])
def test_the_target_is_not_the_one_in_the_middle(cells: int) -> None:
    shown = [
        (*family, *islice(relatives(rng_for(number, "r"), family), max(0, cells - 5)))[: cells - 1]
        for number, family in enumerate(first_families(80, evaluation=True))
    ]
    assert {len(candidates) for candidates in shown} == {cells - 1}
    chance = 1 / (cells - 1)
    assert np.mean([most_alike(candidates) for candidates in shown]) < chance + 2 * (chance / len(shown)) ** 0.5


def test_neighbours_of_a_stranger_are_refused(faces: FaceCollection) -> None:
    stranger = replace(faces.entities()[0], id="face-900")
    with pytest.raises(DatasetError, match="faces_160 has no face 'face-900'; it has 24, from face-000 on"):
        faces.neighbours(stranger, 2)


def hit_rate(candidates: list[tuple[str, ...]], *, most: bool) -> float:
    """How often the first of the candidates is found by whose group is the most (or least) frequent, ties by chance."""
    hits = []
    for groups in candidates:
        counts = [groups.count(group) for group in groups]
        best = max(counts) if most else min(counts)
        hits.append((counts[0] == best) / counts.count(best))
    return float(np.mean(hits))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("most", [True, False])
def test_guessing_by_group_is_no_better_than_chance(faces: FaceCollection, count: int, most: bool) -> None:
    candidates = [
        (entity.group, *(image.portrait.group for image in faces.neighbours(entity, count))) for entity in faces.entities()
    ]
    assert hit_rate(candidates, most=most) == pytest.approx(1 / (count + 1))


def test_one_neighbour_of_each_group_would_give_the_target_away() -> None:
    assert hit_rate([("light", "light", "dark"), ("dark", "light", "dark")], most=True) == pytest.approx(0.5)


def test_the_target_is_neither_rarer_nor_commoner_than_its_neighbours() -> None:
    """Values that are drawn most often are as frequent among targets as among neighbours, within four standard errors."""
    drawn = list(first_families(300, evaluation=False))
    for name in VARIED:
        commonest = max(CHOICES[name], key=CHOICES[name].__getitem__)
        target = np.array([getattr(family[0], name) == commonest for family in drawn], float)
        others = np.array([np.mean([getattr(member, name) == commonest for member in family[1:]]) for family in drawn])
        gaps = target - others
        assert abs(gaps.mean()) <= 4 * gaps.std() / np.sqrt(len(gaps)) + 1e-9, name


def test_borders_and_backdrops_of_targets_and_neighbours_are_the_same(faces: FaceCollection) -> None:
    frame = np.ones((160, 160), bool)
    frame[2:-2, 2:-2] = False
    for entity in faces.entities():
        target, *others = (image.load() for image in (entity.image, *faces.neighbours(entity, 2)))
        for other in others:
            assert np.array_equal(target[frame], other[frame])
            assert np.array_equal(target[:, :12], other[:, :12])


def test_nothing_is_cut_off_at_the_top() -> None:
    for hair in CHOICES["hair"]:
        high = replace(somebody(), hair=hair, hair_volume=1.12, y=0.475, scale=0.292, roll=3.5)
        top = draw_portrait(high, 160)[:2].astype(int)
        assert np.ptp(top, axis=1).max() == 0, hair
