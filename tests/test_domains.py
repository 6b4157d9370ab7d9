"""`stated.domains`: loading the built-in table and what others offer, and the rules that a table must keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stated import domains
from stated.cli import Commands
from stated.core import CORE
from stated.domain import Caller, Context, Docs, Domain, Kind, Location, Operation, Outcome


class Nothing(msgspec.Struct, kw_only=True):
    pass


class Call(msgspec.Struct, kw_only=True):
    call: str = ""


def run(docs: Docs, params: Any, context: Context) -> Outcome:
    return Outcome({})


def locate(caller: Caller, announced: str | None) -> Location:
    return Location("/", "default")


def domain(name: str, *operations: Operation) -> Domain:
    return Domain(name=name, title=name, summary="For tests.", operations=operations, locate=locate)


GET = Operation(name="get", kind=Kind.READER, summary="Gets.", params=Nothing, run=run)

BROKEN: list[tuple[str, list[Domain]]] = [
    ("domain one", [domain("one"), domain("one")]),
    ("method one.get", [domain("one", GET, GET)]),
    ("method one.get", [domain("one", GET, replace(GET, name="other", method="one.get"))]),
    ("belongs to the core", [domain("status")]),
    ("belongs to the core", [domain("daemon")]),
    ("not a word", [domain("a b")]),
    ("not a word", [domain("a.b")]),
    ("has no run", [domain("one", replace(GET, run=None))]),
    ("outside one", [domain("one", replace(GET, method="two.get"))]),
    ("every writer's own", [domain("one", replace(GET, kind=Kind.WRITER, params=Call))]),
]


@pytest.mark.parametrize(("reason", "table"), BROKEN)
def test_a_table_that_breaks_a_rule_ends_the_start(reason: str, table: list[Domain]) -> None:
    with pytest.raises(ValueError, match=reason):
        Commands(table)


def test_a_reader_may_have_a_parameter_of_any_name() -> None:
    Commands([domain("one", replace(GET, params=Call))])


@pytest.mark.parametrize(
    ("name", "expected"), [("get", "one.get"), ("rec add", "one.rec.add"), ("record-review", "one.record_review")]
)
def test_method_names(name: str, expected: str) -> None:
    assert domains.method_name(domain("one"), replace(GET, name=name)) == expected
    assert domains.method_name(CORE, CORE.operations[0]) == "daemon.version"


def test_the_built_in_domains_are_loaded_and_keep_the_rules() -> None:
    found = domains.load()
    assert [f"stated.domains.{one.name}" for one in found][: len(domains.BUILT_IN)] == list(domains.BUILT_IN)
    for name in Commands(found).methods:
        assert name


MODULE = """
from stated.domain import Domain, Location
def locate(caller, announced):
    return Location("/", "default")
GOOD = Domain(name="offered", title="Offered", summary="x", operations=(), locate=locate)
RESERVED = Domain(name="status", title="x", summary="x", operations=(), locate=locate)
OTHER = 3
"""


def test_others_domains_are_found_and_broken_ones_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offered_for_tests.py").write_text(MODULE)
    info = tmp_path / "offered_for_tests-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered-for-tests\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[stated.domains]\nabsent = no_such_module_here:DOMAIN\ngood = offered_for_tests:GOOD\n"
        "other = offered_for_tests:OTHER\nreserved = offered_for_tests:RESERVED\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    lines: list[str] = []

    found = domains.load(lines.append)

    assert found[-1].name == "offered"
    assert [line.split()[1] for line in sorted(lines)] == ["absent", "other", "reserved"]
