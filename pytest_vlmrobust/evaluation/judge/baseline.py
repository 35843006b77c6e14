"""Baseline: the evidence of an earlier run; cells are compared with it sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UsageError, did_you_mean
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.evaluation.run.answers import Questions, whole_of
from pytest_vlmrobust.evaluation.run.plan import DIRECT
from pytest_vlmrobust.evaluation.run.prompts import scorable_choices
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.views import depends_on_seed
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.scoring import scoring_rules
from pytest_vlmrobust.store import Evidence, last_records, read_manifest
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

from .stored_answers import Rescored, StoredAnswers

_MOST = 3
"""How many ids a message names."""


@dataclass(eq=False)
class Baseline(StoredAnswers):
    """The answers of an earlier run, to compare with this run on the same samples."""

    trusting: bool = field(default=False, kw_only=True)
    """Whether stored scores that differ from recomputed scores are recorded in ``rescored`` instead of refused."""
    common: bool = field(default=False, kw_only=True)
    """Whether samples in only one of the runs are left out instead of refused."""
    called: str = field(default="the baseline", kw_only=True)
    """The name of the run in messages."""
    _paired: dict[str, _Pairing] = field(default_factory=dict)

    @cached_property
    def _cells(self) -> set[Cell]:
        return set(self.evidence.cells())

    @cached_property
    def _models(self) -> list[str]:
        return sorted({cell.model for cell in self._cells})

    @classmethod
    def open(
        cls,
        run: Path,
        *,
        trusting: bool = False,
        common: bool = False,
        called: str = "the baseline",
        known: Iterable[str] = (),
    ) -> Baseline:
        """Opens the evidence of a run: a directory below ``runs`` of a store, or a ``--vlm-report`` directory.

        ``known`` are names of runs that may have been meant.
        """
        if not (run / "predictions.sqlite").is_file():
            raise UsageError(
                f"{str(run)!r} holds no predictions.sqlite: expected the directory of a run, its name in the store, or a "
                f"directory that --vlm-report wrote.{did_you_mean(run.name, known)}"
            )
        baseline = cls(Evidence.open(run, read_only=True), trusting=trusting, common=common, called=called)
        baseline.evidence.refuse_impossible_counts()
        if not baseline._cells:
            raise UsageError(f"{str(run)!r}: the run measured nothing that could be compared with")
        return baseline

    def model(self, name: str) -> str:
        """Returns the model of the earlier run to compare ``name`` with: that of the same name, else the only model."""
        if name in self._models:
            return name
        if len(self._models) == 1:
            return self._models[0]
        raise UsageError(
            f"the baseline has no model {name!r}.{did_you_mean(name, self._models)} It has: {', '.join(self._models)}. "
            "Give the model the same name in the models file"
        )

    def has_cell(self, cell: Cell) -> bool:
        """Whether the earlier run has answers of this cell."""
        return self._earlier_cell(cell) in self._cells

    @cached_property
    def seed(self) -> int | None:
        """The seed of its stochastic settings; ``None`` if unknown, for example for evidence without its manifest."""
        settings = self._manifest.get("settings")
        seed = settings.get("vlm_seed") if isinstance(settings, dict) else None
        return seed if isinstance(seed, int) else None

    @property
    def perturbations(self) -> Mapping[str, str]:
        """The identities of the user's perturbations in that run; empty for evidence without its manifest."""
        identities: Mapping[str, str] = self._manifest.get("perturbations", {})
        return identities

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        directory = self.evidence.path.parent
        return read_manifest(directory) if (directory / MANIFEST).is_file() else {}

    @cached_property
    def stopped_early(self) -> bool:
        """Whether tests of the run stopped early, as its records say; of any other run, answers that are missing were removed."""
        try:
            return any(record.n_samples for record in last_records(self.evidence.path.parent))
        except StoreError:
            return False

    @property
    def without_pictures(self) -> tuple[str, ...]:
        """The datasets without image digests in the earlier run: it had no clean cell."""
        return tuple(name for name in self.evidence.datasets() if not self.pictures(name))

    def scores(self, cell: Cell, now: Questions, *, rescored: bool = True) -> NDArray[np.float64]:
        """Returns the earlier scores of the samples of this run, shape (N,); the best view counts if there are several.

        Scores are recomputed from the stored answers unless ``rescored`` is off, which is faster. They are NaN if an inference
        failed or the sample is only in this run, see :meth:`kept`. Images are compared if both runs have their digests.
        """
        places, earlier = self.places(cell.dataset, now), self._earlier_cell(cell)
        if rescored:
            result = self.checked(earlier)
            answered = range(len(result.samples)) if result.places is None else result.places
            best = dict(zip(answered, result.values, strict=True))
        else:
            stored = self.evidence.get_scores(earlier)
            best = dict(enumerate(np.reshape(stored, (len(self.samples(cell.dataset)), -1)).max(axis=1)))
        if others := {*places} - {None, *best}:
            raise DatasetError(
                f"the baseline cannot be compared on {cell.dataset}: {cell.setting} changes {len(others)} questions here that it "
                "left as they were there. Run the earlier model again with this release, and compare with that run"
            )
        return np.array([np.nan if place is None else best[place] for place in places], float)

    def kept(self, dataset: str, now: Questions) -> list[bool]:
        """Returns which samples of this run are compared: the earlier run has them too."""
        return [place is not None for place in self.places(dataset, now)]

    def left_out(self, dataset: str, now: Questions) -> tuple[str, ...]:
        """Returns how many samples are compared and how many are left out; empty if none is left out."""
        now, _ = whole_of(now, dataset)
        kept = self.kept(dataset, now)
        alone, gone = len(kept) - sum(kept), len(self.samples(dataset)) - sum(kept)
        if not (alone or gone):
            return ()
        shared = quantity(sum(kept), "common sample")
        return (f"{dataset} {ON_COMMON} {shared}: {alone} of this run and {gone} of the baseline are left out",)

    def earlier(self, cells: Iterable[Cell]) -> list[CellResult]:
        """Returns the earlier run's answers for the cells of this run that it has."""
        return [self.checked(self._earlier_cell(cell)) for cell in cells if self.has_cell(cell)]

    def checked(self, cell: Cell, *, whole: bool = True) -> CellResult:
        """Returns the earlier run's answers for a cell; without ``whole`` also if it asked only part of the samples."""
        result = self.result(cell) if whole else self.partial(cell)
        if differing := [] if self.trusting else [answer for answer in self.rescored if answer.cell == cell]:
            raise StoreError(self._refusal(differing))
        return result

    def refuse_seed(self, seed: int | None, cells: Iterable[Cell]) -> None:
        """Refuses a run whose stochastic settings made different images."""
        if seed is None or self.seed is None or seed == self.seed:
            return
        drawn = sorted({str(cell.setting) for cell in cells if depends_on_seed(cell.setting) and self.has_cell(cell)})
        if drawn:
            raise DatasetError(
                f"the baseline {str(self.evidence.path.parent)!r} was made with --vlm-seed={self.seed}, and this run has "
                f"--vlm-seed={seed}: images under {quantity(len(drawn), 'setting')} ({first_few(drawn, _MOST)}) "
                f"differ there. Run with --vlm-seed={self.seed}, or make a new baseline with --vlm-seed={seed}"
            )

    def refuse_perturbations(self, now: Mapping[str, str], cells: Iterable[Cell]) -> None:
        """Refuses a run if one of the user's perturbations changed since and kept its name."""
        steps = {step.name for cell in cells if self.has_cell(cell) for step in cell.setting.steps}
        known = steps & now.keys() & self.perturbations.keys()
        if changed := sorted(name for name in known if now[name] != self.perturbations[name]):
            raise DatasetError(
                f"the baseline {str(self.evidence.path.parent)!r} was made with other levels, or another version, of "
                f"{first_few(changed, _MOST)}: its images differ. Run the earlier model again, and compare with that run"
            )

    def answered_by(self, cell: Cell) -> frozenset[str]:
        """Returns how the choices of a cell of this run were answered, see :func:`answered_by`."""
        return answered_by(self.partial(cell))

    def refuse_answers(self, cell: Cell, now: frozenset[str]) -> None:
        """Refuses another run that answered choices in another way."""
        then = self.answered_by(self._earlier_cell(cell)) if now and self.has_cell(cell) else frozenset()
        if then and then != now:
            raise DatasetError(
                f"the baseline {str(self.evidence.path.parent)!r} cannot be compared on {cell.dataset}: choices were answered "
                f"there by {' and '.join(sorted(then))}, and here by {' and '.join(sorted(now))}. {UNLIKE_ANSWERS}"
            )

    def close(self) -> None:
        """Closes the evidence."""
        self.evidence.close()

    def _refusal(self, differing: Sequence[Rescored]) -> str:
        more = f", and {quantity(len(differing) - 1, 'more answer')} of this cell" if len(differing) > 1 else ""
        return (
            f"{self.evidence.path}: {differing[0]}{more}. The scores of a baseline have to follow from its "
            f"answers: {self._why_scores_differ()}. Run the earlier model again, and compare with that run"
        )

    def _why_scores_differ(self) -> str:
        try:
            rules = read_manifest(self.evidence.path.parent).get("scoring")
        except StoreError:
            rules = None
        if rules is None:
            return "either the file was changed, or a release with other scoring rules wrote it"
        return (
            "the file was changed" if rules == scoring_rules() else "they were read by other scoring rules, as its manifest says"
        )

    def _earlier_cell(self, cell: Cell) -> Cell:
        return Cell(self.model(cell.model), cell.dataset, cell.setting)

    def places(self, dataset: str, now: Questions) -> tuple[int | None, ...]:
        """Returns the earlier run's index of each sample, ``None`` for a missing one; cached for equal samples."""
        whole, part = whole_of(now, dataset)
        if part is not None:
            every = self.places(dataset, whole)
            return tuple(every[place] for place in part)
        samples, pictures = now.samples(dataset), now.pictures(dataset)
        paired = self._paired.get(dataset)
        if paired is None or paired.samples is not samples or paired.pictures is not pictures:
            self._check_same(dataset, now)
            place = {sample.id: index for index, sample in enumerate(self.samples(dataset))}
            paired = _Pairing(samples, pictures, tuple(place.get(sample.id) for sample in samples))
            self._paired[dataset] = paired
        return paired.places

    def _check_same(self, dataset: str, now: Questions) -> None:
        """Refuses samples that do not pair: different ids, or a different question, answer or image under an id."""
        before, after = ({sample.id: sample for sample in run.samples(dataset)} for run in (self, now))
        shown, pictures = self.pictures(dataset), now.pictures(dataset)
        common = before.keys() & after.keys()
        alone = {
            f"are not in {self.called}": after.keys() - before.keys(),
            "are only there": before.keys() - after.keys(),
        }
        differ = {
            **(alone if not (self.common and common) else {}),
            "ask something else there": {name for name in common if before[name].question_key != after[name].question_key},
            "are scored otherwise there": {name for name in common if _scoring(before[name]) != _scoring(after[name])},
            "show other images there": {
                name for name in common & shown.keys() & pictures.keys() if not shown[name].same_as(pictures[name])
            },
        }
        differences = [f"{len(ids)} {what} ({first_few(sorted(ids), _MOST)})" for what, ids in differ.items() if ids]
        if differences:
            raise DatasetError(
                f"{self.called} cannot be compared on {dataset}: of {len(after)} samples "
                f"{f'in {now.called}' if isinstance(now, Baseline) else 'here'}, {'; '.join(differences)}. "
                "Expected the same samples in both runs: the same dataset with the same images, and the same --vlm-sample. "
                f"{_ADDED if any(alone.values()) and not self.common else ''}"
                "Where questions or images were changed on purpose, run the other model on them and compare with that run"
            )


