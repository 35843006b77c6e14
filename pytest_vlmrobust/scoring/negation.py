"""Is a thing that is mentioned also meant? "not a cat", "C and D are wrong", "不是B"."""

from __future__ import annotations

import re

_REACH = 80
"""Characters before and after a mention that are looked at."""

_CLAUSE_END = re.compile(
    r"[.,;:!?\n()]|\b(?:(?<!\banything )(?<!\ball )but|so|therefore|thus|hence|because|while|whereas|however"
    r"|although|though|then|yet)\b"
    r"|但|所以|而是|因此",
    re.IGNORECASE,
)
_NEGATOR = re.compile(
    r"\b(?:not(?! only)|no(?! doubt| question)|never|neither|nor|none|cannot|without(?! (?:a |any )?(?:doubt|question))|unlike"
    r"|than|except|instead of|far from|nothing like|anything but|all but)\b"
    r"|\b(?:wrong|incorrect|(?:rule[sd]?|ruling) out|eliminat\w+|exclud\w+|reject\w*|dismiss\w*)\b|n't\b|不|没|非"
    r"|\b(?:(?<!\bat )least|hardly an?|lack(?:s|ing)?|missing|fail(?:s|ed)? to)\b"
    r"|(?<!\bno )(?<!\ba )(?<!\bany )\bdoubt(?:s|ed|ful)?\b"
    r"|\b(?:im(?:possible|probable)|unlikely|un(?:sure|clear|certain)|whether)\b"
    r"|(?<!\bas )\bif (?:it|this|that|they|there)\b|\bif (?:option )?\(?$|\bwas (?:going|about|tempted) to\b"
    r"|\bwould have(?! to\b)",
    re.IGNORECASE,
)
"""What denies, doubts, or says what would be."""
_VERB = r"(?:is|are|was|were|does|do|did|can|could|would|has|have|seems?|looks?|appears?|must be)"
_DENIAL = (
    r"(?:not|never|less|least|wrong|incorrect|false|untrue|impossible|irrelevant|unlikely|absent|missing|(?:ruled )?out"
    r"|eliminated|excluded)"
)
_DENIED = re.compile(
    r"(?:\s*(?:,|and|or|&)\s*(?:options?\s+)?\(?[A-Z]\)?(?![A-Z])){0,9}\s*(?:\([^()\n]{0,60}\)\s*)?"
    rf"(?:\?\s*no(?! doubt| question)\b|{_VERB}(?:n't\b|\s+(?:(?:\w+ly|the|by far)\s+){{0,2}}(?:\w+\s+)?{_DENIAL}\b)"
    r"|(?:选项)?是?(?:不|错)|[吗嗎]|(?:가|이|은|는)?\s?아[니닙닌]|では?(?:な|あり))",
    re.IGNORECASE,
)


def negated(text: str, start: int, end: int) -> bool:
    """Says whether the mention ``text[start:end]`` is denied: by a negator before it in its clause, or by a verb after it."""
    clause = _CLAUSE_END.split(text[max(0, start - _REACH) : start])[-1]
    return _NEGATOR.search(clause) is not None or _DENIED.match(text, end, end + _REACH) is not None
