"""The pages of the viewer for each address."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup, escape

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import WORST_FIRST
from pytest_vlmrobust.core.errors import StoreError, UnknownName, UsageError, VlmRobustError, did_you_mean
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.reporting.html.page import asset, templates
from pytest_vlmrobust.reporting.html.words import MARKS, decision_mark
from pytest_vlmrobust.store.browsing import Browser, Scored
from pytest_vlmrobust.store.searching import AnswerKey, BrowsedCell, MatchingSample

from .address import LONGEST_VALUE, Address
from .contents import (
    FLIP_WORDS,
    SORT_WORDS,
    STATE_MARKS,
    Contender,
    best_answer,
    board,
    changed_picture,
    confidence,
    contenders,
    dots,
    galleries,
    is_of,
    mark_class,
    read_as,
    setting_order,
    strip,
    target_of,
    verdicts_of,
    with_option,
    words_of,
)
from .runs import NEWEST, Runs, RunState, ShownRun, cells_with

RUNS_A_PAGE = 20
ANSWERS_A_PAGE = 24
SAMPLES_A_PAGE = 25
_LONGEST_ANSWER = 20_000
"""Characters of an answer on the page about its sample: a chain of thought is read as a whole."""
_SILENT = 120.0
"""Seconds without a word after which a run may have been killed."""


class Pages:
    """Makes pages; any number of threads may ask for them."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._environment = _environment()

    def overview(self, address: Address) -> str:
        """Returns the page of all runs with their progress and verdicts."""
        every = list(self.runs.every().values())
        start, pages = _span(address.page, len(every), RUNS_A_PAGE)
        states = [run.state() for run in every[start : start + RUNS_A_PAGE]]
        chosen = {run.name for run in self.runs.chosen(address.run)}
        return self._rendered("runs.html", address, states, title="Runs", chosen=chosen, pages=pages, start=start)

    def answers(self, address: Address) -> str:
        """Returns a page of answers, each with the clean and the shown image."""
        states, browser, cells = self._opened(address)[1:]
        keys = browser.answers(address.criteria, address.sort, self._judged(address, states, cells))
        start, shown = _shown(address, keys, ANSWERS_A_PAGE)
        people = contenders(cells)
        shown["cards"] = [self._card(address, browser, key, at, people) for at, key in enumerate(shown["entries"], start)]
        choices = self._choices(address, browser, cells, people)
        return self._rendered("answers.html", address, states, title="Answers", **shown, **choices)

    def samples(self, address: Address) -> str:
        """Returns a page of samples, each with its result under every setting."""
        states, browser, cells = self._opened(address)[1:]
        samples = browser.samples(address.criteria, address.sort, self._judged(address, states, cells))
        start, shown = _shown(address, samples, SAMPLES_A_PAGE)
        people = contenders(cells)
        shown["rows"] = [self._row(address, browser, sample, at, people) for at, sample in enumerate(shown["entries"], start)]
        choices = self._choices(address, browser, cells, people)
        return self._rendered("samples.html", address, states, title="Samples", **shown, **choices)

    def sample(self, address: Address) -> str:
        """Returns the page of a sample under a setting: images, answers side by side, and all settings as a strip."""
        runs, states, browser, cells = self._opened(address)
        marks = browser.marks(address.data, address.id)
        if not marks:
            datasets = {cell.dataset for cell in cells}
            if address.data not in datasets:
                raise UnknownName(
                    "dataset", address.data, datasets, more="These are the datasets of the runs that are shown here"
                )
            meant = did_you_mean(address.id, browser.names_like(address.data, address.id))
            raise UsageError(
                f"dataset {address.data!r}: unknown sample {address.id!r}.{meant} No run that is shown here asked about it"
            )
        under = address.under or CLEAN_NAME
        people = [who for who in contenders(cells) if any(is_of(mark.cell, who) for mark in marks)]
        seen = {who: browser.find(who.run, who.model, address.data, address.id, under) for who in people}
        sample = next((view.sample for view in seen.values() if view), None) or _first_seen(browser, marks, address.id)
        before, after = self._around(address, browser, states, cells)
        return self._rendered(
            "sample.html",
            address,
            states,
            title=f"{address.id} under {under}",
            sample=sample,
            under=under,
            question=words_of(sample.question) if sample else "",
            options={letter: words_of(text) for letter, text in sample.options.items()} if sample else {},
            target=target_of(sample),
            boards=[board(who, view) for who, view in seen.items()],
            galleries=galleries(runs, address, under, [who.run for who, view in seen.items() if view], seen),
            strip=strip(address, marks, people, changed_picture(sample)),
            before=before,
            after=after,
            back=address.link(f"/{address.among}", data="", id="", under="", at=-1, among="answers", page=_page_of(address)),
            verdicts=verdicts_of(states, people, address.data, under),
            meant=did_you_mean(under, {mark.cell.setting for mark in marks}),
            several=len(people) > 1,
        )

    def picture(self, address: Address, *, small: bool) -> tuple[bytes, str]:
        """Returns an image of a sample and its media type; without one, a VlmRobustError says why."""
        problems: list[VlmRobustError] = []
        for run in self.runs.chosen(address.run):
            try:
                return run.pictures.picture(address.data, address.id, address.under or CLEAN_NAME, address.number, small=small)
            except VlmRobustError as error:
                problems.append(error)
            if small and (stored := run.thumbnail(address.data, address.id, address.under or CLEAN_NAME)):
                return stored, "image/webp"
        raise problems[0] if problems else StoreError("there is no run")

    def live(self, address: Address) -> dict[str, Any]:
        """Returns how far the chosen runs are, as JSON that a page shows as text."""
        return {"runs": [self._said(run.state(), address) for run in self.runs.chosen(address.run)]}

    def problem(self, text: str, address: Address | None = None) -> str:
        """Returns the error page."""
        return self._rendered("problem.html", address or Address(), (), title="Not shown", problem=text)

    # Parts of them.

    def _rendered(self, template: str, address: Address, states: Sequence[RunState], **content: Any) -> str:
        shown = [self._said(state, address) for state in states]
        return self._environment.get_template(template).render(address=address, live=shown, **content)

    def _said(self, state: RunState, address: Address) -> dict[str, Any]:
        newest = state.view.records[-NEWEST:][::-1]
        text = state.view.word_of(state.decision) if state.decision else "no decision yet"
        mark = decision_mark(state.decision, text) if state.decision else None
        if not state.decision and state.quiet > _SILENT:
            text = f"no decision; nothing was written for {state.quiet / 60:.0f} minutes, so it may have been killed"
        return {
            "name": printable(state.name, LONGEST_VALUE),
            "text": text,
            "css": mark.css if mark else "measured",
            "sign": mark.sign if mark else "…",
            "done": len(state.view.records),
            "selected": state.selected,
            "going": state.decision is None,
            "version": state.version,
            "problem": state.problem,
            "about": {name: printable(value, LONGEST_VALUE) for name, value in state.about.items()},
            "tally": [
                {
                    "name": outcome.counted,
                    "n": n,
                    "sign": MARKS[outcome].sign,
                    "css": MARKS[outcome].css,
                    "url": _url(address.link("/answers", run=(state.name,), verdict=str(outcome))),
                }
                for outcome, n in state.view.outcomes
            ],
            "newest": [
                {
                    "id": printable(record.id, LONGEST_VALUE),
                    "name": str(record.outcome),
                    "sign": MARKS[record.outcome].sign,
                    "css": MARKS[record.outcome].css,
                    "url": _url(Address((state.name,), record.model, record.dataset, record.setting).link("/answers"))
                    if record.test == "cell"
                    else "",
                }
                for record in newest
            ],
        }

    def _opened(self, address: Address) -> tuple[list[ShownRun], list[RunState], Browser, list[BrowsedCell]]:
        runs = self.runs.chosen(address.run)
        if not runs:
            raise StoreError("there is no run here yet. pytest --vlm=NAME makes one; this page finds it when it is loaded again")
        browser = self.runs.browser(runs)
        return runs, [run.state() for run in runs], browser, browser.cells()

    def _judged(self, address: Address, states: Sequence[RunState], cells: Sequence[BrowsedCell]) -> set[tuple[str, int]] | None:
        return cells_with(states, address.verdict, cells) if address.verdict else None

    def _choices(
        self, address: Address, browser: Browser, cells: Sequence[BrowsedCell], people: Sequence[Contender]
    ) -> dict[str, Any]:
        settings = sorted({cell.setting for cell in cells}, key=setting_order)
        of_levels = Counter(setting.partition(":")[0] for setting in settings if ":" in setting)
        names = [name for name, count in of_levels.items() if count > 1]
        models = list(dict.fromkeys(cell.model for cell in cells))
        datasets = list(dict.fromkeys(cell.dataset for cell in cells))
        categories = browser.categories(address.dataset)
        values = {"model": models, "dataset": datasets, "setting": [*of_levels, *settings], "category": categories}
        return {
            "models": models,
            "datasets": datasets,
            "settings": settings,
            "names": names,
            "categories": categories,
            "unknown": [
                f"No answer here has the {name} {value!r}.{did_you_mean(value, values[name])}"
                for name, value in address.filters.items()
                if name in values and value not in values[name]
            ],
            "verdicts": [str(outcome) for outcome in WORST_FIRST],
            "several": len(people) > 1,
        }

    def _card(self, address: Address, browser: Browser, key: AnswerKey, at: int, people: Sequence[Contender]) -> dict[str, Any]:
        try:
            seen = browser.read(key)
        except VlmRobustError as error:
            return {"problem": str(error)}
        cell, sample = seen.cell, seen.sample
        named = {"data": cell.dataset, "id": sample.id}
        who = next(who for who in people if is_of(cell, who))
        best = best_answer(seen.answers)
        return {
            "seen": seen,
            "problem": "",
            "who": who.name,
            "question": words_of(sample.question),
            "target": with_option(target_of(sample), sample),
            "read": with_option(read_as(best), sample),
            "before": with_option(read_as(seen.clean), seen.original) if seen.clean else "",
            "sure": confidence(best),
            "url": address.link("/sample", **named, under=cell.setting, at=at, among="answers"),
            "clean": address.link("/picture", **named, run=(cell.run,), under=CLEAN_NAME, number=changed_picture(sample)),
            "shown": address.link("/picture", **named, run=(cell.run,), under=cell.setting, number=changed_picture(sample)),
            "apart": cell.setting not in (CLEAN_NAME, NO_IMAGE_NAME),
            "pictured": bool(sample.images),
        }

    def _row(
        self, address: Address, browser: Browser, entry: MatchingSample, at: int, people: Sequence[Contender]
    ) -> dict[str, Any]:
        marks = browser.marks(entry.dataset, entry.id)
        sample = _first_seen(browser, marks, entry.id)
        harmful = (mark.cell.setting for mark in marks if mark.flip == "harmful" and mark.cell.setting != NO_IMAGE_NAME)
        named = {"data": entry.dataset, "id": entry.id}
        return {
            "entry": entry,
            "sample": sample,
            "question": words_of(sample.question) if sample else "",
            "url": address.link("/sample", **named, under=next(harmful, CLEAN_NAME), at=at, among="samples"),
            "picture": address.link("/picture", **named, under=CLEAN_NAME, number=changed_picture(sample)),
            "strips": dots(address, entry, at, marks, people),
        }

    def _around(
        self, address: Address, browser: Browser, states: Sequence[RunState], cells: Sequence[BrowsedCell]
    ) -> tuple[Markup | None, Markup | None]:
        """Returns the addresses of the previous and next result."""
        if address.at < 0:
            return None, None
        judged = self._judged(address, states, cells)
        if address.among == "samples":
            listed = browser.samples(address.criteria, address.sort, judged)
            return self._beside(address, len(listed), lambda at: {"data": listed[at].dataset, "id": listed[at].id})
        keys = browser.answers(address.criteria, address.sort, judged)

        def named(at: int) -> dict[str, Any]:
            seen = browser.read(keys[at])
            return {"data": seen.cell.dataset, "id": seen.sample.id, "under": seen.cell.setting}

        return self._beside(address, len(keys), named)

    def _beside(
        self, address: Address, count: int, named: Callable[[int], Mapping[str, Any]]
    ) -> tuple[Markup | None, Markup | None]:
        before, after = address.at - 1, address.at + 1
        return (
            address.link("/sample", **named(before), at=before) if 0 <= before < count else None,
            address.link("/sample", **named(after), at=after) if after < count else None,
        )


