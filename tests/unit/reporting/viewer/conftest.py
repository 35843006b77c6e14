"""A viewer that serves runs which were made without a gate, with pictures that are painted."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.evaluation.after.pictures import RunPictures, Shown
from pytest_vlmrobust.reporting.viewer.page import Pages
from pytest_vlmrobust.reporting.viewer.runs import Runs
from tests.unit.store.browsed import run


class Painter(RunPictures):
    """Pictures of one colour each; none of the sample ``d5``."""

    def shown(self, dataset: str, sample: str, setting: str) -> Shown:
        if dataset != "d":
            raise DatasetError(f"no images of {dataset}")
        if sample == "d5":
            raise DatasetError("the image of d5 is lost")
        views = 4 if setting.startswith("patches") else 1
        digests = tuple(f"{self.run.name if setting == 'invert' else ''}{setting}{view}" for view in range(views))
        return Shown(digests, views, ("",), (0,), "painted for a test")

    def picture(self, dataset: str, sample: str, setting: str, number: int, *, small: bool = False) -> tuple[bytes, str]:
        self.shown(dataset, sample, setting)
        stream = BytesIO()
        Image.new("RGB", (32, 32) if small else (64, 64), "navy" if setting == "clean" else "maroon").save(stream, "PNG")
        return stream.getvalue(), "image/png"


@dataclass(frozen=True)
class Served:
    """A server on this machine."""

    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
        """Returns status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers of runs, and ends them."""
    pytest.importorskip("starlette", reason="the viewer needs starlette and uvicorn")
    pytest.importorskip("uvicorn", reason="the viewer needs starlette and uvicorn")
    from pytest_vlmrobust.reporting.viewer.server import listen, server

    running = []

    def start(*directories: Path, together: bool = True) -> Served:
        runs = Runs(lambda: list(directories), Painter, together=together)
        listening = listen(0)
        uvicorn_server = server(Pages(runs), listening)
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        running.append((uvicorn_server, thread, runs, listening))
        return Served(listening.getsockname()[1])

    yield start
    for uvicorn_server, thread, runs, listening in running:
        uvicorn_server.should_exit = True
        thread.join(20)
        runs.close()
        listening.close()
        assert not thread.is_alive()


EVIL = "</td></script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202egnp.exe\x1b[2J"


@pytest.fixture(scope="module")
def viewer(serve: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Two runs side by side; what the second run's model says is hostile, as are questions and names."""
    folder = tmp_path_factory.mktemp("runs")
    first = run(folder / "first")
    second = run(
        folder / "second",
        {"m1": {"clean": "rrrrrr", "fog:low": "rruurr", "fog:high": "wwwwww", "invert": "rrrrrr"}},
        changes={"question": f"Which? {EVIL}", "options": {"A": EVIL, "B": "a dog"}, "group": EVIL},
        said=EVIL,
        decision="NO-GO",
    )
    return serve(first, second)
