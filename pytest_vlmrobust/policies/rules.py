"""Rule, Waiver and Scope: a bound, a dated exception, and the tests that each covers; and globs that misspell a name."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.sample import kind_of_stratum
from pytest_vlmrobust.core.words import number, plain_decimal

# Bound: the closed range that a metric's value must stay in, and how its numbers are read and written.


FRACTION = "fraction"
"""The unit of metrics that are shares of samples or differences of shares."""

EVERYTHING = (-math.inf, math.inf)
"""The values of a metric of unknown range."""

_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,4})?)\s*(?P<unit>pp|%)?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bound:
    """The closed range ``[low, high]``; ``max:`` leaves ``low`` and ``min:`` leaves ``high`` infinite."""

    low: float = -math.inf
    high: float = math.inf
    unit: str = field(default="", compare=False)
    """The unit in which its author wrote it: ``pp``, ``%``, or empty for a plain number."""

    def is_exceeded_by(self, value: float) -> bool:
        """Whether ``value`` lies above the range."""
        return value > self.high + ROUNDING

    def is_undercut_by(self, value: float) -> bool:
        """Whether ``value`` lies below the range."""
        return value < self.low - ROUNDING

    def admits(self, value: float) -> bool:
        """Whether ``value`` lies in the range; False for NaN."""
        return self.low - ROUNDING <= value <= self.high + ROUNDING

    def nearest_end(self, value: float) -> float:
        """Returns the finite end of the range that ``value`` is closest to: for a breach, the end it has crossed."""
        return min(self.ends, key=lambda end: abs(value - end))

    def holds(self, other: Bound) -> bool:
        """Whether everything that keeps ``other`` keeps this bound."""
        return self.low <= other.low and other.high <= self.high

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ends, low before high."""
        return tuple(end for end in (self.low, self.high) if math.isfinite(end))

    @property
    def condition(self) -> str:
        """The bound as a condition in its author's unit: ``<= 5 pp``, ``>= 0.8``, ``in 0.1..0.3``."""
        return self.asks(0)

    def asks(self, digits: int) -> str:
        """Returns its condition; plain numbers have at least ``digits`` decimals."""
        sign = "in" if len(self.ends) > 1 else "<=" if math.isinf(self.low) else ">="
        return f"{sign} {'..'.join(self.written(end, digits) for end in self.ends)}"

    def written(self, end: float, digits: int = 0) -> str:
        """Returns an end of it, or a cap, in its unit; a plain number has at least ``digits`` decimals."""
        if self.unit:
            return f"{format((Decimal(repr(end)) * 100).normalize(), 'f')} {self.unit}"
        return f"{end:.{digits}f}" if digits else plain_decimal(end)

    def decimals(self, digits: int) -> int:
        """Returns the decimals in its unit that equal ``digits`` decimals of a plain number."""
        return digits - 2 if self.unit else digits

    def shown(self, value: float, digits: int) -> str:
        """Returns a compared value in its unit; ``digits`` come from :func:`decimals_needed`."""
        return number(value, self.unit, self.decimals(digits))

    def missed(self, value: float, digits: int) -> str:
        """Returns how a value lies beyond it: ``> 5 pp``."""
        return f"{'>' if self.is_exceeded_by(value) else '<'} {self.written(self.nearest_end(value), digits)}"


def parse_quantity(raw: float | str, unit: str, reach: tuple[float, float] = EVERYTHING) -> float:
    """Parses a quantity of a thresholds file: ``0.05``, ``"5pp"`` and ``"5%"`` are all 0.05.

    ``unit`` is the metric's unit; with an empty unit no unit is refused.
    ``reach`` is the smallest and largest possible value of the metric; other quantities are refused. The ValueError says in
    a sentence what was expected.
    """
    value = _parse_text(raw, unit, reach) if isinstance(raw, str) else _parse_number(raw, unit, reach)
    if not _reaches(reach, value):
        raise ValueError(f"{_reach_in_words(reach)}, for no value of the metric lies beyond; this is {value:g}")
    return value


def decimals_needed(value: float, *ends: float) -> int:
    """Returns how many decimals, at least 3, print ``ends`` exactly and keep ``value`` different from each it differs from.

    >>> decimals_needed(0.124, 0.05), decimals_needed(0.05004, 0.05), decimals_needed(0.2, 0.0625)
    (3, 5, 4)
    """
    return next((digits for digits in range(3, 10) if all(_are_distinct(value, end, digits) for end in ends)), 10)


def _are_distinct(value: float, end: float, digits: int) -> bool:
    printed = f"{end:.{digits}f}"
    exact = abs(float(printed) - end) <= ROUNDING
    return exact and (abs(value - end) <= ROUNDING or f"{value:.{digits}f}" != printed)


