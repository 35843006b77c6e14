"""Record: the JSON-safe line about one test that terminal, JUnit, JSON and xdist all carry."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .conversion import from_plain, read_json, to_plain
from .decision import NotShown, Outcome

BY_VALUE = "judged by value"
"""What stands in place of the interval of a measure whose value alone was compared with the bound."""
BY_VALUE_MARK = "*"
"""What stands behind a number for which there is no room for these words."""
PARTIAL_MARK = "~"
"""Stands before a number that rests on a part of the samples, because its test stopped once its verdict was decided."""
PARTIAL = "from a part of the samples: enough for the verdict"
"""What that mark says."""
BUDGET_METRICS = ("error_rate", "unparsed_rate", "refusal_rate")
"""What budgets bound, and no rule: a waiver cannot cover it."""
MOST_OFTEN = "most often "
"""Stands in the reason of a budget before what left most answers failed or unread."""
LARGEST_DROP = "largest drop in what was asked: "
"""How the note of a test begins that stopped early and names the setting of the largest drop, behind ``at``."""
SCHEMA_VERSION = 1
FAMILY = "family"
"""The kind of a record about several models of one family."""
CHECK = "check"
"""The kind of a record of a failure outside the gated tests: another test, a teardown, or a file that cannot be collected."""
BUDGET = "budget"
"""The kind of a record about a budget that a model does not keep, or may not keep, over all of its answers about a dataset."""


CHAIN_BINS = {
    "to 31": 31,
    "32 to 63": 63,
    "64 to 127": 127,
    "128 to 255": 255,
    "256 to 511": 511,
    "512 to 1023": 1023,
    "1024 to 2047": 2047,
    "from 2048": math.inf,
}
"""Words of a chain of thought by which answers are counted, each with its largest number."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of one test: its value, its interval, and what was judged about it.

    Numbers are built-in floats; NaN means undefined or not computed and is written as ``null``.
    """

    metric: str
    """Its name; also ``error_rate``, ``unparsed_rate`` and ``refusal_rate``, where a budget is broken or undecided, and
    ``blind_unparsed_rate``, where answers without the pictures could not be read; of answers without the pictures,
    ``gain_over_blind``; of a few questions that were asked once more, ``same_when_exchanged_rate`` and
    ``other_when_alone_rate``; and where a model seems not to look, ``same_answer_rate``, ``same_for_pictures_rate``,
    ``same_without_pictures_rate`` or ``same_at_rungs_rate``."""
    value: float
    """Its value, a fraction where the metric's unit is one."""
    low: float = math.nan
    """Lower end of the interval."""
    high: float = math.nan
    """Upper end of the interval."""
    n: int = 0
    """Samples that the value rests on."""
    threshold: str = ""
    """The bound of the rule that decided, ``0.05`` or ``0.1..0.3``; empty when none applied."""
    outcome: Outcome = Outcome.MEASURED
    """The worst verdict of the rules that apply."""
    reason: str = ""
    """The sentence behind the outcome."""
    rule: str = ""
    """The id of the rule that decided; empty when none applied."""
    source: str = ""
    """Where the rule stands, ``file:line``."""
    waiver: str = ""
    """The id of the waiver that covers a breach."""
    category: str = ""
    """The stratum that it is about; empty for the whole dataset. Of a gap in a further grouping of people, that grouping."""
    target: str = ""
    """What the verdict is about: ``population``, the questions that the samples stand for (its interval was judged), or
    ``dataset``, these samples alone (its value was judged); empty when no rule applied."""
    samples_needed: int | None = None
    """With about so many samples in all, what is undecided is decided in nine of ten cases, if the value is the true one;
    ``null`` when that cannot be told or all is decided."""
    samples_needed_least: int | None = None
    """With about so many it is decided in half of all cases."""
    not_shown: tuple[NotShown, ...] = ()
    """Rules about it that block when they are broken and are not shown to hold, each let pass by its policy."""

    @property
    def called(self) -> str:
        """Its name for a reader, with its category; of what scored no answer at all, and so measured no metric, ``answers``."""
        name = self.metric or "answers"
        return f"{name} ({self.category})" if self.category else name

    @property
    def judge(self) -> str:
        """What was compared with the bound: ``interval`` or ``value``; empty when no rule applied."""
        return {"population": "interval", "dataset": "value"}.get(self.target, "")

    def beside(self, interval: str) -> str:
        """Returns what stands beside the value: its interval, or that the value alone was judged, which no interval explains."""
        return BY_VALUE if self.judge == "value" else interval


