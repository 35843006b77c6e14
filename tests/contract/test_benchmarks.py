"""What the record of every benchmark names is there."""

import pytest

from pytest_vlmrobust import scoring
from pytest_vlmrobust.datasets import benchmarks
from pytest_vlmrobust.scoring.corpus import CORPUS_METRICS


@pytest.mark.parametrize("name", benchmarks())
def test_scorers_and_metric_exist(name: str) -> None:
    benchmark = benchmarks()[name]
    scorers = {scorer for kind in benchmark.kinds for scorer in (kind.scorer, kind.unlisted) if scorer}
    assert scorers
    assert scorers <= set(scoring.names())
    assert benchmark.metric in CORPUS_METRICS.names()
