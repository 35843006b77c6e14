"""What a library says went wrong, in one line."""

from __future__ import annotations


def reason(error: Exception) -> str:
    r"""Returns the kind of an error and the first line of its message.

    >>> reason(ValueError("no such layer\n  in layer 3"))
    'ValueError: no such layer'
    """
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['(no message)'])[0]}"
