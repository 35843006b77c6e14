"""Phrases: their file, and answers composed of them. An answer that names an option is read as that option or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.scoring import extract_choice, extract_yes_no, scoring_rules
from pytest_vlmrobust.scoring.phrases import FILE, ROLES, Language, in_english, languages_of, read_phrases, shipped

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
OTHERS = {code: language for code, language in shipped().languages.items() if code != "en"}
JOINED_FORWARD = "{answer} {is} {letter}"
SAYING = (
    JOINED_FORWARD,
    "{answer}: {letter}",
    "{answer}: ({letter})",
    "{answer} {is} {option} {letter}",
    "{choose} {letter}",
    "{choose} {option} {letter}",
    "{so} {answer} {is} {letter}",
    "{so} {choose} {letter}",
    "{letter} {is} {correct}",
    "{option} {letter} {is} {correct}",
    "{is} {letter}",
)
DENYING = ("{answer} {is_not} {letter}", "{is_not} {letter}", "{letter} {wrong}", "{option} {letter} {wrong}")
JOINING = (
    "{answer} {is} {letter} {or} {other}",
    "{letter} {or} {other}",
    "{letter} {and} {other}",
    "{answer}: {letter} {or} {other}",
)
WRAPPED = ("{}", "{}.", "**{}**", "<answer>{}</answer>", "\\boxed{{{}}}", "<answer>\\boxed{{{}}}.</answer>", "<think>D</think>{}")


def roles_of(template: str) -> set[str]:
    return {role for role in ROLES if f"{{{role}}}" in template}


def spoken(template: str, language: Language) -> bool:
    """Says whether a language has every phrase of a template; without a verb, Russian joins by a dash."""
    return roles_of(template) <= language.phrases.keys()


@st.composite
def sentences(draw: st.DrawFn, templates: tuple[str, ...], letter: str = "B", other: str = "C") -> str:
    language = OTHERS[draw(st.sampled_from(sorted(OTHERS)))]
    template = draw(st.sampled_from([template for template in templates if spoken(template, language)]))
    words = {role: draw(st.sampled_from(language.phrases[role])) for role in sorted(roles_of(template))}
    text = template.format(letter=letter, other=other, **words)
    return text if language.spaces else text.replace(" ", "")


@settings(max_examples=600, deadline=None)
@given(text=sentences(SAYING), wrapped=st.sampled_from(WRAPPED))
def test_an_answer_is_never_read_as_another_letter(text: str, wrapped: str) -> None:
    assert extract_choice(wrapped.format(text), OPTIONS).answer in {"B", None}


@settings(max_examples=600, deadline=None)
@given(text=sentences(DENYING), wrapped=st.sampled_from(WRAPPED))
def test_a_denied_letter_is_never_read(text: str, wrapped: str) -> None:
    assert extract_choice(wrapped.format(text), OPTIONS).answer is None


@settings(max_examples=400, deadline=None)
@given(text=sentences(JOINING), wrapped=st.sampled_from(WRAPPED))
def test_two_letters_are_never_one_answer(text: str, wrapped: str) -> None:
    assert extract_choice(wrapped.format(text), OPTIONS).answer is None


@settings(max_examples=600, deadline=None)
@given(said=sentences(SAYING), denied=sentences(DENYING, "C"), first=st.booleans())
def test_of_an_answer_and_a_denial_the_denied_letter_is_never_read(said: str, denied: str, first: bool) -> None:
    text = f"{said}. {denied}." if first else f"{denied}. {said}."
    assert extract_choice(text, OPTIONS).answer in {"B", None}


def plain_answers() -> Iterator[tuple[str, str]]:
    for code, language in sorted(OTHERS.items()):
        for template in SAYING[:9]:
            if spoken(template, language):
                words = {role: language.phrases[role][0] for role in roles_of(template)}
                text = template.format(letter="B", **words)
                yield code, text if language.spaces else text.replace(" ", "")


def test_nearly_all_plain_answers_are_read() -> None:
    texts = list(plain_answers())
    unread = [(code, text) for code, text in texts if extract_choice(text, OPTIONS).answer != "B"]
    assert len(texts) > 90
    assert len(unread) <= len(texts) // 20, unread


@pytest.mark.parametrize("meaning", ["yes", "no"])
@pytest.mark.parametrize("code", [code for code in sorted(OTHERS) if "yes" in OTHERS[code].phrases])
def test_yes_and_no_in_every_language(code: str, meaning: str) -> None:
    for phrase in OTHERS[code].phrases.get(meaning, ()):
        for text in (phrase, f"{phrase}.", f"{phrase.capitalize()}, X", f"<answer>{phrase}</answer>"):
            assert extract_yes_no(text).answer == meaning, text


def test_no_phrase_is_yes_in_one_language_and_no_in_another() -> None:
    said = {
        meaning: {phrase for language in shipped().languages.values() for phrase in language.phrases.get(meaning, ())}
        for meaning in ("yes", "no")
    }
    assert not said["yes"] & said["no"]


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("La respuesta correcta es la opción B.", "the answer is B."),
        ("A resposta correta é a letra B", "the answer is B"),
        ("C'est la B", "it is B"),
        ("Bが正解です", "B is correct"),
        ("정답은 B가 아닙니다", "the answer is B is wrong"),
        ("Nicht A, sondern B", "not A, but B"),
        ("B or not, the dog is running", "B or not, the dog is running"),
    ],
)
def test_phrases_become_english(text: str, english: str) -> None:
    assert in_english(text) == english


def test_words_of_options_stay() -> None:
    options = {"A": "es la casa B", "B": "otra"}
    assert extract_choice("La respuesta es: es la casa B", options).answer == "A"
    assert in_english("选项B", ("选项b",)) == "选项B"


def test_english_is_not_taken_for_another_language() -> None:
    assert languages_of("The final answer is in conclusion B, so I vote for option B on the logo") == []


def test_the_rules_have_a_fingerprint() -> None:
    rules = scoring_rules()
    assert rules["phrases"] == shipped().digest
    assert read_phrases(FILE).digest == shipped().digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("languages: {en: {so: [so]}}", "lacks 'also_english'"),
        ("also_english: [a]\nlanguages: {es: {so: [so]}}", "lacks 'en'"),
        ("also_english: [a]\nlanguages: {en: {sew: [so]}}", "unknown key 'sew'"),
        ("also_english: [a]\nlanguages: {en: {so: [so, so]}}", "'so' twice"),
        ("also_english: [a]\nlanguages: {en: {so: []}}", "text, or a list of texts"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "phrases.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as error:
        read_phrases(path)
    assert "phrases.yaml:" in str(error.value)
