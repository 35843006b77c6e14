from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pytest_vlmrobust.core import registry as module
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.registry import DISABLE_VARIABLE, Registry

Install = Callable[..., list[str]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes entry points appear to be installed; returns the groups that were looked up."""
    monkeypatch.delenv(DISABLE_VARIABLE, raising=False)

    def installed(**values: str) -> list[str]:
        groups: list[str] = []

        def entry_points(*, group: str) -> list[EntryPoint]:
            groups.append(group)
            return [EntryPoint(name, value, group) for name, value in values.items()]

        monkeypatch.setattr(module, "entry_points", entry_points)
        return groups

    return installed


def filled() -> Registry[int]:
    registry: Registry[int] = Registry("number")
    registry.add("two", 2)
    registry.add("one", 1)
    return registry


def test_names_stand_in_the_order_of_registration() -> None:
    assert filled().names() == list(filled()) == ["two", "one"]
    assert filled().get("one") == 1
    assert "one" in filled()
    assert "three" not in filled()


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        filled().get("onne")
    assert str(caught.value) == "unknown number 'onne'. Did you mean 'one'? Known: one, two"
    assert (caught.value.kind, caught.value.name, caught.value.known) == ("number", "onne", ["one", "two"])


def test_a_taken_name_says_by_whom() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", 1, origin="pack.age")
    with pytest.raises(UsageError, match=r"number 'one' is registered already by pack\.age\. Choose another name, or pass repl"):
        registry.add("one", 2)
    assert registry.get("one") == 1
    assert registry.add("one", 2, replace=True) == 2
    assert registry.get("one") == 2


def test_entry_points_are_named_at_once_and_imported_when_asked_for(install: Install) -> None:
    groups = install(pi="math:pi", absent="no_such_package_anywhere:thing")
    registry: Registry[float] = Registry("number", group="numbers")
    registry.add("one", 1.0)
    assert registry.names() == ["one", "absent", "pi"]
    assert groups == ["pytest_vlmrobust.numbers"]
    assert "absent" in registry
    assert registry.get("pi") == pytest.approx(3.14159265)
    registry.get("pi")
    assert groups == ["pytest_vlmrobust.numbers"]  # looked up once


def test_what_is_registered_hides_an_entry_point_of_its_name_and_asking_changes_no_order(install: Install) -> None:
    install(pi="math:pi", e="math:e")
    registry: Registry[float] = Registry("number", group="numbers")
    registry.add("one", 1.0)
    registry.add("pi", 3.0)
    before = registry.names()
    registry.get("e")
    assert registry.names() == before == ["one", "e", "pi"]
    assert registry.get("pi") == 3.0


def test_a_broken_entry_point_says_what_to_do(install: Install) -> None:
    install(broken="no_such_package_anywhere:thing")
    registry: Registry[float] = Registry("number", group="numbers")
    with pytest.raises(UsageError) as caught:
        registry.get("broken")
    text = str(caught.value)
    assert text.startswith(
        "number 'broken' from an installed package (no_such_package_anywhere:thing) failed to import: ModuleNotFoundError: "
    )
    assert text.endswith(f"uninstall an installed package, or set {DISABLE_VARIABLE}=1")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("math:pii", r"has no attribute 'pii'. Did you mean 'pi'\? Fix or uninstall"),
        ("a_script_that_exits:pi", r"a_script_that_exits:pi. failed to import: SystemExit: 0"),
    ],
)
def test_an_entry_point_that_cannot_be_had_is_named(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, said: str
) -> None:
    (tmp_path / "a_script_that_exits.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    install(pi=value)
    with pytest.raises(UsageError, match=said):
        Registry[float]("number", group="numbers").get("pi")


def test_the_switch_turns_third_parties_off(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(pi="math:pi", ours="pytest_vlmrobust.core.words:first_few")
    monkeypatch.setenv(DISABLE_VARIABLE, "1")
    registry: Registry[float] = Registry("number", group="numbers")
    assert registry.names() == ["ours"]
    with pytest.raises(UnknownName, match="'pi'"):
        registry.get("pi")


def test_without_a_group_nothing_is_looked_up(install: Install) -> None:
    groups = install(pi="math:pi")
    assert Registry[float]("number").names() == []
    assert not groups
