"""The backend for OpenAI-compatible servers, held against servers that behave and servers that do not."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import logging
import socket
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openai")
pytest.importorskip("pytest_httpserver")

from pytest_httpserver import HTTPServer
from werkzeug import Request as Sent
from werkzeug import Response

from pytest_vlmrobust.backends import BackendOptions, client, replicas
from pytest_vlmrobust.backends.openai import OpenAIBackend
from pytest_vlmrobust.backends.resolve import resolve
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.backends.served import EASY_QUESTION, LETTERS_QUESTION, QUESTIONS
from pytest_vlmrobust.core.errors import BackendError, MissingExtra, OfflineError
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import score
from tests.model_server import MODES, ModelServer, Reply, in_mode, read_request, reply

pytestmark = pytest.mark.process

KEY = "sk-a-secret-that-nothing-may-repeat-0123456789"
FAST = 0.02
Answer = Callable[[dict[str, Any]], "Response | dict[str, Any]"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short here, and nothing of this machine's environment is sent."""
    monkeypatch.setattr(replicas, "_FIRST_PAUSE", FAST)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def threaded() -> Iterator[HTTPServer]:
    """A server that answers several requests at once, which that of the plugin does not."""
    with HTTPServer(threaded=True) as server:
        yield server


@pytest.fixture
def httpserver(threaded: HTTPServer) -> HTTPServer:
    threaded.clear()
    return threaded


class Faulty:
    """A server whose answers a test decides; the fixed questions, by which servers are told apart, it answers well."""

    def __init__(self, server: HTTPServer) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answer: Answer = lambda _body: reply("A", logprobs={"A": -0.1, "B": -2.0})
        self.letters = True
        self.keeps_to: Callable[[dict[str, Any]], dict[str, Any] | Response | None] = lambda _body: None
        """What it answers where it is kept to choices; None where it does as if nobody had said so."""
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self.url = server.url_for("/v1")
        server.expect_request("/v1/chat/completions").respond_with_handler(self._handle)

    def _handle(self, sent: Sent) -> Response:
        body = sent.get_json()
        text = body["messages"][0]["content"][-1]["text"]
        kept = self.keeps_to(body)
        if text == LETTERS_QUESTION and kept is not None:
            return as_response(kept)
        if text in (*QUESTIONS, LETTERS_QUESTION):
            return as_response(reply(f"about {text}", logprobs={"C": -0.1} if self.letters and body.get("logprobs") else None))
        with self._lock:
            self.bodies.append({**body, "headers": dict(sent.headers), "socket": sent.environ["werkzeug.socket"]})
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return as_response(self.answer(self.bodies[-1] | body))
        finally:
            with self._lock:
                self._at_once -= 1

    @property
    def texts(self) -> list[str]:
        return [body["messages"][0]["content"][-1]["text"] for body in self.bodies]


def as_response(content: Response | dict[str, Any]) -> Response:
    return content if isinstance(content, Response) else Response(json.dumps(content), content_type="application/json")


