"""The watchdog: its baseline, and the judgement of a day by the site's own clock."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Refused
from stated.domains.seal import tables
from stated.domains.seal.baseline import judge

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

FILE = "s/watchdog-baseline.json"
DAYS = tables.WEEKDAYS
CELLS = {day: {str(hour): {"median": 4, "gap": 15} for hour in range(24)} for day in DAYS}
CURVES = {day: [4 * hour + 4 for hour in range(24)] for day in DAYS}
"""At 10:30 in Oslo's summer it is 12: 4 × 13 = 52 by the end of that hour."""

CALCULATED: dict[str, Any] = {
    "op": "baseline", "inputs": {"rows": 4000}, "busiest": "mon", "quietest_nonzero": "sun", "weeks": 4, "cells": CELLS,
    "cumulative": CURVES, "daily_median": None,
}  # fmt: skip
STORED: dict[str, Any] = {
    "site_id": "s", "event": "deposit_started", "mode": "A", "weeks": 4, "calibrated_at": "2026-09-01",
    "expires_at": "2026-10-01", "cells": {}, "cumulative": {day: [40] * 24 for day in DAYS},
}  # fmt: skip


@pytest.fixture
def oslo(state: Memory) -> Memory:
    """A Friday, 12:30 where the site is."""
    state.put("s/profile.json", {"site_id": "s", "timezone": "Europe/Oslo"})
    return state


def refused(state: Memory, name: str, **params: Any) -> Refused:
    before = dict(state.files), dict(state.remembered)
    with pytest.raises(Refused) as caught:
        state.call(name, site="s", **params)
    assert (state.files, state.remembered) == before
    assert state.root not in caught.value.line()
    return caught.value


def fields(error: Refused) -> list[str]:
    return [row["field"] for row in error.data["problems"]]


# The judgement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "expected", "expired", "first", "second"),
    [
        (22, 40, False, "healthy", "healthy"),
        (20, 40, False, "healthy", "healthy"),
        (18, 40, False, "watch", "watch"),
        (8, 40, False, "watch", "watch"),
        (6, 40, False, "watch", "act"),
        (0, 40, False, "watch", "act"),
        (79, 40, False, "healthy", "healthy"),
        (80, 40, False, "watch", "watch"),
        (90, 40, False, "watch", "watch"),
        (120, 40, False, "watch", "act"),
        (130, 40, False, "watch", "act"),
        (0, 4, False, "quiet", "quiet"),
        (900, 4, False, "quiet", "quiet"),
        (0, 0, False, "quiet", "quiet"),
        (5, 5, False, "healthy", "healthy"),
        # Expired: every limit is wider by half.
        (10, 40, True, "healthy", "healthy"),
        (9, 40, True, "watch", "watch"),
        (4, 40, True, "watch", "watch"),
        (3, 40, True, "watch", "act"),
        (119, 40, True, "healthy", "healthy"),
        (120, 40, True, "watch", "watch"),
        (180, 40, True, "watch", "act"),
    ],
)
def test_the_table(actual: int, expected: int, expired: bool, first: str, second: str) -> None:
    limits = tables.LIMITS_EXPIRED if expired else tables.LIMITS

    assert judge(actual, Fraction(expected), bad_before=False, limits=limits)[0] == first
    assert judge(actual, Fraction(expected), bad_before=True, limits=limits)[0] == second


