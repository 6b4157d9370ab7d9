"""The recommendation ledger: the worked values, what a person may do to its file, and every mistake of a caller."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Append, EditLine, Refused, Usage
from stated.domains.seal import ledger
from stated.domains.seal.recommendations import draw_entries, draw_entry

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

FILE = "s/recommendations.jsonl"
CONTRACT = (
    '{"id":"2026-09-07-leaky-summer-sale-es","date":"2026-09-07","skill":"opportunity-scan","pattern":"leaky-campaign",'
    '"subject":"summer-sale-es","evidence":"2,014 entrances, CR 0.8% vs channel avg 2.1%, 30d","action":"Fix '
    'ad-to-landing message match, or pause and reallocate","impact_eur_month":1840,"metric":"campaign CR","baseline"'
    ':0.008,"target":0.021,"verify_on":"2026-10-05","status":"open"}'
)
FLAGS: dict[str, Any] = {
    "skill": "opportunity-scan",
    "pattern": "leaky-campaign",
    "subject": "summer-sale-es",
    "evidence": "2,014 entrances",
    "action": "Fix the landing page",
    "metric": "campaign CR",
    "baseline": Decimal("0.010"),
    "target": Decimal("0.022"),
    "impact": Decimal(200),
    "currency": "EUR",
    "verify_in": "28d",
}
RECORD: dict[str, Any] = json.loads(CONTRACT, parse_float=Decimal)


def number(text: str) -> Decimal:
    return Decimal(text)


def entry(**changed: Any) -> str:
    """A line of the ledger, its numbers spelled as they are given."""
    line = CONTRACT
    for name, value in changed.items():
        before = json.dumps(json.loads(CONTRACT)[name]) if name in RECORD else None
        spelled = value if isinstance(value, Raw) else json.dumps(value)
        if before is not None:
            line = line.replace(f'"{name}":{before}', f'"{name}":{spelled}')
        else:
            line = f'{line[:-1]},"{name}":{spelled}}}'
    return line


class Raw(str):
    """A number as it is to stand in the file."""


def due(**changed: Any) -> str:
    return entry(id="a", verify_on="2026-09-18", **changed)


def refused(state: Memory, name: str, **params: Any) -> Refused:
    before = dict(state.files)
    with pytest.raises(Refused) as caught:
        state.call(name, site="s", **params)
    assert state.files == before
    assert state.root not in caught.value.line()
    assert caught.value.where.startswith(("s recommendations.jsonl", "--currency"))
    return caught.value


def meant(error: Refused) -> dict[str, str]:
    return {row["field"]: row["meant"] for row in error.data["problems"]}


# The worked values ----------------------------------------------------------------------------------------------------

RISING = ("0.010", "0.022")
FALLING = ("0.70", "0.55")

WORKED: list[tuple[tuple[str, str], str, bool, str]] = [
    # (baseline, target), measured, extended before, outcome
    (RISING, "0.0225", False, "verified"),
    (RISING, "0.022", False, "verified"),
    (RISING, "0.0140", False, "extended"),  # p = 1/3 exactly
    (RISING, "0.0139", False, "failed"),
    (RISING, "0.016", False, "extended"),
    (RISING, "0.016", True, "failed"),
    (RISING, "0.0225", True, "verified"),
    (RISING, "0.006", False, "failed"),
    (FALLING, "0.54", False, "verified"),
    (FALLING, "0.66", False, "failed"),
    (FALLING, "0.62", False, "extended"),
    (FALLING, "0.65", False, "extended"),  # p = 1/3 exactly
    (("0.01", "0.10"), "0.04", False, "extended"),  # exactly a third, where binary floats say a little less
    (("0.01", "0.10"), "0.0399999999999999999999999999999", False, "failed"),
    (("0", "3"), "1", False, "extended"),
    (("-1", "-4"), "-2", False, "extended"),
    (("1E+3", "4E+3"), "2000.0", False, "extended"),
]


@pytest.mark.parametrize(("ends", "measured", "before", "outcome"), WORKED)
def test_the_thirds(state: Memory, ends: tuple[str, str], measured: str, before: bool, outcome: str) -> None:
    also = {"extended_on": "2026-09-04"} if before else {}
    state.put(FILE, due(baseline=Raw(ends[0]), target=Raw(ends[1]), **also) + "\n")

    reply = state.call("rec settle", site="s", id="a", measured=number(measured))

    stored = json.loads(state.raw(FILE), parse_float=str)
    assert reply["outcome"] == outcome
    assert reply["status"] == stored["status"] == ("open" if outcome == "extended" else outcome)
    assert str(stored["measured"]) == measured
    assert reply["verify_on"] == ("2026-10-02" if outcome == "extended" else "2026-09-18")
    assert stored.get("closed_on") == (None if outcome == "extended" else "2026-09-18")
    assert stored.get("extended_on") == ("2026-09-18" if outcome == "extended" else also.get("extended_on"))


@pytest.mark.parametrize(
    ("share", "shown"),
    [((1, 3), "0.3333"), ((-1, 3), "-0.3334"), ((9999999, 10000000), "0.9999"), ((1, 1), "1.0000"), ((0, 1), "0.0000")],
)
def test_what_missed_a_bound_never_looks_as_if_it_had_not(share: tuple[int, int], shown: str) -> None:
    assert str(ledger.decimal_of(Fraction(*share))) == shown
    assert ledger.decimal_of(Fraction(10**5000)) < Decimal(10) ** 15


@pytest.mark.parametrize(
    ("recorded", "now", "decision"),
    [
        ((200, "EUR"), (299, "EUR"), "suppressed"),
        ((200, "EUR"), (300, "EUR"), "escalate"),
        ((200, "EUR"), (300, "USD"), "incomparable"),
        ((200, "EUR"), (300, None), "incomparable"),
        ((200, None), (300, None), "incomparable"),
        (None, (300, "EUR"), "incomparable"),
        ((Decimal("0.2"), "NOK"), (Decimal("0.3"), "NOK"), "escalate"),
        ((Decimal("0.2"), "NOK"), (Decimal("0.29999999999999999999999999999"), "NOK"), "suppressed"),
        ((0, "EUR"), (1, "EUR"), "escalate"),
        ((0, "EUR"), (0, "EUR"), "suppressed"),
        ((-50, "EUR"), (-10, "EUR"), "suppressed"),
    ],
)
def test_growth(recorded: Any, now: Any, decision: str) -> None:
    was = ledger.Impact(*recorded) if recorded is not None else None

    assert ledger.growth(was, ledger.Impact(*now)) == decision


@pytest.mark.parametrize(
    ("days", "decision"), [(0, "suppressed"), (89, "suppressed"), (90, "new"), (91, "new"), (400, "new")]
)
def test_ninety_days(state: Memory, days: int, decision: str) -> None:
    state.put(FILE, entry(status="discarded", closed_on="2026-09-18") + "\n")
    state.later(days=days)

    reply = state.call(
        "rec check", site="s", pattern="leaky-campaign", subject="summer-sale-es", impact=Decimal(10**9), currency="EUR"
    )

    assert reply["decision"] == decision
    assert (reply["since"], reply["until"]) == (
        ("2026-09-07", "2026-12-17") if decision == "suppressed" else (None, None)
    )


def test_without_a_closing_date_the_issue_date_counts(state: Memory) -> None:
    state.put(FILE, entry(status="discarded", date="2026-06-21") + "\n")

    def decision() -> str:
        reply = state.call("rec check", site="s", pattern="leaky-campaign", subject="summer-sale-es", impact=Decimal(1))
        return str(reply["decision"])

    assert decision() == "suppressed"
    state.later(days=1)
    assert decision() == "new"


# rec add --------------------------------------------------------------------------------------------------------------


class TestAdd:
    def test_flags(self, state: Memory) -> None:
        reply = state.call("rec add", site="s", **FLAGS)

        assert reply["status"] == "created"
        assert reply["id"] == "2026-09-18-leaky-campaign-summer-sale-es"
        assert reply["warnings"] == []
        assert state.raw(FILE) == (
            b'{"id":"2026-09-18-leaky-campaign-summer-sale-es","date":"2026-09-18","skill":"opportunity-scan",'
            b'"pattern":"leaky-campaign","subject":"summer-sale-es","evidence":"2,014 entrances",'
            b'"action":"Fix the landing page","impact_eur_month":200,"metric":"campaign CR","baseline":0.010,'
            b'"target":0.022,"verify_on":"2026-10-16","status":"open"}\n'
        )
        assert "created" in draw_entry(reply, 80)

    def test_the_contracts_own_line(self, state: Memory) -> None:
        """Given whole, with its own id: stored as it stands."""
        state.call("rec add", site="s", data=dict(reversed(RECORD.items())))

        assert state.raw(FILE).decode() == CONTRACT + "\n"

    def test_it_is_appended(self, state: Memory) -> None:
        """An old line that breaks the contract is no reason to refuse, and stays as it is."""
        state.put(FILE, '{"impact": 3}\nnot json')

        reply = state.call("rec add", site="s", **FLAGS)

        assert [row["field"] for row in reply["warnings"]] == [""]
        assert "line 2" in reply["warnings"][0]["problem"]
        assert state.raw(FILE).startswith(b'{"impact": 3}\nnot json\n{"id"')
        (change,) = state.outcome("rec add", site="s", **FLAGS | {"subject": "x"}).changes
        assert isinstance(change, Append)

    def test_twice_at_once(self, state: Memory) -> None:
        """Two processes do the same briefing at the same instant: one line, as one would have left."""
        first = state.call("rec add", site="s", **FLAGS)
        after = state.raw(FILE)
        second = state.call("rec add", site="s", **FLAGS)

        assert (first["status"], second["status"]) == ("created", "duplicate")
        assert (second["id"], second["since"]) == (first["id"], "2026-09-18")
        assert state.raw(FILE) == after

    def test_a_repeat_on_a_later_day(self, state: Memory) -> None:
        state.call("rec add", site="s", **FLAGS)
        state.later(days=7)

        suppressed = state.call("rec add", site="s", **FLAGS | {"impact": Decimal(299)})
        grown = state.call("rec add", site="s", **FLAGS | {"impact": Decimal(300)})
        again = state.call("rec add", site="s", **FLAGS | {"impact": Decimal(300)})

        assert (suppressed["status"], suppressed["since"]) == ("suppressed", "2026-09-18")
        assert (grown["status"], grown["since"]) == ("escalate", "2026-09-18")
        # It is not raised again for the same growth.
        assert again["status"] == "suppressed"
        (line,) = state.records(FILE)
        assert (line["impact_eur_month"], line["escalated_on"]) == (300, "2026-09-25")
        assert state.call("rec add", site="s", **FLAGS | {"impact": Decimal(450)})["status"] == "escalate"

    def test_another_currency(self, state: Memory) -> None:
        state.call("rec add", site="s", **FLAGS)
        state.later(days=1)

        reply = state.call("rec add", site="s", **FLAGS | {"impact": Decimal(900), "currency": "USD"})

        assert reply["status"] == "suppressed"
        assert [row["field"] for row in reply["warnings"]] == ["currency"]

    @pytest.mark.parametrize("status", ["verified", "failed"])
    def test_a_closed_entry_hides_nothing(self, state: Memory, status: str) -> None:
        state.put(FILE, entry(status=status) + "\n")

        assert state.call("rec add", site="s", **FLAGS)["status"] == "created"

    def test_a_discarded_entry_hides(self, state: Memory) -> None:
        state.put(FILE, entry(status="discarded", closed_on="2026-09-18") + "\n")

        reply = state.call("rec add", site="s", **FLAGS | {"impact": Decimal(10**6)})
        assert (reply["status"], reply["until"]) == ("suppressed", "2026-12-17")
        assert state.call("rec add", site="s", **FLAGS | {"subject": "winter-sale"})["status"] == "created"
        assert state.call("rec add", site="s", **FLAGS | {"pattern": "bots"})["status"] == "created"

    @pytest.mark.parametrize("subject", ["Summer Sale ES", "summer_sale_es", " SUMMER-SALE-ES ", "ｓummer sale es"])
    def test_one_finding_in_several_spellings(self, state: Memory, subject: str) -> None:
        state.call("rec add", site="s", **FLAGS)

        assert state.call("rec add", site="s", **FLAGS | {"subject": subject})["status"] == "duplicate"

    def test_ids(self, state: Memory) -> None:
        """Two findings whose slugs are one, names that no slug can hold, a name of one's own."""
        one = state.call("rec add", site="s", **FLAGS | {"pattern": "a-b", "subject": "c"})["id"]
        two = state.call("rec add", site="s", **FLAGS | {"pattern": "a", "subject": "b c"})["id"]
        assert (one, two) == ("2026-09-18-a-b-c", "2026-09-18-a-b-c-2")

        ids = [
            state.call("rec add", site="s", **FLAGS | {"subject": text})["id"]
            for text in ("夏", "冬", "+++", "x" * 300)
        ]
        assert len(set(ids)) == 4
        assert all(ledger.is_id(name) for name in ids)

        mine = FLAGS | {"subject": "own", "id": "my-own-1"}
        assert state.call("rec add", site="s", **mine)["id"] == "my-own-1"
        assert state.call("rec add", site="s", **mine | {"subject": "other"})["status"] == "duplicate"
        assert meant(refused(state, "rec add", **mine | {"id": "My Own"})) == {"id": "my-own"}

    def test_the_currency_is_the_profiles(self, state: Memory) -> None:
        """Incident 14: everything was said in EUR, whatever the site reports in. Never by default."""
        flags = {name: value for name, value in FLAGS.items() if name != "currency"}
        unknown = state.call("rec add", site="s", **flags)
        assert [row["field"] for row in unknown["warnings"]] == ["currency"]

        state.put("s/profile.json", {"site_id": "s", "currency": "NOK"})
        state.call("rec add", site="s", **flags | {"subject": "x"})
        state.put("s/profile.json", {"site_id": "s", "currency": "EUR"})
        state.call("rec add", site="s", **flags | {"subject": "y"})
        state.put("s/profile.json", {"site_id": "s", "currency": "euro"})
        state.call("rec add", site="s", **flags | {"subject": "z"})

        amounts = ("impact_eur_month", "impact_month", "currency")
        assert [{name: row[name] for name in amounts if name in row} for row in state.records(FILE)] == [
            {"impact_month": 200},
            {"impact_month": 200, "currency": "NOK"},
            {"impact_eur_month": 200},
            {"impact_month": 200},
        ]

    def test_another_currency_than_the_sites_is_told(self, state: Memory) -> None:
        state.put("s/profile.json", {"site_id": "s", "currency": "USD"})

        reply = state.call("rec add", site="s", **FLAGS)

        assert [row["field"] for row in reply["warnings"]] == ["currency"]
        assert "USD" in reply["warnings"][0]["problem"]

    @pytest.mark.parametrize(
        ("wait", "vertical", "warned"),
        [("14d", "ecommerce", False), ("4w", "ecommerce", False), ("13d", "hotels", True), ("60d", "hotels", False),
         ("60d", "ecommerce", True)],
    )  # fmt: skip
    def test_the_window(self, state: Memory, wait: str, vertical: str, warned: bool) -> None:
        state.put("s/profile.json", {"site_id": "s", "vertical": vertical})

        reply = state.call("rec add", site="s", **FLAGS | {"verify_in": wait})

        assert [row["field"] for row in reply["warnings"]] == ["verify_on"] * warned

    def test_the_day_is_the_sites(self, state: Memory) -> None:
        state.put("s/profile.json", {"site_id": "s", "timezone": "Pacific/Auckland"})
        state.later(hours=6)

        assert state.call("rec add", site="s", **FLAGS)["entry"]["date"] == "2026-09-19"

    def test_flags_and_data(self, state: Memory) -> None:
        for flags in ({"impact": Decimal(1)}, {"baseline": Decimal(0)}, {"notes": ""}):
            with pytest.raises(Usage, match=f"--{next(iter(flags))}"):
                state.call("rec add", site="s", data=RECORD, **flags)
        with pytest.raises(Usage, match="verify_on"):
            state.call("rec add", site="s", data=RECORD, verify_in="28d")
        with pytest.raises(Usage, match="number and"):
            state.call("rec add", site="s", **FLAGS | {"verify_in": "soon"})
        rest = {name: value for name, value in RECORD.items() if name != "verify_on"}
        assert state.call("rec add", site="s", data=rest, verify_in="2w")["entry"]["verify_on"] == "2026-09-21"


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in RECORD.items() if name not in names}


