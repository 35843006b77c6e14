"""A backend that answers by rules: for tests, for documentation, and for rehearsing a gate without a model.

    default: A
    rules:                                  # the first rule that matches answers
      - {setting: "fog:*", answer: "I cannot tell"}
      - {sample: "shapes/12", letter: B, logprobs: {A: -2.3, B: -0.1}}
      - {text: "how many", error: "the endpoint is down"}
      - {setting: no_image, right: chance}
      - {setting: "*_blur:*", right: 0.6, luck: 0.1}
      - {right: 0.8, luck: 0.1}

``dataset``, ``sample``, ``setting`` and ``group`` are globs, ``task`` is a kind of answer, ``text`` is a regular expression
looked for in the prompt; those that a rule does not give match everything. A rule ``answer``s with text, with a ``letter`` of the
request's choices, or with an ``error``: these need no dataset. The others declare a behaviour, and what it comes to follows from
the samples that are asked about, with their targets, which a run tells a scripted model and no other:

``right`` is the share of samples that are answered right, or ``chance`` for what a guess gets. Which ones follows from a hash of
the sample, so that what is right at 0.6 is also right at 0.8. Of the share ``luck`` of samples, each view is drawn anew, by a
hash of its pixels. ``option`` answers with the first option whose text a glob matches, and leaves samples without one to the
next rule. ``always: majority`` answers with the commonest target of the dataset, ``always: told`` with the boxes that the prompt
tells.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import ModelError, did_you_mean
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request
from pytest_vlmrobust.core.sample import Sample

from .protocol import AnswerKey, failed_prediction

Script: TypeAlias = Callable[[Request], "str | Prediction"]

_GLOBS = ("dataset", "sample", "setting", "group")
_CONDITIONS = (*_GLOBS, "task", "text")
_TEXTS = ("answer", "letter", "error", "option", "always")
_ANSWERS = (*_TEXTS, "right")
_TASKS = ("choice", "yes_no", "open", "boxes")
_ALWAYS = ("majority", "told")
_CHANCE = "chance"
_GROUP = "group"


class ScriptedBackend:
    """Answers each request by a function; deterministic as far as the function is."""

    def __init__(self, script: Script, *, version: str, name: str = "scripted") -> None:
        """Takes a function from a request to its answer.

        Args:
            script: Returns text, or a whole prediction. What it raises becomes that request's error.
            version: Names the script's behaviour in the fingerprint; change it when the answers change.
            name: The model's short name.
        """
        self._script = script
        self._version = version
        self._name = name
        self._answers: AnswerKey | None = None

    @classmethod
    def from_file(cls, path: str | Path, *, name: str = "scripted", answers: AnswerKey | None = None) -> ScriptedBackend:
        """Returns the backend that follows the rules of a YAML or JSON file.

        Args:
            path: the file.
            name: The model's short name.
            answers: What is asked, with what is right; rules that declare a behaviour need it.

        Raises:
            ModelError: the file is absent, or a rule cannot be understood; names the file and the rule.
        """
        path = Path(path)
        rules = _read_rules(path, answers)
        made = cls(rules.answer, version=f"sha256:{file_digest(path)}", name=name)
        made._answers = answers if rules.declares else None
        return made

    @property
    def name(self) -> str:
        """The model's short name."""
        return self._name

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns the version of the script: the digest of its file, or what the caller named it; and that of right answers."""
        known = {} if self._answers is None else {"answers": self._answers.digest()}
        return {"backend": "scripted", "script": self._version, **known}

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
        except Exception as error:  # noqa: BLE001 - a script stands for a model, whose failures are predictions
            return failed_prediction(f"{type(error).__name__}: {error}")
        return answer if isinstance(answer, Prediction) else Prediction(text=answer, method="generate")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: the first of its conditions that is not met rules it out."""

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
    logprobs: Mapping[str, float] = field(default_factory=dict)

    @property
    def declares(self) -> bool:
        """Whether the rule needs to know the sample that is asked about."""
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
        return Prediction(text=self._said(request, sample, samples), method="generate")

    def _by_letter(self, letter: str, request: Request) -> Prediction:
        if letter not in request.choices:
            offered = ", ".join(request.choices) or "no letters"
            return failed_prediction(f"{self.where} answers with letter {letter!r}, but the request offers {offered}")
        return Prediction(text=letter, method=LETTER_LOGITS, logprobs=dict(self.logprobs))

    def _said(self, request: Request, sample: Sample | None, samples: Sequence[Sample]) -> str:
        if sample is None or not (self.option or self.always or self.right is not None):
            return self.answer or ""
        if self.option is not None:
            return self._chosen(sample) or ""
        if self.always == "majority":
            return _majority(sample, samples)
        if self.always == "told":
            return _written(sample.localisation.given) if sample.localisation else _wrong(sample)
        return _right(sample) if _draw(request, sample, self.luck) < self._share(sample) else _wrong(sample)

    def _share(self, sample: Sample) -> float:
        return sample.chance if self.right == _CHANCE else float(self.right or 0.0)

    def _chosen(self, sample: Sample) -> str | None:
        """Returns the letter of the first option that is called as the rule asks."""
        return next((letter for letter, text in sample.options.items() if fnmatchcase(text, self.option or "*")), None)


