"""Stores: `vlmrobust merge`, which merges the stores filled by the parts of a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_vlmrobust.core.errors import UsageError, typed_path
from pytest_vlmrobust.core.words import quantity

from .arguments import Commands, add_command, say

SERVERS = "servers"
"""The folder of a store that remembers served models."""


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    merge = add_command(
        commands,
        "merge",
        "join the answers of several stores, such as those of --vlm-shard, in a new one",
        "vlmrobust merge part-1 part-2 --out whole",
    )
    merge.add_argument("stores", metavar="STORE", nargs="+", type=typed_path, help="a store: the directory after --vlm-store")
    merge.add_argument("--out", metavar="STORE", type=typed_path, required=True, help="the directory of the new store")
    merge.set_defaults(run=_merge)


def _merge(options: argparse.Namespace) -> int:
    import tempfile

    from pytest_vlmrobust.backends.served import merge_memories
    from pytest_vlmrobust.store.database import network_file_system
    from pytest_vlmrobust.store.merging import merge_stores

    if kind := network_file_system(options.out):
        raise UsageError(
            f"--out {str(options.out)!r} is on a network file system ({kind}), where the log of SQLite does not hold. "
            "Name a directory on a local disk, and copy it afterwards"
        )
    servers = [store / SERVERS for store in options.stores]
    with tempfile.TemporaryDirectory(prefix="vlmrobust-") as folder:
        merge_memories(servers, Path(folder))  # raises if they contradict each other, before anything is written
    merge = merge_stores(options.stores, options.out)
    merge_memories(servers, options.out / SERVERS)
    for store, new in merge.by_source:
        say(f"{store}: {quantity(new, 'new answer')}")
    say(f"{options.out}: {quantity(merge.answers, 'answer')}. Judge them with the options of the parts, in the place of")
    say(f"--vlm-fill and --vlm-shard: --vlm-store {options.out} --vlm-offline")
    return 0
