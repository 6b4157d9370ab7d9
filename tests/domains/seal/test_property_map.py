"""The property map: people read and correct it, and no skill overwrites a correction that it has not seen."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Conflict, Refused
from stated.domains.seal.property_map import has_table, show

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

FILE = "s/property-map.md"
MAP = """# Properties

| property | table | types | cardinality | score |
|---|---|---|---|---|
| sku | both | string | 812 | 9 |
| hull_no | conversions | string | 40 | 7 |

## Top 5

1. sku: in both tables

## Starter analyses

- friction by sku
"""
DATE = "\n<!-- stated: map of 2026-09-18, written by property-explorer -->\n"


def put(state: Memory, text: str = MAP, *, rev: Any = None, skill: str | None = "property-explorer") -> Any:
    state.if_rev = rev
    try:
        return state.call("map put", site="s", skill=skill, data=text)
    finally:
        state.if_rev = None


def get(state: Memory) -> Any:
    return state.call("map get", site="s")


def refused(state: Memory, text: str = MAP, **params: Any) -> Refused:
    before = dict(state.files), dict(state.remembered)
    with pytest.raises(Refused) as caught:
        put(state, text, **params)
    assert (state.files, state.remembered) == before
    assert caught.value.where == "s property-map.md"
    assert state.root not in caught.value.line()
    return caught.value


class TestGet:
    def test_nothing(self, state: Memory) -> None:
        for site in ("s", None):
            reply = state.call("map get", site=site)
            assert (reply["state"], reply["age_days"], reply["text"], reply["rev"]) == ("absent", None, None, None)
            assert show(reply) == ""

    def test_what_was_put(self, state: Memory) -> None:
        put(state)

        reply = get(state)

        assert (reply["state"], reply["age_days"]) == ("fresh", 0)
        assert reply["text"] == MAP + DATE
        assert show(reply) == state.raw(FILE).decode()
        assert reply["untrusted"] == ["text"]

    @pytest.mark.parametrize(("days", "expected"), [(30, "fresh"), (31, "stale")])
    def test_thirty_days(self, state: Memory, days: int, expected: str) -> None:
        put(state)
        state.later(days=days)

        reply = get(state)

        assert (reply["state"], reply["age_days"]) == (expected, days)
        assert show(reply).startswith("<!-- stated: the map is 31 days old; run property-explorer") == (days == 31)

    @pytest.mark.parametrize("date", ["", "<!-- stated: map of 2026-09-19 -->", "<!-- stated: map of 2026-13-40 -->"])
    def test_undated(self, state: Memory, date: str) -> None:
        """A hand-made map, or one of an old release: its age is not known, and is not taken from the file's time."""
        state.put(FILE, MAP + date)

        assert (get(state)["state"], get(state)["age_days"]) == ("undated", None)

    @pytest.mark.parametrize(("contradicted", "expected"), [("2026-09-18", "fresh"), ("2026-09-19", "stale")])
    def test_a_change_of_tracking(self, state: Memory, contradicted: str, expected: str) -> None:
        put(state)
        state.later(days=1)
        state.put("s/profile.json", {"site_id": "s", "extra": {"stated": {"contradicted": contradicted}}})

        assert get(state)["state"] == expected

    def test_no_text(self, state: Memory) -> None:
        state.put(FILE, b"| a |\n\xff\n")

        reply = get(state)

        assert (reply["state"], reply["text"]) == ("corrupt", None)
        assert "UTF-8" in show(reply)


