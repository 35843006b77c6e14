"""Options written at the end of a question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets.drafts import merge_resolutions, options_in


@pytest.mark.cases(
    ("question", "text", "options"),
    [
        ("Which way?\nA. Left.\nB. Right.", "Which way?", ["Left.", "Right."]),
        ("Which?\nOptions: A: one, B: two, C: three, D: four", "Which?", ["one", "two", "three", "four"]),
        ("Which? (A) red (B) dark blue\nAnswer with the letter.", "Which?", ["red", "dark blue"]),
        ("Which?\nChoices:\nA) 1\nB) 2\nC) 3", "Which?", ["1", "2", "3"]),
        ("Is A. better than B. here?\nA. yes\nB. no", "Is A. better than B. here?", ["yes", "no"]),
        ("Which?\nA. see B.\nB. none", "Which?", ["see B.", "none"]),
    ],
)
def test_options_are_found(question: str, text: str, options: list[str]) -> None:
    assert options_in(question) == (text, dict(zip("ABCDEFGH", options, strict=False)))


@pytest.mark.cases("question", ["What is it?", "Is plan A. better?", "A. only one", "B. two\nC. three", "", "a. left b. right"])
def test_a_question_without_options_stays_as_it_is(question: str) -> None:
    assert options_in(question) == (question, {})


@given(st.lists(st.text("abc xyz", min_size=1).map(str.strip).filter(bool), min_size=2, max_size=26))
def test_what_is_listed_line_by_line_is_read_back(texts: list[str]) -> None:
    listed = "".join(f"\n{letter}. {text}" for letter, text in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", texts, strict=False))
    text, options = options_in(f"Which one?{listed}")
    assert text == "Which one?"
    assert list(options.values()) == texts


# Rows about pictures that were resized beforehand are one sample for each question.


@dataclass(frozen=True)
class Named:
    """A picture that is nothing but its name."""

    name: str

    def load(self) -> NDArray[np.uint8]:
        raise AssertionError(self.name)

    def identity(self) -> str:
        return self.name


def row(name: str, size: object, group: str = "g") -> Sample:
    return Sample(name, (Named(name),), "q", "a", "open", group=group, keys={"size": str(size)})


def shown(sample: Sample) -> dict[int, str]:
    return {size: image.identity() for size, (image,) in sample.sizes.items()}


def test_the_rows_of_a_question_are_the_sample_with_the_largest_pictures() -> None:
    rows = [row("b", 8), row("c", 16), row("a", 4), row("x", 4, "h"), row("y", 8, "h"), row("z", 16, "h")]
    (first, second), notes = merge_resolutions(rows, "size", "f")
    assert (first.id, first.group, shown(first)) == ("c", "g", {4: "a", 8: "b", 16: "c"})
    assert (second.id, second.images[0].identity(), list(second.sizes)) == ("z", "z", [4, 8, 16])
    assert notes == ()


def test_the_same_words_about_another_picture_are_another_question() -> None:
    rows = [row("a4", 4), row("b4", 4), row("a8", 8), row("b8", 8)]
    samples, notes = merge_resolutions(rows, "size", "f.tsv")
    assert [shown(sample) for sample in samples] == [{4: "a4", 8: "a8"}, {4: "b4", 8: "b8"}]
    assert len({sample.group for sample in samples}) == 2
    assert notes == (
        (
            "f.tsv: 1 question has the words and the answer of an earlier one (the first: 'b4'): their order at each "
            "size decides which rows are about one image"
        ),
    )


def test_sizes_that_a_question_lacks_are_said() -> None:
    samples, notes = merge_resolutions([row("a", 4), row("b", 8), row("x", 8, "h")], "size", "f.tsv")
    assert [list(sample.sizes) for sample in samples] == [[4, 8], [8]]
    assert notes == (
        (
            "f.tsv: 1 of 2 questions lack images of some sizes (the first: 'x' has none of 4 pixels). Those rungs are made of "
            "the largest image"
        ),
    )


@pytest.mark.cases("written", ["", "large", "0", "44.8", "-4"])
def test_a_row_without_a_size_is_named(written: str) -> None:
    with pytest.raises(
        DatasetError, match=rf"^f: sample 'a' has the size '{written}': expected a long edge in pixels, such as 448$"
    ):
        merge_resolutions([row("a", written)], "size", "f")
