"""A backend that answers by rules: for tests, documentation, and rehearsals of a gate without a model.

    default: A
    rules:                                  # the first rule that matches answers
      - {setting: "fog:*", answer: "I cannot tell"}
      - {sample: "shapes/12", letter: B, logprobs: {A: -2.3, B: -0.1}}
      - {text: "how many", error: "the endpoint is down"}
      - {setting: no_image, right: chance}
      - {setting: "*_blur:*", right: 0.6, luck: 0.1}
      - {right: 0.8, luck: 0.1, confidence: 0.8}

A rule matches everything in the fields that it leaves out. ``docs/reference/models.md`` explains its keys. Rules that
declare a behaviour need samples and targets, which only scripted models get. A hash of the sample decides which answers
are right; a hash of the pixels decides the draws of ``luck``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Request
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.files.document import Entry, read_all, read_document, read_keys

from .contract import AnswerKey, Traits, failed_prediction
from .generation import TEXT_INSTEAD

Script: TypeAlias = Callable[[Request], "str | Prediction"]

_GLOBS = ("dataset", "sample", "setting", "group")
_ANSWERS = ("answer", "letter", "error", "option", "always", "right")
_TASKS = ("choice", "yes_no", "open", "boxes")
_ALWAYS = ("majority", "told")
_CHANCE = "chance"
_GROUP = "group"


class ScriptedBackend:
    """Answers each request by a function; as deterministic as that function."""

    def __init__(self, script: Script, *, version: str, name: str = "scripted") -> None:
        """Takes a function from a request to its answer; change ``version`` when the answers change."""
        self._script = script
        self._version = version
        self._name = name
        self._answers: AnswerKey | None = None
        self.ref: ModelRef | None = None
        self._writes_letters = False

    @classmethod
    def from_file(
        cls, path: str | Path, *, name: str = "scripted", answers: AnswerKey | None = None, answer: str = ""
    ) -> ScriptedBackend:
        """Returns the backend that follows the rules of a YAML or JSON file."""
        path = Path(path)
        rules = _read_rules(path, answers, writes_letters=answer == "text")
        if answer == "letters" and not rules.has_letters:
            raise ModelError(
                f"model {name!r}: choices are to be answered by letters, and no rule of {path} has a 'letter', so that all "
                f"answers would be text. {TEXT_INSTEAD}; or write rules such as {{letter: A, logprobs: {{A: -0.1, B: -2.3}}}}"
            )
        made = cls(rules.answer, version=f"sha256:{file_digest(path)}", name=name)
        made._answers = answers if rules.declares else None
        made._writes_letters = rules.writes_letters and rules.has_letters
        return made

    traits = Traits(mixes_cells=True, answers_alone=True)

    @property
    def name(self) -> str:
        """The model's short name."""
        return self._name

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns the version of the script (the digest of its file, or the caller's) and that of the right answers."""
        answers = {} if self._answers is None else {"answers": self._answers.digest()}
        return {"backend": "scripted", "script": self._version, **answers, **({"answer": "text"} if self._writes_letters else {})}

    def describe(self) -> dict[str, Any]:
        """Returns what the manifest says about this model."""
        return {"name": self._name, "fingerprint": dict(self.fingerprint())}

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """Does nothing: there are no weights."""

    def _answer(self, request: Request) -> Prediction:
        try:
            answer = self._script(request)
        except Exception as error:  # noqa: BLE001 - a failing script counts as a failed prediction of a model
            return failed_prediction(f"{type(error).__name__}: {error}")
        return answer if isinstance(answer, Prediction) else Prediction(text=answer, method="generate")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule, which answers a request that meets all its conditions."""

    where: str
    dataset: str = "*"
    sample: str = "*"
    setting: str = "*"
    group: str = "*"
    task: str = ""
    text: str = ""
    answer: str | None = None
    letter: str | None = None
    error: str | None = None
    option: str | None = None
    always: str = ""
    right: float | str | None = None
    luck: float = 0.0
    confidence: float | None = None
    logprobs: Mapping[str, float] = field(default_factory=dict)

    @property
    def declares(self) -> bool:
        """Whether the rule needs the sample."""
        return bool(self.task or self.always) or self.group != "*" or self.option is not None or self.right is not None

    def matches(self, request: Request, sample: Sample | None) -> bool:
        names = (self.dataset, request.dataset), (self.sample, request.sample_id), (self.setting, request.setting)
        if not all(fnmatchcase(name, glob) for glob, name in names) or re.search(self.text, request.text) is None:
            return False
        if sample is None:
            return True
        fits = self.task in ("", sample.task) and fnmatchcase(sample.keys.get(_GROUP, ""), self.group)
        return fits and (self.option is None or self._chosen(sample) is not None)

    def prediction(self, request: Request, sample: Sample | None, samples: Sequence[Sample]) -> Prediction:
        if self.error is not None:
            return failed_prediction(self.error)
        if self.letter is not None:
            return self._by_letter(self.letter, request)
        text = self._text(request, sample, samples)
        letter = next((choice for choice in request.choices if choice.casefold() == text.casefold()), None)
        if self.confidence is None or letter is None:
            return Prediction(text=text, method="generate")
        return self._by_confidence(letter, self.confidence, request.choices)

    def _by_confidence(self, letter: str, confidence: float, letters: Sequence[str]) -> Prediction:
        rest = (1.0 - confidence) / max(len(letters) - 1, 1)
        if confidence < rest:
            least = f"{1.0 / len(letters):.3g} for {len(letters)} letters"
            return failed_prediction(f"{self.where} has confidence {confidence:g}, expected at least {least}")
        logs = {other: confidence if other == letter else rest for other in letters}
        return Prediction(letter, LETTER_LOGITS, logprobs={other: math.log(max(share, 1e-300)) for other, share in logs.items()})

    def _by_letter(self, letter: str, request: Request) -> Prediction:
        if letter not in request.choices:
            offered = ", ".join(request.choices) or "no letters"
            return failed_prediction(f"{self.where} answers with letter {letter!r}, but the request offers {offered}")
        return Prediction(text=letter, method=LETTER_LOGITS, logprobs=dict(self.logprobs))

    def _text(self, request: Request, sample: Sample | None, samples: Sequence[Sample]) -> str:
        if sample is None or not (self.option or self.always or self.right is not None):
            return self.answer or ""
        if self.option is not None:
            return self._chosen(sample) or ""
        if self.always == "majority":
            return _majority(sample, samples)
        if self.always == "told":
            return _written(sample.localisation.given) if sample.localisation else _wrong(sample)
        share = sample.chance if self.right == _CHANCE else float(self.right or 0.0)
        return _right(sample) if _draw(request, sample, self.luck) < share else _wrong(sample)

    def _chosen(self, sample: Sample) -> str | None:
        """Returns the letter of the first option that matches the rule."""
        return next((letter for letter, text in sample.options.items() if fnmatchcase(text, self.option or "*")), None)


@dataclass(frozen=True, slots=True)
class _Rules:
    path: Path
    rules: tuple[_Rule, ...]
    default: str | None
    key: AnswerKey | None = None
    writes_letters: bool = False
    """Whether a rule with a letter answers with text, like a model without letter probabilities."""
    datasets: dict[str, tuple[Sequence[Sample], dict[str, Sample]]] = field(default_factory=dict)
    """The samples of each dataset, in order and by id."""

    @property
    def has_letters(self) -> bool:
        """Whether any rule answers with a letter of the choices."""
        return any(rule.letter is not None or rule.confidence is not None for rule in self.rules)

    @property
    def declares(self) -> bool:
        """Whether any rule needs the samples."""
        return any(rule.declares for rule in self.rules)

    def answer(self, request: Request) -> str | Prediction:
        samples, by_id = self._of(request.dataset) if self.declares else ((), {})
        sample = by_id[request.sample_id] if self.declares else None
        if sample is not None and self.key is not None:
            sample = self.key.question(sample, request.setting)
        for rule in self.rules:
            if rule.matches(request, sample):
                given = rule.prediction(request, sample, samples)
                return given.text if self.writes_letters and given.method == LETTER_LOGITS else given
        if self.default is None:
            return failed_prediction(f"no rule of {self.path} matches sample {request.sample_id!r}, and it has no default")
        return self.default

    def _of(self, dataset: str) -> tuple[Sequence[Sample], dict[str, Sample]]:
        if self.key is None:
            raise ModelError(f"{self.path} declares a behaviour, which needs the samples that are asked about: run it in a gate")
        if dataset not in self.datasets:
            samples = self.key.samples(dataset)
            self.datasets[dataset] = samples, {sample.id: sample for sample in samples}
        return self.datasets[dataset]


def _draw(request: Request, sample: Sample, luck: float) -> float:
    """Returns a number in [0, 1) from the sample alone, or for a share ``luck`` of samples from this view of it."""
    question = [request.dataset, sample.id]
    if _hashed(["luck", *question]) >= luck:
        return _hashed(question)
    return _hashed([*question, *(hashlib.sha256(image.tobytes()).hexdigest() for image in request.images)])


def _hashed(parts: Sequence[str]) -> float:
    """Returns a uniform number in [0, 1) derived from texts."""
    return int(fingerprint(list(parts))[:13], 16) / 16**13


def _right(sample: Sample) -> str:
    if sample.localisation is not None:
        return _written(sample.localisation.boxes)
    return sample.targets[0]


def _wrong(sample: Sample) -> str:
    """Returns a readable wrong answer; the sample's hash chooses among several."""
    if sample.localisation is not None:
        return _written(dict.fromkeys(sample.localisation.boxes, (0.0, 0.0, 1.0, 1.0)))
    if sample.task == "yes_no":
        return "no" if _right(sample) == "yes" else "yes"
    before = sample.original_letters  # the same option in every order of the options
    others = sorted(
        (letter for letter in sample.options if letter not in sample.targets),
        key=lambda letter: before.get(letter, letter),
    )
    return others[int(_hashed(["wrong", sample.id]) * len(others))] if others else "none of these"


def _majority(sample: Sample, samples: Sequence[Sample]) -> str:
    """Returns the most common right answer to questions of this kind; ties go to the first."""
    counts = Counter(_right(other) for other in samples if other.task == sample.task and other.localisation is None)
    offered = [answer for answer, _ in counts.most_common() if not sample.options or answer in sample.options]
    return offered[0] if offered else _wrong(sample)


def _written(boxes: Mapping[str, Box]) -> str:
    corners = ("x1", "y1", "x2", "y2")
    return json.dumps({name: dict(zip(corners, box, strict=True)) for name, box in boxes.items()})


def _read_rules(path: Path, key: AnswerKey | None, *, writes_letters: bool) -> _Rules:
    expected = "'default', 'rules' or both"
    document = read_document(path, what="scripted answers", error=ModelError, expected=expected)  # JSON is YAML
    given = document.mapping(("default", "rules"))
    if not given:
        document.refuse(f"a mapping with {expected}")
    given = {key: value for key, value in given.items() if not value.is_empty}
    rules = given["rules"].items() if "rules" in given else []
    default = given["default"].text(empty=True) if "default" in given else None
    read = read_all(ModelError, [partial(_read_rule, rule) for rule in rules])
    return _Rules(path, tuple(read), default, key, writes_letters)


def _read_rule(entry: Entry) -> _Rule:
    given = entry.mapping(_READERS)
    answers = [key for key in _ANSWERS if key in given]
    if len(answers) != 1:
        entry.fail(f"has {' and '.join(answers) or 'no answer'}. Expected exactly one of {', '.join(_ANSWERS)}")
    for key in ("luck", "confidence"):
        if key in given and "right" not in given:
            given[key].fail("stands without 'right'. Expected it beside a share that is answered right")
    rule = _Rule(where=f"{entry.where}: {entry.name}", **read_keys(given, _READERS))
    if rule.logprobs and rule.letter is None:
        given["logprobs"].fail("stands without 'letter'. Expected it beside a letter")
    if Prediction(rule.letter or "", LETTER_LOGITS, logprobs=rule.logprobs).contradicts_itself:
        given["letter"].refuse(f"the letter with the highest of logprobs, {max(rule.logprobs, key=rule.logprobs.__getitem__)!r}")
    return rule


def _read_share(entry: Entry) -> float:
    return entry.number("a share in [0, 1]", low=0.0, high=1.0)


def _is_chance(entry: Entry) -> bool:
    return not entry.is_mapping and not entry.is_list and entry.scalar() == _CHANCE


def _read_logprobs(entry: Entry) -> dict[str, float]:
    letters = entry.table("a mapping of letters to numbers of 0 or less")
    return {letter: value.number("a number of 0 or less", high=0.0) for letter, value in letters.items()}


_READERS: Mapping[str, Callable[[Entry], Any]] = {
    **dict.fromkeys((*_GLOBS, "answer", "letter", "error", "option"), lambda entry: entry.text(empty=True)),
    "task": lambda entry: entry.one_of(_TASKS),
    "always": lambda entry: entry.one_of(_ALWAYS),
    "text": Entry.pattern,
    "right": lambda entry: _CHANCE if _is_chance(entry) else entry.number(f"a share in [0, 1], or {_CHANCE}", low=0.0, high=1.0),
    "luck": _read_share,
    "confidence": _read_share,
    "logprobs": _read_logprobs,
}
"""The keys of a rule and the reader of each value."""
