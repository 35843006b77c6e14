"""Parts of regular expressions that several rules share.

Patterns are searched in lower-cased text, and each of their branches begins with a plain character: the engine then jumps
from one possible beginning to the next, about ten times as fast as with a word boundary in front and ``re.IGNORECASE``.
"""

from __future__ import annotations

WORD = r"A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff"
"""Characters that a letter of an option must not touch; Chinese ones may: 选B项."""


HEDGE = (
    r"(?:(?:more|most|quite|very) )?(?:maybe|perhaps|possibly|probably|potentially|likely|alternatively|even|(?:could|might) be)"
)
"""Words with which a second answer is put beside the first: "B, or maybe C"."""


def any_of(*alternatives: str) -> str:
    """Returns a pattern for one of ``alternatives``."""
    return f"(?:{'|'.join(alternatives)})"


def word(*alternatives: str) -> str:
    """Returns a pattern for one of ``alternatives``, each beginning with a plain character, as whole words."""
    begun = (f"{text[0]}(?<![{WORD}]{text[0]}){text[1:]}" for text in alternatives)
    return rf"{any_of(*begun)}(?![{WORD}])"
