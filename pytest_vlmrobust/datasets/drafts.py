"""From the rows of any file format to samples: the checks that do not depend on the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_vlmrobust.core.printing import without_halves
from pytest_vlmrobust.core.sample import ImageSource, Sample

from .files import Place, Problems

TASKS = ("choice", "yes_no", "open")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
YES_NO = {"yes", "no"}


@dataclass(frozen=True, slots=True)
class Draft:
    """One row as it was written, before anything is known to be right.

    ``answer`` holds several texts where the row lists several accepted answers. ``task`` is empty where the row does not
    say. ``shown`` replaces the options in the prompt, where another tool's reading was asked for.
    """

    place: Place
    id: str
    images: tuple[ImageSource, ...]
    question: str
    answer: str | tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    category: str = ""
    group: str = ""
    hint: str = ""
    task: str = ""
    changed_by: frozenset[str] = frozenset()
    shown: Mapping[str, str] | None = None
    scorer: str = ""
    instruction: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)


def finish(drafts: Sequence[Draft], problems: Problems, id_column: str) -> tuple[Sample, ...]:
    """Returns one sample per draft, having noted every problem.

    A row with options is a choice. Rows without options ask yes or no when every answer among them is Yes or No (in any
    case), and are open otherwise.

    Raises:
        DatasetError: there are problems, these ones or any that were noted before.
    """
    _note_unfit_ids(drafts, problems, id_column)
    without = [draft for draft in drafts if not draft.options and not draft.task]
    default = "yes_no" if all(_is_yes_no(draft.answer) for draft in without) else "open"
    samples = tuple(_sample(draft, draft.task or ("choice" if draft.options else default), problems) for draft in drafts)
    problems.raise_any()
    return samples


def _note_unfit_ids(drafts: Sequence[Draft], problems: Problems, id_column: str) -> None:
    first: dict[str, int] = {}
    for draft in drafts:
        if not draft.id:
            problems.add(draft.place, id_column, "", "a value: predictions are kept under it")
        elif without_halves(draft.id) != draft.id:
            problems.add(draft.place, id_column, draft.id, "text without half of a surrogate pair, which no file can hold")
        elif draft.id in first:
            problems.add(draft.place, id_column, draft.id, f"a value of its own (line {first[draft.id]} has it too)")
        else:
            first[draft.id] = draft.place.line


def _sample(draft: Draft, task: str, problems: Problems) -> Sample:
    if not draft.question.strip():
        problems.add(draft.place, "question", draft.question, "the text of a question")
    _check_options(draft, task, problems)
    return Sample(
        id=draft.id,
        images=draft.images,
        question=draft.question,
        target=_target(draft, task, problems),
        task=task,
        options=dict(draft.options if draft.shown is None else draft.shown),
        category=draft.category,
        group=draft.group,
        hint=draft.hint,
        changed_by=draft.changed_by,
        scorer=draft.scorer,
        instruction=draft.instruction,
        keys=draft.keys,
    )


def _check_options(draft: Draft, task: str, problems: Problems) -> None:
    if task == "choice" and len(draft.options) < 2:
        problems.add(draft.place, "options", dict(draft.options), f"two options or more{'' if draft.task else ', or none'}")
    if task != "choice" and draft.options:
        problems.add(draft.place, "options", dict(draft.options), f"none, because the task is {task!r}")
    if draft.options and draft.shown is not None and not draft.shown:
        problems.add(draft.place, "options", dict(draft.options), "one option at least that VLMEvalKit does not drop")


def _target(draft: Draft, task: str, problems: Problems) -> str | tuple[str, ...]:
    answer = draft.answer.strip() if isinstance(draft.answer, str) else draft.answer
    if task == "choice" and answer not in draft.options:
        problems.add(draft.place, "answer", answer, f"one of {', '.join(draft.options)}")
    elif task == "yes_no" and not _is_yes_no(answer):
        problems.add(draft.place, "answer", answer, "Yes or No")
    elif not all(text.strip() for text in ([answer] if isinstance(answer, str) else answer)):
        problems.add(draft.place, "answer", answer, "an answer, or a list of accepted answers: without one nothing can be scored")
    return answer.lower() if task == "yes_no" and isinstance(answer, str) else answer


def _is_yes_no(answer: str | tuple[str, ...]) -> bool:
    return isinstance(answer, str) and answer.strip().lower() in YES_NO