def _scoring(sample: Sample) -> tuple[str, str]:
    return sample.task, sample.scorer


_ADDED = (
    "Where samples were only added or removed, --vlm-baseline-samples=common (vlmrobust compare --samples=common) compares those "
    "that both have. "
)
ON_COMMON = "is compared with its baseline on"
"""The start of the note about a dataset whose samples differ between the runs."""
UNLIKE_ANSWERS = (
    "A letter can always be read, and text cannot; and a schema is part of what is asked: the difference would be that of two "
    "ways of asking. Run both with the same --vlm-answer; --vlm-answer=text is what every model can do"
)
"""Why answers by letters and by text cannot be compared, and what to do."""


def refuse_unlike_answers(ways: Mapping[str, frozenset[str]], dataset: str) -> None:
    """Refuses to compare models that answered choices in different ways, by letters or by text."""
    by: dict[frozenset[str], list[str]] = {}
    for name, answered in ways.items():
        by.setdefault(answered, []).append(name)
    by.pop(frozenset(), None)
    if len(by) > 1:
        listed = "; ".join(f"by {' and '.join(sorted(how))}: {first_few(names, _MOST)}" for how, names in by.items())
        raise DatasetError(f"{dataset}: the choices were not answered in one way ({listed}). {UNLIKE_ANSWERS}")


