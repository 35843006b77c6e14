"""A backend that answers by rules: for tests, for documentation, and for rehearsing a gate without a model.

    default: A
    rules:                                  # the first rule that matches answers
      - {setting: "fog:*", answer: "I cannot tell"}
      - {sample: "shapes/12", letter: B, logprobs: {A: -2.3, B: -0.1}}
      - {text: "how many", error: "the endpoint is down"}

``setting`` and ``sample`` are globs, ``text`` is a regular expression looked for in the prompt; those that a rule does not give
match everything. A rule ``answer``s with text, with a ``letter`` of the request's choices, or with an ``error``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pytest_vlmrobust.core.errors import ModelError, did_you_mean
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request

from .protocol import failed_prediction

Script: TypeAlias = Callable[[Request], "str | Prediction"]

_CONDITIONS = ("sample", "setting", "text")
_ANSWERS = ("answer", "letter", "error")


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

    @classmethod
    def from_file(cls, path: str | Path, *, name: str = "scripted") -> ScriptedBackend:
        """Returns the backend that follows the rules of a YAML or JSON file.

        Raises:
            ModelError: the file is absent, or a rule cannot be understood; names the file and the rule.
        """
        path = Path(path)
        rules = _read_rules(path)
        return cls(rules.answer, version=f"sha256:{file_digest(path)}", name=name)

    @property
    def name(self) -> str:
        """The model's short name."""
        return self._name

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns the version of the script: the digest of its file, or what the caller named it."""
        return {"backend": "scripted", "script": self._version}

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
    sample: str = "*"
    setting: str = "*"
    text: str = ""
    answer: str | None = None
    letter: str | None = None
    error: str | None = None
    logprobs: Mapping[str, float] = field(default_factory=dict)

    def matches(self, request: Request) -> bool:
        names_match = fnmatchcase(request.sample_id, self.sample) and fnmatchcase(request.setting, self.setting)
        return names_match and re.search(self.text, request.text) is not None

    def prediction(self, request: Request) -> Prediction:
        if self.error is not None:
            return failed_prediction(self.error)
        if self.letter is None:
            return Prediction(text=self.answer or "", method="generate")
        if self.letter not in request.choices:
            offered = ", ".join(request.choices) or "no letters"
            return failed_prediction(f"{self.where} answers with letter {self.letter!r}, but the request offers {offered}")
        return Prediction(text=self.letter, method=LETTER_LOGITS, logprobs=dict(self.logprobs))


@dataclass(frozen=True, slots=True)
class _Rules:
    path: Path
    rules: tuple[_Rule, ...]
    default: str | None

    def answer(self, request: Request) -> str | Prediction:
        for rule in self.rules:
            if rule.matches(request):
                return rule.prediction(request)
        if self.default is None:
            return failed_prediction(f"no rule of {self.path} matches sample {request.sample_id!r}, and it has no default")
        return self.default


def _read_rules(path: Path) -> _Rules:
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
    return _Rules(path, tuple(_read_rule(f"{path}: rule {index}", rule) for index, rule in enumerate(rules, start=1)), default)


def _read_rule(where: str, rule: Any) -> _Rule:
    if not isinstance(rule, dict):
        raise ModelError(f"{where} is {rule!r}; expected a mapping such as {{setting: 'fog:*', answer: B}}")
    _refuse_unknown(where, rule, (*_CONDITIONS, *_ANSWERS, "logprobs"))
    for key in (*_CONDITIONS, *_ANSWERS):
        if key in rule and not isinstance(rule[key], str):
            raise ModelError(f"{where}: {key} is {rule[key]!r}; expected text, in quotes")
    given = [key for key in _ANSWERS if key in rule]
    if len(given) != 1:
        raise ModelError(f"{where} has {' and '.join(given) or 'no answer'}; expected exactly one of {', '.join(_ANSWERS)}")
    _check_pattern(where, rule.get("text", ""))
    _check_logprobs(where, rule)
    return _Rule(where=where, **rule)


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
