"""What every report of a run says: the decision in words, and one list of what limits its evidence. Pure, and plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.record import BY_VALUE, FAMILY, Record
from pytest_vlmrobust.core.spending import budget_lines
from pytest_vlmrobust.core.words import all_of, percent, quantity
from pytest_vlmrobust.store.gates import GateCount

from .comparison import noise_lines
from .subject import Subject, subject
from .wording import (
    RunFacts,
    headline,
    not_asked,
    note_lines,
    open_rule_lines,
    open_rules_in_words,
    outcome_counts,
    policy_replacements,
    purposes,
    warnings_of,
    worst_first,
)

_MOST = 12
"""Details of a limit that are shown."""
WITH_WAIVERS = f"{Decision.GO} WITH WAIVERS"
ADVICE = (
    "intervals are two-sided 90 % over the samples that were asked, samples of one source picture taken together; they say "
    "nothing about other data, prompts, decoding parameters or perturbations"
)


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that limits the evidence."""

    kind: str
    """``selection``, ``allowed``, ``undecided`` ...: what it is about."""
    text: str
    grave: bool = False
    details: tuple[str, ...] = ()
    """The tests or sentences behind it."""
    more: int = 0
    """Details beyond those given."""
    allowed_by: str = ""
    """The line of the policy that lets it pass; empty for a limit that no policy lets pass."""


@dataclass(frozen=True, slots=True)
class RunView:
    """What is said of a run, whoever says it."""

    decision: Decision
    word: str
    """The decision for people: of a GO that needed waivers, that it did; of one that supports no release, what it is for."""
    sentence: str
    """Why."""
    meaning: str
    """What follows for a release."""
    decisions: Mapping[str, Decision]
    """The decision about each model, where there are several."""
    words: Mapping[str, str]
    """The same for people."""
    subject: Subject
    counts: str
    """How many tests have each verdict."""
    limits: tuple[Limit, ...]
    """Grave ones first; never empty."""

    @property
    def sign(self) -> str:
        """How the decision is marked without colour."""
        return decision_sign(self.word)

    @property
    def grave(self) -> list[str]:
        """The limits that stand beside the decision wherever there is room for little."""
        return [limit.text for limit in self.limits if limit.kind in _BESIDE]


SIGNS = {Decision.GO: "✓", Decision.NO_GO: "✕", Decision.INCONCLUSIVE: "?", Decision.INCOMPLETE: "!"}
_BESIDE = ("selection", "allowed")
MEANINGS = {
    Decision.GO: "The evidence supports a release under this policy.",
    Decision.NO_GO: "The policy is broken: do not release on this evidence.",
    Decision.INCONCLUSIVE: "The evidence does not decide.",
    Decision.INCOMPLETE: "The run did not measure everything that it set out to measure.",
}


def view(records: Sequence[Record], facts: RunFacts) -> RunView:
    """Returns what is said of a run; the same records and facts give the same view."""
    decision = facts.decision(records)
    word, decisions = decision_word(decision, records, facts.origins), facts.decisions(records)
    several = decisions if len(decisions) > 1 else {}
    return RunView(
        decision=decision,
        word=word,
        sentence=decision_sentence(decision, records, facts),
        meaning=_meaning(word, decision, facts),
        decisions=several,
        words={model: decision_word(one, records, facts.origins, model) for model, one in several.items()},
        subject=subject(records, facts.origins),
        counts=outcome_counts(records),
        limits=tuple(_limits(worst_first(records), facts)),
    )


def decision_word(decision: Decision, records: Iterable[Record], origins: Mapping[str, object], model: str = "") -> str:
    """Returns the decision as people read it, about the run or one model of it: of a GO, its waivers and what it is for."""
    if decision is not Decision.GO:
        return str(decision)
    waived = any(record.outcome is Outcome.WAIVED for record in records if model in ("", record.model))
    purpose = ", ".join(purposes(origins, model))
    return f"{WITH_WAIVERS if waived else decision}{f' ({purpose})' if purpose else ''}"


def decision_sign(word: str) -> str:
    """Returns how a decision in words is marked without colour."""
    return "⚑" if word.startswith(WITH_WAIVERS) else SIGNS[Decision(word.partition(" (")[0])]


def _meaning(word: str, decision: Decision, facts: RunFacts) -> str:
    """Returns what follows for a release: of a GO that policies let pass much, that somebody has to decide."""
    if decision is Decision.GO and (purpose := " and a ".join(purposes(facts.origins))):
        return f"The policy is for a {purpose}: this GO supports no release."
    waived = word == WITH_WAIVERS
    beside = all_of([*(["waivers"] if waived else []), *(["allowances"] if facts.allowances else [])])
    if decision is not Decision.GO or not beside:
        return MEANINGS[decision]
    return f"This policy lets the run pass with the {beside} below: decide whether they are acceptable for a release."


# The sentence behind the decision.


