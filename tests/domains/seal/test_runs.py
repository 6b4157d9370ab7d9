"""`runs.jsonl`: exactly seven fields, appended unread. Incidents are numbered as in the format's own list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Append, At, Refused, Usage
from stated.domains.seal import tables
from stated.domains.seal.runs import draw_last, draw_log, is_over

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

GOOD: dict[str, Any] = {"skill": "diagnose-drop", "calls": 9, "budget": 12, "verdict": "act"}
CONTRACT = (
    '{"ts":"2026-09-07T08:00:12Z","skill":"monday-briefing","calls":13,"budget":15,"verdict":"watch","scheduled":true,'
    '"notes":"bot stats empty"}'
)


def refused(state: Memory, **params: Any) -> Refused:
    before = dict(state.files)
    with pytest.raises(Refused) as caught:
        state.call("run log", site="s", **params)
    assert state.files == before
    assert state.root not in caught.value.line()
    assert caught.value.where == "s runs.jsonl"
    return caught.value


def rows(error: Refused) -> dict[str, str]:
    return {row["field"]: row["meant"] for row in error.data["problems"]}


# run log -------------------------------------------------------------------------------------------------------------


class TestLog:
    def test_flags(self, state: Memory) -> None:
        reply = state.call("run log", site="s", **GOOD)

        line = {"ts": "2026-09-18T10:30:05Z", **GOOD, "scheduled": False, "notes": ""}
        assert reply == {
            "site": "s",
            "line": line,
            "over_budget": False,
            "mismatch": None,
            "warnings": [],
            "untrusted": ["notes"],
            "rev": 1,
        }
        assert state.records("s/runs.jsonl") == [line]
        assert list(reply["line"]) == ["ts", "skill", "calls", "budget", "verdict", "scheduled", "notes"]
        assert "diagnose-drop: act, 9 of 12 calls" in draw_log(reply, 80)

    def test_the_contracts_own_line(self, state: Memory) -> None:
        """From `--data`, with its members in any order."""
        state.call("run log", site="example-com", data=dict(reversed(json.loads(CONTRACT).items())))

        assert state.records("example-com/runs.jsonl") == [json.loads(CONTRACT)]

    def test_the_file_is_not_read(self, state: Memory) -> None:
        """Incident 20: an old line is no reason to refuse a new one; nothing of it is changed."""
        state.put("s/runs.jsonl", '{"calls_used": 3}\nnot json\n')

        outcome = state.outcome("run log", site="s", **GOOD)

        assert state.read == []
        (change,) = outcome.changes
        assert isinstance(change, Append)
        assert change.at == At(state.root, "s/runs.jsonl")
        assert change.line.endswith(b"\n")
        assert change.line.count(b"\n") == 1

    def test_the_skill_of_the_environment(self, state: Memory) -> None:
        state.env["STATED_SKILL"] = "cart-watchdog"

        assert state.call("run log", site="s", calls=1, verdict="watch")["line"]["skill"] == "cart-watchdog"
        named = state.call("run log", site="s", skill="create-alert", calls=1, verdict="watch")
        assert named["line"]["skill"] == "create-alert"
        assert state.call("run log", site="s", data=GOOD)["line"]["skill"] == "diagnose-drop"

    def test_over_budget_is_logged(self, state: Memory) -> None:
        """Incident 29: 13 of 12, told honestly."""
        reply = state.call("run log", site="s", skill="diagnose-drop", calls=13, budget=12, verdict="act")

        assert reply["over_budget"] is True
        assert "over budget" in draw_log(reply, 80)

    def test_zero_is_a_ceiling(self) -> None:
        """Incident 31: a ceiling of zero asserted nothing, because zero is falsy."""
        assert is_over(1, 0)
        assert not is_over(0, 0)

    @pytest.mark.parametrize(
        ("skill", "budget"), [(skill, ceilings[0]) for skill, ceilings in tables.BUDGETS.items() if len(ceilings) == 1]
    )
    def test_the_ceiling_of_a_known_skill(self, state: Memory, skill: str, budget: int) -> None:
        assert state.call("run log", site="s", skill=skill, calls=0, verdict="refused")["line"]["budget"] == budget

    @pytest.mark.parametrize(
        ("skill", "budget", "warned"),
        [
            ("diagnose-drop", 12, False),
            ("diagnose-drop", 10, True),
            ("core", 4, False),
            ("setup-audit", 15, True),
            ("check-alerts", 9, False),
            ("check-alerts", 8, True),
            ("my-own", 77, False),
        ],
    )
    def test_another_ceiling_is_told(self, state: Memory, skill: str, budget: int, warned: bool) -> None:
        """They moved between releases: never a reason to refuse."""
        reply = state.call("run log", site="s", skill=skill, calls=0, budget=budget, verdict="watch")

        assert [row["field"] for row in reply["warnings"]] == ["budget"] * warned

    @pytest.mark.parametrize("verdict", tables.VERDICTS)
    def test_verdicts(self, state: Memory, verdict: str) -> None:
        assert state.call("run log", site="s", **GOOD | {"verdict": verdict})["line"]["verdict"] == verdict

    @pytest.mark.parametrize(("sign", "verdict"), tables.SYMBOLS.items())
    def test_signs(self, state: Memory, sign: str, verdict: str) -> None:
        assert state.call("run log", site="s", **GOOD | {"verdict": sign})["line"]["verdict"] == verdict

    def test_scores_are_the_audits(self, state: Memory) -> None:
        for score in ("0/10", "7/10", "10/10"):
            audit = {"skill": "setup-audit", "calls": 13, "budget": 13, "verdict": score}
            assert state.call("run log", site="s", **audit)["line"]["verdict"] == score
            assert rows(refused(state, **GOOD | {"verdict": score})) == {"verdict": ""}
        for score in ("11/10", "7/9", "07/10"):
            assert "verdict" in rows(refused(state, **audit | {"verdict": score}))

    def test_a_backfill(self, state: Memory) -> None:
        for ts in ("2026-09-07T08:00:12Z", "2026-09-07T08:00:12.123456789Z", "2026-09-18T10:30:05Z"):
            assert state.call("run log", site="s", **GOOD, ts=ts)["line"]["ts"] == ts

    def test_a_note_is_one_line(self, state: Memory) -> None:
        reply = state.call("run log", site="s", **GOOD, notes="bot stats\n  empty\n")

        assert reply["line"]["notes"] == "bot stats empty"
        assert [row["field"] for row in reply["warnings"]] == ["notes"]
        assert len(state.raw("s/runs.jsonl").splitlines()) == 1

    def test_flags_and_data(self, state: Memory) -> None:
        for flags in ({"calls": 0}, {"scheduled": True}, {"notes": ""}):
            with pytest.raises(Usage, match="--data is the whole record"):
                state.call("run log", site="s", data=GOOD, **flags)


MISTAKES: list[tuple[dict[str, Any], dict[str, str]]] = [
    # Incident 8: the first real run.
    (
        {"run_at": "2026-09-08", "skill": "core", "reason": "first", "findings_issued": 2, "verdict": "watch"},
        {"run_at": "ts", "reason": "notes", "findings_issued": "notes", "calls": "", "budget": ""},
    ),
    # Incident 10: a shared footer said "calls used", and a sentence was the verdict.
    (
        {"skill": "diagnose-drop", "calls_used": 9, "verdict": "The cart is fine, watch checkout"},
        {"calls_used": "calls", "calls": "", "verdict": ""},
    ),
    (GOOD | {"site_id": "s"}, {"site_id": "--site"}),
    (GOOD | {"date": "2026-09-08"}, {"date": "ts"}),
    (GOOD | {"calls_detail": []}, {"calls_detail": ""}),
    (GOOD | {"Verdict": "act"}, {"Verdict": "verdict"}),
    # Incident 9: a bare date.
    (GOOD | {"ts": "2026-09-08"}, {"ts": ""}),
    (GOOD | {"ts": "2026-09-08T08:00:12"}, {"ts": ""}),
    (GOOD | {"ts": "2026-09-08T10:00:12+02:00"}, {"ts": "2026-09-08T08:00:12Z"}),
    (GOOD | {"ts": "2026-02-30T08:00:12Z"}, {"ts": ""}),
    (GOOD | {"ts": "2026-09-18T10:30:06Z"}, {"ts": ""}),
    (GOOD | {"ts": 1757232012}, {"ts": ""}),
    (GOOD | {"calls": -1}, {"calls": ""}),
    (GOOD | {"calls": "9"}, {"calls": ""}),
    (GOOD | {"calls": True}, {"calls": ""}),
    (GOOD | {"calls": None}, {"calls": ""}),
    (GOOD | {"budget": 0}, {"budget": ""}),
    (GOOD | {"budget": "12"}, {"budget": ""}),
    (GOOD | {"skill": ""}, {"skill": ""}),
    (GOOD | {"verdict": "On Track"}, {"verdict": "on_track"}),
    (GOOD | {"verdict": "healthy"}, {"verdict": ""}),
    (GOOD | {"verdict": None}, {"verdict": ""}),
    (GOOD | {"scheduled": "yes"}, {"scheduled": ""}),
    (GOOD | {"notes": "x" * 301}, {"notes": ""}),
    (GOOD | {"notes": ["x"]}, {"notes": ""}),
    (GOOD | {"notes": "asked by ana@example.com"}, {"notes": ""}),
    ({"calls": 9, "verdict": "act"}, {"skill": "--skill or STATED_SKILL", "budget": ""}),
    ({}, {"skill": "--skill or STATED_SKILL", "calls": "", "budget": "", "verdict": ""}),
]


@pytest.mark.parametrize(("record", "meant"), MISTAKES)
def test_mistakes(state: Memory, record: dict[str, Any], meant: dict[str, str]) -> None:
    """Every one is named, with the field that was meant; nothing is written and nothing personal repeated."""
    error = refused(state, data=record)

    assert rows(error) == meant
    for field in meant:
        assert f"`{field}`" in error.line()
    assert "ana@" not in str(error.payload())
    assert "cart is fine" not in str(error.payload())


def test_ceilings_are_named(state: Memory) -> None:
    assert "4 or 12" in refused(state, skill="core", calls=1, verdict="watch").line()


def test_two_skills(state: Memory) -> None:
    assert rows(refused(state, skill="core", data=GOOD)) == {"skill": ""}


# run last ------------------------------------------------------------------------------------------------------------


class TestLast:
    def test_nothing(self, state: Memory) -> None:
        assert state.call("run last", site="s") == {
            "site": "s",
            "runs": [],
            "history": True,
            "bad_lines": 0,
            "problems": [],
            "untrusted": ["notes"],
            "rev": None,
        }
        assert draw_last(state.call("run last", site="s"), 80) == "no runs"

    def test_newest_first(self, state: Memory) -> None:
        """By their stamps: a backfill stands later in the file."""
        for ts in ("2026-09-10T00:00:00Z", "2026-09-12T00:00:00Z", "2026-09-11T00:00:00.5Z", "2026-09-11T00:00:00Z"):
            state.call("run log", site="s", **GOOD, ts=ts)

        assert [run["ts"][8:] for run in state.call("run last")["runs"]] == [
            "12T00:00:00Z", "11T00:00:00.5Z", "11T00:00:00Z", "10T00:00:00Z",
        ]  # fmt: skip
        assert len(state.call("run last", limit=1)["runs"]) == 1

    def test_of_one_skill(self, state: Memory) -> None:
        """The flag filters; the skill that asks does not."""
        state.call("run log", site="s", **GOOD)
        state.call("run log", site="s", **GOOD | {"skill": "core"})
        state.env["STATED_SKILL"] = "core"

        assert len(state.call("run last")["runs"]) == 2
        assert [run["skill"] for run in state.call("run last", skill="core")["runs"]] == ["core"]

    def test_old_and_bad_lines(self, state: Memory) -> None:
        """Incident 12: old lines are given as they are, beside the line before them; bad ones are counted."""
        old = '{"run_at": "2026-09-08", "skill": "core", "calls_used": 3}'
        state.put("s/runs.jsonl", f"{CONTRACT}\n{old}\nnot json\n[1]\n\n{CONTRACT.replace('07T', '06T')}\n")

        reply = state.call("run last")

        assert [run.get("ts", "old")[:10] for run in reply["runs"]] == ["old", "2026-09-07", "2026-09-06"]
        assert reply["bad_lines"] == 2
        assert [row["line"] for row in reply["problems"]] == [3, 4]
        assert "2 lines cannot be read" in draw_last(reply, 80)

    def test_on_a_terminal(self, state: Memory) -> None:
        state.call("run log", site="s", **GOOD, notes="a\u001b[31m" + "x" * 200)

        text = draw_last(state.call("run last"), 100)

        assert "\u001b" not in text
        assert "x" * 200 in text
        assert all(len(line) <= 100 for line in text.splitlines() if "xxx" not in line)

    @pytest.mark.parametrize(
        ("skill", "meant"),
        [
            ("monday-brief", "monday-briefing"),
            ("monday_briefing", "monday-briefing"),
            ("check-alert", "check-alerts"),
            ("monday-briefing", None),
            ("my-own-report", None),
        ],
    )
    def test_a_skill_that_is_nearly_a_documented_one_is_told(
        self, state: Memory, skill: str, meant: str | None
    ) -> None:
        expected = [] if meant is None else [meant]
        reply = state.call("run log", site="s", **{**GOOD, "skill": skill, "budget": 15})
        assert [row["meant"] for row in reply["warnings"] if row["field"] == "skill"] == expected
        assert (f"(meant: {meant})" in draw_log(reply, 100)) is (meant is not None)
        reply = state.call("run start", site="s", skill=skill)
        assert [row["meant"] for row in reply["warnings"]] == expected
