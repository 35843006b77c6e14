"""One model in every way that runs it: in this process, in actors of Ray, in two parts, and behind ``transformers serve``."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.backends import resolve
from pytest_vlmrobust.backends.replicas import MOST
from pytest_vlmrobust.cli import main

from .conftest import UNUSED

pytestmark = pytest.mark.slow

TINY = resolve("tiny").location
# Without torchvision the library's own loader does not take processors of this family, so the server is given ours.
LAUNCHER = """
import sys
import transformers
from pytest_vlmrobust.backends.loading import ModelSource, load_processor
from transformers.cli.transformers import main

class Ours:
    @staticmethod
    def from_pretrained(path, *args, **kwargs):
        return load_processor(ModelSource(path, "", True), "pil")

transformers.AutoProcessor = Ours
sys.argv = ["transformers", "serve", *sys.argv[1:]]
main()
"""
SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "invert", "glass_blur:high")
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings("invert", "glass_blur:high")
@pytest.mark.vlm_metrics("worst_case_drop", "visual_gain")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""
POLICY = """
version: 1
defaults: {judge: point}
budgets: {max_unparsed_rate: 100%}
coverage: {tests: partial, samples: partial, rules: partial}
rules:
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 50%}
  - {id: blur, metric: accuracy_drop, where: {setting: "glass_blur:*"}, max: 20pp}
  - {id: worst, metric: worst_case_drop, max: 30pp}
