"""The mistakes that first real runs made: each is repaired or refused as decided, and a refusal names the right field.

After a refusal no byte, inode or time of any state file has changed, and where there was nothing there is nothing.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Home, Reply, listing

RUN: dict[str, Any] = {
    "ts": "2026-09-07T08:00:12Z",
    "skill": "monday-briefing",
    "calls": 13,
    "budget": 15,
    "verdict": "watch",
    "scheduled": True,
    "notes": "bot stats empty",
}
FIRST_RUN: dict[str, Any] = {
    "run_at": "2026-09-07T08:00:12Z",
    "skill": "monday-briefing",
    "verdict": "watch",
    "reason": "weekly",
    "findings_issued": 3,
    "scheduled": True,
}
"""As the first real run wrote it: three names of its own, and no `calls` and `budget`."""

STORED = '{\n  "site_id": "demo",\n  "timezone": "Europe/Madrid",\n  "discovery_cached_at": "2026-09-07"\n}\n'
LOGGED = json.dumps(RUN) + "\n"


class Mistake(NamedTuple):
    """`says` are the parts of the message that name what is wrong and what was meant."""

    name: str
    words: tuple[str, ...]
    data: Any
    says: tuple[str, ...]
    status: int = 1


LOG = ("run", "log")
PUT = ("profile", "put", "--why", "user")


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


REFUSED = [
    Mistake(
        "names of its own, and no calls",
        LOG,
        FIRST_RUN,
        ("`run_at`", "(meant: ts)", "`reason`", "(meant: notes)", "`findings_issued`", "`calls` is missing"),
    ),
    Mistake(
        "a stamp under another name", LOG, {**without(RUN, "ts"), "run_at": RUN["ts"]}, ("`run_at`", "(meant: ts)")
    ),
    Mistake("no calls", LOG, without(RUN, "calls"), ("`calls` is missing",)),
    Mistake(
        "no calls, by flags", (*LOG, "--skill", "monday-briefing", "--verdict", "act"), None, ("`calls` is missing",)
    ),
    Mistake("calls_used", LOG, {**without(RUN, "calls"), "calls_used": 13}, ("`calls_used`", "(meant: calls)")),
    Mistake("--calls-used", (*LOG, "--verdict", "act", "--calls-used", "3"), None, ("--calls-used", "--calls?"), 2),
    Mistake("calls in words", LOG, {**RUN, "calls": "13"}, ("`calls` must be a whole number",)),
    Mistake("no budget of an unknown skill", LOG, without(RUN, "budget") | {"skill": "own"}, ("`budget` is missing",)),
    Mistake("no verdict", LOG, without(RUN, "verdict"), ("`verdict` is missing",)),
    Mistake("a bare date", LOG, {**RUN, "ts": "2026-09-07"}, ("`ts` must be a full UTC timestamp",)),
    Mistake("local time", LOG, {**RUN, "ts": "2026-09-07T10:00:12+02:00"}, ("`ts`", "(meant: 2026-09-07T08:00:12Z)")),
    Mistake("a time to come", LOG, {**RUN, "ts": "2999-01-01T00:00:00Z"}, ("`ts` lies in the future",)),
    Mistake("a verdict in words", LOG, {**RUN, "verdict": "looks fine"}, ("`verdict` must be one of on_track, watch",)),
    Mistake("a score", LOG, {**RUN, "verdict": "7/10"}, ("`verdict`", "setup-audit only")),
    Mistake("the site in the line", LOG, {**RUN, "site_id": "demo"}, ("`site_id`", "(meant: --site)")),
    Mistake("the wrong names of a profile", PUT, {"event_names": {"view": "x"}}, ("`event_names`", "(meant: events)")),
    Mistake("the name", PUT, {"name": "example.com"}, ("`name`", "(meant: site_name)")),
    Mistake("a field of its own", PUT, {"berths": 12}, ("`berths`", "(meant: extra.berths)")),
    Mistake(
        "a date of its own", PUT, {"discovery_cached_at": "2020-01-01"}, ("`discovery_cached_at` is set by the dae",)
    ),
    Mistake("an offset", PUT, {"timezone": "+02:00"}, ("`timezone` must be an IANA time zone",)),
    Mistake("refused is not off", PUT, {"agent_analytics_enabled": "no"}, ("`agent_analytics_enabled`", '"unknown"')),
    Mistake("a key alone", PUT, {"product_identifier": "sku"}, ("`product_identifier` must be an object",)),
    Mistake("another site", PUT, {"site_id": "other"}, ("`site_id` names another site", "(meant: --site)")),
    Mistake("a person", PUT, {"extra": {"contact": "jo@example.com"}}, ("`extra.contact`", "e-mail address")),
    Mistake("not JSON", PUT, '{"timezone":', ("--data", "not valid JSON")),
    Mistake("not an object", PUT, "[1]", ("--data", "expected an object")),
]


def call(home: Home, words: tuple[str, ...], data: Any = None) -> Reply:
    text = data if isinstance(data, str) else json.dumps(data)
    return home.statectl("seal", "--site", "demo", *words, *(("--data", text) if data is not None else ()))


def fill(home: Home) -> Path:
    folder = home.path / ".seal-copilot" / "demo"
    folder.mkdir(parents=True)
    (folder / "profile.json").write_text(STORED)
    (folder / "runs.jsonl").write_text(LOGGED)
    return folder


def test_every_mistake_is_refused_and_named(either: Home) -> None:
    root = fill(either).parent
    before = listing(root, times=True)
    # Without a daemon each call is a process that starts, and the rules are the same code.
    for mistake in REFUSED if either.mode == "daemon" else REFUSED[::4]:
        reply = call(either, mistake.words, mistake.data)

        assert (reply.status, reply.out) == (mistake.status, ""), mistake
        assert reply.err.count("\n") == 1, reply
        assert reply.err.startswith("statectl: "), reply
        for part in mistake.says:
            assert part in reply.err, mistake.name
        assert str(either.path) not in reply.err, "a message of this domain never names a path"
    assert listing(root, times=True) == before


def test_a_refusal_in_an_empty_home_makes_nothing(either: Home) -> None:
    for mistake in (REFUSED[0], next(row for row in REFUSED if row.name == "a field of its own")):
        assert call(either, mistake.words, mistake.data).status == 1
    assert not (either.path / ".seal-copilot").exists()


@pytest.mark.parametrize("mistake", [row for row in REFUSED if isinstance(row.data, dict)], ids=lambda row: row.name)
def test_the_typed_method_refuses_in_the_same_words(home: Home, mistake: Mistake) -> None:
    method = "seal.run.log" if mistake.words == LOG else "seal.profile.put"
    params = {"site": "demo", "data": mistake.data} | ({"why": "user"} if mistake.words == PUT else {})
    reply = home.statectl("rpc", method, "--data", json.dumps(params))

    assert (reply.status, reply.out) == (1, "")
    for part in mistake.says:
        assert part in reply.err
    assert not (home.path / ".seal-copilot").exists()


def test_a_profile_without_its_date_gets_one(either: Home) -> None:
    reply = call(either, ("profile", "put", "--why", "learned"), {"timezone": "Europe/Oslo", "currency": "NOK"}).ok()
    stored = json.loads((either.path / ".seal-copilot" / "demo" / "profile.json").read_text())

    assert stored == reply["profile"]
    assert next(iter(stored)) == "site_id"
    stamped = datetime.fromisoformat(stored["discovery_cached_at"]).replace(tzinfo=UTC)
    assert abs(stamped - datetime.now(UTC)) < timedelta(days=2)
    assert call(either, ("profile", "get")).ok()["state"] == "fresh"


def test_a_stored_profile_without_its_date_is_undated_until_discovery(either: Home) -> None:
    folder = fill(either)
    (folder / "profile.json").write_text('{"site_id":"demo","timezone":"Europe/Madrid"}\n')
    either.expect_findings = True

    assert call(either, ("profile", "get")).ok()["state"] == "undated"
    put = call(either, PUT, {"currency": "EUR"}).ok()
    assert [row["field"] for row in put["warnings"]] == ["discovery_cached_at"]
    assert call(either, ("profile", "get")).ok()["state"] == "undated"
    assert [row["path"] for row in either.findings()] == ["demo/profile.json"]
    call(either, ("profile", "put", "--why", "discovery"), {"currency": "EUR"}).ok()
    assert call(either, ("profile", "get")).ok()["state"] == "fresh"
    assert either.findings() == []


REPAIRED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("no stamp: now", without(RUN, "ts"), {}),
    ("no notes", without(RUN, "notes"), {"notes": ""}),
    ("not said whether scheduled", without(RUN, "scheduled"), {"scheduled": False}),
    ("a known skill's budget", without(RUN, "budget"), {"budget": 15}),
    ("two lines", {**RUN, "notes": "one\ntwo"}, {"notes": "one two"}),
    ("the sign that the skill prints", {**RUN, "verdict": "🔴"}, {"verdict": "act"}),
    ("over budget is honest", {**RUN, "calls": 16}, {}),
]


def test_what_the_daemon_can_know_is_filled_in(either: Home) -> None:
    path = either.path / ".seal-copilot" / "demo" / "runs.jsonl"
    began = datetime.now(UTC).replace(microsecond=0)
    for number, (name, given, becomes) in enumerate(REPAIRED, 1):
        reply = call(either, LOG, given).ok()
        lines = path.read_text().splitlines()
        line = json.loads(lines[-1])

        assert len(lines) == number, name
        assert line == reply["line"]
        assert list(line) == list(RUN), "the seven fields of the contract, in its order"
        assert {**RUN, **given, **becomes, "ts": line["ts"]} == line, name
        if "ts" not in given:
            assert began <= datetime.fromisoformat(line["ts"]) <= datetime.now(UTC)
        assert reply["over_budget"] is (given["calls"] > 15)


def test_old_lines_that_break_the_contract_stay_and_are_named(either: Home) -> None:
    """What the first real run left is kept byte for byte; a new line is written after it all the same."""
    folder = fill(either)
    old = (json.dumps(FIRST_RUN) + "\n" + "not JSON at all\n").encode()
    (folder / "runs.jsonl").write_bytes(old)
    either.expect_findings = True
    call(either, LOG, RUN).ok()

    assert (folder / "runs.jsonl").read_bytes().startswith(old)
    assert (folder / "runs.jsonl").read_bytes().count(b"\n") == 3
    last = call(either, ("run", "last")).ok()
    assert last["bad_lines"] == 1
    assert last["problems"][0]["line"] == 2
    found = {(row["path"], row["line"]) for row in either.findings()}
    assert found == {("demo/runs.jsonl", 1), ("demo/runs.jsonl", 2)}
