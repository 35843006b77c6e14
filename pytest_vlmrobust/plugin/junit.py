"""What the whole run says in pytest's own JUnit file; ``reporting.junit`` says what single tests do."""

from __future__ import annotations

import pytest


def add_suite_properties(config: pytest.Config, facts: dict[str, str]) -> None:
    """Writes properties on the suite element; pytest's own fixture for it is lost under xdist (pytest issue 7767)."""
    for plugin in config.pluginmanager.get_plugins():
        add = getattr(plugin, "add_global_property", None)
        if callable(add):
            for name, value in facts.items():
                add(name, value)
