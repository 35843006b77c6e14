"""What the metric claims holds, on scores that Hypothesis makes up."""

from conftest import flip_cost
from pytest_vlmrobust.testing import check_metric


def test_claims():
    check_metric(flip_cost, examples=50)