class TestPut:
    def test_the_date_is_in_the_map(self, state: Memory) -> None:
        reply = put(state)

        assert state.raw(FILE).decode() == MAP + DATE
        assert reply == {
            "site": "s", "state": "fresh", "age_days": 0, "skill": "property-explorer", "warnings": [],
            "changed": True, "rev": 1,
        }  # fmt: skip

    def test_a_correction_does_not_make_it_look_fresh(self, state: Memory) -> None:
        """Decision 19. A caller that sends back what it read does not double the date, nor can it change it."""
        put(state)
        state.later(days=40)
        text = show(get(state)).replace("812", "813").replace("2026-09-18", "2026-10-28")

        reply = put(state, text, rev=get(state)["rev"], skill=None)

        assert (reply["state"], reply["age_days"], reply["warnings"]) == ("stale", 40, [])
        assert state.raw(FILE).decode() == MAP.replace("812", "813") + DATE

    def test_exploring_again_does(self, state: Memory) -> None:
        put(state)
        state.later(days=40)

        assert put(state, rev=get(state)["rev"])["state"] == "fresh"
        assert "2026-10-28" in state.raw(FILE).decode()

    def test_nobodys_date(self, state: Memory) -> None:
        """A map that never had a date gets none from a correction; the first one is of the day it is made."""
        state.put(FILE, MAP)
        assert put(state, MAP + "\nnew", rev=get(state)["rev"], skill=None)["state"] == "undated"
        assert "stated:" not in state.raw(FILE).decode()
        put(state, MAP + "\nother", rev=get(state)["rev"], skill="core")
        assert "without a date, written by core" in state.raw(FILE).decode()
        assert get(state)["state"] == "undated"
        del state.files[f"{state.root}/{FILE}"]
        assert put(state, skill=None)["state"] == "fresh"

    def test_another_skill_is_told(self, state: Memory) -> None:
        """Decision 18: the write is recorded with its name."""
        put(state)
        reply = put(state, MAP + "\nmore", rev=get(state)["rev"], skill="opportunity-scan")

        assert [row["field"] for row in reply["warnings"]] == ["--skill"]
        assert "map of 2026-09-18, written by opportunity-scan -->" in state.raw(FILE).decode()

    def test_the_same_again(self, state: Memory) -> None:
        put(state)
        reply = put(state, rev=1)

        assert (reply["changed"], reply["rev"], state.writes) == (False, 1, 1)

    def test_missing_parts_are_told(self, state: Memory) -> None:
        reply = put(state, "| a | b |\n|---|---|\n")

        assert [row["field"] for row in reply["warnings"]] == ["--data", "--data"]

    @pytest.mark.parametrize("text", ["", "# Properties\n\nsku, hull_no\n", "a\n---\n"])
    def test_no_table(self, state: Memory, text: str) -> None:
        assert "no table" in refused(state, text).reason

    @pytest.mark.parametrize("text", ["| a |\n", "a | b\n--|--\n1 | 2\n", "a|b\n:-:|--:\n"])
    def test_tables(self, text: str) -> None:
        assert has_table(text)

    def test_personal_data(self, state: Memory) -> None:
        error = refused(state, MAP + "| seen for ana@example.com |\n")

        assert error.data["problems"][0]["field"] == "line 15"
        assert "ana@" not in str(error.payload())

    def test_nothing_in_a_plugin(self, state: Memory) -> None:
        state.files["/home/u/.claude-plugin/plugin.json"] = b"{}"
        with pytest.raises(Refused, match="plugin"):
            put(state)


class TestEditedByHand:
    """Show 5: a map edited between get and put."""

    def edit(self, state: Memory, old: str, new: str) -> None:
        state.files[f"{state.root}/{FILE}"] = state.raw(FILE).decode().replace(old, new).encode()
        state.writes += 1

    def test_the_put_says_what_changed(self, state: Memory) -> None:
        put(state)
        read = get(state)
        self.edit(state, "| hull_no | conversions |", "| hull_no | both |")
        self.edit(state, "1. sku: in both tables\n", "")

        error = refused(state, read["text"].replace("812", "900"), rev=read["rev"])

        assert isinstance(error, Conflict)
        assert error.data["changes"] == [{"line": 6, "text": "| hull_no | both | string | 40 | 7 |"}]
        assert error.data["removed"] == 1
        assert "line 6 and 1 line taken out" in error.reason

        again = get(state)
        assert error.data["rev"] == again["rev"]
        put(state, again["text"].replace("812", "900"), rev=again["rev"])
        assert "| hull_no | both |" in state.raw(FILE).decode()
        assert "| 900 |" in state.raw(FILE).decode()

    def test_a_revision_is_asked_for(self, state: Memory) -> None:
        put(state)

        error = refused(state)

        assert not isinstance(error, Conflict)
        assert "--if-rev" in error.hint
        assert error.data["rev"] == 1
        assert isinstance(refused(state, rev="absent"), Conflict)

    def test_a_hash_is_a_revision(self, state: Memory) -> None:
        put(state)
        digest = f"sha256:{hashlib.sha256(state.raw(FILE)).hexdigest()}"

        assert put(state, MAP + "\nmore", rev=digest)["changed"]
        assert isinstance(refused(state, rev=digest), Conflict)

    def test_after_another_put(self, state: Memory) -> None:
        """Nobody edited by hand: the lines that this put would have overwritten are named."""
        put(state)
        put(state, MAP.replace("| 40 |", "| 41 |"), rev=1)

        error = refused(state, MAP, rev=1)

        assert [row["line"] for row in error.data["changes"]] == [6]

    def test_what_was_remembered_is_lost(self, state: Memory) -> None:
        put(state)
        self.edit(state, "812", "813")
        state.remembered.clear()

        error = refused(state, rev=1)

        assert [row["line"] for row in error.data["changes"]] == [5]
        assert "differs" in error.reason

    def test_only_fingerprints_are_remembered(self, state: Memory) -> None:
        put(state)

        assert "sku" not in str(state.remembered)

    def test_long_lines_and_many(self, state: Memory) -> None:
        """A refusal stays short whatever the file holds."""
        put(state)
        state.put(FILE, "".join(f"| {number} \u001b[31m{'x' * 200} |\n" for number in range(500)))
        state.writes += 1

        error = refused(state, rev=1)

        assert len(error.data["changes"]) == 20
        assert all(len(row["text"]) <= 80 and "\u001b" not in row["text"] for row in error.data["changes"])
