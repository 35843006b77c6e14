"""The benchmarks that are known by name, and which of them the name of a file means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.registry import Registry

from .benchmark import Benchmark, Layout

BENCHMARKS: Registry[Benchmark] = Registry("benchmark", "benchmarks")
"""Benchmarks of users and of installed packages; the shipped ones are read when first asked for."""

_LOCAL = re.compile(r"_local$", re.IGNORECASE)


def register_benchmark(benchmark: Benchmark, *, replace: bool = False) -> Benchmark:
    """Makes ``benchmark`` known; its file names are tried before those of the shipped ones.

    Raises:
        UsageError: a benchmark of that name is known and ``replace`` was not asked for.
    """
    if not replace and benchmark.name in _shipped():
        raise UsageError(f"benchmark {benchmark.name!r} is shipped. Choose another name, or pass replace=True")
    return BENCHMARKS.add(benchmark.name, benchmark, replace=replace)


def benchmarks() -> Mapping[str, Benchmark]:
    """Returns every benchmark by name: those of users and of installed packages, then the shipped ones."""
    own = {name: BENCHMARKS.get(name) for name in BENCHMARKS.names()}
    return {**own, **{name: benchmark for name, benchmark in _shipped().items() if name not in own}}


def benchmark_of(name: str) -> Benchmark | None:
    """Returns the benchmark that a file name without ending, or a benchmark's own name, means; in any case.

    ``_local`` at the end, as VLMEvalKit names files whose pictures it has moved out, is left aside. A name that is written out
    in a record counts before a pattern.

    >>> benchmark_of("MMBench_DEV_EN_V11_local").name, benchmark_of("shapes")
    ('MMBench', None)
    """
    wanted = _LOCAL.sub("", name).lower()
    known = benchmarks().values()
    exact = (one for one in known if wanted in {one.name.lower(), *(file.lower() for file in one.files)})
    similar = (one for one in known if any(fnmatchcase(wanted, pattern.lower()) for pattern in one.files))
    return next(exact, None) or next(similar, None)


def resembled(name: str) -> str:
    """Returns which benchmark a file name without ending speaks of among other words, and so does not mean; else "".

    >>> resembled("our_MME_v2"), resembled("MME"), resembled("mmeasures")
    ('MME', '', '')
    """
    if benchmark_of(name):
        return ""
    words = f"_{_words(name)}_"
    return next(
        (one.name for one in benchmarks().values() for own in (one.name, *one.file_names) if f"_{_words(own)}_" in words), ""
    )


def _words(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def hub_layout(hub_id: str, config: str = "") -> tuple[Benchmark, Layout] | None:
    """Returns the benchmark that a hub id means, and where it keeps what there: the layout of ``config`` before others."""
    found = [(one, layout) for one in benchmarks().values() for layout in one.hub if _is_one_of(hub_id, layout)]
    return next((pair for pair in found if config and pair[1].config == config), next(iter(found), None))


def _is_one_of(hub_id: str, layout: Layout) -> bool:
    return hub_id.lower() in {known.lower() for known in layout.ids}


@cache
def _shipped() -> dict[str, Benchmark]:
    from .benchmark_files import SHIPPED, read_benchmarks  # reads YAML, which naming a data set does not need

    return read_benchmarks(SHIPPED)
