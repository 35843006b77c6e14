from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.backends.served import Served, ServerRecord, ServerRecords, merge_memories, read_typed
from pytest_vlmrobust.core.errors import BackendError

SERVED = Served(("http://a/v1", "http://b/v1"), "org/m")
IDENTITY = SERVED.identity("1")


def seen(**fields: Any) -> ServerRecord:
    whole: dict[str, object] = {
        "identity": IDENTITY,
        "letters": True,
        "witnesses": {"q": "a"},
        "urls": ("http://a/v1",),
        **fields,
    }
    return ServerRecord(**whole)  # type: ignore[arg-type]  # as read from a file


def test_a_location_is_read_as_it_was_written() -> None:
    assert Served.of(SERVED.location) == SERVED
    assert read_typed(f"{SERVED.location}@v@2") == (Served(SERVED.urls, "org/m@v"), "2")


def test_a_declared_revision_stands_for_the_model_wherever_it_is_served() -> None:
    other = Served(("http://c/v1",), "org/m")
    assert SERVED.identity("1") == other.identity("1") != SERVED.identity("2")
    assert SERVED.identity("") != other.identity("")
    assert SERVED.identity("") == Served(SERVED.urls[::-1], "org/m").identity("")


def test_what_the_first_process_saw_is_what_all_remember(tmp_path: Path) -> None:
    first, second = (ServerRecords(tmp_path / "servers", IDENTITY) for _ in range(2))
    assert first.read() is None
    assert first.add(seen()) == seen()
    assert second.add(seen(letters=False)) == seen()
    assert second.read() == seen()
    assert len(list((tmp_path / "servers").iterdir())) == 1, "no draft is left behind"
    assert ServerRecords(tmp_path / "servers", SERVED.identity("2")).read() is None


def test_what_changes_is_noted_for_all(tmp_path: Path) -> None:
    memory = ServerRecords(tmp_path, IDENTITY)
    memory.note(checked=False)
    assert memory.read() is None
    memory.add(seen())
    memory.note(checked=False, changed="another answer")
    assert ServerRecords(tmp_path, IDENTITY).read() == seen(checked=False, changed="another answer")


@pytest.mark.parametrize("folder", [None, "file/servers"])
def test_where_nothing_can_be_written_a_process_remembers_for_itself(tmp_path: Path, folder: str | None) -> None:
    (tmp_path / "file").write_text("")
    memory = ServerRecords(tmp_path / folder if folder else None, IDENTITY)
    memory.add(seen())
    memory.note(checked=False)
    assert memory.read() == seen(checked=False)


@pytest.mark.parametrize("content", ["{", "[]", '{"letters": true}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    memory = ServerRecords(tmp_path, IDENTITY)
    memory.add(seen())
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    with pytest.raises(BackendError, match=rf"{file}: not what a run remembers of a served model .* Remove it"):
        memory.read()


def test_what_shows_a_change_is_not_undone_by_a_process_that_read_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = (ServerRecords(tmp_path, IDENTITY) for _ in range(2))
    late.add(seen(checked=False))
    read = ServerRecords.read

    def read_before_the_other_writes(memory: ServerRecords) -> ServerRecord | None:
        known = read(memory)
        if memory is late:
            other.note(changed="another answer")
        return known

    monkeypatch.setattr(ServerRecords, "read", read_before_the_other_writes)
    late.note(checked=True)
    monkeypatch.undo()
    known = late.read()
    assert known is not None
    assert (known.checked, known.changed) == (True, "another answer")
    assert str(late).endswith(".changed"), "the advice names both files"


def test_memories_of_parts_are_joined(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    ServerRecords(folders[0], IDENTITY).add(seen(urls=("http://a/v1",)))
    ServerRecords(folders[1], IDENTITY).add(seen(urls=("http://b/v1",), checked=False))
    merge_memories(folders, tmp_path / "all")
    assert ServerRecords(tmp_path / "all", IDENTITY).read() == seen(urls=("http://a/v1", "http://b/v1"), checked=False)


def test_a_change_that_one_part_noticed_is_kept(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        ServerRecords(folder, IDENTITY).add(seen())
    ServerRecords(folders[1], IDENTITY).note(changed="another answer")
    merge_memories(folders, tmp_path / "all")
    remembered = ServerRecords(tmp_path / "all", IDENTITY).read()
    assert remembered is not None
    assert remembered.changed == "another answer"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"witnesses": {"What?": "a dog"}}, r"the server answered 'What\?' with 'a dog', and in a store before it 'a cat'"),
        ({"engine": "vllm"}, "asked of 'vllm', and in a store before it of 'sglang'"),
        ({"letters": False}, "answers choices by letters and another one"),
    ],
)
def test_parts_that_asked_two_models_are_not_merged(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    about = {"witnesses": {"What?": "a cat"}, "engine": "sglang", "letters": True}
    ServerRecords(tmp_path / "one", IDENTITY).add(seen(**about))
    ServerRecords(tmp_path / "two", IDENTITY).add(seen(**{**about, **other}))
    with pytest.raises(BackendError, match=message):
        merge_memories([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
