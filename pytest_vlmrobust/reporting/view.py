"""The content of every report of a run: the decision in words, its tests, and the limits of its evidence.

Pure, and plain text: a writer escapes it for its format.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, zip_longest

from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.decision import WORST_FIRST, Decision, Outcome
from pytest_vlmrobust.core.record import BY_VALUE, FAMILY, NEWLY_WRONG, Example, Measure, Picture, Record, Reply
from pytest_vlmrobust.core.words import all_of, first_few, percent, quantity
from pytest_vlmrobust.evaluation.after.run_analyses import Analysis, analyses
from pytest_vlmrobust.metrics import rci_correlation
from pytest_vlmrobust.store.gates import GateCount
from pytest_vlmrobust.store.spending import budget_lines

from .explanation import ViewedTest, warnings_of
from .facts import RunFacts, ci_variables, noise_lines, policy_replacements, purposes
from .subject import Applied, OpenRule, Subject, WaiverUse, applied_policies, open_rules, subject
from .sweeps import Headline, Sweep, headlines, outcome_counts, sweeps

_MOST = 12
"""The most details shown of a limit."""
WITH_WAIVERS = f"{Decision.GO} WITH WAIVERS"
ADVICE = (
    "intervals are those that a bound was compared with, wider where tests share the risk of a rule; others are two-sided 90 %. "
    "Questions about one image count together. Intervals say nothing about other data, prompts, decoding parameters or "
    "perturbations"
)
SIGNS = {Decision.GO: "✓", Decision.NO_GO: "✕", Decision.INCONCLUSIVE: "?", Decision.INCOMPLETE: "!"}
MEANINGS = {
    Decision.GO: "The evidence supports a release under this policy.",
    Decision.NO_GO: "The policy is broken: do not release on this evidence.",
    Decision.INCONCLUSIVE: "The evidence does not decide.",
    Decision.INCOMPLETE: "The run did not measure everything that it set out to measure.",
}
NO_VERDICT = "\N{EN DASH}"
"""How tables show that a test was measured and no rule judges it."""
INDEX = "rci"
_NOT_APPLICABLE = " does not apply: "
_NEVER_GO = ": the run is not GO, whatever the gate found"
_BESIDE = ("selection", "allowed")
"""Kinds of limits shown next to the decision."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the evidence."""

    kind: str
    """Its kind: ``selection``, ``allowed``, ``undecided`` ..."""
    text: str
    grave: bool = False
    details: tuple[str, ...] = ()
    """The tests or sentences behind it."""
    more: int = 0
    """The number of further details."""
    allowed_by: str = ""
    """The line of the policy that lets it pass; empty for a limit that no policy lets pass."""


@dataclass(frozen=True, slots=True)
class WorstQuestion:
    """A question with a worse answer for changed images than for clean images."""

    record: Record
    """The test that it is from."""
    example: Example

    @property
    def right(self) -> str:
        """The right answer, with the text of its option."""
        return self._with_option(self.example.target)

    @property
    def answers(self) -> list[tuple[Reply, str, list[Picture]]]:
        """The clean and the changed answer, each with its display text and images."""
        return [(reply, self._said(reply), self.example.pictures_of(reply.about)) for reply in self.example.replies]

    def _said(self, reply: Reply) -> str:
        if reply.state == "error":
            return "none: the model call failed"
        return (
            self._with_option(reply.answer, reply.option)
            if reply.answer
            else f"{reply.text or 'nothing'} (not readable as an answer)"
        )

    def _with_option(self, answer: str, option: str = "") -> str:
        return " ".join(filter(None, [answer, option or self.example.options.get(answer)]))