def _parse_number(raw: float, unit: str, reach: tuple[float, float]) -> float:
    value = _finite(raw)
    if unit == FRACTION and (abs(value) > 1 or (isinstance(raw, int) and raw != 0)):
        meant = f", or {value * 100:g}% for {value:g}" if _reaches(reach, value) else ""
        raise ValueError(f"a fraction: write {value:g}pp or {value:g}% for {value / 100:g}{meant}")
    return value


def _finite(raw: float | str) -> float:
    try:
        value = float(raw)
    except OverflowError:  # an integer of hundreds of digits
        value = math.inf
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


def _reaches(reach: tuple[float, float], value: float) -> bool:
    return reach[0] <= value <= reach[1]


def _reach_in_words(reach: tuple[float, float]) -> str:
    low, high = (plain_decimal(end) if math.isfinite(end) else "" for end in reach)
    return (
        f"a number from {low} to {high}" if low and high else f"a number of at least {low}" if low else f"a number up to {high}"
    )


def _parse_text(text: str, unit: str, reach: tuple[float, float]) -> float:
    match = _QUANTITY.match(text.strip())
    if match is None:
        raise ValueError("a number such as 0.05, 5pp or 5%")
    digits, suffix = match["number"], match["unit"]
    value = _finite(digits)
    if suffix is None:
        return _parse_number(value, unit, reach)
    if suffix == "pp" and unit not in {"", FRACTION}:
        raise ValueError(f"a plain number: the metric's unit is {unit}, so percentage points say nothing about it")
    return float(Decimal(digits) / 100)


def unit_of(*written: float | str) -> str:
    """Returns the unit of a written bound: ``pp``, ``%``, or empty for plain numbers.

    >>> unit_of("15pp"), unit_of("5 %", "20%"), unit_of("5%", 0.2)
    ('pp', '%', '')
    """
    units = {match["unit"] or "" if (match := _QUANTITY.match(str(text).strip())) else "" for text in written}
    return units.pop() if len(units) == 1 else ""


_STEP_LEVEL = re.compile(r":[^+]*")

NO_LEVEL = "none"
"""The level in a scope for settings without a level."""


class JudgedBy(StrEnum):
    """What is compared with the bound."""

    INTERVAL = "interval"
    """The interval: a verdict about the questions that the samples represent, with declared risks of error."""
    POINT = "point"
    """The value: a verdict about these samples only. Other samples of the same kind may get another verdict."""

    @property
    def target(self) -> str:
        """The scope of the verdict."""
        return "population" if self is JudgedBy.INTERVAL else "dataset"


class Purpose(StrEnum):
    """What a GO by a policy may be used for."""

    RELEASE = "release"
    DEMONSTRATION = "demonstration"
    """It shows the gate at work."""
    CHECK = "check"
    """It answers a narrower question, such as whether a change broke something."""


class Mode(StrEnum):
    """How much a run asks."""

    FULL = "full"
    """Every sample of every cell."""
    ADAPTIVE = "adaptive"
    """In a fixed random order until the verdict of a test is decided at the declared risk."""


class Multiplicity(StrEnum):
    """How a rule that many tests share is protected from breaking by chance."""

    BONFERRONI = "bonferroni"
    """The risk of any wrong FAIL is ``alpha_fail`` for all of them together. PASS needs no correction: all of them must pass."""
    NONE = "none"
    """Each test errs at ``alpha_fail``."""


class Tier(StrEnum):
    """Whether a breach blocks the release or only warns."""

    BLOCK = "block"
    WARN = "warn"


class OnInconclusive(StrEnum):
    """The effect of undecided evidence: a failing test, or a warning."""

    FAIL = "fail"
    WARN = "warn"


class OnNotApplicable(StrEnum):
    """The effect of a metric that does not apply: an undecided run, or a warning."""

    INCONCLUSIVE = "inconclusive"
    WARN = "warn"


ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Treatment:
    """How a rule judges, and the effects of its outcomes.

    ``alpha_pass`` is the risk of a wrong PASS, ``alpha_fail`` that of a wrong FAIL; both are one-sided
    and apply to judged intervals and in adaptive mode.
    """

    judge: JudgedBy = JudgedBy.INTERVAL
    alpha_pass: float = ALPHA
    alpha_fail: float = ALPHA
    multiplicity: Multiplicity = Multiplicity.BONFERRONI
    tier: Tier = Tier.BLOCK
    on_inconclusive: OnInconclusive = OnInconclusive.FAIL
    on_not_applicable: OnNotApplicable = OnNotApplicable.INCONCLUSIVE


