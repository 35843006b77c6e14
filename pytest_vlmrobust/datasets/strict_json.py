"""JSON without its loose ends: hooks for ``json`` that refuse keys written twice and numbers that are none."""

from __future__ import annotations

from typing import Any, NoReturn


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object (``object_pairs_hook``).

    Raises:
        ValueError: a key occurs twice.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return row


def refuse_constant(constant: str) -> NoReturn:
    """Refuses ``NaN`` and ``Infinity``, which Python reads (``parse_constant``).

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{constant} is not JSON")


def is_text(value: object) -> bool:
    """Returns whether a value of JSON can stand for text: text or a number, and not true or false."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