MISTAKES: list[tuple[dict[str, Any], dict[str, str]]] = [
    (without("metric", "baseline", "target"), {"metric": "", "baseline": "", "target": ""}),
    (without("verify_on"), {"verify_on": "--verify-in 28d"}),
    (without("skill"), {"skill": "--skill or STATED_SKILL"}),
    (without("impact_eur_month"), {"impact_eur_month": "--impact"}),
    (without("impact_eur_month") | {"impact": 5}, {"impact": "impact_eur_month", "impact_eur_month": "--impact"}),
    (RECORD | {"impact_month": 5}, {"impact_month": ""}),
    (RECORD | {"currency": "USD"}, {"currency": "impact_month"}),
    (without("impact_eur_month") | {"impact_month": 5, "currency": "euro"}, {"currency": ""}),
    (RECORD | {"impact_eur_month": "1840"}, {"impact_eur_month": ""}),
    (RECORD | {"target": Decimal("0.0080")}, {"target": ""}),
    (RECORD | {"baseline": "0.8%"}, {"baseline": ""}),
    (RECORD | {"baseline": True}, {"baseline": ""}),
    (RECORD | {"status": "verified"}, {"status": "rec settle, rec discard"}),
    (RECORD | {"measured": 0.02}, {"measured": ""}),
    (RECORD | {"extended_on": "2026-09-18", "closed_on": None}, {"extended_on": "", "closed_on": ""}),
    (RECORD | {"date": "2026-09-20"}, {"date": ""}),
    (RECORD | {"date": "20 September"}, {"date": ""}),
    (RECORD | {"verify_on": "2026-09-07"}, {"verify_on": ""}),
    (RECORD | {"verify_on": "in 4 weeks"}, {"verify_on": ""}),
    # Incident 49: failures arrive as ordinary text.
    (RECORD | {"evidence": "Error: site_id is required"}, {"evidence": ""}),
    (RECORD | {"subject": "Access denied"}, {"subject": ""}),
    (RECORD | {"subject": "asked by ana@example.com"}, {"subject": ""}),
    (RECORD | {"notes": "two\nlines"}, {"notes": ""}),
    (RECORD | {"notes": "x" * 301}, {"notes": ""}),
    (RECORD | {"campaign": "x"}, {"campaign": "subject"}),
    (RECORD | {"Evidence": "x"}, {"Evidence": "evidence"}),
    (RECORD | {"priority": 1}, {"priority": ""}),
    (RECORD | {"id": ""}, {"id": ""}),
    (RECORD | {"id": 5}, {"id": ""}),
]


