"""`profile.json`: what is known of a site, how old that is, and the two writers `profile put` and `offer`.

Reading never fails a caller: an absent, old or broken profile is an answer. Writing checks the fields that a call
brings, never those that are there already, and changes nothing but the fields named and the daemon's own dates:

- `discovery_cached_at` is set when the file is made, and moved only by a write tagged as discovery;
- a value learned alone is dated in `extra.stated.refreshed`, so that it is known to be newer than the whole;
- a contradiction (tracking changed) is dated in `extra.stated.contradicted`: all that was not seen since is stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, tzinfo
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stated.documents import json_text
from stated.documents.json_text import JsonText
from stated.domain import Context, Docs, Outcome, Refused, Write
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
)
from stated.domains.seal.records import Problem, Profile, day_of, field_names, problems, zone_of
from stated.domains.seal.sites import known_site, place, refuse_plugin, site_of

Stored = Mapping[str, Any]

STAMP = "discovery_cached_at"
OWN = "stated"
"""The member of `extra` that belongs to the daemon."""


# Freshness ----------------------------------------------------------------------------------------------------------


class Freshness(NamedTuple):
    """`refresh` are the fields that are old, in the order of the calls that bring them."""

    state: Literal["fresh", "stale", "undated"]
    age_days: int | None
    refresh: tuple[str, ...]


def stored_profile(docs: Docs, site: str, context: Context) -> Stored:
    """What the profile says, for the rules of other documents; nothing where there is none that can be read."""
    doc = docs.json(place(context, site, tables.PROFILE))
    return doc.value if doc.ok and isinstance(doc.value, dict) else {}


def zone_at(profile: Stored) -> tzinfo | None:
    """The time zone where the site is, None when that is not known."""
    name = profile.get("timezone")
    return zone_of(name) if isinstance(name, str) else None


def contradicted_since(profile: Stored, day: date) -> bool:
    """Whether the data was seen to contradict the profile after that day: tracking changed, and what was measured
    before counts no more."""
    contradicted = day_of(_own(profile).get("contradicted"))
    return contradicted is not None and contradicted > day


def today_at(profile: Stored | None, context: Context) -> date:
    """The day it is where the site is: plain dates in a profile are the site's."""
    return context.now.astimezone(zone_at(profile or {}) or context.zone).date()


def freshness(profile: Stored, today: date) -> Freshness:
    """Whole days since the day of discovery; a missing, unreadable or future date tells nothing and counts as old."""
    cached = day_of(profile.get(STAMP))
    age = (today - cached).days if cached is not None else None
    contradicted = day_of(_own(profile).get("contradicted"))
    state: Literal["fresh", "stale", "undated"]
    if age is None or age < 0 or cached is None:
        state, age = "undated", None
    elif age > tables.PROFILE_DAYS or (contradicted is not None and contradicted >= cached):
        state = "stale"
    else:
        return Freshness("fresh", age, ())
    dated = _own(profile).get("refreshed")
    return Freshness(state, age, tuple(name for name in tables.REFRESHABLE if not _is_recent(dated, name, today)))


def _is_recent(dated: Any, name: str, today: date) -> bool:
    day = day_of(dated.get(name)) if isinstance(dated, Mapping) else None
    return day is not None and 0 <= (today - day).days <= tables.PROFILE_DAYS


def _own(profile: Stored) -> Stored:
    extra = profile.get("extra")
    own = extra.get(OWN) if isinstance(extra, Mapping) else None
    return own if isinstance(own, Mapping) else {}


def _calls(fields: Sequence[str]) -> list[str]:
    tops = {name.partition(".")[0] for name in fields}
    return [call for call, brings in tables.REFRESHED_BY.items() if not tops.isdisjoint(brings)]


def _read(profile: Stored, name: str) -> tuple[bool, Any]:
    """Whether a field, or one member of a field that is an object (`events.view`), is there, and its value."""
    if name in profile:
        return True, profile[name]
    top, dot, member = name.partition(".")
    inner = profile.get(top)
    if dot and isinstance(inner, Mapping) and member in inner:
        return True, inner[member]
    return False, None


