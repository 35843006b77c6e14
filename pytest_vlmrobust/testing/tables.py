"""Generated tables of scores, as a gate reads them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import Metric, Needs, ScoreTable, estimate
from pytest_vlmrobust.metrics.record import COMPANIONS, LABELS

from .cases import PATCHES, RESOLUTIONS, SETTINGS, Maker, Scores, drawn_labels, drawn_order, drawn_scores, plain

_MOST_SAMPLES = 24
_OF_PATCHES = f"patches:{math.isqrt(PATCHES)}"
_FIELDS = tuple(field.name for field in dataclasses.fields(ScoreTable) if field.init and field.name != "floor_note")


@dataclass(frozen=True)
class Table:
    """Scores, the setting that a metric of one cell is asked for, and another order of the samples."""

    scores: ScoreTable
    setting: str | None
    order: Sequence[int]

    def measured(self, record: Metric, scores: ScoreTable | None = None) -> Estimate:
        """Returns the estimate of a metric, of these scores or of others like them.

        Raises:
            AssertionError: the metric, or its interval, gate or note, raised an error; the message shows the scores.
        """
        __tracebackhide__ = True
        try:
            return estimate(record, scores or self.scores, self.setting)
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            raise AssertionError(f"metric {record.name!r} {raised}\n    called with {self.shown()}") from error

    def reordered(self) -> ScoreTable:
        """Returns the scores with their samples in the other order."""
        return self._changed(lambda scores: scores[list(self.order)], lambda names: [names[index] for index in self.order])

    def repeated(self, times: int) -> ScoreTable:
        """Returns the scores of as many samples of the same kind, each source image being another one."""
        return self._changed(
            lambda scores: np.concatenate([scores] * times),
            lambda names: list(names) * times,
            lambda groups: [f"{copy}-{group}" for copy in range(times) for group in groups],
        )

    def duplicated(self) -> ScoreTable:
        """Returns the scores with every sample there twice, each pair being of a source image of its own."""
        twice = self._changed(lambda scores: np.concatenate([scores] * 2), lambda names: list(names) * 2)
        return dataclasses.replace(twice, groups=[f"image {index:03}" for index in range(self.scores.samples)] * 2)

    def of(self, rows: Sequence[int] | NDArray[np.intp]) -> ScoreTable:
        """Returns the scores of some samples, of each as often as it is named, and each time with an image of its own."""
        chosen = list(rows)
        some = self._changed(lambda scores: scores[chosen], lambda names: [names[row] for row in chosen])
        return dataclasses.replace(some, groups=None)

    def mapped(self, change: Callable[[Scores], Scores]) -> Table:
        """Returns the table with every array of scores changed, one after the other."""
        return dataclasses.replace(self, scores=self._changed(change, list))

    def without_samples(self) -> ScoreTable:
        """Returns the scores of no sample."""
        return self._changed(lambda scores: scores[:0], lambda _: [])

    def with_gap(self) -> ScoreTable:
        """Returns the scores with every score of one sample missing."""

        def holed(scores: Scores) -> Scores:
            changed = scores.copy()
            changed[self.order[0]] = math.nan
            return changed

        return self._changed(holed, list)

    def blind(self) -> ScoreTable:
        """Returns the scores of a model to which the images are worth nothing."""
        return dataclasses.replace(self.scores, no_image=self.scores.clean)

    def shown(self) -> str:
        """Returns the scores as messages show them."""
        given = {name: getattr(self.scores, name) for name in _FIELDS}
        return ", ".join(f"{name}={plain(value)}" for name, value in given.items() if value is not None)

    def _changed(
        self,
        change: Callable[[Scores], Scores],
        names: Callable[[Sequence[str]], list[str]],
        groups: Callable[[Sequence[str]], list[str]] | None = None,
    ) -> ScoreTable:
        def of(field: str, value: Any) -> Any:
            if isinstance(value, Mapping):
                return {setting: change(scores) for setting, scores in value.items()}
            if isinstance(value, np.ndarray):
                return change(value)
            if isinstance(value, Sequence):
                return (groups or names)(value) if field == "groups" else names(value)
            return value

        return ScoreTable(**{field: of(field, getattr(self.scores, field)) for field in _FIELDS})


@st.composite
def tables(draw: st.DrawFn, record: Metric) -> Table:
    """Draws what a metric needs for 1 to 24 samples, now and then two to a source image."""
    samples = draw(st.integers(1, _MOST_SAMPLES))
    setting = _setting(record)
    needs = {*record.needs, *((Needs.NO_IMAGE,) if record.gate else ())}  # a gate may ask what was answered blindly
    given = _given(needs, setting, samples, drawn_scores(draw, _MOST_SAMPLES))
    for need in needs & LABELS:
        given[need.value] = drawn_labels(draw, samples, _MOST_SAMPLES)
    if draw(st.booleans()):
        given["groups"] = [f"image {index // 2}" for index in range(samples)]
    return Table(ScoreTable(**given), setting, drawn_order(draw, samples))


def made(record: Metric, samples: int, scores: Maker, settings: Sequence[str] = SETTINGS) -> Table:
    """Returns a table of scores that ``scores`` makes, each sample with an image, a position and people of its own."""
    setting = _setting(record)
    needs = {*record.needs, *((Needs.NO_IMAGE,) if record.gate else ())}
    given = _given(needs, setting, samples, scores, settings)
    for need in needs & LABELS:
        given[need.value] = [("a", "b")[index % 2] for index in range(samples)]
    return Table(ScoreTable(**given), setting, range(samples))


def _setting(record: Metric) -> str | None:
    if record.scope == "sweep":
        return None
    return _OF_PATCHES if Needs.PATCHES in record.needs else SETTINGS[0]


def _given(
    needs: set[Needs], setting: str | None, samples: int, scores: Maker, settings: Sequence[str] = SETTINGS
) -> dict[str, Any]:
    """Returns the fields of a table; what the needs do not ask for is left out.

    Clean scores are the better ones of two, and those without this image the worse ones: otherwise most metrics would not apply.
    """
    curve = [f"resolution:{edge:g}" for edge in RESOLUTIONS] if needs & {Needs.ACCURACIES, Needs.RUNGS} else []
    swept = settings if needs & {Needs.PERTURBED_BY_SETTING, Needs.REFERENCE_BY_SETTING} else ()
    names = dict.fromkeys([*([setting] if setting else []), *swept, *curve])
    given: dict[str, Any] = {
        "clean": np.maximum(scores(samples), scores(samples)),
        "by_setting": {name: scores(samples) for name in names},
    }
    if Needs.NO_IMAGE in needs:
        given["no_image"] = np.minimum(scores(samples), scores(samples))
    if Needs.REFERENCE_BY_SETTING in needs:
        given["reference_by_setting"] = {name: scores(samples) for name in names}
    for need in needs & COMPANIONS:
        given[need.value] = {name: scores(samples) for name in names}
    if needs & {Needs.BASELINE, Needs.BASELINE_CLEAN, Needs.BASELINE_BY_SETTING}:
        given["baseline_by_setting"] = {name: scores(samples) for name in ("clean", *names)}
    for field in sorted({_WITHOUT_LOOKING[need] for need in needs if need in _WITHOUT_LOOKING}):
        given[field] = scores(samples) / 2.0
    for need, field in _BY_PATCHES.items():
        if need in needs:
            given[field] = {_OF_PATCHES: scores(samples, PATCHES)}
    if Needs.PLACEBO_PATCHES in needs:
        given["placebo_patches_by_setting"] = {_OF_PATCHES: scores(samples, PATCHES) * scores(samples)[:, None]}
    if Needs.WHOLE_ATTEMPTS in needs:
        given["whole_attempts"] = scores(samples, PATCHES)
    return given


_WITHOUT_LOOKING = {Needs.PATCHES: "chances", Needs.CHANCES: "chances", Needs.FLOORS: "floors"}
_BY_PATCHES = {
    Needs.PATCHES: "patches_by_setting",
    Needs.PATCHES_AGAIN: "patches_again_by_setting",
}
