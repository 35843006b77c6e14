"""Answers with an alternative or a change of mind: what a person reads, and the neighbours that stay readable."""

import pytest

from pytest_vlmrobust.scoring import Extraction, extract_choice, extract_yes_no

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
WITH_OR = {"A": "cat or dog", "B": "dog or maybe C", "C": "bird"}
LETTERS = {"A": "C", "B": "A", "C": "D", "D": "B"}
YES_OR_NO = {"A": "yes", "B": "no"}


@pytest.mark.parametrize(
    "text",
    [
        *["B or maybe C", "B, maybe C", "B, or possibly C", "B (or C)", "B, but maybe C", "B perhaps A", "A. Maybe B."],
        *["either A or D", "Either A or maybe D", "A/B", "B or even C", "A or, more likely, B", "It is A or perhaps B"],
        *["The answer is A, or maybe D.", "The answer is either A or possibly D", "B. dog, or maybe C. red car"],
        *["A.B.C.D", "A.B", "A. B. C. D.", "The answer is A.B.C.D", "A) B)"],
        "A; B",
        *["A, no B", "B no A", "B, no A."],  # a correction in English, a denial in Spanish
    ],
)
def test_two_possibilities_are_ambiguous(text: str) -> None:
    assert extract_choice(text, OPTIONS) == Extraction(None, "ambiguous")


