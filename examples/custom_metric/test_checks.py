"""What the metric claims holds, on scores that Hypothesis makes up."""

from pytest_vlmrobust.testing import check_metric


def test_claims() -> None:
    check_metric("flip_cost", examples=50)
