"""The records of the contract as types, and the one function that compares a value with them.

A structure here is never built: `problems` converts each field of a parsed record to its declared type, throws the
result away and keeps the parsed value, so that numbers stay as written and unknown fields stay where they are. It
reports every mistake of a record at once, each with the field that was probably meant. What it says never holds a
value that was given, because that may be personal data, and never a path.

A field's description finishes the sentence "must be …".
"""

from __future__ import annotations

import difflib
import functools
import re
import typing
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stated.domains.seal import tables

Number = int | Decimal

# Checks that a type cannot express (named functions: the globals of a lambda in an annotation are not this module's)

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_SITE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def is_site(text: str) -> bool:
    """Whether this can name a site: one path segment, no leading dot, at most 128 bytes."""
    return _SITE.fullmatch(text) is not None


def stamp_of(value: Any) -> datetime | None:
    """The instant that a full UTC stamp ending in `Z` names, or None for anything else."""
    if not isinstance(value, str) or _STAMP.fullmatch(value) is None:
        return None
    try:
        # Python reads six digits of a fraction at most; what lies beyond a microsecond orders nothing here.
        whole, _, fraction = value[:-1].partition(".")
        instant = datetime.fromisoformat(whole).replace(tzinfo=UTC)
        return instant.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else instant
    except ValueError:
        return None


def day_of(value: Any) -> date | None:
    """The calendar day that `YYYY-MM-DD` names, or None for anything else."""
    try:
        return msgspec.convert(value, date)
    except msgspec.ValidationError:
        return None


@functools.lru_cache(maxsize=256)
def zone_of(name: str) -> zoneinfo.ZoneInfo | None:
    """The time zone with this IANA name, or None."""
    if name != "UTC" and "/" not in name:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _is_zone(value: Any) -> bool:
    # Where the time zone database itself is missing, no name can be judged but by its look.
    if zone_of("Europe/London") is None:
        return re.fullmatch(r"UTC|[A-Za-z_]+(/[A-Za-z0-9_+-]+)+", value) is not None
    return zone_of(value) is not None


def _zone_explained(value: Any) -> tuple[str, str]:
    """What to add to the message about a text that is no time zone, and the one that was probably meant."""
    if not isinstance(value, str):
        return "", ""
    if re.match(r"\s*(UTC|GMT|Z)?\s*[+-]?\s*\d", value, re.IGNORECASE):
        return "; not an offset", ""
    typed = value[:80].strip().replace(" ", "_").lower()
    zones = {name.lower(): name for name in _zone_names()}
    if "/" not in typed:
        # A city alone.
        zones = {zone.rpartition("/")[2]: name for zone, name in zones.items() if not zone.startswith("etc/")}
    close = difflib.get_close_matches(typed, list(zones), n=1, cutoff=0.8)
    return "", zones[close[0]] if close else ""


@functools.cache
def _zone_names() -> tuple[str, ...]:
    """Read from the time zone database when a name was wrong for the first time."""
    return tuple(sorted(name for name in zoneinfo.available_timezones() if name == "UTC" or "/" in name))


def _is_month(value: Any) -> bool:
    return day_of(f"{value}-01") is not None


def _is_verdict(value: Any) -> bool:
    return value in tables.VERDICTS or value in tables.SCORES


def _is_stamp(value: Any) -> bool:
    return stamp_of(value) is not None


def _is_line(value: Any) -> bool:
    return len(value.splitlines()) <= 1


def _is_count(value: Any) -> bool:
    return bool(value >= 0)


def _is_failure(value: str) -> bool:
    """Whether a text is a failed call's answer: those arrive as ordinary text and were saved as facts."""
    return re.match(r"\s*(error\s*:|access denied)", value, re.IGNORECASE) is not None


def _is_fact(value: Any) -> bool:
    return not _is_failure(value)


# The types that several records share --------------------------------------------------------------------------------

Text = Annotated[str, Meta(min_length=1, description="a text that is not empty")]
Fact = Annotated[
    str,
    Meta(
        min_length=1, description="a text that is not empty and not a failed call's answer", extra={"check": _is_fact}
    ),
]
SiteId = Annotated[
    str,
    Meta(description="1 to 128 letters, digits, `.`, `_` or `-`, not starting with a dot", extra={"check": is_site}),
]
Day = Annotated[date, Meta(description="a date YYYY-MM-DD")]
Stamp = Annotated[
    str,
    Meta(description="a full UTC timestamp such as 2026-09-07T08:00:12Z", extra={"check": _is_stamp}),
]
Zone = Annotated[
    str,
    Meta(
        description="an IANA time zone such as Europe/Madrid, or UTC",
        extra={"check": _is_zone, "explain": _zone_explained},
    ),
]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$", description="three capitals such as EUR")]
AnyNumber = Annotated[Number, Meta(description="a number")]
Notes = Annotated[
    str,
    Meta(
        max_length=tables.NOTES_LENGTH,
        description=f"one line of at most {tables.NOTES_LENGTH} characters",
        extra={"check": _is_line},
    ),
]
Flag = Annotated[bool, Meta(description="true or false")]
Free = Annotated[dict[str, Any], Meta(description="an object")]
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Hour = Literal[
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11",
    "12", "13", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23",
]  # fmt: skip

