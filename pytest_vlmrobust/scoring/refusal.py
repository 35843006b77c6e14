"""Does a text decline to answer?"""

from __future__ import annotations

import re

from .patterns import word

_I_CANNOT = r"\bi (?:can't|cannot|can not|couldn't|could not|am unable to|am not able to|won't|will not)"
_DO_IT = (
    r"(?:answer|assist|help|determine|tell|identify(?! (?:an?|any) )|provide|process|view|access|comply"
    r"|see (?:(?:the|any|an|this|your) )?(?:image|picture|photo)s?)"
)
_REFUSAL = re.compile(
    rf"{_I_CANNOT} (?:\w+ )?{_DO_IT}\b|\bi'm (?:unable|not able) to\b"
    r"|\bunable to (?:answer|determine|see|view|identify|process)\b"
    r"|\bsorry\b.{0,40}\b(?:can't|cannot|can not|unable|without|not able)\b|\bas an ai\b"
    r"|\b(?:cannot|can't|could not|couldn't|impossible to) (?:be )?(?:determined?|answer(?:ed)?|tell|say)\b"
    r"|\b(?:image|picture|photo) (?:was|is|has)(?:n't| not) (?:been )?(?:provided|attached|given|included|visible to me)\b"
    r"|\bwithout (?:the|an|any) (?:image|picture)\b|\bno (?:image|picture) (?:(?:is|was|has been) )?(?:provided|attached|given)\b"
    r"|\bi (?:don't|do not) (?:know|have (?:enough|access))\b|\bnot enough information\b"
    r"|抱歉|无法(?:确定|回答|判断|看到|识别)|不能(?:确定|回答)|看不到",
    re.DOTALL,
)
_SIGN = re.compile(
    word("can't", "cannot", "can not", "couldn't", "could not", "unable", "not able", "won't", "will not", "without", "as an ai")
    + "|"
    + word("no image", "no picture", "don't", "do not", "not enough", "impossible")
    + "|"
    + word("wasn't", "isn't", "hasn't", "was not", "is not", "has not")
    + "|抱歉|无法|不能|看不到"
)


def is_refusal(lowered: str) -> bool:
    """Says whether a lower-cased text has the words of a refusal, or of not knowing."""
    return _SIGN.search(lowered) is not None and _REFUSAL.search(lowered) is not None