def answered_by(result: CellResult) -> frozenset[str]:
    """Returns how the choices of a cell were answered: ``letters``, ``text``, or the method that constrained a server to letters.

    Empty without choices or without a successful inference.
    """
    return frozenset(
        prediction.answered_by
        for place, prediction in enumerate(result.predictions)
        if scorable_choices(result.samples[place // result.views], DIRECT) and not prediction.error
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pairing:
    """Indices of the earlier run's samples in the order of this run; ``None`` for a missing sample."""

    samples: Sequence[Sample]
    pictures: Mapping[str, PictureDigests]
    places: tuple[int | None, ...]


def baseline_scores(baseline: Baseline, model: str, dataset: str, now: Questions, table: ScoreTable) -> dict[str, Any]:
    """Returns the earlier run's scores for the settings of a table that it measured."""
    cells = (Cell(model, dataset, Setting.parse(name)) for name in table.by_setting)
    return {str(cell.setting): baseline.scores(cell, now) for cell in cells if baseline.has_cell(cell)}


def why_not_compared(metric: str, table: ScoreTable) -> str:
    """Returns why a summary metric that needs the baseline does not apply, or an empty string."""
    if metrics.Needs.BASELINE_BY_SETTING not in metrics.get(metric).needs:
        return ""
    lacking = [name for name in table.by_setting if name not in (table.baseline_by_setting or {})]
    more = f" and {quantity(len(lacking) - 1, 'more setting')}" if len(lacking) > 1 else ""
    return f"the baseline did not measure {lacking[0]}{more}" if lacking else ""


def changed_samples(baseline: Baseline, cell: Cell, now: Questions, values: NDArray[np.float64]) -> metrics.ChangedSamples:
    """Returns the samples that a cell answers worse and better than the baseline; empty if the baseline lacks the cell."""
    if not baseline.has_cell(cell):
        return metrics.ChangedSamples((), (), ())
    kept = baseline.kept(cell.dataset, now)
    names = [sample.id for sample, is_kept in zip(now.samples(cell.dataset), kept, strict=True) if is_kept]
    return metrics.changed_samples(names, baseline.scores(cell, now)[kept], values[kept])
