"""What a setting is, for reports, plans and keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pytest_vlmrobust.core.setting import Setting

from .catalog import records


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The facts about one setting.

    Of a composed setting, ``name``, ``family`` and ``category`` join those of its steps by ``+`` (each once), ``level`` and
    ``version`` are ``None`` (see :func:`fingerprint` for each step's), and a flag holds if it holds for one step.
    """

    setting: str
    name: str
    family: str
    category: str
    level: str | None
    version: int | None
    stochastic: bool
    label_changing: frozenset[str]
    """Members of ``record.CHANGES``: questions about these have another right answer under the setting."""
    keeps_size: bool
    views: int
    """How many pictures one becomes: n * n of ``patches:n``, else 1."""
    doc: str


def info(setting: str | Setting) -> SettingInfo:
    """Returns what is known about a setting; ``clean`` and ``no_image`` are families of their own.

    Raises:
        UnknownName: nothing has that name.
        SettingError: the setting cannot be read, or its level is absent or unknown.

    >>> info("flip_h").label_changing == {"left_right", "position"}
    True
    """
    parsed = _parsed(setting)
    steps = records(parsed)
    alone = len(steps) == 1
    return SettingInfo(
        setting=str(parsed),
        name=parsed.name,
        family=_joined([record.family for record, _ in steps]),
        category=_joined([record.category for record, _ in steps]),
        level=parsed.level,
        version=steps[0][0].version if alone else None,
        stochastic=any(record.stochastic for record, _ in steps),
        label_changing=frozenset().union(*(record.changes_at(level) for record, level in steps)),
        keeps_size=all(record.keeps_size for record, _ in steps),
        views=math.prod(record.views_at(level) for record, level in steps),
        doc="\n\n".join(record.doc for record, _ in steps),
    )


def fingerprint(setting: str | Setting) -> list[dict[str, Any]]:
    """Returns what decides the pixels of a setting, JSON-safe: name, level, parameters and version of each step.

    Among the parameters of a step that reads files, such as stored illusions, are the digests of those.

    Raises:
        UnknownName: nothing has that name.
        SettingError: the setting cannot be read, or its level is absent or unknown.

    >>> fingerprint("rotate:mid")
    [{'name': 'rotate', 'level': 'mid', 'params': {'degrees': 15}, 'version': 1}]
    """
    return [
        {"name": record.name, "level": level, "params": dict(record.facts_at(level)), "version": record.version}
        for record, level in records(_parsed(setting))
    ]


def _parsed(setting: str | Setting) -> Setting:
    return Setting.parse(setting) if isinstance(setting, str) else setting


def _joined(words: list[str]) -> str:
    return "+".join(dict.fromkeys(words))
