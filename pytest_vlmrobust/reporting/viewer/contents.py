"""The content of viewer pages: models side by side, strips of settings, and images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.reporting.html.words import Mark
from pytest_vlmrobust.store.browsing import Scored, Seen
from pytest_vlmrobust.store.questions import Answer
from pytest_vlmrobust.store.searching import RIGHT, BrowsedCell, MatchingSample, probabilities

from .address import Address
from .runs import RunState, ShownRun

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.after.pictures import RunPictures

STATE_MARKS = {
    "right": Mark("✓", "pass", "right"),
    "wrong": Mark("✕", "fail", "wrong"),
    "unparsed": Mark("?", "open", "unreadable, counts as wrong"),
    "error": Mark("!", "error", "the inference failed: no score"),
}
FLIP_WORDS = {"harmful": "scores less than with the clean image", "helpful": "scores more than with the clean image"}
SORT_WORDS = {"worst": "worst first", "surest": "wrong and surest first", "data": "as in the data"}


# Models side by side.


@dataclass(frozen=True, slots=True)
class Contender:
    """A model in one of the displayed runs."""

    run: str
    model: str
    name: str
    """Its unique display name."""


def contenders(cells: Iterable[BrowsedCell]) -> list[Contender]:
    """Returns the models of all runs; a name in two runs is shown with its run."""
    pairs = list(dict.fromkeys((cell.run, cell.model) for cell in cells))
    runs = {run for run, _ in pairs}
    return [Contender(run, model, model if len(runs) == 1 else f"{model} in {run}") for run, model in pairs]


def setting_order(setting: str) -> tuple[int, str, float, str]:
    """Returns the sort key of a setting: without perturbation first, then by name and level.

    >>> sorted(["fog:high", "no_image", "resolution:96", "fog:low", "clean", "resolution:448"], key=setting_order)
    ['clean', 'no_image', 'fog:low', 'fog:high', 'resolution:96', 'resolution:448']
    """
    name, _, level = setting.partition(":")
    rank = LEVELS.index(level) if level in LEVELS else float(level) if level.isdecimal() else 0.0
    return [CLEAN_NAME, NO_IMAGE_NAME, setting].index(setting), name, rank, level


def words_of(text: str) -> str:
    """Returns a text of a sample with words in place of images."""
    return text.replace(IMAGE_MARK, "[picture]")


def is_of(cell: BrowsedCell, who: Contender) -> bool:
    """Whether a cell belongs to this model in this run."""
    return (cell.run, cell.model) == (who.run, who.model)


# Questions and answers.


def target_of(sample: Sample | None) -> str:
    """Returns the target of a sample; several accepted answers are separated by bars, boxes have labels."""
    if sample is None:
        return ""
    if sample.localisation is not None:
        boxes = sample.localisation.boxes.items()
        return "; ".join(f"{name} ({', '.join(f'{edge:.0f}' for edge in box)})" for name, box in boxes)
    return " | ".join(sample.targets)


def changed_picture(sample: Sample | None) -> int:
    """Returns the index of a sample's main image: the first that settings change."""
    return next(iter(sample.perturbed or (0,)), 0) if sample else 0


def best_answer(answers: Sequence[Answer]) -> Answer:
    """Returns the answer that counts for the sample: that of its best view."""
    return max(answers, key=lambda answer: -1.0 if math.isnan(answer.score.value) else answer.score.value)


def read_as(answer: Answer) -> str:
    """Returns the answer as read, else the model's text, else why the inference failed."""
    return answer.score.answer or answer.prediction.text or answer.prediction.error


def with_option(answer: str, sample: Sample) -> str:
    """Returns letters, several between bars, each with the text of its option; any other answer as it is."""
    return " | ".join(f"{part} {sample.options[part]}" if part in sample.options else part for part in answer.split(" | "))


def confidence(answer: Answer) -> float | None:
    """Returns the probability of the most probable letter relative to all letters; ``None`` if unknown."""
    return max(probabilities(list(answer.prediction.logprobs.values())), default=None)


def board(who: Contender, seen: Seen | None) -> dict[str, Any]:
    """Returns a model's clean answer and its answer under the setting, in columns."""
    if seen is None:
        return {"who": who, "seen": None}
    is_clean = seen.cell.setting == CLEAN_NAME
    columns = [] if is_clean or seen.clean is None else [(CLEAN_NAME, seen.clean)]
    under_setting = (
        [(seen.cell.setting, seen.answers[0])]
        if len(seen.answers) == 1
        else [
            (_view_name(number, len(seen.answers)), answer)
            for number, answer in enumerate(seen.answers)
            if answer.score.state != "unasked"
        ]
    )
    columns += under_setting
    samples = [seen.original if name == CLEAN_NAME else seen.sample for name, _ in columns]
    return {
        "who": who,
        "seen": seen,
        "columns": [_column(name, answer, sample) for (name, answer), sample in zip(columns, samples, strict=True)],
        "letters": _letters(seen.sample, [(answer, sample) for (_, answer), sample in zip(columns, samples, strict=True)])
        if len(columns) <= 2
        else [],
    }


