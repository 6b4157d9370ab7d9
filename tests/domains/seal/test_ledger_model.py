"""The ledger against a simple model of it, for any sequence of calls on any days.

The model knows no file, no line and no decimals: integers in thousandths, a list of entries, and the rules as a person
would say them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stated.domain import Refused
from tests.domains.seal.conftest import Memory

FINDINGS = [("leaky-campaign", "summer"), ("leaky-campaign", "winter"), ("bots", "summer")]
CURRENCIES = ["EUR", "NOK", None]
THOUSANDTHS = st.integers(-40, 40)
PLACES = st.integers(3, 6)
"""A number is spelled with more zeros than it needs: 0.0100 is 0.010."""


def spelled(thousandths: int, places: int) -> Decimal:
    return Decimal(f"{Decimal(thousandths).scaleb(-3):.{places}f}")


@dataclass
class Entry:
    id: str
    finding: tuple[str, str]
    issued: date
    baseline: int
    target: int
    impact: int
    currency: str | None
    verify_on: date
    status: str = "open"
    extended: bool = False
    closed_on: date | None = None
    escalated_on: date | None = None


@dataclass
class Model:
    today: date
    entries: list[Entry] = field(default_factory=list)

    def decide(self, finding: tuple[str, str], impact: int, currency: str | None) -> tuple[str, Entry | None]:
        same = [entry for entry in self.entries if entry.finding == finding]
        opened = [entry for entry in same if entry.status == "open"]
        if opened:
            entry = opened[-1]
            if currency is None or entry.currency != currency:
                return "incomparable", entry
            grown = 2 * impact >= 3 * entry.impact if entry.impact > 0 else impact > 0
            return ("escalate" if grown else "suppressed"), entry
        for entry in same:
            if entry.status == "discarded" and entry.closed_on is not None and (self.today - entry.closed_on).days < 90:
                return "suppressed", entry
        return "new", None

    def settle(self, entry: Entry, measured: int) -> str:
        if entry.status != "open":
            return "unchanged"
        if entry.verify_on > self.today:
            return "not_due"
        way, gone = entry.target - entry.baseline, measured - entry.baseline
        if way < 0:
            way, gone = -way, -gone
        if gone >= way:
            outcome = "verified"
        elif 3 * gone < way or entry.extended:
            outcome = "failed"
        else:
            entry.extended = True
            entry.verify_on = self.today + timedelta(days=14)
            return "extended"
        entry.status, entry.closed_on = outcome, self.today
        return outcome


def iso(day: date | None) -> str | None:
    return day.isoformat() if day is not None else None


class Ledger(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = Memory(now=datetime(2026, 9, 18, 12, tzinfo=UTC))
        self.model = Model(date(2026, 9, 18))

    @initialize(crlf=st.booleans())
    def a_file_of_somebody(self, crlf: bool) -> None:
        """Lines that nobody can read, before and between: they stay as they are and cost nothing but themselves."""
        self.odd = b"not json\r\n\r\n" if crlf else b'{"torn":\n'
        self.state.put("s/recommendations.jsonl", self.odd)

    @rule(days=st.integers(1, 60))
    def days_pass(self, days: int) -> None:
        self.state.later(days=days)
        self.model.today += timedelta(days=days)

    @rule(
        finding=st.sampled_from(FINDINGS), impact=st.integers(-3, 40), currency=st.sampled_from(CURRENCIES),
        start=THOUSANDTHS, goal=THOUSANDTHS, places=PLACES, wait=st.integers(1, 40),
    )  # fmt: skip
    def add(
        self,
        finding: tuple[str, str],
        impact: int,
        currency: str | None,
        start: int,
        goal: int,
        places: int,
        wait: int,
    ) -> None:
        params: dict[str, Any] = {
            "skill": "x", "evidence": "e", "action": "a", "metric": "m", "pattern": finding[0], "subject": finding[1],
            "baseline": spelled(start, places), "target": spelled(goal, 3), "impact": Decimal(impact),
            "currency": currency, "verify_in": f"{wait}d",
        }  # fmt: skip
        if start == goal:
            with pytest.raises(Refused):
                self.state.call("rec add", site="s", **params)
            return
        checked = self.state.call(
            "rec check", site="s", pattern=finding[0], subject=finding[1], impact=Decimal(impact), currency=currency
        )
        decision, entry = self.model.decide(finding, impact, currency)
        assert checked["decision"] == decision

        reply = self.state.call("rec add", site="s", **params)

        today = self.model.today
        made_today = next((one for one in self.model.entries if one.finding == finding and one.issued == today), None)
        if decision == "escalate":
            assert entry is not None
            assert (reply["status"], reply["id"]) == ("escalate", entry.id)
            entry.impact, entry.escalated_on = impact, today
        elif made_today is not None:
            assert (reply["status"], reply["id"]) == ("duplicate", made_today.id)
        elif entry is not None:
            assert (reply["status"], reply["since"]) == ("suppressed", entry.issued.isoformat())
        else:
            assert reply["status"] == "created"
            verify = today + timedelta(days=wait)
            self.model.entries.append(Entry(reply["id"], finding, today, start, goal, impact, currency, verify))

    @rule(place=st.integers(0, 30), measured=THOUSANDTHS, places=PLACES)
    def settle(self, place: int, measured: int, places: int) -> None:
        if not self.model.entries:
            return
        entry = self.model.entries[place % len(self.model.entries)]
        due = entry.id in {row["id"] for row in self.state.call("rec due")["entries"]}
        assert due == (entry.status == "open" and entry.verify_on <= self.model.today)

        reply = self.state.call("rec settle", id=entry.id, measured=spelled(measured, places))

        assert reply["outcome"] == self.model.settle(entry, measured)
        assert reply["status"] == entry.status

    @rule(place=st.integers(0, 30), impact=st.integers(-3, 80), currency=st.sampled_from(CURRENCIES))
    def escalate(self, place: int, impact: int, currency: str | None) -> None:
        if not self.model.entries:
            return
        entry = self.model.entries[place % len(self.model.entries)]
        spoken = currency or entry.currency
        comparable = spoken is not None and spoken == entry.currency
        grown = 2 * impact >= 3 * entry.impact if entry.impact > 0 else impact > 0
        same = entry.escalated_on is not None and impact == entry.impact and comparable
        params = {"id": entry.id, "impact": Decimal(impact), "currency": currency}
        if entry.status == "open" and comparable and (grown or same):
            self.state.call("rec escalate", **params)
            entry.escalated_on = entry.escalated_on if same else self.model.today
            entry.impact = impact
        else:
            with pytest.raises(Refused):
                self.state.call("rec escalate", **params)

    @rule(place=st.integers(0, 30))
    def discard(self, place: int) -> None:
        if not self.model.entries:
            return
        entry = self.model.entries[place % len(self.model.entries)]
        if entry.status in ("verified", "failed"):
            with pytest.raises(Refused):
                self.state.call("rec discard", id=entry.id, why="x")
            return
        self.state.call("rec discard", id=entry.id, why="x")
        if entry.status == "open":
            entry.status, entry.closed_on = "discarded", self.model.today

    @invariant()
    def the_file_says_what_the_model_says(self) -> None:
        raw = self.state.files.get("/home/u/.seal-copilot/s/recommendations.jsonl", b"")
        assert raw.startswith(getattr(self, "odd", b""))
        told = self.state.call("rec list", site="s")["entries"]
        assert [
            (
                row["id"], row["status"], row["verify_on"], "extended_on" in row, row.get("closed_on"),
                row.get("escalated_on"), row.get("impact_eur_month", row.get("impact_month")),
            )
            for row in told
        ] == [
            (
                one.id, one.status, one.verify_on.isoformat(), one.extended, iso(one.closed_on),
                iso(one.escalated_on), one.impact,
            )
            for one in self.model.entries
        ]  # fmt: skip


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
