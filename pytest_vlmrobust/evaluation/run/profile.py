"""The profile of a dataset: read, counted and measured without any model."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.errors import ImageError, UsageError
from pytest_vlmrobust.core.sample import META, UNDECLARED, Sample
from pytest_vlmrobust.core.words import first_few, percent, quantity
from pytest_vlmrobust.datasets import Dataset, corpus_metric
from pytest_vlmrobust.datasets.benchmarks import UNKNOWN
from pytest_vlmrobust.scoring import check_scoring
from pytest_vlmrobust.store.run_directory import encode_thumbnail

from .chance import chance_level

SHOWN = 20
"""Questions that are drawn."""
MEASURED = 20_000
"""Images that are opened at most."""
_COMMONEST = 5

Facts = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question for display; all texts are from the data, unchecked."""

    id: str
    text: str
    """The question with its hint."""
    options: tuple[tuple[str, str], ...]
    """Letters and texts."""
    target: str
    scorer: str
    category: str
    pictures: tuple[bytes, ...]
    """A small WebP of each image; empty if it cannot be read."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a dataset."""

    name: str
    facts: tuple[tuple[str, str], ...]
    """Its subject and answer."""
    notes: tuple[str, ...]
    """Notes for its reader, such as rows left out."""
    refusal: str
    """Why a run with these data is refused; empty if it is not."""
    unread: tuple[str, ...]
    """Which images cannot be read, and why."""
    questions: tuple[Question, ...]
    """The first questions."""


def profile(dataset: Dataset) -> Profile:
    """Returns the profile of a dataset: its content, scoring, and first questions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notes of the dataset are in the profile
        samples = dataset.samples()
    refusal = _refusal(dataset, samples)
    sizes, unread = picture_sizes(samples)
    facts = [
        *_what_it_is(dataset),
        *_scoring(dataset, samples, scored=not refusal),
        *_counts(samples),
        *_repeats(samples),
        *_pictures(samples, sizes),
    ]
    notes = tuple(getattr(dataset, "notes", ()))
    return Profile(dataset.name, tuple(facts), notes, refusal, tuple(unread), tuple(map(_question, samples[:SHOWN])))


def _refusal(dataset: Dataset, samples: Sequence[Sample]) -> str:
    try:
        check_scoring(dataset.name, corpus_metric(dataset), samples)
    except UsageError as error:
        return str(error)
    return ""


def _what_it_is(dataset: Dataset) -> Facts:
    path = getattr(dataset, "path", None)
    benchmark = getattr(dataset, "benchmark", UNKNOWN)
    facts = [("data", str(path) if path else f"the dataset {dataset.name}"), ("digest", dataset.digest)]
    if not benchmark.name:
        return [*facts, ("read as", "a plain table, not a known benchmark" if path else "questions of its own")]
    facts.append(("read as", f"{benchmark.name}: {benchmark.about}" if benchmark.about else benchmark.name))
    if benchmark.rule:
        facts.append(("rule of its makers", f"{benchmark.rule} ({benchmark.source})"))
        facts.append(("number here", ": ".join(filter(None, (benchmark.number, benchmark.why)))))
    return facts


def _scoring(dataset: Dataset, samples: Sequence[Sample], *, scored: bool) -> Facts:
    scorers = Counter(sample.scorer or sample.task for sample in samples)
    tasks = Counter(sample.task for sample in samples)
    named = {scorer: count for scorer, count in scorers.items() if scorer != UNDECLARED}
    facts = [
        ("questions", f"{len(samples)}: {_listed(tasks)}"),
        ("scorer", _listed(Counter(named)) if named else "none"),
        ("whole dataset", corpus_metric(dataset)),
    ]
    if not scored:
        return [*facts, ("chance", "not known without a scorer")]
    guess = sum(sample.chance for sample in samples) / len(samples)
    level = chance_level(samples)
    note = f"; {level.note}" if level.note else ""
    return [*facts, ("chance", f"{percent(guess)} by guessing, {percent(float(level.scores.mean()))} without looking{note}")]


def _counts(samples: Sequence[Sample]) -> Facts:
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        if sample.task != "boxes":
            answers[sample.task].update(list(dict.fromkeys(sample.targets)))
    categories = Counter(sample.category for sample in samples if sample.category)
    groups = Counter(sample.source_image for sample in samples)
    return [
        *((f"answers ({task})", _listed(counts)) for task, counts in answers.items()),
        ("categories", _listed(categories) if categories else "none"),
        *((f"{META}{column}", _listed(Counter(sample.meta.get(column, "") for sample in samples))) for column in samples[0].meta),
        ("groups", f"{len(groups)}, the largest of {quantity(max(groups.values()), 'question')}"),
    ]


def _repeats(samples: Sequence[Sample]) -> Facts:
    """Returns how often a question is repeated about the same images, with the same and with another target."""
    targets: dict[object, list[Sample]] = defaultdict(list)
    for sample in samples:
        options = tuple(sample.options.values())
        targets[sample.question, sample.hint, options, _identities(sample)].append(sample)
    repeated = [alike for alike in targets.values() if len(alike) > 1]
    again = sum(len(alike) - len({str(_answer(sample)) for sample in alike}) for alike in repeated)
    disagreeing = [alike for alike in repeated if len({str(_answer(sample)) for sample in alike}) > 1]
    first = f" (the first: {', '.join(repr(sample.id) for sample in disagreeing[0][:2])})" if disagreeing else ""
    return [
        ("duplicates", f"{quantity(again, 'question')} asked again about the same images, with the same answer"),
        ("contradictions", f"{quantity(len(disagreeing), 'question')} with different answers{first}"),
    ]


def _answer(sample: Sample) -> object:
    if sample.localisation is not None:
        return sorted(sample.localisation.boxes.items())
    return sample.options.get(sample.target, sample.target) if isinstance(sample.target, str) else sample.target


def _identities(sample: Sample) -> tuple[str, ...]:
    try:
        return tuple(image.identity() for image in sample.images)
    except ImageError:
        return (sample.id,)


def picture_sizes(samples: Iterable[Sample]) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Returns width and height of different images, ``MEASURED`` at most, by identity; and why others cannot be read."""
    sizes: dict[str, tuple[int, int]] = {}
    unread: dict[str, str] = {}
    for image in (image for sample in samples for image in sample.images):
        if len(sizes) + len(unread) == MEASURED:
            break
        try:
            identity = image.identity()
            if identity not in sizes and identity not in unread:
                height, width = image.load().shape[:2]
                sizes[identity] = (width, height)
        except ImageError as error:
            unread[str(error)] = str(error)
    return sizes, list(unread.values())


