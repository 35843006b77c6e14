"""CPU milliseconds of all published settings on one thread, beside the same of other libraries; and what more threads bring.

    python benchmarks/perturbations.py                               # everything, in some minutes
    python benchmarks/perturbations.py --names fog rain              # some perturbations, at all levels
    python benchmarks/perturbations.py --size 640x480 --no-peers     # some sizes, our own times only
    python benchmarks/perturbations.py --json times.json             # the numbers, for a program
    python benchmarks/perturbations.py --markdown                    # also what has a peer, as studies/performance/README.md

The other libraries go into an environment of their own: albumentations asks for a build of OpenCV that overwrites ours, and
imagecorruptions for something that newer releases of setuptools do not have. At the top of the repository::

    pip install -c constraints.txt -e .
    pip install --no-deps albumentations==2.0.8 albucore==0.0.24
    pip install -c constraints.txt "setuptools<81" imagecorruptions==1.1.2 pydantic simsimd "stringzilla<4"

The floor is one pass of OpenCV over the same bytes, or the passes that the law itself asks for, such as those of a codec. The
last line above brings stringzilla along, the extra `speed`; without it ours take OpenCV's tables, and give the same bytes.

Times are CPU time of the process, which other programs hardly disturb; on one thread it is the time by the clock. Ours and
theirs take turns, and the median counts. Our times include making a generator from a seed for every call; theirs neither that
nor the making of a pipeline. Threads are measured by the clock, the best of ten tries: their ratio means something only where
the cores have nothing else to do. The program ends with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
from measuring import Row, Size, Throughput, drawn, throughput, times, warm_allocator
from peers import Peer, installed

from pytest_vlmrobust import perturbations

SIZES: tuple[Size, ...] = ((640, 480), (1344, 1008))
SLOWEST = {(640, 480): 60.0, (1344, 1008): 150.0}
"""Milliseconds that no setting may exceed."""
TOTAL = {(640, 480): 1500.0}
"""Milliseconds that all settings together may take."""
RATIO = {"imagecorruptions": 10.0, "albumentations": 1.5}
"""How many times as long a peer has to take, as a geometric mean."""
EACH = {"imagecorruptions": 10.0, "albumentations": 1.0}
"""The same for each setting, unless it takes at most ``FLOOR`` times the work that cannot be left out."""
FLOOR = 1.5
PICTURES = 4
"""Pictures that threads share."""


@dataclass(frozen=True)
class Target:
    """A number, and where it has to be."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the number is where it has to be."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        side = "least" if self.at_least else "most"
        return f"{'PASS' if self.met else 'FAIL'}  {self.what}: {self.value:.2f} (expected: at {side} {self.bound:g})"