class TestObserve:
    def test_a_reading(self, oslo: Memory) -> None:
        oslo.put(FILE, STORED)

        reply = oslo.call("watch observe", site="s", actual=18, last_event="2026-09-18T12:10:05+02:00")

        assert (reply["status"], str(reply["ratio"]), reply["expected"]) == ("watch", "0.4500", 40)
        assert (reply["weekday"], reply["local_hour"], reply["elapsed_min"]) == ("fri", 12, 20)
        assert (reply["consecutive"], reply["since"]) == (1, "2026-09-18T10:30:05Z")
        assert oslo.get(FILE) == STORED | {"last_status": "watch", "last_checked_at": "2026-09-18T10:30:05Z"}

    def test_two_bad_ones_in_a_row(self, oslo: Memory) -> None:
        oslo.put(FILE, STORED)
        told = []
        for actual in (6, 6, 130, 22, 6, 18, 6):
            reply = oslo.call("watch observe", site="s", actual=actual)
            told.append((reply["status"], reply["consecutive"], (reply["since"] or "-----------00")[11:13]))
            oslo.later(hours=1)

        assert told == [
            ("watch", 1, "10"), ("act", 2, "10"), ("act", 3, "10"), ("healthy", 0, "00"), ("watch", 1, "14"),
            ("watch", 2, "14"), ("act", 3, "14"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("last", "at", "status"),
        [
            ("watch", "2026-09-18T09:30:05Z", "act"),
            ("act", "2026-09-17T10:30:05Z", "act"),
            # Older than a day: no previous reading.
            ("watch", "2026-09-17T10:30:04Z", "watch"),
            ("healthy", "2026-09-18T09:30:05Z", "watch"),
            ("quiet", "2026-09-18T09:30:05Z", "watch"),
            # As other releases wrote it.
            ("🟡", "2026-09-18T11:30:05+02:00", "act"),
            ("expired: 🔴 act", "2026-09-18T09:30:05Z", "act"),
            ("watch", "2026-09-18", "watch"),
            ("watch", "11:30", "watch"),
            ("watch", "2026-09-18T11:30:05Z", "watch"),
            (None, None, "watch"),
            (5, "2026-09-18T09:30:05Z", "watch"),
        ],
    )
    def test_the_file_tells_of_the_reading_before(self, oslo: Memory, last: Any, at: Any, status: str) -> None:
        """Nothing that is only remembered decides: after its loss and after an edit by hand the file's word counts."""
        oslo.put(FILE, STORED | {"last_status": last, "last_checked_at": at})
        oslo.remembered["readings", f"{oslo.root}/s"] = {"count": 7, "since": "2026-09-01T00:00:00Z", "at": "another"}

        reply = oslo.call("watch observe", site="s", actual=6)

        assert (reply["status"], reply["consecutive"]) == (status, 2 if status == "act" else 1)

    def test_an_expired_one_judges_with_wider_limits(self, oslo: Memory) -> None:
        oslo.put(FILE, STORED | {"expires_at": "2026-09-18"})
        assert oslo.call("watch observe", site="s", actual=18)["status"] == "watch"
        oslo.put(FILE, STORED | {"expires_at": "2026-09-17"})
        for _ in range(2):
            reply = oslo.call("watch observe", site="s", actual=18)
            assert (reply["status"], reply["expired"]) == ("healthy", True)
        assert oslo.get(FILE)["last_status"] == "expired: healthy"

    def test_no_reading(self, oslo: Memory) -> None:
        """Nothing is changed by what is none. Incident 37: without a clock nothing is healthy."""
        nothing = oslo.call("watch observe", site="s", actual=40)
        oslo.put(FILE, STORED | {"cumulative": {"mon": [40] * 24, "fri": [40] * 23}})
        uncovered = oslo.call("watch observe", site="s", actual=40)
        oslo.put(FILE, STORED)
        oslo.put("s/profile.json", {"site_id": "s", "timezone": "+02:00"})
        unknown = oslo.call("watch observe", site="s", actual=40)

        assert [row["status"] for row in (nothing, uncovered, unknown)] == [
            "no_baseline", "no_baseline_for_weekday", "unknown_time",
        ]  # fmt: skip
        assert [row["field"] for row in unknown["warnings"]] == ["timezone"]
        assert (oslo.writes, oslo.get(FILE)) == (0, STORED)

    def test_the_hour_is_the_sites(self, oslo: Memory) -> None:
        """Never UTC's: at half past ten UTC it is Saturday in Auckland for ninety minutes more."""
        curves = {day: [40] * 24 for day in DAYS} | {"sat": [1000] * 24}
        oslo.put(FILE, STORED | {"cumulative": curves})
        oslo.put("s/profile.json", {"site_id": "s", "timezone": "Pacific/Kiritimati"})

        reply = oslo.call("watch observe", site="s", actual=1000)

        assert (reply["weekday"], reply["local_hour"], reply["status"]) == ("sat", 0, "healthy")

    def test_days_without_hours(self, oslo: Memory) -> None:
        """Mode C: twelve o'clock has passed thirteen 24ths of the day."""
        oslo.put(FILE, STORED | {"mode": "C", "daily_median": {"fri": 2400}})

        reply = oslo.call("watch observe", site="s", actual=1300)

        assert (reply["expected"], reply["status"], reply["gap"]) == (1300, "healthy", None)
        assert [row["field"] for row in reply["warnings"]] == ["mode"]

    def test_another_skill_is_told(self, oslo: Memory) -> None:
        oslo.put(FILE, STORED)

        assert oslo.call("watch observe", site="s", actual=40, skill="cart-watchdog")["warnings"] == []
        told = oslo.call("watch observe", site="s", actual=40, skill="core")
        assert [row["field"] for row in told["warnings"]] == ["--skill"]

    @pytest.mark.parametrize("given", ["12:10", "2026-09-18T12:10:05", "2026-09-18T10:31:00Z", "noon"])
    def test_the_last_event(self, oslo: Memory, given: str) -> None:
        """Incident 38: a clock time was shown and nobody subtracted."""
        oslo.put(FILE, STORED)

        assert fields(refused(oslo, "watch observe", actual=1, last_event=given)) == ["--last-event"]

    def test_only_its_bytes_change(self, oslo: Memory) -> None:
        raw = json.dumps(STORED, indent=4).replace('"weeks": 4', '"weeks": 4,\n    "odd": 1.10').replace("\n", "\r\n")
        oslo.put(FILE, raw)

        oslo.call("watch observe", site="s", actual=40)

        added = ',\r\n    "last_status": "healthy",\r\n    "last_checked_at": "2026-09-18T10:30:05Z"\r\n}'
        assert oslo.raw(FILE).decode() == raw.removesuffix("\r\n}") + added

    def test_corrupt(self, oslo: Memory) -> None:
        oslo.put(FILE, b'{"site_id": ')

        assert refused(oslo, "watch observe", actual=1).data["line"] == 1
        assert oslo.call("baseline get")["state"] == "corrupt"
        assert refused(oslo, "baseline put", event="e", mode="A", data=CALCULATED).data["line"] == 1


# baseline put, baseline get -------------------------------------------------------------------------------------------


class TestPut:
    def test_the_calculators_output(self, state: Memory) -> None:
        """Pasting it fails against the closed schema: four fields too many, five too few."""
        reply = state.call("baseline put", site="s", event="deposit_started", mode="A", data=CALCULATED)

        assert reply["dropped"] == ["op", "inputs", "busiest", "quietest_nonzero"]
        assert reply["diff"] == {
            "event": {"was": None, "now": "deposit_started"},
            "mode": {"was": None, "now": "A"},
            "median": {"was": None, "now": 96},
        }
        assert reply["warnings"] == []
        assert state.get(FILE) == {
            "site_id": "s", "event": "deposit_started", "mode": "A", "calibrated_at": "2026-09-18",
            "expires_at": "2026-10-18", "weeks": 4, "cells": CELLS, "cumulative": CURVES,
        }  # fmt: skip

    def test_over_an_older_one(self, state: Memory) -> None:
        """What changed is told; the last reading stays with its event, fields unknown here stay in any case."""
        reading = {"last_status": "watch", "last_checked_at": "2026-09-18T09:00:00Z"}
        state.put(FILE, STORED | reading | {"notes": "old", "odd": 1})
        data = {"daily_median": {day: 1400 + number for number, day in enumerate(DAYS)}}

        same = state.call("baseline put", site="s", event="deposit_started", mode="C", data=data)
        assert same["diff"]["median"] == {"was": 40, "now": 1403}
        assert same["diff"]["mode"] == {"was": "A", "now": "C"}
        stored = state.get(FILE)
        assert {name: stored.get(name) for name in reading} == reading
        assert stored["odd"] == 1
        assert {"notes", "cells", "cumulative", "weeks"}.isdisjoint(stored)

        state.call("baseline put", site="s", event="add_to_cart", mode="C", data=data)
        assert set(reading).isdisjoint(state.get(FILE))

    def test_the_day_is_the_sites(self, state: Memory) -> None:
        state.now = datetime(2026, 9, 18, 23, 30, tzinfo=UTC)
        state.put("s/profile.json", {"site_id": "s", "timezone": "Europe/Oslo"})

        reply = state.call("baseline put", site="s", event="e", mode="A", data=CALCULATED)

        assert (reply["calibrated_at"], reply["expires_at"]) == ("2026-09-19", "2026-10-19")

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({"cells": None}, "cells"),
            ({"cumulative": {"mon": [1, 2]}}, "cumulative.mon"),
            ({"cumulative": {"monday": [1] * 24}}, "cumulative"),
            ({"cells": {"mon": {"24": {"median": 1, "gap": 60}}}}, "cells.mon"),
            ({"cells": {"mon": {"9": {"median": 1}}}}, "cells.mon.9.gap"),
            ({"weeks": 0}, "weeks"),
            ({"cumulativ": {}}, "cumulativ"),
            ({"calibrated_at": "2026-09-01"}, "calibrated_at"),
            ({"expires_at": "2027-09-01"}, "expires_at"),
            ({"site_id": "t"}, "site_id"),
            ({"event": "other"}, "event"),
            ({"mode": "B"}, "mode"),
            ({"last_status": "healthy"}, "last_status"),
            ({"last_checked_at": "2026-09-18T00:00:00Z"}, "last_checked_at"),
            ({"notes": "x" * 301}, "notes"),
            ({"notes": "ask ana@example.com"}, "notes"),
            ({"cumulative": {day: [0] * 24 for day in DAYS}}, "--data"),
            ({"cumulative": {}}, None),
        ],
    )
    def test_mistakes(self, state: Memory, data: dict[str, Any], field: str | None) -> None:
        if field is None:
            # A baseline of no day at all: nothing is covered, and that is told.
            reply = state.call("baseline put", site="s", event="e", mode="A", data=CALCULATED | data)
            assert reply["warnings"][0]["field"] == "cumulative"
            return
        error = refused(state, "baseline put", event="e", mode="A", data=CALCULATED | data)

        assert field in fields(error)
        assert "ana@" not in str(error.payload())

    def test_the_event(self, state: Memory) -> None:
        for event in ("", "Error: no such site"):
            assert fields(refused(state, "baseline put", event=event, mode="A", data=CALCULATED)) == ["event"]

    def test_oddities(self, state: Memory) -> None:
        """Incident 44: a baseline of Tuesdays only passed on Tuesdays only."""
        data = CALCULATED | {"cumulative": {"tue": CURVES["tue"], "wed": [5] * 24, "thu": [9, *[8] * 23]}}

        reply = state.call("baseline put", site="s", event="e", mode="B", data=data)

        told = [(row["field"], row["problem"].split(":")[0]) for row in reply["warnings"]]
        assert told == [
            ("cumulative", "does not cover mon, fri, sat, sun"),
            ("cumulative.wed", "is not the running sum of the medians in `cells`"),
            ("cumulative.thu", "falls within the day"),
        ]

    def test_who_writes(self, state: Memory) -> None:
        """Decision 18: cart-watchdog changes the status only; another skill is told."""
        error = refused(state, "baseline put", event="e", mode="A", data=CALCULATED, skill="cart-watchdog")
        assert error.data["problems"][0]["meant"] == "watch observe"
        told = state.call("baseline put", site="s", event="e", mode="A", data=CALCULATED, skill="core")
        assert [row["field"] for row in told["warnings"]] == ["--skill"]
        own = state.call("baseline put", site="s", event="e", mode="A", data=CALCULATED, skill="calibrate-watchdog")
        assert own["warnings"] == []

    def test_nothing_in_a_plugin(self, state: Memory) -> None:
        state.files["/home/u/.claude-plugin/plugin.json"] = b"{}"

        assert "plugin" in refused(state, "baseline put", event="e", mode="A", data=CALCULATED).reason


