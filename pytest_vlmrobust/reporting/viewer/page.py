"""The pages of the viewer: what an address asks for, and what the page about it holds.

An address says everything: which runs, which answers, in which order, and which of them is looked at. So it can be shared.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup, escape

from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import WORST_FIRST
from pytest_vlmrobust.core.errors import StoreError, UnknownName, UsageError, VlmRobustError
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.reporting.html.page import asset, templates
from pytest_vlmrobust.reporting.html.words import DECISIONS, MARKS, Mark
from pytest_vlmrobust.store.browsing import (
    FLIPS,
    SORTS,
    STATES,
    AnswerKey,
    BrowsedCell,
    Browser,
    FoundSample,
    Scored,
    Seen,
    Wanted,
    probabilities,
)
from pytest_vlmrobust.store.questions import Answer

from .runs import NEWEST, PictureSource, Runs, RunState, ShownRun, cells_with

RUNS_A_PAGE = 20
ANSWERS_A_PAGE = 24
SAMPLES_A_PAGE = 25
_LONGEST_VALUE = 400
"""Characters of a value in an address."""
_MOST_VALUES = 40
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_LONGEST_ANSWER = 20_000
"""Characters of an answer on the page about its sample: a chain of thought is read as a whole."""
_SILENT = 120.0
"""Seconds without a word after which a run may have been killed."""

STATE_MARKS = {
    "right": Mark("✓", "pass", "right"),
    "wrong": Mark("✕", "fail", "wrong"),
    "unparsed": Mark("?", "open", "unreadable, counts as wrong"),
    "error": Mark("!", "error", "the inference failed: no score"),
}
FLIP_WORDS = {"harmful": "scores less than with the clean picture", "helpful": "scores more than with the clean picture"}
SORT_WORDS = {"worst": "worst first", "surest": "wrong and surest first", "data": "as in the data"}


# What an address asks for.


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for; values that a page does not know are refused, not passed over."""

    run: tuple[str, ...] = ()
    model: str = ""
    dataset: str = ""
    setting: str = ""
    state: str = ""
    flip: str = ""
    verdict: str = ""
    category: str = ""
    text: str = ""
    differs: str = ""
    sort: str = "worst"
    page: int = 1
    data: str = ""
    """The dataset of the sample that is looked at."""
    id: str = ""
    """Its id."""
    under: str = ""
    """The setting under which it is looked at."""
    number: int = 0
    """Which of its pictures."""
    at: int = -1
    """Its place among the answers that are looked for."""
    among: str = "answers"
    """``answers`` or ``samples``: what it was chosen from."""

    @classmethod
    def read(cls, pairs: Iterable[tuple[str, str]]) -> Asked:
        """Reads the names and values of an address.

        Raises:
            UsageError: it asks for something that there is not.
        """
        known = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {}
        for number, (name, value) in enumerate(pairs):
            if name not in known:
                raise UnknownName("part of the address", name, known)
            if number >= _MOST_VALUES or len(value) > _LONGEST_VALUE:
                raise UsageError(f"the address is too long: expected up to {_MOST_VALUES} values of {_LONGEST_VALUE} characters")
            if known[name] == "int":
                if not _NUMBER.fullmatch(value):
                    raise UsageError(f"the address has {name}={value!r}, expected a number")
                values[name] = int(value)
            elif name == "run":
                values[name] = (*values.get(name, ()), value)
            elif value:
                values[name] = value
        asked = cls(**values)
        choices = {"state": STATES, "flip": FLIPS, "verdict": [*map(str, WORST_FIRST)], "sort": SORTS, "differs": ("yes",)}
        for name, allowed in (choices | {"among": ("answers", "samples")}).items():
            if (value := getattr(asked, name)) and value not in allowed:
                raise UnknownName(name, value, allowed, where="the address")
        return asked

    @property
    def wanted(self) -> Wanted:
        """Which answers it asks for."""
        own = {field.name: getattr(self, field.name) for field in fields(Wanted) if field.name != "differs"}
        return Wanted(**own, differs=bool(self.differs))

    def address(self, path: str, **changes: object) -> Markup:
        """Returns the address of another page that asks for the same but for these changes, as it stands in an attribute."""
        standard = Asked()
        values = {field.name: changes.get(field.name, getattr(self, field.name)) for field in fields(Asked)}
        kept = {name: value for name, value in values.items() if value != getattr(standard, name)}
        query = urlencode(kept, doseq=True, errors="backslashreplace")
        return Markup(escape(f"{path}?{query}" if query else path))  # noqa: S704 - escaped

    @property
    def filters(self) -> dict[str, str]:
        """The parts that leave answers out, by name."""
        names = ("model", "dataset", "setting", "state", "flip", "verdict", "category", "text", "differs")
        return {name: value for name in names if (value := getattr(self, name))}