# What a reply shows -------------------------------------------------------------------------------------------------


def _view(profile: Stored, *, notes: bool = False) -> dict[str, Any]:
    """The profile as replies carry it. A note is about a run of the past and has been taken for a finding of today: it
    stands apart, marked as history, and its text only where it was asked for."""
    shown = {name: value for name, value in profile.items() if name != "notes"}
    reply: dict[str, Any] = {"profile": shown}
    if "notes" in profile:
        reply["notes"] = {"history": True} | ({"text": profile["notes"]} if notes else {})
    known = field_names(Profile)
    reply["untrusted"] = [name for name in profile if name in tables.PROFILE_TEXT or name not in known]
    return reply


def _old_warnings(profile: Stored, site: str) -> list[dict[str, str]]:
    """What a reader has to know of a stored profile that newer rules would refuse."""
    found = []
    if profile.get("site_id", site) != site:
        found.append(warning("site_id", "names another site than its folder"))
    if isinstance(profile.get("account_id"), str) and profile["account_id"].startswith("acct_"):
        found.append(warning("account_id", "holds an old release's second identifier; there is only one", "site_id"))
    if profile.get("agent_analytics_enabled") == "refused":
        found.append(warning("agent_analytics_enabled", "a refused call measured nothing", '"unknown"'))
    return found


# profile get --------------------------------------------------------------------------------------------------------


class Get(Common, kw_only=True):
    need: Annotated[
        list[str],
        Meta(
            description="The fields this run needs: says which are missing, and which calls bring them (`events.view` "
            "asks for one member).",
            extra={"metavar": "F,…"},
        ),
    ] = msgspec.field(default_factory=list)


def get(docs: Docs, params: Get, context: Context) -> Outcome:
    need = list(dict.fromkeys(params.need))
    site = known_site(docs, params.site, context)
    if site is None:
        return Outcome(_nothing("absent", None, need) | {"rev": None})
    at = place(context, site, tables.PROFILE)
    doc = docs.json(at)
    rev = docs.rev(at)
    broken = corruption(doc)
    if not doc.exists or broken is not None:
        state = "absent" if broken is None else "corrupt"
        reply = _nothing(state, site, need) | ({"corrupt": broken} if broken else {}) | {"rev": rev}
        return Outcome(reply, subject=at)
    profile: Stored = doc.value
    fresh = freshness(profile, today_at(profile, context))
    missing = [name for name in need if not _read(profile, name)[0]]
    refresh = [name for name in fresh.refresh if not need or name in {asked.partition(".")[0] for asked in need}]
    reply = {
        "state": fresh.state,
        "site": site,
        "age_days": fresh.age_days,
        **_view(profile, notes="notes" in need),
        "missing": missing,
        "refresh": refresh,
        "calls": _calls([*refresh, *missing]),
        "ownership": "unchecked",
        "warnings": [
            *_old_warnings(profile, site),
            *(warning(pointer, "is there twice; the last one counts") for pointer in doc.duplicates),
        ],
        "rev": rev,
    }
    return Outcome(reply, subject=at)


def _nothing(state: str, site: str | None, need: Sequence[str]) -> dict[str, Any]:
    wanted = [name for name in tables.REFRESHABLE if not need or name in {asked.partition(".")[0] for asked in need}]
    return {
        "state": state,
        "site": site,
        "age_days": None,
        "profile": None,
        "missing": list(need),
        "refresh": wanted,
        "calls": _calls(wanted),
        "ownership": "unchecked",
        "warnings": [],
        "untrusted": [],
    }