@dataclass(frozen=True)
class RunView:
    """The content of all reports of a run; every fact is derived once. Equal records and facts give equal views."""

    records: Sequence[Record]
    facts: RunFacts
    model: str = ""
    """The only model of this view; empty for the whole run."""

    # The decision.

    @cached_property
    def decision(self) -> Decision:
        """The decision of the gate."""
        return self.facts.decision(self.records)

    @cached_property
    def word(self) -> str:
        """The decision for display."""
        return self.word_of(self.decision)

    def word_of(self, decision: Decision) -> str:
        """Returns a decision for display; it mentions waivers, and the purpose if it supports no release."""
        if decision is not Decision.GO:
            return str(decision)
        records = [record for record in self.records if self.model in ("", record.model)]
        waived = any(record.outcome is Outcome.WAIVED for record in records)
        purpose = ", ".join(purposes(self.facts.origins, self.model))
        return f"{WITH_WAIVERS if waived else decision}{f' ({purpose})' if purpose else ''}"

    @property
    def sign(self) -> str:
        """How the decision is marked without colour."""
        return "⚑" if self.word.startswith(WITH_WAIVERS) else SIGNS[self.decision]

    @cached_property
    def sentence(self) -> str:
        """The reason of the decision."""
        counts = Counter(record.outcome for record in self.records)
        passed, waived = quantity(counts[Outcome.PASS], "verdict passed", "verdicts passed"), counts[Outcome.WAIVED]
        day = f" (dates as of {self.facts.origins['date']} UTC)" if "date" in self.facts.origins else ""
        covered = f"{waived} waived{day}, " if waived else ""
        allowed = [f"with {quantity(len(self.facts.allowances), 'allowance')}"] if self.facts.allowances else []
        reasons = {
            Decision.GO: "; ".join(
                [
                    f"{passed}, {covered}none failed{self._counted_warnings}{self._judged_by_value}",
                    *self._counted_open_rules,
                    *allowed,
                ]
            ),
            Decision.NO_GO: quantity(counts[Outcome.FAIL], "verdict broke a bound", "verdicts broke a bound"),
            Decision.INCONCLUSIVE: f"no failures, but {self._open_points}",
            Decision.INCOMPLETE: f"{self._unmeasured}: this says nothing about the model",
        }
        return reasons[self.decision]

    @property
    def meaning(self) -> str:
        """The consequence for a release; a GO with many allowances still needs a human decision."""
        if self.decision is Decision.GO and (purpose := " and a ".join(purposes(self.facts.origins))):
            return f"The policy is for a {purpose}: this GO supports no release."
        waived = self.word == WITH_WAIVERS
        beside = all_of([*(["waivers"] if waived else []), *(["allowances"] if self.facts.allowances else [])])
        if self.decision is not Decision.GO or not beside:
            return MEANINGS[self.decision]
        return f"This policy lets the run pass with the {beside} below: decide whether they are acceptable for a release."

    @cached_property
    def by_model(self) -> Mapping[str, RunView]:
        """The same about each model, and about each judged family of models."""
        return {name: RunView(records, scope, name) for name, (scope, records) in self.facts.by_model(self.records).items()}

    @property
    def several(self) -> Mapping[str, RunView]:
        """The views of each model, if there are several."""
        return self.by_model if len(self.by_model) > 1 else {}

    @property
    def _unmeasured(self) -> str:
        """What the run could not measure: errors, tests without a verdict, and an early end."""
        errors = sum(record.outcome is Outcome.ERROR for record in self.records)
        missing = self.facts.missing(self.records)
        parts = [
            quantity(errors, "test ended in an error", "tests ended in an error") if errors else "",
            quantity(missing, "test left no verdict", "tests left no verdict") if missing else "",
            self.facts.stopped,
        ]
        return ", ".join(filter(None, parts)) or "the run was not finished"

    @property
    def _judged_by_value(self) -> str:
        """The number of verdicts that only hold for these samples, so that a GO is not overread."""
        held = [record for record in self.records if record.outcome in (Outcome.PASS, Outcome.WAIVED)]
        judged = [measure for record in held if (measure := record.headline)]
        count = sum(measure.judge == "value" for measure in judged)
        return f"; {'all' if count == len(judged) else count} {BY_VALUE}" if count else ""

    @property
    def _counted_warnings(self) -> str:
        """The number of warnings, so that a GO does not hide them."""
        count = sum(len(warnings_of(record)) for record in self.records if not record.not_asked)
        return f"; {quantity(count, 'warning')}" if count else ""

    @property
    def _open_points(self) -> str:
        """Everything that prevents GO for a run without a breach."""
        counts = Counter(record.deciding for record in self.records)
        unjudged = ", ".join(self.facts.unjudged_models(self.records))
        words = {
            Outcome.INCONCLUSIVE: ("test is undecided", "tests are undecided"),
            Outcome.NOT_APPLICABLE: ("test does not apply", "tests do not apply"),
        }
        points = [quantity(counts[outcome], *noun) for outcome, noun in words.items() if counts[outcome]]
        points += ["the run lacks what the policy requires for GO"] if self.facts.shortfalls else []
        points += [f"no rule judged {unjudged}"] if unjudged else []
        return all_of(points) or "no rule applied"

    # Subject and tests.

    @cached_property
    def subject(self) -> Subject:
        """Models, data, date, version and policy."""
        return subject(self.records, self.facts.origins, self.policies)

    @property
    def made_from(self) -> Mapping[str, str]:
        """The commit, and the CI job, by the names of its variables."""
        commit = str(self.facts.origins.get("commit", ""))
        return {**({"commit": commit} if commit else {}), **ci_variables(self.facts.origins)}

    @property
    def outcomes(self) -> list[tuple[Outcome, int]]:
        """How many tests have each verdict, worst first."""
        return outcome_counts(self.records)

    @property
    def counts(self) -> str:
        """The counts in words."""
        return in_words(self.outcomes)

    @cached_property
    def tests(self) -> tuple[ViewedTest, ...]:
        """The tests by severity of their outcome, then by the size of the drop."""
        command, day = self.facts.command, str(self.facts.origins.get("date", ""))
        return tuple(
            ViewedTest(record, command.for_test(record.nodeid) if command else "", day)
            for record in sorted(self.records, key=_severity)
        )

    @property
    def explained(self) -> list[ViewedTest]:
        """The tests that are broken or undecided, worst first."""
        return [test for test in self.tests if test.is_explained]

    def worst_questions(self, most: int = 2) -> list[WorstQuestion]:
        """Returns different questions that settings turned wrong, from the worst tests; empty for GO and INCOMPLETE.

        If broken and undecided tests have no examples, such as sweeps, they come from other tests of the same model and data.
        """
        if self.decision not in (Decision.NO_GO, Decision.INCONCLUSIVE):
            return []
        explained = [test.record for test in self.explained]
        pairs = {(record.model, record.dataset) for record in explained}
        others = [t.record for t in self.tests if not t.is_explained and (t.record.model, t.record.dataset) in pairs]
        questions: dict[tuple[str, str], WorstQuestion] = {}
        for records in (explained, others):  # the first question of each test, then the second
            ranked = zip_longest(*([WorstQuestion(record, example) for example in record.examples] for record in records))
            for question in filter(None, chain.from_iterable(ranked)):
                if question.example.kind == NEWLY_WRONG:
                    questions.setdefault((question.record.dataset, question.example.sample), question)
        return list(questions.values())[:most]

    @cached_property
    def sweeps(self) -> list[Sweep]:
        """Each model on each dataset."""
        return sweeps(self.records)

    @cached_property
    def families(self) -> list[ViewedTest]:
        """The tests about families of models, worst first."""
        return [test for test in self.tests if test.record.test == FAMILY]

    @cached_property
    def numbers(self) -> list[Headline]:
        """The key numbers of each model and dataset."""
        return headlines(self.records)

    @cached_property
    def policies(self) -> list[Applied]:
        """The applied policy of each model: rules with verdicts, waivers with covered tests."""
        return applied_policies([test.record for test in self.tests], self.facts)

    @property
    def waivers(self) -> list[WaiverUse]:
        """The used waivers; a waiver of several models is listed once."""
        needed: dict[tuple[str, ...], WaiverUse] = {}
        for waiver in (waiver for policy in self.policies for waiver in policy.waivers if waiver.tests):
            key = (waiver.id, waiver.owner, waiver.expires, waiver.reason)
            before = needed.get(key)
            needed[key] = replace(waiver, tests=[*before.tests, *waiver.tests]) if before else waiver
        return list(needed.values())

    @cached_property
    def open_rules(self) -> list[list[OpenRule]]:
        """The blocking rules that are not shown to hold, grouped by rule and model, worst first."""
        return open_rules(self.records)

    def open_rule_lines(self, *, undecided: bool) -> list[str]:
        """Returns a line for each rule that is undecided, or did not apply: its worst test, the number of others, and why."""
        groups = [group for group in self.open_rules if group[0].undecided is undecided]
        return [f"{group[0].record.id}{_and_more(group)}: {group[0].about.reason}" for group in groups]

    @property
    def _counted_open_rules(self) -> list[str]:
        """The number of rules that did not apply everywhere, and of rules not shown to hold; empty if none."""
        undecided, idle = (
            {group[0].about.rule for group in self.open_rules if group[0].undecided is kind} for kind in (True, False)
        )
        words = {
            ("rule did not apply everywhere", "rules did not apply everywhere"): idle - undecided,
            ("rule is not shown to hold", "rules are not shown to hold"): undecided,
        }
        return [quantity(len(rules), *noun) for noun, rules in words.items() if rules]

    @property
    def baseline(self) -> list[str]:
        """The number of samples that changed since the baseline; empty without one."""
        drops = [(record, drop) for record in self.records if (drop := record.measure_of("baseline_drop"))]
        cells = [record for record, drop in drops if math.isfinite(drop.value)]
        if not drops:
            return []
        worse, better = sum(len(cell.broken) for cell in cells), sum(len(cell.fixed) for cell in cells)
        changes = f"{quantity(worse, 'answer')} got worse, {better} got better ({quantity(len(cells), 'test')})"
        left = f"; {quantity(len(drops) - len(cells), 'test')} could not be compared" if len(cells) < len(drops) else ""
        return [f"compared with the baseline: {changes}{left}"]

    @property
    def warnings(self) -> list[str]:
        """A line for each broken or undecided rule that only warns; unmeasured ones come last."""
        warnings = [(test, text) for test in self.tests if not test.record.not_asked for text in test.warnings]
        warnings.sort(key=lambda pair: _NOT_APPLICABLE in pair[1])
        return [f"{test.record.id}: {text}" for test, text in warnings]

    @cached_property
    def not_asked(self) -> list[str]:
        """For each task of a model that was not asked about further, how many tests that concerns, and why."""
        having = [test.record for test in self.tests if test.record.not_asked]
        counts = Counter((record.model, record.dataset, record.not_asked) for record in having)
        words = "test does not apply", "tests do not apply"
        return [f"{model}-{dataset}: {quantity(count, *words)}: {why}" for (model, dataset, why), count in counts.items()]

    def notes(self, most: int | None = None) -> list[str]:
        """Returns the notes of tests, a line for each of the first ``most`` and one for the rest, and notes across models.

        A note of several tests is listed once.
        """
        having: dict[str, list[str]] = {}
        for test in sorted(self.tests, key=lambda test: test.record.setting != CLEAN_NAME):  # they explain the others
            for note in test.record.notes:
                having.setdefault(note, []).append(test.record.id)
        most = len(having) if most is None else most
        lines = [f"{first_few(ids, 1)}: {note}" for note, ids in having.items()]
        more = [f"{quantity(len(lines) - most, 'more note is', 'more notes are')} in results.json"] if len(lines) > most else []
        clean = {note for record in self.records if record.setting == CLEAN_NAME for note in record.notes}
        first = sum(note in clean for note in list(having)[:most])
        return [*lines[:first], *self.not_asked, *lines[first:most], *more, *self._agreement]

    @property
    def _agreement(self) -> list[str]:
        """For each grid and pair of models, the correlation of their indices over common datasets.

        Empty for fewer than two models or datasets.
        """
        indices: dict[str, dict[str, dict[str, float]]] = {}
        for record in self.records:
            index = record.measure_of(INDEX)
            if index is not None and not math.isnan(index.value):
                indices.setdefault(record.setting, {}).setdefault(record.model, {})[record.dataset] = index.value
        return [
            line
            for setting, by_model in indices.items()
            for first, second in combinations(by_model, 2)
            if (line := _correlation(setting, first, second, by_model[first], by_model[second]))
        ]

    @cached_property
    def analyses(self) -> tuple[Analysis, ...]:
        """The papers' analyses over all cells."""
        return analyses(self.records)

    # Limits of the evidence.

    @property
    def grave(self) -> list[str]:
        """The limits shown next to the decision where there is little room."""
        return [limit.text for limit in self.limits if limit.kind in _BESIDE]

    @property
    def used_gates(self) -> list[GateCount]:
        """The gates of the run, most used questions first."""
        return sorted(self.facts.gates, key=lambda gate: -gate.number)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of the evidence, grave ones first; never empty."""
        records, facts = [test.record for test in self.tests], self.facts
        others = [f"{record.id}: {record.reason}" for record in records if record.failed_outside]
        waived = [f"{record.id}: {record.reason}" for record in records if record.outcome is Outcome.WAIVED]
        warned = [f"{test.record.id}: {sentence}" for test in self.tests for sentence in test.warnings]
        undecided = [record.id for record in records if record.outcome is Outcome.INCONCLUSIVE]
        notes = [note for note in self.notes(_MOST) if note not in self.not_asked]
        return (
            *(Limit("selection", line, grave=True) for line in self._selection()),
            *(Limit("allowed", str(allowance), grave=True, allowed_by=allowance.allowed_by) for allowance in facts.allowances),
            *_counted("outside", others, "non-gate test failed", "non-gate tests failed", _NEVER_GO, grave=True),
            *_counted("waived", waived, "test is waived", "tests are waived", grave=True),
            *_counted("undecided", undecided, "test is undecided", "tests are undecided", grave=True),
            *_counted(
                "not shown",
                self.open_rule_lines(undecided=True),
                "rule is not shown to hold",
                "rules are not shown to hold",
                ": the samples do not decide, and the policy lets that pass",
                grave=True,
            ),
            *self._gates(),
            *_answers([record for record in records if record.test == "cell"]),
            *self._not_asked(),
            *self._not_applicable(),
            *_counted(
                "did not apply",
                self.open_rule_lines(undecided=False),
                "rule did not apply everywhere",
                "rules did not apply everywhere",
                ", and the policy lets that pass",
            ),
            *(Limit("policy", line) for line in policy_replacements(facts.origins)),
            *(Limit("warning", warning) for warning in facts.warnings),
            *_counted(
                "warned",
                warned,
                "verdict comes with a warning",
                "verdicts come with a warning",
                ": from a rule that warns but does not block",
            ),
            *self._repeated(),
            *self._ungated(),
            *self._sample_only(),
            *_counted("notes", notes, "note", "notes", " on what settings could not do, or on what numbers mean"),
            Limit("intervals", ADVICE),
        )

    def _selection(self) -> list[str]:
        """Returns the tests that were not selected or did not end, and other unmet requirements of the policy."""
        facts, lines = self.facts, []
        if facts.selected < facts.planned:
            lines.append(f"only {facts.selected} of {quantity(facts.planned, 'test')} ran: the decision is about these alone")
        if missing := facts.missing(self.records):
            lines.append(f"stopped early: {missing} of {quantity(facts.selected, 'selected test')} left no verdict")
        obstacles = facts.obstacles(self.records)
        budgets = budget_lines(test.record for test in self.tests)
        return [*lines, *budgets, *(f"not GO: {obstacle}" for obstacle in obstacles)]

    def _not_asked(self) -> list[Limit]:
        total = quantity(sum(bool(record.not_asked) for record in self.records), "test was", "tests were")
        text = f"{total} not asked: the model has not been shown to do the task, or cannot be compared"
        return _detailed("not asked", self.not_asked, text)

    def _not_applicable(self) -> list[Limit]:
        having = [(record, measure) for record, measure in self._measures if measure.outcome is Outcome.NOT_APPLICABLE]
        details = [f"{record.id}: {measure.metric}: {measure.reason}" for record, measure in having]
        words = "metric of a rule does not apply", "metrics of rules do not apply"
        return _counted("not applicable", details, *words, " (NOT_APPLICABLE)")

    @property
    def _measures(self) -> Iterable[tuple[Record, Measure]]:
        return ((test.record, measure) for test in self.tests for measure in test.record.measures)

    def _gates(self) -> list[Limit]:
        """Returns the gate counts of questions: the most used in words, the others as details."""
        used = self.used_gates
        others = tuple(map(str, used[1:]))
        return [Limit("gates", str(gate), gate.number > 1, others[:_MOST], max(0, len(others) - _MOST)) for gate in used[:1]]

    def _repeated(self) -> list[Limit]:
        """Returns how many answers flip on repetition; the section on noise explains it."""
        if not self.facts.repeatability:
            return [Limit("noise", "repeatability was not measured: run with --vlm-aa")]
        return [Limit("noise", noise_lines(repeat)[0]) for repeat in self.facts.repeatability]

    def _ungated(self) -> list[Limit]:
        having = [test.record for test in self.tests if test.record.is_gated]
        free = [record for record in having if record.outcome is Outcome.MEASURED]
        families = sum(record.test == FAMILY for record in free)
        of_families = f", {families} of them about families of models" if families else ""
        every = quantity(len(having), "test")
        words = (
            f"of {every} has no rule: it is informational",
            f"of {every} have no rule: they are informational",
        )
        return _counted("not judged", [record.id for record in free], *words, of_families)

    def _sample_only(self) -> list[Limit]:
        points = [f"{record.id}: {measure.metric}" for record, measure in self._measures if measure.target == "dataset"]
        words = "verdict holds for these samples only", "verdicts hold for these samples only"
        return _counted("by value", points, *words, ": what was judged is the value, not the interval")


def in_words(counts: Iterable[tuple[Outcome, int]]) -> str:
    """Returns counts of outcomes in words.

    >>> in_words([(Outcome.FAIL, 1), (Outcome.PASS, 3)])
    '1 FAIL, 3 PASS'
    """
    return ", ".join(f"{count} {outcome.counted}" for outcome, count in counts)


def _severity(record: Record) -> tuple[int, bool, float, str]:
    drop = record.measure_of("accuracy_drop")
    lost = drop.value if drop and math.isfinite(drop.value) else -math.inf
    return WORST_FIRST.index(record.deciding), bool(record.not_asked), -lost, record.id


def _and_more(group: Sequence[OpenRule]) -> str:
    return f" and {quantity(len(group) - 1, 'more test')}" if len(group) > 1 else ""


def _correlation(setting: str, first: str, second: str, ours: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    shared = sorted({*ours} & {*theirs})
    if len(shared) < 2:
        return ""
    correlations = rci_correlation({name: ours[name] for name in shared}, {name: theirs[name] for name in shared})
    correlation = (
        "undefined, one side is constant"
        if math.isnan(correlations.pearson)
        else f"{correlations.pearson:.2f}, of ranks {correlations.spearman:.2f}"
    )
    return f"RCI of {setting} over {len(shared)} datasets, {first} against {second}: correlation {correlation}"


def _counted(
    kind: str, details: Sequence[str], singular: str, plural: str, rest: str = "", *, grave: bool = False
) -> list[Limit]:
    return _detailed(kind, details, f"{quantity(len(details), singular, plural)}{rest}", grave=grave)


def _detailed(kind: str, details: Sequence[str], text: str, *, grave: bool = False) -> list[Limit]:
    if not details:
        return []
    return [Limit(kind, text, grave, tuple(details[:_MOST]), max(0, len(details) - _MOST))]


def _answers(cells: Sequence[Record]) -> list[Limit]:
    """Returns failed and unreadable answers of cells; summary metrics would count them twice."""
    total = sum(cell.n_requested for cell in cells)
    answers = quantity(total, "answer")
    kinds: dict[str, Callable[[int], str]] = {
        "n_errors": lambda n: f"{n} of {quantity(total, 'inference')} failed ({percent(n / total)}): these have no score",
        "n_unparsed": lambda n: f"{n} of {answers} could not be read ({percent(n / total)}): these count as wrong",
        "n_refused": lambda n: f"{n} of {answers} were refused ({percent(n / total)}): these count as wrong",
        "n_guessed": lambda n: f"{quantity(n, 'answer')} without the images could not be read: these count as guesses",
    }
    limits: list[Limit] = []
    for name, text in kinds.items():
        having = sorted((cell for cell in cells if getattr(cell, name)), key=lambda cell: -int(getattr(cell, name)))
        details = [f"{cell.id}: {getattr(cell, name)} of {cell.n_requested}" for cell in having]
        if having:
            limits += _detailed("answers", details, text(sum(getattr(cell, name) for cell in having)), grave=name == "n_errors")
    if cells and not limits:
        limits.append(Limit("answers", f"none of {quantity(total, 'inference')} of cells failed, and every answer could be read"))
    return limits
