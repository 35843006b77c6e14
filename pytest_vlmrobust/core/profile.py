"""Profile: what a dataset is and how it would be scored, with its first questions, before any model is asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """One question as a person looks at it; every text is that of the data, whatever it holds."""

    id: str
    text: str
    """The question with its hint."""
    options: tuple[tuple[str, str], ...]
    """Letters and texts."""
    target: str
    scorer: str
    category: str
    pictures: tuple[bytes, ...]
    """A WebP of each, small enough for a page; empty where the picture cannot be read."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a dataset."""

    name: str
    facts: tuple[tuple[str, str], ...]
    """What is asked about, and the answer."""
    notes: tuple[str, ...]
    """What its reader should know, such as rows left out."""
    refusal: str
    """Why a run with these data is refused; empty where it is not."""
    unread: tuple[str, ...]
    """Which pictures cannot be read, and why."""
    questions: tuple[Question, ...]
    """The first ones."""
