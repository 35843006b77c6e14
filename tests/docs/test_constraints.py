"""Both files of constraints fit what the package requires; nothing is installed for it."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement

from .conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = [Requirement(text) for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["openai"])]


@pytest.mark.cases("name", ["constraints.txt", "constraints-vllm.txt"])
def test_a_file_of_constraints_fits_the_requirements(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    checked = [required for required in REQUIRED if required.name.lower() in pins]
    assert {"torch", "transformers", "numpy", "opencv-python", "pytest"} <= {required.name for required in checked}
    for required in checked:
        assert required.specifier.contains(pins[required.name.lower()]), f"{required}: got {pins[required.name.lower()]}"