def text_of(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"][-1]["text"])


@pytest.fixture
def server(httpserver: HTTPServer) -> Faulty:
    return Faulty(httpserver)


Open = Callable[..., OpenAIBackend]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens backends that are closed at the end; ``heard`` has what they gave notice of."""
    backends: list[OpenAIBackend] = []

    def make(
        *urls: str, revision: str = "1", offline: bool = False, heard: list[str] | None = None, **fields: Any
    ) -> OpenAIBackend:
        ref = ModelRef("m", "openai", f"{','.join(urls)}#m", revision, **fields)
        notices = [] if heard is None else heard
        options = BackendOptions(servers=tmp_path / "servers", offline=offline, notice=notices.append)
        backends.append(OpenAIBackend(ref, options))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()


def asks(*texts: str, choices: Sequence[str] = (), pixels: bool = True) -> list[Request]:
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    return [Request(text, (image,) if pixels else (), text, tuple(choices), max_new_tokens=5, sample_id=text) for text in texts]


def numbered(count: int) -> list[Request]:
    return asks(*(f"q{number}" for number in range(count)))


def echo(body: dict[str, Any]) -> dict[str, Any]:
    return reply(f"answer to {text_of(body)}")


def test_a_choice_is_answered_by_the_letter_of_the_highest_log_probability(server: Faulty, opened: Open) -> None:
    server.answer = lambda _body: reply("The", logprobs={"The": -0.2, " B": -1.5, "A": -2.5, "B": -3.0, "b": -1.0})
    backend = opened(server.url)
    (prediction,) = backend.infer(asks("Which?", choices="ABC"))
    assert (prediction.text, prediction.method, dict(prediction.logprobs)) == ("B", "letter_logits", {"A": -2.5, "B": -1.5})
    assert prediction.details["letters_listed"] == 2, "C is not listed: that is said, and no number is made up for it"
    body = server.bodies[0]
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"], body["temperature"]) == (1, True, 20, 0.0)
    assert backend.fingerprint()["answer"] == "letters"


def test_where_the_server_gives_no_log_probabilities_all_is_answered_by_text(server: Faulty, opened: Open) -> None:
    server.letters, server.answer = False, echo
    backend = opened(server.url)
    (prediction,) = backend.infer(asks("Which?", choices="ABC"))
    assert (prediction.text, prediction.method, dict(prediction.logprobs)) == ("answer to Which?", "generate", {})
    assert backend.fingerprint()["answer"] == "text"
    assert "logprobs" not in server.bodies[0]


def by_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """Answers as a server that keeps to a JSON schema: with the last of what it allows."""
    if "response_format" not in body:
        return None
    schema = body["response_format"]["json_schema"]["schema"]
    return reply(json.dumps({"answer": schema["properties"]["answer"]["enum"][-1]}, indent=1))


def test_a_server_that_keeps_to_a_schema_answers_choices_by_it(server: Faulty, opened: Open) -> None:
    server.letters, server.keeps_to = False, by_schema
    server.answer = lambda body: by_schema(body) or echo(body)
    backend = opened(server.url)
    choice, text = backend.infer([*asks("Which?", choices=("Yes", "No")), *asks("What?")])
    assert (choice.text, choice.method, choice.finish_reason) == ("No", "structured_choice", "stop")
    assert (text.text, text.method) == ("answer to What?", "generate")
    assert backend.fingerprint()["answer"] == "structured_choice"
    assert opened(server.url, offline=True).fingerprint() == backend.fingerprint(), "the store remembers it"
    assert backend.check() == ""


@pytest.mark.parametrize(
    "keeps_to",
    [
        lambda body: reply('{"answer": "D"}') if "response_format" in body else None,
        lambda body: reply("C. red") if "response_format" in body else None,
        lambda body: Response("unknown field", 400) if "response_format" in body else None,
        lambda body: Response("cannot do that", 500) if "response_format" in body else None,
    ],
    ids=["says one thing always", "silently ignored", "refused", "a crash"],
)
def test_a_server_that_does_not_keep_to_a_schema_is_asked_for_text(server: Faulty, opened: Open, keeps_to: Answer) -> None:
    server.letters, server.keeps_to, server.answer = False, keeps_to, echo
    backend = opened(server.url)
    assert backend.infer(asks("Which?", choices="AB"))[0].method == "generate"
    assert backend.fingerprint()["answer"] == "text"


def test_a_schema_that_is_kept_to_no_longer_is_an_error_and_nothing_is_answered_by_text(server: Faulty, opened: Open) -> None:
    server.letters, server.keeps_to, server.answer = False, by_schema, echo
    (prediction,) = opened(server.url).infer(asks("Which?", choices="AB"))
    assert (prediction.finish_reason, prediction.text, prediction.method) == ("error", "", "structured_choice")
    assert "answered 'answer to Which?', none of the choices that it was kept to when it was first asked" in prediction.error
    server.keeps_to = lambda _body: None
    with pytest.raises(BackendError, match="is no longer kept to letters by structured_choice"):
        opened(server.url).infer(asks("Which?", choices="AB"))


def thinks_first(body: dict[str, Any]) -> Reply:
    """Keeps to a schema, and thinks before it answers: not long about the fixed choice."""
    thought = body["max_tokens"] < (20 if text_of(body) == LETTERS_QUESTION else 100)
    answer = reply("", finish="length") if thought else by_schema(body) or echo(body)
    return 200, {}, json.dumps(answer).encode()


@pytest.mark.parametrize(
    ("effort", "method", "text"),
    [("minimal", "generate", "answer to Which?"), ("none", "structured_choice", "B"), ("", "structured_choice", "B")],
)
def test_a_model_that_thinks_first_has_room_for_it(opened: Open, effort: str, method: str, text: str) -> None:
    heard: list[str] = []
    with ModelServer(model(fine), before=thinks_first) as served:
        (request,) = asks("Which?", choices="AB")
        backend = opened(served.url, heard=heard, reasoning_effort=effort)
        (prediction,) = backend.infer([dataclasses.replace(request, max_new_tokens=256)])
    assert (prediction.method, prediction.text, prediction.error) == (method, text, "")
    assert "gives no answer within 16 tokens" in str(heard)


def test_a_server_whose_tokenizer_is_known_is_kept_to_letters_by_a_bias(server: Faulty, opened: Open) -> None:
    pytest.importorskip("transformers")
    from pytest_vlmrobust.backends.loading import ModelSource, load_tokenizer

    tiny = resolve("tiny").location
    tokenizer, _ = load_tokenizer(ModelSource(tiny, offline=True))

    def by_bias(body: dict[str, Any]) -> dict[str, Any] | None:
        assert all(bias == 100 for bias in body.get("logit_bias", {}).values())
        return reply(tokenizer.decode([int(list(body["logit_bias"])[-1])]), finish="length") if "logit_bias" in body else None

    server.letters, server.keeps_to = False, by_bias
    server.answer = lambda body: by_bias(body) or echo(body)
    backend = opened(server.url, tokenizer=tiny)
    (prediction,) = backend.infer(asks("Which?", choices="ABC"))
    assert (prediction.text, prediction.method, prediction.finish_reason) == ("C", "logit_bias", "stop")
    assert server.bodies[-1]["max_tokens"] == 1
    with pytest.raises(BackendError, match="are by logit_bias, which needs the tokenizer"):
        opened(server.url).infer(asks("Which?", choices="ABC"))


def test_log_probabilities_that_cease_are_an_error_and_nothing_is_answered_by_text(server: Faulty, opened: Open) -> None:
    server.answer = echo
    (prediction,) = opened(server.url).infer(asks("Which?", choices="AB"))
    assert (prediction.finish_reason, prediction.text, prediction.method) == ("error", "", "letter_logits")
    assert "sent no log-probabilities, by which all choices of this run are answered" in prediction.error
    assert len(server.bodies) == 1


def test_what_is_sent_is_the_picture_to_the_last_bit_and_always_a_limit(server: Faulty, opened: Open) -> None:
    server.answer = echo
    requests = asks("What is it?")
    opened(server.url).infer(requests)
    (body,) = server.bodies
    assert (read_request(body).images[0] == requests[0].images[0]).all()
    assert {key: body[key] for key in ("model", "max_tokens", "temperature")} == {
        "model": "m",
        "max_tokens": 5,
        "temperature": 0.0,
    }
    assert body["headers"]["Authorization"] == "Bearer EMPTY"


def test_sampling_sends_its_parameters_and_a_seed_of_the_request(server: Faulty, opened: Open) -> None:
    server.answer = echo
    backend = opened(server.url, generation={"temperature": 0.7, "top_k": 5})
    predictions = backend.infer(asks("one", "two"))
    assert {prediction.method for prediction in predictions} == {"sample"}
    assert {body["top_k"] for body in server.bodies} == {5}
    assert len({body["seed"] for body in server.bodies}) == 2


def test_answers_come_back_in_the_order_of_the_requests_whichever_is_first(server: Faulty, opened: Open) -> None:
    def late(body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.15 if text_of(body) in ("q0", "q3") else 0.0)
        return echo(body)

    server.answer = late
    answers = opened(server.url).infer(numbered(6))
    assert [prediction.text for prediction in answers] == [f"answer to q{number}" for number in range(6)]
    assert len(server.bodies) == 6


def test_a_burst_of_429_is_waited_out_and_narrows_the_window(server: Faulty, opened: Open) -> None:
    began: list[float] = []

    def busy(body: dict[str, Any]) -> Response | dict[str, Any]:
        began.append(time.monotonic())
        if len(began) <= 4:
            return Response("{}", 429, {"Retry-After": "0.4"}, content_type="application/json")
        return echo(body)

    server.answer = busy
    backend = opened(server.url)
    assert backend.lanes == replicas.START
    answers = backend.infer(numbered(4))
    assert [prediction.finish_reason for prediction in answers] == ["stop"] * 4
    assert began[4] - began[0] >= 0.4, "the server said when to come again"
    assert backend.lanes < replicas.START
    assert Counter(server.texts) == {f"q{number}": 2 for number in range(4)}


def test_a_wait_longer_than_the_limit_is_an_error_that_says_so(server: Faulty, opened: Open) -> None:
    server.answer = lambda _body: Response("{}", 429, {"Retry-After": "3600"}, content_type="application/json")
    (prediction,) = opened(server.url, time_limit=0.3).infer(numbered(1))
    assert prediction.finish_reason == "error"
    assert "wants to be asked again only after 3600 s" in prediction.error


def test_a_web_page_at_the_first_look_is_a_wrong_address_and_is_not_asked_again(httpserver: HTTPServer, opened: Open) -> None:
    httpserver.expect_request("/chat/completions").respond_with_data("<html>hello</html>", content_type="text/html")
    with pytest.raises(BackendError, match=r"sent a web page in place of an answer.*ends in /v1"):
        opened(httpserver.url_for("")).infer(numbered(1))
    assert sum(sent.path.endswith("completions") for sent, _ in httpserver.log) == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: Response("on fire", 500), "answered with status 500"),
        (lambda: Response("gateway", 502), "answered with status 502"),
        (lambda: Response('{"choices": [', content_type="application/json"), "sent something that is not JSON"),
        (lambda: Response("<html>hello</html>", content_type="text/html"), "sent something that is not JSON"),
        (lambda: Response("[" * 100_000, content_type="application/json"), "sent something that is not JSON"),
        (lambda: Response("[]", content_type="application/json"), "sent a reply without choices"),
        (lambda: Response('{"choices": []}', content_type="application/json"), "sent a reply without choices"),
        (lambda: Response('{"choices": [{"message": null}]}', content_type="application/json"), "a choice without a message"),
        (lambda: as_response(reply("x", finish="abort")), "an answer that ended with 'abort'"),
    ],
)
def test_a_fault_is_tried_again_and_then_an_error_of_that_request_alone(
    server: Faulty, opened: Open, bad: Callable[[], Response], words: str
) -> None:
    counts: Counter[str] = Counter()

    def sometimes(body: dict[str, Any]) -> Response | dict[str, Any]:
        counts[text_of(body)] += 1
        broken = text_of(body) == "never" or (text_of(body) == "at first" and counts["at first"] == 1)
        return bad() if broken else echo(body)

    server.answer = sometimes
    never, at_first, fine = opened(server.url).infer(asks("never", "at first", "fine"))
    assert never.finish_reason == "error"
    assert words in never.error
    assert [at_first.text, fine.text] == ["answer to at first", "answer to fine"]
    assert (counts["at first"], counts["fine"]) == (2, 1)
    assert 1 < counts["never"] <= 8


def test_a_dropped_connection_is_tried_again(server: Faulty, opened: Open) -> None:
    dropped: list[str] = []

    def drop_once(body: dict[str, Any]) -> Response | dict[str, Any]:
        if text_of(body) not in dropped:
            dropped.append(text_of(body))
            body["socket"].shutdown(socket.SHUT_RDWR)
        return echo(body)

    server.answer = drop_once
    backend = opened(server.url)
    answers = backend.infer(numbered(5))
    assert [prediction.text for prediction in answers] == [f"answer to q{number}" for number in range(5)]
    assert backend.lanes < replicas.START


def test_a_server_that_hangs_is_given_up_at_the_time_limit(server: Faulty, opened: Open) -> None:
    go_on = threading.Event()

    def hang(body: dict[str, Any]) -> dict[str, Any]:
        if text_of(body) == "hang":
            go_on.wait(60)
        return echo(body)

    server.answer = hang
    answers = opened(server.url, time_limit=2.0).infer(asks("hang", *(f"q{number}" for number in range(12))))
    assert not go_on.is_set()
    go_on.set()
    assert answers[0].finish_reason == "error"
    assert "did not answer within 2 s (2 times)" in answers[0].error or "no answer within 2 s (2 times)" in answers[0].error
    assert {prediction.finish_reason for prediction in answers[1:]} == {"stop"}


@pytest.mark.parametrize("count", [5, 8])
def test_a_server_that_hangs_for_all_is_lost_and_noticed_fast_afterwards(server: Faulty, opened: Open, count: int) -> None:
    """Of five questions, one has failed by itself, twice, when the server is given up."""
    go_on = threading.Event()

    def hang(body: dict[str, Any]) -> dict[str, Any]:
        go_on.wait(60)
        return echo(body)

    server.answer, heard = hang, list[str]()
    backend = opened(server.url, time_limit=0.3, heard=heard)
    with pytest.raises(BackendError, match=f"model 'm': {server.url} did not answer for 3 time limits of 0.3 s") as lost:
        backend.infer(numbered(count))
    assert "Look at the server, and start the run again: answers already given are in the store" in str(lost.value)
    n_requests, began = len(server.bodies), time.monotonic()
    for _ in range(2):
        with pytest.raises(BackendError, match="did not answer for 3 time limits"):
            backend.infer(numbered(1))
        backend.close()
    assert "did not answer for 3 time limits" in backend.check()
    assert time.monotonic() - began < 30
    assert len(server.bodies) == n_requests, "it is not asked again, also after the backend was closed for another model"
    assert heard == [f"model 'm': {server.url} did not answer for 3 time limits of 0.3 s, one after the other: its tests end now"]
    go_on.set()


def test_what_is_in_flight_can_be_given_up(server: Faulty, opened: Open) -> None:
    go_on = threading.Event()

    def hang(body: dict[str, Any]) -> dict[str, Any]:
        go_on.wait(60)
        return echo(body)

    server.answer = hang
    backend = opened(server.url)
    backend.fingerprint()
    backend._ready()
    threading.Timer(0.3, backend.give_up).start()
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(BackendError, match="model 'm': the run ended while it was asked"):
            backend.infer(numbered(3))
    assert time.monotonic() - began < 30
    go_on.set()
    backend.close()
    server.answer = echo
    assert backend.infer(numbered(1))[0].text == "answer to q0"


def test_a_server_that_hangs_when_it_is_first_looked_at_can_be_given_up(httpserver: HTTPServer, opened: Open) -> None:
    go_on = threading.Event()
    httpserver.expect_request("/v1/chat/completions").respond_with_handler(lambda _sent: Response(str(go_on.wait(60))))
    backend = opened(httpserver.url_for("/v1"))
    threading.Timer(0.3, backend.give_up).start()
    began = time.monotonic()
    with pytest.raises(BackendError, match="model 'm': the run ended while it was asked"):
        backend.infer(numbered(1))
    assert time.monotonic() - began < 30
    go_on.set()


def test_a_server_can_be_given_up_before_it_is_first_asked(server: Faulty, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened(server.url)
    client = backend._client

    def given_up_meanwhile(url: str) -> Any:
        backend.give_up()
        return client(url)

    monkeypatch.setattr(backend, "_client", given_up_meanwhile)
    with pytest.raises(BackendError, match="model 'm': the run ended while it was asked"):
        backend.infer(numbered(1))
    assert server.bodies == []


def test_an_answer_that_drips_is_given_up_at_the_time_limit(opened: Open) -> None:
    """Each byte comes before the time limit of a read ends, and the whole never does."""
    with ModelServer(ScriptedBackend(lambda _request: "fine", version="1")) as good:
        drip = threading.Thread(target=_drip, args=(listener := socket.create_server(("127.0.0.1", 0)),), daemon=True)
        backend = opened(good.url)
        backend.infer(numbered(1))
        drip.start()
        ready = backend._ready()
        broken = client.Client(
            f"http://127.0.0.1:{listener.getsockname()[1]}/v1", ModelRef("m", "openai", "http://a/v1#m"), limit=0.5
        )
        began = time.monotonic()
        with pytest.raises(replicas.Failure, match=r"no answer within 0\.5 s"):
            ready.run(replicas.persistently(lambda: broken.call({"messages": []}), "k", 0.5))
        assert time.monotonic() - began < 30
        ready.run(broken.close())
        listener.close()


def _drip(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_drip_into, args=(connection,), daemon=True).start()


def _drip_into(connection: socket.socket) -> None:
    try:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1200):
            connection.sendall(b" ")
            time.sleep(0.05)
    except OSError:
        pass
    finally:
        connection.close()


def test_an_endless_answer_is_not_read_to_its_end(server: Faulty, opened: Open) -> None:
    server.answer = lambda _body: reply("x" * (10 * 2**20))
    (prediction,) = opened(server.url).infer(numbered(1))
    assert prediction.finish_reason == "error"
    assert "sent more than 4 MiB in answer to one request" in prediction.error
    assert len(server.bodies) == 4


def test_packed_replies_are_refused_before_they_are_unpacked(server: Faulty, opened: Open) -> None:
    """64 replies of 128 MiB, each packed into 128 KiB, by a server that was offered no packing."""
    packed = gzip.compress(b" " * (128 * 2**20), 9)
    server.answer = lambda _body: Response(packed, content_type="application/json", headers={"Content-Encoding": "gzip"})
    backend = opened(server.url)
    backend._ready()
    tracemalloc.start()
    try:
        with pytest.raises(BackendError, match=f"{server.url} sends replies with Content-Encoding 'gzip', although none but"):
            backend.infer(numbered(64))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 64 * 2**20


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP, gzip", "identity", ""])
def test_only_replies_that_are_not_packed_are_read(server: Faulty, opened: Open, encoding: str) -> None:
    server.answer = lambda body: Response(
        json.dumps(echo(body)), content_type="application/json", headers={"Content-Encoding": encoding}
    )
    backend = opened(server.url)
    if encoding in ("identity", ""):
        assert backend.infer(numbered(1))[0].text == "answer to q0"
        return
    with pytest.raises(BackendError, match=f"model 'm': {server.url} sends replies with Content-Encoding '{encoding.lower()}'"):
        backend.infer(numbered(1))
    assert len(server.bodies) == 1, "trying again would mend nothing"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["host", "port", "scheme"])
def test_a_redirect_to_another_server_is_refused_and_sends_it_nothing(
    server: Faulty, opened: Open, status: int, where: str
) -> None:
    with HTTPServer(threaded=True) as other:
        Faulty(other)
        port = str(other.port)
        there = {
            "host": f"http://127.0.0.1:{port}",
            "port": f"http://localhost:{port}",
            "scheme": server.url.replace("http", "https"),
        }
        target = there[where].removesuffix("/v1")
        server.answer = lambda _body: Response("", status, headers={"Location": f"{target}/v1/chat/completions"})
        with pytest.raises(BackendError, match=f"{server.url} redirects to {target}, and questions are sent to no server but"):
            opened(server.url).infer(numbered(1))
        assert other.log == []
    assert len(server.bodies) == 1


def test_a_redirect_within_a_server_is_followed(server: Faulty, httpserver: HTTPServer, opened: Open) -> None:
    httpserver.expect_request("/old/v1/chat/completions").respond_with_handler(
        lambda _sent: Response("", 307, headers={"Location": "/v1/chat/completions"})
    )
    server.answer = echo
    assert opened(httpserver.url_for("/old/v1")).infer(numbered(1))[0].text == "answer to q0"


def filtered(_body: dict[str, Any]) -> Response:
    error = {"error": {"message": "The prompt was filtered", "code": "content_filter", "type": None, "param": "prompt"}}
    return Response(json.dumps(error), 400, content_type="application/json")


@pytest.mark.parametrize(
    ("answer", "finish", "text"),
    [
        (lambda _body: reply("", refusal="I can't help with that"), "refusal", "I can't help with that"),
        (lambda _body: reply("A", finish="content_filter"), "content_filter", "A"),
        (filtered, "content_filter", ""),
        (lambda _body: reply(""), "empty", ""),
        (lambda _body: reply(None), "empty", ""),  # type: ignore[arg-type]  # as some servers write it
        (lambda _body: reply("The answer", finish="length"), "length", "The answer"),
        (lambda _body: reply(None, finish="length", reasoning_content="hmm"), "length", ""),  # type: ignore[arg-type]
        (lambda _body: reply("A"), "stop", "A"),
    ],
    ids=["refusal", "filtered answer", "filtered question", "empty", "null", "cut off", "cut off in thought", "answer"],
)
def test_how_an_answer_ended_is_kept(server: Faulty, opened: Open, answer: Answer, finish: str, text: str) -> None:
    server.answer = answer
    (prediction,) = opened(server.url).infer(asks("Which?"))
    assert (prediction.finish_reason, prediction.text, prediction.error) == (finish, text, "")


@pytest.mark.parametrize(
    ("answer", "finish", "words"),
    [
        (lambda _body: reply("B", finish="DONE"), "stop", "ends answers with the unknown finish_reason 'DONE'"),
        (
            lambda _body: reply(None, reasoning="It is B"),  # type: ignore[arg-type]  # as some servers write it
            "only_reasoning",
            "sends answers without content, and the text is in the field reasoning: 'It is B'. Such answers are not read",
        ),
    ],
    ids=["unknown end", "only reasoning"],
)
def test_what_is_odd_about_answers_is_said_once(server: Faulty, opened: Open, answer: Answer, finish: str, words: str) -> None:
    server.answer, heard = answer, list[str]()
    answers = opened(server.url, heard=heard).infer(numbered(3))
    assert [prediction.finish_reason for prediction in answers] == [finish] * 3
    (notice,) = heard
    assert words in notice


@pytest.mark.parametrize(
    "busy",
    [
        {"error": {"message": "slow down", "code": 429}},
        {"error": {"message": "slow down", "code": "429"}},
        {"error": {"message": "slow down", "code": "rate_limit_exceeded"}},
        {"object": "error", "message": "slow down", "type": "rate_limit_error"},
        {"choices": [{"error": {"message": "slow down", "code": 429}, "finish_reason": "error", "message": {"content": ""}}]},
    ],
)
def test_a_429_in_a_reply_of_success_is_waited_for(server: Faulty, opened: Open, busy: dict[str, Any]) -> None:
    server.answer = lambda _body: busy if len(server.bodies) <= 6 else reply("B")
    (prediction,) = opened(server.url).infer(numbered(1))
    assert (prediction.text, prediction.error) == ("B", "")
    assert len(server.bodies) == 7, "more often than a fault is tried again"


@pytest.mark.parametrize(
    ("error", "words", "tries"),
    [
        ({"message": "no such image", "code": 400}, "answered with status 200 and the error 400: no such image", 1),
        (
            {"message": "out of credits", "type": "billing"},
            "answered with status 200 and the error billing: out of credits (4",
            4,
        ),
        ("the provider is asleep", "answered with status 200 and the error it sent: the provider is asleep (4 times)", 4),
        ({"message": "upstream", "code": 500}, "answered with status 200 and the error 500: upstream (4 times)", 4),
    ],
)
def test_an_error_in_a_reply_of_success_keeps_its_words(server: Faulty, opened: Open, error: Any, words: str, tries: int) -> None:
    server.answer = lambda _body: {"error": error}
    (prediction,) = opened(server.url).infer(numbered(1))
    assert prediction.finish_reason == "error"
    assert words in prediction.error
    assert len(server.bodies) == tries


def test_an_error_in_a_reply_of_success_is_a_filter_or_a_key_that_is_refused_as_well(server: Faulty, opened: Open) -> None:
    server.answer = lambda _body: {"error": {"message": "filtered", "code": "content_filter"}}
    assert opened(server.url).infer(numbered(1))[0].finish_reason == "content_filter"
    server.answer = lambda _body: {"error": {"message": "who are you", "code": 401}}
    with pytest.raises(BackendError, match=r"error 401: who are you\. Set the key in the environment"):
        opened(server.url).infer(numbered(1))


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (lambda _body: reply("", refusal="no"), "refusal"),
        (filtered, "content_filter"),
        (lambda _body: reply("x", logprobs={"x": -0.1, "y": -0.2}), "no_letter"),
        (lambda _body: {"choices": [{"message": {"content": ""}, "logprobs": {"content": []}}]}, "empty"),
    ],
)
def test_a_letter_that_is_not_given_is_no_letter(server: Faulty, opened: Open, answer: Answer, finish: str) -> None:
    server.answer = answer
    (prediction,) = opened(server.url).infer(asks("Which?", choices="AB"))
    assert (prediction.finish_reason, prediction.method, dict(prediction.logprobs)) == (finish, "letter_logits", {})


def test_a_request_that_is_refused_is_not_repeated(server: Faulty, opened: Open) -> None:
    server.answer = lambda _body: Response('{"error": {"message": "too many tokens"}}', 400, content_type="application/json")
    (prediction,) = opened(server.url).infer(numbered(1))
    assert prediction.finish_reason == "error"
    assert "status 400: " in prediction.error
    assert "too many tokens" in prediction.error
    assert len(server.bodies) == 1


@pytest.mark.parametrize(("status", "words"), [(401, "Set the key in the environment"), (404, "usually ends in /v1")])
def test_what_no_request_can_mend_ends_with_advice(httpserver: HTTPServer, opened: Open, status: int, words: str) -> None:
    httpserver.expect_request("/v1/chat/completions").respond_with_json({"error": {"message": "no"}}, status=status)
    with pytest.raises(BackendError, match=f"model 'm': {httpserver.url_for('/v1')} answered with status {status}.*{words}"):
        opened(httpserver.url_for("/v1")).infer(numbered(1))


def test_a_server_that_is_not_there_is_named_at_once(opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with pytest.raises(BackendError, match=f"model 'm': {url} cannot be reached"):
        opened(url).fingerprint()


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(
    server: Faulty, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OUR_KEY", KEY)
    heard: list[str] = []

    def repeats(body: dict[str, Any]) -> Response | dict[str, Any]:
        if text_of(body) == "locked":
            said = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
            return Response(json.dumps(said), 400, {"x-said": KEY}, content_type="application/json")
        return echo(body)

    server.answer = repeats
    backend = opened(server.url, key_variable="OUR_KEY", heard=heard)
    answers = backend.infer(asks("open", "locked"))
    assert {body["headers"]["Authorization"] for body in server.bodies} == {f"Bearer {KEY}"}
    assert "Incorrect API key provided: (the key)" in answers[1].error
    left = [repr(answers), repr(backend.describe()), repr(backend.fingerprint()), repr(heard), caplog.text, repr(vars(backend))]
    left += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in left if KEY in text]


@pytest.mark.parametrize("letters", [True, False])
def test_a_key_that_replies_repeat_is_kept_nowhere(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, letters: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    whole = {"model": f"m {KEY}", "system_fingerprint": KEY, "usage": {"prompt_tokens": KEY}}

    def repeats(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        text = text_of(body)
        answers = {
            "refused": reply("", refusal=f"not with {KEY}"),
            "parts": reply([{"type": "text", "text": KEY}]),  # type: ignore[arg-type]  # as some servers write it
            "ended": reply("A", finish=KEY),
        }
        answer = answers.get(text) or reply(f"{text} {KEY}", logprobs={"A": -0.5, KEY: -1.0} if letters else None, reasoning=KEY)
        return 200, {}, json.dumps({**answer, **whole}).encode()

    heard: list[str] = []
    with ModelServer(model(fine), before=repeats, engine=f"engine {KEY}") as server:
        backend = opened(server.url, heard=heard)
        answers = backend.infer([*asks("open", "refused", "parts", "ended"), *asks("choice", choices="AB")])
        left = [repr(answers), repr(backend.describe()), repr(backend.fingerprint()), repr(heard), backend.check(), caplog.text]
    assert [answer.text for answer in answers[:3]] == ["open (the key)", "not with (the key)", "(the key)"]
    assert dict(answers[0].details)["system_fingerprint"] == "(the key)"
    assert dict(answers[3].details)["unknown_finish_reason"] == "(the key)"
    assert "the unknown finish_reason '(the key)'" in heard[-1]
    left += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert "engine (the key)" in left[-1]
    assert not [text for text in left if KEY in text]


def test_unusable_numbers_of_tokens_are_said_once(server: Faulty, opened: Open) -> None:
    server.answer = lambda _body: {**reply("A"), "usage": {"prompt_tokens": -5, "completion_tokens": 1}}
    heard: list[str] = []
    answers = opened(server.url, heard=heard).infer(numbered(3))
    assert [(answer.text, answer.tokens) for answer in answers] == [("A", None)] * 3
    assert [text for text in heard if "tokens" in text] == [
        f"model 'm': {server.url} sends unusable numbers of tokens (prompt_tokens -5): they are taken as not known"
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"choices": []},
        reply("A", logprobs={"A": float("nan")}),
        reply("x" * (5 * 2**20)),
    ],
    ids=["no choices", "NaN", "too long"],
)
@pytest.mark.parametrize("when", ["first look", "end"])
def test_one_unreadable_reply_at_a_look_is_asked_again(opened: Open, bad: dict[str, Any], when: str) -> None:
    pending = [when == "first look"]

    def once(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes] | None:
        if text_of(body) != LETTERS_QUESTION or not pending[0]:
            return None
        pending[0] = False
        return 200, {}, json.dumps(bad).encode()

    with ModelServer(model(fine), before=once) as server:
        backend = opened(server.url)
        (answer,) = backend.infer(asks("Which?", choices="AB"))
        assert (answer.error, answer.method) == ("", "letter_logits")
        pending[0] = when == "end"
        assert backend.check() == ""
        assert not pending[0]


def test_a_refused_key_is_in_no_error_and_in_no_traceback(
    httpserver: HTTPServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    httpserver.expect_request("/v1/chat/completions").respond_with_json(said, status=401)
    with pytest.raises(BackendError, match=r"Incorrect API key provided: \(the key\)") as caught:
        opened(httpserver.url_for("/v1")).infer(numbered(1))
    ours = [entry for entry in caught.traceback if "pytest_vlmrobust" in str(entry.path)]
    assert ours
    assert not [entry for entry in ours if KEY in repr(entry.locals)]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_variable_that_is_named_has_to_be_set(server: Faulty, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUR_KEY", raising=False)
    with pytest.raises(BackendError, match=r"the environment variable OUR_KEY, which should hold the key to .*, is not set"):
        opened(server.url, key_variable="OUR_KEY").infer(numbered(1))


# Replicas.


def model(script: Callable[[Request], str | Prediction]) -> ScriptedBackend:
    return ScriptedBackend(script, version="1")


def fine(request: Request) -> str:
    return "C" if LETTERS_QUESTION in request.text else f"answer to {request.text}"


def test_replicas_share_the_work(opened: Open) -> None:
    with ModelServer(model(fine)) as server, ModelServer(model(fine)) as other:
        answers = opened(server.url, other.url).infer(numbered(40))
    assert len({prediction.text for prediction in answers}) == 40
    assert min(server.n_requests, other.n_requests) > 10


def test_a_replica_that_dies_is_taken_out_and_comes_back(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    with ModelServer(model(fine)) as server, ModelServer(model(fine)) as other:
        backend = opened(server.url, other.url, heard=heard)
        backend.infer(numbered(8))
        other.kill()
        answers = backend.infer(asks(*(f"r{number}" for number in range(20))))
        assert {prediction.finish_reason for prediction in answers} == {"stop"}
        assert any(other.url in text and "cannot be reached" in text for text in heard)
        before = other.n_requests
        other.start()
        give_up = time.monotonic() + 20
        while f"model 'm': {other.url} answers again" not in heard and time.monotonic() < give_up:
            backend.infer(asks(*(f"s{number}" for number in range(4))))
        backend.infer(asks(*(f"t{number}" for number in range(20))))
        assert other.n_requests > before + 5


def test_a_server_that_restarts_is_waited_for(opened: Open) -> None:
    with ModelServer(model(fine)) as served:
        backend = opened(served.url)
        backend.infer(numbered(2))
        served.kill()
        threading.Timer(0.7, served.start).start()
        answers = backend.infer(asks(*(f"r{number}" for number in range(6))))
    assert [prediction.text.removeprefix("answer to ")[-2:] for prediction in answers] == [f"r{number}" for number in range(6)]


def status(code: int, said: str) -> tuple[int, dict[str, str], bytes]:
    return code, {}, json.dumps({"error": {"message": said}}).encode()


@pytest.mark.parametrize("code", [500, 502, 503, 529])
def test_a_server_that_fails_on_all_is_down_and_one_that_fails_on_some_is_not(opened: Open, code: int) -> None:
    down, heard, answered = threading.Event(), list[str](), Counter[str]()
    looks = itertools.count()

    def proxied(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes] | None:
        if down.is_set() and (not heard or next(looks) < 2):  # until it is said, and two looks longer
            return status(code, "no upstream")
        if "bad" in text_of(body):
            return status(500, "cannot decode")
        answered[text_of(body)] += 1
        return None

    with ModelServer(model(fine), before=proxied) as served:
        backend = opened(served.url, heard=heard)
        backend.infer(numbered(4))
        bad, *good = backend.infer(asks("bad", *(f"r{number}" for number in range(8))))
        assert "answered with status 500: Error code: 500 - cannot decode (4 times)" in bad.error
        (bad,) = backend.infer(asks("bad"))
        assert "(4 times)" in bad.error
        assert heard == []
        down.set()
        good += backend.infer(asks(*(f"s{number}" for number in range(8))))
        loaded = backend.describe()["loaded"]["servers"][served.url]
    assert {prediction.finish_reason for prediction in good} == {"stop"}
    assert {count for text, count in answered.items() if text[0] in "qrs"} == {1}
    assert loaded["answers"] == 4 + 8 + 8, "health checks are not answers"
    went, came = heard
    assert (
        f"{served.url} answers no request, and is tried again from time to time: {served.url} answered with status {code}: "
        in went
    )
    assert came == f"model 'm': {served.url} answers again"


def test_a_server_that_is_down_during_the_first_look_is_not_taken_for_one_without_a_schema(opened: Open) -> None:
    began: list[float] = []

    def proxied(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes] | None:
        if "response_format" in body and not began:
            began.append(time.monotonic())
        if began and time.monotonic() - began[0] < 1.5:
            return status(500, "no upstream")
        return None if (kept := by_schema(body)) is None else (200, {}, json.dumps(kept).encode())

    with ModelServer(model(fine), before=proxied, letters=False) as served:
        assert opened(served.url).fingerprint()["answer"] == "structured_choice"


def test_a_replica_that_comes_back_with_another_model_is_asked_no_more(opened: Open) -> None:
    heard: list[str] = []
    with ModelServer(model(fine)) as server, ModelServer(model(fine)) as other:
        backend = opened(server.url, other.url, heard=heard)
        backend.infer(numbered(8))
        other.kill()
        backend.infer(asks(*(f"r{number}" for number in range(8))))
        other.backend = model(lambda request: f"other answer to {request.text}")
        other.start()
        give_up = time.monotonic() + 20
        while not any("is no longer asked" in text for text in heard) and time.monotonic() < give_up:
            backend.infer(asks(*(f"s{number}" for number in range(4))))
        answers = backend.infer(asks(*(f"t{number}" for number in range(20))))
        assert backend.check() == "" or "is no longer asked" in str(heard)
    assert not [prediction.text for prediction in answers if "other" in prediction.text]


def test_replicas_with_different_models_are_refused(opened: Open) -> None:
    with ModelServer(model(fine)) as server, ModelServer(model(lambda _request: "something else")) as other:
        backend = opened(server.url, other.url)
        with pytest.raises(BackendError, match=f"{other.url} begins its answer with 's', and with no letter, and the answers"):
            backend.infer(numbered(1))


# What is declared, what is remembered, and what is noticed.


def test_a_declared_revision_is_the_name_of_the_answers_wherever_they_are_served(opened: Open) -> None:
    heard: list[str] = []
    with ModelServer(model(fine)) as server, ModelServer(model(fine)) as other:
        first = opened(server.url).fingerprint()
        again = opened(other.url, heard=heard)
        again.infer(numbered(1))
        assert again.fingerprint() == first
        assert "To compare two servers, declare two" in str(heard)
        assert opened(other.url, revision="2").fingerprint() != first
        assert opened(server.url, revision="").fingerprint() != opened(other.url, revision="").fingerprint()


def test_another_engine_under_the_same_revision_is_refused(opened: Open) -> None:
    with ModelServer(model(fine), engine="vllm") as server, ModelServer(model(fine), engine="sglang") as other:
        opened(server.url).infer(numbered(1))
        with pytest.raises(BackendError, match="is an engine 'sglang', and the answers that the store has are by 'vllm'"):
            opened(other.url).infer(numbered(1))


def right_letter(body: dict[str, Any]) -> str:
    """Returns the letter that a question names at its end, as a perfect model would; of the fixed question the right one."""
    text = text_of(body)
    return {**dict.fromkeys(QUESTIONS, "C"), LETTERS_QUESTION: "C", EASY_QUESTION: "B"}.get(text) or text[-2]


def choices_of(letters: str) -> list[Request]:
    return asks(*(f"Question {number}: which of them is {letter}?" for number, letter in enumerate(letters)), choices="ABCD")


def share_right(answers: Sequence[Prediction], letters: str) -> float:
    options = {letter: f"colour {letter}" for letter in "ABCD"}
    samples = [Sample(f"s{number}", (), "Which?", letter, "choice", options) for number, letter in enumerate(letters)]
    return sum(score(*pair).value for pair in zip(samples, answers, strict=True)) / len(samples)


@pytest.mark.parametrize("keeps_to_schema", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_perfect_model_is_read_wholly_however_a_server_begins_its_answers(
    opened: Open, mode: str, keeps_to_schema: bool
) -> None:
    letters, heard = "DBACADBC", list[str]()
    with ModelServer(model(fine), before=in_mode(mode, right_letter, keeps_to_schema=keeps_to_schema)) as served:
        backend = opened(served.url, heard=heard)
        answers = backend.infer(choices_of(letters))
        assert backend.check() == ""
    writes = mode in ("think_logprobs", "reasoning_logprobs")
    by_letters = mode in ("lp_sp", "lp_bpe")
    method = "letter_logits" if by_letters else "structured_choice" if keeps_to_schema and not writes else "generate"
    assert {answer.method for answer in answers} == {method}
    assert share_right(answers, letters) == 1.0
    if by_letters:
        assert heard == []
        return
    (notice,) = heard
    begin = MODES[mode][1][0]
    assert f"begins its answer with {begin!r}" in notice
    assert notice.endswith(f"and with no letter: choices are answered by {'text' if method == 'generate' else method}")


def test_a_model_that_answers_the_easier_choice_by_a_letter_is_asked_by_letters(opened: Open) -> None:
    by_letter, by_word = (in_mode(mode, right_letter) for mode in ("lp_sp", "reasoning_logprobs"))

    def small(body: dict[str, Any]) -> Reply:
        if text_of(body) != LETTERS_QUESTION:
            return by_letter(body)
        status, headers, content = by_word(body)
        return status, headers, content.replace(b"reasoning_content", b"unknown")

    with ModelServer(model(fine), before=small) as served:
        backend = opened(served.url)
        assert backend.infer(choices_of("B"))[0].method == "letter_logits"
        assert backend.check() == ""


def test_letters_that_are_declared_where_answers_begin_with_none_are_kept_with_a_notice(opened: Open) -> None:
    heard = list[str]()
    with ModelServer(model(fine), before=in_mode("lp_paren", right_letter)) as served:
        for _ in range(2):  # the store remembers that it gives log-probabilities
            backend = opened(served.url, answer="letters", heard=heard)
            assert backend.infer(choices_of("BB"))[0].method == "letter_logits"
            assert backend.check() == ""
    (notice,) = heard
    assert "begins its answer with '(', and with no letter: answers by letters may be wrong" in notice


def test_a_server_that_no_longer_begins_with_letters_is_noticed(opened: Open) -> None:
    with ModelServer(model(fine), before=in_mode("lp_bpe", right_letter)) as served:
        backend = opened(served.url)
        backend.infer(choices_of("AB"))
        served.before = in_mode("reasoning_logprobs", right_letter)
        said = "begins its answer with 'The', in its field for reasoning, and with no letter, and the answers that the store has"
        assert said in backend.check()


def test_log_probabilities_that_are_null_are_none(server: Faulty, opened: Open) -> None:
    def without_number(body: dict[str, Any]) -> dict[str, Any]:
        whole = reply("B")
        listed = [{"token": "B", "logprob": None}]
        whole["choices"][0]["logprobs"] = {"content": [{"token": "B", "logprob": None, "top_logprobs": listed}]}
        return whole

    server.keeps_to = lambda body: without_number(body) if body.get("logprobs") else None
    server.answer = without_number
    backend = opened(server.url)
    (prediction,) = backend.infer(asks("Which?", choices="AB"))
    assert (prediction.text, prediction.method, prediction.error) == ("B", "generate", "")


def test_the_store_remembers_the_method_so_that_nothing_is_asked_for_the_fingerprint(opened: Open) -> None:
    with ModelServer(model(fine)) as served:
        first = opened(served.url).fingerprint()
        n_requests = served.n_requests
        assert opened(served.url).fingerprint() == first
        assert served.n_requests == n_requests
    assert opened(served.url, offline=True).fingerprint() == first


def test_offline_the_method_has_to_be_known(opened: Open) -> None:
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(OfflineError, match=r"does not remember whether .* gives the log-probabilities of letters.*answer: text"):
        opened(url, offline=True).fingerprint()
    assert opened(url, offline=True, answer="letters").fingerprint()["answer"] == "letters"
    assert opened(url, offline=True, prompt_mode="cot").fingerprint()["answer"] == "text"


def test_letters_that_are_declared_and_not_given_are_refused(opened: Open) -> None:
    with (
        ModelServer(model(fine), letters=False) as served,
        pytest.raises(
            BackendError,
            match=r"gives no log-probabilities, and choices are to be answered by letters. Ask by text: --vlm-answer=text",
        ),
    ):
        opened(served.url, answer="letters").infer(numbered(1))


def test_text_that_is_declared_is_the_method_whatever_the_server_gives(server: Faulty, opened: Open) -> None:
    server.answer = echo
    backend = opened(server.url, answer="text")
    (prediction,) = backend.infer(asks("Which?", choices="AB"))
    assert (prediction.method, backend.fingerprint()["answer"]) == ("generate", "text")


def test_a_model_that_changes_in_the_middle_is_noticed_and_its_answers_are_never_used_again(opened: Open) -> None:
    with ModelServer(model(fine)) as served:
        backend = opened(served.url)
        backend.infer(numbered(2))
        assert backend.check() == ""
        served.backend = model(lambda request: f"other answer to {request.text}")
        backend.infer(numbered(2))
        assert "the server of m changed its model while it was asked: " in backend.check()
    for offline in (False, True):
        with pytest.raises(BackendError, match=r"answers of two models are in the store under this name.*another revision"):
            opened(served.url, offline=offline).fingerprint()
    assert opened(served.url, offline=True, revision="2", answer="text").fingerprint()["revision"] == "2"


def test_a_run_that_ended_before_it_could_look_is_looked_at_by_the_next_one(opened: Open) -> None:
    with ModelServer(model(fine)) as served:
        opened(served.url).infer(numbered(1))  # and is killed: nobody asks it to check
        assert "the same model to the end: this run is offline" in opened(served.url, offline=True).check()
        assert opened(served.url).check() == ""
        assert opened(served.url, offline=True).check() == ""


def test_a_server_that_is_gone_at_the_end_leaves_a_doubt(opened: Open) -> None:
    with ModelServer(model(fine)) as served:
        backend = opened(served.url, time_limit=0.5)
        backend.infer(numbered(1))
    assert f"it is not known whether m was the same model to the end: {served.url}: " in backend.check()


def test_a_server_that_never_repeats_itself_is_no_witness_of_its_change(opened: Open) -> None:
    heard: list[str] = []
    counts = iter(range(1000))
    with ModelServer(model(lambda _request: f"answer {next(counts)}")) as served:
        backend = opened(served.url, heard=heard)
        backend.infer(numbered(1))
        assert "answers no question the same way twice" in str(heard)
        assert backend.check() == ""


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    ref = resolve("openai:http://127.0.0.1:9/v1#m")
    with pytest.raises(MissingExtra, match=r"pip install 'openai>="):
        OpenAIBackend(ref, BackendOptions())
    OpenAIBackend(ref, BackendOptions(offline=True))
