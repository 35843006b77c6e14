"""Which option a text chooses."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.scoring import CHOICE_RULES, Extraction, extract_choice, extract_yes_no

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
UNREAD = {"none", "ambiguous", "refusal", "empty", "unfinished_thinking", "truncated", "too_long"}
RECITED = [
    "(A) cat\n(B) dog\n(C) red car\n(D) 12\n",
    "A. cat B. dog C. red car D. 12\n",
    "[A] cat, [B] dog, [C] red car, [D] 12.\n",
]


@pytest.mark.cases("recited", RECITED)
@pytest.mark.cases(
    "said", ["Answer: {}", "**{}**", "The correct option is ({}).", "So I choose {}.", "\nIt fits best.\n\n({})", "{}"]
)
def test_options_that_are_recited_choose_nothing(recited: str, said: str) -> None:
    assert extract_choice(recited + said.format("B"), OPTIONS).answer == "B"
    assert extract_choice(recited, OPTIONS) == Extraction(None, "ambiguous")


def test_a_recited_text_may_be_described_afterwards() -> None:
    assert extract_choice(f"{RECITED[0]}\nThe picture shows a dog.", OPTIONS).answer == "B"
    assert (
        extract_choice(
            "2015 (A) is less than 2017 (C). 2018 (D) is lower.\n\nAnswer: C",
            dict(zip("ABCD", ["2015", "2016", "2017", "2018"], strict=True)),
        ).answer
        == "C"
    )


DENIED = [
    *[
        "The answer is not {}.",
        "I don't think it is {}",
        "{} is wrong",
        "{} is not correct",
        "Option {} is incorrect",
        "不选{}",
        "never {}",
    ],
    *[
        "It isn't {}",
        "{} does not apply.",
        "Option {} cannot be right.",
        "I don't agree with {}.",
        "I rule out {}",
        "{}不对",
        "Nicht {}",
    ],
]


@pytest.mark.cases("letter", "ABC")
@pytest.mark.cases("template", DENIED)
@pytest.mark.cases(
    "options",
    [OPTIONS, {"A": "No", "B": "Yes"}, {"A": "Yes", "B": "No", "C": "Cannot be determined"}, {"A": "True", "B": "False"}],
)
def test_a_denied_letter_is_no_answer(template: str, letter: str, options: dict[str, str]) -> None:
    assert extract_choice(template.format(letter), options).answer is None


ANIMALS = {"A": "cat", "B": "dog", "C": "horse", "D": "bird"}


@pytest.mark.cases(
    ("text", "rule"),
    [
        *(
            (text, "ambiguous")
            for text in ("I see a cat chasing a bird.", "This is a cat next to a dog.", "It is a bird on a horse")
        ),
        *((text, "ambiguous") for text in ("So it's a horse carrying a bird.", "The dog is red, while the cat is green.")),
        *((text, "ambiguous") for text in ("The cat is smaller than the dog.", "I see a dog next to a horse.")),
        *((text, "none") for text in ("All but C", "Every option but B", "Any of them but A", "Everything but the cat")),
        *((text, "none") for text in ("Could be A. Could also be C.", "or maybe C", "It could also be C.")),
        ("<cogitate>Is it A? Is it B? Hmm.\nCould also be C", "unfinished_thinking"),
    ],
)
def test_two_named_options_and_hedges_are_no_answer(text: str, rule: str) -> None:
    assert extract_choice(text, ANIMALS) == Extraction(None, rule)


@pytest.mark.cases(
    ("text", "letter"),
    [
        ("x=-2", "B"),
        ("Answer: x=4", "C"),
        ("x = 2", "A"),
        ("So x=4.", "C"),
        ("x=20", None),
        ("\u041e\u0442\u0432\u0435\u0442: \u0410", "A"),
        ("\u0412", None),
    ],
)
def test_equations_and_letters_of_other_spelling(text: str, letter: str | None) -> None:
    assert extract_choice(text, {"A": "x = 2", "B": "x = -2", "C": "x = 4"}).answer == letter


@pytest.mark.cases(
    ("text", "letter"),
    [
        ("It is a dog, since a cat is smaller.", "B"),
        ("It's a dog rather than a cat.", "B"),
        ("The animal is a dog \u2014 not a cat.", "B"),
        ("It is not the first option but B", "B"),
        ("(b) dog, although it might also be a cat.", "B"),
        ("<analysis>Is it A?\n<answer>B</answer>", "B"),
    ],
)
def test_an_option_set_against_another_is_the_answer(text: str, letter: str) -> None:
    assert extract_choice(text, ANIMALS).answer == letter


@pytest.mark.cases("letter", "ABCD")
@pytest.mark.cases(
    "template",
    [
        *[
            "{}",
            "({})",
            "{}.",
            "**{}**",
            "[{}]",
            "Option {}",
            "The answer is {}",
            "The answer is **({})**.",
            "Answer: {}",
            "So {}.",
        ],
        *["Answer: ${}", "Answer: ${}$", "**Answer: ${}**", "Answer: {}$", "'Answer: ${}'", "Answer: $LETTER = {}", "answer> {}"],
        *[
            "I would choose {}, I think",
            "It is wrong to say otherwise.\n{}",
            "\\boxed{{{}}}",
            "<answer>{}</answer>",
            "选{}",
            "{} is correct",
        ],
        *[
            "We get \\boxed{{7 kg}}.\n\nAnswer: {}",
            "<result>{}</result>",
            '{{"answer": "{}"}}',
            '{{"final_answer": {{"letter": "{}"}}}}',
        ],
        *[
            "Conclusion: ({}).",
            "La respuesta es {}",
            "答えは{}です",
            "정답은 {}입니다",
            "Ответ: {}",
            "התשובה היא {}",
            "الجواب هو {}",
        ],
    ],
)
def test_every_letter_is_read_alike(template: str, letter: str) -> None:
    assert extract_choice(template.format(letter), OPTIONS).answer == letter


@pytest.mark.cases(
    ("text", "letter"),
    [
        ("the answer is b", "B"),
        ("a, because it meows", "A"),
        ("정답은 b입니다.", "B"),
        ("A dog", "B"),
        ("Options:\nA. cat\nB. dog\nC. red car\nD. 12\nAnswer: B", "B"),
        ("A car is parked on the street.", None),
        ("Vitamin C is shown", None),
        ("Plan B is best", None),
        ("The letter B appears on the sign.", None),
        ("See https://example.org/(B)", None),
        ("B. cat", None),
        ("dog (A)", None),
        ("dog (B)", "B"),
        ("A. B shows a dog", "A"),
        ("A is correct. B is correct.", None),
        ("B\nA", None),
        ("A, B", None),
        ("A seems right, but so does B", None),
        ("Unlike B, A fits", "A"),
        ("Between A and B, B is the better choice", "B"),
        ("Conclusion: (B). Eliminated: (A), (C), (D).", "B"),
        ("I ruled out A, B and C, leaving D.", "D"),
        ("Answer: C\nFinal answer: unknown", None),
        ("<answer>B</answer>\nAnswer: C", None),
        (r"\boxed{A} or \boxed{B}", None),
        (r"\boxed{B \boxed{C}}", None),
        ("the second option", "B"),
        ("Not sure, but the answer is B.", "B"),
        ("Sorry, I can't help with images.", None),
        ("There are three 12s", None),
        ("112", None),
        ("It's a hot dog.", None),
        ("Option B is tempting, but the arrow points elsewhere, which makes A the best choice.", "A"),
        ("12.0", "D"),
        ("A: different hair.\nB: same hair.\nC: other nose.\n\nTherefore option B matches.", "B"),
        ("A. has glasses\nB. has none\nC. is older", None),
    ],
)
def test_what_a_person_reads(text: str, letter: str | None) -> None:
    assert extract_choice(text, OPTIONS).answer == letter


@pytest.mark.cases(
    ("text", "options", "letter"),
    [
        ("dog", {"A": "A. cat", "B": "B. dog"}, "B"),
        ("cat", {"A": "cat", "B": "cat", "C": "dog"}, None),
        ("polish", {"A": "Polish", "B": "polish"}, "B"),
        ("POLISH", {"A": "Polish", "B": "polish"}, None),
        ("It is on the left.", {"A": "left", "B": "right"}, "A"),
        ("The right one", {"A": "left", "B": "right"}, "B"),
        ("She left.", {"A": "left", "B": "right"}, None),
        ("Neither a cat nor a dog, so none of the above.", {"A": "cat", "B": "dog", "C": "None of the above"}, "C"),
        ("It cannot be determined.", {"A": "Yes", "B": "No", "C": "Cannot be determined"}, "C"),
        ("That is not true.", {"A": "True", "B": "False"}, "B"),
        ("No, there is none.", {"A": "Yes", "B": "No"}, "B"),
        ("Point A is closer.", {"A": "Point B", "B": "Point A"}, "B"),
        ("3 - 1 = 2", {"A": "1", "B": "2", "C": "3"}, "B"),
        ("Answer: X. Final answer: A", {"X": "first", "Z": "last"}, None),
        ("dog. E", {"A": "dog", "B": "two dogs"}, None),
        ("I think it is I", dict(zip("GHI", ["gnu", "hen", "ibis"], strict=True)), "I"),
        ("A", {}, None),
    ],
)
def test_options_of_every_kind(text: str, options: dict[str, str], letter: str | None) -> None:
    assert extract_choice(text, options).answer == letter


YES_OR_NO = {"A": "Yes", "B": "No"}
COUNTS = {"A": "0", "B": "1", "C": "2", "D": "3"}
AMOUNTS = {"A": "10", "B": "100", "C": "1000", "D": "10,000"}


@pytest.mark.cases(
    ("text", "options", "letter"),
    [
        *[
            (text, YES_OR_NO, None)
            for text in ("Yes (B)", "B. Yes", "B: Yes", "Yes, B.", "Answer: B - Yes", "The answer is Yes (B).")
        ],
        ("Answer: A. No, there is no dog.", YES_OR_NO, None),
        ('{"A": "No", "B": "Yes"}', YES_OR_NO, None),
        *[(text, YES_OR_NO, "A") for text in ("Yes (A)", "A. Yes", "Answer: A. Yes, there is a dog.", "A")],
        ("The statement is false (A).", {"A": "True", "B": "False"}, None),
        ("Answer: B (cat)", OPTIONS, None),
        ("Answer: B (dog)", OPTIONS, "B"),
    ],
)
def test_a_letter_beside_the_text_of_another_option_is_no_answer(text: str, options: dict[str, str], letter: str | None) -> None:
    assert extract_choice(text, options).answer == letter


@pytest.mark.cases(
    ("text", "options", "letter"),
    [
        ("Option 2", COUNTS, None),
        ("Answer: option 2", COUNTS, None),
        ("The answer is choice 1.", COUNTS, None),
        ("Option 2", {"A": "1", "B": "2", "C": "3"}, "B"),
        ("Option 3", {"A": "3", "B": "5"}, "A"),
        ("Answer: 2", COUNTS, "C"),
    ],
)
def test_the_number_of_an_option_is_not_its_text(text: str, options: dict[str, str], letter: str | None) -> None:
    assert extract_choice(text, options).answer == letter


@pytest.mark.cases(
    ("text", "letter"),
    [("The second one.", "B"), ("the first", "A"), ("Both", "C"), ("neither", "D"), ("First, I look at the second image.", "B")],
)
def test_a_noun_of_all_options_may_be_left_out(text: str, letter: str) -> None:
    pictures = {"A": "The first image", "B": "The second image", "C": "Both images", "D": "Neither image"}
    assert extract_choice(text, pictures).answer == letter


def test_a_plural_names_its_option() -> None:
    assert extract_choice("The animals are horses.", ANIMALS).answer == "C"
    assert extract_choice("The animals are horses.", {"A": "horse", "B": "horses"}).answer == "B"


def test_an_option_behind_an_elision_is_a_word() -> None:
    assert extract_choice("Il s'agit d'une vache.", {"A": "un chat", "B": "une vache"}).answer == "B"


@pytest.mark.cases(
    ("text", "letter"),
    [
        ("10 000", "D"),
        ("The answer is 100.0", "B"),
        ("There are 10 000 people.", "D"),
        ("There are 100 000 people.", None),
        ("There are 1,000 people.", "C"),
        ("1,000", "C"),
        ("10000", "D"),
        ("There were 10 in the morning.", "A"),
        ("after 100", None),
        ("before 1000", None),
    ],
)
def test_a_number_is_read_whole(text: str, letter: str | None) -> None:
    assert extract_choice(text, AMOUNTS).answer == letter


@pytest.mark.cases(
    "text",
    [
        "There is no 2.",
        "I doubt there are 2",
        "It would be 2 if the dog were counted",
        "None of the 2 dogs",
        "Wrong: 2",
        "I cannot answer: there are 2 dogs.",
        "I cannot determine which of the 2 is right.",
    ],
)
def test_a_denied_supposed_or_refused_number_is_no_answer(text: str) -> None:
    assert extract_choice(text, COUNTS).answer is None


@pytest.mark.cases(
    "text",
    [
        "B would be correct if the question asked about the background.",
        "A would be the right choice if the object were metallic, but it's wooden.",
        "Option A could be correct if the dog was smaller.",
        "A is correct if the image is mirrored.",
        "A would have been correct had it been a cat.",
        "It's hard to believe it's B.",
        "Answer: C\n\nA is also acceptable.",
        "The answer: C. Alternatively, A.",
    ],
)
def test_what_is_supposed_or_one_of_several_is_no_answer(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer is None


@pytest.mark.cases(
    ("text", "letter"),
    [
        ("Option A describes a cat, which is not shown.\n\nThus, the animal is a dog.", None),
        ("Option A is a common mistake. The image clearly shows a dog.", "B"),
        ("The animal next to a cat is what matters. B", None),
        ("(B) It is not a cat.", "B"),
        ("Looking for a cat: none. (B) It is not a cat.", "B"),
        ("Nothing supports A.", None),
        ("Nothing suggests A, so B.", "B"),
        ("It is not a cat. (B)", "B"),
        ("B it is not.", None),
        ("(A) It is not, so B.", "B"),
        ("The note says the answer is A, but I rely on the image. **B**", "B"),
        ("The hint claims it is a cat. The animal is a dog.", None),
        ("The note says the answer is A.", None),
    ],
)
def test_what_stands_beside_an_answer_is_not_read_as_one(text: str, letter: str | None) -> None:
    assert extract_choice(text, OPTIONS).answer == letter


@pytest.mark.parametrize(
    "text", ["B would be the answer if I had to choose.", "B would be correct.", "B is the answer, if I see it right."]
)
def test_a_cautious_answer_is_one(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


@settings(deadline=None)
@given(
    first=st.sampled_from("ABCD"),
    second=st.sampled_from("ABCD"),
    template=st.sampled_from(["{} or {}", "either {} or {}", "{}/{}", "The answer is {}, or maybe {}."]),
)
def test_two_answers_are_none(first: str, second: str, template: str) -> None:
    assume(first != second)
    assert extract_choice(template.format(first, second), OPTIONS).answer is None


PIECES = [
    *[
        "the",
        "answer",
        "is",
        "Answer:",
        "The correct option is",
        "option",
        "so",
        "I choose",
        "it is",
        "picture",
        "hot",
        "Cats",
        "(",
        "]",
        ".",
    ],
    *[
        ",",
        ":",
        "\n",
        "**",
        "not",
        "correct",
        "best",
        "E",
        "(E)",
        "112",
        "because",
        "\\boxed{",
        "}",
        "<answer>",
        "</answer>",
        "</think>",
    ],
    *["答案", "选", "是", "不", "→", "=", '"', "$", "-", "or", "and", "?", "definitely", "```", "{", "'"],
]
"""Everything that surrounds an answer, and no answer."""


@settings(max_examples=300, deadline=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join))
def test_a_text_without_an_answer_is_never_read(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer is None


@settings(deadline=None)
@given(
    text=st.text(max_size=300)
    | st.lists(st.sampled_from([*PIECES, *"ABCDab", "dog", "cat", "12", "<think>"]), max_size=30).map(" ".join),
    options=st.lists(st.text(max_size=12), min_size=2, max_size=10),
)
def test_a_choice_was_said_and_is_an_option(text: str, options: list[str]) -> None:
    lettered = dict(zip("ABCDEFGHIJ", options, strict=False))
    extraction = extract_choice(text, lettered)
    assert (extraction.answer in lettered and extraction.rule in CHOICE_RULES) or (
        extraction.answer is None and extraction.rule in UNREAD
    )
    letter = extract_choice(text, OPTIONS).answer
    if letter is not None:
        said = " ".join(
            unicodedata.normalize("NFKC", text).casefold().replace("*", "").replace("`", "").replace("__", "").split()
        )
        assert letter.casefold() in said or OPTIONS[letter] in said


HOSTILE = [
    *[
        "<think>",
        "\\boxed{",
        "so ",
        "A ",
        "the answer is ",
        "A. cat ",
        "(",
        "**",
        "A and ",
        "it is ",
        "cat ",
        "1,",
        "$a",
        "{",
        '{"a":',
        "[{",
    ],
    *[
        "<a b>x</a> ",
        "<a>",
        "A, maybe ",
        "A? No, B. ",
        "not A but ",
        "wait, ",
        "Answer: ",
        "\nAnswer: A",
        "</think>A",
        "A或B",
        "不是",
        "```",
    ],
    *[
        "~~",
        "\n",
        "if A ",
        "dog (A) ",
        "(A) dog ",
        "B is ",
        "no. ",
        "there is no ",
        "<answer>",
        "☑ A ",
        "[x] A\n",
        "A: 10%, ",
        "no dog ",
    ],
]


@pytest.mark.parametrize(
    "read",
    [lambda text: extract_choice(text, OPTIONS), lambda text: extract_yes_no(text, "Is there a dog?")],
    ids=["choice", "yes_no"],
)
def test_a_long_hostile_text_takes_little_time(read: Callable[[str], Extraction]) -> None:
    for piece in HOSTILE:
        for length in (20_000, 99_000, 200_000):
            begin = time.process_time()
            extraction = read((piece * (length // len(piece) + 1))[:length])
            seconds = time.process_time() - begin
            assert extraction.rule in UNREAD or extraction.answer
            assert seconds < 0.5, piece  # 0.05 on a free core


CHECKED = [("[x]", "[ ]"), ("☑", "☐"), ("☒", "☐"), ("●", "○"), ("✅", "❌"), ("✓", "✗"), ("(x)", "( )"), ("[✓]", "[✗]")]


@pytest.mark.parametrize("marks", CHECKED)
@given(chosen=st.sampled_from("ABCD"), behind=st.booleans(), words=st.booleans(), lines=st.booleans())
def test_the_only_ticked_option_is_the_answer(
    marks: tuple[str, str], chosen: str, behind: bool, words: bool, lines: bool
) -> None:
    items = []
    for letter, option in OPTIONS.items():
        mark = marks[letter != chosen]
        name = f"{letter}. {option}" if words else letter
        items.append(f"{name} {mark}" if behind else f"{mark} {name}")
    text = ("\n- " if lines else " ").join(["", *items])
    assert extract_choice(text, OPTIONS) == Extraction(chosen, "marked")


@given(marks=st.fixed_dictionaries({letter: st.booleans() for letter in OPTIONS}))
def test_several_ticked_options_are_no_answer(marks: dict[str, bool]) -> None:
    chosen = [letter for letter, mark in marks.items() if mark]
    expected = chosen[0] if len(chosen) == 1 else None
    ticks = "\n".join(f"- [{'x' if mark else ' '}] {letter}" for letter, mark in marks.items())
    words = ", ".join(f"{letter}: {str(mark).lower()}" for letter, mark in marks.items())
    for text in (json.dumps(marks), json.dumps({"answers": marks}), ticks, words):
        assert extract_choice(text, OPTIONS).answer == expected, text


@pytest.mark.cases(
    ("text", "letter"),
    [
        ('{"A": 0.1, "B": 0.8}', "B"),
        ('{"A": "10%", "B": "80%", "C": "5%", "D": "5%"}', "B"),
        ("A: 10%, B: 80%, C: 5%, D: 5%", "B"),
        ("P(A)=0.1, P(B)=0.8, P(C)=0.05, P(D)=0.05", "B"),
        ('{"A": {"correct": false}, "B": {"correct": true}}', "B"),
        ('[{"option": "A", "correct": false}, {"option": "B", "correct": true}]', "B"),
        ('{"cat": false, "dog": true}', "B"),
        ('{"is_A": false, "is_B": true}', "B"),
        ("(A) false (B) true (C) false (D) false", "B"),
        ("B: true", "B"),
        *[
            (text, None)
            for text in [
                '{"A": 1, "B": 2}',
                '{"A": 0.4, "B": 0.4}',
                '{"A": "cat", "B": "dog"}',
                '{"A": "maybe", "B": "no"}',
                "B: false",
                '{"B": false}',
                "❌ B",
                "A: 50%, B: 50%",
            ]
        ],
    ],
)
def test_probabilities_and_words(text: str, letter: str | None) -> None:
    assert extract_choice(text, OPTIONS).answer == letter


def test_options_that_are_words_of_marks_are_repeated_and_not_marked() -> None:
    assert extract_choice("A: Yes, B: No", {"A": "Yes", "B": "No"}).answer is None
    assert extract_choice('{"A": 0.1, "B": 0.8}', {"A": "0.1", "B": "0.8"}).answer is None