@pytest.mark.parametrize(("record", "expected"), MISTAKES)
def test_mistakes(state: Memory, record: dict[str, Any], expected: dict[str, str]) -> None:
    """Every one is named, with the field that was meant; nothing is written and nothing personal repeated."""
    error = refused(state, "rec add", data=record)

    assert {name: text for name, text in meant(error).items() if name != "id" or "id" in expected} == expected
    assert "ana@" not in str(error.payload())


def test_two_skills(state: Memory) -> None:
    assert meant(refused(state, "rec add", data=RECORD, skill="core")) == {"skill": ""}
    state.env["STATED_SKILL"] = "core"
    assert state.call("rec add", site="s", data=RECORD)["entry"]["skill"] == "opportunity-scan"
    flags = {name: value for name, value in FLAGS.items() if name != "skill"}
    assert state.call("rec add", site="s", **flags | {"subject": "x"})["entry"]["skill"] == "core"


# rec due, rec list, rec record, rec check -----------------------------------------------------------------------------


class TestReading:
    def test_nothing(self, state: Memory) -> None:
        for name in ("rec due", "rec list", "rec record"):
            for site in ("s", None):
                reply = state.call(name, site=site)
                assert (reply["entries"], reply["rev"], reply["problems"]) == ([], None, [])
                assert draw_entries(reply, 80) == "no recommendations"
        check = {"pattern": "a", "subject": "b", "impact": Decimal(1)}
        assert state.call("rec check", **check)["decision"] == "new"

    def test_due(self, state: Memory) -> None:
        lines = [
            entry(id="later", verify_on="2026-09-19"),
            entry(id="today", verify_on="2026-09-18", extended_on="2026-09-04"),
            entry(id="old", verify_on="2026-09-01"),
            entry(id="closed", verify_on="2026-09-01", status="failed"),
        ]
        state.put(FILE, "\n".join(lines) + "\n")

        reply = state.call("rec due")

        told = [(row["id"], row["days_overdue"], row["extended"]) for row in reply["entries"]]
        assert told == [("old", 17, False), ("today", 0, True)]
        assert reply["entries"][0]["evidence"] == RECORD["evidence"]
        limited = state.call("rec due", limit=1)
        assert ([row["id"] for row in limited["entries"]], limited["due"]) == (["old"], 2)
        assert "old" in draw_entries(reply, 100)

    def test_due_by_the_sites_own_day(self, state: Memory) -> None:
        state.put(FILE, entry(verify_on="2026-09-19") + "\n")
        assert state.call("rec due", site="s")["due"] == 0
        state.put("s/profile.json", {"site_id": "s", "timezone": "Pacific/Kiritimati"})
        assert state.call("rec due", site="s")["due"] == 1

    def test_what_cannot_be_read_is_told(self, state: Memory) -> None:
        state.put(
            FILE,
            f'{due()}\n{{"id": "b", \n{entry(id="c", verify_on="soon")}\n{entry(id="d", status="closed")}\n{due()}\n',
        )

        reply = state.call("rec due")

        assert reply["bad_lines"] == 1
        assert [row["line"] for row in reply["problems"]] == [2, 3, 4, 5]
        assert "line 3" in draw_entries(reply, 80)

    def test_list(self, state: Memory) -> None:
        """Entries of newer releases and unknown fields are given as they are."""
        state.put(FILE, f"{CONTRACT}\n{entry(id='b', status='failed', berths=12)}\n")

        assert [row["id"] for row in state.call("rec list")["entries"]] == [RECORD["id"], "b"]
        assert state.call("rec list", status="failed")["entries"][0]["berths"] == 12

    def test_the_track_record(self, state: Memory) -> None:
        """Incident 53: 100 EUR and 100 USD are two totals."""
        lines = [
            entry(id="a", status="verified", measured=Raw("0.0220"), impact_eur_month=Raw("100.10")),
            entry(id="b", status="verified").replace('"impact_eur_month":1840', '"impact_month":100,"currency":"USD"'),
            entry(id="c", status="verified", impact_eur_month=Raw("0.2")),
            entry(id="d"),
            entry(id="e", status="discarded"),
            entry(id="f", status="failed"),
        ]
        state.put(FILE, "\n".join(lines) + "\n")

        reply = state.call("rec record")

        assert reply["counts"] == {"verified": 3, "failed": 1, "open": 1, "discarded": 1}
        assert [(row["currency"], str(row["impact_month"])) for row in reply["verified_impact"]] == [
            ("EUR", "100.3"),
            ("USD", "100"),
        ]
        assert [row["id"] for row in reply["entries"]] == ["a", "b", "c", "f", "d", "e"]
        first = reply["entries"][0]
        assert [str(first[name]) for name in ("baseline", "target", "measured")] == ["0.008", "0.021", "0.0220"]
        assert "evidence" not in first
        assert "100.3 EUR" in draw_entries(reply, 80)

    def test_check_changes_nothing(self, state: Memory) -> None:
        state.put(FILE, CONTRACT + "\n")
        finding = {"pattern": "Leaky Campaign", "subject": "summer-sale-es"}

        def decision(impact: int, currency: str | None = "EUR") -> Any:
            return state.call("rec check", site="s", **finding, impact=Decimal(impact), currency=currency)["decision"]

        assert [decision(2759), decision(2760), decision(2760, "USD"), decision(2760, None)] == [
            "suppressed", "escalate", "incomparable", "incomparable",
        ]  # fmt: skip
        state.put("s/profile.json", {"site_id": "s", "currency": "EUR"})
        assert decision(2760, None) == "escalate"
        assert "currency" in meant(refused(state, "rec check", **finding, impact=Decimal(1), currency="Euro"))

    def test_an_open_entry_decides_before_a_discarded_one(self, state: Memory) -> None:
        state.put(FILE, f"{CONTRACT}\n{entry(id='b', status='discarded', closed_on='2026-09-18')}\n")
        finding = {"pattern": "leaky-campaign", "subject": "summer-sale-es", "currency": "EUR"}

        assert state.call("rec check", **finding, impact=Decimal(2760))["decision"] == "escalate"


