"""The server of the viewer: it listens only on this machine, answers only GET, and refuses pages of other origins."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.errors import InfrastructureError, MissingExtra, UsageError, VlmRobustError

from .address import Address
from .page import Pages, script, stylesheet

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"
PORT = 8319
"""The default port; it is fixed so that shared links keep working."""
_LONGEST_ADDRESS = 8_000
_AT_ONCE = 32
"""Requests that are answered or wait at the same time."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#2458b3"/>'
    '<path d="M3.5 8.5l3 3 6-7" fill="none" stroke="#fff" stroke-width="2"/></svg>'
)
_HTML, _TEXT, _JSON = "text/html", "text/plain", "application/json"


def application(pages: Pages, port: int) -> Starlette:
    """Returns the application for requests to this port."""
    with _Needed():
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Route

    fixed: dict[str, tuple[Callable[[], str], str]] = {
        "/style.css": (stylesheet, "text/css"),
        "/script.js": (script, "text/javascript"),
        "/icon.svg": (lambda: _ICON, "image/svg+xml"),
    }
    made = {"/": pages.overview, "/answers": pages.answers, "/samples": pages.samples, "/sample": pages.sample}
    return Starlette(
        routes=[
            *(Route(path, _page(pages, make)) for path, make in made.items()),
            *(Route(path, _fixed(content, kind)) for path, (content, kind) in fixed.items()),
            Route("/picture/small", _picture(pages, small=True)),
            Route("/picture/full", _picture(pages, small=False)),
            Route("/live", _live(pages)),
        ],
        middleware=[Middleware(Guard, port=port)],
        exception_handlers={404: _unknown(pages), 500: _broken(pages)},
    )


def _answering(make: Callable[[Address], Response], refused: Callable[[str], str], kind: str) -> Callable[[Request], Response]:
    """Returns an endpoint; of what cannot be shown it answers with ``refused``."""

    def answer(request: Request) -> Response:
        try:
            return make(_address_of(request))
        except VlmRobustError as error:
            return _response(refused(str(error)), kind, _status(error))

    return answer


def _page(pages: Pages, make: Callable[[Address], str]) -> Callable[[Request], Response]:
    return _answering(lambda address: _response(make(address), _HTML), pages.problem, _HTML)


def _picture(pages: Pages, *, small: bool) -> Callable[[Request], Response]:
    def made(address: Address) -> Response:
        content, kind = pages.picture(address, small=small)
        return _response(content, kind, headers={"Cache-Control": "private, max-age=600"})

    return _answering(made, str, _TEXT)


def _live(pages: Pages) -> Callable[[Request], Response]:
    return _answering(
        lambda address: _response(json.dumps(pages.live(address)), _JSON), lambda text: json.dumps({"problem": text}), _JSON
    )


def _fixed(content: Callable[[], str], kind: str) -> Callable[[Request], Response]:
    return lambda _: _response(content(), kind)


def _unknown(pages: Pages) -> Callable[[Request, Exception], Response]:
    text = "There is no such page. See Runs, Samples and Answers"
    return lambda _, __: _response(pages.problem(text), _HTML, 404)


def _broken(pages: Pages) -> Callable[[Request, Exception], Response]:
    text = "This should not happen: {}. The terminal that vlmrobust view runs in says where"
    return lambda _, error: _response(pages.problem(text.format(type(error).__name__)), _HTML, 500)


def _response(content: str | bytes, kind: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(content, status, headers, kind)


def _address_of(request: Request) -> Address:
    return Address.read(request.query_params.multi_items())


def _status(error: VlmRobustError) -> int:
    return 503 if isinstance(error, InfrastructureError) else 404


class Guard:
    """Refuses requests from pages of other origins and through foreign host names."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")} | ({HOST, "localhost"} if port == 80 else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses a request, or passes it on and adds security headers to the answer."""
        from starlette.datastructures import MutableHeaders
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        app = PlainTextResponse(refusal[1], refusal[0]) if refusal else self._app
        await app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns status and reason of a refusal, or None."""
        from starlette.datastructures import Headers

        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "this name does not lead here: open the address that vlmrobust view printed"
        if scope["method"] not in {"GET", "HEAD"}:
            return 405, "these pages are read, and nothing is sent to them"
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and headers.get("sec-fetch-mode") != "navigate":
            return 403, "pages of other origins may link to this one and hold nothing of it"
        if len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            return 414, "the address is too long"
        return None


def listen(port: int | None) -> socket.socket:
    """Returns a socket that listens only on this machine.

    Port 0 is any free port; ``None`` is the default port, or any free port if that is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, PORT if port is None else port))
        listener.listen()  # a browser that opens the address early waits for the server
    except OSError as error:
        listener.close()
        if port is None and error.errno == errno.EADDRINUSE:
            return listen(0)
        raise UsageError(
            f"--port {port}: cannot listen on {HOST}:{port}: {error.strerror}. Name another port, or 0 for any that is free"
        ) from error
    return listener


def server(pages: Pages, listening: socket.socket) -> uvicorn.Server:
    """Returns the server of a socket, not started yet."""
    with _Needed():
        import uvicorn
    return uvicorn.Server(
        uvicorn.Config(
            application(pages, listening.getsockname()[1]),
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=1,
        )
    )


class _Needed(contextlib.AbstractContextManager[None]):
    """Says what to install where an import fails."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError):
            raise MissingExtra("vlmrobust view", error.name or "uvicorn", extra="view") from error
