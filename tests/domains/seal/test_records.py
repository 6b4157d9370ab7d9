"""The comparison of a value with a record, and the table of the domain."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from stated import params
from stated.domain import Kind
from stated.domains.seal import DOMAIN, baseline, checks, property_map, records, tables
from stated.domains.seal.common import grid, pairs, shown
from stated.domains.seal.recommendations import draw_entries
from stated.domains.seal.records import Problem, Profile, problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-09-07T08:00:12Z", datetime(2026, 9, 7, 8, 0, 12, tzinfo=UTC)),
        ("2026-09-07T08:00:12.5Z", datetime(2026, 9, 7, 8, 0, 12, 500000, tzinfo=UTC)),
        ("2026-09-07T08:00:12.123456789Z", datetime(2026, 9, 7, 8, 0, 12, 123456, tzinfo=UTC)),
        ("2026-09-07T08:00:12z", None),
        ("2026-09-07T08:00:12+00:00", None),
        ("2026-09-07T08:00Z", None),
        ("2026-09-07", None),
        ("2026-09-31T08:00:12Z", None),
        ("2026-09-07T24:00:00Z", None),
        ("2026-09-07T08:00:12Z\n", None),
        (None, None),
        (20260907, None),
    ],
)
def test_stamps(text: Any, expected: datetime | None) -> None:
    assert records.stamp_of(text) == expected


def test_a_union_names_the_member_at_fault() -> None:
    """ "must be null" hid the real mistake once: a union's error is about the branch that was meant."""
    (problem,) = records.problems(records.Profile, {"product_identifier": {"key": 7, "table": "both"}}, partial=True)

    assert problem.field == "product_identifier.key"
    assert "null" not in problem.problem


@pytest.mark.parametrize("value", [0, 1840, -3, Decimal("1.10"), 10**30])
def test_numbers_as_written(value: Any) -> None:
    assert records.problems(records.Profile, {"thresholds": {"a": value}}, partial=True) == []


def test_every_field_says_what_it_must_be() -> None:
    """A field without a description would be refused without a reason."""
    for record in vars(records).values():
        if isinstance(record, type) and issubclass(record, msgspec.Struct):
            for name in records.field_names(record):
                for problem in records.problems(record, {name: object()}, partial=True):
                    assert problem.field == name
                    assert "of the right type" not in problem.problem, (record, name)


def test_names_of_old_releases_lead_to_fields() -> None:
    fields = set(records.field_names(records.Profile))

    assert fields.isdisjoint(tables.PROFILE_RENAMED)
    assert {meant.partition(".")[0] for meant in tables.PROFILE_RENAMED.values()} <= fields
    assert set(tables.RUN_RENAMED.values()) <= {*records.field_names(records.Run), "--site"}
    assert set(tables.RECOMMENDATION_RENAMED.values()) <= {
        *records.field_names(records.Recommendation),
        "--verify-in",
    }
    assert set(tables.REFRESHABLE) | tables.PROFILE_MAPS | tables.PROFILE_TEXT <= fields
    assert {f"*/{name}" for name in tables.KNOWN_FILES} == {kind.pattern for kind in checks.DOCUMENTS}


def test_the_table() -> None:
    """Every operation can be found, explained and shown."""
    kinds = {operation.name: operation.kind for operation in DOMAIN.operations}

    assert kinds == {
        "profile get": Kind.READER,
        "profile put": Kind.WRITER,
        "profile unset": Kind.WRITER,
        "offer": Kind.WRITER,
        "run log": Kind.WRITER,
        "run last": Kind.READER,
        "run start": Kind.MEMORY,
        "run count": Kind.MEMORY,
        "run finish": Kind.WRITER,
        "run stats": Kind.READER,
        "rec due": Kind.READER,
        "rec list": Kind.READER,
        "rec record": Kind.READER,
        "rec check": Kind.READER,
        "rec add": Kind.WRITER,
        "rec settle": Kind.WRITER,
        "rec escalate": Kind.WRITER,
        "rec discard": Kind.WRITER,
        "map get": Kind.READER,
        "map put": Kind.WRITER,
        "baseline get": Kind.READER,
        "baseline put": Kind.WRITER,
        "watch observe": Kind.WRITER,
    }
    for operation in DOMAIN.operations:
        assert operation.summary.endswith(".")
        assert operation.details
        assert all(example.startswith("seal ") for example in operation.examples)
        assert set(DOMAIN.options) <= set(operation.params.__struct_fields__)
        assert params.schema(operation)


def test_text_for_a_terminal() -> None:
    assert shown(True) == "yes"
    assert shown(None) == "-"
    assert shown({"a": [1, Decimal("1.10")], "b": {}}) == "a: 1, 1.10, b: -"
    assert shown("a\u202eb\r\n\x07") == "a\\u202eb\\r\\n\\x07"
    assert shown("x" * 200) == "x" * 79 + "…"
    assert pairs([("a", 1), ("long", "x")], 80) == "a:    1\nlong: x"
    assert grid(["a", "b"], [["x", "y " * 15]], 30) == "a  b\nx  " + "y " * 13 + "y\n   y"
    assert grid(["a", "b"], [["x", "y" * 99]], 30) == "a: x\nb:\n  " + "y" * 99


@pytest.mark.parametrize(
    ("zone", "says", "meant"),
    [
        ("Europe/Madird", "must be an IANA time zone such as Europe/Madrid, or UTC", "Europe/Madrid"),
        ("europe/oslo", "must be an IANA time zone such as Europe/Madrid, or UTC", "Europe/Oslo"),
        ("America/New York", "must be an IANA time zone such as Europe/Madrid, or UTC", "America/New_York"),
        ("madrid", "must be an IANA time zone such as Europe/Madrid, or UTC", "Europe/Madrid"),
        ("nowhere at all", "must be an IANA time zone such as Europe/Madrid, or UTC", ""),
        ("+02:00", "must be an IANA time zone such as Europe/Madrid, or UTC; not an offset", ""),
        ("UTC+2", "must be an IANA time zone such as Europe/Madrid, or UTC; not an offset", ""),
    ],
)
def test_a_wrong_time_zone_is_told_with_the_one_that_was_meant(zone: str, says: str, meant: str) -> None:
    assert problems(Profile, {"timezone": zone}, partial=True) == [Problem("timezone", says, meant)]


ID = "2026-09-07-leaky-campaign-summer-sale-es"


def test_at_40_columns_ids_and_paths_stay_whole_and_nothing_is_cut() -> None:
    entry = {"id": ID, "status": "open", "verify_on": "2026-10-05", "action": "Fix the landing page " * 4}
    text = draw_entries({"entries": [entry], "problems": []}, 40)
    assert ID in text
    assert " ".join(text.split()).count("Fix the landing page") == 4
    assert "…" not in text
    assert all(len(line) <= 40 for line in text.splitlines() if ID not in line)


NOTHING: dict[str, Any] = {"site": "s", "warnings": [], "state": "absent", "status": "no_baseline", "text": None}


def test_nothing_is_said_in_words() -> None:
    assert baseline.draw_get(NOTHING, 80) == "no baseline yet"
    assert baseline.draw_observe(NOTHING, 80) == "site:   s\nstatus: no baseline yet, so nothing was judged"
    assert property_map.draw_get(NOTHING, 80) == "no map yet"
