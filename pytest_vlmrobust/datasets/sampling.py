"""A smaller dataset with the same composition: the same samples in every process and for any input order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, cast, overload

from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.core.fingerprint import SUBSET_SEED, derive_seed, rank_seed
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line

from .benchmarks import ACCURACY, GROUP
from .protocol import Dataset, keeps_together

BY_ROW = "rows"
"""The suffix of a size for drawing samples one by one although they count only together."""
_SPEC = re.compile(rf"(?P<number>[0-9]{{1,18}}(?:\.[0-9]{{1,18}})?)\s*(?P<percent>%?)\s*(?:{BY_ROW})?")
_SHOWN = 40
"""Characters of the requested size shown in a message."""


@dataclass(frozen=True, slots=True)
class Subset(Sequence[Sample]):
    """The samples taken, in the order of their ids, and the requested size."""

    taken: tuple[Sample, ...]
    spec: str
    available: int
    note: str = ""
    """Why there are fewer than requested; empty if there are enough."""

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return self.taken[index]

    def __len__(self) -> int:
        return len(self.taken)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.taken)


class DrawnByRow:
    """A dataset whose samples are drawn and counted one by one, although copies of a question count only together.

    Its metric is then accuracy: a metric of whole groups would count a question as right if its wrong copy was not drawn.
    """

    keeps_together = ()
    corpus_metric = ACCURACY

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


def drawn_by(dataset: Dataset, spec: str) -> Dataset:
    """Returns the dataset with samples drawn as the subset size, ``20%`` or ``20%rows``, requests."""
    by_row = spec.strip().endswith(BY_ROW) and keeps_together(dataset)
    return cast("Dataset", DrawnByRow(dataset)) if by_row else dataset


def chosen(dataset: Dataset, spec: str | None) -> Sequence[Sample]:
    """Returns the samples of a dataset that a run asks about: a subset, or all without ``spec``.

    If samples count only together, whole groups are taken, and a count is of groups.
    """
    everything = dataset.samples()
    return take(everything, spec, together=keeps_together(dataset)) if spec else everything


def take(samples: Iterable[Sample], spec: str, seed: int = SUBSET_SEED, *, together: Sequence[str] = ()) -> Subset:
    """Returns a stratified subset: every category in proportion, chosen only by ``seed`` and sample id.

    Individual samples are drawn, so a subset may have only some of the samples about an image, and intervals must resample by
    ``Sample.group``. Shares are rounded by largest remainder; ties go to the category that sorts first. Within a category, a
    smaller subset is part of a larger one, so that its predictions are found in the store.

    With ``together``, all samples that share one of its keys, directly or through others, are taken or none, as the name of their
    group decides; its category is that of its first sample. So no copy of a circular question is missing, and no question
    about one of MME's images. Count and percentage are of groups: six identities are six questions if each is asked about
    once, and 24 if each is asked about with the answer in each of four positions. Groups of a category are taken in the order
    of ``rank_seed``, by which tasks lay out identities.

    ``spec`` is a count (``"200"``) or a percentage (``"20%"``, rounded to the nearest count, at least one), of samples or of
    whole groups. ``together`` are keys of ``Sample.keys``, or ``group`` for ``Sample.group``; a sample without a key uses
    its group, and one without either forms its own group.
    """
    everything = sorted(samples, key=lambda sample: sample.id)
    units = _units(everything, together)
    strata: defaultdict[str, list[str]] = defaultdict(list)
    for name, members in units.items():
        strata[members[0].category].append(name)
    count = count_of(spec, len(units))
    shares = _shares({name: len(members) for name, members in strata.items()}, min(count, len(units)))
    order = partial(rank_seed, seed) if together else partial(derive_seed, seed, "subset")
    drawn = {name for category, members in strata.items() for name in _first(members, shares[category], order)}
    kept = {sample.id for name in drawn for sample in units[name]}
    taken = tuple(sample for sample in everything if sample.id in kept)
    what = "groups of samples" if together else "samples"
    note = f"{count} {what} were asked for, and there are {len(units)}: all are taken" if count > len(units) else ""
    return Subset(taken, spec, len(everything), note)


def _units(samples: Sequence[Sample], together: Sequence[str]) -> dict[str, list[Sample]]:
    """Returns the units that are sampled as a whole, by name: connected components of samples that share a key."""
    marks = {sample.id: _marks(sample, together) for sample in samples}
    above: dict[str, str] = {}

    def top(mark: str) -> str:
        while above.setdefault(mark, mark) != mark:
            mark = above[mark]
        return mark

    for first, *others in marks.values():
        for other in others:
            low, high = sorted((top(first), top(other)))
            above[high] = low
    units: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        units[top(marks[sample.id][0]).partition("\0")[2]].append(sample)
    return units


def _marks(sample: Sample, together: Sequence[str]) -> list[str]:
    """Returns the marks of a sample that others of its group may share, as ``key NUL value``; its id if there are none."""
    values = {name: sample.group if name == GROUP else sample.keys.get(name) or sample.group for name in together}
    return [f"{name}\0{value}" for name, value in values.items() if value] or [f"\0{sample.id}"]


def count_of(spec: str, available: int) -> int:
    """Returns how many samples ``spec`` asks for out of ``available``; a count may ask for more than there are."""
    match = _SPEC.fullmatch(spec.strip())
    number = Fraction(match["number"]) if match else Fraction(0)
    percent = bool(match and match["percent"])
    if number <= 0 or (percent and number > 100) or (not percent and number.denominator != 1):
        shown = on_one_line(spec, _SHOWN)
        raise UsageError(
            f"sample size {shown!r}: expected a count such as '200', or a percentage in (0, 100] such as '20%', and behind it "
            f"'{BY_ROW}' to draw copies of a question one by one"
        )
    if not available:
        raise DatasetError(f"sample size {spec!r} of a dataset without samples: it has no questions")
    return max(1, int(available * number / 100 + Fraction(1, 2))) if percent else int(number)


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    total = sum(sizes.values())
    exact = {name: Fraction(count * size, total) for name, size in sizes.items()}
    shares = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def _first(names: Sequence[str], count: int, order: Callable[[str], int]) -> list[str]:
    return sorted(names, key=lambda name: (order(name), name))[:count]
