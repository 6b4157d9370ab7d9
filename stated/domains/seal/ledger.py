"""The rules of the recommendation ledger, without a document: what an outcome is, what hides a finding, what an id is.

What may be relied on: numbers are compared as they were written. Everything that decides is a fraction of integers, so
0.010 → 0.022 measured at 0.0140 is exactly a third of the way, and not a little less.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple

from stated.domains.seal import tables
from stated.domains.seal.records import Number, day_of

Record = Mapping[str, Any]

# Numbers ------------------------------------------------------------------------------------------------------------


def number_of(value: Any) -> Number | None:
    """A number of a parsed record; true is none."""
    return value if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else None


_PLACES: Final = 4
_MOST: Final = 10**18


def decimal_of(share: Fraction) -> Decimal:
    """A fraction for a reply: four places, rounded down, so that what missed a bound never looks as if it had not."""
    steps = share.numerator * 10**_PLACES // share.denominator
    return Decimal(max(-_MOST, min(steps, _MOST))).scaleb(-_PLACES)


# What became of a recommendation ------------------------------------------------------------------------------------

Grade = Literal["verified", "failed", "extended"]


def progress(baseline: Number, target: Number, measured: Number) -> Fraction:
    """The share of the way from baseline to target. Both directions are the same; equal ends have no way."""
    start = Fraction(baseline)
    return (Fraction(measured) - start) / (Fraction(target) - start)


def grade(share: Fraction, *, extended: bool) -> Grade:
    """The thirds rule. A second result in between is a failure: the one extension is used up."""
    if share >= tables.VERIFIED_FROM:
        return "verified"
    if share < tables.FAILED_BELOW or extended:
        return "failed"
    return "extended"


def extension(verify_on: date, today: date) -> date:
    return max(verify_on, today) + timedelta(days=tables.EXTENSION_DAYS)


# Impacts --------------------------------------------------------------------------------------------------------------


class Impact(NamedTuple):
    """A monthly amount. Without a known currency it cannot be compared with anything."""

    number: Number
    currency: str | None

    def fields(self) -> dict[str, Any]:
        """How a record holds it."""
        if self.currency == "EUR":
            return {"impact_eur_month": self.number}
        named = {"currency": self.currency} if self.currency is not None else {}
        return {"impact_month": self.number, **named}


def impact_of(record: Record) -> Impact | None:
    """The impact that a record of any release holds, None when there is no usable one."""
    euros = number_of(record.get("impact_eur_month"))
    if euros is not None:
        return Impact(euros, "EUR")
    number, currency = number_of(record.get("impact_month")), record.get("currency")
    if number is None:
        return None
    return Impact(number, currency if isinstance(currency, str) and currency else None)


def growth(recorded: Impact | None, now: Impact) -> Literal["suppressed", "escalate", "incomparable"]:
    if recorded is None or recorded.currency is None or recorded.currency != now.currency:
        return "incomparable"
    if recorded.number <= 0:
        # There is no half of nothing: what was no loss and now is one has grown.
        return "escalate" if now.number > 0 else "suppressed"
    return "escalate" if Fraction(now.number) >= tables.ESCALATION * Fraction(recorded.number) else "suppressed"


# Names ----------------------------------------------------------------------------------------------------------------

_ID: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
ID_LENGTH: Final = 128
_PART_LENGTH: Final = 48


def name_key(text: Any) -> str:
    """Two spellings of one pattern or subject have the same key: case and punctuation tell nothing apart."""
    folded = unicodedata.normalize("NFKC", text).casefold() if isinstance(text, str) else ""
    return re.sub(r"[\W_]+", "-", folded).strip("-") or folded


def finding_key(record: Record) -> tuple[str, str]:
    """Records of one finding have one key."""
    return name_key(record.get("pattern")), name_key(record.get("subject"))


def slug(text: str) -> str:
    """A part of an id: letters, digits and `-`. What had to be left out is stood for by a few digits of a hash, so that
    two names stay two."""
    key = name_key(text)
    plain = "".join(c for c in unicodedata.normalize("NFKD", key) if not unicodedata.combining(c))
    short = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if re.sub(r"[^a-z0-9-]", "", plain) == plain and len(short) <= _PART_LENGTH and short:
        return short
    digits = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{short[:_PART_LENGTH].rstrip('-')}-{digits}".lstrip("-")


def id_of(day: date, pattern: str, subject: str) -> str:
    return f"{day.isoformat()}-{slug(pattern)}-{slug(subject)}"


def is_id(text: str) -> bool:
    return len(text) <= ID_LENGTH and _ID.fullmatch(text) is not None


# What hides a finding -------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """`entry` is what stands in the way; `until` the first day on which a discarded one no longer does."""

    decision: Literal["new", "suppressed", "escalate", "incomparable"]
    entry: Record | None = None
    until: date | None = None


def judge(records: Iterable[Record], pattern: str, subject: str, impact: Impact, today: date) -> Verdict:
    """Whether a finding is news. An open entry decides before a discarded one; of several the later line does."""
    key = (name_key(pattern), name_key(subject))
    opened: Record | None = None
    discarded: tuple[date, Record] | None = None
    for record in records:
        if finding_key(record) != key:
            continue
        if record.get("status") == "open":
            opened = record
        elif record.get("status") == "discarded":
            since = day_of(record.get("closed_on")) or day_of(record.get("date"))
            if since is not None and (discarded is None or since >= discarded[0]):
                discarded = (since, record)
    if opened is not None:
        return Verdict(growth(impact_of(opened), impact), opened)
    if discarded is not None:
        until = discarded[0] + timedelta(days=tables.SUPPRESSED_DAYS)
        if today < until:
            return Verdict("suppressed", discarded[1], until)
    return Verdict("new")