class TestGet:
    def test_nothing(self, state: Memory) -> None:
        for site in ("s", None):
            reply = state.call("baseline get", site=site, expect_now=True)
            assert (reply["state"], reply["baseline"], reply["rev"]) == ("absent", None, None)

    def test_it(self, oslo: Memory) -> None:
        oslo.call("baseline put", site="s", event="e", mode="A", data=CALCULATED)

        plain = oslo.call("baseline get")
        assert (plain["state"], plain["mode"], plain["expected"], plain["baseline"]["event"]) == ("ok", "A", None, "e")
        reply = oslo.call("baseline get", expect_now=True)
        assert (reply["weekday"], reply["local_hour"], reply["expected"]) == ("fri", 12, 52)
        assert (reply["cell"], reply["gap"], reply["quiet"]) == ({"median": 4, "gap": 15}, 15, False)

    @pytest.mark.parametrize(
        ("changed", "state_"),
        [
            ({"expires_at": "2026-09-18"}, "ok"),
            ({"expires_at": "2026-09-17"}, "expired"),
            ({"expires_at": "soon"}, "expired"),
            ({"cumulative": {"mon": [40] * 24}}, "no_weekday"),
            ({"cumulative": "none"}, "no_weekday"),
        ],
    )
    def test_states(self, oslo: Memory, changed: dict[str, Any], state_: str) -> None:
        oslo.put(FILE, STORED | changed)

        assert oslo.call("baseline get", expect_now=True)["state"] == state_

    @pytest.mark.parametrize(("contradicted", "state_"), [("2026-09-01", "ok"), ("2026-09-02", "expired")])
    def test_a_change_of_tracking_ends_it(self, oslo: Memory, contradicted: str, state_: str) -> None:
        oslo.put(FILE, STORED)
        oslo.put("s/profile.json", {"site_id": "s", "extra": {"stated": {"contradicted": contradicted}}})

        assert oslo.call("baseline get")["state"] == state_

    def test_without_a_clock_nothing_is_expected(self, state: Memory) -> None:
        state.put(FILE, STORED)

        reply = state.call("baseline get", expect_now=True)

        assert (reply["state"], reply["expected"], reply["quiet"]) == ("ok", None, None)
        assert [row["field"] for row in reply["warnings"]] == ["timezone"]

    def test_halves(self, oslo: Memory) -> None:
        """Medians may be halves; they stay what they are."""
        oslo.put(FILE, json.dumps(STORED).replace("40", "4.5"))

        reply = oslo.call("baseline get", expect_now=True)

        assert (reply["expected"], reply["quiet"]) == (Decimal("4.5"), True)
