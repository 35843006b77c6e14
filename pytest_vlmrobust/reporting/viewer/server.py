"""The server of the viewer: it listens on this machine alone, answers GET, and gives nothing to pages of other origins."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.errors import InfrastructureError, MissingExtra, UsageError, VlmRobustError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from .page import Pages

HOST = "127.0.0.1"
PORT = 8319
"""Where it listens unless an option says otherwise: links that were shared work again the next day."""
EXTRA = "pytest-vlmrobust[view]"
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
    """Returns the application that answers requests to this port.

    Raises:
        MissingExtra: the library that it is made with is not installed.
    """
    with _needed():
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route

    from .page import Asked, script, stylesheet

    def shown(make: Callable[[Asked], str]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                return Response(make(Asked.read(request.query_params.multi_items())), media_type=_HTML)
            except VlmRobustError as error:
                return Response(pages.problem(str(error)), status_code=_status(error), media_type=_HTML)

        return answer

    def picture(request: Request) -> Response:
        small = request.path_params["size"] == "small"
        if not small and request.path_params["size"] != "full":
            return Response("expected small or full", status_code=404, media_type=_TEXT)
        try:
            content, kind = pages.picture(Asked.read(request.query_params.multi_items()), small=small)
        except VlmRobustError as error:
            return Response(str(error), status_code=_status(error), media_type=_TEXT)
        return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=600"})

    def live(request: Request) -> Response:
        try:
            return JSONResponse(pages.live(Asked.read(request.query_params.multi_items())))
        except VlmRobustError as error:
            return JSONResponse({"problem": str(error)}, status_code=_status(error))

    def fixed(content: Callable[[], str], kind: str) -> Callable[[Request], Response]:
        return lambda _: Response(content(), media_type=kind)

    def unknown(_: Request, __: Exception) -> Response:
        return Response(pages.problem("There is no such page. Runs, Samples and Answers lead to those that there are"), 404, media_type=_HTML)

    def broken(_: Request, error: Exception) -> Response:
        text = f"This should not happen: {type(error).__name__}. The terminal that vlmrobust view runs in says where"
        return Response(pages.problem(text), 500, media_type=_HTML)

    return Starlette(
        routes=[
            Route("/", shown(pages.overview)),
            Route("/answers", shown(pages.answers)),
            Route("/samples", shown(pages.samples)),
            Route("/sample", shown(pages.sample)),
            Route("/picture/{size}", picture),
            Route("/live", live),
            Route("/style.css", fixed(stylesheet, "text/css")),
            Route("/icon.svg", fixed(lambda: _ICON, "image/svg+xml")),
            Route("/script.js", fixed(script, "text/javascript")),
        ],
        middleware=[Middleware(Guard, port=port)],
        exception_handlers={404: unknown, 500: broken},
    )


class Guard:
    """Refuses what only a page of another origin, or a name that was pointed to this machine, would ask for."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")} | ({HOST, "localhost"} if port == 80 else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on and adds to the answer what a browser may do with it."""
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
        """Returns status and reason where a request is refused."""
        from starlette.datastructures import Headers

        headers = Headers(scope=scope)
        if headers.getlist("host") != [host for host in headers.getlist("host")[:1] if host.lower() in self._hosts]:
            return 421, "this name does not lead here: open the address that vlmrobust view printed"
        if scope["method"] not in {"GET", "HEAD"}:
            return 405, "these pages are read, and nothing is sent to them"
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and headers.get("sec-fetch-mode") != "navigate":
            return 403, "pages of other origins may link to this one and hold nothing of it"
        if len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            return 414, "the address is too long"
        return None


def listen(port: int | None) -> socket.socket:
    """Returns a socket that listens on this machine alone.

    Args:
        port: 0 for any free one; ``None`` for the usual one, and for any free one where that is taken.

    Raises:
        UsageError: the port cannot be had.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, PORT if port is None else port))
    except OSError as error:
        found.close()
        if port is None and error.errno == errno.EADDRINUSE:
            return listen(0)
        raise UsageError(
            f"--port {port}: cannot listen on {HOST}:{port}: {error.strerror}. Name another port, or 0 for any that is free"
        ) from error
    return found


def serve(pages: Pages, listening: socket.socket) -> None:
    """Answers requests until the process is interrupted.

    Raises:
        MissingExtra: the libraries that it is made with are not installed.
    """
    with _needed():
        import uvicorn
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        application(pages, port),
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
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(listening):
        uvicorn.Server(config).run(sockets=[listening])


def _needed() -> Any:
    return _Needed()


class _Needed(contextlib.AbstractContextManager[None]):
    """Says what to install where an import fails."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError):
            raise MissingExtra("vlmrobust view", error.name or "uvicorn", install=f"'{EXTRA}'") from error


def _status(error: VlmRobustError) -> int:
    return 503 if isinstance(error, InfrastructureError) else 404