def draw_get(reply: Any, width: int) -> str:
    """`profile get` for a terminal."""
    age = reply["age_days"]
    state = reply["state"] + (f", {age} day{'' if age == 1 else 's'} old" if age is not None else "")
    rows: list[tuple[str, Any]] = [("site", reply["site"])] if reply["site"] is not None else []
    rows.append(("state", state if reply["state"] != "absent" else "no profile yet"))
    if "corrupt" in reply:
        broken = reply["corrupt"]
        rows.append(("problem", f"line {broken['line']}, column {broken['column']}: {broken['problem']}"))
    rows.extend((reply["profile"] or {}).items())
    rows.extend((name, ", ".join(reply[name])) for name in ("missing", "refresh", "calls") if reply[name])
    notes = (reply.get("notes") or {}).get("text")
    if notes is not None:
        rows.append(("notes (history)", notes))
    rows.extend(warning_rows(reply["warnings"]))
    return pairs(rows, width)


# profile put --------------------------------------------------------------------------------------------------------


class Put(Common, kw_only=True):
    why: Annotated[
        Literal["discovery", "learned", "contradiction", "user"],
        Meta(
            description="Discovery: its calls were made (moves the date); learned: these values were just seen; "
            "contradiction: the data does not fit the profile; user: the user said so."
        ),
    ]
    data: Annotated[dict[str, Any], Meta(description="The fields to set, as a JSON object.")]


def put(docs: Docs, params: Put, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.PROFILE)
    where = f"{site} {tables.PROFILE}"
    doc = docs.json(at)
    refuse_corrupt(where, doc)
    stored: Stored = doc.value if doc.exists else {}
    today = today_at({**stored, **params.data}, context)
    warnings = refuse_personal(where, params.data, _EVENT_NAMES)
    data, moved = _legacy(params.data)
    warnings.extend(moved)
    stamps = params.why == "discovery" or not doc.exists
    _refuse_mistakes(where, site, data, stored, today if stamps else None)
    profile = _joined(stored or {"site_id": site}, data)
    changed = _differences(stored, profile)
    profile["site_id"] = site
    _date(profile, stored, data, params.why, today, doc)
    if not doc.exists:
        refuse_plugin(docs, context.root, site)
    for name in _differences(stored, profile):
        if name not in changed and name != "extra":
            changed.append(name)
    warnings.extend(_stored_warnings(profile, data))
    return _written(docs, doc, at, profile, {"changed": changed, **_view(profile), "warnings": warnings}, site)


_EVENT_NAMES = frozenset(("events", "thresholds", "scheduling_offered"))
"""Fields whose keys are names (a role may be called `phone`)."""


