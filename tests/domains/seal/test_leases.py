"""Open runs: counted, finished, given up. Incidents are numbered as in the format's own list."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Append, EditLine, Refused, Usage
from stated.domains.seal.run_stats import draw_stats
from stated.domains.seal.runs import draw_log

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

SKILL = "monday-briefing"


def refused(state: Memory, name: str, **params: Any) -> Refused:
    before = dict(state.files), dict(state.remembered)
    with pytest.raises(Refused) as caught:
        state.call(name, **{"site": "s"} | params)
    assert (state.files, state.remembered) == before
    assert state.root not in caught.value.line()
    return caught.value


def start(state: Memory, skill: str = SKILL, **params: Any) -> Any:
    return state.call("run start", site="s", skill=skill, **params)


def lines(state: Memory) -> list[Any]:
    return state.records("s/runs.jsonl")


@pytest.fixture
def profile(state: Memory) -> None:
    state.put("s/profile.json", {"site_id": "s"})


# One run --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("profile")
class TestOneRun:
    def test_start_count_finish(self, state: Memory) -> None:
        opened = start(state, scheduled=True)
        assert opened == {
            "site": "s",
            "run": opened["run"],
            "budget": 15,
            "overlap": None,
            "last": None,
            "warnings": [],
            "untrusted": ["last"],
        }
        assert "s/runs.jsonl" not in str(state.files)

        assert state.call("run count", site="s") == {
            "site": "s", "run": opened["run"], "calls": 1, "left": 14, "over": False,
        }  # fmt: skip
        assert state.call("run count", site="s", tool="list_sites", n=13)["left"] == 1
        state.later(minutes=4)
        reply = state.call("run finish", site="s", verdict="🟡", notes="bot stats empty")

        line = {
            "ts": "2026-09-18T10:34:05Z", "skill": SKILL, "calls": 14, "budget": 15, "verdict": "watch",
            "scheduled": True, "notes": "bot stats empty",
        }  # fmt: skip
        assert (reply["line"], reply["over_budget"], reply["mismatch"], reply["warnings"]) == (line, False, None, [])
        assert lines(state) == [line]
        assert list(line) == list(lines(state)[0])
        assert "14 of 15 calls" in draw_log(reply, 80)
        assert start(state)["last"] == line

    def test_it_is_finished_once(self, state: Memory) -> None:
        run = start(state)["run"]
        state.call("run finish", site="s", verdict="refused", calls=0)

        assert "finished at 2026-09-18T10:30:05Z" in refused(state, "run finish", run=run, verdict="act").reason
        assert "finished" in refused(state, "run count", run=run).reason
        assert "no run" in refused(state, "run finish", verdict="act").reason
        assert len(lines(state)) == 1

    def test_the_calls_are_counted_not_stated(self, state: Memory) -> None:
        """A stated number is compared, and the difference recorded."""
        start(state)
        state.call("run count", site="s", n=13)

        reply = state.call("run finish", site="s", verdict="act", calls=12, notes="late")

        assert reply["mismatch"] == {"counted": 13, "stated": 12}
        assert lines(state)[0]["calls"] == 13
        assert lines(state)[0]["notes"] == "late; 13 calls counted, 12 stated"

    def test_a_full_note_is_kept(self, state: Memory) -> None:
        start(state)
        state.call("run count", site="s")

        reply = state.call("run finish", site="s", verdict="act", calls=2, notes="x" * 290)

        assert (reply["mismatch"], reply["line"]["notes"]) == ({"counted": 1, "stated": 2}, "x" * 290)

    def test_without_a_count_the_skill_says(self, state: Memory) -> None:
        start(state)
        error = refused(state, "run finish", verdict="act")
        assert [row["field"] for row in error.data["problems"]] == ["calls"]

        assert state.call("run finish", site="s", verdict="act", calls=3)["mismatch"] is None

    def test_over_budget(self, state: Memory) -> None:
        """Incident 29: 13 of 12 is logged as it is."""
        start(state, "diagnose-drop")
        assert state.call("run count", site="s", n=12)["over"] is False
        assert state.call("run count", site="s")["over"] is True

        assert state.call("run finish", site="s", verdict="act")["over_budget"] is True
        assert state.call("run stats")["skills"][0]["over_share"] == 1

    def test_a_count_belongs_to_its_run(self, state: Memory) -> None:
        """Incident 27: a counter that ran on cut the next run short."""
        start(state)
        state.call("run count", site="s", n=13)
        state.call("run finish", site="s", verdict="act")
        start(state)
        state.call("run count", site="s", n=9)

        assert state.call("run finish", site="s", verdict="act")["line"]["calls"] == 9

    @pytest.mark.parametrize(
        ("params", "field"),
        [
            ({"verdict": "fine"}, "verdict"),
            ({"verdict": "7/10"}, "verdict"),
            ({"verdict": "act", "notes": "x" * 301}, "notes"),
            ({"verdict": "act", "notes": "for ana@example.com"}, "notes"),
            ({"verdict": "act", "budget": 0}, "budget"),
            ({"verdict": "act", "calls": -1}, "calls"),
        ],
    )
    def test_mistakes(self, state: Memory, params: dict[str, Any], field: str) -> None:
        """The run stays open: the next try can do better."""
        start(state)

        error = refused(state, "run finish", **{"calls": 1} | params)

        assert field in [row["field"] for row in error.data["problems"]]
        state.call("run finish", site="s", verdict="act", calls=1)


class TestBudgets:
    @pytest.mark.parametrize(
        ("skill", "files", "budget"),
        [
            ("cart-watchdog", {}, 6),
            ("core", {}, None),
            ("my-own", {}, None),
            ("setup-audit", {}, 13),
            ("setup-audit", {"install-plan.json": {}}, 14),
            ("check-alerts", {}, 3),
            (
                "check-alerts",
                {"alerts.json": {"rules": [{"status": "active"}, {"status": "active"}, {"status": "paused"}]}},
                6,
            ),
            ("check-alerts", {"alerts.json": [{"status": "active"}, "x"]}, 3),
            ("check-alerts", {"alerts.json": b"{"}, 3),
        ],
    )
    def test_the_ceiling(self, state: Memory, skill: str, files: dict[str, Any], budget: int | None) -> None:
        for name, value in files.items():
            state.put(f"s/{name}", value)

        assert start(state, skill)["budget"] == budget

    def test_one_that_no_table_knows(self, state: Memory) -> None:
        start(state, "my-own")
        assert state.call("run count", site="s")["left"] is None
        error = refused(state, "run finish", verdict="act")
        assert [row["field"] for row in error.data["problems"]] == ["budget"]
        assert state.call("run finish", site="s", verdict="act", budget=5)["line"]["budget"] == 5

        start(state, "my-own", budget=7)
        assert state.call("run finish", site="s", verdict="act", calls=0)["line"]["budget"] == 7


class TestProfileNotWritten:
    """Incident 7: "profile initialised", and no file."""

    def warned(self, state: Memory, **params: Any) -> bool:
        reply = state.call("run finish", site="s", verdict="kpis_only", **params)
        told = [row for row in reply["warnings"] if row["problem"].startswith("profile_not_written")]
        return bool(told)

    @pytest.mark.parametrize(
        ("tools", "warned"),
        [
            (["list_sites"], True),
            (["mcp__sealmetrics__list_property_keys"], True),
            (["get_conversions"], False),
            (["get_conversions", "get_site"], True),
            ([None, "get_conversions"], True),
            ([None], True),
        ],
    )
    def test_discovery_without_a_profile(self, state: Memory, tools: list[str | None], warned: bool) -> None:
        start(state)
        for tool in tools:
            state.call("run count", site="s", tool=tool)

        assert self.warned(state) is warned

    def test_a_run_without_calls(self, state: Memory) -> None:
        start(state)

        assert not self.warned(state, calls=0)

    def test_with_a_profile(self, state: Memory) -> None:
        start(state)
        state.call("run count", site="s", tool="list_sites")
        state.call("profile put", site="s", why="discovery", data={"currency": "EUR"})

        assert not self.warned(state)


# Several runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("profile")
class TestOverlap:
    def test_the_first_is_named(self, state: Memory) -> None:
        """A second start opens its own run; whether to go on is the caller's to decide."""
        first = start(state)["run"]
        state.later(seconds=90)
        state.pid = 99
        second = start(state)

        assert second["overlap"] == {"run": first, "age_s": 90, "pid": 4711}
        assert second["run"] != first
        state.later(seconds=10)
        assert start(state)["overlap"] == {"run": first, "age_s": 100, "pid": 4711}
        assert start(state, "cart-watchdog")["overlap"] is None
        assert state.call("run start", site="t", skill=SKILL)["overlap"] is None

    def test_only_while_its_lease_lasts(self, state: Memory) -> None:
        start(state)
        state.later(hours=1, minutes=59)
        state.call("run count", site="s")
        state.later(hours=1)
        assert start(state)["overlap"] is not None
        state.later(hours=1)
        assert start(state)["overlap"]["age_s"] == 3600
        start(state, "core", lease="10m")
        state.later(minutes=10)
        assert start(state, "core")["overlap"] is None

    def test_the_id_may_be_left_out_for_one(self, state: Memory) -> None:
        first, second = start(state)["run"], start(state)["run"]
        other = start(state, "cart-watchdog")["run"]

        error = refused(state, "run finish", verdict="act", calls=1)
        assert error.data["runs"] == sorted([first, second, other])
        assert refused(state, "run count", skill=SKILL).data["runs"] == sorted([first, second])
        assert state.call("run count", site="s", skill="cart-watchdog")["run"] == other
        state.env["STATED_SKILL"] = "cart-watchdog"
        assert state.call("run finish", site="s", verdict="act")["run"] == other
        assert state.call("run finish", site="s", verdict="act", calls=1, run=second)["line"]["skill"] == SKILL
        assert "skill" in refused(state, "run count", run=first, skill="core").reason
        assert state.call("run finish", site="s", verdict="act", calls=1, run=first, skill=SKILL)["run"] == first

    def test_two_roots(self, state: Memory) -> None:
        """What is remembered of a site in one directory is nothing to the same site in another."""
        run = start(state)["run"]
        state.root = "/t/s"

        assert "not known" in refused(state, "run count", run=run).reason
        assert start(state)["overlap"] is None

    def test_too_many(self, state: Memory) -> None:
        for _ in range(200):
            start(state)
        assert "200" in refused(state, "run start", skill=SKILL).reason

    def test_a_run_needs_a_skill(self, state: Memory) -> None:
        assert refused(state, "run start").data["problems"][0]["meant"] == "--skill or STATED_SKILL"
        state.env["STATED_SKILL"] = "core"
        state.call("run start", site="s")
        with pytest.raises(Usage, match="a number and"):
            start(state, lease="0h")

    def test_nothing_is_started_in_a_plugin(self, state: Memory) -> None:
        """Incident 4."""
        state.files["/home/u/.claude-plugin/plugin.json"] = b"{}"

        assert "plugin" in refused(state, "run start", site="new", skill=SKILL).reason


