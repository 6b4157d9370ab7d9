"""`watchdog-baseline.json`: what a normal hour looks like, and the judgement of today against it.

What may be relied on:

- `baseline put` takes what the calculator prints: the header is the daemon's, and what the file does not hold is named.
- `watch observe` judges by the local hour of the site and by nothing else: where that is not known there is no healthy
  verdict. It changes `last_status` and `last_checked_at` in the file and nothing else there.
- The word and the stamp in the file decide whether the reading before was bad. How many there were in a row, and since
  when, is remembered beside it and only believed while it belongs to that stamp: losing it loses a number in a reply.
- An expired baseline still judges, with wider limits.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta

from stated.documents import json_text
from stated.documents.json_text import JsonText
from stated.domain import At, Change, Context, Docs, MemoryKind, Outcome, Refused, Remember, Write
from stated.domains.seal import tables
from stated.domains.seal.common import (
    Common,
    corruption,
    pairs,
    refusal,
    refuse_corrupt,
    refuse_personal,
    warning,
    warning_rows,
    writer_warnings,
)
from stated.domains.seal.ledger import decimal_of, number_of
from stated.domains.seal.profile import contradicted_since, stored_profile, today_at, zone_at
from stated.domains.seal.records import Baseline, Number, Problem, day_of, field_names, problems, stamp_of
from stated.domains.seal.runs import stamp
from stated.domains.seal.sites import known_site, place, refuse_plugin, site_of, skill_of

MEMORIES = (
    MemoryKind(
        "readings",
        "How many readings in a row were below healthy, and since when",
        "the count of bad readings in a row starts again at one or two; whether the one before was bad is in the file",
    ),
)

Stored = Mapping[str, Any]

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "A": ("cells", "cumulative"),
    "B": ("cells", "cumulative"),
    "C": ("daily_median",),
}
"""Mode → what it cannot be without."""


def mode_problems(value: Stored) -> list[Problem]:
    mode = value.get("mode")
    needed = NEEDED.get(mode, ()) if isinstance(mode, str) else ()
    return [Problem(name, f"is missing in mode {mode}") for name in needed if name not in value]


# What a baseline says of one moment -----------------------------------------------------------------------------------


class _Moment(NamedTuple):
    """The local weekday and hour. Never UTC's: a site is busy by its own day."""

    weekday: str
    hour: int

    @classmethod
    def of(cls, now: datetime, zone: tzinfo) -> _Moment:
        local = now.astimezone(zone)
        return cls(tables.WEEKDAYS[local.weekday()], local.hour)


def expected(value: Stored, moment: _Moment) -> Fraction | None:
    """How many events there should have been from midnight to the end of this hour; None where the weekday is not
    covered. In mode C the hours of a day are not known, and each has the same share."""
    if value.get("mode") == "C":
        day = _member(value.get("daily_median"), moment.weekday)
        return Fraction(day) * (moment.hour + 1) / 24 if day is not None else None
    curves = value.get("cumulative")
    curve = curves.get(moment.weekday) if isinstance(curves, Mapping) else None
    if not isinstance(curve, list) or len(curve) != 24:
        return None
    number = number_of(curve[moment.hour])
    return Fraction(number) if number is not None else None


def _member(value: Any, name: str) -> Number | None:
    return number_of(value.get(name)) if isinstance(value, Mapping) else None


def _cell(value: Stored, moment: _Moment) -> Any:
    cells = value.get("cells")
    day = cells.get(moment.weekday) if isinstance(cells, Mapping) and value.get("mode") != "C" else None
    return day.get(str(moment.hour)) if isinstance(day, Mapping) else None


def is_expired(value: Stored, today: date, profile: Stored) -> bool:
    """The day of expiry itself is still good. Any change of tracking ends it early; without a date it has ended."""
    expires, calibrated = day_of(value.get("expires_at")), day_of(value.get("calibrated_at"))
    if expires is None or today > expires:
        return True
    return calibrated is not None and contradicted_since(profile, calibrated)


# The judgement --------------------------------------------------------------------------------------------------------