# profile.json -------------------------------------------------------------------------------------------------------


class ProductIdentifier(msgspec.Struct):
    key: Fact
    table: Annotated[
        Literal["conversion_items", "microconversions", "conversions", "both"],
        Meta(description="`conversion_items`, `microconversions`, `conversions` or `both`"),
    ]


class Targets(msgspec.Struct):
    revenue: AnyNumber = 0
    conversions: AnyNumber = 0
    leads: AnyNumber = 0
    month: Annotated[str, Meta(description="a month YYYY-MM", extra={"check": _is_month})] = ""


class Profile(msgspec.Struct):
    site_id: SiteId
    discovery_cached_at: Day
    site_name: Fact = ""
    connector: Annotated[Literal["remote", "local"], Meta(description="`remote` or `local`")] = "remote"
    account_id: Annotated[
        Literal["same-as-site", "refused", "unknown"],
        Meta(description="`same-as-site`, `refused` or `unknown` (it is no second identifier)"),
    ] = "unknown"
    timezone: Zone = ""
    currency: Currency = ""
    vertical: Annotated[
        Literal["ecommerce", "hotels", "saas", "unknown"],
        Meta(description="`ecommerce`, `hotels`, `saas` or `unknown`"),
    ] = "unknown"
    events: Annotated[dict[str, Fact], Meta(description="an object: role → the site's own event name")] = {}
    product_identifier: Annotated[
        ProductIdentifier | None, Meta(description="an object with `key` and `table`, or null (looked for, none there)")
    ] = None
    agent_analytics_enabled: Annotated[
        bool | Literal["unknown"],
        Meta(description='true, false (measured and off) or "unknown" (refused or never tried)'),
    ] = "unknown"
    thresholds: Annotated[dict[str, AnyNumber], Meta(description="an object: name → number")] = {}
    targets: Annotated[
        Targets, Meta(description="an object with `revenue`, `conversions`, `leads` (numbers) and `month`")
    ] = msgspec.field(default_factory=Targets)
    first_data_date: Day = date.min
    scheduling_offered: Annotated[dict[str, Flag], Meta(description="an object: schedule → true or false")] = {}
    js_api: Free = {}
    notes: Notes = ""
    extra: Free = {}


# runs.jsonl ---------------------------------------------------------------------------------------------------------


class Run(msgspec.Struct):
    """Exactly these seven fields, all of them, in this order."""

    ts: Stamp
    skill: Text
    calls: Annotated[int, Meta(ge=0, description="a whole number from 0: the Sealmetrics calls of this run, counted")]
    budget: Annotated[int, Meta(ge=1, description="a whole number from 1: the ceiling that the skill documents")]
    verdict: Annotated[
        str,
        Meta(
            description="one of " + ", ".join(tables.VERDICTS),
            extra={"check": _is_verdict, "values": tables.VERDICTS},
        ),
    ]
    scheduled: Flag
    notes: Notes


# recommendations.jsonl ----------------------------------------------------------------------------------------------


class Recommendation(msgspec.Struct):
    """Impact: `impact_eur_month`, or `impact_month` with `currency`. The last four are the daemon's."""

    id: Text
    date: Day
    skill: Text
    pattern: Text
    subject: Fact
    evidence: Fact
    action: Text
    metric: Text
    baseline: AnyNumber
    target: AnyNumber
    verify_on: Day
    status: Annotated[
        Literal["open", "verified", "failed", "discarded"],
        Meta(description="`open`, `verified`, `failed` or `discarded`"),
    ]
    impact_eur_month: AnyNumber = 0
    impact_month: AnyNumber = 0
    currency: Currency = ""
    notes: Notes = ""
    measured: AnyNumber = 0
    closed_on: Day = date.min
    extended_on: Day = date.min
    escalated_on: Day = date.min


# watchdog-baseline.json ---------------------------------------------------------------------------------------------