# rec settle -----------------------------------------------------------------------------------------------------------


class TestSettle:
    def test_only_its_line_changes(self, state: Memory) -> None:
        """Its own bytes, and of these only what is new: unknown fields, spelling, line endings and bad lines stay."""
        before = b'\xef\xbb\xbf{ "id" : "x" , "n":1.10 }\r\n\r\nnot json\r\n'
        odd = due(target=Raw("0.0210"), berths=Raw("123456789012345678901234567890")).replace('"id":', '"id" : ')
        after = b"\r\n" + CONTRACT.encode() + b"\r\n{torn"
        state.put(FILE, before + odd.encode() + after)

        outcome = state.outcome("rec settle", id="a", measured=Decimal("0.030"))
        (change,) = outcome.changes
        assert isinstance(change, EditLine)
        assert (change.number, change.old) == (4, odd.encode())
        state.call("rec settle", id="a", measured=Decimal("0.030"))

        settled = odd.replace('"status":"open"', '"status":"verified"')[:-1]
        settled += ',"measured":0.030,"closed_on":"2026-09-18"}'
        assert state.raw(FILE) == before + settled.encode() + after

    def test_not_due(self, state: Memory) -> None:
        state.put(FILE, entry(id="a", verify_on="2026-09-19") + "\n")

        reply = state.call("rec settle", id="a", measured=Decimal(1))

        assert (reply["outcome"], reply["status"], reply["progress"]) == ("not_due", "open", None)
        assert state.outcome("rec settle", id="a", measured=Decimal(1)).changes == ()

    def test_twice_at_once(self, state: Memory) -> None:
        """Each is settled once: the second process is told what came of it."""
        for measured, first, second in (("0.03", "verified", "unchanged"), ("0.015", "extended", "not_due")):
            state.put(FILE, due() + "\n")
            assert state.call("rec settle", id="a", measured=Decimal(measured))["outcome"] == first
            after = state.raw(FILE)
            reply = state.call("rec settle", id="a", measured=Decimal(measured))
            assert reply["outcome"] == second
            assert state.raw(FILE) == after

    def test_two_extensions(self, state: Memory) -> None:
        """The second result in between is a failure, and the entry itself remembers the first."""
        state.put(FILE, entry(id="a", verify_on="2026-09-10") + "\n")

        first = state.call("rec settle", id="a", measured=Decimal("0.015"))
        assert (first["outcome"], first["verify_on"]) == ("extended", "2026-10-02")
        state.later(days=13)
        assert state.call("rec settle", id="a", measured=Decimal("0.015"))["outcome"] == "not_due"
        state.later(days=1)
        assert state.call("rec due")["entries"][0]["extended"] is True
        assert state.call("rec settle", id="a", measured=Decimal("0.015"))["outcome"] == "failed"

    def test_it_could_not_be_measured(self, state: Memory) -> None:
        """A refused call is no measurement: the entry stays due."""
        state.put(FILE, due() + "\n")

        reply = state.call("rec settle", id="a", unavailable="403 from the backend")

        assert (reply["outcome"], reply["status"]) == ("unchanged", "open")
        assert state.call("rec due")["due"] == 1
        for both in ({}, {"measured": Decimal(1), "unavailable": "x"}):
            with pytest.raises(Usage, match="--unavailable"):
                state.call("rec settle", id="a", **both)

    def test_an_outside_edit_between_due_and_settle(self, state: Memory) -> None:
        """A person corrected the target: the entry is judged as it now stands, and the correction stays."""
        state.put(FILE, due() + "\n")
        assert state.call("rec due")["entries"][0]["target"] == Decimal("0.021")
        state.put(FILE, due(target=Raw("0.10"), action="Pause it") + "\n")

        reply = state.call("rec settle", id="a", measured=Decimal("0.022"))

        assert reply["outcome"] == "failed"
        assert state.records(FILE)[0]["action"] == "Pause it"

    @pytest.mark.parametrize("status", ["verified", "failed", "discarded"])
    def test_a_person_closed_it_in_between(self, state: Memory, status: str) -> None:
        state.put(FILE, due(status=status) + "\n")

        reply = state.call("rec settle", id="a", measured=Decimal("0.03"))

        assert (reply["outcome"], reply["status"]) == ("unchanged", status)
        assert state.raw(FILE).decode() == due(status=status) + "\n"

    def test_it_was_removed_in_between(self, state: Memory) -> None:
        state.put(FILE, CONTRACT + "\n")

        error = refused(state, "rec settle", id="a", measured=Decimal("0.03"))

        assert "no entry" in error.reason
        assert "removed by hand" in error.hint

    def test_its_line_was_broken_in_between(self, state: Memory) -> None:
        state.put(FILE, f"{CONTRACT}\n{due(action='x')[:-1]},}}\n")

        error = refused(state, "rec settle", id="a", measured=Decimal("0.03"))

        assert error.data["line"] == 2
        assert "line 2" in error.reason
        assert "by hand" in error.hint

    def test_it_stands_there_twice(self, state: Memory) -> None:
        """As a merge of two copies leaves it."""
        state.put(FILE, f"{due()}\n{CONTRACT}\n{due()}\n")

        assert refused(state, "rec settle", id="a", measured=Decimal("0.03")).data["lines"] == [1, 3]

    @pytest.mark.parametrize(
        ("changed", "field"),
        [
            ({"target": Raw("0.0080")}, "target"),
            ({"target": "2%"}, "target"),
            ({"baseline": None}, "baseline"),
            ({"verify_on": "soon"}, "verify_on"),
            ({"status": "closed"}, "status"),
        ],
    )
    def test_what_nobody_can_judge(self, state: Memory, changed: dict[str, Any], field: str) -> None:
        state.put(FILE, entry(**{"id": "a", "verify_on": "2026-09-18"} | changed) + "\n")

        error = refused(state, "rec settle", id="a", measured=Decimal("0.03"))

        assert field in meant(error)
        assert error.where.endswith("line 1")

    def test_a_key_twice(self, state: Memory) -> None:
        state.put(FILE, due()[:-1] + ',"notes":"a","notes":"b"}\n')

        assert "twice" in refused(state, "rec settle", id="a", measured=Decimal("0.03")).reason