Status = Literal["healthy", "watch", "act", "quiet"]


def judge(actual: int, wanted: Fraction, *, bad_before: bool, limits: tables.Limits) -> tuple[Status, Fraction | None]:
    """Act needs the reading before to have been bad as well: one low hour is a hint, two are a fault."""
    if wanted < tables.QUIET_BELOW:
        return "quiet", None
    ratio = Fraction(actual) / wanted
    if limits.healthy <= ratio < limits.spike:
        return "healthy", ratio
    extreme = ratio < limits.act or ratio >= limits.spike_act
    return "act" if extreme and bad_before else "watch", ratio


_BAD: Final = re.compile(r"\b(watch|act)\b|🟡|🔴", re.IGNORECASE)


def _bad_before(value: Stored, now: datetime) -> bool:
    """Whether the file's own reading was below healthy and is not older than a day."""
    status, checked = value.get("last_status"), value.get("last_checked_at")
    if not isinstance(status, str) or _BAD.search(status) is None:
        return False
    instant = _instant(checked)
    return instant is not None and timedelta(0) <= now - instant <= timedelta(seconds=tables.READING_SECONDS)


def _instant(value: Any) -> datetime | None:
    """The instant that a stamp with a zone names, however it is spelled."""
    found = stamp_of(value)
    if found is None and isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return None
    return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None


# baseline get ---------------------------------------------------------------------------------------------------------


class Get(Common, kw_only=True):
    expect_now: Annotated[bool, Meta(description="What should have happened by now, by the site's own clock.")] = False


def get(docs: Docs, params: Get, context: Context) -> Outcome:
    site = known_site(docs, params.site, context)
    reply: dict[str, Any] = {
        "state": "absent",
        "site": site,
        "mode": None,
        "expired": False,
        "weekday": None,
        "local_hour": None,
        "expected": None,
        "cell": None,
        "gap": None,
        "quiet": None,
        "baseline": None,
        "warnings": [],
        "untrusted": ["baseline.event", "baseline.notes"],
        "rev": None,
    }
    if site is None:
        return Outcome(reply)
    at = place(context, site, tables.BASELINE)
    doc = docs.json(at)
    if not doc.exists:
        return Outcome(reply, subject=at)
    reply["rev"] = docs.rev(at)
    broken = corruption(doc)
    if broken is not None:
        return Outcome(reply | {"state": "corrupt", "corrupt": broken}, subject=at)
    value: Stored = doc.value
    profile = stored_profile(docs, site, context)
    expired = is_expired(value, today_at(profile, context), profile)
    reply |= {
        "state": "expired" if expired else "ok",
        "mode": value.get("mode"),
        "expired": expired,
        "baseline": dict(value),
        "warnings": [warning(row.field, row.problem, row.meant) for row in problems(Baseline, value)],
    }
    if params.expect_now:
        reply = _with_now(reply, value, profile, context)
    return Outcome(reply, subject=at)


_NO_CLOCK: Final = "is not known from the profile: without the site's own hour nothing can be expected"


def _with_now(reply: dict[str, Any], value: Stored, profile: Stored, context: Context) -> dict[str, Any]:
    zone = zone_at(profile)
    if zone is None:
        return reply | {"warnings": [*reply["warnings"], warning("timezone", _NO_CLOCK, "profile put")]}
    moment = _Moment.of(context.now, zone)
    wanted = expected(value, moment)
    reply = reply | {"weekday": moment.weekday, "local_hour": moment.hour}
    if wanted is None:
        return reply | {"state": "no_weekday"}
    cell = _cell(value, moment)
    return reply | {
        "expected": _plain(wanted),
        "cell": cell,
        "gap": _member(cell, "gap"),
        "quiet": wanted < tables.QUIET_BELOW,
        "warnings": [*reply["warnings"], *_shares(value)],
    }


def _shares(value: Stored) -> list[dict[str, str]]:
    if value.get("mode") != "C":
        return []
    return [warning("mode", "C knows no hours: every hour counts as the same share of the day")]