def decision_sentence(decision: Decision, records: Sequence[Record], facts: RunFacts) -> str:
    """Returns why a run was decided as it was."""
    counts = Counter(record.outcome for record in records)
    passed, waived = quantity(counts[Outcome.PASS], "verdict passed", "verdicts passed"), counts[Outcome.WAIVED]
    day = f" by the date {facts.origins['date']} (UTC)" if "date" in facts.origins else ""
    covered = f"{quantity(waived, 'is waived', 'are waived')}{day}, " if waived else ""
    allowed = [f"with {quantity(len(facts.allowances), 'allowance')}"] if facts.allowances else []
    reasons = {
        Decision.GO: "; ".join(
            [
                f"{passed}, {covered}none failed{_warnings(records)}{_judged_by_value(records)}",
                *open_rules_in_words(records),
                *allowed,
            ]
        ),
        Decision.NO_GO: quantity(counts[Outcome.FAIL], "verdict broke a bound", "verdicts broke a bound"),
        Decision.INCONCLUSIVE: f"no failures, but {_open_points(records, facts)}",
        Decision.INCOMPLETE: f"{_unmeasured(counts[Outcome.ERROR], records, facts)}: this says nothing about the model",
    }
    return reasons[decision]


def _unmeasured(errors: int, records: Sequence[Record], facts: RunFacts) -> str:
    """Returns what a run could not measure: tests that ended in an error, tests without a verdict, and what ended it early."""
    missing = facts.missing(records)
    parts = [
        quantity(errors, "test ended in an error", "tests ended in an error") if errors else "",
        quantity(missing, "test left no verdict", "tests left no verdict") if missing else "",
        facts.stopped,
    ]
    return ", ".join(filter(None, parts)) or "the run was not finished"


def _judged_by_value(records: Iterable[Record]) -> str:
    """Returns how many verdicts hold for these samples only, so that a GO does not look like one about all such questions."""
    judged = [measure for record in records if record.outcome in (Outcome.PASS, Outcome.WAIVED) and (measure := headline(record))]
    count = sum(measure.judge == "value" for measure in judged)
    return f"; {'all' if count == len(judged) else count} {BY_VALUE}" if count else ""


def _warnings(records: Iterable[Record]) -> str:
    """Returns the number of warnings, so that a GO does not hide broken rules that only warn."""
    count = sum(len(warnings_of(record)) for record in records if not record.not_asked)
    return f"; {quantity(count, 'warning')}" if count else ""


def _open_points(records: Sequence[Record], facts: RunFacts) -> str:
    """Returns everything that keeps a run without a breach from GO."""
    counts = Counter(record.deciding for record in records)
    unjudged = ", ".join(facts.unjudged_models(records))
    words = {
        Outcome.INCONCLUSIVE: ("test is undecided", "tests are undecided"),
        Outcome.NOT_APPLICABLE: ("test does not apply", "tests do not apply"),
    }
    points = [quantity(counts[outcome], *noun) for outcome, noun in words.items() if counts[outcome]]
    points += ["the run lacks what the policy requires for GO"] if facts.shortfalls else []
    points += [f"no rule judged {unjudged}"] if unjudged else []
    return all_of(points) or "no rule applied"


# What limits the evidence.


