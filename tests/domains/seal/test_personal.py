"""The screen for personal data, both ways: what must be found, and what must not trip it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stated.domains.seal.personal import iban, luhn, screen

FOUND = [
    ("an e-mail address", "ana.garcia@example.com"),
    ("an e-mail address", "write to Ana <ana+shop@mail.example.co.uk>, please"),
    ("an e-mail address", "utm_content=ana%40example.com"),
    ("an e-mail address", "JOSÉ@EJEMPLO.ES"),
    ("an e-mail address", "ana＠example．com"),
    ("an e-mail address", "ana@exam\u200bple.com"),
    ("an e-mail address", "mailto:a@b.io"),
    ("a phone number", "+34 600 123 456"),
    ("a phone number", "+34600123456"),
    ("a phone number", "call +1 (555) 010-0199 now"),
    ("a phone number", "+44 (0)20 7946 0018"),
    ("a phone number", "tel:+49.30.901820"),
    ("a phone number", "+45 12 34 56 78"),
    ("a payment card number", "4111111111111111"),
    ("a payment card number", "card 4111 1111 1111 1111"),
    ("a payment card number", "5555-5555-5555-4444."),
    ("a payment card number", "3782 822463 10005"),
    ("a payment card number", "id_6011111111111117"),
    ("a bank account number (IBAN)", "ES9121000418450200051332"),
    ("a bank account number (IBAN)", "GB82 WEST 1234 5698 7654 32"),
    ("a bank account number (IBAN)", "no9386011117947"),
]


@pytest.mark.parametrize(("kind", "text"), FOUND)
@pytest.mark.parametrize("place", ["{}", "before {} after", "({})", "a;{};b"])
def test_found(kind: str, text: str, place: str) -> None:
    """Wherever it stands, and never repeated."""
    value = place.format(text)

    for nested, field in [(value, "f"), ({"a": [{"b": value}]}, "f.a[0].b")]:
        seen = screen(nested, "f")

        assert [hit.field for hit in seen.refused] == [field]
        assert kind in seen.refused[0].problem
        assert text not in str(seen)


def test_a_number_that_is_a_card() -> None:
    assert screen({"n": 4111111111111111}).refused[0].field == "n"
    assert screen({"n": 4111111111111112}).refused == ()


def test_a_key_that_is_an_address() -> None:
    """The message about a key cannot name the key."""
    seen = screen({"extra": {"ana@example.com": 1}})

    assert [hit.field for hit in seen.refused] == ["extra.(a key)"]


@pytest.mark.parametrize(
    "key",
    ["email", "E-Mail", "user_email", "phone", "phone_number", "customer_id", "customerId", "order_id", "user_id"],
)
def test_keys(key: str) -> None:
    """A key of this kind makes any value personal, at any depth; a description of a field fills it with nothing."""
    for value in ("x", 7, ["x"], {"value": "x"}):
        assert screen({"extra": {key: value}}).refused[0].field == f"extra.{key}"
        assert screen([{key: value}]).refused[0].field == f"[0].{key}"
    for nothing in (None, True, "", "string", {"type": "string", "required": True}):
        assert screen({"js_api": {"conversion": {key: nothing}}}).refused == ()


def test_names_of_events_are_no_keys() -> None:
    assert screen({"events": {"phone": "click_to_call"}}, names=frozenset(["events"])).refused == ()
    assert screen({"events": {"phone": "+34 600 123 456"}}, names=frozenset(["events"])).refused != ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("600 123 456", "phone"),
        ("(555) 010-0199", "phone"),
        ("555-010-0199", "phone"),
        ("020 7946 0018", "phone"),
        ("0034600123456", "phone"),
        ("612 34 56 78", "phone"),
        ("from 192.168.1.10", "IP"),
        ("http://203.0.113.7/", "IP"),
        ("2001:db8:0:1:1:1:1:1", "IP"),
    ],
)
def test_warned(text: str, says: str) -> None:
    seen = screen({"notes": text})

    assert seen.refused == ()
    assert [hit.field for hit in seen.warned] == ["notes"]
    assert says in seen.warned[0].problem
    assert text not in str(seen)


# False alarms --------------------------------------------------------------------------------------------------------

SEASONS = ["summer-sale", "Black Friday", "BF", "rebajas_verano", "cyber+monday", "Q4 push", "brand", "Ofertas -50%"]
MARKS = [
    "es",
    "2026",
    "2026-09-07",
    "07.09.2026",
    "v2",
    "v1.2.3",
    "4x4",
    "24/7",
    "24h",
    "9-5",
    "3x2",
    "+18",
    "ES_es",
    "2x1",
]
CAMPAIGNS = [
    f"{season}{joint}{mark}" for season, mark in itertools.product(SEASONS, MARKS) for joint in ("-", "|", " ")
]
DATES = [
    template.format(day=day)
    for day in range(1, 29, 3)
    for template in (
        "2026-09-{day:02}", "2026-09-{day:02}T08:00:12Z", "2026-09-{day:02} 2026-10-{day:02}", "{day:02}/09/2026",
        "{day:02}.09.2026", "{day:02}-09-2026 {day:02}-10-2026", "202609{day:02}", "202609{day:02}080012",
        "2026-09-{day:02}..2026-09-30", "202609{day:02}-202609{day:02}", "1757232{day:03}000", "1757232{day:03}",
    )
]  # fmt: skip
VERSIONS = [
    "1.2.3", "1.2.3.4", "10.15.7.1", "v120.0.6099.109", "Chrome/120.0.0.0", "Chrome/120.0.6099.224", "iOS 17.4.1",
    "2026.9.18", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "1.16.0-rc.1+20260907", "seal-copilot 1.15.1",
]  # fmt: skip
AMOUNTS = [
    "1840", "1,840", "1.840,50", "+1840", "+12.5%", "-0.3 pp", "+1,234,567", "+1.234.567 EUR", "+12 345 678",
    "12 345 678",
    "0.0080000000000001", "2,014 entrances, CR 0.8% vs channel avg 2.1%, 30d", "1 200 300,50", "999.999.999", "4.111",
    "100 000 000", "12345678901234567890", "0.4111111111111111", "1840 EUR/month", "13/15 calls", "10/10", "x1.5",
]  # fmt: skip
IDS = [
    "example-com", "fjord-boats", "acct_9", "site_0012345678", "G-4Q1V7D2X9Z", "UA-12345678-1", "GTM-ABC1234",
    "23850000000000000", "120210000000000000", "act_1234567890", "17253647582",
    "2026-09-07-leaky-campaign-summer-sale-es",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479", "0123456789ab", "9f86d081884c7d659a2feaa0c55ad015", "sim_01H8XGJWBWBAQ4Z1",
    "sku-4006381333931", "ISBN 978-3-16-148410-0", "EAN 4006381333931", "SKU:88-120-33", "B07XJ8C8F5", "hull_no",
    "1234-567-89", "Nike Air Max 97 42.5", "iPhone 15 Pro 256", "ES1234", "DE 2026 Q3 launch plan", "FR76 sale",
]  # fmt: skip
WORDS = [
    "google / cpc", "facebook.com / referral", "(direct) / (none)", "t.co", "@fjordboats", "medium.com/@fjord/boats",
    "logo@2x.png", "banner@3x.webp", "r@b", "me@home", "C++ std::vector", "at 08:00:12", "08:00-20:00",
    "mon 9:00, tue 10:30",
    "Europe/Madrid", "UTC+02:00", "GMT+2", "+02:00", "a+b+c", "zapatos+rojos+42", "running shoes +size 44",
    "room 101-102",
    "https://example.com/p/4006381333931?utm_source=x&utm_id=123456789012", "/checkout/step-2", "phone cases",
    "email",
    "newsletter_2026_09_07_a", "utm_medium=email", "order confirmation page", "customer journey", "call tracking",
    "bot stats empty", "40.4168,-3.7038", "40.416775, -3.703790", "#ff8800", "1920x1080", "1920 1080 300 250",
    "A/B 50/50",
    "aa:bb:cc:dd:ee:ff", "12:30:45:100", "10-12-14-16", "1-800-FLOWERS", "7 de 10", "2.014 de 30.000", "05-06-07 08",
]  # fmt: skip
ORDINARY = [*CAMPAIGNS, *DATES, *VERSIONS, *AMOUNTS, *IDS, *WORDS]


def test_no_false_alarms() -> None:
    """Neither refused nor warned, among several hundred values as they stand in real reports."""
    assert len(ORDINARY) > 400

    alarms = {text: found for text in ORDINARY if any(found := screen({"subject": text}))}

    assert alarms == {}


def test_numbers_are_no_alarm() -> None:
    numbers: list[Any] = [
        0,
        1840,
        -3,
        20260907,
        1757232012000,
        1757232012,
        10**30 + 7,
        123456789012345678901234567890,
        True,
    ]

    assert [number for number in numbers if any(screen({"n": number}))] == []


def test_checksums() -> None:
    assert luhn("4111111111111111")
    assert not luhn("4111111111111121")
    assert iban("GB82WEST12345698765432")
    assert not iban("GB82WEST12345698765433")
    assert not iban("GB82WEST1234569876543")
    assert not iban("XX82WEST12345698765432")


def test_a_long_text_takes_no_long_time() -> None:
    """The patterns look at each place a bounded number of times."""
    for text in ("a" * 50_000, "a." * 25_000 + "@", "1 " * 25_000, "+1" * 25_000, "ab:" * 16_000, "A1" * 25_000):
        screen(text)
