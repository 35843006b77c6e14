"""What a sequential gate is asked, and why it answered."""

from __future__ import annotations

from enum import StrEnum


class Target(StrEnum):
    """Which question a gate answers; never mixed, and named in every report.

    ``EXACT`` and ``DATASET`` ask for the verdict that all N answers would give: without any risk, or at a declared risk whose
    only source is the seeded order. ``POPULATION`` asks about the distribution that the N samples were drawn from.
    """

    EXACT = "exact"
    DATASET = "dataset"
    POPULATION = "population"


class Reason(StrEnum):
    """What decided: the answers that are still missing cannot matter, or the evidence suffices at the declared risk."""

    CERTAIN = "certain"
    EVIDENCE = "e-value"
    UNDECIDED = "undecided"
