"""`profile.json`: freshness, `profile get|put|unset`, `offer`. Incidents are numbered as in the format's own list."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from stated.domain import Outcome, Refused
from stated.domains.seal.profile import draw_change, draw_get, freshness

if TYPE_CHECKING:
    from tests.domains.seal.conftest import Memory

CONTRACT: dict[str, Any] = {
    "site_id": "example-com",
    "account_id": "refused",
    "site_name": "example.com",
    "timezone": "Europe/Madrid",
    "currency": "EUR",
    "vertical": "ecommerce",
    "events": {
        "view": "product_view",
        "add_to_cart": "add_to_cart",
        "checkout": "start_checkout",
        "purchase": "purchase",
    },
    "product_identifier": {"key": "sku", "table": "conversion_items"},
    "agent_analytics_enabled": False,
    "first_data_date": "2025-11-02",
    "discovery_cached_at": "2026-09-17",
    "scheduling_offered": {"monday_briefing": True, "cart_watchdog": False},
}
NEWER: dict[str, Any] = {
    "site_id": "fjord-boats",
    "site_name": "fjordboats.example",
    "connector": "remote",
    "timezone": "Europe/Oslo",
    "currency": "NOK",
    "vertical": "ecommerce",
    "events": {"view": "boat_view", "purchase": "deposit_paid"},
    "product_identifier": {"key": "hull_no", "table": "both"},
    "thresholds": {"min_entrances": 500},
    "targets": {"revenue": 90000, "month": "2026-10"},
    "discovery_cached_at": "2026-09-18",
    "scheduling_offered": {"monday_briefing": True},
    "extra": {"berths": 12},
}


def refused(state: Memory, name: str, **params: Any) -> Refused:
    """The refusal of a call that changed no byte."""
    before = dict(state.files)
    with pytest.raises(Refused) as caught:
        state.call(name, **params)
    assert state.files == before
    assert state.root not in caught.value.line()
    return caught.value


def rows(error: Refused) -> dict[str, str]:
    """field → what was meant."""
    return {row["field"]: row["meant"] for row in error.data["problems"]}


# Freshness -----------------------------------------------------------------------------------------------------------

TODAY = date(2026, 9, 18)


@pytest.mark.parametrize(
    ("cached", "state", "age"),
    [
        ("2026-09-18", "fresh", 0),
        ("2026-09-11", "fresh", 7),
        ("2026-09-10", "stale", 8),
        ("2024-01-01", "stale", 991),
        ("2026-09-19", "undated", None),
        ("2026-13-40", "undated", None),
        ("2026-09-18T08:00:00Z", "undated", None),
        ("", "undated", None),
        (20260918, "undated", None),
        (None, "undated", None),
    ],
)
def test_freshness(cached: Any, state: str, age: int | None) -> None:
    seen = freshness({"discovery_cached_at": cached}, TODAY)

    assert (seen.state, seen.age_days) == (state, age)
    assert bool(seen.refresh) is (state != "fresh")


def test_freshness_without_a_date() -> None:
    """Incident 9: never fresh."""
    assert freshness({}, TODAY).state == "undated"


@pytest.mark.parametrize(
    ("own", "state", "refresh"),
    [
        ({}, "stale", ["site_name", "timezone", "currency", "events", "product_identifier"]),
        ({"refreshed": {"events": "2026-09-18"}}, "stale", ["site_name", "timezone", "currency", "product_identifier"]),
        ({"refreshed": {"events": "2026-09-11"}}, "stale", ["site_name", "timezone", "currency", "product_identifier"]),
        ({"refreshed": {"events": "2026-09-10"}}, "stale",
         ["site_name", "timezone", "currency", "events", "product_identifier"]),
        ({"refreshed": {"events": "2026-09-19"}}, "stale",
         ["site_name", "timezone", "currency", "events", "product_identifier"]),
        ({"refreshed": "nonsense"}, "stale", ["site_name", "timezone", "currency", "events", "product_identifier"]),
    ],
)  # fmt: skip
def test_values_refreshed_alone(own: dict[str, Any], state: str, refresh: list[str]) -> None:
    seen = freshness({"discovery_cached_at": "2026-09-01", "extra": {"stated": own}}, TODAY)

    assert (seen.state, list(seen.refresh)) == (state, refresh)


@pytest.mark.parametrize(("contradicted", "state"), [("2026-09-17", "stale"), ("2026-09-16", "fresh"), ("x", "fresh")])
def test_a_contradiction_makes_a_young_profile_stale(contradicted: str, state: str) -> None:
    """One of the day of discovery may have come after it."""
    seen = freshness({"discovery_cached_at": "2026-09-17", "extra": {"stated": {"contradicted": contradicted}}}, TODAY)

    assert seen.state == state


def test_the_day_is_the_sites(state: Memory) -> None:
    state.now = datetime(2026, 9, 18, 23, 30, tzinfo=UTC)
    state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-11", "timezone": "Pacific/Auckland"})
    assert state.call("profile get")["state"] == "stale"

    state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-11", "timezone": "+02:00"})
    assert state.call("profile get")["state"] == "fresh"


# profile get ---------------------------------------------------------------------------------------------------------


class TestGet:
    def test_absent(self, state: Memory) -> None:
        """Incident 3: no default is ever made up."""
        reply = state.call("profile get", site="example-com", need=["product_identifier"])

        assert reply == {
            "state": "absent",
            "site": "example-com",
            "age_days": None,
            "profile": None,
            "missing": ["product_identifier"],
            "refresh": ["product_identifier"],
            "calls": ["list_property_keys"],
            "ownership": "unchecked",
            "warnings": [],
            "untrusted": [],
            "rev": None,
        }

    @pytest.mark.parametrize("profile", [CONTRACT, NEWER])
    def test_fresh(self, state: Memory, profile: dict[str, Any]) -> None:
        """The contract's own example and a newer release's are fine as they are."""
        state.put(f"{profile['site_id']}/profile.json", profile)

        reply = state.call("profile get", need=["currency", "events.purchase"])

        assert reply["state"] == "fresh"
        assert reply["profile"] == profile
        assert (reply["missing"], reply["refresh"], reply["calls"], reply["warnings"]) == ([], [], [], [])
        assert reply["rev"] is not None

    def test_stale(self, state: Memory) -> None:
        """It is given all the same."""
        state.put("example-com/profile.json", CONTRACT | {"discovery_cached_at": "2026-09-07"})

        reply = state.call("profile get")

        assert (reply["state"], reply["age_days"]) == ("stale", 11)
        assert reply["profile"]["currency"] == "EUR"
        assert reply["calls"] == ["list_sites", "list_microconversion_types", "list_property_keys"]
        assert state.call("profile get", need=["events.view"])["calls"] == ["list_microconversion_types"]

    def test_needed_and_missing(self, state: Memory) -> None:
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-18", "product_identifier": None})

        reply = state.call("profile get", need=["product_identifier", "events.view", "targets", "events.view"])

        assert reply["missing"] == ["events.view", "targets"]
        assert reply["calls"] == ["list_microconversion_types"]

    def test_notes_are_history(self, state: Memory) -> None:
        """Incident 19: an old note was taken for a finding of today."""
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-18", "notes": "bots unchecked"})

        reply = state.call("profile get")
        assert reply["notes"] == {"history": True}
        assert "bots" not in str(reply)

        asked = state.call("profile get", need=["notes"])
        assert asked["notes"] == {"history": True, "text": "bots unchecked"}
        assert asked["missing"] == []

    @pytest.mark.parametrize(
        ("content", "line"),
        [(b"", 1), (b'{\n  "site_id": "s",\n  oops', 3), (b"[]", 1), (b'"text"', 1), (b"\x00\x00", 1)],
    )
    def test_corrupt(self, state: Memory, content: bytes, line: int) -> None:
        """Reading says what is wrong and where; no writer puts a default in its place."""
        state.put("s/profile.json", content)

        reply = state.call("profile get", need=["events"])
        assert reply["state"] == "corrupt"
        assert reply["corrupt"]["line"] == line
        assert (reply["profile"], reply["missing"]) == (None, ["events"])
        assert "problem" in draw_get(reply, 80)

        calls: list[tuple[str, dict[str, Any]]] = [
            ("profile put", {"why": "discovery", "data": {"currency": "EUR"}}),
            ("profile unset", {"field": "currency"}),
            ("offer", {"schedule": "monday_briefing"}),
        ]
        for name, params in calls:
            error = refused(state, name, **params)
            assert error.where == "s profile.json"
            assert error.data["line"] == line

    def test_duplicate_keys(self, state: Memory) -> None:
        state.put("s/profile.json", '{"site_id": "s", "currency": "EUR", "currency": "USD"}')

        assert "twice" in state.call("profile get")["warnings"][0]["problem"]
        assert "twice" in refused(state, "offer", schedule="monday_briefing").reason

    def test_an_old_release_as_it_is(self, state: Memory) -> None:
        """Incident 12: files of any release are read; what misleads is told."""
        state.put("s/profile.json", {"name": "S", "created_at": "2026-09-01", "account_id": "acct_9", "lens_tier": 2})

        reply = state.call("profile get")

        assert reply["state"] == "undated"
        assert reply["profile"]["name"] == "S"
        assert [row["field"] for row in reply["warnings"]] == ["account_id"]
        assert reply["untrusted"] == ["name", "created_at", "lens_tier"]

    def test_on_a_terminal(self, state: Memory) -> None:
        """Texts of strangers are escaped; nothing is cut."""
        state.put("s/profile.json", {"site_name": "a\u001b[31m\nb" + "x" * 200, "discovery_cached_at": "2026-09-17"})

        text = draw_get(state.call("profile get"), 200)

        assert "fresh, 1 day old" in text
        assert "a\\x1b[31m\n  b" + "x" * 200 in text


# profile put ---------------------------------------------------------------------------------------------------------


class TestPut:
    @pytest.mark.parametrize("why", ["discovery", "learned", "contradiction", "user"])
    def test_making_one(self, state: Memory, why: str) -> None:
        """Incident 9: the date is there whatever the caller forgot."""
        reply = state.call("profile put", site="s", why=why, data={"currency": "EUR"})

        assert state.get("s/profile.json") == {"site_id": "s", "currency": "EUR", "discovery_cached_at": "2026-09-18"}
        assert sorted(reply["changed"]) == ["currency", "discovery_cached_at", "site_id"]
        assert reply["profile"]["currency"] == "EUR"
        assert reply["warnings"] == []
        assert state.call("profile get")["state"] == "fresh"

    @pytest.mark.parametrize("profile", [CONTRACT, NEWER])
    def test_whole(self, state: Memory, profile: dict[str, Any]) -> None:
        """A caller that sends the whole record, as the contract shows it, is understood."""
        data = profile | {"discovery_cached_at": "2026-09-18"}

        state.call("profile put", site=profile["site_id"], why="discovery", data=data)

        assert state.get(f"{profile['site_id']}/profile.json") == data

    def test_only_what_is_given_changes(self, state: Memory) -> None:
        """Incident 11: stored {a, date}, put {b}: {a, b, date}."""
        state.put("s/profile.json", {"site_id": "s", "currency": "EUR", "discovery_cached_at": "2026-09-12"})
        state.call("profile put", why="user", data={"vertical": "hotels"})

        assert state.get("s/profile.json") == {
            "site_id": "s",
            "currency": "EUR",
            "discovery_cached_at": "2026-09-12",
            "vertical": "hotels",
        }

    def test_only_its_bytes_change(self, state: Memory) -> None:
        raw = (
            b'\xef\xbb\xbf{\r\n    "site_id": "s",\r\n    "berths": 123456789012345678901234567890,\r\n'
            b'    "timezone": "Europe/Madrid",\r\n    "thresholds": {"a": 1.10},\r\n'
            b'    "discovery_cached_at": "2026-09-01"\r\n}\r\n'
        )
        state.put("s/profile.json", raw)

        reply = state.call("profile put", why="user", data={"timezone": "Europe/Oslo"})

        assert reply["changed"] == ["timezone"]
        assert state.raw("s/profile.json") == raw.replace(b"Europe/Madrid", b"Europe/Oslo")

    def test_no_change_no_write(self, state: Memory) -> None:
        state.put("example-com/profile.json", CONTRACT)

        for data in ({}, {"currency": "EUR", "events": {"view": "product_view"}}, CONTRACT):
            outcome: Outcome = state.outcome("profile put", why="user", data=data)
            assert outcome.changes == ()
            assert outcome.result["changed"] == []
            assert "rev" in outcome.result

    def test_maps_are_joined(self, state: Memory) -> None:
        state.put("example-com/profile.json", CONTRACT)

        data = {"events": {"view": "item_view", "checkout": None, "lead": "lead_sent"}, "extra": {"berths": 12}}
        reply = state.call("profile put", why="user", data=data)

        assert reply["changed"] == ["events", "extra"]
        assert state.get("example-com/profile.json")["events"] == {
            "view": "item_view",
            "add_to_cart": "add_to_cart",
            "purchase": "purchase",
            "lead": "lead_sent",
        }
        assert state.get("example-com/profile.json")["extra"] == {"berths": 12}

    def test_other_objects_are_replaced(self, state: Memory) -> None:
        state.put("example-com/profile.json", CONTRACT)

        state.call("profile put", why="user", data={"product_identifier": {"key": "ean", "table": "both"}})
        assert state.get("example-com/profile.json")["product_identifier"] == {"key": "ean", "table": "both"}
        state.call("profile put", why="user", data={"product_identifier": None})
        assert state.get("example-com/profile.json")["product_identifier"] is None

    def test_true_is_not_one(self, state: Memory) -> None:
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-18", "extra": {"a": 1}})

        assert state.call("profile put", why="user", data={"extra": {"a": True}})["changed"] == ["extra"]

    def test_a_threshold_is_remembered(self, state: Memory) -> None:
        """Incident 15: it was forgotten with each session."""
        thresholds = {"min_entrances": 500, "r": Decimal("0.50")}
        state.call("profile put", site="s", why="user", data={"thresholds": thresholds})

        assert state.call("profile get")["profile"]["thresholds"] == thresholds
        assert b"0.50" in state.raw("s/profile.json")


class TestDates:
    def test_only_discovery_moves_the_date(self, state: Memory) -> None:
        for why, cached in [("user", "2026-09-01"), ("learned", "2026-09-01"), ("discovery", "2026-09-18")]:
            state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-01"})
            state.call("profile put", why=why, data={"currency": "EUR"})
            assert state.get("s/profile.json")["discovery_cached_at"] == cached

    def test_discovery_without_news(self, state: Memory) -> None:
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-01", "currency": "EUR"})

        assert state.call("profile put", why="discovery", data={"currency": "EUR"})["changed"] == [
            "discovery_cached_at"
        ]
        assert state.outcome("profile put", why="discovery", data={"currency": "EUR"}).changes == ()

    def test_a_value_learned_alone(self, state: Memory) -> None:
        """It is known to be new, also when it is the old one; the rest stays old."""
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-01", "currency": "EUR"})

        reply = state.call("profile put", why="learned", data={"currency": "EUR", "vertical": "saas"})

        assert reply["changed"] == ["vertical"]
        assert state.get("s/profile.json")["extra"] == {"stated": {"refreshed": {"currency": "2026-09-18"}}}
        seen = state.call("profile get")
        assert (seen["state"], seen["age_days"]) == ("stale", 17)
        assert seen["refresh"] == ["site_name", "timezone", "events", "product_identifier"]

        state.later(days=8)
        assert "currency" in state.call("profile get")["refresh"]
        state.call("profile put", why="discovery", data={"events": {"view": "v"}})
        assert "extra" not in state.get("s/profile.json")

    def test_nothing_to_date_on_the_first_day(self, state: Memory) -> None:
        state.call("profile put", site="s", why="discovery", data={"currency": "EUR"})
        state.call("profile put", why="learned", data={"events": {"view": "v"}})

        assert "extra" not in state.get("s/profile.json")

    def test_a_contradiction(self, state: Memory) -> None:
        """Tracking changed: what was found is new, all else is stale at once, whatever its age."""
        state.put("example-com/profile.json", CONTRACT | {"extra": {"mine": 1}})
        state.call("profile put", why="learned", data={"timezone": "Europe/Madrid"})
        state.call("profile put", why="contradiction", data={"events": {"purchase": "order_done"}})

        seen = state.call("profile get")
        assert seen["state"] == "stale"
        assert seen["refresh"] == ["site_name", "timezone", "currency", "product_identifier"]

        # The contradiction of the day on which the discovery was made counts, too; the next discovery settles it.
        state.call("profile put", why="discovery", data={"currency": "EUR"})
        assert state.call("profile get")["state"] == "fresh"
        assert state.get("example-com/profile.json")["extra"] == {"mine": 1}

    @pytest.mark.parametrize(
        ("given", "why", "good"),
        [
            ("2026-09-18", "discovery", True),
            ("2026-09-17", "discovery", True),  # today, in another zone
            ("2026-09-01", "discovery", True),  # the stored one, sent back
            ("2026-09-01", "user", True),
            ("2026-09-10", "discovery", False),
            ("2026-10-01", "discovery", False),
            ("2026-09-18", "learned", False),
            ("18.9.2026", "discovery", False),
        ],
    )
    def test_a_date_that_is_given(self, state: Memory, given: str, why: str, good: bool) -> None:
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-01"})
        data = {"currency": "EUR", "discovery_cached_at": given}

        if good:
            state.call("profile put", why=why, data=data)
            expected = "2026-09-18" if why == "discovery" else "2026-09-01"
            assert state.get("s/profile.json")["discovery_cached_at"] == expected
        else:
            assert "discovery_cached_at" in rows(refused(state, "profile put", why=why, data=data))

    @pytest.mark.parametrize("extra", [{"stated": {"refreshed": {"events": "2026-09-18"}}}, {"stated": None}])
    def test_the_daemons_own(self, state: Memory, extra: dict[str, Any]) -> None:
        own = {"stated": {"contradicted": "2026-09-10"}}
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-01", "extra": own})

        assert "extra.stated" in rows(refused(state, "profile put", why="user", data={"extra": extra}))
        state.call("profile put", why="user", data={"extra": own | {"a": 1}})
        assert state.get("s/profile.json")["extra"] == own | {"a": 1}


REFUSED: list[tuple[dict[str, Any], dict[str, str]]] = [
    # The names of real first runs.
    ({"name": "x"}, {"name": "site_name"}),
    ({"domain": "x", "event_names": ["a"]}, {"domain": "site_name", "event_names": "events"}),
    ({"discovered_at": "2026-09-18"}, {"discovered_at": "discovery_cached_at"}),
    ({"conversion_event": "buy"}, {"conversion_event": "events.purchase"}),
    ({"product_identifier_table": "both"}, {"product_identifier_table": "product_identifier.table"}),
    ({"business_type": "saas"}, {"business_type": "vertical"}),
    ({"siteName": "x"}, {"siteName": "site_name"}),
    ({"time_zone": "UTC"}, {"time_zone": "timezone"}),
    ({"schedules_offered": {}}, {"schedules_offered": "scheduling_offered"}),
    ({"lens_tier": 2}, {"lens_tier": "extra.lens_tier"}),
    # Values.
    ({"connector": "remote-oauth"}, {"connector": "remote"}),
    ({"account_id": "Same as site"}, {"account_id": "same-as-site"}),
    ({"account_id": "987"}, {"account_id": ""}),
    ({"vertical": "shop"}, {"vertical": ""}),
    ({"vertical": "e-commerce"}, {"vertical": "ecommerce"}),
    ({"currency": "euro"}, {"currency": ""}),
    ({"timezone": "CEST"}, {"timezone": ""}),
    ({"timezone": "+02:00"}, {"timezone": ""}),
    ({"timezone": "Europe/Nowhere"}, {"timezone": ""}),
    ({"timezone": "../../etc/passwd"}, {"timezone": ""}),
    ({"agent_analytics_enabled": "refused"}, {"agent_analytics_enabled": '"unknown"'}),
    ({"agent_analytics_enabled": 0}, {"agent_analytics_enabled": ""}),
    ({"events": ["view"]}, {"events": ""}),
    ({"events": {"view": ""}}, {"events.view": ""}),
    ({"events": {"view": 3}}, {"events.view": ""}),
    ({"product_identifier": "sku"}, {"product_identifier": ""}),
    ({"product_identifier": {"key": "sku"}}, {"product_identifier.table": ""}),
    ({"product_identifier": {"key": "sku", "table": "items"}}, {"product_identifier.table": ""}),
    (
        {"product_identifier": {"key": "sku", "table": "both", "score": 9}},
        {"product_identifier.score": ""},
    ),
    ({"thresholds": {"min_entrances": "500"}}, {"thresholds.min_entrances": ""}),
    ({"thresholds": {"min_entrances": True}}, {"thresholds.min_entrances": ""}),
    ({"targets": {"sales": 5}}, {"targets.sales": ""}),
    ({"targets": {"month": "2026-13"}}, {"targets.month": ""}),
    ({"scheduling_offered": {"monday_briefing": "yes"}}, {"scheduling_offered.monday_briefing": ""}),
    ({"first_data_date": "2025-11-31"}, {"first_data_date": ""}),
    ({"notes": "x" * 301}, {"notes": ""}),
    ({"notes": "two\nlines"}, {"notes": ""}),
    ({"site_id": "other"}, {"site_id": "--site"}),
    ({"site_id": "../x"}, {"site_id": ""}),
    ({"currency": None}, {"currency": "profile unset currency"}),
    # A failed call's answer is no fact.
    ({"site_name": "Error: site_id is required"}, {"site_name": ""}),
    ({"events": {"view": "Access denied for this account"}}, {"events.view": ""}),
    # Personal data.
    ({"extra": {"contact": "ana@example.com"}}, {"extra.contact": ""}),
    ({"extra": {"customers": [{"customer_id": 7}]}}, {"extra.customers[0].customer_id": ""}),
    ({"notes": "call +34 600 123 456"}, {"notes": ""}),
]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("data", "meant"), REFUSED)
def test_refused(state: Memory, data: dict[str, Any], meant: dict[str, str], stored: bool) -> None:
    """Each mistake is named with its field; what was given is not repeated; nothing is written."""
    if stored:
        state.put("s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-18"})

    error = refused(state, "profile put", site="s", why="discovery", data={"site_name": "fine", **data})

    assert rows(error) == meant
    assert error.where == "s profile.json"
    for field in meant:
        assert f"`{field}`" in error.line()
    assert "ana@" not in str(error.payload())


def test_all_mistakes_at_once(state: Memory) -> None:
    """Incident 13: twelve profiles, twelve shapes. Absent fields are fine."""
    error = refused(
        state,
        "profile put",
        site="s",
        why="discovery",
        data={
            "name": "x",
            "domain": "y",
            "event_names": [],
            "connector": "remote-oauth",
            "a1": 1,
            "b2": 2,
            "lens_tier": 3,
        },
    )

    assert rows(error) == {
        "name": "site_name",
        "domain": "site_name",
        "event_names": "events",
        "connector": "remote",
        "a1": "extra.a1",
        "b2": "extra.b2",
        "lens_tier": "extra.lens_tier",
    }
    assert "site_id" not in error.line()


def test_unknown_fields_that_are_there_already(state: Memory) -> None:
    """They survive every write, and may be set, but no new one is made."""
    state.put(
        "s/profile.json", {"site_id": "s", "discovery_cached_at": "2026-09-18", "lens_tier": 2, "connector": "old"}
    )

    reply = state.call("profile put", why="user", data={"currency": "EUR", "lens_tier": 3})

    assert state.get("s/profile.json")["lens_tier"] == 3
    assert [row["field"] for row in reply["warnings"]] == ["connector"]
    assert "warning" in draw_change(reply, 80)


def test_a_second_identifier(state: Memory) -> None:
    """Incident 17: `acct_9` goes where it misleads nobody."""
    reply = state.call("profile put", site="s", why="discovery", data={"account_id": "acct_9", "extra": {"a": 1}})

    assert "account_id" not in state.get("s/profile.json")
    assert state.get("s/profile.json")["extra"] == {"a": 1, "legacy_account_id": "acct_9"}
    assert [row["field"] for row in reply["warnings"]] == ["account_id"]


def test_anothers_profile(state: Memory) -> None:
    """A profile that names another site than its folder is read with a warning and never written."""
    state.put("s/profile.json", {"site_id": "other", "discovery_cached_at": "2026-09-18"})

    assert state.call("profile get")["warnings"][0]["field"] == "site_id"
    assert "site_id" in rows(refused(state, "profile put", why="user", data={"currency": "EUR"}))
    assert "site_id" in rows(refused(state, "offer", schedule="monday_briefing"))


def test_what_only_looks_personal_is_a_warning(state: Memory) -> None:
    reply = state.call("profile put", site="s", why="user", data={"extra": {"host": "192.168.1.10"}})

    assert [row["field"] for row in reply["warnings"]] == ["extra.host"]
    assert "192" not in str(reply["warnings"])


# profile unset -------------------------------------------------------------------------------------------------------


class TestUnset:
    @pytest.mark.parametrize("field", ["currency", "events", "events.checkout", "scheduling_offered.cart_watchdog"])
    def test_gone(self, state: Memory, field: str) -> None:
        state.put("example-com/profile.json", CONTRACT)

        reply = state.call("profile unset", field=field)

        assert reply["changed"] == [field]
        top, _, member = field.partition(".")
        left = state.get("example-com/profile.json")
        assert member not in left[top] if member else top not in left
        assert len(left) == len(CONTRACT) - (not member)

    @pytest.mark.parametrize("field", ["targets", "events.nothing", "currency.x", "nothing.at.all"])
    def test_nothing_to_remove(self, state: Memory, field: str) -> None:
        state.put("example-com/profile.json", CONTRACT)

        outcome = state.outcome("profile unset", field=field)

        assert (outcome.changes, outcome.result["changed"]) == ((), [])

    def test_no_profile(self, state: Memory) -> None:
        assert state.call("profile unset", site="s", field="currency")["profile"] is None
        assert state.files == {}

    @pytest.mark.parametrize("field", ["site_id", "discovery_cached_at", "extra.stated", "extra.stated.contradicted"])
    def test_what_a_profile_needs(self, state: Memory, field: str) -> None:
        state.put("example-com/profile.json", CONTRACT)

        assert field in rows(refused(state, "profile unset", field=field))

    def test_the_daemons_dates_stay(self, state: Memory) -> None:
        own = {"stated": {"contradicted": "2026-09-18"}}
        state.put("example-com/profile.json", CONTRACT | {"extra": {"a": 1} | own})

        state.call("profile unset", field="extra")

        assert state.get("example-com/profile.json")["extra"] == own


# offer ---------------------------------------------------------------------------------------------------------------


class TestOffer:
    def test_once(self, state: Memory) -> None:
        state.put("example-com/profile.json", CONTRACT)

        assert state.call("offer", schedule="monday_briefing")["first"] is False
        assert state.call("offer", schedule="cart_watchdog")["first"] is True
        assert state.call("offer", schedule="cart-watchdog")["first"] is False
        assert state.call("offer", schedule="usage-report")["first"] is True
        assert state.get("example-com/profile.json")["scheduling_offered"] == {
            "monday_briefing": True,
            "cart_watchdog": True,
            "usage_report": True,
        }
        assert state.writes == 2

    def test_without_a_profile(self, state: Memory) -> None:
        assert state.call("offer", site="s", schedule="monday_briefing")["first"] is True
        assert state.get("s/profile.json") == {
            "site_id": "s",
            "scheduling_offered": {"monday_briefing": True},
            "discovery_cached_at": "2026-09-18",
        }

    @pytest.mark.parametrize("schedule", ["", "a b", "a.b", "ana@example.com", "9", "é", "x" * 65])
    def test_no_name(self, state: Memory, schedule: str) -> None:
        refused(state, "offer", site="s", schedule=schedule)

    @pytest.mark.parametrize("offered", [[], {"monday_briefing": "yes"}, None])
    def test_a_broken_field(self, state: Memory, offered: Any) -> None:
        state.put("s/profile.json", {"site_id": "s", "scheduling_offered": offered})

        assert "scheduling_offered" in refused(state, "offer", schedule="monday_briefing").line()
