"""The screen for personal data: state holds site configuration, aggregates and recommendation texts, nothing else.

`screen` looks at every key and every text of a value. What is surely personal (`refused`) stops a write; what only
looks like it (`warned`) is told in the reply. No message ever holds the text that was found.

Being wrong costs on both sides: a missed address stays on a disk, a false alarm keeps a skill from saving a campaign
called `2026-09-07_4x4`. So numbers count only with their checksum *and* the prefix and grouping of the real thing, and
`tests/domains/seal/test_personal.py` measures both sides.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple


class Hit(NamedTuple):
    field: str
    problem: str


class Screen(NamedTuple):
    refused: tuple[Hit, ...]
    warned: tuple[Hit, ...]


class _Pattern(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    accept: Callable[[re.Match[str]], bool]


# Checksums and lengths ----------------------------------------------------------------------------------------------


def luhn(digits: str) -> bool:
    """The check digit of payment card numbers."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def iban(text: str) -> bool:
    """Whether this (without spaces) has an account number's country, length and check digits (ISO 13616)."""
    text = text.upper()
    if _IBAN_LENGTHS.get(text[:2]) != len(text):
        return False
    return int("".join(str(int(letter, 36)) for letter in text[4:] + text[:4])) % 97 == 1


_IBAN_LENGTHS: Final[Mapping[str, int]] = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "CH": 21,
    "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18,
    "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23,
    "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "MC": 27,
    "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29,
    "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "TN": 24, "TR": 26,
    "UA": 29, "VA": 22, "XK": 20,
}  # fmt: skip

_CARD_ISSUERS: Final = re.compile(
    r"4(\d{12}|\d{15}|\d{18})"  # Visa
    r"|(5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|3(0[0-5]|[68]\d)\d{11}"  # Diners Club
    r"|(6011|65\d\d|64[4-9]\d)\d{12}"  # Discover
    r"|35(2[89]|[3-8]\d)\d{12}"  # JCB
    r"|62\d{14}"  # UnionPay
)


def _digits(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match.group())


def _card(match: re.Match[str]) -> bool:
    digits = _digits(match)
    return _CARD_ISSUERS.fullmatch(digits) is not None and luhn(digits)


def _account(match: re.Match[str]) -> bool:
    return iban(match.group().replace(" ", ""))


def _mail(match: re.Match[str]) -> bool:
    # `logo@2x.png` is a picture for fine displays.
    return re.match(r"\d+x$", match.group("host").split(".")[0], re.IGNORECASE) is None


def _phone(match: re.Match[str]) -> bool:
    digits = _digits(match)
    # `+1.234.567` and `+12 345 678` are amounts; a phone number in groups of three has more digits.
    amount = re.fullmatch(r"\+\d{1,3}(?:([. ])\d{3})(?:\1\d{3})*", match.group()) is not None
    return (10 if amount else 8) <= len(digits) <= 15


def _local_phone(match: re.Match[str]) -> bool:
    return 9 <= len(_digits(match)) <= 15


def _address(match: re.Match[str]) -> bool:
    try:
        address = ipaddress.ip_address(match.group())
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return len([part for part in match.group().split(":") if part]) >= 4
    # Versions have four numbers too (`120.0.0.0`, `10.15.7.1`): an address has a number that few versions reach.
    octets = [int(part) for part in match.group().split(".")]
    return 0 < octets[0] < 224 and max(octets) >= 100 and octets[2:] != [0, 0]


# The tables ---------------------------------------------------------------------------------------------------------

REFUSED: Final = (
    _Pattern(
        "an e-mail address",
        re.compile(r"[\w.+'-]{1,64}(?:@|%40)(?P<host>[^\W_](?:[\w-]{0,62}\.)+[^\W\d_]{2,24})(?![\w-])", re.IGNORECASE),
        _mail,
    ),
    _Pattern("a phone number", re.compile(r"(?<![\w+])\+\d(?:[ ().-]{0,2}\d){6,14}(?!\d)"), _phone),
    _Pattern(
        "a payment card number",
        re.compile(
            r"(?<![A-Za-z0-9])(?<!\d[.,-])(?:\d{13,19}|\d{4}(?:[ -]\d{4}){3}(?:[ -]\d{3})?|\d{4}[ -]\d{6}[ -]\d{4,5})"
            r"(?![A-Za-z0-9])(?![.,-]\d)"
        ),
        _card,
    ),
    _Pattern(
        "a bank account number (IBAN)",
        re.compile(
            r"(?<![A-Za-z0-9])[A-Z]{2}\d\d(?:[A-Z0-9]{11,27}|(?: [A-Z0-9]{4}){2,6}(?: [A-Z0-9]{1,4})?)(?![A-Za-z0-9])",
            re.IGNORECASE,
        ),
        _account,
    ),
)
"""What is surely personal, wherever it stands in a text."""