def _url(address: Markup) -> str:
    return address.unescape()


def _span(page: int, total: int, size: int) -> tuple[int, int]:
    """Returns the start of a page and the number of pages; a page beyond the last becomes the last."""
    pages = max(1, math.ceil(total / size))
    return (min(max(page, 1), pages) - 1) * size, pages


def _shown(address: Address, entries: Sequence[Any], size: int) -> tuple[int, dict[str, Any]]:
    """Returns where the page of a list starts, and what its template needs of the list."""
    start, pages = _span(address.page, len(entries), size)
    return start, {"entries": entries[start : start + size], "total": len(entries), "start": start, "pages": pages}


def _page_of(address: Address) -> int:
    return max(address.at, 0) // (SAMPLES_A_PAGE if address.among == "samples" else ANSWERS_A_PAGE) + 1


def _first_seen(browser: Browser, marks: Sequence[Scored], sample: str) -> Sample | None:
    for mark in marks:
        cell = mark.cell
        if seen := browser.find(cell.run, cell.model, cell.dataset, sample, cell.setting):
            return seen.sample
    return None


# How they are written.


@cache
def stylesheet() -> str:
    """Returns the styles of the report and the viewer."""
    return str(asset("style.css")) + files(__package__).joinpath("view.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Returns the scripts of the report and the viewer."""
    return str(asset("common.js")) + files(__package__).joinpath("view.js").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = templates()
    environment.loader = ChoiceLoader([PackageLoader(__package__), PackageLoader("pytest_vlmrobust.reporting.html")])
    environment.filters |= {"whole": _whole}
    environment.globals |= {
        "states": STATE_MARKS,
        "flips": FLIP_WORDS,
        "sorts": SORT_WORDS,
        "mark_class": mark_class,
        "a_page": {"/": RUNS_A_PAGE, "/answers": ANSWERS_A_PAGE, "/samples": SAMPLES_A_PAGE},
    }
    return environment


def _whole(text: str) -> Markup:
    """Returns a long text as a page shows it: as others are, but cut later."""
    return escape(printable(text, _LONGEST_ANSWER, kept="\n\t"))