@dataclass(frozen=True, slots=True)
class Picture:
    """A thumbnail of an image that a model saw; its file stands in the folder of pictures of the store."""

    file: str
    """``<digest of the pixels>.webp``; two equal views share a file."""
    caption: str = ""
    """What it shows: ``clean``, ``fog:mid``, ``patch 1,2``, ``A``."""
    frame: str = ""
    """``right`` or ``wrong`` where it says whether the answer from it alone was; empty elsewhere."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered to one view of a sample."""

    about: str
    """The view: ``clean``, ``fog:mid``, ``patch 1,2``."""
    text: str
    """What the model wrote, cut to 500 characters; of letters scored by probability, the letter."""
    answer: str = ""
    """What was read from it; empty when nothing was."""
    rule: str = ""
    """The rule that read it."""
    value: float = math.nan
    """Its score in [0, 1]; ``null`` when the inference failed."""
    state: str = "scored"
    """``scored``, ``unparsed`` or ``error``."""


@dataclass(frozen=True, slots=True)
class Example:
    """One sample as evidence: what was asked, what was seen, and what came back."""

    sample: str
    """Its id."""
    kind: str
    """Why it is shown: ``newly_wrong`` (right when clean), ``whole_only`` (right from the whole picture and from no patch) or
    ``patch_only`` (the other way round)."""
    question: str
    """The question, cut to 500 characters; ``[picture 1]`` stands where an image was shown."""
    options: dict[str, str] = field(default_factory=dict)
    """Letter to text; empty where there is nothing to choose from."""
    target: str = ""
    """The right answer; several accepted ones stand between bars."""
    category: str = ""
    """Its stratum."""
    replies: tuple[Reply, ...] = ()
    """What came back: the clean answer first."""
    pictures: tuple[Picture, ...] = ()
    """What was seen: the clean picture first. None in a run that may not write any and found none."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known about one test after it ran."""

    test: str
    """``cell``, ``sweep``, ``family``, ``budget`` (one that all answers of a model about a dataset break, or leave undecided), or
    ``check``: a failure outside the gated tests (another test, a teardown, a file that cannot be collected), so that the run is
    not GO."""
    id: str
    """The parametrised part of the test id: ``tiny-shapes-fog:mid``."""
    model: str
    """The model by its short name."""
    dataset: str
    """The dataset by its short name."""
    setting: str = ""
    """The setting of a cell, ``fog:mid``."""
    family: str = ""
    """The family of the perturbation, ``weather``."""
    level: str = ""
    """``low``, ``mid`` or ``high``; empty where the setting has none."""
    metric: str = ""
    """The summary metric of a sweep."""
    split: str = ""
    """The set of settings that the summary metric is taken over, where a suite has several."""
    task: str = ""
    """Of the Observatory, what is asked of the pictures: ``matching``, ``pointing`` ...; empty for plain questions."""
    outcome: Outcome = Outcome.MEASURED
    """The worst outcome of its measures."""
    reason: str = ""
    """The sentence behind the outcome."""
    n: int = 0
    """Answers scored."""
    n_requested: int = 0
    """Answers asked for: one for each sample, and under ``patches:n`` n * n, or fewer where a run stops at the right one."""
    n_unparsed: int = 0
    """Answers that no rule could read; they count as wrong."""
    n_refused: int = 0
    """Answers that the model, or a filter, refused to give; they count as wrong."""
    n_guessed: int = 0
    """Answers without the pictures that no rule could read; each counts what a guess does, and none against a budget."""
    n_errors: int = 0
    """Inferences that failed; they have no score."""
    n_inferred: int = 0
    """Inferences made while this test ran, also for other cells that it needed."""
    n_recalled: int = 0
    """Answers that came from the store while this test ran."""
    n_samples: int = 0
    """Of a test that stopped before all answers were asked for, how many there would have been; absent of any other."""
    seconds: float = 0.0
    """Wall-clock time of the evaluation."""
    measures: tuple[Measure, ...] = ()
    """What was measured, with what was judged about it."""
    categories: dict[str, float] = field(default_factory=dict)
    """Score by category (stratum); of a sweep over resolutions, its metric by category and by sub-task."""
    chains: dict[str, float] = field(default_factory=dict)
    """Of a model that reasons, how many answers have a chain of thought of so many words, by outcome: ``right, 64 to 127``
    (or ``wrong``, ``unread``; of ``thinking_gain``, beside the model without thinking, ``fixes``, ``does not fix``, ``breaks``,
    ``keeps``). Absent of any other."""
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of a sweep of the Observatory, part to name to number: of ``identity_accuracy`` by attribute the mean overlap of its boxes,
    quartiles and gap; of ``split_group_gap`` by grouping the mean of each group and the signed gap; of ``split_position_gap`` by
    group of people the accuracy and the gap; ``samples`` is how many these rest on. Absent of any other."""
    positions: tuple[float, ...] = ()
    """Under ``patches:n``, the share of all right answers that each position gives alone, row by row; empty where patches were
    left out."""
    received: str = ""
    """Of a rung of the resolution ladder, what reached the model of its pictures after its processor: ``image grid thw 1x4x4``;
    empty where the model does not say."""
    worst: tuple[str, ...] = ()
    """Ids of samples answered right when clean and wrong here, first ones only."""
    broken: tuple[str, ...] = ()
    """Ids of samples that score less than in the baseline, where there is one."""
    fixed: tuple[str, ...] = ()
    """Ids of samples that score more than in the baseline."""
    not_asked: str = ""
    """Why nothing was asked under its settings: the model is not shown to do the task at all; empty where it was asked."""
    notes: tuple[str, ...] = ()
    """What the setting could not do, with how many samples that concerns: pictures smaller than a rung, for one."""
    examples: tuple[Example, ...] = ()
    """A few samples with their pictures and answers."""
    policy_sha256: str = ""
    """The SHA-256 of what the policy means."""
    nodeid: str = ""
    """The test's node id in pytest."""

    @property
    def deciding(self) -> Outcome:
        """Its part in the decision of the run: that nothing was asked counts only where a rule had something to say about it."""
        ruled = any(measure.outcome is self.outcome for measure in self.measures)
        return Outcome.MEASURED if self.not_asked and not ruled else self.outcome

    @property
    def is_gated(self) -> bool:
        """Whether a gated test left it: all but budgets, and failures outside the gated tests."""
        return self.test not in (CHECK, BUDGET)

    @property
    def failed_outside(self) -> bool:
        """Whether it is about a failure outside the gated tests."""
        return self.test == CHECK

    @property
    def key(self) -> str:
        """What makes two records be about the same test: a test that ran again replaces its record.

        A failure outside the gated tests is kept apart from what a test measured: a test with a failing teardown has both.
        """
        return self.nodeid if self.nodeid and self.is_gated else f"{self.test} {self.id}"

    def to_json(self) -> str:
        """Returns the record as one line of JSON; NaN becomes ``null``; ``ABSENT_IF_ZERO`` are left out."""
        plain = {name: value for name, value in to_plain(self).items() if value or name not in ABSENT_IF_ZERO}
        return json.dumps(plain, allow_nan=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: bytes | str) -> Record:
        """Reads what :meth:`to_json` wrote, or a record of results.json, which has its key beside the rest.

        Raises:
            ValueError: the line is not JSON.
            TypeError: it is no record; names the place, the value and what was expected.
        """
        data = read_json(line)
        if isinstance(data, dict):
            data.pop("key", None)
            _require(data, ("outcome", "measures", "categories"), "the record")
        record = from_plain(data, cls)
        for number, measure in enumerate(data["measures"]):
            _require(measure, ("low", "high", "outcome"), f"measures[{number}] of the record")
        return record


ABSENT_IF_ZERO = ("n_samples", "chains", "parts")
"""Fields that earlier releases did not write: left out where empty, so that the digest of an older report.html stays."""


def _require(data: Mapping[str, Any], keys: Iterable[str], what: str) -> None:
    """Refuses a line without keys that every release wrote: without them a default would stand where something was measured.

    Raises:
        TypeError: one is absent.
    """
    for key in keys:
        if key not in data:
            raise TypeError(f"{what} lacks {key!r}")