# Runs that are never finished -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("profile")
class TestGivenUp:
    def test_with_its_counted_calls(self, state: Memory) -> None:
        run = start(state, scheduled=True)["run"]
        state.later(minutes=5)
        state.call("run count", site="s", n=4)
        state.later(hours=1, minutes=59)
        assert state.upkeep() == {"given_up": []}
        state.later(minutes=1)

        assert state.upkeep() == {"given_up": [{"site": "s", "run": run, "skill": SKILL, "logged": True}]}

        assert lines(state) == [
            {
                "ts": "2026-09-18T10:35:05Z", "skill": SKILL, "calls": 4, "budget": 15, "verdict": "error",
                "scheduled": True, "notes": "started 2026-09-18T10:30:05Z and never finished",
            }
        ]  # fmt: skip
        assert state.upkeep() == {"given_up": []}
        assert "given up" in refused(state, "run count", run=run).reason
        assert state.call("run stats")["skills"][0]["unfinished"] == 0

    def test_nothing_is_invented(self, state: Memory) -> None:
        """Without a count there is no line; it shows as unfinished."""
        start(state)
        start(state, "my-own")
        state.call("run count", site="s", skill="my-own")
        state.later(hours=2)
        before = state.call("run stats")
        assert [row["logged"] for row in state.upkeep()["given_up"]] == [False, False]

        assert "s/runs.jsonl" not in str(state.files)
        rows = state.call("run stats")["skills"]
        assert [(row["skill"], row["runs"], row["unfinished"]) for row in rows] == [(SKILL, 0, 1), ("my-own", 0, 1)]
        # The same before the upkeep came round.
        assert before["skills"] == rows
        assert state.call("run stats", since=date(2026, 9, 19))["skills"] == []

    def test_a_counted_one_is_not_shown_as_unfinished(self, state: Memory) -> None:
        """It will have its line, whether the upkeep has come round or not."""
        start(state)
        state.call("run count", site="s")
        state.later(hours=2)
        assert state.call("run stats")["skills"] == []
        state.upkeep()
        assert [(row["runs"], row["unfinished"]) for row in state.call("run stats")["skills"]] == [(1, 0)]

    def test_for_all_sites(self, state: Memory) -> None:
        """Also for one that has no folder yet."""
        for site in ("a", "b", "c"):
            state.call("run start", site=site, skill=SKILL)
            state.call("run count", site=site)
        state.call("run finish", site="b", verdict="act")
        state.later(hours=3)
        state.call("run start", site="c", skill=SKILL)

        assert [row["site"] for row in state.upkeep()["given_up"]] == ["a", "c"]
        assert state.remembered["open-sites", state.root] == ["c"]
        assert [len(state.records(f"{site}/runs.jsonl")) for site in "abc"] == [1, 1, 1]
        state.call("run finish", site="c", verdict="act", calls=1)
        assert ("open-sites", state.root) not in state.remembered

    def test_it_finishes_after_all(self, state: Memory) -> None:
        """One run is one line: the daemon's own gives way to it, in its place."""
        run = start(state)["run"]
        state.call("run count", site="s", n=4)
        state.later(hours=2)
        state.upkeep()
        state.call("run log", site="s", skill="core", calls=1, budget=4, verdict="watch")

        state.later(minutes=1)
        (change, *_) = state.outcome("run finish", site="s", run=run, verdict="on_track").changes
        assert isinstance(change, EditLine)
        state.call("run finish", site="s", run=run, verdict="on_track")

        assert [(row["skill"], row["verdict"], row["calls"]) for row in lines(state)] == [
            (SKILL, "on_track", 4),
            ("core", "watch", 1),
        ]
        assert lines(state)[0]["ts"] == "2026-09-18T12:31:05Z"

    @pytest.mark.parametrize("edit", [b"", b'{"ts":"by hand"}\n'])
    def test_it_finishes_after_somebody_changed_the_log(self, state: Memory, edit: bytes) -> None:
        run = start(state)["run"]
        state.call("run count", site="s", n=4)
        state.later(hours=2)
        state.upkeep()
        state.put("s/runs.jsonl", edit)

        state.call("run finish", site="s", run=run, verdict="on_track")

        assert state.raw("s/runs.jsonl").startswith(edit)
        assert lines(state)[-1]["verdict"] == "on_track"

    def test_an_uncounted_one_finishes_after_all(self, state: Memory) -> None:
        run = start(state)["run"]
        state.later(hours=2)
        state.upkeep()

        (change, *_) = state.outcome("run finish", site="s", run=run, verdict="act", calls=3).changes
        assert isinstance(change, Append)
        state.call("run finish", site="s", run=run, verdict="act", calls=3)

        assert [(row["runs"], row["unfinished"]) for row in state.call("run stats")["skills"]] == [(1, 0)]

    def test_what_is_lost_makes_nothing_wrong(self, state: Memory) -> None:
        """The journal is gone: the run cannot be finished, and can be logged."""
        run = start(state)["run"]
        state.call("run count", site="s")
        state.remembered.clear()

        assert "run log" in refused(state, "run finish", run=run, verdict="act").hint
        assert state.upkeep() == {"given_up": []}
        state.remembered["runs", f"{state.root}/s"] = {"open": {"r": {"skill": 5}}}
        state.remembered["open-sites", state.root] = "s"
        assert state.upkeep() == {"given_up": []}
        assert start(state)["overlap"] is None

    def test_it_stays_small(self, state: Memory) -> None:
        for _ in range(70):
            start(state)
            state.call("run finish", site="s", verdict="act", calls=0)
        for _ in range(210):
            start(state)
            state.later(hours=2)
            state.upkeep()

        book = state.remembered["runs", f"{state.root}/s"]
        assert (len(book["open"]), len(book["closed"]), len(book["unfinished"])) == (0, 50, 200)


