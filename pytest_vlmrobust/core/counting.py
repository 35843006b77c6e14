"""Counting: how many there are of something, in words that fit the number."""

from __future__ import annotations


def quantity(count: int, one: str, several: str = "") -> str:
    """Returns a count with its noun, and its verb where the words have one.

    Args:
        count: how many.
        one: the words after 1.
        several: the words after any other count; ``one`` and an ``s`` where nothing is said.

    >>> quantity(1, "test"), quantity(0, "test"), quantity(2, "test is open", "tests are open")
    ('1 test', '0 tests', '2 tests are open')
    """
    return f"{count} {one if count == 1 else several or f'{one}s'}"