class Cell(msgspec.Struct):
    median: AnyNumber
    gap: AnyNumber


Curve = Annotated[
    list[Annotated[Number, Meta(description="a number from 0", extra={"check": _is_count})]],
    Meta(min_length=24, max_length=24, description="24 numbers, one an hour"),
]


class Baseline(msgspec.Struct):
    site_id: SiteId
    event: Fact
    mode: Annotated[Literal["A", "B", "C"], Meta(description="`A`, `B` or `C`")]
    calibrated_at: Day
    expires_at: Day
    weeks: Annotated[int, Meta(ge=1, description="a whole number from 1")] = 1
    cells: Annotated[
        dict[Weekday, Annotated[dict[Hour, Cell], Meta(description="an object: hour 0 … 23 → `median` and `gap`")]],
        Meta(description="an object: weekday mon … sun → hours"),
    ] = {}
    cumulative: Annotated[dict[Weekday, Curve], Meta(description="an object: weekday mon … sun → 24 numbers")] = {}
    daily_median: Annotated[dict[Weekday, AnyNumber], Meta(description="an object: weekday mon … sun → number")] = {}
    last_status: Annotated[str | None, Meta(description="a text or null")] = None
    last_checked_at: Annotated[str | None, Meta(description="a text or null")] = None
    notes: Notes = ""


# alerts.json --------------------------------------------------------------------------------------------------------


class Metric(msgspec.Struct):
    kind: Annotated[
        Literal["conversion", "microconversion", "revenue", "entrances"],
        Meta(description="`conversion`, `microconversion`, `revenue` or `entrances`"),
    ]
    type: Fact = ""


class ActiveHours(msgspec.Struct):
    from_: Annotated[int, Meta(ge=0, le=24, description="an hour 0 to 24")] = msgspec.field(name="from")
    to: Annotated[int, Meta(ge=0, le=24, description="an hour 0 to 24")]
    days: Annotated[list[Weekday], Meta(min_length=1, description="a list of weekdays mon … sun, at least one")]


class Expected(msgspec.Struct):
    cumulative_by_hour: Annotated[dict[Weekday, Curve], Meta(description="an object: weekday mon … sun → 24 numbers")]
    basis: Annotated[
        Literal["watchdog-baseline", "last-week-flat"],
        Meta(description="`watchdog-baseline` or `last-week-flat`"),
    ] = "watchdog-baseline"


class Rule(msgspec.Struct):
    id: Text
    family: Annotated[
        Literal["silence", "drop", "spike", "threshold"],
        Meta(description="`silence`, `drop`, `spike` or `threshold`"),
    ]
    metric: Annotated[Metric, Meta(description="an object with `kind` and, for an event, `type`")]
    condition: Annotated[dict[str, AnyNumber], Meta(description="an object: what the family compares → number")]
    timezone: Zone
    created_at: Day
    status: Annotated[Literal["active", "paused", "deleted"], Meta(description="`active`, `paused` or `deleted`")]
    site_id: SiteId = ""
    filter: Free = {}
    active_hours: Annotated[ActiveHours | None, Meta(description="an object with `from`, `to` and `days`")] = None
    expected: Annotated[Expected | None, Meta(description="an object with `cumulative_by_hour`, or null")] = None
    deliver: Annotated[
        list[Literal["app", "slack", "email"]], Meta(description="a list of `app`, `slack`, `email`")
    ] = []
    expires_at: Day = date.min
    deleted_at: Day = date.min
    last_fired: Annotated[str | None, Meta(description="a timestamp or null")] = None


class Alerts(msgspec.Struct):
    site_id: SiteId
    rules: Annotated[list[Rule], Meta(description="a list of rules")]


CONDITIONS: Mapping[str, frozenset[str]] = {
    "silence": frozenset(("hours",)),
    "drop": frozenset(("ratio",)),
    "spike": frozenset(("ratio",)),
    "threshold": frozenset(("below", "above")),
}
"""What each family of rules compares; `threshold` has one of its two."""

# install-plan.json --------------------------------------------------------------------------------------------------


class InstallPlan(msgspec.Struct):
    plan_id: Annotated[str, Meta(pattern="^[0-9a-f]{12}$", description="12 hexadecimal digits")]
    approved_at: Stamp
    approval_quote: Annotated[str, Meta(max_length=200, description="the user's own words, at most 200 characters")]
    plan: Free


# Comparing ----------------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """One row of a refusal. `meant` is the field (or value) that was probably meant, or empty."""

    field: str
    problem: str
    meant: str = ""

    def row(self) -> dict[str, str]:
        return {"field": self.field, "problem": self.problem, "meant": self.meant}


