"""What pandas makes of a column; expected texts were printed by pandas 3.1.1 (``f"{value}"`` of ``read_csv(sep="\\t")``)."""

import pytest

from pytest_vlmrobust.datasets.vlmevalkit_tsv import as_vlmevalkit_shows


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["1", "03", "+5", " 8"], ["1", "3", "5", "8"]),
        (["12", "None"], ["12.0", None]),
        (["1", "", "2"], ["1.0", None, "2.0"]),
        (["1", "2.50", "1e3", ".5", "5.", "inf"], ["1.0", "2.5", "1000.0", "0.5", "5.0", "inf"]),
        (["TRUE", "false", "tRue", ""], ["True", "False", "True", None]),
        (["True", "cat", "None"], ["True", "cat", None]),
        (["1", "True"], ["1", "True"]),
        (["1", "cat", "NA"], ["1", "cat", None]),
        (["1,000", "2"], ["1,000", "2"]),
        (["1_000", "2"], ["1_000", "2"]),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"]),
        (["N/A", "null", "nan", "#N/A N/A"], [None, None, None, None]),
        (["none", "NONE", "Na"], ["none", "NONE", "Na"]),
    ],
)
def test_a_column(cells: list[str], shown: list[str | None]) -> None:
    assert as_vlmevalkit_shows(cells) == shown
