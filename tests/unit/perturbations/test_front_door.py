from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_vlmrobust import perturbations


def test_importing_loads_neither_numpy_nor_opencv() -> None:
    program = (
        "import sys; from pytest_vlmrobust import perturbations; heavy = {'numpy', 'cv2', 'PIL'} & {*sys.modules}\n"
        "assert not heavy, heavy\n"
        "assert len(perturbations.names()) == 133 and 'cv2' not in sys.modules, 'listing names needs no OpenCV'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_all_is_what_exists() -> None:
    assert sorted(perturbations.__all__) == perturbations.__all__
    assert all(getattr(perturbations, name) is not None for name in perturbations.__all__)
    assert dir(perturbations) == perturbations.__all__


def test_an_attribute_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gett'"):
        _ = perturbations.gett
