"""The Monday briefing as a sequence of calls: alone, and by two processes in every order that their calls may take."""

from __future__ import annotations

import json
from collections.abc import Generator
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domains.seal.conftest import Memory

SKILL = "monday-briefing"


def record(name: str, **changed: Any) -> str:
    entry = {
        "id": name, "date": "2026-08-21", "skill": "opportunity-scan", "pattern": "leaky-campaign", "subject": name,
        "evidence": "e", "action": "a", "impact_eur_month": 100, "metric": "CR", "baseline": 0.010, "target": 0.022,
        "verify_on": "2026-09-18", "status": "open",
    }  # fmt: skip
    return json.dumps(entry | changed) + "\n"


def site() -> Memory:
    state = Memory()
    profile = {
        "site_id": "s", "timezone": "Europe/Oslo", "currency": "EUR", "events": {"purchase": "order"},
        "discovery_cached_at": "2026-09-15",
    }  # fmt: skip
    state.put("s/profile.json", profile)
    baseline = {
        "site_id": "s", "event": "add_to_cart", "mode": "C", "calibrated_at": "2026-09-01", "expires_at": "2026-10-01",
        "daily_median": {"fri": 2400},
    }  # fmt: skip
    state.put("s/watchdog-baseline.json", baseline)
    state.put("s/recommendations.jsonl", record("a") + record("b") + record("c", verify_on="2026-09-25"))
    return state


MEASURED = {"a": Decimal("0.023"), "b": Decimal("0.016"), "c": Decimal("0.001")}


def briefing(state: Memory) -> Generator[dict[str, Any], None, None]:
    """One process; it stops after each call, so that another one may come between. Yields what it was told."""
    run = state.call("run start", site="s", skill=SKILL, scheduled=True)
    yield run
    yield state.call("profile get", site="s", need=["currency", "events"])
    state.call("run count", site="s", run=run["run"], tool="list_sites")
    due = state.call("rec due", site="s", limit=2)
    yield due
    for entry in due["entries"]:
        state.call("run count", site="s", run=run["run"], tool="get_campaigns")
        yield state.call("rec settle", site="s", id=entry["id"], measured=MEASURED[entry["id"]])
    yield state.call("baseline get", site="s", expect_now=True)
    finding = {"pattern": "dead-cart", "subject": "es"}
    yield state.call("rec check", site="s", **finding, impact=Decimal(500))
    yield state.call(
        "rec add", site="s", skill=SKILL, **finding, impact=Decimal(500), evidence="e", action="a", metric="m",
        baseline=Decimal("0.5"), target=Decimal("0.9"), verify_in="28d",
    )  # fmt: skip
    yield state.call("offer", site="s", schedule="monday_briefing")
    yield state.call("run finish", site="s", run=run["run"], verdict="watch")


def test_one() -> None:
    state = site()

    run, profile, due, first, second, baseline, check, add, offer, finish = briefing(state)

    assert (run["budget"], run["overlap"]) == (15, None)
    assert (profile["state"], profile["missing"]) == ("fresh", [])
    assert [entry["id"] for entry in due["entries"]] == ["a", "b"]
    assert [(row["outcome"], str(row["progress"])) for row in (first, second)] == [
        ("verified", "1.0833"), ("extended", "0.5000"),
    ]  # fmt: skip
    assert (baseline["state"], baseline["expected"]) == ("ok", 1300)
    assert (check["decision"], add["status"], offer["first"]) == ("new", "created", True)
    assert (finish["line"]["calls"], finish["over_budget"], finish["warnings"]) == (3, False, [])
    left = {row["id"]: (row["status"], row["verify_on"]) for row in state.records("s/recommendations.jsonl")}
    assert left == {
        "a": ("verified", "2026-09-18"),
        "b": ("open", "2026-10-02"),
        "c": ("open", "2026-09-25"),
        "2026-09-18-dead-cart-es": ("open", "2026-10-16"),
    }


@settings(max_examples=150, deadline=None)
@given(order=st.lists(st.integers(0, 2), max_size=60))
def test_overlapping(order: list[int]) -> None:
    """Two or three at the same instant leave what one would have left, and a line for each run."""
    alone = site()
    list(briefing(alone))
    state = site()
    processes = [briefing(state) for _ in range(3)]
    told: list[list[dict[str, Any]]] = [[], [], []]

    for number in order:
        told[number].extend(reply for reply in [next(processes[number], None)] if reply is not None)
    for number, process in enumerate(processes):
        told[number].extend(process)

    replies = [reply for rows in told for reply in rows]
    for name in ("s/recommendations.jsonl", "s/profile.json", "s/watchdog-baseline.json"):
        assert state.raw(name) == alone.raw(name)
    assert sum(reply.get("first", False) for reply in replies) == 1
    assert sum(reply.get("status") == "created" for reply in replies) == 1
    assert sum(reply.get("outcome") == "verified" for reply in replies) == 1
    assert sum(reply.get("outcome") == "extended" for reply in replies) == 1
    runs = state.records("s/runs.jsonl")
    assert [(run["verdict"], run["skill"]) for run in runs] == [("watch", SKILL)] * 3
    assert len({rows[0]["run"] for rows in told}) == 3
    assert state.call("run stats", site="s")["skills"][0]["unfinished"] == 0
    state.later(hours=3)
    assert state.upkeep() == {"given_up": []}


@settings(max_examples=60, deadline=None)
@given(steps=st.integers(0, 12))
def test_cut_off(steps: int) -> None:
    """A process that ends in the middle: the next one does what is left, and the first one's run is given up."""
    alone = site()
    list(briefing(alone))
    state = site()
    process = briefing(state)
    told = [reply for _ in range(steps) if (reply := next(process, None)) is not None]
    process.close()
    list(briefing(state))

    assert state.raw("s/recommendations.jsonl") == alone.raw("s/recommendations.jsonl")
    assert state.raw("s/profile.json") == alone.raw("s/profile.json")
    state.later(hours=3)
    state.upkeep()
    runs = state.records("s/runs.jsonl")
    finished = len(told) == 10
    counted = len(told) >= 3
    assert len(runs) == 1 + (finished or counted)
    unfinished = state.call("run stats", site="s")["skills"][0]["unfinished"]
    assert unfinished == (1 if 0 < len(told) < 3 else 0)
    assert {run["verdict"] for run in runs} == ({"watch", "error"} if counted and not finished else {"watch"})
