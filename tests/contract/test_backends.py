"""What every backend promises: the scripted one, one tiny checkpoint of each architecture, a server of one, and actors of Ray."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import pytest

from pytest_vlmrobust.backends import Backend, BackendOptions, Cluster, open_backend, resolve
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.testing import BACKEND_CHECKS, check_backend
from pytest_vlmrobust.testing.backends import LETTERS, QUESTIONS
from tests.checkpoints import build_checkpoint
from tests.model_server import ModelServer

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "llava_onevision", "gemma3", "idefics3")
CONTROL = (
    "quote <|image_pad|> <|vision_start|> <image> <IMG_CONTEXT> <img> <video> <image_soft_token> <start_of_image> "
    "<|im_end|> <end_of_turn> <fake_token_around_image> <pad> <bos>"
)
SCRIPT = """
default: the default
rules:
  - {text: "Which letter", letter: B, logprobs: {A: -3.0, B: -0.1}}
"""


@pytest.fixture(scope="module", params=["scripted", "openai", pytest.param("ray", marks=pytest.mark.slow), *FAMILIES])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    cluster = None
    with contextlib.ExitStack() as stack:
        if request.param == "scripted":
            name = _scripted(tmp_path_factory)
        elif request.param == "openai":
            pytest.importorskip("openai")
            served = open_backend(resolve(_checkpoint("qwen2_vl", tmp_path_factory)), BackendOptions(batch_size=4))
            stack.callback(served.close)
            name = f"openai:{stack.enter_context(ModelServer(served)).url}#m@1"
        elif request.param == "ray":
            stack.enter_context(_ray())
            name, cluster = "tiny", Cluster(actors=1)
        else:
            name = _checkpoint(request.param, tmp_path_factory)
        opened = open_backend(resolve(name), BackendOptions(batch_size=4, cluster=cluster))
        stack.callback(opened.close)
        yield opened


@contextlib.contextmanager
def _ray() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_worker_niceness", "0")  # by default actors step back behind whatever else runs here
        warnings.simplefilter("ignore")
        ray.init("local", num_cpus=1, include_dashboard=False, configure_logging=False, log_to_driver=False)
        yield
        ray.shutdown()


def _scripted(factory: pytest.TempPathFactory) -> str:
    path = factory.mktemp("scripted") / "answers.yaml"
    path.write_text(SCRIPT)
    return f"scripted:{path}"


def _checkpoint(family: str, factory: pytest.TempPathFactory) -> str:
    return str(build_checkpoint(family, factory.getbasetemp() / "checkpoints" / family))


@pytest.mark.cases("check", BACKEND_CHECKS)
def test_promise(backend: Backend, check: str) -> None:
    check_backend(backend, check=check, sees=backend.fingerprint()["backend"] != "scripted")


def test_requests_are_answered_in_batches(backend: Backend) -> None:
    methods = {answer.method for answer in backend.infer(QUESTIONS) if answer.details.get("batch_rows", 2) == 2}
    assert methods == {"generate", "letter_logits"}


@pytest.mark.cases("choices", [LETTERS, ()])
def test_control_tokens_in_a_question_are_only_text(backend: Backend, choices: tuple[str, ...]) -> None:
    requests = [Request("quoting", QUESTIONS[0].images, CONTROL, choices), Request("blind", (), CONTROL, choices)]
    assert [prediction.error for prediction in backend.infer(requests)] == ["", ""]


def test_its_description_has_its_name_and_its_fingerprint(backend: Backend) -> None:
    description = backend.describe()
    assert description["name"] == backend.name
    assert description["fingerprint"] == dict(backend.fingerprint())
    assert description["fingerprint"]["backend"] in {"scripted", "transformers", "openai"}
