from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.backends import open_backend, resolve
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import Prediction, Request

SCRIPT = """
default: A
rules:
  - {setting: "fog:*", sample: "s[12]", answer: "I cannot tell"}
  - {setting: "fog:*", letter: B, logprobs: {A: -2.3, B: -0.1}}
  - {text: "how (many|much)", error: "the endpoint is down"}
  - {sample: odd, letter: E}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "answers.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def backend(tmp_path: Path) -> ScriptedBackend:
    return ScriptedBackend.from_file(_write(tmp_path, SCRIPT))


def _ask(sample: str = "s1", setting: str = "clean", text: str = "?") -> Request:
    return Request("k", (), text, ("A", "B"), sample_id=sample, setting=setting)


def test_the_first_matching_rule_answers(backend: ScriptedBackend) -> None:
    assert backend.infer([_ask("s1", "fog:mid")]) == [Prediction("I cannot tell", "generate")]
    assert backend.infer([_ask("s3", "fog:mid")]) == [Prediction("B", "letter_logits", logprobs={"A": -2.3, "B": -0.1})]
    assert backend.infer([_ask("s3", "frost:mid")]) == [Prediction("A", "generate")]


def test_a_rule_can_fail_a_request(backend: ScriptedBackend) -> None:
    (prediction,) = backend.infer([_ask(text="Tell how many there are")])
    assert (prediction.finish_reason, prediction.error) == ("error", "the endpoint is down")


def test_a_letter_that_is_not_offered_is_an_error(backend: ScriptedBackend) -> None:
    (prediction,) = backend.infer([_ask("odd")])
    assert prediction.finish_reason == "error"
    assert prediction.error.endswith("answers.yaml: rule 4 answers with letter 'E', but the request offers A, B")


def test_without_a_default_the_unmatched_fail(tmp_path: Path) -> None:
    backend = ScriptedBackend.from_file(_write(tmp_path, "rules: [{sample: x, answer: A}]"))
    (prediction,) = backend.infer([_ask("s9")])
    assert prediction.error.startswith("no rule of ")
    assert "matches sample 's9', and it has no default" in prediction.error


def test_json_is_read_too_and_opened_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rehearsal.json"
    path.write_text(json.dumps({"default": "B", "rules": []}))
    backend = open_backend(resolve(f"scripted:{path}"))
    assert backend.name == "rehearsal"
    assert backend.infer([_ask()])[0].text == "B"


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    one = ScriptedBackend.from_file(_write(tmp_path, "default: A")).fingerprint()
    two = ScriptedBackend.from_file(_write(tmp_path, "default: B")).fingerprint()
    assert one != two
    assert ScriptedBackend.from_file(_write(tmp_path, "default: A")).fingerprint() == one


def _echo(request: Request) -> str:
    if request.sample_id == "bad":
        raise LookupError("nothing for bad")
    return request.sample_id


def test_a_function_answers_and_its_failures_are_predictions() -> None:
    backend = ScriptedBackend(_echo, version="1", name="echo")
    good, bad = backend.infer([_ask("x"), _ask("bad")])
    assert good == Prediction("x", "generate")
    assert (bad.finish_reason, bad.error) == ("error", "LookupError: nothing for bad")
    assert backend.fingerprint() == {"backend": "scripted", "script": "1"}


def test_a_function_may_return_a_whole_prediction() -> None:
    whole = Prediction("A", "letter_logits", logprobs={"A": -0.5})
    script: Callable[[Request], Prediction] = lambda _request: whole  # noqa: E731 - short
    assert ScriptedBackend(script, version="1").infer([_ask()]) == [whole]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected a mapping with 'default' and 'rules', found list"),
        ("", "expected a mapping with 'default' and 'rules', found NoneType"),
        ("defualt: A", r"unknown key 'defualt'. Did you mean 'default'\? Known: default, rules"),
        ("rules: x", "'rules' is str; expected a list of rules"),
        ("default: 3", "'default' is 3; expected text, in quotes"),
        ("rules: [x]", "rule 1 is 'x'; expected a mapping"),
        ("rules: [{answer: A}, {setting: x}]", "rule 2 has no answer; expected exactly one of answer, letter, error"),
        ("rules: [{answer: A, letter: B}]", "rule 1 has answer and letter; expected exactly one"),
        ("rules: [{answer: A, settings: x}]", r"rule 1: unknown key 'settings'. Did you mean 'setting'\?"),
        ("rules: [{answer: yes}]", "rule 1: answer is True; expected text, in quotes"),
        ("rules: [{answer: A, text: '('}]", r"rule 1: text '\(' is not a regular expression"),
        ("rules: [{letter: A, logprobs: {A: 0.5}}]", "rule 1: logprobs is {'A': 0.5}; expected"),
        (
            "rules: [{letter: A, logprobs: {A: -2, B: -1}}]",
            "rule 1: the letter is 'A', and logprobs is {'A': -2, 'B': -1}; expected",
        ),
        ("rules: [{answer: A, logprobs: {A: -0.5}}]", "rule 1: logprobs is {'A': -0.5}; expected, beside a letter"),
        ("a: [", "neither YAML nor JSON"),
    ],
)
def test_mistakes_in_a_script_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ModelError, match=f"{path}.*{message}"):
        ScriptedBackend.from_file(path)


def test_an_absent_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere.yaml cannot be read: No such file"):
        ScriptedBackend.from_file(tmp_path / "nowhere.yaml")