# rec escalate, rec discard --------------------------------------------------------------------------------------------


class TestEscalate:
    def test_it_is_recorded_on_the_entry(self, state: Memory) -> None:
        state.put(FILE, CONTRACT + "\n")

        reply = state.call("rec escalate", id=RECORD["id"], impact=Decimal("2760.50"))

        assert state.raw(FILE).decode() == CONTRACT.replace("1840", "2760.50")[:-1] + ',"escalated_on":"2026-09-18"}\n'
        assert reply["entry"]["escalated_on"] == "2026-09-18"
        again = state.call("rec escalate", id=RECORD["id"], impact=Decimal("2760.5"))
        assert again["entry"] == reply["entry"]
        assert state.writes == 1

    def test_nothing_is_renamed(self, state: Memory) -> None:
        """A newer release's EUR entry keeps its own names."""
        newer = CONTRACT.replace('"impact_eur_month":1840', '"impact_month":1840,"currency":"EUR"')
        state.put(FILE, newer.replace('"EUR"', '"NOK"') + "\n" + newer.replace("2026-09-07-leaky", "b") + "\n")

        for name in (RECORD["id"], "b-summer-sale-es"):
            assert "impact_eur_month" not in state.call("rec escalate", id=name, impact=Decimal(9000))["entry"]

    @pytest.mark.parametrize(
        ("line", "params", "field"),
        [
            (CONTRACT, {"impact": 2759}, "impact"),
            (CONTRACT, {"impact": 9000, "currency": "USD"}, "currency"),
            (CONTRACT, {"impact": 9000, "currency": "usd"}, "currency"),
            (CONTRACT.replace("impact_eur_month", "impact_month"), {"impact": 9000}, "currency"),
            (entry(status="failed"), {"impact": 9000}, "status"),
        ],
    )
    def test_refused(self, state: Memory, line: str, params: dict[str, Any], field: str) -> None:
        state.put(FILE, line + "\n")
        params["impact"] = Decimal(params["impact"])

        assert field in meant(refused(state, "rec escalate", id=RECORD["id"], **params))

    def test_in_the_profiles_currency(self, state: Memory) -> None:
        state.put(FILE, CONTRACT + "\n")
        state.put("s/profile.json", {"site_id": "s", "currency": "USD"})

        assert "currency" in meant(refused(state, "rec escalate", id=RECORD["id"], impact=Decimal(9000)))


