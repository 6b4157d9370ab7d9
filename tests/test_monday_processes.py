"""The Monday briefing, done by pairs of processes at the same instant on one site, with and without a daemon.

Each pair has the same finding, and all of them see the same entries that are due. What is in the files afterwards is
accounted for by what the processes were told: each run's line once, each finding recorded once, each entry settled once
by the process that was told so, nothing else changed. Killing the daemon in the midst of it makes no difference when
every call without an answer is made again with its id.

The other tests of concurrency make single calls; `tests/domains/seal/test_monday.py` takes every order of the calls in
memory. Here a decision is spread over processes. `pytest -m slow tests/test_monday_processes.py` is the full load.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

import pytest

from stated import client_line
from tests.conftest import CLIENTS, Home, MakeHome
from tests.load import SITE, Callers, Reader, profile_of, runs_of, twice
from tests.monday_player import MEASURED
from tests.test_crash_under_load import is_of, wait_for_answers

STEPS = (
    "run start", "profile get", "run count", "rec due", "baseline get", "rec check", "rec add", "offer", "run finish",
)  # fmt: skip
"""The calls of a briefing beside its `rec settle`s, of which there are up to two."""


def day(days: int) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def entry(number: int) -> dict[str, Any]:
    """An entry that is due. Its evidence tells the player how it turned out."""
    return {
        "id": f"2026-01-05-leaky-campaign-{number}", "date": "2026-01-05", "skill": "opportunity-scan",
        "pattern": "leaky-campaign", "subject": f"campaign {number}", "evidence": list(MEASURED)[number % 3],
        "action": "a", "impact_eur_month": 100, "metric": "CR", "baseline": 0.010, "target": 0.022,
        "verify_on": f"2026-02-{1 + number % 28:02}", "status": "open", "seen_in": {"of a newer release": [number]},
    }  # fmt: skip


def furnish(home: Home, due: int) -> dict[str, bytes]:
    """A site as a plugin left it. Gives each entry's line by its id."""
    folder = home.path / ".seal-copilot" / SITE
    folder.mkdir(parents=True)
    profile = {
        "site_id": SITE, "timezone": "UTC", "currency": "EUR", "events": {"purchase": "order"},
        "discovery_cached_at": day(-1),
    }  # fmt: skip
    baseline = {
        "site_id": SITE, "event": "add_to_cart", "mode": "C", "calibrated_at": day(-2), "expires_at": day(28),
        "daily_median": dict.fromkeys(("mon", "tue", "wed", "thu", "fri", "sat", "sun"), 2400),
    }  # fmt: skip
    (folder / "profile.json").write_text(json.dumps(profile, indent=2) + "\n")
    (folder / "watchdog-baseline.json").write_text(json.dumps(baseline, indent=2) + "\n")
    lines = {str(row["id"]): json.dumps(row).encode() for row in map(entry, range(due))}
    (folder / "recommendations.jsonl").write_bytes(b"".join(line + b"\n" for line in lines.values()))
    return lines


def ledger_of(home: Home) -> list[bytes]:
    raw = (home.path / ".seal-copilot" / SITE / "recommendations.jsonl").read_bytes()
    assert raw.endswith(b"\n")
    return raw.splitlines()


def loads(text: str | bytes) -> Any:
    """Numbers as they are written."""
    return json.loads(text, parse_float=Decimal)