def _legacy(data: Stored) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Old releases kept a second identifier in `account_id`. It is kept where it misleads nobody."""
    value = data.get("account_id")
    if not (isinstance(value, str) and value.startswith("acct_")):
        return dict(data), []
    rest = {name: member for name, member in data.items() if name != "account_id"}
    extra = rest.get("extra", {})
    if isinstance(extra, Mapping):
        rest["extra"] = {**extra, "legacy_account_id": value}
    meant = "extra.legacy_account_id"
    return rest, [warning("account_id", "is no second identifier; it was kept as a note of the past", meant)]


def _refuse_mistakes(where: str, site: str, data: Stored, stored: Stored, stamped: date | None) -> None:
    """`stamped` is the date that this write will set, None when it leaves the date alone."""
    extra = data.get("extra")
    found: list[Problem] = []
    for name, value in data.items():
        if value is None and name != "product_identifier":
            found.append(Problem(name, "cannot be null", f"profile unset {name}"))
    # In the fields that are maps, null removes a member and so is no value to be checked.
    checked = {
        name: {key: member for key, member in value.items() if member is not None}
        if name in tables.PROFILE_MAPS and isinstance(value, Mapping)
        else value
        for name, value in data.items()
        if value is not None or name == "product_identifier"
    }
    known = [name for name in stored if name not in field_names(Profile)]
    for problem in problems(Profile, checked, renamed=tables.PROFILE_RENAMED, known=known, partial=True):
        if not problem.meant and problem.field not in field_names(Profile) and problem.field in data:
            problem = problem._replace(meant=f"extra.{problem.field}")
        found.append(problem)
    if data.get("site_id", site) != site and "site_id" not in {problem.field for problem in found}:
        found.append(Problem("site_id", "names another site than the call does", "--site"))
    if stored.get("site_id", site) != site:
        found.append(Problem("site_id", _FOREIGN))
    given = day_of(data.get(STAMP))
    if given is not None and data[STAMP] != stored.get(STAMP) and not _means(given, stamped):
        found.append(Problem(STAMP, "is set by the daemon, when the file is made and by --why discovery; leave it out"))
    if isinstance(extra, Mapping) and OWN in extra and extra[OWN] != _own(stored):
        found.append(Problem(f"extra.{OWN}", "belongs to the daemon; leave it out"))
    if found:
        raise refusal(where, list(dict.fromkeys(found)))


def _means(given: date, stamped: date | None) -> bool:
    # Where the caller's day is not the site's, a day to either side means today.
    return stamped is not None and abs((given - stamped).days) <= 1


_FOREIGN = "of the stored profile names another site: this may be another account's state"


def _joined(stored: Stored, data: Stored) -> dict[str, Any]:
    """The stored fields with the given ones: whole values, but maps joined member by member."""
    profile = dict(stored)
    for name, value in data.items():
        if name == STAMP:
            continue
        if name in tables.PROFILE_MAPS and isinstance(value, Mapping):
            before = stored.get(name)
            members = dict(before) if isinstance(before, Mapping) else {}
            for key, member in value.items():
                if member is None:
                    members.pop(key, None)
                else:
                    members[key] = member
            if members or name in stored:
                profile[name] = members
        else:
            profile[name] = value
    return profile


def _date(profile: dict[str, Any], stored: Stored, data: Stored, why: str, today: date, doc: JsonText) -> None:
    """The daemon's own dates."""
    day = today.isoformat()
    own = dict(_own(profile))
    fields = [name for name in tables.REFRESHABLE if name in data]
    if not doc.exists or why == "discovery":
        profile[STAMP] = day
        own.pop("refreshed", None)
        own.pop("contradicted", None)
    if doc.exists and why == "contradiction":
        # What was refreshed before the contradiction is as doubtful as the rest.
        own["contradicted"] = day
        own["refreshed"] = dict.fromkeys(fields, day)
    elif doc.exists and why == "learned" and fields and not _all_of_today(stored, today):
        refreshed = own.get("refreshed")
        own["refreshed"] = {**(refreshed if isinstance(refreshed, Mapping) else {}), **dict.fromkeys(fields, day)}
    extra = profile.get("extra")
    members = dict(extra) if isinstance(extra, Mapping) else {}
    if own:
        members[OWN] = own
    else:
        members.pop(OWN, None)
    if members or "extra" in profile:
        profile["extra"] = members
    if not members and "extra" not in data and _own(stored):
        profile.pop("extra", None)


def _all_of_today(stored: Stored, today: date) -> bool:
    return stored.get(STAMP) == today.isoformat() and "contradicted" not in _own(stored)


def _differences(stored: Stored, profile: Stored) -> list[str]:
    names = list(dict.fromkeys([*stored, *profile]))
    return [
        name for name in names if name not in profile or name not in stored or not _same(stored[name], profile[name])
    ]