@dataclass(frozen=True, slots=True)
class Contender:
    """One model in one of the runs that are looked at."""

    run: str
    model: str
    name: str
    """What it is called beside the others."""


# The pages.


class Pages:
    """Makes pages; any number of threads may ask for them."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._environment = _environment()

    def overview(self, asked: Asked) -> str:
        """Returns the page of all runs: how far they are, and what their tests say."""
        every = list(self.runs.every().values())
        start, pages = _span(asked.page, len(every), RUNS_A_PAGE)
        states = [run.state() for run in every[start : start + RUNS_A_PAGE]]
        chosen = {run.name for run in self.runs.chosen(asked.run)}
        return self._rendered("runs.html", asked, states, title="Runs", chosen=chosen, pages=pages, start=start)

    def answers(self, asked: Asked) -> str:
        """Returns a page of answers, each with the clean picture beside the one that was shown."""
        states, browser, cells = self._opened(asked)[1:]
        found = browser.answers(asked.wanted, asked.sort, self._judged(asked, states, cells))
        start, pages = _span(asked.page, len(found), ANSWERS_A_PAGE)
        people = contenders(cells)
        cards = [
            self._card(asked, browser, key, start + number, people)
            for number, key in enumerate(found[start : start + ANSWERS_A_PAGE])
        ]
        return self._rendered(
            "answers.html",
            asked,
            states,
            title="Answers",
            cards=cards,
            total=len(found),
            start=start,
            pages=pages,
            several=len(people) > 1,
            **self._choices(asked, browser, cells, people),
        )

    def samples(self, asked: Asked) -> str:
        """Returns a page of samples, each with what became of it under every setting."""
        states, browser, cells = self._opened(asked)[1:]
        found = browser.samples(asked.wanted, asked.sort, self._judged(asked, states, cells))
        start, pages = _span(asked.page, len(found), SAMPLES_A_PAGE)
        people = contenders(cells)
        rows = []
        for number, one in enumerate(found[start : start + SAMPLES_A_PAGE]):
            marks = browser.marks(one.dataset, one.id)
            sample = _first_seen(browser, marks, one.id)
            worst = next(
                (mark.cell.setting for mark in marks if mark.flip == "harmful" and mark.cell.setting != NO_IMAGE_NAME), CLEAN_NAME
            )
            rows.append(
                {
                    "one": one,
                    "sample": sample,
                    "question": words_of(sample.question) if sample else "",
                    "url": asked.address("/sample", data=one.dataset, id=one.id, under=worst, at=start + number, among="samples"),
                    "picture": asked.address("/picture", data=one.dataset, id=one.id, under=CLEAN_NAME, number=_changed(sample)),
                    "strips": _dots(asked, one, start + number, marks, people),
                }
            )
        return self._rendered(
            "samples.html",
            asked,
            states,
            title="Samples",
            rows=rows,
            total=len(found),
            start=start,
            pages=pages,
            several=len(people) > 1,
            **self._choices(asked, browser, cells, people),
        )

    def sample(self, asked: Asked) -> str:
        """Returns the page of one sample under one setting: pictures, answers side by side, and all settings as a strip.

        Raises:
            UnknownName: no run asked about it.
        """
        runs, states, browser, cells = self._opened(asked)
        marks = browser.marks(asked.data, asked.id)
        if not marks:
            raise UnknownName(
                "sample", asked.id, (), where=f"dataset {asked.data!r}", more="No run that is shown here asked about it"
            )
        under = asked.under or CLEAN_NAME
        people = [who for who in contenders(cells) if any(_is_of(mark.cell, who) for mark in marks)]
        seen = {who: browser.find(who.run, who.model, asked.data, asked.id, under) for who in people}
        sample = next((one.sample for one in seen.values() if one), None) or _first_seen(browser, marks, asked.id)
        before, after = self._around(asked, browser, states, cells)
        return self._rendered(
            "sample.html",
            asked,
            states,
            title=f"{asked.id} under {under}",
            sample=sample,
            under=under,
            question=words_of(sample.question) if sample else "",
            options={letter: words_of(text) for letter, text in sample.options.items()} if sample else {},
            target=_target(sample),
            boards=[_board(who, one) for who, one in seen.items()],
            galleries=_galleries(runs, asked, under, [who.run for who, one in seen.items() if one], seen),
            strip=_strip(asked, marks, people, _changed(sample)),
            before=before,
            after=after,
            back=asked.address(f"/{asked.among}", data="", id="", under="", at=-1, among="answers", page=_page_of(asked)),
            verdicts=_verdicts(states, people, asked.data, under),
            several=len(people) > 1,
        )

    def picture(self, asked: Asked, *, small: bool) -> tuple[bytes, str]:
        """Returns a picture of a sample and its media type.

        Raises:
            VlmRobustError: there is none; the message says why.
        """
        problems: list[VlmRobustError] = []
        for run in self.runs.chosen(asked.run):
            try:
                return run.pictures.picture(asked.data, asked.id, asked.under or CLEAN_NAME, asked.number, small=small)
            except VlmRobustError as error:
                problems.append(error)
            if small and (stored := run.thumbnail(asked.data, asked.id, asked.under or CLEAN_NAME)):
                return stored, "image/webp"
        raise problems[0] if problems else StoreError("there is no run")

    def live(self, asked: Asked) -> dict[str, Any]:
        """Returns how far the chosen runs are, as JSON that a page shows as text."""
        return {"runs": [self._said(run.state(), asked) for run in self.runs.chosen(asked.run)]}

    def problem(self, text: str, asked: Asked | None = None) -> str:
        """Returns the page that says what is wrong."""
        return self._rendered("problem.html", asked or Asked(), (), title="Not shown", problem=text)

    # Parts of them.

    def _rendered(self, template: str, asked: Asked, states: Sequence[RunState], **content: Any) -> str:
        shown = [self._said(state, asked) for state in states]
        return self._environment.get_template(template).render(asked=asked, live=shown, **content)

    def _said(self, state: RunState, asked: Asked) -> dict[str, Any]:
        mark = DECISIONS[state.decision] if state.decision else None
        newest = [record for record in state.records if record.is_gated][-NEWEST:][::-1]
        text = str(state.decision) if state.decision else "no decision yet"
        if not state.decision and state.quiet > _SILENT:
            text = f"no decision; nothing was written for {state.quiet / 60:.0f} minutes, so it may have been killed"
        return {
            "name": printable(state.name, _LONGEST_VALUE),
            "text": text,
            "css": mark.css if mark else "measured",
            "sign": mark.sign if mark else "…",
            "done": state.done,
            "selected": state.selected,
            "going": state.decision is None,
            "version": state.version,
            "problem": state.problem,
            "about": {name: printable(value, _LONGEST_VALUE) for name, value in state.about.items()},
            "tally": [
                {
                    "name": str(outcome),
                    "n": n,
                    "sign": MARKS[outcome].sign,
                    "css": MARKS[outcome].css,
                    "url": _url(asked.address("/answers", run=(state.name,), verdict=str(outcome))),
                }
                for outcome, n in state.tally
            ],
            "newest": [
                {
                    "id": printable(record.id, _LONGEST_VALUE),
                    "name": str(record.outcome),
                    "sign": MARKS[record.outcome].sign,
                    "css": MARKS[record.outcome].css,
                    "url": self._answers_of(state, record),
                }
                for record in newest
            ],
        }

    def _answers_of(self, state: RunState, record: Record) -> str:
        """Returns the address of the answers that the verdict of a cell rests on; empty for other tests."""
        if record.test != "cell":
            return ""
        asked = Asked(run=(state.name,), model=record.model, dataset=record.dataset, setting=record.setting)
        return _url(asked.address("/answers"))

    def _opened(self, asked: Asked) -> tuple[list[ShownRun], list[RunState], Browser, list[BrowsedCell]]:
        runs = self.runs.chosen(asked.run)
        if not runs:
            raise StoreError("there is no run here yet. pytest --vlm=NAME makes one; this page finds it when it is loaded again")
        browser = self.runs.browser(runs)
        return runs, [run.state() for run in runs], browser, browser.cells()

    def _judged(self, asked: Asked, states: Sequence[RunState], cells: Sequence[BrowsedCell]) -> set[tuple[str, int]] | None:
        return cells_with(states, asked.verdict, cells) if asked.verdict else None

    def _choices(
        self, asked: Asked, browser: Browser, cells: Sequence[BrowsedCell], people: Sequence[Contender]
    ) -> dict[str, Any]:
        settings = sorted({cell.setting for cell in cells}, key=setting_order)
        of_levels = Counter(setting.partition(":")[0] for setting in settings if ":" in setting)
        names = [name for name, count in of_levels.items() if count > 1]
        return {
            "models": list(dict.fromkeys(cell.model for cell in cells)),
            "datasets": list(dict.fromkeys(cell.dataset for cell in cells)),
            "settings": settings,
            "names": names,
            "categories": browser.categories(asked.dataset),
            "verdicts": [str(outcome) for outcome in WORST_FIRST],
            "comparable": len(people) > 1,
        }

    def _card(self, asked: Asked, browser: Browser, key: AnswerKey, at: int, people: Sequence[Contender]) -> dict[str, Any]:
        try:
            seen = browser.read(key)
        except VlmRobustError as error:
            return {"problem": str(error)}
        cell, sample = seen.cell, seen.sample
        named = {"data": cell.dataset, "id": sample.id}
        who = next(who for who in people if _is_of(cell, who))
        best = _best(seen.answers)
        return {
            "seen": seen,
            "problem": "",
            "who": who.name,
            "question": words_of(sample.question),
            "target": _target(sample),
            "read": _read(best),
            "before": _read(seen.clean) if seen.clean else "",
            "sure": _confidence(best),
            "url": asked.address("/sample", **named, under=cell.setting, at=at, among="answers"),
            "clean": asked.address("/picture", **named, run=(cell.run,), under=CLEAN_NAME, number=_changed(sample)),
            "shown": asked.address("/picture", **named, run=(cell.run,), under=cell.setting, number=_changed(sample)),
            "apart": cell.setting not in (CLEAN_NAME, NO_IMAGE_NAME),
            "pictured": bool(sample.images),
        }

    def _around(
        self, asked: Asked, browser: Browser, states: Sequence[RunState], cells: Sequence[BrowsedCell]
    ) -> tuple[Markup | None, Markup | None]:
        """Returns the addresses of what stands before and after, among what was looked for."""
        if asked.at < 0:
            return None, None
        judged = self._judged(asked, states, cells)
        if asked.among == "samples":
            listed = browser.samples(asked.wanted, asked.sort, judged)
            return self._beside(asked, len(listed), lambda at: {"data": listed[at].dataset, "id": listed[at].id})
        found = browser.answers(asked.wanted, asked.sort, judged)

        def named(at: int) -> dict[str, Any]:
            seen = browser.read(found[at])
            return {"data": seen.cell.dataset, "id": seen.sample.id, "under": seen.cell.setting}

        return self._beside(asked, len(found), named)

    def _beside(self, asked: Asked, count: int, named: Callable[[int], Mapping[str, Any]]) -> tuple[Markup | None, Markup | None]:
        before, after = asked.at - 1, asked.at + 1
        return (
            asked.address("/sample", **named(before), at=before) if 0 <= before < count else None,
            asked.address("/sample", **named(after), at=after) if after < count else None,
        )


def contenders(cells: Iterable[BrowsedCell]) -> list[Contender]:
    """Returns the models of all runs; a name that two runs have is said with its run."""
    pairs = list(dict.fromkeys((cell.run, cell.model) for cell in cells))
    runs = {run for run, _ in pairs}
    return [Contender(run, model, model if len(runs) == 1 else f"{model} in {run}") for run, model in pairs]


def setting_order(setting: str) -> tuple[int, str, float, str]:
    """Returns what settings are sorted by: without perturbation first, then by name, and from low to high.

    >>> sorted(["fog:high", "no_image", "resolution:96", "fog:low", "clean", "resolution:448"], key=setting_order)
    ['clean', 'no_image', 'fog:low', 'fog:high', 'resolution:96', 'resolution:448']
    """
    name, _, level = setting.partition(":")
    rank = LEVELS.index(level) if level in LEVELS else float(level) if level.isdecimal() else 0.0
    return [CLEAN_NAME, NO_IMAGE_NAME, setting].index(setting), name, rank, level


def words_of(text: str) -> str:
    """Returns a text of a sample with words where it shows a picture."""
    return text.replace(IMAGE_MARK, "[picture]")


def _is_of(cell: BrowsedCell, who: Contender) -> bool:
    return (cell.run, cell.model) == (who.run, who.model)


def _url(address: Markup) -> str:
    return address.unescape()


def _span(page: int, total: int, size: int) -> tuple[int, int]:
    """Returns where a page begins, and how many there are: a page beyond the last one is the last one."""
    pages = max(1, math.ceil(total / size))
    return (min(max(page, 1), pages) - 1) * size, pages


def _page_of(asked: Asked) -> int:
    return max(asked.at, 0) // (SAMPLES_A_PAGE if asked.among == "samples" else ANSWERS_A_PAGE) + 1


def _target(sample: Sample | None) -> str:
    if sample is None:
        return ""
    if sample.localisation is not None:
        boxes = sample.localisation.boxes.items()
        return "; ".join(f"{name} ({', '.join(f'{edge:.0f}' for edge in box)})" for name, box in boxes)
    return sample.target if isinstance(sample.target, str) else " | ".join(sample.target)


def _changed(sample: Sample | None) -> int:
    """Returns which picture stands for a sample: the first one that settings change."""
    return next(iter(sample.perturbed or (0,)), 0) if sample else 0


def _first_seen(browser: Browser, marks: Sequence[Scored], sample: str) -> Sample | None:
    for mark in marks:
        cell = mark.cell
        if seen := browser.find(cell.run, cell.model, cell.dataset, sample, cell.setting):
            return seen.sample
    return None


def _best(answers: Sequence[Answer]) -> Answer:
    """Returns the answer that the score of the sample is: of several views the best one's."""
    return max(answers, key=lambda answer: -1.0 if math.isnan(answer.score.value) else answer.score.value)