@dataclass(frozen=True, slots=True)
class _Rules:
    path: Path
    rules: tuple[_Rule, ...]
    default: str | None
    key: AnswerKey | None = None
    known: dict[str, tuple[Sequence[Sample], dict[str, Sample]]] = field(default_factory=dict)
    """The samples of each dataset, in their order and by id."""

    @property
    def declares(self) -> bool:
        """Whether any rule needs to know the samples that are asked about."""
        return any(rule.declares for rule in self.rules)

    def answer(self, request: Request) -> str | Prediction:
        samples, by_id = self._of(request.dataset) if self.declares else ((), {})
        sample = by_id[request.sample_id] if self.declares else None
        for rule in self.rules:
            if rule.matches(request, sample):
                return rule.prediction(request, sample, samples)
        if self.default is None:
            return failed_prediction(f"no rule of {self.path} matches sample {request.sample_id!r}, and it has no default")
        return self.default

    def _of(self, dataset: str) -> tuple[Sequence[Sample], dict[str, Sample]]:
        if self.key is None:
            raise ModelError(f"{self.path} declares a behaviour, which needs the samples that are asked about: run it in a gate")
        if dataset not in self.known:
            samples = self.key.samples(dataset)
            self.known[dataset] = samples, {sample.id: sample for sample in samples}
        return self.known[dataset]


def _draw(request: Request, sample: Sample, luck: float) -> float:
    """Returns a number in [0, 1) that belongs to the sample, or of the share ``luck`` of samples to this view of it."""
    about = [request.dataset, sample.id]
    if _hashed(["luck", *about]) >= luck:
        return _hashed(about)
    return _hashed([*about, *(hashlib.sha256(image.tobytes()).hexdigest() for image in request.images)])


def _hashed(parts: Sequence[str]) -> float:
    """Returns a number in [0, 1) that follows from texts alone, spread evenly."""
    return int(fingerprint(list(parts))[:13], 16) / 16**13


def _right(sample: Sample) -> str:
    if sample.localisation is not None:
        return _written(sample.localisation.boxes)
    return sample.target if isinstance(sample.target, str) else sample.target[0]


def _wrong(sample: Sample) -> str:
    """Returns an answer that can be read and is wrong: of several the one that the sample's hash chooses."""
    if sample.localisation is not None:
        return _written(dict.fromkeys(sample.localisation.boxes, (0.0, 0.0, 1.0, 1.0)))
    if sample.task == "yes_no":
        return "no" if _right(sample) == "yes" else "yes"
    others = [letter for letter in sample.options if letter != sample.target]
    return others[int(_hashed(["wrong", sample.id]) * len(others))] if others else "none of these"


def _majority(sample: Sample, samples: Sequence[Sample]) -> str:
    """Returns the commonest right answer to questions of this kind, the first of equals."""
    counts = Counter(_right(other) for other in samples if other.task == sample.task and other.localisation is None)
    offered = [answer for answer, _ in counts.most_common() if not sample.options or answer in sample.options]
    return offered[0] if offered else _wrong(sample)


