"""What is sent to a server: what is declared, without what the server was seen to refuse. Secrets go to it alone."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openai")

from pytest_vlmrobust.backends import BackendOptions
from pytest_vlmrobust.backends.models_file import read_models
from pytest_vlmrobust.backends.openai import OpenAIBackend
from pytest_vlmrobust.backends.probing import probe
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from tests.model_server import ModelServer, azure, litellm, llama_cpp, openai_reasoning, openrouter, refusal, reply, sglang, vllm

pytestmark = pytest.mark.process

KEY = "a-secret-that-nothing-may-repeat-0123456789"
OTHER = "sk-the-key-of-another-server-0123456789"
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "servers.md"
GREEDY: dict[str, Any] = {"answer": "text"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("AZURE_KEY", KEY)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(ScriptedBackend(answer, version="1")) as server:
        yield server


def answer(request: Request) -> str | Prediction:
    """Says something else about each picture."""
    return f"mean {int(np.mean(request.images[0]))}" if request.images else "nothing to see"


Open = Callable[..., OpenAIBackend]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    backends: list[OpenAIBackend] = []

    def make(url: str, *, revision: str = "1", heard: list[str] | None = None, **fields: Any) -> OpenAIBackend:
        ref = ModelRef("m", "openai", f"{url}#m", revision, **{**GREEDY, **fields})
        notice = ([] if heard is None else heard).append
        backends.append(OpenAIBackend(ref, BackendOptions(servers=tmp_path / "servers", notice=notice)))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()


def asks(*texts: str) -> list[Request]:
    image = np.full((9, 7, 3), 50, np.uint8)
    return [Request(text, (image,), text, max_new_tokens=5, sample_id=text) for text in texts]


def bodies(server: ModelServer) -> list[dict[str, Any]]:
    return [body for _, _, body in server.calls]


def about(server: ModelServer, text: str) -> dict[str, Any]:
    """Returns the last body that asked a question."""
    return [body for body in bodies(server) if text in json.dumps(body["messages"])][-1]


# What a server refuses.


def test_a_refusal_of_max_tokens_and_of_temperature_0_is_learned_once_and_remembered(server: ModelServer, opened: Open) -> None:
    server.provider = openai_reasoning
    heard: list[str] = []
    backend = opened(server.url, heard=heard)
    answers = backend.infer(asks("one", "two", "three"))
    # no temperature: nothing is greedy
    assert [(answer.text, answer.method) for answer in answers] == [("mean 50", "sample")] * 3
    refused = [body for body in bodies(server) if openai_reasoning("", {}, body)]
    assert [sorted({"max_tokens", "temperature"} & set(body)) for body in refused] == [
        ["max_tokens", "temperature"],
        ["temperature"],
        [],
    ], "each is refused once; then log-probabilities are"
    assert about(server, "three").items() >= {"max_completion_tokens": 5, "model": "m"}.items()
    (notice,) = heard
    assert "refuses temperature 0, so that none is sent: decoding is not greedy" in notice
    assert set(backend.describe()["loaded"]["learned"]) == {"max_completion_tokens", "temperature"}
    server.calls.clear()
    later = opened(server.url, heard=heard)
    assert later.infer(asks("four"))[0].text == "mean 50"
    assert not [body for body in bodies(server) if {"max_tokens", "temperature"} & set(body)], "the store remembers it"
    assert len(heard) == 2, "each run says it"


def test_a_refusal_in_the_middle_is_learned_by_every_request_in_flight(server: ModelServer, opened: Open) -> None:
    backend = opened(server.url)
    backend.fingerprint()
    backend.infer(asks("first"))
    server.provider = openai_reasoning
    assert [answer.error for answer in backend.infer(asks(*(f"q{number}" for number in range(20))))] == [""] * 20
    server.calls.clear()
    opened(server.url).infer(asks("later"))
    assert not [body for body in bodies(server) if "max_tokens" in body]


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("max_tokens is too large: 99999. This model supports at most 16384 completion tokens.", {"param": "max_tokens"}),
        ("'max_tokens' or 'max_completion_tokens' is too large: 9. This model's maximum context length is 4.", {}),
        ("Unsupported parameter: 'seed' is not supported with this model; temperature may be.", {"param": "seed"}),
    ],
)
def test_other_refusals_teach_nothing(server: ModelServer, opened: Open, said: str, more: dict[str, Any]) -> None:
    backend = opened(server.url)
    backend.infer(asks("first"))
    server.calls.clear()
    server.provider = lambda _path, _headers, _body: refusal(400, said, **more)
    (prediction,) = backend.infer(asks("second"))
    assert said[:40] in prediction.error
    assert len(server.calls) == 1
    assert "learned" not in backend.describe()["loaded"]


def test_a_server_that_refuses_both_parameters_ends_in_its_own_words(server: ModelServer, opened: Open) -> None:
    def refuses(_path: str, _headers: dict[str, str], body: dict[str, Any]) -> Any:
        (name,) = {"max_tokens", "max_completion_tokens"} & set(body)
        return refusal(400, f"Unsupported parameter: '{name}' is not supported", param=name)

    server.provider = refuses
    with pytest.raises(BackendError, match="'max_completion_tokens' is not supported"):
        opened(server.url).infer(asks("one"))
    assert len(server.calls) < 6


@pytest.mark.parametrize(("declared", "sent"), [("max_tokens", "max_tokens"), ("max_completion_tokens", "max_completion_tokens")])
def test_a_declared_token_limit_parameter_is_sent_and_nothing_is_learned(
    server: ModelServer, opened: Open, declared: str, sent: str
) -> None:
    opened(server.url, token_limit_parameter=declared).infer(asks("one"))
    assert all(sent in body and len({"max_tokens", "max_completion_tokens"} & set(body)) == 1 for body in bodies(server))


def test_a_declared_max_tokens_that_is_refused_is_an_error(server: ModelServer, opened: Open) -> None:
    server.provider = openai_reasoning
    with pytest.raises(BackendError, match=r"Use 'max_completion_tokens' instead"):
        opened(server.url, token_limit_parameter="max_tokens").infer(asks("one"))  # noqa: S106 - the name of a parameter


def test_no_temperature_is_sent_where_none_is_declared(server: ModelServer, opened: Open) -> None:
    heard: list[str] = []
    backend = opened(server.url, generation={"temperature": "none"}, prompt_mode="thinking", heard=heard)
    (prediction,) = backend.infer(asks("one"))
    assert prediction.method == "sample"
    assert not [body for body in bodies(server) if {"temperature", "top_p", "top_k"} & set(body)], "nor those of the prompt mode"
    assert backend.fingerprint()["decoding"]["temperature"] is None
    assert not heard
    opened(server.url, generation={"temperature": "none", "top_p": 0.5}).infer(asks("two"))
    assert about(server, "two")["top_p"] == 0.5


def test_a_temperature_of_ones_choice_that_is_refused_is_an_error_and_not_left_out(server: ModelServer, opened: Open) -> None:
    server.provider = openai_reasoning
    backend = opened(server.url, generation={"temperature": 0.6})
    (prediction,) = backend.infer(asks("one"))
    assert "'temperature' does not support" in prediction.error
    backend = opened(server.url, generation={"temperature": 1.0})
    assert backend.infer(asks("one"))[0].text == "mean 50", "only the fixed questions are asked with a temperature of 0"
    assert about(server, "one")["temperature"] == 1.0


def test_a_model_that_thinks_until_its_tokens_are_used_up_was_cut_short(server: ModelServer, opened: Open) -> None:
    server.provider = openai_reasoning
    request = asks("one")[0]
    (prediction,) = opened(server.url).infer([Request("k", request.images, "one", max_new_tokens=2)])
    assert (prediction.text, prediction.finish_reason, prediction.error) == ("", "length", "")


# What is declared.


def test_everything_that_is_declared_is_sent_with_every_call(server: ModelServer, opened: Open) -> None:
    backend = opened(
        server.url,
        headers={"X-Team": "AZURE_KEY"},
        query={"api-version": "2026-02-01"},
        extra_body={"provider": {"order": ["a"]}, "min_p": 0.1},
        reasoning_effort="low",
        system_prompt="Be brief.",
        generation={"repetition_penalty": 1.1},
    )
    backend.infer(asks("one"))
    for path, headers, body in server.calls:
        assert path == "/v1/chat/completions?api-version=2026-02-01"
        assert headers["x-team"] == KEY
        assert body.items() >= {"provider": {"order": ["a"]}, "min_p": 0.1, "reasoning_effort": "low"}.items()
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert about(server, "one")["repetition_penalty"] == 1.1


DECLARED: dict[str, tuple[Any, Any]] = {
    "headers": ({"api-key": "AZURE_KEY"}, {"api-key": "AZURE_KEY", "x-team": "AZURE_KEY"}),
    "query": ({"api-version": "1"}, {"api-version": "2"}),
    "extra_body": ({"min_p": 0.1}, {"min_p": 0.2}),
    "reasoning_effort": ("low", "high"),
    "token_limit_parameter": ("max_tokens", "max_completion_tokens"),
    "system_prompt": ("Be brief.", "Be exact."),
    "template": ("{question}!", "{question}?"),
    "generation": ({"temperature": "none"}, {}),
}


@pytest.mark.parametrize("name", DECLARED)
def test_two_values_are_two_models_to_the_store(opened: Open, name: str) -> None:
    fields: list[dict[str, Any]] = [{}, *({name: value} for value in DECLARED[name] if value)]
    backends = [opened("http://127.0.0.1:1/v1", **given) for given in fields]
    assert len({fingerprint(dict(backend.fingerprint())) for backend in backends}) == len(fields)
    assert len({str(backend._memory._path) for backend in backends}) == len(fields), "nor is one compared with the other"
    assert KEY not in repr([backend.describe() for backend in backends])


def test_without_the_keys_a_model_is_the_one_that_it_was(opened: Open) -> None:
    """The names of answers in stores that were made before these keys were known."""
    backend = opened("http://a/v1", revision="r")
    assert fingerprint(dict(backend.fingerprint())) == "15560440401c48c0f50c2443db0cdb5d495474724fa60d659c555b526ba9b798"
    assert backend._memory._path is not None
    assert backend._memory._path.name == "b5cfbecb1532bc96.json"


def test_a_header_that_is_not_set_is_named(server: ModelServer, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_KEY")
    with pytest.raises(BackendError, match=r"variable AZURE_KEY, which should hold the header api-key to .*, is not set"):
        opened(server.url, headers={"api-key": "AZURE_KEY"}).infer(asks("one"))
    monkeypatch.setenv("AZURE_KEY", f"{KEY}\n")
    with pytest.raises(BackendError, match=r"variable AZURE_KEY holds what no header can be") as caught:
        opened(server.url, headers={"api-key": "AZURE_KEY"}).infer(asks("one"))
    assert KEY not in str(caught.value)
    assert not server.calls


def test_a_key_for_another_server_is_not_sent_beside_headers(
    server: ModelServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OTHER)
    opened(server.url, headers={"api-key": "AZURE_KEY"}).infer(asks("one"))
    assert not [headers for _, headers, _ in server.calls if "authorization" in headers]
    server.calls.clear()
    opened(server.url, headers={"x-team": "AZURE_KEY"}, key_variable="OPENAI_API_KEY").infer(asks("one"))
    assert {headers["authorization"] for _, headers, _ in server.calls} == {f"Bearer {OTHER}"}
    server.calls.clear()
    monkeypatch.setenv("AZURE_KEY", f"Token {KEY}")
    opened(server.url, headers={"Authorization": "AZURE_KEY"}).infer(asks("two"))
    assert {headers["authorization"] for _, headers, _ in server.calls} == {f"Token {KEY}"}


def test_a_header_goes_nowhere_but_to_the_server(
    server: ModelServer, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AZURE_KEY", f"Bearer {KEY}")

    def repeats(body: dict[str, Any]) -> Any:
        if "locked" in json.dumps(body["messages"]):
            return refusal(400, f"Bearer {KEY} is no key, nor is {KEY}")
        return 200, {}, json.dumps({**reply(f"your key is {KEY}"), "model": KEY}).encode()

    server.before = repeats
    heard: list[str] = []
    backend = opened(server.url, headers={"Authorization": "AZURE_KEY"}, heard=heard)
    answers = backend.infer(asks("open", "locked"))
    assert answers[0].text == "your key is (the key)"
    assert "(the key) is no key, nor is (the key)" in answers[1].error
    left = [repr(answers), repr(backend.describe()), repr(heard), caplog.text]
    left += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in left if KEY in text]


# Providers, by the examples of docs/reference/servers.md.


@pytest.mark.parametrize("name", ["azure", "reasoning", "routed", "vllm", "sglang", "llamacpp", "litellm"])
def test_providers_are_asked_as_they_want_it(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server.provider = {
        "azure": azure(KEY),
        "reasoning": openai_reasoning,
        "routed": openrouter(KEY),
        "vllm": vllm(KEY),
        "sglang": sglang,
        "llamacpp": llama_cpp(),
        "litellm": litellm(KEY),
    }[name]
    for variable in ("OPENAI_API_KEY", "OPENROUTER_KEY", "OUR_SITE", "VLLM_KEY", "LITELLM_KEY"):
        monkeypatch.setenv(variable, KEY)
    file = tmp_path / "models.yaml"
    examples = re.findall(r"```yaml\n(models:\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = (example for example in examples if f"\n  {name}:" in example)
    file.write_text(re.sub(r"https?://[a-z.-]+(:\d+)?(/api)?", server.url.removesuffix("/v1"), example))
    ref = read_models(file)[name]
    heard: list[str] = []
    backend = OpenAIBackend(ref, BackendOptions(servers=tmp_path / "servers", notice=heard.append))
    try:
        assert [answer.text for answer in backend.infer(asks("one", "two"))] == ["mean 50"] * 2
    finally:
        backend.close()
    refused = [said for call in server.calls if (said := server.provider(*call))]
    assert [json.loads(content)["error"]["message"] for _, _, content in refused] == (
        ["You are not allowed to request logprobs from this model"] if name == "reasoning" else []
    )
    if name == "llamacpp":
        waited = [heard.pop(0), heard.pop()]
        assert ["Loading model" in waited[0], "answers again" in waited[1]] == [True, True]
    # the stand-in writes "mean 50" whatever it is asked
    assert [said.partition(" begins its answer with ")[2] for said in heard] == (
        [] if name == "reasoning" else ["'m', and with no letter: choices are answered by text"]
    )


def test_azure_with_the_wrong_key_or_without_a_version_says_what_to_do(
    server: ModelServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.provider = azure(KEY)
    url = server.url.replace("/v1", "/openai/deployments/gpt-4o")
    with pytest.raises(BackendError, match=r"status 404: .*Resource not found"):
        opened(url, headers={"api-key": "AZURE_KEY"}).infer(asks("one"))
    monkeypatch.setenv("AZURE_KEY", OTHER)
    with pytest.raises(BackendError, match=r"Access denied .* only where 'key_variable' names it"):
        opened(url, headers={"api-key": "AZURE_KEY"}, query={"api-version": "2026-02-01"}).infer(asks("one"))


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (vllm(KEY), r"status 401: .*Unauthorized"),
        (vllm(OTHER), r"status 404: .*The model `m` does not exist\."),
        (litellm(KEY), r"status 401: .*Invalid proxy server token passed"),
        (lambda *_: (413, {}, b"<html>413</html>"), r"status 413: .*larger than the server, or a proxy before it, takes: raise"),
    ],
    ids=["vllm key", "vllm name", "litellm key", "proxy limit"],
)
def test_what_servers_refuse_is_said_in_their_words(
    server: ModelServer, opened: Open, monkeypatch: pytest.MonkeyPatch, provider: Any, said: str
) -> None:
    server.provider = provider
    monkeypatch.setenv("OPENAI_API_KEY", OTHER)
    with pytest.raises(BackendError, match=said):
        opened(server.url).infer(asks("one"))


def test_a_refusal_of_log_probabilities_is_no_refusal_of_the_model(server: ModelServer, opened: Open) -> None:
    content = json.dumps({"error": {"message": "You are not allowed to request logprobs from this model"}}).encode()
    server.provider = lambda *_: (403, {"Content-Type": "application/json"}, content)
    with pytest.raises(BackendError, match="request logprobs from this model") as refused:
        opened(server.url).infer(asks("one"))
    assert "not allowed to use this model" not in str(refused.value)


def test_a_request_that_is_too_long_for_sglang_fails_in_its_words(server: ModelServer, opened: Open) -> None:
    server.provider = sglang
    (answer,) = opened(server.url).infer([dataclasses.replace(asks("one")[0], max_new_tokens=9000)])
    assert "maximum context length of 8192 tokens" in answer.error


def test_a_parameter_that_litellm_refuses_is_learned(server: ModelServer, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    server.provider = litellm(KEY, thinks=True)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (answer,) = opened(server.url).infer(asks("one"))
    assert (answer.text, answer.method) == ("mean 50", "sample")


def test_a_probe_says_what_was_learned_and_what_is_declared(server: ModelServer) -> None:
    server.provider = openai_reasoning
    ref = ModelRef("m", "openai", f"{server.url}#m", "1", system_prompt="Be brief.", template="Look: {question}", **GREEDY)
    seen = probe(ref, BackendOptions())
    assert seen.usable
    assert seen.deployment == {"system_prompt": "Be brief.", "template": "Look: {question}"}
    assert [fact.split(":")[0] for fact in seen.servers[0].learned] == [
        "refuses max_tokens",
        "refuses temperature 0, so that none is sent",
    ]
    assert "Look: Which colour is most" in json.dumps(about(server, "Which colour is most"))
