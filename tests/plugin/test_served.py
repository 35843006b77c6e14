"""Whole gates about a model that is asked over a socket: alone and with workers, killed in the middle, offline, and verified."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openai")

from pytest_vlmrobust.backends import replicas
from pytest_vlmrobust.backends.replicas import MOST
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request
from pytest_vlmrobust.evaluation.run.ledger import SharedSpending
from pytest_vlmrobust.store.spending import Spending
from tests.model_server import ModelServer, Reply, in_mode

from .conftest import ALONE, SAMPLES, WORKERS_IF_SLOW, Project, ends

CELLS = 6
KEY = "sk-a-secret-that-nothing-may-repeat-0123456789"


def good(request: Request) -> str | Prediction:
    """Answers B (right) with a picture and A without, by letters where they are asked for."""
    letter = "B" if request.images else "A"
    if not request.choices:
        return letter
    logprobs = {other: -0.1 if other == letter else -3.0 for other in request.choices}
    return Prediction(letter, LETTER_LOGITS, logprobs=logprobs)


class Counting:
    """Counts how often each question was answered; a question is what a body holds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any]) -> Reply | None:
        with self._lock:
            if is_question(body):
                self.counts[json.dumps(body, sort_keys=True)] += 1
        return None


@pytest.fixture
def served() -> Iterator[ModelServer]:
    with ModelServer(ScriptedBackend(good, version="1"), before=Counting()) as server:
        yield server


def run(project: Project, server: ModelServer, *arguments: str, revision: str = "@1") -> pytest.RunResult:
    return project.run(f"--vlm=openai:{server.url}#m{revision}", *arguments, models=())


