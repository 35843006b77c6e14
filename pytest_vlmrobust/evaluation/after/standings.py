"""Ranking: several models on the same samples under the same settings, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_vlmrobust.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number that is known about each model."""

    name: str
    """That of the registered metric, where it is one."""
    words: str
    better: Literal["higher", "lower"]
    ranks: bool = True
    """Whether models can be ranked by it."""


MEAN_ACCURACY = Quantity("mean_accuracy", "accuracy under settings", "higher")
CLEAN_ACCURACY = Quantity("clean_accuracy", "clean accuracy", "higher")
MEAN_DROP = Quantity("mean_drop", "mean drop", "lower")
WORST_CASE_DROP = Quantity("worst_case_drop", "worst-case drop", "lower", ranks=False)
MEAN_CORRUPTION_ERROR = Quantity("mean_corruption_error", "mCE", "lower")
QUANTITIES = {
    quantity.name: quantity for quantity in (MEAN_ACCURACY, CLEAN_ACCURACY, MEAN_DROP, WORST_CASE_DROP, MEAN_CORRUPTION_ERROR)
}
"""What is known about each model, by name, in the order of columns.

Nothing is ranked by the largest of many drops: the difference of two such maxima has no interval that is worth having.
"""
BY = tuple(name for name, quantity in QUANTITIES.items() if quantity.ranks)
"""What models can be ranked by; the first one unless another is chosen."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One model among the others."""

    model: str
    values: Mapping[str, Estimate]
    """Name of a quantity to its value with interval; an undefined one says why."""
    rank: int | None = None
    """One more than the models that are better: models that tie share the better rank. ``None`` where nothing is ranked."""
    rank_best: int | None = None
    """The best rank that the samples do not rule out: one more than the models that are shown to be better."""
    rank_worst: int | None = None
    """The worst one: all models but those that are shown to be worse."""
    not_apart: tuple[str, ...] = ()
    """Models that it cannot be told apart from."""
    failed: int = 0
    """Inferences of the cells that count which failed: they have no score."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is known about two models: the first one's quantity minus the second one's, paired by sample."""

    first: str
    second: str
    difference: Estimate
    """Its interval holds together with those of all other pairs."""
    apart: bool
    """Whether the samples tell the two apart: the interval leaves 0 out."""


@dataclass(frozen=True, slots=True)
class FamilyDrops:
    """How much each model loses under one family of perturbations."""

    family: str
    settings: int
    """Settings that the mean is taken over, of all datasets."""
    mean_drop: Mapping[str, Estimate]
    """By model."""


CORRUPTION_ERRORS, TIERS, CATEGORY_DROPS = "corruption_errors", "tiers", "category_drops"
SIZE_TREND, PROMPT_MODES, PATCH_TASKS = "size_trend", "prompt_modes", "patch_tasks"
CHAIN_LENGTHS, PATCH_BOXES = "chain_lengths", "patch_boxes"
RCI_BANDS, RCI_CORRELATIONS = "rci_bands", "rci_correlations"
EFFECTS, MOST_HARMFUL, TOP_RCE = "effects", "most_harmful", "top_rce"


@dataclass(frozen=True, slots=True)
class ModelAnalysis:
    """One row of what a paper computes from several models."""

    name: str
    """The analysis, one of the constants above."""
    part: str
    """What the row is about: a family of perturbations, a setting, a category of questions, a model or all of them, a family of
    models or a pair; of ``rci_bands`` a dataset."""
    values: Mapping[str, Estimate]
    """Column to number: the columns are models, or quantities."""
    of: str = ""
    """Of ``tiers``, ``effects``, ``most_harmful`` and ``top_rce`` the level, of ``patch_tasks`` the task, of ``chain_lengths``
    the outcome, of ``patch_boxes`` the patch, of ``rci_bands`` and ``rci_correlations`` the grid; empty for the others."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """All models on one dataset, or over all datasets."""

    dataset: str
    """Empty over all datasets."""
    samples: int
    settings: int
    """Perturbed settings that count: those that all models were asked about; over all datasets their sum."""
    standings: tuple[Standing, ...]
    """Best first."""
    differences: tuple[Difference, ...] = ()
    """Every pair of models once, in the order of the standings."""
    families: tuple[FamilyDrops, ...] = ()
    """Families that cost most, on average over models, come first."""
    notes: tuple[str, ...] = ()
    """What limits it: failed inferences, quantities that are undefined and why."""
    analyses: tuple[ModelAnalysis, ...] = ()
    """What the papers compute from several models: of one dataset, and on the first board PCRI by task."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Several models side by side."""

    runs: tuple[str, ...]
    """Where the runs are."""
    models: tuple[str, ...]
    by: str
    """Name of the quantity that ranks."""
    reference: str
    """The model whose errors are the unit of mCE; empty where none was named."""
    boards: tuple[Board, ...]
    """Over all datasets first, where there are several, then one for each."""
    left_out: tuple[str, ...] = ()
    """What was measured and does not count: cells that not all models were asked about, and experiments of another kind."""
    confidence: float = 0.90
    """Level of each interval, and of all statements about ranks and pairs of a board together."""

    @property
    def quantity(self) -> Quantity:
        """What ranks."""
        return QUANTITIES[self.by]

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities of the table, the ranking one first; mCE only with a reference model."""
        given = [quantity for quantity in QUANTITIES.values() if self.reference or quantity is not MEAN_CORRUPTION_ERROR]
        return sorted(given, key=lambda quantity: quantity.name != self.by)
