from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.backends import AnswerKey, BackendOptions, open_backend, oracles, resolve
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.boxes import Localisation
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.sample import Sample

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


def test_by_text_a_letter_is_written_and_the_fingerprint_says_so(tmp_path: Path, backend: ScriptedBackend) -> None:
    writes = ScriptedBackend.from_file(_write(tmp_path, SCRIPT), answer="text")
    assert writes.infer([_ask("s3", "fog:mid")]) == [Prediction("B", "generate")]
    assert writes.fingerprint() == {**backend.fingerprint(), "answer": "text"}
    plain = _write(tmp_path, "default: A")
    assert "answer" not in ScriptedBackend.from_file(plain, answer="text").fingerprint()  # its answers were text anyway


def test_letters_that_no_rule_gives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model 'm': .* no rule of .*answers.yaml has a 'letter'.* --vlm-answer=text"):
        ScriptedBackend.from_file(_write(tmp_path, "default: A"), name="m", answer="letters")
    assert ScriptedBackend.from_file(_write(tmp_path, SCRIPT), answer="letters").infer([_ask("s3", "fog:mid")])[0].text == "B"


def test_a_letter_that_is_not_offered_is_an_error(backend: ScriptedBackend) -> None:
    (prediction,) = backend.infer([_ask("odd")])
    assert prediction.finish_reason == "error"
    assert prediction.error.endswith("answers.yaml:7: rules[4] answers with letter 'E', but the request offers A, B")


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
    first = ScriptedBackend.from_file(_write(tmp_path, "default: A")).fingerprint()
    second = ScriptedBackend.from_file(_write(tmp_path, "default: B")).fingerprint()
    assert first != second
    assert ScriptedBackend.from_file(_write(tmp_path, "default: A")).fingerprint() == first


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


@pytest.mark.cases(
    ("text", "message"),
    [
        ("[]", ":1: the file is a list. Expected a mapping with the keys default, rules"),
        ("", ": the file is empty. Expected 'default', 'rules' or both"),
        ("{}", ":1: the file is a mapping. Expected a mapping with 'default', 'rules' or both"),
        ("defualt: A", ":1: unknown key 'defualt' in the file. Did you mean 'default'? Known: default, rules"),
        ("rules: x", ":1: rules is the text 'x'. Expected a list"),
        ("default: 3", ":1: default is '3'. Expected text: put it in quotes, '3'"),
        ("rules: [x]", ":1: rules[1] is the text 'x'. Expected a mapping"),
        (
            "rules:\n- {answer: A}\n- {setting: x}",
            ":3: rules[2] has no answer. Expected exactly one of answer, letter, error, option, always, right",
        ),
        ("rules: [{answer: A, letter: B}]", ":1: rules[1] has answer and letter. Expected exactly one"),
        ("rules: [{answer: A, settings: x}]", ":1: unknown key 'settings' in rules[1]. Did you mean 'setting'?"),
        ("rules: [{answer: yes}]", ":1: rules[1].answer is 'yes'. Expected text: put it in quotes, 'yes'"),
        ("rules: [{answer: A, text: '('}]", ":1: rules[1].text is the text '('. Expected a regular expression"),
        ("rules: [{letter: A, logprobs: {A: 0.5}}]", ":1: rules[1].logprobs.A is '0.5'. Expected a number of 0 or less"),
        ("rules: [{letter: A, logprobs: [1]}]", ":1: rules[1].logprobs is a list. Expected a mapping of letters to numbers"),
        (
            "rules: [{letter: A, logprobs: {A: -2, B: -1}}]",
            ":1: rules[1].letter is the text 'A'. Expected the letter with the highest of logprobs, 'B'",
        ),
        ("rules: [{answer: A, logprobs: {A: -0.5}}]", ":1: rules[1].logprobs stands without 'letter'. Expected it beside"),
        ("a: [", ":1: not YAML: "),
        ("rules: [{right: 1.5}]", ":1: rules[1].right is '1.5'. Expected a share in [0, 1], or chance"),
        ("rules: [{right: often}]", ":1: rules[1].right is the text 'often'. Expected a share"),
        ("rules: [{right: 0.5, luck: 2}]", ":1: rules[1].luck is '2'. Expected a share in [0, 1]"),
        ("rules: [{answer: A, luck: 0.5}]", ":1: rules[1].luck stands without 'right'"),
        ("rules: [{answer: A, confidence: 0.5}]", ":1: rules[1].confidence stands without 'right'"),
        ("rules: [{always: right}]", ":1: rules[1].always is the text 'right'. Expected one of majority, told"),
        ("rules: [{task: boxen, answer: A}]", ":1: rules[1].task is the text 'boxen'. Expected one of choice, yes_no, open"),
    ],
)
def test_mistakes_in_a_script_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ModelError, match=re.escape(f"{path}{message}")):
        ScriptedBackend.from_file(path)