# run stats ------------------------------------------------------------------------------------------------------------


class TestStats:
    def test_nothing(self, state: Memory) -> None:
        for site in ("s", None):
            assert state.call("run stats", site=site)["skills"] == []
        assert state.call("run stats", all_sites=True)["sites"] == []
        assert draw_stats(state.call("run stats"), 80) == "no runs"

    def test_numbers(self, state: Memory) -> None:
        def line(ts: str, skill: str, calls: int, budget: int) -> str:
            return json.dumps({"ts": ts, "skill": skill, "calls": calls, "budget": budget, "verdict": "act"})

        state.put(
            "s/runs.jsonl",
            "\n".join(
                (
                    line("2026-09-03T00:00:00Z", "core", 5, 4),
                    line("2026-09-01T00:00:00Z", "core", 2, 12),
                    line("2026-09-02T00:00:00Z", "core", 12, 12),
                    line("2026-09-04T00:00:00Z", SKILL, 7, 15),
                    line("2026-09-05T00:00:00Z", SKILL, 8, 15),
                    '{"run_at": "2026-09-08", "skill": "core", "calls_used": 3}',
                    '{"skill": 7}',
                    "not json",
                )
            ),
        )

        reply = state.call("run stats", site="s")

        assert reply["skills"] == [
            {
                "skill": "core", "runs": 4, "unfinished": 0, "unmeasured": 1, "calls_median": 5, "calls_max": 12,
                "budget": 4, "over_share": reply["skills"][0]["over_share"],
            },
            {
                "skill": SKILL, "runs": 2, "unfinished": 0, "unmeasured": 0,
                "calls_median": reply["skills"][1]["calls_median"], "calls_max": 8, "budget": 15, "over_share": 0,
            },
        ]  # fmt: skip
        assert str(reply["skills"][0]["over_share"]) == "0.3333"
        assert str(reply["skills"][1]["calls_median"]) == "7.5"
        assert reply["bad_lines"] == 1
        assert "0.3333" in draw_stats(reply, 100)
        assert [row["skill"] for row in state.call("run stats", skill="core")["skills"]] == ["core"]

    def test_since(self, state: Memory) -> None:
        for ts in ("2026-09-01T23:59:59Z", "2026-09-02T00:00:00Z"):
            state.call("run log", site="s", skill="core", calls=1, budget=4, verdict="act", ts=ts)

        assert state.call("run stats", since=date(2026, 9, 2))["skills"][0]["runs"] == 1
        assert state.call("run stats", since=date(2026, 9, 3))["skills"] == []

    def test_all_sites(self, state: Memory) -> None:
        for site in ("a", "b"):
            state.call("run log", site=site, skill="core", calls=1, budget=4, verdict="act")

        reply = state.call("run stats", all_sites=True)

        assert (reply["sites"], reply["site"], reply["skills"][0]["runs"]) == (["a", "b"], None, 2)
        with pytest.raises(Refused):
            state.call("run stats")