WARNED: Final = (
    _Pattern(
        "what looks like a phone number",
        re.compile(
            r"(?<![\w.,/+-])(?:00\d{9,13}"
            r"|\(?0\d{1,4}\)?[ /-]\d{2,4}(?:[ -]\d{2,4}){1,3}"
            r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[ .-]\d{3}[ .-]\d{4}"
            r"|[679]\d\d(?: \d{3}){2}|[679]\d\d(?: \d\d){3})(?![\w/-])(?![.,]\d)"
        ),
        _local_phone,
    ),
    _Pattern(
        "what looks like an IP address",
        re.compile(
            r"(?<![\w.:/-])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){3,7})(?![\w.:-])"
            r"|(?<=//)\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])",
            re.IGNORECASE,
        ),
        _address,
    ),
)

_DATES: Final = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?|\d{1,2}[-./]\d{1,2}[-./]\d{2,4}|\d{1,2}:\d\d(?::\d\d)?")
"""Taken out of a text before looking for what only looks like a phone number."""

KEYS: Final[Mapping[str, str]] = {
    "email": "an e-mail address",
    "emailaddress": "an e-mail address",
    "useremail": "an e-mail address",
    "customeremail": "an e-mail address",
    "phone": "a phone number",
    "phonenumber": "a phone number",
    "telephone": "a phone number",
    "mobilenumber": "a phone number",
    "customerid": "a customer's id",
    "orderid": "an order's id",
    "ordernumber": "an order's id",
    "transactionid": "an order's id",
    "userid": "a user's id",
    "visitorid": "a visitor's id",
    "firstname": "a person's name",
    "lastname": "a person's name",
    "fullname": "a person's name",
    "surname": "a person's name",
    "customername": "a person's name",
    "passport": "an identity document",
    "passportnumber": "an identity document",
    "birthdate": "a date of birth",
    "dateofbirth": "a date of birth",
    "creditcard": "a payment card number",
    "cardnumber": "a payment card number",
    "iban": "a bank account number (IBAN)",
}
"""Keys (without `_`, `-` and case) whose value is personal whatever it looks like."""

_TYPE_WORDS: Final = frozenset((
    "", "string", "str", "text", "number", "int", "integer", "float", "bool", "boolean", "object", "array", "null",
    "any", "required", "optional", "hashed", "removed", "none", "yes", "no",
))  # fmt: skip
"""Values that describe a field in place of filling it: a cached call signature may name `order_id`."""

# Looking ------------------------------------------------------------------------------------------------------------


def screen(value: Any, field: str = "", *, names: Set[str] = frozenset()) -> Screen:
    """Look through a value. The keys of the fields in `names` are names of events and the like: they are looked at as
    texts, not as keys."""
    refused: list[Hit] = []
    warned: list[Hit] = []
    for path, text in _texts(value, field):
        for pattern in REFUSED:
            if _found(pattern, text):
                refused.append(Hit(path, f"holds {pattern.name}"))
        plain = _DATES.sub(" ; ", text)
        for pattern in WARNED:
            if _found(pattern, plain if "phone" in pattern.name else text) and not any(
                hit.field == path for hit in refused
            ):
                warned.append(Hit(path, f"holds {pattern.name}"))
    refused.extend(_keys(value, field, names))
    return Screen(tuple(dict.fromkeys(refused)), tuple(dict.fromkeys(warned)))


def _found(pattern: _Pattern, text: str) -> bool:
    return any(pattern.accept(match) for match in pattern.pattern.finditer(text))


def _join(field: str, name: str) -> str:
    # A key that is itself personal is not repeated in the message about it.
    if any(_found(pattern, _plain_text(name)) for pattern in REFUSED):
        name = "(a key)"
    return f"{field}.{name}" if field else name


def _plain_text(text: str) -> str:
    # Full-width letters, and the zero-width ones that are put between letters, are how a text slips past a pattern.
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, _plain_text(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield field, str(value)
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield _join(field, name), _plain_text(name)
            yield from _texts(member, _join(field, name))
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _texts(member, f"{field}[{index}]")


def _keys(value: Any, field: str, names: Set[str]) -> Iterator[Hit]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            path = _join(field, name)
            kind = KEYS.get(re.sub(r"[\W_]", "", name).lower())
            if kind is not None and field not in names and _filled(member):
                yield Hit(path, f"holds {kind}")
            yield from _keys(member, path, names)
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _keys(member, f"{field}[{index}]", names)


def _filled(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, str):
        return value.strip().lower() not in _TYPE_WORDS
    if isinstance(value, Mapping):
        return any(_filled(member) for member in value.values())
    if isinstance(value, (list, tuple)):
        return any(_filled(member) for member in value)
    return True
