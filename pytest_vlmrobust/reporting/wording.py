"""What all reports share: which records come first, which number a row shows, and how numbers are spelled."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, WORST_FIRST, Allowance, NotShown, Outcome, RunScope
from pytest_vlmrobust.core.record import BUDGET_METRICS, Measure, Record
from pytest_vlmrobust.core.repeatability import Repeatability
from pytest_vlmrobust.core.spending import Spending
from pytest_vlmrobust.core.words import first_few, interval, number, quantity
from pytest_vlmrobust.evaluation.after.standings import Ranking
from pytest_vlmrobust.metrics import rci_correlation
from pytest_vlmrobust.store.gates import GateCount

from .explanation import Command
from .subject import mapping, objects

# Agreement of two reference models about datasets.


INDEX = "rci"


def agreement(records: Iterable[Record]) -> list[str]:
    """Returns, for each grid and pair of models, how their indices of the datasets that both were asked about correlate.

    Nothing for fewer than two models or two datasets.
    """
    indices: dict[str, dict[str, dict[str, float]]] = {}
    for record in records:
        value = _index(record)
        if not math.isnan(value):
            indices.setdefault(record.setting, {}).setdefault(record.model, {})[record.dataset] = value
    return [
        line
        for setting, by_model in indices.items()
        for first, second in combinations(by_model, 2)
        if (line := _line(setting, first, second, by_model[first], by_model[second]))
    ]


def _index(record: Record) -> float:
    return next((measure.value for measure in record.measures if measure.metric == INDEX and not measure.category), math.nan)


def _line(setting: str, first: str, second: str, first_indices: dict[str, float], second_indices: dict[str, float]) -> str:
    shared = sorted({*first_indices} & {*second_indices})
    if len(shared) < 2:
        return ""
    correlations = rci_correlation(
        {name: first_indices[name] for name in shared}, {name: second_indices[name] for name in shared}
    )
    correlation = (
        "undefined, one side is constant"
        if math.isnan(correlations.pearson)
        else f"{correlations.pearson:.2f}, of ranks {correlations.spearman:.2f}"
    )
    return f"RCI of {setting} over {len(shared)} datasets, {first} against {second}: correlation {correlation}"


_SPEAKS_UP = re.compile(f"(?:^|; )({re.escape(WARNING)}|{re.escape(NOT_SHOWN)})")
"""Where a warning, or a rule that is not shown to hold, begins in the reason of a measure, which may have several."""
_NOT_APPLICABLE = " does not apply: "
NO_VERDICT = "\N{EN DASH}"
"""How tables show that a test was measured and no rule judges it."""
QUIET = (Outcome.PASS, Outcome.MEASURED)
"""Outcomes that need no line of their own when there are many."""


@dataclass(frozen=True, slots=True)
class RunFacts(RunScope):
    """What is known about a run beside its records: what its decision depends on, and what reports show."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """Model to the files and the hash of its policy."""
    warnings: Sequence[str] = ()
    allowances: Sequence[Allowance] = ()
    """What the run did not do or show, and a line of a policy lets pass."""
    pictures: Path | None = None
    """The folder of thumbnails that examples name; ``None`` where there is none."""
    origins: Mapping[str, object] = field(default_factory=dict)
    """What determined the run as far as it was known when it began; for reports that are made without a manifest."""
    repeatability: Sequence[Repeatability] = ()
    """What was found when some of the answers were asked for again; nothing where none were."""
    spending: Sequence[Spending] = ()
    """What the answers of each model took that were not in the store; nothing where all were."""
    command: Command | None = None
    """How pytest was called; ``None`` if unknown."""
    kept: str = "results.json"
    """The file that holds the records that a screen has no room for."""
    directory: str = ""
    """The directory of the run, as it is named where pytest was called; empty where nobody knows."""
    report: str = ""
    """Its page of HTML, likewise; empty where none was asked for."""
    gates: Sequence[GateCount] = ()
    """How often the questions of the run have decided gates; nothing where this one decided nothing."""
    ranking: Ranking | None = None
    """The models of the run side by side; ``None`` where there is one model, or nothing to rank by."""

    def with_ranking(self, ranking: Ranking | None, problem: str) -> RunFacts:
        """Returns the facts with the models side by side, or with a warning that says why they are not."""
        return replace(self, ranking=ranking, warnings=[*self.warnings, *filter(None, [problem])])


def policy_replacements(origins: Mapping[str, object]) -> list[str]:
    """Returns what later thresholds files do to earlier ones beside tightening them, a sentence for each model and change.

    Args:
        origins: the manifest of the run; none where it does not say.
    """
    policies = origins.get("policies")
    known = policies.items() if isinstance(policies, Mapping) else ()
    return [f"policy of {name}: {sentence}" for name, policy in known for sentence in replacements_in(policy)]


def purposes(origins: Mapping[str, object], model: str = "") -> list[str]:
    """Returns what the policies of a run are for that are no release policies; of one model where one is named."""
    policies = mapping(origins.get("policies")).items()
    named = [mapping(policy).get("purpose") for name, policy in policies if model in ("", name)]
    return list(dict.fromkeys(str(purpose) for purpose in named if purpose))


def replacements_in(policy: object) -> list[str]:
    """Returns what the manifest says about a policy that later files replace; empty for malformed entries."""
    sentences = policy.get("replaced") if isinstance(policy, Mapping) else None
    return list(map(str, sentences)) if isinstance(sentences, list | tuple) else []


def ci_variables(origins: Mapping[str, object]) -> dict[str, str]:
    """Returns what the manifest of a run says about the job that made it, by the names of variables; empty elsewhere."""
    known = origins.get("ci")
    return {str(name): str(value) for name, value in known.items()} if isinstance(known, Mapping) else {}


EXPLAINED = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)
"""Outcomes that are always shown with their reason."""


def worst_first(records: Iterable[Record]) -> list[Record]:
    """Returns records by severity of their outcome, then by the size of the drop."""
    return sorted(
        records, key=lambda record: (WORST_FIRST.index(record.deciding), bool(record.not_asked), -_drop(record), record.id)
    )


def headline(record: Record) -> Measure | None:
    """Returns the measure that a table row shows: the one that decided, else the drop, else the first."""
    decisive = [measure for measure in record.measures if measure.outcome is record.outcome is not Outcome.MEASURED]
    deciding = [measure for measure in decisive if measure.rule] or decisive
    by_metric = {measure.metric: measure for measure in record.measures if not measure.category}
    return next(iter(deciding), None) or by_metric.get("accuracy_drop") or next(iter(record.measures), None)


Bounds = Mapping[tuple[str, str], str]
"""Model and rule to what the rule asks of a value: ``<= 0.15``."""


def bounds_in(origins: Mapping[str, object]) -> Bounds:
    """Returns the bounds of the rules of a manifest."""
    policies = mapping(origins.get("policies")).items()
    return {
        (str(model), str(rule.get("id"))): str(rule.get("bound", ""))
        for model, policy in policies
        for rule in objects(mapping(policy).get("rules"))
    }


def bound_of(record: Record, measure: Measure, bounds: Bounds) -> str:
    """Returns the bound that a measure was compared with: with its sign, where a manifest tells it."""
    if measure.metric in BUDGET_METRICS and measure.threshold:
        return f"<= {measure.threshold}"
    return bounds.get((record.model, measure.rule), "") or measure.threshold


def row(record: Record, bounds: Bounds) -> tuple[str, str, str, str, str]:
    """Returns metric, value, interval, bound and n of a record's headline; empty where nothing was measured.

    Where the value alone was judged, that stands in place of the interval. Of a test that stopped early n is the answers that it
    asked for, of all that it could.
    """
    measure = headline(record)
    if measure is None:
        return "", "", "", "", ""
    beside = measure.beside(interval(measure.low, measure.high))
    return measure.called, number(measure.value), beside, bound_of(record, measure, bounds), answers_of(record, measure)


def answers_of(record: Record, measure: Measure) -> str:
    """Returns how many answers a measure rests on; where its test stopped early, of how many that it could have asked for."""
    return f"{record.n_requested} of {record.n_samples}" if record.n_samples else str(measure.n)


def outcome_counts(records: Iterable[Record]) -> str:
    """Returns how many records have each outcome, worst first."""
    counts = Counter(record.outcome for record in records)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in WORST_FIRST if counts[outcome])


def note_lines(records: Iterable[Record], most: int = 8) -> list[str]:
    """Returns the notes of records, a line for each of the first ``most`` and one for the rest, and what holds across models.

    A note that several tests have stands once.
    """
    records = list(records)
    having: dict[str, list[str]] = {}
    for record in sorted(records, key=lambda record: record.setting != CLEAN_NAME):  # what they say explains the others
        for note in record.notes:
            having.setdefault(note, []).append(record.id)
    lines = [f"{first_few(ids, 1)}: {note}" for note, ids in having.items()]
    more = [f"{quantity(len(lines) - most, 'more note is', 'more notes are')} in results.json"] if len(lines) > most else []
    clean = {note for record in records if record.setting == CLEAN_NAME for note in record.notes}
    first = sum(note in clean for note in list(having)[:most])
    return [*lines[:first], *not_asked(records), *lines[first:most], *more, *agreement(records)]


def warnings_of(record: Record) -> list[str]:
    """Returns what rules that only warn found broken or undecided in a test, a sentence for each."""
    parts = [_SPEAKS_UP.split(measure.reason)[1:] for measure in record.measures]
    return [text for one in parts for kind, text in zip(one[::2], one[1::2], strict=True) if kind == WARNING]


def warning_lines(records: Iterable[Record], most: int = 8) -> list[str]:
    """Returns what rules that only warn found broken or undecided, a line for each of the first ``most`` and one for the rest.

    What could not be measured comes last.
    """
    warnings = [(record, warning) for record in records if not record.not_asked for warning in warnings_of(record)]
    warnings.sort(key=lambda pair: _NOT_APPLICABLE in pair[1])
    lines = [f"{record.id}: {warning}" for record, warning in warnings]
    more = [f"{quantity(len(lines) - most, 'more warning is', 'more warnings are')} in results.json"]
    return [*lines[:most], *(more if len(lines) > most else [])]


@dataclass(frozen=True, slots=True)
class OpenRule:
    """A rule that would block and is not shown to hold by one test, and the test and the measure that it is about."""

    record: Record
    measure: Measure
    about: NotShown

    @property
    def undecided(self) -> bool:
        """Whether the samples do not decide it; otherwise it did not apply."""
        return self.about.outcome is Outcome.INCONCLUSIVE


def open_rules(records: Iterable[Record]) -> list[list[OpenRule]]:
    """Returns the rules that would block and are not shown to hold, a group for each rule of a model.

    Those that the samples do not decide come before those that did not apply, and what breaks its bound most likely comes first,
    of the groups and in each of them.
    """
    groups: dict[tuple[str, str, bool], list[OpenRule]] = {}
    for record in records:
        for measure in record.measures:
            for about in measure.not_shown:
                one = OpenRule(record, measure, about)
                groups.setdefault((record.model, about.rule, one.undecided), []).append(one)
    return sorted((sorted(group, key=_openness) for group in groups.values()), key=lambda group: _openness(group[0]))


def _openness(one: OpenRule) -> tuple[bool, float, str]:
    beyond = one.about.beyond
    return not one.undecided, -beyond if math.isfinite(beyond) else -1.0, one.record.id


def open_rule_lines(records: Iterable[Record], *, undecided: bool) -> list[str]:
    """Returns the rules that are not shown to hold, a line for each: its worst test, how many more there are, and why.

    Args:
        records: of a run.
        undecided: those that the samples do not decide, or those that did not apply.
    """
    groups = [group for group in open_rules(records) if group[0].undecided is undecided]
    return [f"{group[0].record.id}{_and_more(group)}: {group[0].about.reason}" for group in groups]


def open_rule_sentences(records: Sequence[Record]) -> list[str]:
    """Returns the same lines of both kinds; each begins with what it is about: ``not shown:``, then ``did not apply:``."""
    return [
        *(f"{NOT_SHOWN}{line}" for line in open_rule_lines(records, undecided=True)),
        *(f"did not apply: {line}" for line in open_rule_lines(records, undecided=False)),
    ]


def _and_more(group: Sequence[OpenRule]) -> str:
    return f" and {quantity(len(group) - 1, 'more test')}" if len(group) > 1 else ""


def open_rules_in_words(records: Iterable[Record]) -> list[str]:
    """Returns how many rules did not apply everywhere, and how many are not shown to hold; nothing for none."""
    groups = open_rules(records)
    undecided, idle = ({group[0].about.rule for group in groups if group[0].undecided is kind} for kind in (True, False))
    words = {
        ("rule did not apply everywhere", "rules did not apply everywhere"): idle - undecided,
        ("rule is not shown to hold", "rules are not shown to hold"): undecided,
    }
    return [quantity(len(rules), *noun) for noun, rules in words.items() if rules]


def baseline_summary(records: Iterable[Record]) -> list[str]:
    """Returns how many samples changed since the run that this one was compared with; nothing where there was none."""
    asked = [
        (record, measure)
        for record in records
        for measure in record.measures
        if measure.metric == "baseline_drop" and not measure.category
    ]
    cells = [record for record, drop in asked if math.isfinite(drop.value)]
    if not asked:
        return []
    worse, better = sum(len(one.broken) for one in cells), sum(len(one.fixed) for one in cells)
    changes = f"{quantity(worse, 'answer')} got worse, {better} got better ({quantity(len(cells), 'test')})"
    left = f"; {quantity(len(asked) - len(cells), 'test')} could not be compared" if len(cells) < len(asked) else ""
    return [f"compared with the baseline: {changes}{left}"]


def not_asked(records: Iterable[Record]) -> list[str]:
    """Returns, for each task of a model that was not asked about further, how many tests that concerns, and why."""
    counts = Counter((record.model, record.dataset, record.not_asked) for record in records if record.not_asked)
    words = "test does not apply", "tests do not apply"
    return [f"{model}-{dataset}: {quantity(count, *words)}: {why}" for (model, dataset, why), count in counts.items()]


def _drop(record: Record) -> float:
    drops = [measure.value for measure in record.measures if measure.metric == "accuracy_drop" and not measure.category]
    return drops[0] if drops and math.isfinite(drops[0]) else -math.inf
