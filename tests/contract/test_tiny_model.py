"""The embedded model as it ships: good enough that robustness is visible, and blind without the picture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_vlmrobust.backends import Backend, BackendOptions, open_backend, resolve
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import resolve as resolve_dataset
from pytest_vlmrobust.datasets import resolve_collection
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.perturbations import get
from pytest_vlmrobust.scoring import score


@pytest.fixture(scope="module")
def tiny() -> Iterator[Backend]:
    backend = open_backend(resolve("tiny"), BackendOptions(batch_size=32))
    yield backend
    backend.close()


def accuracy(backend: Backend, samples: list[Sample], setting: str) -> float:
    requests = []
    for sample in samples:
        images = () if setting == "no_image" else tuple(get(setting)(image.load(), seed=1) for image in sample.images)
        requests.append(Request(sample.id, images, prompt(sample, "direct"), scorable_choices(sample, "direct")))
    scores = [score(sample, prediction) for sample, prediction in zip(samples, backend.infer(requests), strict=True)]
    assert all(result.rule == "letter_logits" for result in scores)
    return sum(result.value for result in scores) / len(scores)


@pytest.mark.parametrize("name", ["shapes", "words"])
def test_it_sees(tiny: Backend, name: str) -> None:
    samples = list(resolve_dataset(name).samples())[::2]
    clean, blind = accuracy(tiny, samples, "clean"), accuracy(tiny, samples, "no_image")
    assert clean >= 0.80
    assert clean - blind >= 0.40


@pytest.mark.parametrize("names", [("faces_160", "words_160"), ("words_160", "faces_160")])
def test_it_compares(tiny: Backend, names: tuple[str, str]) -> None:
    first, second = (resolve_collection(name) for name in names)
    assert first
    assert second
    samples = list(task_dataset("matching", first, second).samples())[::2]
    clean, blind = accuracy(tiny, samples, "clean"), accuracy(tiny, samples, "no_image")
    assert clean >= 0.75
    assert clean - blind >= 0.40


def test_severity_shows(tiny: Backend) -> None:
    samples = list(resolve_dataset("shapes").samples())[::2]
    low, high = accuracy(tiny, samples, "contrast:low"), accuracy(tiny, samples, "contrast:high")
    assert low >= 0.75
    assert high <= low - 0.20


def test_it_never_passes_for_more_than_a_reference() -> None:
    card = resolve("tiny").location
    from pathlib import Path

    text = (Path(card) / "README.md").read_text(encoding="utf-8")
    assert "reference model for trying the gate and nothing more" in text


def test_its_identity_is_the_one_that_stores_have() -> None:
    """Another digest throws away what every store holds of tiny: raise it on purpose, with other weights or another encoding."""
    identity = dict(open_backend(resolve("tiny"), BackendOptions(device="cpu")).fingerprint())
    del identity["versions"]
    assert fingerprint(identity) == "9948e3e68ce4679ce9fc941ea130e6476b70e656660cc13d0227660e93a4d2ca"
