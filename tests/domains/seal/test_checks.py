"""The contract as checks: what is right passes, and every mistake is found with its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stated.documents import json_lines, json_text
from stated.domain import At, TextDocument
from stated.domains.seal import DOMAIN
from stated.domains.seal.checks import DOCUMENTS

KINDS = {kind.name: kind for kind in DOCUMENTS}


def found(name: str, content: Any, site: str = "s") -> list[tuple[int | None, str]]:
    """(line, field) of every finding."""
    kind = KINDS[name]
    at = At("/r", kind.pattern.replace("*", site))
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    doc: Any
    if kind.form == "json":
        doc = json_text.parse(raw)
        assert doc.ok
    elif kind.form == "lines":
        doc = json_lines.parse(raw)
    else:
        doc = TextDocument(True, raw)
    findings = kind.check(doc, at)
    assert all(finding.problem and "/r" not in finding.problem for finding in findings)
    return [(finding.line, finding.field) for finding in findings]


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


PROFILE = {"site_id": "s", "discovery_cached_at": "2026-09-18"}
RUN = {
    "ts": "2026-09-07T08:00:12Z", "skill": "monday-briefing", "calls": 13, "budget": 15, "verdict": "watch",
    "scheduled": True, "notes": "bot stats empty",
}  # fmt: skip
RECOMMENDATION = {
    "id": "2026-09-07-leaky-summer-sale-es", "date": "2026-09-07", "skill": "opportunity-scan",
    "pattern": "leaky-campaign", "subject": "summer-sale-es",
    "evidence": "2,014 entrances, CR 0.8% vs channel avg 2.1%, 30d",
    "action": "Fix ad-to-landing message match, or pause and reallocate", "impact_eur_month": 1840,
    "metric": "campaign CR", "baseline": 0.008, "target": 0.021, "verify_on": "2026-10-05", "status": "open",
}  # fmt: skip
CURVE = list(range(24))
BASELINE = {
    "site_id": "s", "event": "deposit_started", "mode": "A", "weeks": 4, "calibrated_at": "2026-09-01",
    "expires_at": "2026-10-01", "cells": {"mon": {"9": {"median": 6, "gap": 10}}}, "cumulative": {"mon": CURVE},
    "last_status": "watch",
}  # fmt: skip
RULE: dict[str, Any] = {
    "id": "no-cart", "family": "silence", "metric": {"kind": "microconversion", "type": "add_to_cart"},
    "condition": {"hours": 3}, "active_hours": {"from": 9, "to": 22, "days": ["mon", "sat"]}, "timezone": "UTC",
    "created_at": "2026-09-01", "status": "active", "expected": None,
}  # fmt: skip
DROP = RULE | {
    "family": "drop",
    "condition": {"ratio": 0.5},
    "expected": {"cumulative_by_hour": {"mon": CURVE}, "basis": "watchdog-baseline"},
}
PLAN = {
    "plan_id": "0123456789ab", "approved_at": "2026-09-07T08:00:12Z", "approval_quote": "yes, go on",
    "plan": {"events": [{"properties": {"order_id": "x-1"}}]},
}  # fmt: skip


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def rules(*given: Any) -> dict[str, Any]:
    return {"site_id": "s", "rules": list(given)}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("profile", PROFILE, []),
        ("profile", PROFILE | {"berths": 12}, []),
        ("profile", without(PROFILE, "discovery_cached_at"), [(None, "discovery_cached_at")]),
        ("profile", {"name": "x"}, [(None, "name"), (None, "site_id"), (None, "discovery_cached_at")]),
        ("profile", PROFILE | {"site_id": "t"}, [(None, "site_id")]),
        ("profile", PROFILE | {"account_id": "acct_9"}, [(None, "account_id")]),
        ("profile", PROFILE | {"agent_analytics_enabled": "refused"}, [(None, "agent_analytics_enabled")]),
        ("profile", PROFILE | {"extra": {"mail": "a@b.es"}}, [(None, "extra.mail")]),
        ("profile", PROFILE | {"events": {"phone": "call_click"}}, []),
        ("profile", b"[]", [(None, "")]),
        ("runs", lines(RUN, RUN | {"verdict": "error"}), []),
        ("runs", lines(RUN, {"ts": "2026-09-07"} | RUN | {"calls": "3"}, RUN), [(2, "calls")]),
        ("runs", lines(RUN | {"verdict": "7/10", "skill": "setup-audit"}), []),
        ("runs", lines(RUN | {"verdict": "7/10"}), [(1, "verdict")]),
        ("runs", lines([], RUN | {"ts": "2026-09-07"}), [(2, "ts")]),
        ("runs", b"\n" + lines(without(RUN, "calls") | {"calls_used": 3}), [(2, "calls_used"), (2, "calls")]),
        ("runs", lines(RUN | {"notes": "told a@b.es"}), [(1, "notes")]),
        ("recommendations", lines(RECOMMENDATION), []),
        ("recommendations", lines(RECOMMENDATION | {"id": "b", "measured": 0.02, "closed_on": "2026-10-05"}), []),
        (
            "recommendations",
            lines(without(RECOMMENDATION, "impact_eur_month") | {"impact_month": 5, "currency": "NOK"}),
            [],
        ),
        (
            "recommendations",
            lines(without(RECOMMENDATION, "impact_eur_month") | {"impact_month": 5}),
            [],
        ),
        ("recommendations", lines(without(RECOMMENDATION, "impact_eur_month")), [(1, "impact_eur_month")]),
        ("recommendations", lines(without(RECOMMENDATION, "target")), [(1, "target")]),
        ("recommendations", lines(RECOMMENDATION | {"target": 0.008}), [(1, "target")]),
        ("recommendations", lines(RECOMMENDATION | {"status": "closed"}), [(1, "status")]),
        ("recommendations", lines(RECOMMENDATION | {"evidence": "Error: no site"}), [(1, "evidence")]),
        ("recommendations", lines(RECOMMENDATION, RECOMMENDATION), [(2, "id")]),
        ("recommendations", lines(RECOMMENDATION | {"impact": 3}), [(1, "impact")]),
        ("watchdog-baseline", BASELINE, []),
        ("watchdog-baseline", BASELINE | {"mode": "C", "daily_median": {"mon": 4000}}, []),
        ("watchdog-baseline", BASELINE | {"mode": "C"}, [(None, "daily_median")]),
        ("watchdog-baseline", BASELINE | {"mode": ["A"]}, [(None, "mode")]),
        ("watchdog-baseline", BASELINE | {"busiest": "mon"}, [(None, "busiest")]),
        ("watchdog-baseline", BASELINE | {"cumulative": {"mon": [1, 2]}}, [(None, "cumulative.mon")]),
        ("watchdog-baseline", BASELINE | {"cumulative": {"monday": CURVE}}, [(None, "cumulative")]),
        ("watchdog-baseline", BASELINE | {"cells": {"mon": {"9": {"median": 6}}}}, [(None, "cells.mon.9.gap")]),
        ("watchdog-baseline", without(BASELINE, "event"), [(None, "event")]),
        ("alerts", rules(), []),
        ("alerts", rules(RULE, DROP), []),
        ("alerts", [RULE], [(None, "")]),
        ("alerts", rules(DROP | {"expected": None}), [(None, "rules[0].expected")]),
        (
            "alerts",
            rules(without(DROP, "expected") | {"expected_basis": "watchdog-baseline"}),
            [(None, "rules[0].expected_basis"), (None, "rules[0].expected")],
        ),
        ("alerts", rules(RULE, RULE | {"condition": {"ratio": 2}}), [(None, "rules[1].condition")]),
        ("alerts", rules(RULE | {"active_hours": None}), [(None, "rules[0].active_hours")]),
        ("alerts", rules(RULE | {"cadence_minutes": 60}), [(None, "rules[0].cadence_minutes")]),
        ("alerts", rules(RULE | {"active_hours": {"from": 9, "to": 25, "days": []}}),
         [(None, "rules[0].active_hours.to"), (None, "rules[0].active_hours.days")]),
        ("alerts", rules("x"), [(None, "rules[0]")]),
        ("install-plan", PLAN, []),
        ("install-plan", PLAN | {"plan_id": "xyz"}, [(None, "plan_id")]),
        ("install-plan", PLAN | {"approval_quote": "yes, a@b.es"}, [(None, "approval_quote")]),
        ("property-map", b"# Map\n\n| property | table |\n|---|---|\n| sku | both |\n", []),
        ("property-map", b"# Map\n", [(None, "")]),
        ("property-map", b"| a |\n| b@c.es |\n", [(2, "")]),
        ("property-map", b"| a |\n\xff\n", [(2, "")]),
    ],
)  # fmt: skip
def test_checks(name: str, content: Any, expected: list[tuple[int | None, str]]) -> None:
    assert found(name, content) == expected


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.form != "text"])
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], {"rules": {}}, {"site_id": []}, {"rules": [[], None]}])
def test_any_value_is_a_finding(name: str, value: Any) -> None:
    """Whatever an editor left in a file, a check answers."""
    if KINDS[name].form == "json":
        assert found(name, value)
    elif isinstance(value, dict):
        assert found(name, lines(value))


def test_hints() -> None:
    doc = json_text.parse(b'{"site_id":"s","created_at":"2026-09-18","discovery_cached_at":"2026-09-18"}')

    (finding,) = KINDS["profile"].check(doc, At("/r", "s/profile.json"))

    assert "discovery_cached_at" in finding.hint


def test_every_file_of_the_contract_has_a_check() -> None:
    assert DOMAIN.documents is DOCUMENTS
    assert {kind.pattern for kind in DOCUMENTS} == {
        "*/profile.json",
        "*/property-map.md",
        "*/watchdog-baseline.json",
        "*/recommendations.jsonl",
        "*/runs.jsonl",
        "*/alerts.json",
        "*/install-plan.json",
    }
