"""No text without an answer ever scores, by any scorer; an answer stated plainly always does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.boxes import Localisation
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import names, score

OPTIONS = {"A": "zebra", "B": "xylophone", "C": "red car", "D": "700"}
SAMPLES = {
    "choice": Sample("1", (), "?", "B", "choice", OPTIONS),
    "yes_no": Sample("2", (), "?", "yes", "yes_no"),
    "open": Sample("3", (), "?", ("xylophone", "jazz quiz"), "open"),
    **{
        name: Sample("4", (), "?", ("xylophone", "jazz quiz"), "open", scorer=name)
        for name in (
            "exact",
            "anls",
            "ocr_recall",
            "contains",
            "contains_formula",
            "rouge_l",
            "braced",
            "braced_numbers",
            "word_f1",
            "alphanumeric_f1",
        )
    },
    "vqa_soft": Sample("5", (), "?", ("xylophone",) * 5 + ("jazz quiz",) * 5, "open", scorer="vqa_soft"),
    "relaxed": Sample("6", (), "?", ("700",), "open", scorer="relaxed"),
    "numeric": Sample("7", (), "?", ("700",), "open", scorer="numeric"),
    "numeric_contained": Sample("7", (), "?", ("700",), "open", scorer="numeric_contained"),
    "box_hit": Sample(
        "9", (), "?", "", "boxes", scorer="box_hit", localisation=Localisation((999, 999), {"zebra": (0, 0, 7, 7)})
    ),
    "boxes": Sample(
        "8", (), "?", "", "boxes", localisation=Localisation((999, 999), {"zebra": (0, 0, 7, 7), "jazz": (7, 7, 9, 9)})
    ),
}
STATED = {
    **{name: sample.target[0] for name, sample in SAMPLES.items() if isinstance(sample.target, tuple)},
    "choice": "B",
    "yes_no": "yes",
    "box_hit": '{"zebra": [0, 0, 7, 7]}',
    "boxes": '{"zebra": [0, 0, 7, 7], "jazz": [7, 7, 9, 9]}',
}

WORDS = [
    *["the", "answer", "is", "Answer:", "option", "Option", "choice", "so", "therefore", "it", "shows", "picture", "of", "and"],
    *["or", "because", "not", "hot", "bird", "maybe", "E", "Z", "(E)", "13", "112", "12.5", "0", "1,000", "-70", "7", "70.0"],
    *["7000", "1700", "70.05", "(", ")", "[", "]", ".", ",", ":", "\n", "**", "__", "\\boxed{", "}", "<answer>", "</answer>"],
    *["</think>", "答案", "选", "→", "=", '"', "'", "$", "%", "?", "!", "/"],
]
"""Everything that surrounds an answer, in words and numbers, and none of the targets, whole, near or translated."""

rambling = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)
strange = st.text(st.characters(exclude_characters="xylophonejazzquizXYLOPHONEJAZZQUIZ", max_codepoint=0x17F), max_size=60)
"""Texts without any letter of the targets of words."""
WORDED = [name for name, sample in SAMPLES.items() if "xylophone" in sample.target]


def value(name: str, text: str) -> float:
    return score(SAMPLES[name], Prediction(text, "generate")).value


def test_every_scorer_is_here() -> None:
    assert set(SAMPLES) == set(names())


@settings(max_examples=100, deadline=None)
@given(text=rambling)
def test_a_text_without_the_answer_earns_nothing(text: str) -> None:
    assert {name: value(name, text) for name in SAMPLES} == dict.fromkeys(SAMPLES, 0)


@pytest.mark.parametrize("name", WORDED)
@settings(deadline=None)
@given(text=strange)
def test_other_letters_earn_nothing(name: str, text: str) -> None:
    assert value(name, text) == 0


@pytest.mark.parametrize("name", ["relaxed", "numeric"])
@given(number=st.integers(-(10**9), 10**9).filter(lambda number: not 665 <= number <= 735))
def test_another_number_earns_nothing(name: str, number: int) -> None:
    assert value(name, f"it is {number}") == value(name, f"{number:,}") == 0


@pytest.mark.cases("name", SAMPLES)
@pytest.mark.cases(
    "template",
    [
        "{}",
        " {} ",
        "{}.",
        "**{}**",
        "Answer: {}",
        "The answer is {}.",
        "The answer is **{}**.",
        "\\boxed{{{}}}",
        "<answer>{}</answer>",
        "<think>E, 13</think>\n{}",
        "I looked.\nAnswer: {}",
        "{}<|im_end|>",
    ],
)
def test_an_answer_stated_plainly_earns(name: str, template: str) -> None:
    text = template.format(STATED[name])
    whole_text = {"ocr_recall": 0.99, "rouge_l": 0.01, "anls": 0.8, "word_f1": 0.0, "alphanumeric_f1": 0.25}
    assert value(name, text) >= whole_text.get(name, 1.0)
    if name != "contains_formula":  # x and X are two things in a formula
        assert value(name, text.replace(STATED[name], STATED[name].upper())) == value(name, text)
    assert value(name, f"{text}\n  ") == value(name, text)


@settings(deadline=None)
@given(text=rambling | st.text(max_size=80))
def test_a_value_is_a_share_and_always_the_same(text: str) -> None:
    for name, sample in SAMPLES.items():
        result = score(sample, Prediction(text, "generate"))
        assert type(result.value) is float, name
        assert 0 <= result.value <= 1, name
        assert result.state in {"scored", "unparsed"}, name
        assert (result.answer is None) is (result.state == "unparsed"), name
        assert score(sample, Prediction(text, "generate")) == result, name


@pytest.mark.cases("name", SAMPLES)
@pytest.mark.cases("piece", ["xylophon ", "7,", "7.", "1/", "not 7 ", "-", "so ", "'", "7 million ", "!"])
def test_a_long_hostile_text_is_scored_without_an_error(name: str, piece: str) -> None:
    assert 0.0 <= value(name, piece * 2_000) <= 1.0