def _same(left: Any, right: Any) -> bool:
    """Equality of parsed values in which true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _stored_warnings(profile: Stored, data: Stored) -> list[dict[str, str]]:
    """Old mistakes in fields that this call did not bring: told, never a reason to refuse it."""
    found = problems(Profile, profile, known=list(profile))
    return [
        warning(problem.field, problem.problem, problem.meant)
        for problem in found
        if problem.field.partition(".")[0] not in data
    ]


def _written(docs: Docs, doc: JsonText, at: Any, profile: Stored, reply: dict[str, Any], site: str) -> Outcome:
    reply = {"site": site, **reply}
    stored = doc.value if doc.exists else {}
    if doc.exists and not _differences(stored, profile):
        return Outcome({**reply, "rev": docs.rev(at)}, subject=at)
    try:
        content = json_text.edit(doc, profile)
    except json_text.Unwritable as error:
        raise Refused(error.reason, where=f"{site} {tables.PROFILE}", hint="nothing was written") from error
    return Outcome(reply, (Write(at, content),), subject=at)


# profile unset ------------------------------------------------------------------------------------------------------


class Unset(Common, kw_only=True):
    field: Annotated[
        str,
        Meta(
            description="The field to remove, or one member of a field that is an object: `events.view`.",
            extra={"positional": True, "metavar": "FIELD"},
        ),
    ]


def unset(docs: Docs, params: Unset, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.PROFILE)
    where = f"{site} {tables.PROFILE}"
    name = params.field
    if name in ("site_id", STAMP) or name == f"extra.{OWN}" or name.startswith(f"extra.{OWN}."):
        reason = "a profile needs it" if name in ("site_id", STAMP) else "belongs to the daemon"
        raise refusal(where, [Problem(name, f"cannot be removed: {reason}")])
    doc = docs.json(at)
    refuse_corrupt(where, doc)
    if not doc.exists:
        nothing: dict[str, Any] = {"changed": [], "profile": None, "untrusted": [], "warnings": []}
        return Outcome({"site": site, **nothing, "rev": docs.rev(at)}, subject=at)
    stored: Stored = doc.value
    profile = dict(stored)
    if _read(stored, name)[0]:
        top, _, member = name.partition(".")
        if name in stored:
            own = _own(stored)
            if name == "extra" and own:
                profile["extra"] = {OWN: own}
            else:
                del profile[name]
        else:
            profile[top] = {key: value for key, value in stored[top].items() if key != member}
    changed = [name] if _differences(stored, profile) else []
    return _written(docs, doc, at, profile, {"changed": changed, **_view(profile), "warnings": []}, site)


def draw_change(reply: Any, width: int) -> str:
    """`profile put` and `profile unset` for a terminal."""
    rows: list[tuple[str, Any]] = [("site", reply["site"]), ("changed", ", ".join(reply["changed"]) or "nothing")]
    rows.extend(warning_rows(reply["warnings"]))
    return pairs(rows, width)


# offer --------------------------------------------------------------------------------------------------------------


class Offer(Common, kw_only=True):
    schedule: Annotated[
        str,
        Meta(
            description="The schedule that is about to be offered, such as monday_briefing.",
            extra={"positional": True, "metavar": "SCHEDULE"},
        ),
    ]


def offer(docs: Docs, params: Offer, context: Context) -> Outcome:
    """Look and mark in one place of the queue: of any number of askers exactly one is the first."""
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.PROFILE)
    where = f"{site} {tables.PROFILE}"
    # `monday-briefing` is the skill and `monday_briefing` its schedule: two spellings would be two offers.
    schedule = params.schedule.replace("-", "_")
    if not (schedule.isascii() and schedule.isidentifier() and len(schedule) <= 64):
        raise Refused(
            "a schedule is named by letters, digits and `_`", where="SCHEDULE", hint="such as monday_briefing"
        )
    doc = docs.json(at)
    refuse_corrupt(where, doc)
    stored: Stored = doc.value if doc.exists else {}
    offered = stored.get("scheduling_offered", {})
    if not isinstance(offered, Mapping) or not isinstance(offered.get(schedule, False), bool):
        raise refusal(where, problems(Profile, {"scheduling_offered": offered}, partial=True))
    if stored.get("site_id", site) != site:
        raise refusal(where, [Problem("site_id", _FOREIGN)])
    if offered.get(schedule, False):
        reply = {"site": site, "schedule": schedule, "first": False, "untrusted": [], "rev": docs.rev(at)}
        return Outcome(reply, subject=at)
    profile = {**stored, "site_id": site, "scheduling_offered": {**offered, schedule: True}}
    if not doc.exists:
        refuse_plugin(docs, context.root, site)
        profile[STAMP] = today_at(None, context).isoformat()
    return _written(docs, doc, at, profile, {"schedule": schedule, "first": True, "untrusted": []}, site)