"""
SAMPLES = 200
"""128 of the embedded shapes and 72 of the embedded words: all of both."""
SETTINGS = ("clean", "no_image", "invert", "glass_blur:high")
"""Those of the suite; some samples are also asked again, and with choices exchanged, to see how steady the answers are."""
START_SECONDS = 240.0


class Gate:
    """A gate about the embedded shapes and words, which is run by one engine after the other."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.path = pytester.path
        (self.path / "suite").mkdir()
        (self.path / "suite" / "test_suite.py").write_text(SUITE)
        (self.path / "policy.yaml").write_text(POLICY)
        self.describe("here", path=TINY)

    def describe(self, file: str, **entry: Any) -> None:
        """Writes a models file with one model, which has the same name in all of them."""
        (self.path / f"{file}.yaml").write_text(json.dumps({"models": {"model": entry}}))

    def start(self, out: str, *options: str, models: str = "here", report: bool = True) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "pytest", "--vlm=model", f"--vlm-models={models}.yaml",
            "--vlm-dataset=shapes", "--vlm-dataset=words", "--vlm-thresholds=policy.yaml",
            f"--vlm-store=store-{out}", "--vlm-device=cpu", "-p", "no:randomly",
            *UNUSED, "suite", *options, *([f"--vlm-report={out}"] if report else []),
        ]  # fmt: skip
        return subprocess.Popen(command, cwd=self.path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, out: str, *options: str, **given: Any) -> tuple[int, str]:
        process = self.start(out, *options, **given)
        said, _ = process.communicate(timeout=600)
        return process.returncode, said

    def answers(self, out: str) -> dict[tuple[str, str, int], tuple[str, str, float]]:
        """Returns text, without blanks around it, state and score of each answer, by dataset, setting and place."""
        query = "select dataset, setting, place, prediction, state, value from answers join cells on cells.id = cell"
        with sqlite3.connect(self.path / out / "predictions.sqlite") as evidence:
            rows = list(evidence.execute(query))
        return {tuple(row[:3]): (json.loads(row[3])["text"].strip(), *row[4:]) for row in rows}

    def asked_by_the_suite(self, out: str) -> int:
        """Returns how many answers are to the settings of the suite."""
        return sum(setting in SETTINGS for _, setting, _ in self.answers(out))

    def judged(self, out: str) -> tuple[Any, ...]:
        """Returns the decision, what each record says but for how it was computed, and the table of the summary.

        Pictures of examples are left out: they lie beside the store that saw them first, and are not merged. Confidence is
        that of float32, whose last digits follow the batch.
        """
        results = json.loads((self.path / out / "results.json").read_text(), parse_float=lambda text: round(float(text), 5))
        computed = ("seconds", "n_inferred", "n_recalled")
        records = [{name: value for name, value in record.items() if name not in computed} for record in results["records"]]
        for record in records:
            record["examples"] = [{**example, "pictures": []} for example in record["examples"]]
        table = [line for line in (self.path / out / "summary.md").read_text().splitlines() if line.startswith(("#", "|"))]
        return results["decision"], sorted(records, key=lambda record: str(record["key"])), table

    def outcomes(self, out: str) -> tuple[str, dict[str, str]]:
        """Returns the decision, and the outcome of each test."""
        results = json.loads((self.path / out / "results.json").read_text())
        return results["decision"], {record["key"]: record["outcome"] for record in results["records"]}

    def inferred(self, out: str) -> int:
        return sum(record["n_inferred"] for record in json.loads((self.path / out / "results.json").read_text())["records"])

    def stored(self, store: str) -> int:
        """Returns how many answers a store has by now."""
        try:
            with sqlite3.connect(f"file:{self.path / store / 'predictions.sqlite'}?mode=ro", uri=True) as connection:
                return int(connection.execute("select count(*) from predictions").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def method(self, out: str) -> str:
        return str(
            json.loads((self.path / out / "manifest.json").read_text())["models"]["model"]["fingerprint"].get("answer", "letters")
        )


@pytest.fixture
def gate(pytester: pytest.Pytester) -> Gate:
    return Gate(pytester)


def test_two_parts_that_are_merged_answer_and_judge_as_one_process(gate: Gate) -> None:
    code, said = gate.run("here")
    assert code == 1, said  # invert costs it more than the policy bears
    for part in ("1", "2"):
        assert gate.run(part, "--vlm-fill", f"--vlm-shard={part}/2", report=False)[0] == 0
    assert main(["merge", *(str(gate.path / f"store-{part}") for part in "12"), "--out", str(gate.path / "store-all")]) == 0
    assert gate.run("all", "--vlm-offline")[0] == 1
    assert gate.asked_by_the_suite("here") == SAMPLES * len(SETTINGS)
    assert gate.answers("all") == gate.answers("here")
    assert gate.judged("all") == gate.judged("here")
    assert gate.stored("store-all") == gate.stored("store-here")


# Ray: a head without cores, and two nodes with one each.


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_AUTH_MODE", "disabled")  # the token lies in the home directory, of which tests have another one
        patched.setenv("RAY_worker_niceness", "0")  # by default actors step back behind whatever else runs here
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


def actors_on(node: Any) -> list[int]:
    """Returns the process ids of the actors that a raylet started."""
    (raylet,) = (info.process.pid for info in node.all_processes["raylet"])
    processes = []
    for folder in Path("/proc").iterdir():
        try:
            parent = folder.name.isdigit() and int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and (folder / "cmdline").read_text().startswith("ray::Host"):
                processes.append(int(folder.name))
        except OSError:
            continue  # it ended meanwhile
    return processes


def wait_until(holds: Any, process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + START_SECONDS
    while not holds():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for actors in /proc")
def test_actors_answer_and_judge_as_one_process_though_one_is_killed_and_a_node_removed(gate: Gate, cluster: Any) -> None:
    ray = ("--vlm-engine=ray", f"--vlm-ray-address={cluster.address}")
    gate.run("here")
    run = gate.start("ray", *ray)
    first, second = cluster.worker_nodes
    wait_until(lambda: gate.stored("store-ray") > 20 and actors_on(first), run)
    os.kill(actors_on(first)[0], signal.SIGKILL)
    killed_at = gate.stored("store-ray")
    wait_until(lambda: gate.stored("store-ray") > killed_at + 100 and actors_on(first), run)
    cluster.remove_node(second, allow_graceful=False)
    assert gate.stored("store-ray") < gate.stored("store-here"), "it was over before the node was removed"
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 1, said
    assert said.count("was lost") >= 2, said  # a third one, where the second was replaced on the node that was going
    assert gate.answers("ray") == gate.answers("here")
    assert gate.judged("ray") == gate.judged("here")
    assert gate.inferred("ray") == gate.inferred("here") == gate.stored("store-ray") == gate.stored("store-here")
    code, said = gate.run("again", *ray, "--vlm-store=store-here")
    assert (code, "0 inferences" in said) == (1, True), "a store that was filled in process is a hit under Ray"
    code, said = gate.run("again", "--vlm-offline", "--vlm-store=store-ray")
    assert (code, gate.judged("again")) == (1, gate.judged("here")), "and the other way round"


# A server.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Server:
    """``transformers serve`` with the embedded model; can be killed and started again at the same place."""

    def __init__(self, folder: Path) -> None:
        for package in ("openai", "fastapi", "uvicorn", "accelerate"):
            pytest.importorskip(package)
        self._folder, self._port, self._log = folder, free_port(), folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "cache").mkdir()
        (folder / "launch.py").write_text(LAUNCHER)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        given = ["--host", "127.0.0.1", "--port", str(self._port), "--device", "cpu", "--dtype", "float32"]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(self._folder / "cache"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(self._folder / "launch.py"), TINY, *given]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        give_up = time.monotonic() + START_SECONDS
        while not _is_up(f"http://127.0.0.1:{self._port}/health"):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < give_up, self._log.read_text()
            time.sleep(0.5)

    def kill(self) -> None:
        """Ends it at once, whatever it is answering."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    @property
    def answered(self) -> int:
        """How many requests got an answer, as its log says."""
        return self._log.read_text().count('"POST /v1/chat/completions HTTP/1.1" 200')


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Server(tmp_path_factory.mktemp("serve"))
    try:
        server.start()
        yield server.url
    finally:
        server.kill()


def _is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:  # noqa: S310 - an address of this machine
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_served_model_answers_and_is_judged_as_in_the_process_by_the_same_method(gate: Gate, url: str) -> None:
    gate.describe("served", backend="openai", url=url, model=TINY, revision="1")
    gate.run("served", models="served")
    gate.run("here", "--vlm-answer=text")
    assert gate.method("served") == "text", "transformers serve gives no log-probabilities"
    assert gate.method("here") == "text"
    assert gate.asked_by_the_suite("here") == SAMPLES * len(SETTINGS)
    there, here = gate.answers("served"), gate.answers("here")
    assert {key: scored for key, (_, *scored) in there.items()} == {key: scored for key, (_, *scored) in here.items()}
    rambling = {key for key in here if there[key][0] != here[key][0]}
    assert len(rambling) <= 8, "rounding may end a text that says nothing elsewhere"
    assert {here[key][1] for key in rambling} <= {"unparsed"}
    assert gate.judged("served") == gate.judged("here")


def test_kept_to_letters_by_a_bias_the_server_names_the_letters_that_are_most_probable_in_the_process(
    gate: Gate, url: str
) -> None:
    gate.describe("served", backend="openai", url=url, model=TINY, revision="2", tokenizer=TINY)
    gate.run("served", models="served")
    gate.run("here")
    assert (gate.method("served"), gate.method("here")) == ("logit_bias", "letters")
    there, here = gate.answers("served"), gate.answers("here")
    assert gate.asked_by_the_suite("here") == SAMPLES * len(SETTINGS)
    assert [key for key in here if there[key] != here[key]] == []


def test_a_server_that_is_killed_and_started_again_in_the_middle_loses_nothing(gate: Gate, server: Server) -> None:
    gate.describe("served", backend="openai", url=server.url, model=TINY, revision="3", tokenizer=TINY, time_limit=START_SECONDS)
    run = gate.start("served", models="served")
    wait_until(lambda: gate.stored("store-served") > 50, run)
    server.kill()
    at_the_kill = gate.stored("store-served")
    server.start()
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 1, said
    gate.run("here")
    assert at_the_kill < gate.stored("store-served") == gate.stored("store-here") == gate.inferred("served")
    assert gate.answers("served") == gate.answers("here")
    assert gate.outcomes("served") == gate.outcomes("here")
    more = server.answered - gate.stored("store-served")
    assert 0 < more <= MOST, "beside the samples, each asked once, it was asked what tells models apart, and what was in flight"