def _pictures(samples: Sequence[Sample], sizes: dict[str, tuple[int, int]]) -> Facts:
    several = Counter(len(sample.images) for sample in samples)
    different = len({identity for sample in samples for identity in _identities(sample)})
    facts = [("images", f"{different} different ones; {_listed(several, ' for a question')}")]
    if not sizes:
        return facts
    measured = "" if len(sizes) == different else f" (of the first {len(sizes)})"
    smallest, largest = (pick(sizes.values(), key=max) for pick in (min, max))
    commonest = _listed(Counter(f"{width} x {height}" for width, height in sizes.values()))
    edges = f"long edges from {max(smallest)} to {max(largest)} pixels"
    return [*facts, (f"sizes{measured}", f"{edges}; {commonest}")]


def _listed(counts: Counter[str] | Counter[int], words: str = "") -> str:
    """Returns the values with their counts, most common first."""
    return first_few((f"{name}{words} ({count})" for name, count in counts.most_common()), _COMMONEST)


def _question(sample: Sample) -> Question:
    return Question(
        id=sample.id,
        text="\n".join(filter(None, (sample.hint, sample.question))),
        options=tuple(sample.options.items()),
        target=_target(sample),
        scorer=sample.scorer or sample.task,
        category=sample.category,
        pictures=tuple(_thumbnail(sample, place) for place in range(len(sample.images))),
    )


def _target(sample: Sample) -> str:
    if sample.localisation is not None:
        return "; ".join(f"{name} {box}" for name, box in sample.localisation.boxes.items())
    return first_few(dict.fromkeys(sample.targets), 10)


def _thumbnail(sample: Sample, place: int) -> bytes:
    try:
        return encode_thumbnail(sample.images[place].load())
    except ImageError:
        return b""
