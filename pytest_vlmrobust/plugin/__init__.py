"""pytest's view of pytest_vlmrobust: every hook and fixture, in the order pytest calls them.

Nothing here imports numpy or torch: each pytest start in the user's environment imports this package.
"""

from __future__ import annotations

# ruff: noqa: I001 - the order is the one in which pytest calls the hooks
from .options import pytest_addoption as pytest_addoption
from .report import pytest_cmdline_main as pytest_cmdline_main
from .session import pytest_load_initial_conftests as pytest_load_initial_conftests
from .session import pytest_configure as pytest_configure
from .session import pytest_unconfigure as pytest_unconfigure
from .workers import pytest_sessionstart as pytest_sessionstart
from .report import pytest_report_header as pytest_report_header
from .selection import pytest_make_collect_report as pytest_make_collect_report
from .selection import pytest_generate_tests as pytest_generate_tests
from .selection import pytest_collection_modifyitems as pytest_collection_modifyitems
from .selection import pytest_itemcollected as pytest_itemcollected
from .report import pytest_report_collectionfinish as pytest_report_collectionfinish
from .report import pytest_runtestloop as pytest_runtestloop
from .fixtures import GatedTest as GatedTest
from .fixtures import _vlm_judged as _vlm_judged
from .fixtures import vlm_cell as vlm_cell
from .fixtures import vlm_sweep as vlm_sweep
from .fixtures import vlm_family as vlm_family
from .fixtures import vlm_check_memory as vlm_check_memory
from .outcome import pytest_runtest_makereport as pytest_runtest_makereport
from .report import pytest_report_teststatus as pytest_report_teststatus
from .report import pytest_sessionfinish as pytest_sessionfinish
from .report import pytest_terminal_summary as pytest_terminal_summary
from .workers import pytest_configure_node as pytest_configure_node
from .workers import pytest_testnodedown as pytest_testnodedown
from .workers import pytest_xdist_node_collection_finished as pytest_xdist_node_collection_finished
from .workers import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