class TestDiscard:
    def test_it_hides_the_finding(self, state: Memory) -> None:
        state.put(FILE, entry(notes="asked twice") + "\n")

        reply = state.call("rec discard", id=RECORD["id"], why="the campaign has ended")

        assert reply["until"] == "2026-12-17"
        (line,) = state.records(FILE)
        assert (line["status"], line["closed_on"]) == ("discarded", "2026-09-18")
        assert line["notes"] == "asked twice; the campaign has ended"
        again = state.call("rec discard", id=RECORD["id"], why="once more")
        assert (again["status"], state.records(FILE)) == ("discarded", [line])

    @pytest.mark.parametrize("why", ["x" * 301, "two\nlines", "told by ana@example.com"])
    def test_the_reason_is_a_note(self, state: Memory, why: str) -> None:
        state.put(FILE, CONTRACT + "\n")

        error = refused(state, "rec discard", id=RECORD["id"], why=why)

        assert list(meant(error)) == ["notes"]
        assert "ana@" not in str(error.payload())

    def test_a_closed_one(self, state: Memory) -> None:
        state.put(FILE, entry(status="verified") + "\n")

        assert "status" in meant(refused(state, "rec discard", id=RECORD["id"], why="x"))

    def test_an_unknown_one(self, state: Memory) -> None:
        assert "no entry" in refused(state, "rec discard", id="", why="x").reason


def test_names() -> None:
    day = date(2026, 9, 7)
    assert ledger.id_of(day, "leaky-campaign", "Summer Sale (ES)") == "2026-09-07-leaky-campaign-summer-sale-es"
    assert ledger.id_of(day, "Café", "x_y") == "2026-09-07-cafe-x-y"
    assert ledger.slug("ærø") != ledger.slug("r")
