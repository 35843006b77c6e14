"""The words beside an answer, in every language."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.scoring import extract_choice, extract_yes_no, scoring_rules
from pytest_vlmrobust.scoring.words import after, asserted, before, corrections, last_dissent, words

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}


@pytest.mark.cases(
    ("text", "kind"),
    [
        ("answer: ", "line"),
        ("the correct answer is ", "statement"),
        ("the option that best matches is ", "statement"),
        ("the answer to this question is clearly ", "statement"),
        ("i would choose ", "statement"),
        ("therefore ", "conclusion"),
        ("it must be ", "conclusion"),
        ("=> ", "conclusion"),
        ("the animal here is ", "subject"),
        ("option ", "named"),
        ("the letter ", "lettered"),
        ("vitamin ", "label"),
        ("", "start"),
        ("a cat can be seen near ", ""),
        ("正确答案是", "statement"),
        ("la respuesta correcta es la ", "statement"),
        ("die antwort ist ", "statement"),
        ("정답은 ", "statement"),
        ("所以选", "statement"),
    ],
)
def test_what_announces_an_answer(text: str, kind: str) -> None:
    assert before(text, len(text)).kind == kind


@pytest.mark.cases(
    "text",
    [
        *[
            "not ",
            "the answer is not ",
            "it isn't ",
            "i don't think it is ",
            "neither ",
            "unlike ",
            "instead of ",
            "anything but ",
        ],
        *[
            "wrong answer: ",
            "eliminated: ",
            "we rule out ",
            "no es la ",
            "nicht ",
            "ce n'est pas ",
            "не ",
            "不是",
            "不选",
            "ليس ",
        ],
    ],
)
def test_what_denies_what_follows(text: str) -> None:
    assert before(text, len(text)).denied


@pytest.mark.cases(
    "text",
    ["not a cat, but ", "there is no doubt it is ", "at least ", "it is not this; it is ", "since it does not bark, it is "],
)
def test_what_denies_something_else(text: str) -> None:
    assert not before(text, len(text)).denied


@pytest.mark.cases(
    "text",
    [
        *[" is wrong", " is not correct", "isn't right", " does not fit", " can be ruled out", ": incorrect", " is a distractor"],
        *[" es incorrecta", " ist nicht richtig", " неверно", "不正确", "是错误的", "ではない", "가 아닙니다", " गलत है"],
    ],
)
def test_what_denies_what_stands_before(text: str) -> None:
    assert after(text, 0, len(text)).denied


@pytest.mark.cases(
    "text",
    [
        " is correct",
        " is the best choice",
        " fits best",
        " seems right",
        " es correcta",
        " ist richtig",
        "正确",
        "が正解です",
        " верно",
    ],
)
def test_what_says_that_it_is_the_answer(text: str) -> None:
    assert after(text, 0, len(text)).verdict


@pytest.mark.cases("text", [" could be right", " is possible", " is a letter", ", which is not right", " is more than that"])
def test_what_does_not_say_that_it_is_the_answer(text: str) -> None:
    assert not after(text, 0, len(text)).verdict


@pytest.mark.cases(
    "template",
    [
        *[
            "If it were {}, it would bark.",
            "My colleague says the answer is {}.",
            "Some would choose {}.",
            "At first I thought {}.",
        ],
        *["Suppose it is {}.", "I was going to say {}.", "Is it {}?", "A common mistake is {}.", "Choose {} if it barks."],
        *["The answer is {}. That is wrong.", "Mi colega dice que la respuesta es {}.", "Zuerst dachte ich, die Antwort ist {}."],
        *["According to the hint, it is {}.", "You might think that it is {}.", "The sign says {}.", "My second choice is {}."],
        *["The answer would be {} if it meowed.", "{} is plausible.", "It looks like {}. Then again, it might be D or A."],
        *["有人说答案是{}。", "同僚は答えは{}と言う", "Если бы ответ {}.", "Wrong answer: {}"],
    ],
)
@pytest.mark.cases("letter", "BCD")
def test_what_the_writer_does_not_hold_is_no_answer(template: str, letter: str) -> None:
    assert extract_choice(template.format(letter), OPTIONS).answer is None


@pytest.mark.cases(
    "text",
    [
        *[
            "A. No wait, B.",
            "The answer is A. Actually, it is B.",
            "A... hmm, B",
            "A? No, B.",
            "A\n\nCorrection: B",
            "I choose A, actually B",
        ],
        *[
            "Answer: A\nWait, let me check.\nAnswer: B",
            "The answer is A. After checking, the answer is B.",
            "答案是A。其实答案是B。",
        ],
        *["My first guess was A. The answer is B.", "A. Earlier draft.\nThe answer is B.", "Not A but B", "It isn't A. It's B."],
    ],
)
def test_of_a_correction_the_last_is_read(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


@pytest.mark.cases(
    "text",
    [
        *[
            "The best caption is B.",
            "According to the image, the answer is B.",
            "The teacher and her students sit, so B.",
            "They bark, so B.",
        ],
        *[
            "The sign says dog.",
            "Some people sit, so B.",
            "【答案】B",
            "A cat would have whiskers. The animal is therefore a dog.",
            "A cat? No. A dog? Yes.",
        ],
        *["All options except B are wrong.", "I rule out everything but B.", "My first choice is B; my second choice is A."],
        *["You should choose B.", "You can say that the answer is B.", "Note: the picture suggests B.", "She picks the dog."],
        *["I don't think it's A; B fits better.", "Between A and B, the snout favors B."],
    ],
)
def test_what_the_picture_shows_is_held(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


def test_where_a_text_changes() -> None:
    assert corrections("a. wait, b") == [(9, True)]
    assert corrections("a, no, b") == []
    assert corrections("a, no, b", no=True) == [(7, False)]
    assert last_dissent("a. that is wrong. b") == 18
    assert last_dissent("a. b") == -1


def test_a_change_without_a_new_answer_leaves_none() -> None:
    assert extract_choice("The answer is A. Wait,", OPTIONS).answer is None
    assert extract_choice("B. Looking again, A is wrong.", OPTIONS).answer == "B"


@pytest.mark.parametrize("meaning", ["yes", "no"])
def test_yes_and_no_in_every_language(meaning: str) -> None:
    for phrase in (*words().spaced[meaning], *words().joined[meaning]):
        assert extract_yes_no(f"{phrase.capitalize()}.").answer == meaning, phrase


def test_no_word_is_yes_and_no_or_denies_and_affirms() -> None:
    for phrase, roles in words().roles.items():
        assert not roles >= {"yes", "no"}, phrase
        assert not (roles & {"correct", "fits"} and roles & {"not", "wrong"}), phrase


def test_the_rules_of_a_run_have_a_version_and_a_digest() -> None:
    rules = scoring_rules()
    assert sorted(rules) == ["math_verify", "version", "words"]
    assert len(str(rules["words"])) == 64


def test_questions_and_conditions_are_left_out() -> None:
    assert asserted("Is it 3? It is 4. If it were 5, fine.") == "It is 4."