def _read(answer: Answer) -> str:
    return answer.score.answer or answer.prediction.text or answer.prediction.error


def _confidence(answer: Answer) -> float | None:
    return max(probabilities(list(answer.prediction.logprobs.values())), default=None)


# The page of a sample.


def _board(who: Contender, seen: Seen | None) -> dict[str, Any]:
    """Returns what a model answered, clean and under the setting, column beside column."""
    if seen is None:
        return {"who": who, "seen": None}
    is_clean = seen.cell.setting == CLEAN_NAME
    columns = [] if is_clean or seen.clean is None else [(CLEAN_NAME, seen.clean)]
    own = (
        [(seen.cell.setting, seen.answers[0])]
        if len(seen.answers) == 1
        else [
            (_view_name(number, len(seen.answers)), answer)
            for number, answer in enumerate(seen.answers)
            if answer.score.state != "unasked"
        ]
    )
    columns += own
    letters = list(dict.fromkeys(letter for _, answer in columns for letter in answer.prediction.logprobs))
    return {
        "who": who,
        "seen": seen,
        "columns": [_column(name, answer) for name, answer in columns],
        "letters": [
            (letter, seen.sample.options.get(letter, ""), [_bar(answer, letter) for _, answer in columns]) for letter in letters
        ]
        if len(columns) <= 2
        else [],
    }


