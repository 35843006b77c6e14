"""The Observatory's words: nothing but the letters tells a word from its neighbours, and none was trained on."""

from __future__ import annotations

import codecs
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from PIL import ImageFont
from scipy import stats

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.datasets import COLLECTIONS
from pytest_vlmrobust.demo import word_collection
from pytest_vlmrobust.demo.typography import BUILT_IN, CASINGS, POSITIONS, ROTATIONS
from pytest_vlmrobust.demo.word_collection import (
    ENOUGH,
    SHIPPED,
    PrintImage,
    WordCollection,
    has_real_family,
    known_words,
    lookalikes,
    random_prints,
    variants,
    vocabulary,
)

# The vocabulary, and what is easily read for its words.


WORDS = ("ox", "cat", "oil", "gauge", "lesson", "bluebell", "volleyball", "xylophone", "jam", "zurich")


def distance(first: str, second: str) -> int:
    """Levenshtein's, written down independently of the package."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        above, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def test_the_vocabulary_has_the_categories_and_lengths_of_the_paper_and_no_word_twice() -> None:
    words = [word for category in vocabulary().values() for word in category]
    assert len(vocabulary()) == 21
    assert len(words) == len(set(words)) == len(known_words()) > 1500
    assert all(re.fullmatch("[a-z]{2,10}", word) for word in words)
    assert {len(word) for word in words} == set(range(2, 11))
    assert min(map(len, vocabulary().values())) >= 40


def test_the_list_says_its_licence() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["license"] == "Apache-2.0"
    assert "Apache License 2.0" in text


@pytest.mark.cases("word", WORDS)
def test_neighbours_are_other_strings_at_one_edit(word: str) -> None:
    neighbours = lookalikes(word, np.random.default_rng(1))
    assert word not in neighbours
    assert len(neighbours) == len(set(neighbours)) > 40
    assert {distance(word, other) for other in neighbours} == {1}
    assert all(re.fullmatch("[a-z]{2,10}", other) for other in neighbours)
    assert {len(other) - len(word) for other in neighbours} >= ({0, 1} if len(word) < 10 else {0, -1})


@pytest.mark.cases("word", WORDS)
def test_a_word_and_its_nearest_neighbours_are_all_one_edit_apart_so_that_none_stands_out(word: str) -> None:
    nearest = (word, *lookalikes(word, np.random.default_rng(2))[:ENOUGH])
    assert {distance(first, second) for first in nearest for second in nearest if first != second} == {1}


def test_real_words_come_first_where_there_are_enough() -> None:
    rich = [word for word in sorted(known_words()) if has_real_family(word)]
    assert len(rich) > 200
    for word in rich[::9]:
        assert known_words().issuperset(lookalikes(word, np.random.default_rng(3))[:ENOUGH])


def test_length_tells_nothing() -> None:
    rng = np.random.default_rng(4)
    words = sorted(known_words())[::3]
    others = [(word, lookalikes(word, rng)[:ENOUGH]) for word in words]
    # one string of a family can lack the letter that the others have: it is the word as often as any of its neighbours
    alone = sum(all(len(other) > len(word) for other in near) for word, near in others) / len(words)
    beside = sum(len(other) < len(word) for word, near in others for other in near) / ENOUGH / len(words)
    assert 0.05 < beside < 0.15
    assert alone == pytest.approx(beside, abs=0.03)


def test_made_up_neighbours_look_like_words_and_offend_nobody() -> None:
    avoided = codecs.decode(yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["avoided_rot13"], "rot13").split()
    assert avoided
    for word in ("duck", "shirt", "count", "public", "satin"):
        for family in variants(word):
            assert not known_words().intersection(family.pronounceable + family.other)
            assert not [other for other in family.pronounceable + family.other if any(part in other for part in avoided)]
    (middle,) = (family for family in variants("gauge") if "gaule" in family.pronounceable or "gauze" in family.other)
    assert "gauqe" in middle.other


BORDER = 3
SMALL = WordCollection("small", side=160, count=90)


def print_of(source: ImageSource) -> PrintImage:
    assert isinstance(source, PrintImage)
    return source


def border_of(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    inside = np.zeros(picture.shape[:2], np.bool_)
    inside[BORDER:-BORDER, BORDER:-BORDER] = True
    return picture[~inside]


def background_of(picture: NDArray[np.uint8]) -> tuple[int, float]:
    """The most frequent value, and the share of pixels that are neither it nor part of strong or softened ink."""
    values, counts = np.unique(picture, return_counts=True)
    ground = int(values[counts.argmax()])
    return ground, float(((picture > 231) & (picture != ground)).mean())


def density_of(picture: NDArray[np.uint8]) -> float:
    return float((255 - picture.astype(np.float64)).mean() / 255)


@pytest.fixture(scope="module")
def pictures() -> tuple[list[NDArray[np.uint8]], list[list[NDArray[np.uint8]]]]:
    targets = [entity.image.load() for entity in SMALL.entities()]
    return targets, [[other.load() for other in SMALL.neighbours(entity, 3)] for entity in SMALL.entities()]


def test_borders_and_backgrounds_of_words_and_neighbours_are_the_same(
    pictures: tuple[list[NDArray[np.uint8]], list[list[NDArray[np.uint8]]]],
) -> None:
    targets, others = pictures
    flat = [picture for group in others for picture in group]
    for side in (targets, flat):
        assert {value for picture in side for value in np.unique(border_of(picture)).tolist()} == {255}
        assert {background_of(picture) for picture in side} == {(255, 0.0)}


def test_a_frame_or_a_tint_would_be_noticed(
    pictures: tuple[list[NDArray[np.uint8]], list[list[NDArray[np.uint8]]]],
) -> None:
    framed = pictures[0][0].copy()
    framed[:1] = 0
    assert np.unique(border_of(framed)).tolist() == [0, 255]
    tinted = pictures[0][0].copy()
    tinted[80:84, 80:84] = 250
    assert background_of(tinted)[1] > 0


def test_the_density_of_ink_does_not_tell_words_from_neighbours(
    pictures: tuple[list[NDArray[np.uint8]], list[list[NDArray[np.uint8]]]],
) -> None:
    targets, others = pictures
    targets_density = np.array([density_of(picture) for picture in targets])
    near = np.array([[density_of(picture) for picture in group] for group in others])
    assert stats.ks_2samp(targets_density, near.ravel()).pvalue > 0.2
    differences = targets_density - near.mean(axis=1)
    assert abs(differences.mean()) < 0.02 * targets_density.mean()
    assert stats.wilcoxon(differences).pvalue > 0.05
    ranks = Counter((near < targets_density[:, None]).sum(axis=1).tolist())
    assert stats.chisquare([ranks[rank] for rank in range(4)]).pvalue > 0.05
    # thicker lines would be noticed
    assert stats.wilcoxon(1.05 * targets_density - near.mean(axis=1)).pvalue < 0.01


def test_neighbours_share_everything_but_the_word() -> None:
    for entity in SMALL.entities():
        what = print_of(entity.image).what
        for other in SMALL.neighbours(entity, 5):
            other_what = print_of(other).what
            assert (other_what.style, other_what.side, other_what.size) == (what.style, what.side, what.size)
            assert other_what.word != what.word == entity.label


@pytest.mark.parametrize(("name", "side", "count"), [("words", 1024, 100), ("words_160", 160, 24)])
def test_the_registered_collections(name: str, side: int, count: int) -> None:
    collection = COLLECTIONS.get(name)()
    entities = collection.entities()
    assert (collection.name, collection.domain, collection.hinted) == (name, "word", "corner")
    assert collection.native_long_edge == side
    assert len(entities) == count == len({entity.id for entity in entities}) == len({entity.label for entity in entities})
    assert {entity.size for entity in entities} == {(side, side)}
    assert all(re.fullmatch(r"[\w-]+", entity.id) and entity.label not in entity.id for entity in entities)
    categories = Counter(entity.category for entity in entities)
    assert len(categories) == 21
    assert max(categories.values()) - min(categories.values()) <= 1
    assert len(collection.neighbours(entities[0], 3)) == 3
    assert collection.entities() is entities


def test_styles_lengths_and_kinds_of_neighbours_are_spread() -> None:
    styles = [print_of(entity.image).what.style for entity in SMALL.entities()]
    for levels, values in (
        ([face.name for face in BUILT_IN], [style.typeface.name for style in styles]),
        (CASINGS, [style.casing for style in styles]),
        (tuple(POSITIONS), [style.position for style in styles]),
        (ROTATIONS, [style.rotation for style in styles]),
    ):
        assert sorted(Counter(values).values()) == [len(styles) // len(levels)] * len(levels)
    assert {len(entity.label) for entity in SMALL.entities()} >= set(range(3, 9))
    rich = sum(has_real_family(entity.label) for entity in SMALL.entities())
    assert 0.4 * SMALL.count < rich < 0.7 * SMALL.count


def test_boxes_surround_the_ink() -> None:
    for entity in SMALL.entities():
        x1, y1, x2, y2 = (int(end) for end in entity.boxes["word"])
        ink = entity.image.load()[:, :, 0] < 255
        assert ink[y1:y2, x1:x2].sum() == ink.sum()
        assert ink[y1].any()
        assert ink[y2 - 1].any()
        assert ink[:, x1].any()
        assert ink[:, x2 - 1].any()


def test_words_belong_to_the_split_that_training_refuses() -> None:
    assert all(print_of(entity.image).what.held_out for entity in SMALL.entities())
    trained = list(islice(random_prints(np.random.default_rng(6), 160, evaluation=False), 80))
    evaluated = list(islice(random_prints(np.random.default_rng(6), 160, evaluation=True, count=2), 40))
    assert {len(group) for group in trained} == {4}
    assert {len(group) for group in evaluated} == {3}
    assert not any(image.what.held_out for group in trained for image in group)
    assert all(image.what.held_out for group in evaluated for image in group)
    assert len({group[0].what.word for group in trained}) > 60
    assert all(group[0].what.word in known_words() and len({image.what.word for image in group}) == 4 for group in trained)


def test_the_split_does_not_depend_on_the_size() -> None:
    small, large = (WordCollection(side=side, count=30).entities() for side in (160, 512))
    prints = [[print_of(entity.image).what for entity in entities] for entities in (small, large)]
    words = [[(what.word, what.style) for what in whats] for whats in prints]
    assert words[0] == words[1]


def test_few_neighbours_are_the_first_of_many_and_too_many_are_an_error() -> None:
    entity = SMALL.entities()[0]
    assert SMALL.neighbours(entity, 2) == SMALL.neighbours(entity, 60)[:2]
    assert SMALL.neighbours(entity, 0) == ()
    with pytest.raises(DatasetError, match=r"collection small: word-0000 has \d+ neighbours at one edit, 9999 are wanted"):
        SMALL.neighbours(entity, 9999)


def test_words_of_other_collections_have_no_neighbours_here() -> None:
    foreign = WordCollection(count=91, side=160).entities()[-1]
    with pytest.raises(DatasetError, match="collection small: no word 'word-0090'"):
        SMALL.neighbours(foreign, 1)


@pytest.mark.parametrize(("side", "count", "message"), [(95, 1, "side is 95. Expected: at least 96"), (96, 0, "count is 0")])
def test_senseless_sizes_are_errors(side: int, count: int, message: str) -> None:
    with pytest.raises(DatasetError, match=f"collection words: {message}"):
        WordCollection(side=side, count=count)


def test_more_words_than_the_split_has_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_collection, "vocabulary", lambda: {"animals": ("cat", "dog", "emu")})
    with pytest.raises(DatasetError, match="words: none left for Style"):
        WordCollection(side=96, count=4).entities()


def test_identities_and_digests_change_with_what_is_drawn(tmp_path: Path) -> None:
    entities = SMALL.entities()
    images = [entity.image for entity in entities] + list(SMALL.neighbours(entities[0], 3))
    assert len({image.identity() for image in images}) == len(images)
    font = ImageFont.load_default(20)
    (tmp_path / "own.ttf").write_bytes(font.path.getvalue())  # type: ignore[union-attr]
    others = [
        WordCollection(side=161, count=90),
        WordCollection(side=160, count=89),
        WordCollection(side=160, count=90, seed=1),
        WordCollection(side=160, count=90, fonts=tmp_path),
    ]
    assert len({collection.digest for collection in [SMALL, *others]}) == 5
    assert WordCollection("named", side=160, count=90).digest == SMALL.digest
    used = {print_of(entity.image).what.style.typeface.name for entity in others[-1].entities()}
    assert used == {"own.ttf", *(face.name for face in BUILT_IN)}


DESCRIBE = """
from pytest_vlmrobust.core.fingerprint import fingerprint, pixels_digest
from pytest_vlmrobust.demo.word_collection import WordCollection
words = WordCollection("w", side=160, count=12)
images = [image for entity in words.entities() for image in (entity.image, *words.neighbours(entity, 3))]
facts = [[image.identity(), pixels_digest(image.load())] for image in images]
print(fingerprint([words.digest, facts, [list(entity.boxes["word"]) for entity in words.entities()]]))
"""


def test_the_same_pictures_in_every_process() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", DESCRIBE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
    assert len(answers.pop().strip()) == len(fingerprint([]))


def test_being_a_word_of_the_language_does_not_tell_which_one_is_meant() -> None:
    collection = WordCollection("many", side=160, count=200)
    expected = []
    for entity in collection.entities():
        shown = [entity.label, *(image.what.word for image in collection.neighbours(entity, 2) if isinstance(image, PrintImage))]
        words = [word for word in shown if word in known_words()]
        assert words, shown  # the root is always among them
        expected.append((entity.label in words) / len(words))
    assert abs(sum(expected) / len(expected) - 1 / 3) < 0.08