class LedgerReader(Reader):
    """It reads the ledger too: no entry goes away or opens again, and a settled one stays as it was settled."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ledger = folder / "recommendations.jsonl"
        self.entries: dict[str, dict[str, Any]] = {}

    def _runs(self, before: bytes) -> bytes:
        raw = self.ledger.read_bytes()
        assert raw.endswith(b"\n"), f"the last line is torn: {raw[-80:]!r}"
        rows = [loads(line) for line in raw.splitlines()]
        now = {row["id"]: row for row in rows}
        assert len(now) == len(rows), twice([row["id"] for row in rows])
        for name, row in self.entries.items():
            assert now.get(name) == row or "measured" not in row, (row, now.get(name))
        self.entries = now
        return super()._runs(before)


class Told(NamedTuple):
    player: str
    step: str
    measured: str | None
    reply: dict[str, Any]


class Players(Callers):
    """Pairs of processes that each do the briefing on so many Mondays."""

    def play(self, pairs: int, mondays: int) -> None:
        flags = ["--timeout", str(self.patience)] + (["--local"] if self.home.mode == "local" else [])
        for number in range(2 * pairs):
            told = {
                "name": f"monday{number}",
                "partner": f"monday{number ^ 1}",
                "folder": str(self.folder),
                "statectl": [str(CLIENTS / "statectl"), *flags],
                "finding": f"pair-{number // 2}",
                "mondays": mondays,
                "tries": self.tries,
            }
            player = Path(__file__).with_name("monday_player.py")
            command = [sys.executable, "-IS", str(player), json.dumps(told)]
            self.loops.append(Popen(command, env=self.home.env, cwd=self.home.path, stdin=PIPE))

    def answers(self) -> Iterator[Told]:
        for path in sorted(self.folder.glob("monday*.out")):
            for line in path.read_text().splitlines():
                step, _, measured, reply = loads(line)
                yield Told(path.stem, step, measured, reply)


@pytest.fixture
def players(tmp_path: Path, request: pytest.FixtureRequest, make_home: MakeHome) -> Iterator[Players]:
    made = Players(make_home(request.param), tmp_path, patience=800)
    yield made
    made.end()


def account(players: Players, seeds: dict[str, bytes], pairs: int, mondays: int) -> str:
    """All that is on the disk follows from what the processes were told. Gives the figures."""
    home = players.home
    steps: dict[str, list[Told]] = defaultdict(list)
    for told in players.answers():
        steps[told.step].append(told)
    briefings = 2 * pairs * mondays
    assert players.refused() == {}
    assert {step: len(steps[step]) for step in STEPS} == dict.fromkeys(STEPS, briefings)

    # Runs: a line for each, with the one call that was counted, and none left open.
    wanted = {f"monday{player} of Monday {monday}" for player in range(2 * pairs) for monday in range(1, mondays + 1)}
    assert twice(runs_of(home)) == {}
    assert set(runs_of(home)) == wanted
    assert len({told.reply["run"] for told in steps["run start"]}) == briefings
    assert [told for told in steps["run finish"] if told.reply["mismatch"] or told.reply["line"]["calls"] != 1] == []
    alone = [told for told in steps["run start"] if told.reply["overlap"] is None]
    assert len(alone) <= pairs * mondays, "of two partners the second one sees the first"
    stats = home.statectl("seal", "--site", SITE, "run", "stats").ok()["skills"]
    assert [(row["runs"], row["unfinished"], row["over_share"]) for row in stats] == [(briefings, 0, 0)]
    late = home.statectl("seal", "--site", SITE, "run", "finish", "--verdict", "watch")
    assert (late.status, "no run is open" in late.err) == (1, True), late

    # Settled entries: one process each, the line is what it was told; a line that nobody settled keeps its bytes.
    settled: dict[str, Told] = {}
    for told in steps["rec settle"]:
        name, outcome = told.reply["id"], told.reply["outcome"]
        if outcome not in ("unchanged", "not_due"):
            assert name not in settled, (settled[name], told)
            assert outcome == told.reply["entry"]["evidence"]
            settled[name] = told
    assert {told.reply["id"] for told in steps["rec settle"]} == set(settled)
    lines = ledger_of(home)
    for (name, seed), line in zip(seeds.items(), lines, strict=False):
        if name not in settled:
            assert line == seed
            continue
        row = loads(line)
        assert row == settled[name].reply["entry"]
        assert str(row["measured"]) == settled[name].measured
        assert row["seen_in"] == loads(seed)["seen_in"]
        assert (row["status"] == "open") == (row.get("extended_on") is not None) == ("closed_on" not in row)

    # Findings: one of each pair recorded it, the other was told that it is there.
    created = {told.reply["id"]: told.reply["entry"] for told in steps["rec add"] if told.reply["status"] == "created"}
    others = [told for told in steps["rec add"] if told.reply["status"] in ("duplicate", "suppressed")]
    assert (len(created), len(others)) == (pairs * mondays, pairs * mondays)
    assert {told.reply["id"] for told in others} == set(created)
    added = [loads(line) for line in lines[len(seeds) :]]
    assert {row["id"]: row for row in added} == created
    assert len(added) == len(created)
    decisions = {told.reply["decision"] for told in steps["rec check"]}
    assert decisions <= {"new", "suppressed"}

    # The rest.
    assert sum(told.reply["first"] for told in steps["offer"]) == 1
    assert profile_of(home)["scheduling_offered"] == {"monday_briefing": True}
    assert {(told.reply["state"], *told.reply["missing"]) for told in steps["profile get"]} == {("fresh",)}
    assert {told.reply["state"] for told in steps["baseline get"]} == {"ok"}
    return (
        f"{briefings} briefings, {players.count()} calls answered, {len(players.unanswered())} tries were not; "
        f"{len(alone)} runs saw no other; {len(settled)} of {len(seeds)} entries settled by "
        f"{len(steps['rec settle'])} attempts; {len(created)} findings recorded"
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("players", "pairs"),
    [
        pytest.param("daemon", 25, id="daemon"),
        pytest.param("local", 2, id="local"),
        pytest.param("local", 25, id="local-full", marks=pytest.mark.slow),
    ],
    indirect=["players"],
)
def test_pairs_at_once(players: Players, pairs: int) -> None:
    seeds = furnish(players.home, 2 * pairs)
    reader = LedgerReader(players.home.path / ".seal-copilot" / SITE)
    players.play(pairs, 1)
    reader.start()
    began = time.monotonic()
    players.go()
    players.wait(850)
    took = time.monotonic() - began
    reader.finish()

    assert players.errors() == []
    assert players.unanswered() == []
    print(f"{account(players, seeds, pairs, 1)}; {reader.reads} reads; {took:.0f} s")


# Kills --------------------------------------------------------------------------------------------------------------


def daemon_of(home: Home) -> int:
    """The process that answers, if any does: it was started by one of our own callers. Asked without a process of our
    own, as the callers leave little time for one."""
    try:
        pid = int(client_line.ask(str(home.socket), "daemon.status", {}, timeout=5)["daemon"]["pid"])
    except (OSError, LookupError):
        return 0
    return pid if is_of(pid, home) else 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("players", "pairs", "mondays", "kills", "apart"),
    [
        pytest.param("daemon", 4, 2, 5, 8, id="few"),
        pytest.param("daemon", 25, 4, 50, 8, id="fifty", marks=pytest.mark.slow),
    ],
    indirect=["players"],
)
def test_pairs_at_once_and_kills(players: Players, pairs: int, mondays: int, kills: int, apart: int) -> None:
    """Kills come up to `apart` answers after each other."""
    home = players.home
    chance = random.Random(kills)
    seeds = furnish(home, 2 * pairs * mondays)
    reader = LedgerReader(home.path / ".seal-copilot" / SITE)
    players.tries = 100  # of a call that ended without an answer, beside those that `statectl` makes by itself
    players.play(pairs, mondays)
    reader.start()
    began = time.monotonic()
    players.go()
    killed = 0
    while killed < kills and players.running():
        wait_for_answers(players, chance.randint(1, apart))
        pid = daemon_of(home)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    players.wait(800)
    took = time.monotonic() - began
    reader.finish()

    figures = account(players, seeds, pairs, mondays)
    assert killed == kills
    print(f"{killed} kills; {figures}; {reader.reads} reads; {took:.0f} s")
