from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_vlmrobust

HEAVY = {"numpy", "torch", "transformers", "cv2", "scipy", "rich", "PIL"}


@pytest.mark.parametrize("module", ["pytest_vlmrobust", "pytest_vlmrobust.plugin", "pytest_vlmrobust.cli"])
def test_importing_costs_nothing(module: str) -> None:
    """Each pytest start in the user's environment imports the plugin."""
    program = f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert module in found
    assert not HEAVY & set(found)


def test_a_plain_pytest_run_imports_nothing_heavy(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(f"""
        import sys

        def test_it():
            assert "pytest_vlmrobust.plugin" in sys.modules
            assert not {HEAVY} & set(sys.modules)
    """)
    pytester.runpytest_subprocess("-p", "pytest_vlmrobust.plugin").assert_outcomes(passed=1)


def test_everything_offered_is_there_and_in_order() -> None:
    assert sorted(pytest_vlmrobust.__all__) == pytest_vlmrobust.__all__
    for name in pytest_vlmrobust.__all__:
        assert getattr(pytest_vlmrobust, name) is not None
    assert dir(pytest_vlmrobust) == pytest_vlmrobust.__all__


def test_modules_are_found_as_attributes_after_a_bare_import() -> None:
    program = "import pytest_vlmrobust as v; print(len(v.perturbations.names()), v.metrics.worst_case_drop.__name__)"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert found == "133 worst_case_drop\n"


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pytest_vlmrobust' has no attribute 'metric'"):
        _ = pytest_vlmrobust.metric