@pytest.fixture(params=[ALONE, WORKERS_IF_SLOW])
def arguments(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(request.param)


def test_a_gate_about_a_served_model_is_go_and_can_be_repeated_without_the_server(
    project: Project, served: ModelServer, arguments: tuple[str, ...]
) -> None:
    ends(run(project, served, "--vlm-report=out", *arguments), 0, "*GO  *verdicts passed*")
    assert project.stored == CELLS * SAMPLES
    assert isinstance(served.before, Counting)
    assert set(served.before.counts.values()) == {1}, "each question is asked once over all workers"
    manifest = json.loads((project.path / "out" / "manifest.json").read_text())
    fingerprint = manifest["models"]["m"]["fingerprint"]
    assert (fingerprint["model"], fingerprint["revision"], fingerprint["answer"]) == ("m", "1", "letters")
    served.kill()
    for more in ((), ("--vlm-offline",)):
        ends(run(project, served, *more, *arguments), 0, "0 inferences; * answers were cached")
    (last, *_) = sorted((project.path / ".vlmrobust" / "runs").iterdir(), reverse=True)
    project.verify(last)


def sees_letter(body: dict[str, Any]) -> str:
    return "B" if "image_url" in str(body) else "A"


@pytest.mark.parametrize("mode", ["think_logprobs", "reasoning_logprobs"])
def test_a_model_that_thinks_first_is_asked_by_text_and_can_be_go(project: Project, served: ModelServer, mode: str) -> None:
    served.before = in_mode(mode, sees_letter)
    assert run(project, served, "--vlm-report=out").ret == 0
    manifest = json.loads((project.path / "out" / "manifest.json").read_text())
    assert manifest["models"]["m"]["fingerprint"]["answer"] == "text"


def test_letters_that_are_no_answers_are_said_in_run_and_report(project: Project, served: ModelServer) -> None:
    served.before = in_mode("lp_paren", sees_letter)
    assert run(project, served, "--vlm-report=out", "--vlm-answer=letters").ret == 1
    for file in ("summary.md", "report.html", "model_card.md"):
        assert "would not begin with a letter" in (project.path / "out" / file).read_text()
    notes = [note for record in project.results("out")["records"] for note in record["notes"]]
    assert f"clean: in {SAMPLES} of {SAMPLES} answers the letters hold less than half of the probability" in str(notes)


def test_without_a_declared_revision_the_run_measures_and_is_not_go(project: Project, served: ModelServer) -> None:
    result = run(project, served, revision="")
    ends(result, 10, "*m is on a server, where nobody can see which weights answer, and GO requires a declared *")


def is_question(body: dict[str, Any]) -> bool:
    """Whether it is one of the gate, and none by which servers are told apart."""
    return "Options:" in str(body["messages"])


def test_a_server_that_is_killed_and_restarted_in_the_middle_loses_nothing(project: Project, served: ModelServer) -> None:
    counting = Counting()
    at_the_kill: list[int] = []
    lock = threading.Lock()

    def kill_once(body: dict[str, Any]) -> Reply | None:
        counting(body)
        with lock:
            kills = is_question(body) and counting.counts.total() >= 15 and not at_the_kill
            if kills:
                at_the_kill.append(project.stored)
        if kills:
            threading.Thread(target=served.kill, daemon=True).start()
            threading.Timer(1.0, served.start).start()
        return None

    served.before = kill_once
    assert run(project, served, "--vlm-report=out").ret == 0
    assert at_the_kill
    assert at_the_kill[0] < project.stored == CELLS * SAMPLES
    assert len(counting.counts) == CELLS * SAMPLES
    lost = counting.counts.total() - CELLS * SAMPLES
    assert lost <= MOST, "only what was in flight when the server was killed is asked again"
    results = project.results("out")
    assert sum(record["n_inferred"] for record in results["records"]) == CELLS * SAMPLES


def test_a_server_that_is_down_behind_a_proxy_in_the_middle_loses_nothing(project: Project, served: ModelServer) -> None:
    counting = Counting()
    down_until: list[float] = []
    lock = threading.Lock()

    def proxied(body: dict[str, Any]) -> Reply | None:
        with lock:
            if is_question(body) and counting.counts.total() == 15 and not down_until:
                down_until.append(time.monotonic() + 5.0)  # more than the tries of a request take
        if down_until and time.monotonic() < down_until[0]:
            return 500, {}, b'{"error": {"message": "Connection error"}}'
        return counting(body)

    served.before = proxied
    assert run(project, served, "--vlm-report=out").ret == 0
    assert down_until
    assert project.stored == CELLS * SAMPLES
    assert set(counting.counts.values()) == {1}, "nothing is asked again that was answered"
    (file,) = project.path.rglob("spending.tsv")
    assert SharedSpending(file).read()["m"].answers == CELLS * SAMPLES


class Replicated:
    """Three replicas: one that lives, one that is dead at the start, and one that dies in the middle; the dead come back."""

    def __init__(self) -> None:
        self.counting = Counting()
        self.lives, self.late, self.dies = (
            ModelServer(ScriptedBackend(good, version="1"), before=before).start()
            for before in (self._asked_the_living, self._asked_the_late, self._asked_the_dying)
        )
        self.late.kill()
        self.dead, self.again = threading.Event(), {"late": threading.Event(), "dies": threading.Event()}
        self.asked_alone = 0
        self.waited_in_vain = False
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return f"openai:{','.join(server.url for server in (self.lives, self.late, self.dies))}#m@1"

    def close(self) -> None:
        for server in (self.lives, self.late, self.dies):
            server.kill()

    def _asked_the_living(self, body: dict[str, Any]) -> Reply | None:
        if not is_question(body):
            return None
        self.counting(body)
        if not self.dead.is_set():
            return None
        with self._lock:
            self.asked_alone += 1
            comes_back = self.asked_alone == 8
        if comes_back:
            self.late.start()
            self.dies.start()
        if self.asked_alone >= 8:  # so that questions are left for the others
            self.waited_in_vain |= not all(event.wait(60) for event in self.again.values())
        return None

    def _asked_the_late(self, body: dict[str, Any]) -> Reply | None:
        return self._noted(body, "late")

    def _asked_the_dying(self, body: dict[str, Any]) -> Reply | None:
        if self.dead.is_set():
            return self._noted(body, "dies")
        if not is_question(body):
            return None
        with self._lock:
            self.counting(body)
            if self.counting.counts.total() >= 10 and not self.dead.is_set():
                self.dies.kill()
                self.dead.set()
        return None

    def _noted(self, body: dict[str, Any], name: str) -> Reply | None:
        if is_question(body):
            self.counting(body)
            self.again[name].set()
        return None


@pytest.mark.slow  # on a busy machine all questions that are left may be on their way before a server is back
def test_of_replicas_the_living_are_asked_and_the_dead_are_asked_again_once_they_live(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_LONGEST_REST", 0.2)  # seconds; nobody waits for long here
    servers = Replicated()
    try:
        result = project.run(f"--vlm={servers.model}", "--vlm-report=out", models=())
    finally:
        servers.close()
    assert result.ret == 0, result.stdout.str()
    assert servers.asked_alone >= 8
    assert not servers.waited_in_vain, "one that came back was not asked"
    manifest = json.loads((project.path / "out" / "manifest.json").read_text())
    (process,) = manifest["processes"].values()
    answered = {url: seen["answers"] for url, seen in process["m"]["loaded"]["servers"].items()}
    assert answered[servers.lives.url] >= 8
    assert min(answered.values()) >= 1
    assert project.stored == CELLS * SAMPLES == len(servers.counting.counts)
    assert servers.counting.counts.total() - CELLS * SAMPLES <= MOST, "only what was in flight at the dying one is asked again"


def test_a_server_that_is_gone_is_incomplete_and_the_next_run_asks_the_rest(project: Project, served: ModelServer) -> None:
    seen: list[object] = []

    def die(body: dict[str, Any]) -> Reply | None:
        seen.extend([body] if "Options:" in str(body["messages"]) else [])
        if len(seen) == 20:
            threading.Thread(target=served.kill, daemon=True).start()
        return None

    served.before = die
    project.write(
        "models.yaml", f"models: {{m: {{backend: openai, url: '{served.url}', model: m, revision: '1', time_limit: 1}}}}"
    )
    given = ("--vlm=m", "--vlm-models=models.yaml")
    ends(project.run(*given, models=()), 11, "*INCOMPLETE*")
    assert 0 < project.stored < CELLS * SAMPLES
    served.before = lambda _body: None
    served.start()
    assert project.run(*given, models=()).ret == 0
    assert project.stored == CELLS * SAMPLES


def test_a_model_that_changes_in_the_middle_is_incomplete_and_its_answers_are_not_used_again(
    project: Project, served: ModelServer, arguments: tuple[str, ...]
) -> None:
    counts: list[object] = []

    def swap(body: dict[str, Any]) -> Reply | None:
        counts.extend([body] if "Options:" in str(body["messages"]) else [])
        if len(counts) == 30:
            served.backend = ScriptedBackend(lambda request: good(request) if request.choices else "Indeed, B", version="2")
        return None

    served.before = swap
    ends(run(project, served, *arguments), 11, "*the server of m changed its model while it was asked*")
    ends(run(project, served, "--vlm-offline"), 11, "*answers of two models are in the store under this name*")
    assert run(project, served, revision="@2").ret == 0


def test_the_key_is_in_nothing_that_a_run_leaves(project: Project, served: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def reject(body: dict[str, Any]) -> Reply | None:
        if "Number 3" not in str(body["messages"]):
            return None
        return 400, {"x-key": KEY}, json.dumps({"error": {"message": f"bad key {KEY}", "code": KEY}}).encode()

    served.before = reject
    result = ends(
        run(project, served, "--vlm-report=out", "--junitxml=junit.xml", "--showlocals", "-rA", "--log-level=DEBUG"), 11
    )
    assert "bad key (the key)" in result.stdout.str()
    assert KEY not in result.stdout.str() + result.stderr.str()
    left = [path for path in project.path.rglob("*") if path.is_file()]
    assert any(path.name == "predictions.sqlite" for path in left)
    assert not [path for path in left if KEY.encode() in path.read_bytes()]


DEPLOYED = """
models:
  m:
    backend: openai
    url: {url}
    model: m
    revision: "1"
    headers: {{api-key: {{variable: OUR_KEY}}}}
    query: {{api-version: "2026-02-01"}}
    extra_body: {{provider: {{order: [somebody]}}}}
    reasoning_effort: low
    system_prompt: You are the assistant of a shop.
    template: "A customer asks: {{question}} Thank you."
"""


def test_what_is_deployed_is_what_is_gated_and_stands_in_every_report(
    project: Project, served: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", KEY)
    file = project.write("models.yaml", DEPLOYED.format(url=served.url))
    result = ends(
        project.run("--vlm=m", "--vlm-models=models.yaml", "--vlm-report=out", "--showlocals", "--log-level=DEBUG", models=()), 0
    )
    questions = [(path, headers, body) for path, headers, body in served.calls if is_question(body)]
    assert len(questions) == CELLS * SAMPLES
    for path, headers, body in questions:
        assert (path, headers["api-key"]) == ("/v1/chat/completions?api-version=2026-02-01", KEY)
        assert (body["provider"], body["reasoning_effort"]) == ({"order": ["somebody"]}, "low")
        system, user = body["messages"]
        assert system == {"role": "system", "content": "You are the assistant of a shop."}
        (text,) = [part["text"] for part in user["content"] if part["type"] == "text"]
        assert text.startswith("A customer asks: Question: ")
        assert text.endswith(" Thank you.")
    manifest = json.loads((project.path / "out" / "manifest.json").read_text())["models"]["m"]
    assert manifest["deployment"] == {
        "system_prompt": "You are the assistant of a shop.",
        "template": "A customer asks: {question} Thank you.",
        "headers": {"api-key": "OUR_KEY"},
        "query": {"api-version": "2026-02-01"},
        "extra_body": {"provider": {"order": ["somebody"]}},
        "reasoning_effort": "low",
    }
    assert manifest["deployment"].items() <= manifest["fingerprint"].items()
    for name in ("report.html", "summary.md", "model_card.md"):
        text = (project.path / "out" / name).read_text()
        assert "You are the assistant of a shop." in text, name
        assert "A customer asks: {question} Thank you." in text, name
    (last,) = (project.path / ".vlmrobust" / "runs").iterdir()
    project.verify(last)
    assert KEY not in result.stdout.str() + result.stderr.str()
    assert not [path for path in project.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]

    again = project.run("--vlm=m", "--vlm-models=models.yaml", models=())
    again.stdout.fnmatch_lines(["0 inferences; * answers were cached"])
    for old, new in (("a shop", "a bank"), ("Thank you", "Thanks"), ("somebody", "nobody")):
        served.calls.clear()
        file.write_text(file.read_text().replace(old, new))
        assert project.run("--vlm=m", "--vlm-models=models.yaml", models=()).ret == 0
        assert len([body for _, _, body in served.calls if is_question(body)]) == CELLS * SAMPLES, new


def test_unusable_replies_leave_no_key_and_no_token_count(
    project: Project, served: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate is decided as ever by a server that repeats the key in every reply and counts less than no tokens."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    usage = {"prompt_tokens": -5, "completion_tokens": 10**30}

    def answered(body: dict[str, Any]) -> Reply:
        status, headers, content = ModelServer.answered(served, body)
        return status, headers, json.dumps({**json.loads(content), "usage": usage, "model": KEY}).encode()

    monkeypatch.setattr(served, "answered", answered)
    served.engine = f"proxy {KEY}"
    result = ends(run(project, served, "--vlm-report=out", "--junitxml=junit.xml"), 0)
    (file,) = project.path.rglob("spending.tsv")
    assert SharedSpending(file).read() == {"m": Spending("m", answers=48, uncounted=48)}
    assert KEY not in result.stdout.str() + result.stderr.str()
    assert not [path for path in project.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_plan_of_a_served_model_asks_no_question_of_the_data(project: Project, served: ModelServer) -> None:
    assert run(project, served, "--vlm-plan").ret == 5
    assert isinstance(served.before, Counting)
    assert not served.before.counts
