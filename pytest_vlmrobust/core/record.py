"""Record: the JSON-safe result of one test for terminal, JUnit, JSON and xdist."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

from .conversion import from_plain, read_json, to_plain
from .decision import NotShown, Outcome, Verdict
from .words import interval, number, plain_decimal, quantity

BY_VALUE = "judged by value"
"""Text in place of the interval of a measure that was judged by its value."""
BY_VALUE_MARK = "*"
"""Mark of such a number where there is no room for the text."""
PARTIAL_MARK = "~"
"""Mark before a number from part of the samples, because its test stopped early."""
PARTIAL = "stopped early"
"""The meaning of that mark."""
BUDGET_METRICS = ("error_rate", "unparsed_rate", "refusal_rate")
"""Metrics bounded by budgets, not by rules; waivers cannot cover them."""
MOST_OFTEN = "most often "
"""Prefix of the most common cause in the reason of a budget."""
LARGEST_DROP = "largest drop in what was asked: "
"""Prefix of the note of a stopped test that names the setting of the largest drop."""
SCHEMA_VERSION: Final = 1
FAMILY = "family"
"""Kind of a record about several models of a family."""
CHECK = "check"
"""Kind of a record of a failure outside the gated tests: another test, a teardown, or a file that cannot be collected."""
BUDGET = "budget"
"""Kind of a record about a budget that a model does not keep, or may not keep, over all its answers on a dataset."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of one test: its value, its interval, and what was judged about it.

    Numbers are built-in floats; NaN means undefined or not computed and is written as ``null``.
    """

    metric: str
    """Its name: a metric of rules, a budget, ``blind_unparsed_rate``, ``gain_over_blind``, or a sign of a model that
    ignores its images."""
    value: float
    """Its value; percentages are fractions."""
    low: float = math.nan
    """Lower end of the interval."""
    high: float = math.nan
    """Upper end of the interval."""
    n: int = 0
    """Questions behind the value."""
    bound: str = ""
    """The bound of the deciding rule in its author's unit: ``<= 15 pp``, ``>= 0.8``, ``in 0.1..0.3``; empty without a rule."""
    outcome: Outcome = Outcome.MEASURED
    """The worst verdict of the rules that apply."""
    reason: str = ""
    """The sentence behind the outcome."""
    rule: str = ""
    """The id of the deciding rule; empty without one."""
    source: str = ""
    """Location of the rule, ``file:line``."""
    waiver: str = ""
    """The id of the waiver that covers a breach."""
    category: str = ""
    """The category of questions; empty for the whole dataset. For a gap in a further grouping of people, that grouping."""
    target: str = ""
    """Scope of the verdict: ``population`` (the interval was judged) or ``dataset`` (the value was judged); empty without
    a rule."""
    decisive_low: float = math.nan
    """Lower end of the interval compared with the bound; ``null`` without one."""
    decisive_high: float = math.nan
    """Upper end of that interval."""
    groups: int = 0
    """The number of images, which are independent, if several questions share an image."""
    samples_needed: int | None = None
    """About this many questions decide an undecided measure in nine of ten cases, if the value is the true one; else
    ``null``."""
    samples_needed_least: int | None = None
    """About this many questions decide it in half of all cases."""
    not_shown: tuple[NotShown, ...] = ()
    """Blocking rules that are not shown to hold, and that the policy lets pass."""
    unit: str = ""
    """The unit of the bound, without one that of the metric: ``pp``, ``%``, or empty for plain numbers."""
    ends: tuple[float, ...] = ()
    """The ends of the bound as plain numbers, low before high."""

    @classmethod
    def judged(cls, verdict: Verdict, value: float, **measured: Any) -> Measure:
        """Returns a measure with its verdict; ``measured`` are further attributes."""
        about = {
            "metric": verdict.metric,
            "bound": verdict.bound,
            "unit": verdict.unit,
            "ends": verdict.ends,
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "rule": verdict.rule,
            "source": verdict.source,
            "waiver": verdict.waiver,
            "target": verdict.target,
            "decisive_low": verdict.low,
            "decisive_high": verdict.high,
            "samples_needed": verdict.samples_needed,
            "samples_needed_least": verdict.samples_needed_least,
            "not_shown": (verdict.not_shown,) if verdict.not_shown else (),
        }
        return cls(**{**about, "value": value, **measured})

    @property
    def called(self) -> str:
        """Its name for a reader, with its category; ``answers`` if no answer was scored."""
        name = self.metric or "answers"
        return f"{name} ({self.category})" if self.category else name

    @property
    def judge(self) -> str:
        """What was compared with the bound: ``interval`` or ``value``; empty when no rule applied."""
        return {"population": "interval", "dataset": "value"}.get(self.target, "")

    @property
    def threshold(self) -> str:
        """Its bound for dashboards, ``0.05`` or ``0.1..0.3``; empty without a bound."""
        return "..".join(map(plain_decimal, self.ends))

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that decided, else the 90 % interval."""
        known = not math.isnan(self.decisive_low)
        return (self.decisive_low, self.decisive_high) if known else (self.low, self.high)

    @property
    def shown(self) -> str:
        """Its value for a reader, in its unit."""
        return number(self.value, self.unit)

    @property
    def beside(self) -> str:
        """The text after the value: its interval, or that only the value was judged."""
        return BY_VALUE if self.judge == "value" else interval(*self.interval, self.unit)

    @property
    def questions(self) -> str:
        """The number of questions, and of images if there are fewer."""
        return f"{self.n} ({quantity(self.groups, 'image')})" if self.groups else str(self.n)


@dataclass(frozen=True, slots=True)
class Picture:
    """A thumbnail of an image that a model saw; its file is in the image folder of the store."""

    file: str
    """``<digest of the pixels>.webp``; equal images share a file."""
    caption: str = ""
    """What it shows: ``clean``, ``fog:mid``, ``patch 1,2``, ``A``."""
    frame: str = ""
    """``right`` or ``wrong``: the answer from this image alone; else empty."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer to one view of a sample."""

    about: str
    """The view: ``clean``, ``fog:mid``, ``patch 1,2``."""
    text: str
    """The text of the model, cut to 500 characters; for letters scored by probability, the letter."""
    answer: str = ""
    """The answer that was read from it; empty if none was."""
    rule: str = ""
    """The rule that read it."""
    value: float = math.nan
    """Its score from 0 to 1; ``null`` if the model call failed."""
    state: str = "scored"
    """``scored``, ``unparsed`` or ``error``."""
    option: str = ""
    """The text of the option that the answer names, if the setting changed the options."""