def _letters(shown: Sample, columns: Sequence[tuple[Answer, Sample]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Returns the options by their letters in ``shown``; an answer to another order of them has its own letter of each."""
    mappings = [{} if sample is shown else shown.original_letters for _, sample in columns]
    back = [{old: new for new, old in letters.items()} for letters in mappings]
    letters = [names.get(key, key) for names, (reply, _) in zip(back, columns, strict=True) for key in reply.prediction.logprobs]
    return [
        (
            letter,
            shown.options.get(letter, ""),
            [_bar(*column, names.get(letter, letter), letter) for names, column in zip(mappings, columns, strict=True)],
        )
        for letter in dict.fromkeys(letters)
    ]


def _view_name(number: int, views: int) -> str:
    side = math.isqrt(views)
    return f"patch {number // side + 1},{number % side + 1}" if side * side == views else f"view {number + 1}"


def _column(name: str, answer: Answer, sample: Sample) -> dict[str, Any]:
    """Returns what one answer shows; ``sample`` as it was asked."""
    score = answer.score
    state = ("right" if score.value >= RIGHT else "wrong") if score.state == "scored" else score.state
    details = {key: str(value) for key, value in answer.prediction.details.items()}
    read = with_option(score.answer, sample) if score.answer else score.answer
    return {
        "name": name,
        "answer": answer,
        "read": read,
        "mark": STATE_MARKS.get(state, STATE_MARKS["error"]),
        "details": details,
    }


def _bar(answer: Answer, sample: Sample, letter: str, shown: str) -> dict[str, Any]:
    logprobs = answer.prediction.logprobs
    targets = [sample.target] if isinstance(sample.target, str) else sample.target
    if letter not in logprobs:
        return {"known": False}
    shares = dict(zip(logprobs, probabilities(list(logprobs.values())), strict=False))
    share = shares.get(letter, math.nan)
    return {
        "known": True,
        "letter": letter if letter != shown else "",
        "right": letter.lower() in {target.lower() for target in targets},
        "logprob": float(logprobs[letter]),
        "share": share,
        "width": 0 if math.isnan(share) else round(100 * share, 1),
    }


def galleries(
    runs: Sequence[ShownRun], address: Address, under: str, answered: Sequence[str], seen: Mapping[Contender, Seen | None]
) -> list[dict[str, Any]]:
    """Returns the images side by side: clean, then as shown, apart for runs whose models saw other pixels."""
    result: list[dict[str, Any]] = []
    for setting in dict.fromkeys((CLEAN_NAME, under)):
        by_digests: dict[tuple[str, ...], dict[str, Any]] = {}
        for run in runs:
            if answered and run.name not in answered:
                continue
            gallery = _gallery(run.pictures, address, run.name, setting, seen)
            same = by_digests.setdefault(gallery["digests"], gallery)
            if same is not gallery:
                same["runs"].append(run.name)
        result += by_digests.values()
    return result


def _gallery(
    pictures: RunPictures, address: Address, run: str, setting: str, seen: Mapping[Contender, Seen | None]
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
        return {**content, "problem": "No image is shown under this setting."}
    try:
        shown = pictures.shown(address.data, address.id, setting)
    except VlmRobustError as error:
        return {**content, "problem": str(error), "small": address.link("/picture", run=(run,), under=setting, number=0)}
    views = [view for who, view in seen.items() if view and who.run == run and view.cell.setting == setting]
    right = [answer.score.value >= RIGHT for answer in views[0].answers] if len(views) == 1 and shown.views > 1 else []
    per_view = len(shown.names) or 1
    side = math.isqrt(shown.views) if shown.views > 1 else 0
    content |= {"digests": shown.digests, "check": shown.check, "side": side}
    content["pictures"] = [
        {
            "url": address.link("/picture", run=(run,), under=setting, number=number),
            "name": shown.names[number % per_view] or (_view_name(number // per_view, shown.views) if side else ""),
            "frame": ("right" if right[number // per_view] else "wrong") if number // per_view < len(right) else "",
        }
        for number in range(len(shown.digests))
    ]
    return content


def strip(address: Address, marks: Sequence[Scored], people: Sequence[Contender], number: int) -> dict[str, list[dict[str, Any]]]:
    """Returns all settings by perturbation, each with every model's score and an image."""
    by_setting: dict[str, dict[tuple[str, str], Scored]] = {}
    for mark in marks:
        by_setting.setdefault(mark.cell.setting, {})[mark.cell.run, mark.cell.model] = mark
    groups: dict[str, list[dict[str, Any]]] = {}
    for setting in sorted(by_setting, key=setting_order):
        frame = {
            "setting": setting,
            "signs": [(who.name, by_setting[setting].get((who.run, who.model))) for who in people],
            "url": address.link("/sample", under=setting),
            "picture": address.link("/picture", under=setting, number=number),
        }
        groups.setdefault(setting.partition(":")[0], []).append(frame)
    return groups


def verdicts_of(states: Sequence[RunState], people: Sequence[Contender], dataset: str, setting: str) -> dict[Contender, Any]:
    """Returns the record of the test that each model's answer belongs to."""
    by_name = {state.name: state for state in states}
    return {
        who: record
        for who in people
        for record in by_name[who.run].view.records
        if record.test == "cell" and (record.model, record.dataset, record.setting) == (who.model, dataset, setting)
    }


def dots(
    address: Address, sample: MatchingSample, at: int, marks: Sequence[Scored], people: Sequence[Contender]
) -> list[tuple[Contender, list[tuple[str, Scored | None, Markup]]]]:
    """Returns each model's answers under all settings, aligned between models."""
    settings = sorted({mark.cell.setting for mark in marks}, key=setting_order)
    urls = {
        setting: address.link("/sample", data=sample.dataset, id=sample.id, under=setting, at=at, among="samples")
        for setting in settings
    }
    rows = []
    for who in people:
        by_setting = {mark.cell.setting: mark for mark in marks if is_of(mark.cell, who)}
        if by_setting:
            rows.append((who, [(setting, by_setting.get(setting), urls[setting]) for setting in settings]))
    return rows


def mark_class(mark: Scored) -> str:
    """Returns the CSS class of an answer in a strip: its flip if an image was shown, else its state."""
    flipped = mark.flip == "harmful" and mark.state in ("right", "wrong") and mark.cell.setting != NO_IMAGE_NAME
    return "harmful" if flipped else mark.state
