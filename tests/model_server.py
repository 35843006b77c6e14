"""A server that speaks the protocol of OpenAI and answers by any backend: for gates over a socket."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np
from PIL import Image

from pytest_vlmrobust.backends import Backend
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK

LETTERS = ("A", "B", "C", "D")
Reply = tuple[int, dict[str, str], bytes]
Provider = Callable[[str, dict[str, str], dict[str, Any]], Reply | None]


def refusal(status: int, message: str, **more: Any) -> Reply:
    """Returns an error as servers of this protocol send it."""
    return status, {}, json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}}).encode()


def azure(key: str, version: str = "2026-02-01") -> Provider:
    """Refuses as Azure does: a deployment is asked with a version in the query, and the key in a header of its own."""

    def refused(path: str, headers: dict[str, str], _body: dict[str, Any]) -> Reply | None:
        if path != f"/openai/deployments/gpt-4o/chat/completions?api-version={version}":
            return refusal(404, "Resource not found", code="404")
        if headers.get("api-key") != key or "authorization" in headers:
            return refusal(401, "Access denied due to invalid subscription key or wrong API endpoint.", code="401")
        return None

    return refused


def openai_reasoning(_path: str, _headers: dict[str, str], body: dict[str, Any]) -> Reply | None:
    """Refuses as OpenAI does for a model that thinks."""
    if "max_tokens" in body:
        said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return refusal(400, said, param="max_tokens", code="unsupported_parameter")
    if body.get("temperature", 1) != 1:
        said = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
        return refusal(400, said, param="temperature", code="unsupported_value")
    if "logprobs" in body:
        return refusal(403, "You are not allowed to request logprobs from this model")
    if body["max_completion_tokens"] < 3:
        said = "Could not finish the message because max_tokens or model output limit was reached. Please try again."
        return refusal(400, said, code=None, param=None)
    return None


def openrouter(key: str) -> Provider:
    """Refuses as OpenRouter does where a provider is demanded that there is not."""

    def refused(_path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply | None:
        if headers.get("authorization") != f"Bearer {key}":
            return refusal(401, "User not found.", code=401)
        if body.get("provider", {}).get("order") == ["nobody"]:
            return refusal(400, "No allowed providers are available for the selected model.", code=400)
        return None

    return refused


def vllm(key: str) -> Provider:
    """Refuses as vLLM does: a key in words alone, and a model of another name."""

    def refused(_path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply | None:
        if headers.get("authorization") != f"Bearer {key}":
            return 401, {}, json.dumps({"error": "Unauthorized"}).encode()
        if body["model"] != "ours":
            said = f"The model `{body['model']}` does not exist."
            return refusal(404, said, type="NotFoundError", param="model", code=404)
        return None

    return refused


def sglang(_path: str, _headers: dict[str, str], body: dict[str, Any]) -> Reply | None:
    """Refuses as SGLang does: the error is the whole reply."""
    if body["max_tokens"] > 8192:
        said = "Requested token count exceeds the model's maximum context length of 8192 tokens."
        error = {"object": "error", "message": said, "type": "BadRequestError", "param": None, "code": 400}
        return 400, {}, json.dumps(error).encode()
    return None


def llama_cpp() -> Provider:
    """Asks to wait as llama.cpp does while it loads a model: here for the first two calls."""
    calls = iter(range(2))

    def refused(_path: str, _headers: dict[str, str], _body: dict[str, Any]) -> Reply | None:
        loading = next(calls, None) is not None
        return refusal(503, "Loading model", type="unavailable_error", code=503) if loading else None

    return refused


def litellm(key: str, *, thinks: bool = False) -> Provider:
    """Refuses as the proxy of LiteLLM does, which writes None as a word."""

    def refused(_path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply | None:
        if headers.get("authorization") != f"Bearer {key}":
            said = "Authentication Error, Invalid proxy server token passed."
            return refusal(401, said, type="token_not_found_in_db", param="key", code="401")
        if thinks and body.get("temperature", 1) != 1:
            said = "litellm.UnsupportedParamsError: gpt-5 models don't support temperature=0.0. Only temperature=1 is supported."
            return refusal(400, said, type="None", param="None", code="400")
        return None

    return refused


def read_request(body: dict[str, Any], letters: tuple[str, ...] = ()) -> Request:
    """Returns what was sent as a request; the pictures as they are after decoding."""
    texts, images = [], []
    for part in body["messages"][-1]["content"]:
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            encoded = part["image_url"]["url"].removeprefix("data:image/png;base64,")
            texts.append(IMAGE_MARK)
            images.append(np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")))
    limit = 8 if letters else int(body.get("max_tokens") or body["max_completion_tokens"])
    return Request(key="served", images=tuple(images), text="".join(texts), choices=letters, max_new_tokens=limit)


def reply(text: str, *, logprobs: dict[str, float] | None = None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    """Returns a chat completion."""
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    if logprobs is not None:
        listed = [{"token": token, "logprob": value, "bytes": None} for token, value in logprobs.items()]
        choice["logprobs"] = {"content": [{"token": text, "logprob": 0.0, "bytes": None, "top_logprobs": listed}]}
    usage = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


MODES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "think_logprobs": ("<think>It is {}, I think.</think>{}", ("<think>", "Okay"), ()),
    "reasoning_logprobs": ("{}", ("The", "A"), ()),
    "lp_paren": ("({})", ("(", "A"), ()),
    "lp_newline": ("\n\n{}", ("\n\n", "A", "B", "C", "D"), ()),
    "lp_sp": ("{}", (), ("▁{}",)),
    "lp_bpe": ("{}", (), ("Ġ{}",)),
    "lp_ids": ("{}", ("token_id:66", "token_id:65"), ()),
}
"""Ways in which real servers list log-probabilities: the text of a right answer, which tokens they list first for the first
place, the most probable one before the others, and how they spell the letters after these, the right one before the others."""


def in_mode(
    mode: str, right: Callable[[dict[str, Any]], str], *, keeps_to_schema: bool = False
) -> Callable[[dict[str, Any]], Reply]:
    """Returns what answers every body in one of ``MODES``; whatever is asked, ``right`` says which letter is right."""
    text, first, spelled = MODES[mode]

    def answer(body: dict[str, Any]) -> Reply:
        letter = right(body)
        ordered = sorted(LETTERS, key=lambda other: other != letter)
        listed = [*first, *(form.format(other) for form in spelled for other in ordered)]
        logprobs = {token: -0.01 if place == 0 else -5.0 - place for place, token in enumerate(listed)}
        cut, said = body["max_tokens"] == 1, text.format(letter, letter)
        message: dict[str, Any] = {"reasoning_content": "The" if cut else "The colour."} if mode == "reasoning_logprobs" else {}
        if keeps_to_schema and "response_format" in body:
            allowed = body["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"]
            said, cut = json.dumps({"answer": letter if letter in allowed else allowed[0]}), False
        content: Any = None if cut and message else listed[0] if cut else said
        whole = reply(content, logprobs=logprobs if body.get("logprobs") else None, finish="length" if cut else "stop", **message)
        return 200, {}, json.dumps(whole).encode()

    return answer


class ModelServer:
    """Serves one backend, one request at a time, as ``http://127.0.0.1:PORT/v1``; can be killed and started again.

    Args:
        backend: What answers.
        before: Called with each request's body, beside others; what it returns, if anything, is sent in place of an answer.
        letters: Whether log-probabilities are given where they are asked for.
        engine: What the list of models says of who owns the model.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        before: Callable[[dict[str, Any]], Reply | None] = lambda _body: None,
        letters: bool = True,
        engine: str = "test-engine",
    ) -> None:
        self.backend, self.before, self.letters, self.engine = backend, before, letters, engine
        self.n_requests = 0
        self.calls: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        """Path with its query, headers and body of each call."""
        self.provider: Provider = lambda _path, _headers, _body: None
        """Refuses calls as a provider does, before anything is answered."""
        self.usage = True
        """Whether it says how many tokens an answer took."""
        self.port = 0
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                models = [{"id": "m", "object": "model", "created": 1, "owned_by": outer.engine}]
                self.send(200, {}, json.dumps({"object": "list", "data": models}).encode())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                call = self.path, {name.lower(): value for name, value in self.headers.items()}, body
                outer.calls.append(call)
                self.send(*(outer.provider(*call) or outer.answered(body)))

            def send(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

            def __init__(self) -> None:
                self.connections: set[Any] = set()
                super().__init__(("127.0.0.1", outer.port), Handler)

            def process_request(self, request: Any, client_address: Any) -> None:
                self.connections.add(request)
                super().process_request(request, client_address)

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server()
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def kill(self) -> None:
        """Closes every connection, answered or not, and listens no more."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in server.connections:  # type: ignore[attr-defined]  # of the class above
            with contextlib.suppress(OSError):
                connection.shutdown(2)
            connection.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def answered(self, body: dict[str, Any]) -> Reply:
        instead = self.before(body)
        if instead is not None:
            return instead
        return 200, {}, json.dumps(self._reply(body)).encode()

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        wants = bool(body.get("logprobs")) and self.letters
        letters = ("Yes", "No") if "yes or no" in str(body["messages"][-1]["content"]) else LETTERS
        with self._lock:
            self.n_requests += 1
            (prediction,) = self.backend.infer([read_request(body, letters if wants else ())])
        answer = self._as_reply(prediction, wants)
        if not self.usage:
            del answer["usage"]
        return answer

    @staticmethod
    def _as_reply(prediction: Prediction, wants: bool) -> dict[str, Any]:
        if prediction.error:
            raise ValueError(prediction.error)
        given = dict(prediction.logprobs) if prediction.method == LETTER_LOGITS else {prediction.text[:1]: -0.1}
        finish = prediction.finish_reason if prediction.method != LETTER_LOGITS else "length"
        return reply(prediction.text, logprobs=given if wants else None, finish=finish)


class StuckServer:
    """Accepts every connection, reads what is sent, and never gives an answer, in one of several ways.

    Args:
        shape: ``hang`` (sends nothing), ``drip`` (a byte of the body from time to time), ``drip_headers``, ``endless_headers``,
            ``redirect`` (to itself), ``endless_body``.
        pause: Seconds between two bytes.
    """

    SHAPES = ("hang", "drip", "drip_headers", "endless_headers", "redirect", "endless_body")

    def __init__(self, shape: str, pause: float = 0.05) -> None:
        self._send, self._pause = getattr(self, f"_{shape}"), pause
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._closed = threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.n_requests = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            reader = connection.makefile("rb")
            while line := reader.readline():
                length = 0
                while line not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    line = reader.readline()
                reader.read(length)
                self.n_requests += 1
                self._send(connection)

    def _hang(self, _connection: socket.socket) -> None:
        self._closed.wait()

    def _drip(self, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        self._drip_headers(connection, b" ")

    def _drip_headers(self, connection: socket.socket, piece: bytes = b"HTTP/1.1 200 OK\r\nX: ") -> None:
        while not self._closed.wait(self._pause):
            connection.sendall(piece)
            piece = b"x" if piece != b" " else piece

    def _endless_headers(self, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not self._closed.is_set():
            connection.sendall(b"X-More: %b\r\n" % (b"x" * 1000))

    def _redirect(self, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 307 On\r\nLocation: /v1/chat/completions\r\nContent-Length: 0\r\n\r\n")

    def _endless_body(self, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while not self._closed.is_set():
            connection.sendall(b" " * 65536)
