"""Portraits: the identity of a drawn face, its split, and its lookalikes.

A portrait is one of a few values for each feature (which make up the identity) and some numbers (which make two noses of one
shape differ). No real people are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .scenes import held_out

TONES = {
    "light": ("porcelain", "peach", "honey", "almond"),
    "dark": ("chestnut", "bronze", "umber", "ebony"),
}
"""Skin tones by group. All other features are drawn independently of the tone: a gap between groups is only about tone."""
GROUPS = tuple(TONES)
CHOICES: Mapping[str, Mapping[str, float]] = {
    "face": {"oval": 1, "round": 1, "square": 1, "heart": 1, "long": 1, "diamond": 1},
    "hair": {
        **dict.fromkeys(("side_part", "quiff", "curly", "afro", "bob", "fringe", "long", "wavy", "bun", "swept"), 1.0),
        **dict.fromkeys(("bald", "buzz", "mohawk", "spiky", "pigtails", "headscarf", "beanie", "turban"), 0.7),
    },
    "hair_colour": {"black": 1.2, "brown": 1.2, "chestnut": 1, "auburn": 1, "blond": 1, "grey": 0.8, "white": 0.6, "teal": 0.4},
    "eyes": {"almond": 1, "round": 1, "narrow": 1, "upturned": 1, "hooded": 1},
    "iris": {"brown": 1.2, "hazel": 1, "green": 1, "blue": 1, "grey": 0.8},
    "brows": {"straight": 1, "arched": 1, "rounded": 1, "angled": 1, "bushy": 0.8},
    "nose": {"straight": 1, "button": 1, "broad": 1, "pointed": 1, "aquiline": 1},
    "mouth": {"smile": 1.2, "neutral": 1, "grin": 1, "open": 0.8, "smirk": 0.8, "pout": 0.8},
    "beard": {"none": 3, "stubble": 0.8, "moustache": 0.7, "goatee": 0.7, "full": 0.8},
    "glasses": {"none": 2.2, "round": 0.8, "square": 0.8, "cat_eye": 0.6, "half_rim": 0.6},
    "detail": {"none": 1.5, "freckles": 1, "blush": 1, "beauty_spot": 0.8, "wrinkles": 0.7},
    "ears": {"plain": 2, "studs": 0.8, "hoops": 0.8, "large": 0.8},
    "clothes": {"crew": 1, "v_neck": 1, "shirt": 1, "hoodie": 1, "turtleneck": 0.8},
    "cloth": {"navy": 1, "rust": 1, "forest": 1, "mustard": 1, "plum": 1, "cream": 1, "slate": 1, "coral": 1},
    "backdrop": {"sky": 1, "sand": 1, "mint": 1, "lilac": 1, "rose": 1, "butter": 1, "mist": 1, "teal": 1},
}
"""Values by feature, with the relative frequencies at which they are drawn."""
NUMBERS: Mapping[str, tuple[float, float]] = {
    "face_width": (0.70, 0.78),
    "eye_spacing": (0.29, 0.35),
    "eye_size": (0.92, 1.14),
    "eye_height": (-0.02, 0.06),
    "brow_thickness": (0.8, 1.25),
    "brow_angle": (-0.05, 0.05),
    "nose_width": (0.86, 1.18),
    "nose_length": (0.88, 1.14),
    "mouth_width": (0.88, 1.16),
    "lip_fullness": (0.7, 1.3),
    "mouth_curve": (0.8, 1.2),
    "hair_volume": (0.85, 1.12),
}
"""Ranges by number, drawn uniformly; lengths are in halves of the head's height, the others relative to the usual."""
POSE: Mapping[str, tuple[float, float]] = {
    "x": (0.465, 0.535),
    "y": (0.475, 0.515),
    "scale": (0.262, 0.292),
    "roll": (-3.5, 3.5),
    "light": (-1.0, 1.0),
}
"""The pose: centre and half height of the head as fractions of the side, its roll in degrees, and the direction of the light."""
VARIED: Mapping[str, tuple[str, ...]] = {
    "face": ("face_width",),
    "hair": ("hair_volume",),
    "hair_colour": (),
    "eyes": ("eye_spacing", "eye_size"),
    "brows": ("brow_thickness", "brow_angle"),
    "nose": ("nose_width", "nose_length"),
    "mouth": ("mouth_width", "lip_fullness", "mouth_curve"),
    "beard": (),
    "glasses": (),
    "detail": (),
}
"""Features in which the members of a family can differ, with their numbers."""
BOLD = ("hair", "hair_colour", "beard", "glasses", "mouth")
"""Features still visible in a small picture: the members of a family differ in at least one of them."""
FAMILY = 4
"""Members of a family of a collection: an identity and three lookalikes."""
_DIFFERENCES = 3
_TRIES = 400


