"""What a model thinks before it answers, as each family of models marks it.

``<think>…</think>`` of most; ``<|channel>thought…<channel|>``; ``◁think▷…◁/think▷`` of Kimi; ``[THINK]…[/THINK]`` of Magistral;
and the channels of harmony, of which only ``final`` is an answer, with their marks or, where a decoder dropped
these, without them.
"""

from __future__ import annotations

import re

_NAME = r"(?i:(?:\w{1,9}:)?(?:think|thinking|thought|reasoning))"
_OPEN = re.compile(
    rf"<{_NAME}>|<\|channel>thought|\u25c1think\u25b7|\[THINK\]"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?!\s?final\b)|\Aanalysis(?=[A-Z])"
)
_CLOSE = re.compile(
    rf"</{_NAME}>|<channel\|>|\u25c1/think\u25b7|\[/THINK\]"
    r"|(?:<\|start\|>assistant)?<\|channel\|>\s?final\b(?:\s?<\|constrain\|>\w{0,20})?|assistantfinal"
)
_SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?s>|<(?:eos|bos|pad|end_of_turn|end_of_utterance)>")
_SIGN = re.compile(r"<|\u25c1|\[/?THINK|\Aanalysis|assistantfinal")


def after_thinking(text: str) -> str | None:
    """Returns what was said after thinking, without control tokens; None when thinking was begun and not ended.

    The opening mark may be missing, since some chat templates put it into the prompt. When nothing follows the thinking, what
    preceded it is the answer.
    """
    if not _SIGN.search(text):
        return text
    opened = _OPEN.search(text)
    closes = list(_CLOSE.finditer(text))
    after = text[closes[-1].end() :] if closes else text
    if opened and (not closes or _OPEN.search(after)):
        return None
    said = _SPECIAL.sub(" ", after)
    if said.strip() or not closes:
        return said
    return _SPECIAL.sub(" ", text[: opened.start()]) if opened and opened.start() < closes[-1].start() else ""