def test_a_script_in_json_may_spell_characters_beyond_its_escapes_as_pairs(tmp_path: Path) -> None:
    path = _write(tmp_path, json.dumps({"default": "\N{GRINNING FACE}"}))
    assert "\\ud83d" in path.read_text()
    (prediction,) = ScriptedBackend.from_file(path).infer([_ask()])
    assert prediction.text == "\N{GRINNING FACE}"


def test_an_absent_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere.yaml: cannot read the scripted answers: No such file"):
        ScriptedBackend.from_file(tmp_path / "nowhere.yaml")


N = 2000
LETTERS = {"A": "cat", "B": "dog", "C": "owl", "D": "fox"}


def _sample(number: int) -> Sample:
    return Sample(f"q{number}", (), "?", "ABCD"[number % 4], "choice", LETTERS, keys={"group": "dark" if number % 2 else "light"})


CHOICES = [_sample(number) for number in range(N)]


def _declared(folder: Path, rules: str, samples: list[Sample] = CHOICES) -> ScriptedBackend:
    key = AnswerKey(lambda _dataset: samples, lambda: "digest of the targets")
    return ScriptedBackend.from_file(_write(folder, f"rules: [{rules}]"), answers=key)


def _right(backend: ScriptedBackend, setting: str = "clean", pixels: int = 0) -> np.ndarray:
    """Returns which of the choices are answered right under a setting, whose pictures are of one colour."""
    image = np.full((2, 2, 3), pixels, np.uint8)
    requests = [
        Request("k", (image,), "?", tuple(LETTERS), sample_id=sample.id, setting=setting, dataset="d") for sample in CHOICES
    ]
    return np.array([answer.text == sample.target for answer, sample in zip(backend.infer(requests), CHOICES, strict=True)])


def test_a_share_is_right_and_what_is_right_at_less_is_right_at_more(tmp_path: Path) -> None:
    backend = _declared(tmp_path, "{setting: 'fog:*', right: 0.6}, {setting: no_image, right: chance}, {right: 0.8}")
    clean, fog, blind = (_right(backend, setting) for setting in ("clean", "fog:low", "no_image"))
    for right, share in ((clean, 0.8), (fog, 0.6), (blind, 0.25)):
        assert abs(right.mean() - share) < 4 * (share * (1 - share) / N) ** 0.5
    assert not (fog & ~clean).any()
    assert (_right(backend, "fog:high", pixels=9) == fog).all(), "without luck the pixels do not matter"


def test_luck_is_drawn_anew_for_each_picture(tmp_path: Path) -> None:
    backend = _declared(tmp_path, "{right: 0.7, luck: 1}")
    first, second = _right(backend, pixels=1), _right(backend, pixels=2)
    assert abs((first & ~second).mean() - 0.7 * 0.3) < 4 * (0.21 * 0.79 / N) ** 0.5, "as many turn wrong as for independent draws"
    some = _declared(tmp_path, "{right: 0.7, luck: 0.1}")
    assert abs((_right(some, pixels=1) ^ _right(some, pixels=2)).mean() - 0.1 * 2 * 0.21) < 0.02