def _plain(number: Fraction) -> int | Decimal:
    return int(number) if number.denominator == 1 else decimal_of(number)


def draw_get(reply: Any, width: int) -> str:
    """`baseline get` for a terminal."""
    if reply["state"] == "absent":
        return "no baseline yet"
    rows: list[tuple[str, Any]] = [("site", reply["site"]), ("state", reply["state"])]
    if "corrupt" in reply:
        broken = reply["corrupt"]
        rows.append(("problem", f"line {broken['line']}, column {broken['column']}: {broken['problem']}"))
    names = ("weekday", "local_hour", "expected", "cell", "gap", "quiet")
    rows.extend((name.replace("_", " "), reply[name]) for name in names if reply[name] is not None)
    value = reply["baseline"] or {}
    curves = value.get("daily_median") or value.get("cumulative")
    # Hours by the dozen tell a person nothing; --json has them.
    rows.extend((name, member) for name, member in value.items() if name not in ("cells", "cumulative"))
    if isinstance(curves, Mapping) and "daily_median" not in value:
        rows.append(("covers", list(curves)))
    rows.extend(warning_rows(reply["warnings"]))
    return pairs(rows, width)


# baseline put ---------------------------------------------------------------------------------------------------------


class Put(Common, kw_only=True):
    event: Annotated[str, Meta(description="The site's own name of the event that was counted.")]
    mode: Annotated[
        Literal["A", "B", "C"],
        Meta(description="A: up to 4,000 in 30 days; B: up to 30,000; C: more, by days alone."),
    ]
    data: Annotated[dict[str, Any], Meta(description="What the calculator printed, as a JSON object.")]


_DAEMONS: Final = {
    "site_id": "names another site than the call does",
    "event": "is another one than --event says",
    "mode": "is another one than --mode says",
}


def put(docs: Docs, params: Put, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.BASELINE)
    where = f"{site} {tables.BASELINE}"
    skill = skill_of(params.skill, context)
    _refuse_status_writer(where, skill)
    doc = docs.json(at)
    refuse_corrupt(where, doc)
    stored: Stored = doc.value if doc.exists else {}
    profile = stored_profile(docs, site, context)
    today = today_at(profile, context)
    header = {
        "site_id": site,
        "event": params.event,
        "mode": params.mode,
        "calibrated_at": today.isoformat(),
        "expires_at": (today + timedelta(days=tables.BASELINE_DAYS)).isoformat(),
    }
    dropped = [name for name in params.data if name in tables.CALCULATED]
    data = {name: value for name, value in params.data.items() if name not in dropped and value is not None}
    warnings = refuse_personal(where, {**data, "event": params.event})
    record = {**header, **{name: value for name, value in data.items() if name not in header}}
    _refuse_mistakes(where, data, header, record, stored)
    warnings.extend(_oddities(record))
    warnings.extend(writer_warnings("baseline put", skill))
    calibrated = _joined(stored, record)
    if not doc.exists:
        refuse_plugin(docs, context.root, site)
    reply = {
        "site": site,
        "diff": {
            "event": {"was": stored.get("event"), "now": params.event},
            "mode": {"was": stored.get("mode"), "now": params.mode},
            "median": {"was": _median_day(stored), "now": _median_day(record)},
        },
        "dropped": dropped,
        "calibrated_at": header["calibrated_at"],
        "expires_at": header["expires_at"],
        "skill": skill,
        "warnings": warnings,
        "untrusted": ["diff.event"],
    }
    return _written(docs, doc, at, where, calibrated, reply)


def _refuse_status_writer(where: str, skill: str | None) -> None:
    if skill == tables.WRITERS["watch observe"]:
        raise refusal(
            where,
            [Problem("--skill", f"is {skill}, which may change a baseline's status only", "watch observe")],
        )


