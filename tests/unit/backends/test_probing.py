"""What a probe sees of models in this process, and of servers that can much, little or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openai")

from pytest_vlmrobust.backends import BackendOptions, open_backend, resolve
from pytest_vlmrobust.backends.probing import LETTERS, TEXT, ModelProbe, probe
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, LOGIT_BIAS, STRUCTURED_CHOICE, ModelRef, Prediction, Request
from tests.model_server import MODES, ModelServer, Reply, in_mode, reply

pytestmark = pytest.mark.process

TINY = resolve("tiny").location


def sees(request: Request) -> str | Prediction:
    """Answers as the mean colour of its picture says."""
    mean = float(np.mean(request.images[0][..., 0])) if request.images else 0.0
    if not request.choices:
        return f"brightness {mean:.0f}"
    logprobs = dict(zip(request.choices, (-0.1 - mean / 1000, -2.0, -3.0, -4.0), strict=True))
    return Prediction("A", LETTER_LOGITS, logprobs=logprobs)


def is_blind(request: Request) -> str | Prediction:
    """Gives the same answer about every picture."""
    return "a picture" if not request.choices else Prediction("A", LETTER_LOGITS, logprobs=dict.fromkeys(request.choices, -1.4))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(ScriptedBackend(sees, version="1")) as server:
        yield server


def probed(*urls: str, model: str = "m", **fields: Any) -> ModelProbe:
    ref = ModelRef("ours", "openai", f"{','.join(urls)}#{model}", "1", time_limit=5.0, **fields)
    return probe(ref, BackendOptions())


def constrained(body: dict[str, Any]) -> Reply | None:
    """Keeps to schemas, as servers do that can."""
    if "response_format" not in body:
        return None
    (*_, letter) = body["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"]
    return 200, {}, json.dumps(reply(json.dumps({"answer": letter}))).encode()


def test_a_server_that_gives_log_probabilities_is_asked_by_letters(server: ModelServer) -> None:
    seen = probed(server.url)
    assert seen.usable
    assert (seen.model, seen.backend, seen.revision, seen.answer, seen.pictures) == ("ours", "openai", "1", LETTERS, True)
    assert seen.evidence == "other images get other answers"
    (only,) = seen.servers
    assert (only.url, only.problem, only.engine, only.models) == (server.url, "", "test-engine", ("m",))
    assert dict(only.ways) == {
        LETTERS: "",
        STRUCTURED_CHOICE: "it does not keep to a schema",
        LOGIT_BIAS: "no tokenizer is declared (tokenizer: in a models file)",
        TEXT: "",
    }
    assert (seen.at_once, seen.at_once_failed) == (16, 0)
    assert seen.picture_tokens == {"224x224": 0, "448x448": 0}, "this server counts 7 tokens whatever it is asked"


def test_a_server_that_keeps_to_schemas_is_asked_by_them(server: ModelServer) -> None:
    server.letters, server.before = False, constrained
    seen = probed(server.url)
    assert (seen.answer, seen.usable) == (STRUCTURED_CHOICE, True)
    assert dict(seen.servers[0].ways)[STRUCTURED_CHOICE] == ""
    assert dict(seen.servers[0].ways)[LETTERS] == "it gives no log-probabilities"


@pytest.mark.parametrize("mode", MODES)
def test_a_probe_says_how_a_server_begins_its_answers(server: ModelServer, mode: str) -> None:
    server.before = in_mode(mode, lambda body: "C" if "image_url" in str(body) else "A", keeps_to_schema=True)
    seen = probed(server.url)
    ways = dict(seen.servers[0].ways)
    if mode in ("lp_sp", "lp_bpe"):
        assert (ways[LETTERS], seen.answer) == ("", LETTERS)
        return
    writes = mode in ("think_logprobs", "reasoning_logprobs")
    where = ", in its field for reasoning" if mode == "reasoning_logprobs" else ""
    assert ways[LETTERS] == f"it begins its answer with {MODES[mode][1][0]!r}{where}, and with no letter"
    assert ways[STRUCTURED_CHOICE] == ("not tried: it writes before it answers" if writes else "")
    assert seen.answer == (TEXT if writes else STRUCTURED_CHOICE)


def test_a_server_that_follows_a_bias_is_asked_by_it_where_its_tokenizer_is_declared(server: ModelServer) -> None:
    from pytest_vlmrobust.backends.generation import letters_of
    from pytest_vlmrobust.backends.loading import ModelSource, load_tokenizer

    letters = letters_of(*load_tokenizer(ModelSource(TINY, offline=True)), ("A", "B", "C", "D")).ids

    def biased(body: dict[str, Any]) -> Reply | None:
        raised = set(map(int, body.get("logit_bias", {})))
        named = [letter for letter, ids in letters.items() if raised & set(ids)]
        return (200, {}, json.dumps(reply(named[0], finish="length")).encode()) if named else None

    server.letters, server.before = False, biased
    seen = probed(server.url, tokenizer=TINY)
    assert dict(seen.servers[0].ways)[LOGIT_BIAS] == ""
    assert (seen.answer, seen.pictures) == (LOGIT_BIAS, True)
    server.before = lambda _body: None
    assert dict(probed(server.url, tokenizer=TINY).servers[0].ways)[LOGIT_BIAS] == "it does not follow a bias"


def test_pictures_that_change_nothing_do_not_reach_the_model(server: ModelServer) -> None:
    server.backend = ScriptedBackend(is_blind, version="1")
    seen = probed(server.url)
    assert (seen.usable, seen.pictures) == (False, False)
    words = "images do not reach the model: other images get the same answers, and no tokens are counted for them"
    assert seen.problem == words


def test_a_server_that_reasons_first_gets_the_tokens_of_a_gate(server: ModelServer) -> None:
    server.letters, answered_before, needed = False, server.answered, 300

    def answered(body: dict[str, Any]) -> Reply:
        cut = reply(None, finish="length", reasoning_content="The image")  # type: ignore[arg-type]  # as reasoning parsers send it
        return answered_before(body) if body["max_tokens"] > needed else (200, {}, json.dumps(cut).encode())

    server.answered = answered  # type: ignore[method-assign]  # a server with a reasoning parser
    seen = probed(server.url)
    assert (seen.usable, seen.answer, seen.evidence) == (True, TEXT, "other images get other answers")
    needed = 3000
    seen = probed(server.url)
    assert seen.problem.startswith("the model writes no answer within 2,048 tokens: it may reason for longer. Raise generation:")


def test_tokens_of_pictures_are_counted_by_size(server: ModelServer) -> None:
    server.backend = ScriptedBackend(is_blind, version="1")

    answered_before = server.answered

    def answered(body: dict[str, Any]) -> Reply:
        status, headers, content = answered_before(body)
        answer = json.loads(content)
        answer["usage"]["prompt_tokens"] = 7 + 64 * sum(part["type"] == "image_url" for part in body["messages"][0]["content"])
        return status, headers, json.dumps(answer).encode()

    server.answered = answered  # type: ignore[method-assign]  # a server that counts
    seen = probed(server.url)
    assert seen.picture_tokens == {"224x224": 64, "448x448": 64}
    assert (seen.usable, seen.evidence) == (True, "other images get the same answers, but tokens are counted")


def test_a_server_that_takes_no_pictures_is_of_no_use(server: ModelServer) -> None:
    def refuses(body: dict[str, Any]) -> Reply | None:
        if all(part["type"] == "text" for part in body["messages"][0]["content"]):
            return None
        return 400, {}, json.dumps({"error": {"message": "this model takes no images"}}).encode()

    server.before = refuses
    seen = probed(server.url)
    assert not seen.usable
    assert "it answers without an image, and not with one: " in seen.servers[0].problem
    assert "this model takes no images" in seen.servers[0].problem


def test_one_of_two_replicas_may_be_out_of_reach(server: ModelServer) -> None:
    seen = probed(server.url, "http://127.0.0.1:1/v1")
    assert (seen.usable, seen.answer) == (True, LETTERS)
    assert [server.problem.partition(" (")[0] for server in seen.servers] == ["", "http://127.0.0.1:1/v1 cannot be reached"]


def test_a_server_that_is_not_there_is_of_no_use() -> None:
    seen = probed("http://127.0.0.1:1/v1")
    assert (seen.usable, seen.problem) == (False, "no server answers questions about images")
    assert "cannot be reached" in seen.servers[0].problem


def test_a_name_that_the_server_does_not_have_is_unknown(server: ModelServer) -> None:
    error = json.dumps({"error": {"message": "no such model"}}).encode()
    server.before = lambda body: (404, {}, error) if body["model"] != "m" else None
    with pytest.raises(UnknownName, match=rf"{server.url}: unknown model 'mm'\. Did you mean 'm'\? Known: m"):
        probed(server.url, model="mm")


def test_a_key_that_is_refused_is_no_unknown_name_and_is_not_repeated(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-a-secret-that-nothing-may-repeat-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server.before = lambda _body: (401, {}, json.dumps({"error": {"message": f"bad key {key}"}}).encode())
    seen = probed(server.url)
    assert not seen.usable
    assert "status 401" in seen.servers[0].problem
    assert key not in repr(seen)


def test_a_variable_that_is_named_and_not_set_is_said(server: ModelServer) -> None:
    assert "THEIR_KEY" in probed(server.url, key_variable="THEIR_KEY").problem


@pytest.fixture(scope="module")
def tiny() -> ModelProbe:
    return probe(resolve("tiny"), BackendOptions(device="cpu"))


def test_the_embedded_model_sees_pictures_and_counts_their_tokens(tiny: ModelProbe) -> None:
    assert (tiny.usable, tiny.answer, tiny.pictures, tiny.servers) == (True, LETTERS, True, ())
    assert tiny.picture_tokens["224x224"] < tiny.picture_tokens["448x448"]
    assert tiny.at_once_failed == 0


def test_what_a_probe_says_is_what_a_gate_does(server: ModelServer) -> None:
    backend = open_backend(ModelRef("ours", "openai", f"{server.url}#m", "1"))
    assert probed(server.url).answer == backend.fingerprint()["answer"]
    backend.close()


def test_scripted_answers_look_at_no_pixels(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("default: B")
    seen = probe(resolve(f"scripted:{tmp_path}/m.yaml"), BackendOptions())
    assert (seen.usable, seen.pictures, seen.answer) == (True, None, TEXT)


def test_a_checkpoint_that_does_not_load_is_of_no_use(copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2_vl")
    (folder / "model.safetensors").write_bytes(b"no weights")
    seen = probe(resolve(str(folder)), BackendOptions(device="cpu"))
    assert not seen.usable
    assert "does not load" in seen.problem
