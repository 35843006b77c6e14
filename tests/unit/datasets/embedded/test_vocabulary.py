"""The vocabulary, and what is easily read for its words."""

from __future__ import annotations

import codecs
import re

import numpy as np
import pytest
import yaml

from pytest_vlmrobust.datasets.embedded.vocabulary import (
    ENOUGH,
    SHIPPED,
    has_real_family,
    known,
    lookalikes,
    variants,
    vocabulary,
)

WORDS = ("ox", "cat", "oil", "gauge", "lesson", "bluebell", "volleyball", "xylophone", "jam", "zurich")


def distance(one: str, two: str) -> int:
    """Levenshtein's, written down independently of the package."""
    row = list(range(len(two) + 1))
    for i, a in enumerate(one, 1):
        above, row = row, [i]
        for j, b in enumerate(two, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def test_the_vocabulary_has_the_categories_and_lengths_of_the_paper_and_no_word_twice() -> None:
    words = [word for category in vocabulary().values() for word in category]
    assert len(vocabulary()) == 21
    assert len(words) == len(set(words)) == len(known()) > 1500
    assert all(re.fullmatch("[a-z]{2,10}", word) for word in words)
    assert {len(word) for word in words} == set(range(2, 11))
    assert min(map(len, vocabulary().values())) >= 40


def test_the_list_says_its_licence() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["license"] == "Apache-2.0"
    assert "Apache License 2.0" in text


@pytest.mark.parametrize("word", WORDS)
def test_neighbours_are_other_strings_at_one_edit(word: str) -> None:
    found = lookalikes(word, np.random.default_rng(1))
    assert word not in found
    assert len(found) == len(set(found)) > 40
    assert {distance(word, other) for other in found} == {1}
    assert all(re.fullmatch("[a-z]{2,10}", other) for other in found)
    assert {len(other) - len(word) for other in found} >= ({0, 1} if len(word) < 10 else {0, -1})


@pytest.mark.parametrize("word", WORDS)
def test_a_word_and_its_nearest_neighbours_are_all_one_edit_apart_so_that_none_stands_out(word: str) -> None:
    nearest = (word, *lookalikes(word, np.random.default_rng(2))[:ENOUGH])
    assert {distance(one, two) for one in nearest for two in nearest if one != two} == {1}


def test_real_words_come_first_where_there_are_enough() -> None:
    rich = [word for word in sorted(known()) if has_real_family(word)]
    assert len(rich) > 200
    for word in rich[::9]:
        assert known().issuperset(lookalikes(word, np.random.default_rng(3))[:ENOUGH])


def test_length_tells_nothing() -> None:
    rng = np.random.default_rng(4)
    words = sorted(known())[::3]
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
            assert not known().intersection(family.pronounceable + family.other)
            assert not [other for other in family.pronounceable + family.other if any(part in other for part in avoided)]
    (middle,) = (family for family in variants("gauge") if "gaule" in family.pronounceable or "gauze" in family.other)
    assert "gauqe" in middle.other
