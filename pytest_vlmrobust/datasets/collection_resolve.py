"""From what the user typed to a collection of identities: a registered name, or a folder of one's own."""

from __future__ import annotations

from pathlib import Path

from .collection import COLLECTIONS, Collection
from .faces_folder_layout import tables_in
from .resolve import HUB, dataset_id, find


def resolve_collection(name_or_path: str | Path, data_dir: Path | None = None) -> Collection | None:
    """Returns the collection that ``name_or_path`` means, or ``None`` where it means none; no picture is opened for it.

    It is that of a registered name, else a folder that holds ``faces.csv`` or ``faces.json``: as a path, or by its name in the
    data folder. To mean a folder whose name is also registered, write it as a path: ``./faces``. Each call makes a collection
    of its own, which reads the folder when it is first asked for something.

    Args:
        name_or_path: as typed after ``--vlm-dataset``.
        data_dir: the data folder; without it, the folders that ``VLMROBUST_DATA`` and ``LMUData`` name.

    Raises:
        UsageError: an installed package offers it and fails to import.
    """
    typed = str(name_or_path)
    if typed in COLLECTIONS:
        return COLLECTIONS.get(typed)()
    if not typed.strip() or typed.startswith(HUB):
        return None
    path = find(typed, data_dir)
    if path is None or not tables_in(path):
        return None
    from .faces_folder import FaceFolder

    return FaceFolder(path, dataset_id(typed))