def test_a_share_that_is_right_can_have_a_confidence(tmp_path: Path) -> None:
    requests = [Request("k", (), "?", tuple(LETTERS), sample_id=sample.id, dataset="data") for sample in CHOICES[:20]]
    sure = _declared(tmp_path, "{right: 0.5, confidence: 0.7}").infer(requests)
    plain = _declared(tmp_path, "{right: 0.5}").infer(requests)
    assert [each.text for each in sure] == [each.text for each in plain]
    assert {round(each.confidence, 9) for each in sure} == {0.7}
    assert not any(each.contradicts_itself for each in sure)
    (unsure, *_) = _declared(tmp_path, "{right: 0.5, confidence: 0.2}").infer(requests)
    assert "has confidence 0.2, expected at least 0.25 for 4 letters" in unsure.error


def test_wrong_answers_can_be_read_and_are_wrong(tmp_path: Path) -> None:
    boxes = Localisation((8, 8), {"nose": (2.0, 2.0, 4.0, 4.0)}, {"nose": (2.0, 2.0, 3.0, 3.0)})
    kinds = [
        _sample(1),
        Sample("y", (), "?", "yes", "yes_no"),
        Sample("o", (), "?", ("a cat", "cat"), "open"),
        Sample("b", (), "?", "", "boxes", localisation=boxes),
    ]
    requests = [Request("k", (), "?", sample_id=sample.id, dataset="d") for sample in kinds]
    wrong = [answer.text for answer in _declared(tmp_path, "{right: 0}", kinds).infer(requests)]
    assert wrong[0] in {"A", "C", "D"}
    assert wrong[1:3] == ["no", "none of these"]
    assert json.loads(wrong[3]) == {"nose": {"x1": 0.0, "y1": 0.0, "x2": 1.0, "y2": 1.0}}
    right = [answer.text for answer in _declared(tmp_path, "{right: 1}", kinds).infer(requests)]
    assert right[:3] == ["B", "yes", "a cat"]
    assert json.loads(right[3])["nose"]["x2"] == 4.0
    told_answers = _declared(tmp_path, "{task: boxes, always: told}, {answer: x}", kinds).infer(requests)
    assert [answer.text for answer in told_answers[:3]] == ["x", "x", "x"]
    assert json.loads(told_answers[3].text)["nose"]["x2"] == 3.0


def test_options_groups_and_majorities(tmp_path: Path) -> None:
    samples = [*CHOICES[:5], Sample("y", (), "?", "no", "yes_no")]
    requests = [Request("k", (), "?", sample_id=sample.id, dataset="d") for sample in samples]

    def said(rules: str) -> list[str]:
        return [answer.text for answer in _declared(tmp_path, rules, samples).infer(requests)]

    assert said("{option: 'ow*'}, {answer: other}") == ["C"] * 5 + ["other"]
    assert said("{group: dark, answer: x}, {answer: z}") == ["z", "x", "z", "x", "z", "z"]
    assert said("{always: majority}") == ["A"] * 5 + ["no"]


def test_a_declared_behaviour_needs_a_run_and_says_so(tmp_path: Path) -> None:
    backend = ScriptedBackend.from_file(_write(tmp_path, "rules: [{right: 1}]"))
    (prediction,) = backend.infer([_ask()])
    assert "declares a behaviour, which needs the samples that are asked about: run it in a gate" in prediction.error


def test_the_right_answers_are_part_of_the_fingerprint_where_they_are_read(tmp_path: Path) -> None:
    assert _declared(tmp_path, "{right: 1}").fingerprint()["answers"] == "digest of the targets"
    assert "answers" not in _declared(tmp_path, "{answer: A}").fingerprint()


@pytest.mark.cases("name", oracles())
def test_shipped_oracles_open_and_say_what_they_are(name: str) -> None:
    ref = resolve(f"scripted:oracle/{name}")
    assert ref.name == name
    assert open_backend(ref, BackendOptions(answers=AnswerKey(lambda _dataset: CHOICES, lambda: ""))).name == name
    first, second = Path(ref.location).read_text().splitlines()[:2]
    assert first.startswith("# ")
    assert first.endswith(".")
    assert second == "rules:"


def test_an_unknown_oracle_is_named_with_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"no oracle is called 'constnat'\. Did you mean 'constant'"):
        resolve("scripted:oracle/constnat")