def main(arguments: Sequence[str]) -> int:
    """Measures and prints what the arguments ask for.

    Returns:
        The exit status: 1 where a target is missed, else 0.
    """
    options = _options(arguments)
    peers = [] if options.no_peers else installed()
    cv2.setNumThreads(1)
    warm_allocator()
    settings = _settings(options.names)
    if options.quick:
        settings = [setting for setting in settings if setting.partition(":")[2] in {"", "mid"}]
    tables = {size: times(settings, size, peers, quick=options.quick) for size in options.size}
    targets = [target for size, rows in tables.items() for target in _targets(size, rows, peers)]
    threads = [] if options.quick else _by_threads(settings, options.size[0])
    for size, rows in tables.items():
        _print_table(size, rows, peers)
        if options.markdown:
            _print_markdown(rows, peers)
    _print_failures(peers)
    if threads:
        _print_threads(threads, len(settings), options.size[0])
    print("", *targets, sep="\n")
    if options.json:
        options.json.write_text(json.dumps(_report(tables, targets, threads, peers), indent=1) + "\n", encoding="utf-8")
    return 0 if all(target.met for target in targets) else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", nargs="+", type=_size, default=SIZES, metavar="WxH", help="sizes of the picture")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="perturbations; by default all that are published")
    parser.add_argument("--quick", action="store_true", help="fewer calls of each, no other level than mid, and no threads")
    parser.add_argument("--no-peers", action="store_true", help="leave out the other libraries")
    parser.add_argument("--markdown", action="store_true", help="print what has a peer as a table for the documentation, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    return parser.parse_args(arguments)


def _size(text: str) -> Size:
    width, height = map(int, text.split("x"))
    return width, height


def _settings(names: Sequence[str] | None) -> list[str]:
    if names is None:
        return perturbations.names("robustbench")
    return [setting for setting in perturbations.names("all") if setting.partition(":")[0] in names]


def _targets(size: Size, rows: Sequence[Row], peers: Sequence[Peer]) -> list[Target]:
    """Returns what is expected of one table; means and sums are judged only where all published settings are in it."""
    at = f"{size[0]}x{size[1]}"
    slowest = max(rows, key=lambda row: row.ours)
    targets = [Target(f"{at}: ms of the slowest, {slowest.setting}", slowest.ours, SLOWEST[size])] if size in SLOWEST else []
    for peer in peers:
        slow = [row for row in rows if row.ratio(peer.name) < EACH[peer.name] and row.ours > FLOOR * row.floor]
        names = "".join(f", {row.setting} ({row.ratio(peer.name):.2f})" for row in slow)
        what = f"{at}: settings below {EACH[peer.name]:g} times {peer.title} and above {FLOOR} floors{names}"
        targets.append(Target(what, len(slow), 0))
    if {row.setting for row in rows} != {*perturbations.names("robustbench")}:
        return targets
    for peer in peers:
        what = f"{at}: times as fast as {peer.title}, geometric mean of {len(_ratios(rows, peer))}"
        targets.append(Target(what, statistics.geometric_mean(_ratios(rows, peer)), RATIO[peer.name], at_least=True))
    if size in TOTAL:
        targets.append(Target(f"{at}: ms of all {len(rows)}", sum(row.ours for row in rows), TOTAL[size]))
    return targets


def _ratios(rows: Sequence[Row], peer: Peer) -> list[float]:
    return [row.ratio(peer.name) for row in rows if peer.name in row.theirs]


def _by_threads(settings: Sequence[str], size: Size) -> list[Throughput]:
    pictures = [drawn(size, seed) for seed in range(PICTURES)]
    return [throughput(settings, pictures, threads) for threads in sorted({1, 2, _cores(), 2 * _cores()})]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _print_table(size: Size, rows: Sequence[Row], peers: Sequence[Peer]) -> None:
    heads = "".join(f"{peer.title:>24}{'ratio':>8}" for peer in peers)
    print(f"\n{f'{size[0]}x{size[1]}, CPU ms':28}{'ours':>9}{'floor':>9}{heads}")
    for row in rows:
        cells = "".join(_cell(row, peer.name) for peer in peers)
        print(f"{row.setting:28}{row.ours:9.2f}{row.floor:9.2f}{cells}".rstrip())
    means = "".join(f"{statistics.geometric_mean(_ratios(rows, peer) or [math.nan]):32.2f}" for peer in peers)
    print(f"{f'all {len(rows)}; geometric means':28}{sum(row.ours for row in rows):9.2f}{' ' * 9}{means}")


def _print_markdown(rows: Sequence[Row], peers: Sequence[Peer]) -> None:
    print(f"\n| | ours, ms | floor, ms | {' | '.join(f'{peer.name}, ms | times' for peer in peers)} |")
    print("|---|" + "--:|" * (2 + 2 * len(peers)))
    for row in (row for row in rows if row.theirs):
        cells = [
            f"{row.theirs[peer.name]:.2f} | {row.ratio(peer.name):.2f}" if peer.name in row.theirs else " | " for peer in peers
        ]
        print(f"| `{row.setting}` | {row.ours:.2f} | {row.floor:.2f} | {' | '.join(cells)} |")


def _cell(row: Row, peer: str) -> str:
    return f"{row.theirs[peer]:24.2f}{row.ratio(peer):8.2f}" if peer in row.theirs else " " * 32


def _print_failures(peers: Sequence[Peer]) -> None:
    for peer in peers:
        print(f"\n{peer.title}: {'what fails, and is in no mean' if peer.failures else 'nothing fails'}")
        for name, error in peer.failures.items():
            print(f"  {name}: {error}")


def _print_threads(rows: Sequence[Throughput], count: int, size: Size) -> None:
    print(f"\n{count} settings of {PICTURES} pictures of {size[0]}x{size[1]} on {_cores()} cores, if no other program uses them")
    print(f"{'threads':>9}{'clock s':>9}{'CPU s':>9}{'ratio':>9}")
    for each in rows:
        print(f"{each.threads:9}{each.clock:9.2f}{each.processor:9.2f}{rows[0].clock / each.clock:9.2f}")


def _report(
    tables: dict[Size, list[Row]], targets: Sequence[Target], threads: Sequence[Throughput], peers: Sequence[Peer]
) -> dict[str, Any]:
    return {
        "milliseconds": {f"{width}x{height}": [asdict(row) for row in rows] for (width, height), rows in tables.items()},
        "targets": [{**asdict(target), "met": target.met} for target in targets],
        "threads": [asdict(each) for each in threads],
        "cores": _cores(),
        "failures": {peer.title: peer.failures for peer in peers},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