def _refuse_mistakes(where: str, data: Stored, header: Stored, record: Stored, stored: Stored) -> None:
    found = [*problems(Baseline, record), *mode_problems(record)]
    bad = {problem.field for problem in found}
    for name, value in data.items():
        if name in bad:
            continue
        if name in ("last_status", "last_checked_at") and value != stored.get(name):
            found.append(Problem(name, "is written by `watch observe` alone; leave it out"))
        elif name in header and value != header[name]:
            found.append(Problem(name, _DAEMONS.get(name, "is set by the daemon; leave it out")))
    if not found and _median_day(record) == 0:
        found.append(Problem("--data", "holds no events at all: nothing could ever be judged by it"))
    if found:
        raise refusal(where, list(dict.fromkeys(found)))


def _oddities(record: Stored) -> list[dict[str, str]]:
    name = "daily_median" if record["mode"] == "C" else "cumulative"
    found = []
    missing = [day for day in tables.WEEKDAYS if day not in record[name]]
    if missing:
        found.append(warning(name, f"does not cover {', '.join(missing)}: nothing can be said on these days"))
    for day, curve in record[name].items() if name == "cumulative" else ():
        if any(Fraction(later) < Fraction(earlier) for earlier, later in itertools.pairwise(curve)):
            found.append(warning(f"{name}.{day}", "falls within the day: it must be a running sum"))
        elif not _adds_up(record["cells"].get(day), curve):
            found.append(warning(f"{name}.{day}", "is not the running sum of the medians in `cells`"))
    return found


def _adds_up(cells: Any, curve: list[Number]) -> bool:
    """An hour without a cell had no events."""
    total = Fraction()
    for hour, number in enumerate(curve):
        total += Fraction(_member((cells or {}).get(str(hour)), "median") or 0)
        if total != Fraction(number):
            return False
    return True


def _median_day(value: Stored) -> int | Decimal | None:
    """The volume of a middling day, to tell one baseline from another."""
    days: list[Fraction] = []
    curves, totals = value.get("cumulative"), value.get("daily_median")
    source: Iterable[Any] = ()
    if value.get("mode") == "C" and isinstance(totals, Mapping):
        source = totals.values()
    elif isinstance(curves, Mapping):
        source = (curve[-1] for curve in curves.values() if isinstance(curve, list) and curve)
    for number in map(number_of, source):
        if number is not None:
            days.append(Fraction(number))
    return _plain(statistics.median(days)) if days else None


def _joined(stored: Stored, record: Stored) -> dict[str, Any]:
    """The new calibration, with what was never part of one: fields unknown here, and the watchdog's last reading, as
    long as it was one of the same event."""
    known = set(field_names(Baseline))
    kept = {name: value for name, value in stored.items() if name not in known or name in record}
    if stored.get("event") == record["event"]:
        kept |= {name: stored[name] for name in ("last_status", "last_checked_at") if name in stored}
    ordered = {name: record.get(name, kept.get(name)) for name in stored if name in record or name in kept}
    return {**ordered, **record}


def _written(
    docs: Docs, doc: JsonText, at: At, where: str, value: Stored, reply: dict[str, Any], *also: Remember
) -> Outcome:
    try:
        content = json_text.edit(doc, value)
    except json_text.Unwritable as error:
        raise Refused(error.reason, where=where, hint="nothing was written") from error
    changes: tuple[Change, ...] = (Write(at, content), *also)
    if doc.exists and content == doc.raw:
        changes = also
        reply = reply if also else {**reply, "rev": docs.rev(at)}
    return Outcome(reply, changes, subject=at)


# watch observe --------------------------------------------------------------------------------------------------------


class Observe(Common, kw_only=True):
    actual: Annotated[int, Meta(ge=0, description="Today's events so far.")]
    last_event: Annotated[
        str | None, Meta(description="When the last one was: a timestamp with its zone.", extra={"metavar": "TS"})
    ] = None