def _limits(records: Sequence[Record], facts: RunFacts) -> list[Limit]:
    """Returns what limits the evidence of a run, grave limits first; never an empty list."""
    others = [f"{record.id}: {record.reason}" for record in records if record.failed_outside]
    waived = [f"{record.id}: {record.reason}" for record in records if record.outcome is Outcome.WAIVED]
    warned = [f"{record.id}: {sentence}" for record in records for sentence in warnings_of(record)]
    undecided = [record.id for record in records if record.outcome is Outcome.INCONCLUSIVE]
    notes = [note for note in note_lines(records, most=_MOST) if note not in not_asked(records)]
    return [
        *(Limit("selection", line, grave=True) for line in _selection(records, facts)),
        *(Limit("allowed", str(one), grave=True, allowed_by=one.allowed_by) for one in facts.allowances),
        *_counted("outside", others, "non-gate test failed", "non-gate tests failed", _NEVER_GO, grave=True),
        *_counted("waived", waived, "test is waived", "tests are waived", grave=True),
        *_counted("undecided", undecided, "test is undecided", "tests are undecided", grave=True),
        *_counted(
            "not shown",
            open_rule_lines(records, undecided=True),
            "rule is not shown to hold",
            "rules are not shown to hold",
            ": the samples do not decide, and the policy lets that pass",
            grave=True,
        ),
        *_counted_gates(facts),
        *_answers([record for record in records if record.test == "cell"]),
        *_not_asked(records),
        *_not_applicable(records),
        *_counted(
            "did not apply",
            open_rule_lines(records, undecided=False),
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
        *_repeated(facts),
        *_ungated(records),
        *_sample_only(records),
        *_counted("notes", notes, "note", "notes", " on what settings could not do, or on what numbers mean"),
        Limit("intervals", ADVICE),
    ]


_NEVER_GO = ": the run is not GO, whatever the gate found"


def _selection(records: Sequence[Record], facts: RunFacts) -> list[str]:
    """Returns the tests that were not selected or did not end, and what the policy asks for beside."""
    lines = []
    if facts.selected < facts.planned:
        lines.append(f"only {facts.selected} of {quantity(facts.planned, 'test')} ran: the decision is about these alone")
    if facts.missing(records):
        lines.append(f"stopped early: {facts.missing(records)} of {quantity(facts.selected, 'selected test')} left no verdict")
    return [*lines, *budget_lines(records), *(f"not GO: {obstacle}" for obstacle in facts.obstacles(records))]


def _counted(
    kind: str, details: Sequence[str], singular: str, plural: str, rest: str = "", *, grave: bool = False
) -> list[Limit]:
    return _detailed(kind, details, f"{quantity(len(details), singular, plural)}{rest}", grave=grave)


def _detailed(kind: str, details: Sequence[str], text: str, *, grave: bool = False) -> list[Limit]:
    if not details:
        return []
    return [Limit(kind, text, grave, tuple(details[:_MOST]), max(0, len(details) - _MOST))]


def _answers(cells: Sequence[Record]) -> list[Limit]:
    """Returns failed and unreadable answers of cells; summary metrics count the same ones again."""
    total = sum(cell.n_requested for cell in cells)
    answers = quantity(total, "answer")
    kinds: dict[str, Callable[[int], str]] = {
        "n_errors": lambda n: f"{n} of {quantity(total, 'inference')} failed ({percent(n / total)}): these have no score",
        "n_unparsed": lambda n: f"no rule could read {n} of {answers} ({percent(n / total)}): these count as wrong",
        "n_refused": lambda n: f"{n} of {answers} were refused ({percent(n / total)}): these count as wrong",
        "n_guessed": lambda n: f"no rule could read {quantity(n, 'answer')} without the pictures: these count as guesses",
    }
    found: list[Limit] = []
    for name, text in kinds.items():
        having = sorted((cell for cell in cells if getattr(cell, name)), key=lambda cell: -int(getattr(cell, name)))
        details = [f"{cell.id}: {getattr(cell, name)} of {cell.n_requested}" for cell in having]
        if having:
            found += _detailed("answers", details, text(sum(getattr(cell, name) for cell in having)), grave=name == "n_errors")
    if cells and not found:
        found.append(Limit("answers", f"none of {quantity(total, 'inference')} of cells failed, and every answer could be read"))
    return found


def _not_asked(records: Sequence[Record]) -> list[Limit]:
    total = quantity(sum(bool(record.not_asked) for record in records), "test was", "tests were")
    text = f"{total} not asked: the model has not been shown to do the task, or cannot be compared"
    return _detailed("not asked", not_asked(records), text)


def _not_applicable(records: Iterable[Record]) -> list[Limit]:
    details = [
        f"{record.id}: {measure.metric}: {measure.reason}"
        for record in records
        for measure in record.measures
        if measure.outcome is Outcome.NOT_APPLICABLE
    ]
    words = "metric of a rule does not apply", "metrics of rules do not apply"
    return _counted("not applicable", details, *words, " (NOT_APPLICABLE)")


def _counted_gates(facts: RunFacts) -> list[Limit]:
    """Returns how often the questions decided gates: of the most used ones in words, of the others below."""
    used = most_used_gates(facts)
    others = tuple(map(str, used[1:]))
    return [Limit("gates", str(gate), gate.number > 1, others[:_MOST], max(0, len(others) - _MOST)) for gate in used[:1]]


def most_used_gates(facts: RunFacts) -> list[GateCount]:
    """Returns the gates of a run, those whose questions decided most often first."""
    return sorted(facts.gates, key=lambda gate: -gate.number)


def _repeated(facts: RunFacts) -> list[Limit]:
    """Returns how many answers flip when they are asked for again; the section on noise says what follows."""
    if not facts.repeatability:
        return [Limit("noise", "how many answers flip when they are asked for again was not measured: --vlm-aa measures it")]
    return [Limit("noise", noise_lines(repeat)[0]) for repeat in facts.repeatability]


def _ungated(records: Iterable[Record]) -> list[Limit]:
    having = [record for record in records if record.is_gated]
    free = [record for record in having if record.outcome is Outcome.MEASURED]
    families = sum(record.test == FAMILY for record in free)
    of_families = f", {families} of them about families of models" if families else ""
    every = quantity(len(having), "test")
    words = (
        f"of {every} was measured only: no rule of the policy judges it",
        f"of {every} were measured only: no rule of the policy judges them",
    )
    return _counted("not judged", [record.id for record in free], *words, of_families)


def _sample_only(records: Iterable[Record]) -> list[Limit]:
    points = [
        f"{record.id}: {measure.metric}" for record in records for measure in record.measures if measure.target == "dataset"
    ]
    words = "verdict holds for these samples only", "verdicts hold for these samples only"
    return _counted("by value", points, *words, ": what was judged is the value, not the interval")
