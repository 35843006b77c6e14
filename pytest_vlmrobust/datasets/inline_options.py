"""Options that are written at the end of a question instead of in columns of their own."""

from __future__ import annotations

import re

from .drafts import LETTERS

_HEADING = re.compile(r"\s*(?:options|choices)\s*:?\s*\Z", re.IGNORECASE)
_LABELS = (r"(?m:^)[ \t]*\(?{letter}[).:]\s+", r"(?:(?<=\s)|(?<=\A)|(?<=[,;:]))\(?{letter}[).:]\s+")
"""A label that begins a line, and one anywhere."""


def options_in(question: str) -> tuple[str, dict[str, str]]:
    r"""Returns the question without its options, and the options by letter; none unless two stand there in order.

    Labels are ``A.``, ``A:``, ``A)`` and ``(A)``, each at the beginning of a line, or else all after white space, a comma or a
    semicolon; the last option ends with its line.

    >>> options_in("Which way?\nA. Left.\nB. Right.")
    ('Which way?', {'A': 'Left.', 'B': 'Right.'})
    >>> options_in("Who? Options: A: the cat, B: the dog, C: nobody")
    ('Who?', {'A': 'the cat', 'B': 'the dog', 'C': 'nobody'})
    >>> options_in("Is plan A. better?")
    ('Is plan A. better?', {})
    """
    labels = next(filter(None, (_labels(question, label) for label in _LABELS)), [])
    if not labels:
        return question, {}
    ends = [label.start() for label in labels[1:]] + [len(question)]
    texts = [question[label.end() : end] for label, end in zip(labels, ends, strict=True)]
    texts[-1] = texts[-1].strip().partition("\n")[0]
    options = {letter: text.strip().rstrip(",;").strip() for letter, text in zip(LETTERS, texts, strict=False)}
    return _HEADING.sub("", question[: labels[0].start()]).strip(), options


def _labels(question: str, label: str) -> list[re.Match[str]]:
    """Returns where the labels A, B, … stand, each after the one before; the last A that a B follows begins the list."""
    for first in reversed(list(re.finditer(label.format(letter="A"), question))):
        labels = [first]
        for letter in LETTERS[1:]:
            following = re.compile(label.format(letter=letter)).search(question, labels[-1].end())
            if following is None:
                break
            labels.append(following)
        if len(labels) > 1:
            return labels
    return []