def observe(docs: Docs, params: Observe, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.BASELINE)
    where = f"{site} {tables.BASELINE}"
    skill = skill_of(params.skill, context)
    elapsed = _elapsed(params.last_event, context.now)
    doc = docs.json(at)
    refuse_corrupt(where, doc)
    profile = stored_profile(docs, site, context)
    zone = zone_at(profile)
    reply: dict[str, Any] = {
        "site": site,
        "status": "no_baseline",
        "ratio": None,
        "expected": None,
        "actual": params.actual,
        "consecutive": 0,
        "since": None,
        "expired": False,
        "weekday": None,
        "local_hour": None,
        "elapsed_min": elapsed,
        "gap": None,
        "skill": skill,
        "warnings": writer_warnings("watch observe", skill),
        "untrusted": [],
    }

    def no_reading(**found: Any) -> Outcome:
        return Outcome({**reply, **found, "rev": docs.rev(at)}, subject=at)

    if not doc.exists:
        return no_reading()
    value: Stored = doc.value
    if zone is None:
        told = [*reply["warnings"], warning("timezone", _NO_CLOCK, "profile put")]
        return no_reading(status="unknown_time", warnings=told)
    moment = _Moment.of(context.now, zone)
    reply |= {"weekday": moment.weekday, "local_hour": moment.hour, "gap": _member(_cell(value, moment), "gap")}
    wanted = expected(value, moment)
    if wanted is None:
        return no_reading(status="no_baseline_for_weekday")
    expired = is_expired(value, today_at(profile, context), profile)
    limits = tables.LIMITS_EXPIRED if expired else tables.LIMITS
    bad_before = _bad_before(value, context.now)
    status, ratio = judge(params.actual, wanted, bad_before=bad_before, limits=limits)
    checked = stamp(context.now)
    run = _in_a_row(docs, f"{context.root}/{site}", value, bad_before, status, checked)
    reply |= {
        "status": status,
        "ratio": decimal_of(ratio) if ratio is not None else None,
        "expected": _plain(wanted),
        "consecutive": run["count"],
        "since": run["since"],
        "expired": expired,
        "warnings": [*reply["warnings"], *_shares(value)],
    }
    told_status = f"expired: {status}" if expired else status
    changed = {**value, "last_status": told_status, "last_checked_at": checked}
    remember = Remember("readings", f"{context.root}/{site}", run if run["count"] else None)
    return _written(docs, doc, at, where, changed, reply, remember)


def _in_a_row(docs: Docs, key: str, value: Stored, bad_before: bool, status: Status, checked: str) -> dict[str, Any]:
    """How many bad readings there now are in a row. The file tells whether the one before was bad; what is remembered
    of it counts only while it speaks of that very reading."""
    if status in ("healthy", "quiet"):
        return {"count": 0, "since": None, "at": checked}
    before = docs.memory("readings", key) if bad_before else None
    if isinstance(before, Mapping) and before.get("at") == value.get("last_checked_at"):
        return {"count": int(before["count"]) + 1, "since": before["since"], "at": checked}
    if bad_before:
        return {"count": 2, "since": value.get("last_checked_at"), "at": checked}
    return {"count": 1, "since": checked, "at": checked}


def _elapsed(given: str | None, now: datetime) -> int | None:
    """Whole minutes since the last event. A clock time alone was once shown and called healthy without subtracting."""
    if given is None:
        return None
    instant = _instant(given)
    if instant is None:
        says = "must be a timestamp with its zone such as 2026-09-07T08:00:12Z"
        raise refusal("watch observe", [Problem("--last-event", says)])
    if instant > now:
        raise refusal("watch observe", [Problem("--last-event", "lies in the future")])
    return int((now - instant).total_seconds()) // 60


def draw_observe(reply: Any, width: int) -> str:
    """`watch observe` for a terminal."""
    if reply["status"] == "no_baseline":
        rows: list[tuple[str, Any]] = [("site", reply["site"]), ("status", "no baseline yet, so nothing was judged")]
    else:
        names = (
            "site", "status", "ratio", "expected", "actual", "weekday", "local_hour", "elapsed_min", "gap", "since",
        )  # fmt: skip
        rows = [(name.replace("_", " "), reply[name]) for name in names if reply[name] is not None]
        if reply["expired"]:
            rows.append(("baseline", "expired: judged by wider bounds"))
        if reply["consecutive"]:
            rows.append(("in a row", reply["consecutive"]))
    return pairs([*rows, *warning_rows(reply["warnings"])], width)