NEWLY_WRONG = "newly_wrong"
"""The kind of an example that was right when clean, and that a setting turned wrong."""


@dataclass(frozen=True, slots=True)
class Example:
    """One sample as evidence: its question, images and answers."""

    sample: str
    """Its id."""
    kind: str
    """Why it is shown: ``newly_wrong`` (right when clean), ``whole_only`` (right from the whole image and from no patch) or
    ``patch_only`` (the reverse)."""
    question: str
    """The question, cut to 500 characters; ``[picture 1]`` marks the place of an image."""
    options: dict[str, str] = field(default_factory=dict)
    """Letter to text; empty without options."""
    target: str = ""
    """The right answer; several accepted ones are separated by bars."""
    category: str = ""
    """Its category."""
    replies: tuple[Reply, ...] = ()
    """The answers, the clean one first."""
    pictures: tuple[Picture, ...] = ()
    """The images, the clean one first. None if the run could not write any."""

    def pictures_of(self, view: str) -> list[Picture]:
        """Returns the images of a view: ``clean``, ``fog:mid``, ``patch 1,2``."""
        return [picture for picture in self.pictures if picture.caption == view or picture.caption.startswith(f"{view}, ")]


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one test."""

    test: str
    """``cell``, ``sweep`` and ``family`` are gated tests; ``budget`` a budget that is not shown to be kept; ``check`` a failure
    outside of the gated tests."""
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
    """``low``, ``mid`` or ``high``; empty without a level."""
    metric: str = ""
    """The summary metric of a sweep."""
    split: str = ""
    """The set of settings behind the summary metric, if a suite has several."""
    task: str = ""
    """The task of the Observatory, ``matching`` or ``pointing``; empty for plain questions."""
    outcome: Outcome = Outcome.MEASURED
    """The worst outcome of its measures."""
    reason: str = ""
    """The sentence behind the outcome."""
    n: int = 0
    """Answers scored."""
    n_requested: int = 0
    """Answers needed: one for each question; under ``patches:n`` n * n, or fewer if the run stops at the right patch."""
    n_unparsed: int = 0
    """Answers that no rule could read; they count as wrong."""
    n_refused: int = 0
    """Answers that the model or a filter refused; they count as wrong."""
    n_guessed: int = 0
    """Answers without the images that no rule could read; they count as guesses, and for no budget."""
    n_errors: int = 0
    """Model calls that failed; they have no score."""
    n_inferred: int = 0
    """Model calls during this test, also for other cells that it needed."""
    n_recalled: int = 0
    """Cached answers that this test used."""
    n_samples: int = 0
    """Only if the test stopped early: the number of all answers."""
    seconds: float = 0.0
    """Wall-clock time of the evaluation."""
    measures: tuple[Measure, ...] = ()
    """The measures, each with its verdict."""
    categories: dict[str, float] = field(default_factory=dict)
    """Score by category; for a sweep over resolutions, its metric by category and sub-task."""
    chains: dict[str, float] = field(default_factory=dict)
    """Only for reasoning models: answers by outcome and length of the chain of thought in words: ``right, 64 to
    127``."""
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Only for sweeps of the Observatory: numbers by attribute, group or grouping, and ``samples``, the questions behind
    them."""
    positions: tuple[float, ...] = ()
    """Under ``patches:n``: the share of right answers from each single patch, row by row; empty if patches were left
    out."""
    received: str = ""
    """Under the resolution ladder: the size at which images reached the model, ``image grid thw 1x4x4``; empty if not
    known."""
    worst: tuple[str, ...] = ()
    """Ids of the first questions that were right when clean and are wrong here."""
    broken: tuple[str, ...] = ()
    """Ids of questions that score less than in the baseline."""
    fixed: tuple[str, ...] = ()
    """Ids of questions that score more than in the baseline."""
    not_asked: str = ""
    """Why the model was not called: it is not shown to do the task; else empty."""
    notes: tuple[str, ...] = ()
    """Limits of the setting and the number of affected questions, such as images smaller than a rung."""
    examples: tuple[Example, ...] = ()
    """A few questions with their images and answers."""
    policy_sha256: str = ""
    """The SHA-256 of the meaning of the policy."""
    nodeid: str = ""
    """The node id of the test in pytest."""

    @property
    def deciding(self) -> Outcome:
        """Its part in the decision of the run: missing answers count only if a rule needed them."""
        ruled = any(measure.outcome is self.outcome for measure in self.measures)
        return Outcome.MEASURED if self.not_asked and not ruled else self.outcome

    def measure_of(self, metric: str) -> Measure | None:
        """Returns its measure of a metric over the whole dataset, or ``None``."""
        return next((measure for measure in self.measures if measure.metric == metric and not measure.category), None)

    @property
    def headline(self) -> Measure | None:
        """The measure for a one-line summary: the deciding one, else the drop, else the first."""
        decisive = [measure for measure in self.measures if measure.outcome is self.outcome is not Outcome.MEASURED]
        deciding = [measure for measure in decisive if measure.rule] or decisive
        return next(iter(deciding), None) or self.measure_of("accuracy_drop") or next(iter(self.measures), None)

    @property
    def is_gated(self) -> bool:
        """Whether a gated test left it: all but budgets, and failures outside the gated tests."""
        return self.test not in (CHECK, BUDGET)

    @property
    def failed_outside(self) -> bool:
        """Whether it is a failure outside the gated tests."""
        return self.test == CHECK

    @property
    def key(self) -> str:
        """The identity of the test: a repeated test replaces its record.

        A failure outside the gated tests has its own record: a test with a failing teardown has two.
        """
        return self.nodeid if self.nodeid and self.is_gated else f"{self.test} {self.id}"

    def to_json(self) -> str:
        """Returns the record as one line of JSON; NaN becomes ``null``."""
        return json.dumps(to_plain(self), allow_nan=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: bytes | str) -> Record:
        """Reads the output of :meth:`to_json`, or a record of results.json, which also has its key.

        A TypeError names the place, the value and what was expected.
        """
        data = read_json(line)
        if isinstance(data, dict):
            data.pop("key", None)
        return from_plain(data, cls)
