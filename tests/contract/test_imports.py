"""What the imports of the package cost, and what they offer by name."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import pytest_vlmrobust
from pytest_vlmrobust import perturbations

HEAVY = {"numpy", "torch", "transformers", "cv2", "scipy", "rich", "PIL"}


@pytest.mark.parametrize("module", ["pytest_vlmrobust", "pytest_vlmrobust.plugin", "pytest_vlmrobust.cli"])
def test_importing_costs_nothing(module: str) -> None:
    """Each pytest start in the user's environment imports the plugin."""
    program = f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    modules = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert module in modules
    assert not HEAVY & set(modules)


def test_perturbations_are_listed_without_numpy_and_opencv() -> None:
    program = (
        "import sys; from pytest_vlmrobust import perturbations; heavy = {'numpy', 'cv2', 'PIL'} & {*sys.modules}\n"
        "assert not heavy, heavy\n"
        "assert len(perturbations.names()) == 133 and 'cv2' not in sys.modules, 'listing names needs no OpenCV'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n1"]], ids=["alone", "with a worker"])
def test_a_plain_pytest_run_imports_nothing_heavy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_it():\n    pass\n")
    pytester.makeconftest(f"""
        import sys

        def pytest_sessionfinish():
            assert "pytest_vlmrobust.plugin" in sys.modules
            assert not {HEAVY} & set(sys.modules)
    """)
    result = pytester.runpytest_subprocess("-p", "pytest_vlmrobust.plugin", *workers)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("package", [pytest_vlmrobust, perturbations], ids=lambda package: package.__name__)
def test_everything_offered_is_there_and_in_order(package: ModuleType) -> None:
    assert sorted(package.__all__) == package.__all__
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert dir(package) == package.__all__


def test_modules_are_found_as_attributes_after_a_bare_import() -> None:
    program = "import pytest_vlmrobust as v; print(len(v.perturbations.names()), v.metrics.worst_case_drop.__name__)"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output == "133 worst_case_drop\n"


@pytest.mark.parametrize("package", [pytest_vlmrobust, perturbations], ids=lambda package: package.__name__)
def test_what_is_not_there_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'metricc'"):
        _ = package.metricc