def _view_name(number: int, views: int) -> str:
    side = math.isqrt(views)
    return f"patch {number // side + 1},{number % side + 1}" if side * side == views else f"view {number + 1}"


def _column(name: str, answer: Answer) -> dict[str, Any]:
    score = answer.score
    state = ("right" if score.value >= 0.5 else "wrong") if score.state == "scored" else score.state
    details = {key: str(value) for key, value in answer.prediction.details.items()}
    return {"name": name, "answer": answer, "mark": STATE_MARKS.get(state, STATE_MARKS["error"]), "details": details}


def _bar(answer: Answer, letter: str) -> dict[str, Any]:
    logprobs = answer.prediction.logprobs
    if letter not in logprobs:
        return {"known": False}
    shares = dict(zip(logprobs, probabilities(list(logprobs.values())), strict=False))
    share = shares.get(letter, math.nan)
    return {
        "known": True,
        "logprob": float(logprobs[letter]),
        "share": share,
        "width": 0 if math.isnan(share) else round(100 * share, 1),
    }


def _galleries(
    runs: Sequence[ShownRun], asked: Asked, under: str, answered: Sequence[str], seen: Mapping[Contender, Seen | None]
) -> list[dict[str, Any]]:
    """Returns the pictures side by side: clean, then as shown, apart for runs whose models saw other pixels."""
    found: list[dict[str, Any]] = []
    for setting in dict.fromkeys((CLEAN_NAME, under)):
        known: dict[tuple[str, ...], dict[str, Any]] = {}
        for run in runs:
            if answered and run.name not in answered:
                continue
            one = _gallery(run.pictures, asked, run.name, setting, seen)
            same = known.setdefault(one["digests"], one)
            if same is not one:
                same["runs"].append(run.name)
        found += known.values()
    return found