@dataclass(frozen=True, slots=True)
class Portrait:
    """One drawn person: values of ``CHOICES``, numbers in the ranges of ``NUMBERS``, and the pose in those of ``POSE``."""

    tone: str
    face: str
    hair: str
    hair_colour: str
    eyes: str
    iris: str
    brows: str
    nose: str
    mouth: str
    beard: str
    glasses: str
    detail: str
    ears: str
    clothes: str
    cloth: str
    backdrop: str
    face_width: float
    eye_spacing: float
    eye_size: float
    eye_height: float
    brow_thickness: float
    brow_angle: float
    nose_width: float
    nose_length: float
    mouth_width: float
    lip_fullness: float
    mouth_curve: float
    hair_volume: float
    x: float
    y: float
    scale: float
    roll: float
    light: float

    @property
    def group(self) -> str:
        """``light`` or ``dark``: the group of its skin tone."""
        return next(group for group, tones in TONES.items() if self.tone in tones)

    @property
    def signature(self) -> str:
        """The identity, without numbers: portraits with equal signatures show the same person."""
        return "|".join([self.tone, *(getattr(self, name) for name in CHOICES)])

    @property
    def held_out(self) -> bool:
        """Whether the identity belongs to the evaluation split: one fold of five, by a hash of the signature."""
        return held_out(self.signature)

    @property
    def plausible(self) -> bool:
        """Whether the combination is plausible: headscarves and beards are not combined."""
        return self.hair != "headscarf" or self.beard == "none"


def random_portrait(rng: np.random.Generator, group: str) -> Portrait:
    """Returns a portrait of either split with a skin tone of ``group`` (one of ``GROUPS``)."""
    tones = TONES[group]
    tone = tones[int(rng.integers(len(tones)))]
    numbers: dict[str, Any] = {name: _uniform(rng, bounds) for name, bounds in (*NUMBERS.items(), *POSE.items())}
    while True:
        choices: dict[str, Any] = {name: _choice(rng, name) for name in CHOICES}
        portrait = Portrait(tone=tone, **choices, **numbers)
        if portrait.plausible:
            return portrait


def families(rng: np.random.Generator, *, evaluation: bool, size: int = FAMILY) -> Iterator[tuple[Portrait, ...]]:
    """Yields families (portraits easily mistaken for each other) of one split without end, alternating between ``GROUPS``.

    The members of a family share clothes, backdrop, pose, skin tone and most features. Any two differ in the same three
    features, at least one of them in ``BOLD``. Which member comes first is random, so only a picture reveals the target, not
    the group (shared by all), the features that most of them share, or rarity. ``rng`` is
    consumed as needed. ``evaluation`` is the split of all members; training draws the other. A family has 1 to
    ``FAMILY`` members.
    """
    if not 1 <= size <= FAMILY:
        raise ValueError(f"a family has 1 to {FAMILY} members, not {size}; relatives() yields more")
    while True:
        for group in GROUPS:
            family: tuple[Portrait, ...] = ()
            while len(family) < size:
                family = _family(rng, group, evaluation=evaluation, size=size)
            yield family


def relatives(rng: np.random.Generator, family: tuple[Portrait, ...]) -> Iterator[Portrait]:
    """Yields further portraits like those of a family without end: of its split and tone, all different.

    They come in families of the same size, whose members differ in the same features as in the first. The features that members
    share are redrawn, once per family like those of the first, in three features that are the same for all; so members of two
    families differ in up to six. If whole families are shown, nothing reveals which is the first; single portraits drawn
    around a member would put it in the middle. ``rng`` is consumed as needed; the family has two members or more.
    """
    base, signatures = family[0], {member.signature for member in family}
    varied = [name for name in VARIED if len({getattr(member, name) for member in family}) > 1]
    rest = [name for name in VARIED if name not in varied]
    shared = [rest[i] for i in rng.permutation(len(rest))[:_DIFFERENCES]]
    while True:
        others = _members(rng, _redrawn(rng, base, shared), varied, evaluation=base.held_out, size=len(family))
        if len(others) == len(family) and signatures.isdisjoint(other.signature for other in others):
            signatures.update(other.signature for other in others)
            yield from others


def _family(rng: np.random.Generator, group: str, *, evaluation: bool, size: int) -> tuple[Portrait, ...]:
    """Returns a family, with too few members if the base has no more of the split."""
    base = random_portrait(rng, group)
    return _members(rng, base, _choose_varied(rng), evaluation=evaluation, size=size)


def _members(rng: np.random.Generator, base: Portrait, varied: list[str], *, evaluation: bool, size: int) -> tuple[Portrait, ...]:
    """Returns portraits of one split that differ from each other in all of ``varied``; too few if there are no more."""
    members: list[Portrait] = []
    for _ in range(_TRIES):
        member = _redrawn(rng, base, varied)
        apart = all(getattr(member, name) != getattr(m, name) for m in members for name in varied)
        if apart and member.plausible and member.held_out == evaluation:
            members.append(member)
        if len(members) == size:
            break
    return tuple(members[i] for i in rng.permutation(len(members)))


def _choose_varied(rng: np.random.Generator) -> list[str]:
    bold = BOLD[int(rng.integers(len(BOLD)))]
    others = [name for name in VARIED if name != bold]
    return [bold, *(others[i] for i in rng.permutation(len(others))[: _DIFFERENCES - 1])]


def _redrawn(rng: np.random.Generator, portrait: Portrait, names: list[str]) -> Portrait:
    changes: dict[str, Any] = {name: _choice(rng, name) for name in names}
    changes.update({number: _uniform(rng, NUMBERS[number]) for name in names for number in VARIED[name]})
    return replace(portrait, **changes)


def _choice(rng: np.random.Generator, name: str) -> str:
    values = CHOICES[name]
    mark = rng.random() * sum(values.values())
    for value, weight in values.items():
        mark -= weight
        if mark < 0:
            return value
    return value


def _uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return round(low + (high - low) * float(rng.random()), 4)