@pytest.mark.parametrize(
    "text",
    [
        *[
            "The answer is A? No, B.",
            "A? No, B",
            "A. No, B.",
            "A? No. B.",
            "(A)? No, (B).",
            "A, no, it's B",
            "A? No. C? No. B? Yes.",
        ],
        *["A - wait, B", "A \u2014 wait, B", "A, actually B", "A. Wait, no. B is correct.", "The answer is A... actually, B"],
        *["I choose A, actually B", "The answer is A.\nWait, the answer is B.", "A. cat. Actually, B. dog", "A, or rather B"],
        *[
            "A. On second thought, B.",
            "A\n\nActually, on closer look, B.",
            "A. Looking again, it's B",
            "A? Looking more closely: (B)",
        ],
        *["not A but B", "Not A, but B.", "The answer is not A but B"],
        *[
            "A\n\nHmm, actually I'd change my answer to B.",
            "The answer is A (wait, let me double-check) - actually B.",
            "A or C? No, B",
        ],
        *["It's A. Hmm, on second thought, B.", "The answer is A. Wait, let me re-check. It's B.", "A. Let me reconsider. B."],
        *["A? Not quite. B", "答案是A嗎\uff1f不\uff0c是B", "答案是A吗\uff1f不\uff0c是B", "根据图片\uff0c答案不是A\uff0c而是B。"],
        *["A is wrong. B.", "A is incorrect, B", "Not A. B.", "No. B", "Hmm, B", "Sorry, B"],
    ],
)
def test_of_a_correction_the_last_is_read(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


@pytest.mark.parametrize(
    ("text", "options", "letter"),
    [
        ("B, or cat", OPTIONS, "B"),
        ("The answer is B. It is not C.", OPTIONS, "B"),
        ("B, not A or C", OPTIONS, "B"),
        ("B. C is wrong", OPTIONS, "B"),
        ("B. No, C is wrong.", OPTIONS, "B"),
        ("B. No, C and D are wrong.", OPTIONS, "B"),
        ("B. Actually A is a cat", OPTIONS, "B"),
        ("B, no doubt", OPTIONS, "B"),
        ("B. Looking again, A is wrong.", OPTIONS, "B"),
        ("B. On closer look, B is right.", OPTIONS, "B"),
        ("B. Wait", OPTIONS, "B"),
        ("Probably B", OPTIONS, "B"),
        ("A or B. I would say B.", OPTIONS, "B"),
        ("It is not A, maybe B", OPTIONS, "B"),
        ("Between A and B, A is less likely, so B", OPTIONS, "B"),
        ("A. cat or dog", WITH_OR, "A"),
        ("The answer is A. cat or dog", WITH_OR, "A"),
        ("B. dog or maybe C", WITH_OR, "B"),
        ("cat or dog", WITH_OR, "A"),
        ("B. A", LETTERS, "B"),
        ("A. Vitamin A. No, B.", {"A": "Vitamin A", "B": "Vitamin B"}, "B"),
        ("B. No", YES_OR_NO, "B"),
        ("B. No, it is not.", YES_OR_NO, "B"),
    ],
)
def test_neighbours_stay_readable(text: str, options: dict[str, str], letter: str) -> None:
    assert extract_choice(text, options).answer == letter


@pytest.mark.parametrize(
    "text",
    [
        *["I doubt that it is B.", "I'm unsure whether this is a dog.", "It's impossible to tell if it is a dog."],
        *[
            "Option B is the least likely",
            "the least likely answer is B",
            "It is unlikely to be B",
            "B is by far the least likely",
        ],
        *["The dog is missing", "It looks nothing like a dog", "far from a dog", "anything but a dog", "It is hardly a dog"],
        *[
            "The image lacks a dog",
            "I fail to see a dog",
            "Could it be a dog?",
            "Is it B?",
            "정답은 B가 아닙니다.",
            "正解はBではない",
        ],
        *["If it were a cat I'd say A, but it's barking.", "I would have said B if it barked"],
    ],
)
def test_what_is_doubted_or_supposed_is_no_answer(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer is None


@pytest.mark.parametrize(
    "text",
    [
        *[
            "There is no doubt that it is B",
            "without a doubt, B",
            "I have no doubt the answer is B",
            "The least likely is A, so B",
        ],
        *["If I had to guess I'd say B", "It looks as if it is a dog", "nothing but a dog", "I doubt it is A. It's B."],
        *["It could be either A or B, but I lean towards B.", "I'm leaning towards B.", "Ans. B", "B it is", "Possibly B"],
        *["정답은 B입니다.", "정답: B", "답은 B", "答案為B", "答えはB"],
    ],
)
def test_what_is_not_doubted_is_read(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


@pytest.mark.parametrize(
    ("text", "options", "letter"),
    [
        *[
            (text, OPTIONS, None)
            for text in ["12:30", "12/5", "12 or 13", "12 + 3 = 15", "at least 12", "12 to 15", "between 12 and 15", "12 or more"]
        ],
        *[
            (text, OPTIONS, "D")
            for text in ["12", "It is 12.", "There are 12 of them", "9 + 3 = 12", "twelve apples", "about 12"]
        ],
        ("12:30", {"A": "12:30", "B": "12"}, "A"),
        ("at least 12", {"A": "at least 12", "B": "12"}, "A"),
        ("12 + 3 = 15", {"A": "12", "B": "3", "C": "15"}, "C"),
        ("The answer is 12 or 13", {"A": "12", "B": "13"}, None),
        ("5cm", {"A": "3 cm", "B": "5 cm"}, "B"),
        ("It is 5 cm long", {"A": "3cm", "B": "5cm"}, "B"),
        ("It is missing.", {"A": "missing", "B": "present"}, "A"),
    ],
)
def test_numbers_are_whole_quantities(text: str, options: dict[str, str], letter: str | None) -> None:
    assert extract_choice(text, options).answer == letter


@pytest.mark.parametrize(
    ("text", "answer", "rule"),
    [
        ("Yes... Actually, no, it isn't.", "no", "leading"),
        ("No. Actually yes.", "yes", "word"),
        ("Yes, actually no", "no", "word"),
        ("The answer is yes. Wait, no.", "no", "word"),
        ("No. On second thought, yes.", "yes", "word"),
        ("No, actually it is a cat.", "no", "leading"),
        ("Is there a dog? No.", "no", "word"),
        ("Is there a dog? No, there's a cat.", "no", "leading"),
        ("Is there a dog? Yes or no?", None, "ambiguous"),
        ("Yes, No, Yes", None, "ambiguous"),
        ("Yes, no, maybe", None, "ambiguous"),
        ("No. 5", None, "none"),
        ("Yes-man", None, "none"),
        ("No, I cannot see the image.", None, "refusal"),
        ("No, I can't help with that", None, "refusal"),
        ("No, the image was not provided.", None, "refusal"),
        ("No, I cannot see a dog in the image.", "no", "leading"),
        ("No, I can't identify a dog here.", "no", "leading"),
        ("No. The person cannot see the image on the wall.", "no", "leading"),
        ("Absolutely not.", "no", "word"),
        ("Of course not", "no", "word"),
        ("Not at all.", "no", "word"),
        ("That's correct.", "yes", "word"),
        ("That's not correct.", "no", "word"),
    ],
)
def test_yes_and_no_taken_back_asked_and_declined(text: str, answer: str | None, rule: str) -> None:
    assert extract_yes_no(text) == Extraction(answer, rule)


def test_what_is_asked_and_denied_is_no_answer() -> None:
    assert extract_choice("A? No.", OPTIONS) == Extraction(None, "none")
    assert extract_choice("Is it a dog? No, a cat.", OPTIONS).answer == "A"


@pytest.mark.parametrize("piece", ["no, ", "A no, ", "A? No, B. ", "not A but ", "A, maybe ", "A.", "A. wait, "])
def test_many_changes_of_mind_are_read_without_an_error(piece: str) -> None:
    assert extract_choice(piece * 5_000, OPTIONS).answer in {None, *OPTIONS}