def _gallery(
    pictures: PictureSource, asked: Asked, run: str, setting: str, seen: Mapping[Contender, Seen | None]
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "setting": setting,
        "runs": [run],
        "digests": (),
        "pictures": [],
        "check": "",
        "problem": "",
        "side": 0,
    }
    if setting == NO_IMAGE_NAME:
        return {**content, "problem": "No picture is shown under this setting."}
    try:
        shown = pictures.shown(asked.data, asked.id, setting)
    except VlmRobustError as error:
        return {**content, "problem": str(error), "small": asked.address("/picture", run=(run,), under=setting, number=0)}
    views = [one for who, one in seen.items() if one and who.run == run and one.cell.setting == setting]
    right = [answer.score.value >= 0.5 for answer in views[0].answers] if len(views) == 1 and shown.views > 1 else []
    each = len(shown.names) or 1
    side = math.isqrt(shown.views) if shown.views > 1 else 0
    content |= {"digests": shown.digests, "check": shown.check, "side": side}
    content["pictures"] = [
        {
            "url": asked.address("/picture", run=(run,), under=setting, number=number),
            "name": shown.names[number % each] or (_view_name(number // each, shown.views) if side else ""),
            "frame": ("right" if right[number // each] else "wrong") if number // each < len(right) else "",
        }
        for number in range(len(shown.digests))
    ]
    return content


def _strip(asked: Asked, marks: Sequence[Scored], people: Sequence[Contender], number: int) -> dict[str, list[dict[str, Any]]]:
    """Returns all settings, by perturbation, each with the score of every model and one of its pictures."""
    by_setting: dict[str, dict[tuple[str, str], Scored]] = {}
    for mark in marks:
        by_setting.setdefault(mark.cell.setting, {})[mark.cell.run, mark.cell.model] = mark
    groups: dict[str, list[dict[str, Any]]] = {}
    for setting in sorted(by_setting, key=setting_order):
        frame = {
            "setting": setting,
            "signs": [(who.name, by_setting[setting].get((who.run, who.model))) for who in people],
            "url": asked.address("/sample", under=setting),
            "picture": asked.address("/picture", under=setting, number=number),
        }
        groups.setdefault(setting.partition(":")[0], []).append(frame)
    return groups


def _verdicts(states: Sequence[RunState], people: Sequence[Contender], dataset: str, setting: str) -> dict[Contender, Any]:
    """Returns the record of the test that each model's answer belongs to."""
    by_name = {state.name: state for state in states}
    return {
        who: record
        for who in people
        for record in by_name[who.run].records
        if record.test == "cell" and (record.model, record.dataset, record.setting) == (who.model, dataset, setting)
    }


# How they are written.


@cache
def stylesheet() -> str:
    """Returns the style of the report, and what the viewer has beside it."""
    return str(asset("style.css")) + files(__package__).joinpath("view.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Returns what every page of the report does, and what the viewer does beside it."""
    return str(asset("common.js")) + files(__package__).joinpath("view.js").read_text(encoding="utf-8")


def _environment() -> Environment:
    environment = templates()
    environment.loader = ChoiceLoader([PackageLoader(__package__), PackageLoader("pytest_vlmrobust.reporting.html")])
    environment.filters |= {"whole": _whole}
    environment.globals |= {
        "states": STATE_MARKS,
        "flips": FLIP_WORDS,
        "sorts": SORT_WORDS,
        "decisions": DECISIONS,
        "mark_class": _mark_class,
        "a_page": {"/": RUNS_A_PAGE, "/answers": ANSWERS_A_PAGE, "/samples": SAMPLES_A_PAGE},
    }
    return environment


def _dots(
    asked: Asked, one: FoundSample, at: int, marks: Sequence[Scored], people: Sequence[Contender]
) -> list[tuple[Contender, list[tuple[str, Scored | None, Markup]]]]:
    """Returns, for each model, its answers under all settings: the settings of all models stand below each other."""
    settings = sorted({mark.cell.setting for mark in marks}, key=setting_order)
    urls = {
        setting: asked.address("/sample", data=one.dataset, id=one.id, under=setting, at=at, among="samples")
        for setting in settings
    }
    found = []
    for who in people:
        own = {mark.cell.setting: mark for mark in marks if _is_of(mark.cell, who)}
        if own:
            found.append((who, [(setting, own.get(setting), urls[setting]) for setting in settings]))
    return found


def _mark_class(mark: Scored) -> str:
    """Returns how an answer is drawn in a strip: a flip where a picture was shown, else what it is."""
    flipped = mark.flip == "harmful" and mark.state in ("right", "wrong") and mark.cell.setting != NO_IMAGE_NAME
    return "harmful" if flipped else mark.state


def _whole(text: str) -> Markup:
    """Returns a long text as a page shows it: as others are, but cut later."""
    return escape(printable(text, _LONGEST_ANSWER, kept="\n\t"))
