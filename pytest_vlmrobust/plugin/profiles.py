"""The Hypothesis profiles of the property checks."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Registers our profiles before Hypothesis looks for the one asked for; only who asks for one of them pays for the import."""
    if str(config.getoption("hypothesis_profile", None)).startswith("vlm-"):
        import pytest_vlmrobust.testing  # noqa: F401