class Strictness(StrEnum):
    """How strict a rule is: one word for four keys."""

    USUAL = "usual"
    STRICT = "strict"
    """A wrong PASS is five times rarer, which takes more questions."""
    LENIENT = "lenient"
    """A wrong PASS is twice as likely, and a metric that does not apply is only reported."""

    @property
    def treatment(self) -> Mapping[str, Any]:
        """Its keys and values."""
        lenient = self is Strictness.LENIENT
        return {
            "alpha_pass": {Strictness.STRICT: ALPHA / 5, Strictness.LENIENT: 2 * ALPHA}.get(self, ALPHA),
            "alpha_fail": ALPHA,
            "multiplicity": Multiplicity.BONFERRONI,
            "on_not_applicable": OnNotApplicable.WARN if lenient else OnNotApplicable.INCONCLUSIVE,
        }


@dataclass(frozen=True, slots=True)
class MetricKey:
    """The subject of an estimate: the names that scopes match.

    ``setting`` of a sweep is its split, if any; ``family`` and ``level`` are empty for a sweep; ``category`` is empty
    unless the estimate is for a stratum of the dataset: a category, or a slice such as ``meta.camera=night``.
    """

    model: str
    dataset: str
    metric: str
    setting: str = ""
    family: str = ""
    level: str = ""
    category: str = ""
    strata: int = 1
    """The number of strata of the dataset that are judged like this one."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Globs by field; a field without globs matches everything, and one of several globs must match.

    Matching is case-sensitive. A setting glob without ``:`` matches every level: ``*_blur`` is ``*_blur:*``.
    """

    model: tuple[str, ...] = ()
    dataset: tuple[str, ...] = ()
    setting: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    level: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    """Categories, or slices of a metadata column: ``meta.camera=night``."""

    def matches(self, test: MetricKey, *, any_category: bool = False) -> bool:
        """Whether every field that has globs matches the test's."""
        return (
            _any_glob(self.model, test.model)
            and _any_glob(self.dataset, test.dataset)
            and _any_setting_glob(self.setting, test.setting)
            and _any_glob(self.family, test.family)
            and _any_glob(self.level, test.level or NO_LEVEL)
            and (any_category or _any_stratum_glob(self.category, test.category))
        )

    def admits(self, field: str, name: str) -> bool:
        """Whether one field matches ``name``."""
        globs: tuple[str, ...] = getattr(self, field)
        return {"setting": _any_setting_glob, "category": _any_stratum_glob}.get(field, _any_glob)(globs, name)

    def __bool__(self) -> bool:
        """Whether it restricts anything."""
        return any(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Rule:
    """One bound on one metric, for the tests in its scope.

    ``source`` is ``file:line``; ``evidence`` says where the number comes from (``source:`` in the file).
    """

    id: str
    metric: str
    bound: Bound
    source: str
    where: Scope = Scope()
    unless: Scope | None = None
    treatment: Treatment = Treatment()
    reason: str = ""
    evidence: str = ""

    @property
    def blocks_where_not_applicable(self) -> bool:
        """Whether a metric that does not apply prevents GO."""
        treatment = self.treatment
        return treatment.tier is Tier.BLOCK and treatment.on_not_applicable is OnNotApplicable.INCONCLUSIVE

    def applies(self, test: MetricKey) -> bool:
        """Whether the rule bounds this test.

        A rule that names no category bounds whole datasets only, so that it does not meet strata of ten samples by accident.
        """
        if self.metric != test.metric or not _covers(self.where, test):
            return False
        return self.unless is None or not self.unless.matches(test)

    def bounds(self, test: MetricKey) -> bool:
        """Whether the rule bounds this test, or strata of its dataset."""
        if self.metric != test.metric or not self.where.matches(test, any_category=True):
            return False
        return self.unless is None or bool(self.unless.category) or not self.unless.matches(test)


@dataclass(frozen=True, slots=True)
class Waiver:
    """A breach accepted by an owner, up to a cap and up to and including a date."""

    id: str
    owner: str
    reason: str
    expires: date
    metric: str
    where: Scope
    cap: float
    source: str
    ticket: str = ""
    unit: str = field(default="", compare=False)
    """The unit in which its owner wrote the cap, as in :class:`Bound`."""
    latest: date | None = None
    """A date after its last day on which files of the run were made, so that its validity by the run's clock is
    unknown."""

    def applies(self, test: MetricKey) -> bool:
        """Whether the waiver covers this test, expired or not."""
        return self.metric == test.metric and _covers(self.where, test)

    @property
    def written_cap(self) -> str:
        """The cap in its owner's unit: ``20 pp``."""
        return Bound(unit=self.unit).written(self.cap)

    def bound_of(self, bound: Bound) -> Bound:
        """Returns ``bound`` with the end that the cap is about moved to the cap."""
        below = math.isfinite(bound.low) and (math.isinf(bound.high) or abs(self.cap - bound.low) < abs(self.cap - bound.high))
        return replace(bound, low=self.cap) if below else replace(bound, high=self.cap)

    def goes_beyond(self, bound: Bound) -> bool:
        """Whether the cap is looser than ``bound``; otherwise the waiver can never cover a test."""
        cap = self.bound_of(bound)
        return cap.holds(bound) and not all(map(bound.admits, cap.ends))

    def is_expired(self, today: date) -> bool:
        """Whether the last day is over."""
        return today > self.expires


def _covers(where: Scope, test: MetricKey) -> bool:
    return bool(where.category) == bool(test.category) and where.matches(test)


def _any_glob(globs: tuple[str, ...], name: str) -> bool:
    return not globs or any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _any_stratum_glob(globs: tuple[str, ...], stratum: str) -> bool:
    """Whether a glob of the same kind matches: ``*`` means every category, and no slice."""
    kind = kind_of_stratum(stratum)
    alike = [glob.removeprefix(f"{kind}=") for glob in globs if kind_of_stratum(glob) == kind]
    return not globs or any(fnmatch.fnmatchcase(stratum.removeprefix(f"{kind}="), glob) for glob in alike)


def _any_setting_glob(globs: tuple[str, ...], setting: str) -> bool:
    bare = _STEP_LEVEL.sub("", setting)
    return not globs or any(fnmatch.fnmatchcase(setting if ":" in glob else bare, glob) for glob in globs)


_TOKEN = re.compile(r"[a-z]+|[0-9]+|[^a-z0-9]+")
_SHORTEST = 2
"""Letters of a word that may be misspelt: ``a`` and ``ab`` are two names."""


def misspellings(scope: Scope, names: Mapping[str, Collection[str]]) -> list[tuple[str, str, str]]:
    """Returns field, glob and name for each glob that matches no name and misspells a name without another matching glob.

    ``names`` holds the existing names by field, such as ``dataset``; other fields are not checked.
    """
    misspelt = []
    for key, known in names.items():
        unmatched = [name for name in known if not scope.admits(key, name)]
        for glob in getattr(scope, key):
            matched = any(Scope(**{key: (glob,)}).admits(key, name) for name in known)
            if not matched and (name := intended_name(glob, unmatched)):
                misspelt.append((key, glob, name))
    return misspelt


def intended_name(glob: str, names: Iterable[str]) -> str:
    """Returns the first of ``names`` that ``glob`` misspells, or an empty text.

    A misspelling differs in case, in a separator, by a missing or extra letter in one word, or by two swapped neighbouring
    letters. A different letter or number makes another name, such as the English and Chinese halves of a benchmark or two
    sizes of a model. Globs are only checked if their only wildcard is a ``*`` at the end.

    >>> intended_name("qwn", ["tiny", "qwen"]), intended_name("MMStar*", ["mmstar_val"]), intended_name("bench_cn", ["bench_en"])
    ('qwen', 'mmstar_val', '')
    """
    stem, open_end = glob.removesuffix("*"), glob.endswith("*")
    if any(sign in stem for sign in "*?["):
        return ""
    return next((name for name in names if any(_is_misspelling(stem, part) for part in _beginnings(stem, name, open_end))), "")


def _beginnings(stem: str, name: str, open_end: bool) -> list[str]:
    """Returns what a stem may mean: the name, or before a ``*`` each prefix of about that length."""
    if not open_end:
        return [name]
    parts = (name[:length] for length in range(max(0, len(stem) - 1), len(stem) + 2))
    return [part for part in parts if part and stem and part[-1].casefold() == stem[-1].casefold()]


def _is_misspelling(written: str, name: str) -> bool:
    if written == name:
        return False
    written_tokens, name_tokens = _tokens(written), _tokens(name)
    if written_tokens == name_tokens or "".join(written_tokens) == "".join(name_tokens):
        return True
    differing = [(a, b) for a, b in zip(written_tokens, name_tokens, strict=False) if a != b]
    return len(written_tokens) == len(name_tokens) and len(differing) == 1 and _is_one_edit(*differing[0])


def _tokens(name: str) -> list[str]:
    """Returns the words and numbers of a name."""
    return [token for token in _TOKEN.findall(name.casefold()) if token.isalnum()]


def _is_one_edit(word: str, other: str) -> bool:
    """Whether two words differ by one missing letter or two swapped neighbours."""
    short, long = sorted((word, other), key=len)
    if not (word.isalpha() and other.isalpha()) or len(short) < _SHORTEST:
        return False
    if len(long) == len(short) + 1:
        return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
    swaps = (word[:place] + word[place + 1] + word[place] + word[place + 2 :] for place in range(len(word) - 1))
    return other in swaps