class _Field(NamedTuple):
    name: str
    type: Any
    required: bool


@functools.cache
def _fields(record: type[msgspec.Struct]) -> Mapping[str, _Field]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {
        info.encode_name: _Field(info.encode_name, hints[info.name], info.required)
        for info in msgspec.structs.fields(record)
    }


def field_names(record: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(_fields(record))


def problems(
    record: type[msgspec.Struct],
    value: Mapping[str, Any],
    *,
    prefix: str = "",
    renamed: Mapping[str, str] | None = None,
    known: Sequence[str] = (),
    partial: bool = False,
) -> list[Problem]:
    """Every difference between a parsed object and a record. `known` names are taken though the record has no such
    field; `partial` leaves out what is missing (of the record itself, not of the records in it)."""
    fields = _fields(record)
    found: list[Problem] = []
    for name, member in value.items():
        path = f"{prefix}{name}"
        if name in fields:
            found.extend(_compare(member, fields[name].type, path))
        elif name not in known:
            found.append(Problem(path, "is not a field of this record", _meant(name, fields, renamed or {}, prefix)))
    if not partial:
        found.extend(
            Problem(f"{prefix}{name}", "is missing")
            for name, field in fields.items()
            if field.required and name not in value
        )
    return found


def _meant(name: str, fields: Mapping[str, _Field], renamed: Mapping[str, str], prefix: str) -> str:
    if name in renamed:
        return renamed[name]
    plain = {_plain(field): field for field in fields}
    if _plain(name) in plain:
        return prefix + plain[_plain(name)]
    close = difflib.get_close_matches(_plain(name), list(plain), n=1, cutoff=0.8)
    return prefix + plain[close[0]] if close else ""


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _compare(value: Any, kind: Any, path: str, says: str = "a value of the right type") -> Iterator[Problem]:
    """Compare one value with one type. It goes into objects and lists itself, because an error of a whole union or a
    whole object does not name the member at fault."""
    checks: list[Callable[[Any], bool]] = []
    values: tuple[str, ...] = ()
    explain: Callable[[Any], tuple[str, str]] = _unexplained
    whole = kind
    while typing.get_origin(kind) is Annotated:
        kind, *metas = typing.get_args(kind)
        for meta in metas:
            says = meta.description or says
            extra = meta.extra or {}
            if "check" in extra:
                checks.append(extra["check"])
            values = extra.get("values", values)
            explain = extra.get("explain", explain)
    inner = list(_inside(value, kind, path))
    if inner:
        yield from inner
        return
    good = True
    try:
        msgspec.convert(value, whole, builtin_types=(Decimal,))
    except msgspec.ValidationError:
        good = False
    if not good or not all(check(value) for check in checks):
        name = path.rpartition(".")[2]
        more, meant = explain(value)
        yield Problem(path, f"must be {says}{more}", meant or _value_meant(name, value, values or _literals(kind)))


def _unexplained(value: Any) -> tuple[str, str]:
    return "", ""


def _inside(value: Any, kind: Any, path: str) -> Iterator[Problem]:
    for option in _options(kind):
        origin = typing.get_origin(option)
        if isinstance(value, dict) and origin is dict:
            for name, member in value.items():
                yield from _compare(member, typing.get_args(option)[1], f"{path}.{name}")
        elif isinstance(value, list) and origin is list:
            for index, member in enumerate(value):
                yield from _compare(member, typing.get_args(option)[0], f"{path}[{index}]")
        elif isinstance(value, dict) and isinstance(option, type) and issubclass(option, msgspec.Struct):
            yield from problems(option, value, prefix=f"{path}.", renamed=_RENAMED_INSIDE.get(option))


_RENAMED_INSIDE: Mapping[type, Mapping[str, str]] = {Rule: tables.RULE_RENAMED}


def _options(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) in (typing.Union, type(int | None)):
        return typing.get_args(kind)
    return (kind,)


def _literals(kind: Any) -> tuple[str, ...]:
    return tuple(
        value
        for option in _options(kind)
        if typing.get_origin(option) is Literal
        for value in typing.get_args(option)
        if isinstance(value, str) and value
    )


def _value_meant(name: str, value: Any, values: Sequence[str]) -> str:
    if not isinstance(value, str):
        return ""
    if (name, value) in tables.VALUE_RENAMED:
        return tables.VALUE_RENAMED[name, value]
    plain = {_plain(option): option for option in values}
    close = difflib.get_close_matches(_plain(value), list(plain), n=1, cutoff=0.8)
    return plain[close[0]] if close else ""