def _written(boxes: Mapping[str, Box]) -> str:
    """Returns boxes as text, in pixels."""
    corners = ("x1", "y1", "x2", "y2")
    return json.dumps({name: dict(zip(corners, box, strict=True)) for name, box in boxes.items()})


def _read_rules(path: Path, key: AnswerKey | None) -> _Rules:
    try:
        script = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"scripted answers {path} cannot be read: {reason}. Expected scripted:FILE, UTF-8") from error
    except yaml.YAMLError as error:
        raise ModelError(f"scripted answers {path}: neither YAML nor JSON: {error}") from error
    if not isinstance(script, dict) or not script:
        raise ModelError(f"scripted answers {path}: expected a mapping with 'default' and 'rules', found {type(script).__name__}")
    _refuse_unknown(str(path), script, ("default", "rules"))
    rules = script.get("rules") or []
    if not isinstance(rules, list):
        raise ModelError(f"scripted answers {path}: 'rules' is {type(rules).__name__}; expected a list of rules")
    default = script.get("default")
    if default is not None and not isinstance(default, str):
        raise ModelError(f"scripted answers {path}: 'default' is {default!r}; expected text, in quotes")
    read = tuple(_read_rule(f"{path}: rule {index}", rule) for index, rule in enumerate(rules, start=1))
    return _Rules(path, read, default, key)


def _read_rule(where: str, rule: Any) -> _Rule:
    if not isinstance(rule, dict):
        raise ModelError(f"{where} is {rule!r}; expected a mapping such as {{setting: 'fog:*', answer: B}}")
    _refuse_unknown(where, rule, (*_CONDITIONS, *_ANSWERS, "logprobs", "luck"))
    for key in (*_CONDITIONS, *_TEXTS):
        if key in rule and not isinstance(rule[key], str):
            raise ModelError(f"{where}: {key} is {rule[key]!r}; expected text, in quotes")
    given = [key for key in _ANSWERS if key in rule]
    if len(given) != 1:
        raise ModelError(f"{where} has {' and '.join(given) or 'no answer'}; expected exactly one of {', '.join(_ANSWERS)}")
    _check_pattern(where, rule.get("text", ""))
    _check_logprobs(where, rule)
    _check_behaviour(where, rule)
    return _Rule(where=where, **rule)


def _check_behaviour(where: str, rule: dict[str, Any]) -> None:
    for key, known in (("task", _TASKS), ("always", _ALWAYS)):
        if key in rule and rule[key] not in known:
            raise ModelError(f"{where}: {key} is {rule[key]!r}; expected one of {', '.join(known)}")
    if "right" in rule and not (rule["right"] == _CHANCE or _is_share(rule["right"])):
        raise ModelError(f"{where}: right is {rule['right']!r}; expected a share in [0, 1], or {_CHANCE}")
    if "luck" in rule and ("right" not in rule or not _is_share(rule["luck"])):
        raise ModelError(f"{where}: luck is {rule['luck']!r}; expected, beside right, a share in [0, 1]")


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0


def _check_pattern(where: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ModelError(f"{where}: text {pattern!r} is not a regular expression: {error}") from error


def _check_logprobs(where: str, rule: dict[str, Any]) -> None:
    logprobs = rule.get("logprobs", {})
    numbers = isinstance(logprobs, dict) and all(isinstance(value, int | float) and value <= 0 for value in logprobs.values())
    if not numbers or (logprobs and "letter" not in rule):
        raise ModelError(
            f"{where}: logprobs is {logprobs!r}; expected, beside a letter, a mapping of letters to numbers of 0 or less"
        )
    if Prediction(rule.get("letter", ""), LETTER_LOGITS, logprobs=logprobs).contradicts_itself:
        raise ModelError(
            f"{where}: the letter is {rule['letter']!r}, and logprobs is {logprobs!r}; expected the letter of the highest one"
        )


def _refuse_unknown(where: str, mapping: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    for key in mapping:
        if key not in known:
            raise ModelError(f"{where}: unknown key {key!r}.{did_you_mean(str(key), known)} Known: {', '.join(known)}")
