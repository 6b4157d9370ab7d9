"""`recommendations.jsonl`: the ledger that turns a report into a track record.

What may be relied on:

- Whatever reads the ledger before it writes is one call in one place of the queue: of two processes that add, settle or
  escalate the same thing at the same instant, one does it and the other is told that it is done.
- An add appends its own line. Every later change rewrites the bytes of that one line and no other; fields that this
  release does not know stay in it.
- The ledger on the disk is what counts. An entry that a person changed between `rec due` and `rec settle` is judged as
  it now stands; one that was removed or cannot be read is never settled from memory.
- What has to be remembered of an entry (`measured`, `closed_on`, `extended_on`, `escalated_on`) is in its own line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Context as DecimalContext
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from stated.documents import json_lines, json_text
from stated.documents.json_lines import JsonLines
from stated.domain import Append, At, Context, Docs, EditLine, Outcome, Refused, Usage
from stated.domains.seal import tables
from stated.domains.seal.common import (
    Common,
    grid,
    pairs,
    refusal,
    refuse_personal,
    skill_warnings,
    span,
    warning,
    warning_rows,
)
from stated.domains.seal.ledger import (
    Impact,
    Record,
    decimal_of,
    extension,
    finding_key,
    grade,
    growth,
    id_of,
    impact_of,
    is_id,
    judge,
    number_of,
    progress,
    slug,
)
from stated.domains.seal.profile import stored_profile, today_at
from stated.domains.seal.records import Problem, Recommendation, day_of, field_names, problems
from stated.domains.seal.sites import known_site, place, refuse_plugin, site_of, skill_of

PROBLEMS_SHOWN = 20
Status = Literal["open", "verified", "failed", "discarded"]
STATUSES: tuple[Status, ...] = ("verified", "failed", "open", "discarded")

UNTRUSTED = ("subject", "evidence", "action", "metric", "notes")
"""Fields that quote campaign names, terms and pages, which strangers write."""

OWN = ("measured", "closed_on", "extended_on", "escalated_on")
"""Fields that the daemon alone writes."""


class _Ledger(NamedTuple):
    """One site's ledger as a call sees it."""

    site: str
    at: At
    doc: JsonLines
    profile: Mapping[str, Any]
    today: date

    @property
    def where(self) -> str:
        return f"{self.site} {tables.RECOMMENDATIONS}"

    @property
    def records(self) -> list[Record]:
        return [value for _, value in self.doc.records]

    @property
    def currency(self) -> str | None:
        """The currency that the site reports in; never one by default."""
        currency = self.profile.get("currency")
        return currency if not _wrong("currency", currency) else None


def _open(docs: Docs, site: str, context: Context) -> _Ledger:
    at = place(context, site, tables.RECOMMENDATIONS)
    profile = stored_profile(docs, site, context)
    return _Ledger(site, at, docs.lines(at), profile, today_at(profile, context))


def _wrong(name: str, value: Any) -> list[Problem]:
    return problems(Recommendation, {name: value}, partial=True)


# Reading ------------------------------------------------------------------------------------------------------------


def _read(
    docs: Docs, given: str | None, context: Context, reply: Callable[[_Ledger], dict[str, Any]], empty: dict[str, Any]
) -> Outcome:
    """A reader's answer; without any site there is nothing, and that is one."""
    site = known_site(docs, given, context)
    if site is None:
        return Outcome(
            {"site": None, **empty, "bad_lines": 0, "problems": [], "untrusted": list(UNTRUSTED), "rev": None}
        )
    ledger = _open(docs, site, context)
    return Outcome(
        {
            "site": site,
            **reply(ledger),
            "bad_lines": len(ledger.doc.bad),
            "problems": _faults(ledger.doc)[:PROBLEMS_SHOWN],
            "untrusted": list(UNTRUSTED),
            "rev": docs.rev(ledger.at),
        },
        subject=ledger.at,
    )


def _faults(doc: JsonLines) -> list[dict[str, Any]]:
    """Why an entry may be missing from an answer: lines that cannot be read, and open entries that never fall due."""
    found = [{"line": line.number, "problem": line.problem} for line in doc.bad]
    first: dict[str, int] = {}
    for number, record in doc.records:
        if record.get("status") not in STATUSES:
            found.append({"line": number, "problem": "`status` is none of the contract's"})
        elif record["status"] == "open" and day_of(record.get("verify_on")) is None:
            found.append({"line": number, "problem": "`verify_on` is no date: this entry never falls due"})
        name = record.get("id")
        if isinstance(name, str) and first.setdefault(name, number) != number:
            found.append({"line": number, "problem": f"`id` is the same as in line {first[name]}"})
    return sorted(found, key=lambda row: row["line"])


def due_entries(records: Iterable[Record], today: date) -> list[tuple[date, Record]]:
    """The open entries whose day has come, longest waiting first."""
    found = []
    for record in records:
        day = day_of(record.get("verify_on"))
        if record.get("status") == "open" and day is not None and day <= today:
            found.append((day, record))
    found.sort(key=lambda row: row[0])
    return found


class Due(Common, kw_only=True):
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None, Meta(description="At most so many; the others wait.")
    ] = None


def due(docs: Docs, params: Due, context: Context) -> Outcome:
    def reply(ledger: _Ledger) -> dict[str, Any]:
        found = due_entries(ledger.records, ledger.today)
        entries = [
            {**record, "days_overdue": (ledger.today - day).days, "extended": record.get("extended_on") is not None}
            for day, record in found[: params.limit]
        ]
        return {"entries": entries, "due": len(found), "today": ledger.today.isoformat()}

    today = today_at(None, context).isoformat()
    return _read(docs, params.site, context, reply, {"entries": [], "due": 0, "today": today})


class List(Common, kw_only=True):
    status: Annotated[Status | None, Meta(description="Only the entries with this status.")] = None


def list_(docs: Docs, params: List, context: Context) -> Outcome:
    def reply(ledger: _Ledger) -> dict[str, Any]:
        return {
            "entries": [row for row in ledger.records if params.status is None or row.get("status") == params.status]
        }

    return _read(docs, params.site, context, reply, {"entries": []})


class TrackRecord(Common, kw_only=True):
    pass


_TOLD = (
    "id", "date", "status", "skill", "pattern", "subject", "action", "metric", "baseline", "target", "measured",
    "verify_on", "closed_on", "extended_on", "escalated_on", "impact_eur_month", "impact_month", "currency",
)  # fmt: skip


def record(docs: Docs, params: TrackRecord, context: Context) -> Outcome:
    def reply(ledger: _Ledger) -> dict[str, Any]:
        known = [row for row in ledger.records if row.get("status") in STATUSES]
        known.sort(key=lambda row: STATUSES.index(row["status"]))
        return {
            "counts": {status: sum(row["status"] == status for row in known) for status in STATUSES},
            "verified_impact": _totals(row for row in known if row["status"] == "verified"),
            "entries": [{name: row[name] for name in _TOLD if name in row} for row in known],
        }

    empty = {"counts": dict.fromkeys(STATUSES, 0), "verified_impact": [], "entries": []}
    return _read(docs, params.site, context, reply, empty)


def _totals(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One total for each currency: they are never added up."""
    totals: dict[str | None, list[Fraction]] = {}
    for row in records:
        impact = impact_of(row)
        if impact is not None:
            totals.setdefault(impact.currency, []).append(Fraction(impact.number))
    return [
        {"currency": currency, "impact_month": _exact(sum(amounts, Fraction()))}
        for currency, amounts in sorted(totals.items(), key=lambda row: row[0] or "~")
    ]


def _exact(number: Fraction) -> Decimal:
    """A sum of decimals is a decimal, and 60 digits are enough for money."""
    return _WIDE.divide(Decimal(number.numerator), Decimal(number.denominator))


_WIDE = DecimalContext(prec=60)


class Check(Common, kw_only=True):
    pattern: Annotated[str, Meta(min_length=1, description="The pattern that was found.")]
    subject: Annotated[str, Meta(min_length=1, description="What it was found in, such as a campaign.")]
    impact: Annotated[Decimal, Meta(description="What it is worth a month.")]
    currency: Annotated[
        str | None, Meta(description="The currency of the impact. Left out: the profile's.", extra={"metavar": "EUR"})
    ] = None


def check(docs: Docs, params: Check, context: Context) -> Outcome:
    if params.currency is not None and _wrong("currency", params.currency):
        raise refusal("--currency", _wrong("currency", params.currency), hint="nothing was read")

    def reply(ledger: _Ledger) -> dict[str, Any]:
        impact = Impact(params.impact, params.currency or ledger.currency)
        found = judge(ledger.records, params.pattern, params.subject, impact, ledger.today)
        return {
            "decision": found.decision,
            "id": found.entry.get("id") if found.entry is not None else None,
            "since": found.entry.get("date") if found.entry is not None else None,
            "until": found.until.isoformat() if found.until is not None else None,
        }

    return _read(docs, params.site, context, reply, {"decision": "new", "id": None, "since": None, "until": None})


# rec add --------------------------------------------------------------------------------------------------------------


class Add(Common, kw_only=True):
    pattern: Annotated[str | None, Meta(description="The pattern that was found, such as leaky-campaign.")] = None
    subject: Annotated[str | None, Meta(description="What it was found in, such as a campaign.")] = None
    evidence: Annotated[str | None, Meta(description="The numbers that show it.")] = None
    action: Annotated[str | None, Meta(description="What to do.")] = None
    metric: Annotated[str | None, Meta(description="What must move.")] = None
    baseline: Annotated[Decimal | None, Meta(description="From where it must move.")] = None
    target: Annotated[Decimal | None, Meta(description="To where it must move.")] = None
    impact: Annotated[Decimal | None, Meta(description="What it is worth a month.")] = None
    currency: Annotated[
        str | None, Meta(description="The currency of the impact. Left out: the profile's.", extra={"metavar": "EUR"})
    ] = None
    verify_on: Annotated[str | None, Meta(description="The day to measure again.", extra={"metavar": "YYYY-MM-DD"})] = (
        None
    )
    verify_in: Annotated[
        str | None,
        Meta(
            description="The same as a length of time: 2w to 4w, or a hotel's booking cycle.", extra={"metavar": "28d"}
        ),
    ] = None
    notes: Annotated[str | None, Meta(description="One line.")] = None
    id: Annotated[str | None, Meta(description="An id of your own. Left out: made of date, pattern and subject.")] = (
        None
    )
    data: Annotated[
        dict[str, Any] | None, Meta(description="The whole record as a JSON object, in place of the flags.")
    ] = None


_FLAGS = (
    "pattern", "subject", "evidence", "action", "metric", "baseline", "target", "currency", "verify_on",
    "notes", "id",
)  # fmt: skip


def add(docs: Docs, params: Add, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    ledger = _open(docs, site, context)
    given, wait = _given(params)
    skill = skill_of(params.skill, context)
    if skill is not None and "skill" not in given:
        given["skill"] = skill
    warnings = refuse_personal(ledger.where, given)
    draft, found = _completed(given, wait, ledger)
    if params.skill is not None and draft.get("skill") != params.skill:
        found.append(Problem("skill", "is another one than --skill says"))
    if found:
        raise refusal(ledger.where, found)
    impact = impact_of(draft)
    assert impact is not None  # its absence is one of the problems
    warnings.extend([*skill_warnings(draft["skill"]), *_oddities(draft, impact, ledger)])
    verdict = judge(ledger.records, draft["pattern"], draft["subject"], impact, ledger.today)
    if verdict.decision == "escalate" and verdict.entry is not None:
        return _escalated(docs, ledger, verdict.entry, impact, {"status": "escalate"}, warnings)
    twin = _with_id(ledger, draft.get("id")) or _made_before(ledger, draft)
    if twin is not None:
        return _untouched(docs, ledger, twin, {"status": "duplicate"}, warnings)
    if verdict.entry is not None:
        until = verdict.until.isoformat() if verdict.until is not None else None
        if verdict.decision == "incomparable":
            warnings.append(warning("currency", "cannot be compared with the open entry's: its growth is not known"))
        return _untouched(docs, ledger, verdict.entry, {"status": "suppressed", "until": until}, warnings)
    if "id" not in draft:
        draft["id"] = _free_id(ledger, draft)
    refuse_plugin(docs, context.root, site)
    entry = {name: draft[name] for name in _ORDER if name in draft}
    reply = {
        "site": site,
        "id": entry["id"],
        "status": "created",
        "since": None,
        "until": None,
        "entry": entry,
        "warnings": warnings,
        "untrusted": list(UNTRUSTED),
    }
    return Outcome(reply, (Append(ledger.at, json_lines.encode_line(entry)),), subject=ledger.at)


_ORDER = (
    "id", "date", "skill", "pattern", "subject", "evidence", "action", "impact_eur_month", "impact_month", "currency",
    "metric", "baseline", "target", "verify_on", "status", "notes",
)  # fmt: skip
"""The contract's own order."""


def _given(params: Add) -> tuple[dict[str, Any], timedelta | None]:
    wait = span(params.verify_in, "--verify-in") if params.verify_in is not None else None
    flags = {name: getattr(params, name) for name in _FLAGS if getattr(params, name) is not None}
    if params.impact is not None:
        # Which field of the record it fills depends on the currency.
        flags["impact_month"] = params.impact
    if params.data is not None:
        if flags:
            name = next(iter(flags)).removesuffix("_month").replace("_", "-")
            raise Usage(
                f"--data is the whole record; it does not go with --{name}",
                where="rec add",
                hint="give the flags or --data",
            )
        flags = dict(params.data)
    if wait is not None and "verify_on" in flags:
        raise Usage("stands beside verify_on", where="--verify-in", hint="give one of the two")
    return flags, wait


def _completed(
    given: Mapping[str, Any], wait: timedelta | None, ledger: _Ledger
) -> tuple[dict[str, Any], list[Problem]]:
    """The record with what the daemon knows, and all that is wrong with it. Nothing measured is ever made up."""
    draft = {"date": ledger.today.isoformat(), "status": "open", **given}
    found: list[Problem] = []
    if "impact_eur_month" in draft and "impact_month" in draft:
        found.append(Problem("impact_month", "stands beside impact_eur_month: a record has one amount"))
    elif "impact_eur_month" in draft and draft.get("currency", "EUR") != "EUR":
        found.append(Problem("currency", "is not the one that impact_eur_month has", "impact_month"))
    elif "impact_month" in draft and number_of(draft["impact_month"]) is not None:
        currency = draft.pop("currency", None) or ledger.currency
        found.extend(_wrong("currency", currency) if currency is not None else [])
        amount = Impact(draft.pop("impact_month"), currency)
        draft.update(amount.fields())
    elif "impact_eur_month" in draft:
        draft.pop("currency", None)
    elif "impact_month" not in draft:
        found.append(Problem("impact_eur_month", "is missing", "--impact"))
    issued = day_of(draft["date"])
    if "verify_on" not in draft and wait is not None and issued is not None:
        draft["verify_on"] = (issued + wait).isoformat()
    for name in OWN:
        if name in draft:
            found.append(Problem(name, "is written by the daemon alone; leave it out"))
    if draft["status"] != "open":
        found.append(Problem("status", "of a new entry is open", "rec settle, rec discard"))
    known = {name: value for name, value in draft.items() if name not in OWN and name != "status"}
    missing = ["id"] if "id" not in known else []
    for problem in problems(Recommendation, {**known, "status": "open"}, renamed=tables.RECOMMENDATION_RENAMED):
        if problem.field not in missing and problem.field not in {row.field for row in found}:
            found.append(_hinted(problem))
    bad = {problem.field for problem in found}
    if "id" in draft and "id" not in bad and not is_id(draft["id"]):
        found.append(Problem("id", "must be a slug of small letters, digits and `-`", slug(draft["id"])))
    if issued is not None and issued > ledger.today:
        found.append(Problem("date", "lies in the future; leave it out for today"))
    verify = day_of(draft.get("verify_on"))
    if issued is not None and verify is not None and verify <= issued:
        found.append(Problem("verify_on", "must lie after the date of the recommendation"))
    ends = number_of(draft.get("baseline")), number_of(draft.get("target"))
    if ends[0] is not None and ends[0] == ends[1]:
        found.append(Problem("target", "is the baseline: nothing could ever verify it"))
    return draft, found


def _hinted(problem: Problem) -> Problem:
    if problem.problem == "is missing":
        if problem.field == "verify_on":
            return problem._replace(meant="--verify-in 28d")
        if problem.field == "skill":
            return problem._replace(meant="--skill or STATED_SKILL")
    return problem


def _oddities(draft: Record, impact: Impact, ledger: _Ledger) -> list[dict[str, str]]:
    """What is allowed and still worth a second look."""
    found = []
    issued, verify = day_of(draft["date"]), day_of(draft["verify_on"])
    assert issued is not None
    assert verify is not None
    shortest, longest = tables.VERIFY_DAYS
    days = (verify - issued).days
    if days < shortest or (days > longest and ledger.profile.get("vertical") != "hotels"):
        found.append(warning("verify_on", f"is {days} days away; {shortest} to {longest} are usual"))
    if impact.currency is None:
        found.append(warning("currency", "is not known: this amount cannot be compared with any other", "--currency"))
    elif ledger.currency is not None and ledger.currency != impact.currency:
        found.append(warning("currency", f"is another one than the site reports in ({ledger.currency})"))
    if ledger.doc.bad:
        lines = ", ".join(str(line.number) for line in ledger.doc.bad[:PROBLEMS_SHOWN])
        found.append(warning("", f"what stands in line {lines} of the ledger cannot be read and was not compared"))
    return found


def _with_id(ledger: _Ledger, name: Any) -> Record | None:
    return next((row for row in ledger.records if name is not None and row.get("id") == name), None)


def _made_before(ledger: _Ledger, draft: Record) -> Record | None:
    """The entry that the same add made before: of the same finding and the same day."""
    key, day = finding_key(draft), draft["date"]
    if "id" in draft:
        return None
    return next((row for row in ledger.records if row.get("date") == day and finding_key(row) == key), None)


def _free_id(ledger: _Ledger, draft: Record) -> str:
    """Two findings may have one slug (`a-b` of `c`, `a` of `b-c`): the second one gets a number."""
    issued = day_of(draft["date"])
    assert issued is not None
    taken = {row.get("id") for row in ledger.records}
    name = id_of(issued, draft["pattern"], draft["subject"])
    number = 2
    free = name
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _untouched(
    docs: Docs, ledger: _Ledger, entry: Record, answer: dict[str, Any], warnings: Sequence[dict[str, str]] = ()
) -> Outcome:
    """An answer that changes nothing, about an entry that is there."""
    reply = {
        "site": ledger.site,
        "id": entry.get("id"),
        "since": entry.get("date"),
        "until": None,
        **answer,
        "entry": dict(entry),
        "warnings": list(warnings),
        "untrusted": list(UNTRUSTED),
        "rev": docs.rev(ledger.at),
    }
    return Outcome(reply, subject=ledger.at)


# Finding and changing one entry ---------------------------------------------------------------------------------------


def _entry(ledger: _Ledger, name: str) -> tuple[int, Record]:
    """The line of an entry. Says what became of one that is not there, as far as the file tells."""
    found = [(number, row) for number, row in ledger.doc.records if row.get("id") == name]
    if len(found) == 1:
        return found[0]
    if found:
        lines = " and ".join(str(number) for number, _ in found)
        raise Refused(
            f"the id stands in lines {lines}; which of them is meant cannot be told",
            where=ledger.where,
            hint="remove or rename one by hand; nothing was written",
            data={"lines": [number for number, _ in found]},
        )
    for line in ledger.doc.bad:
        if name and name.encode("utf-8", "replace") in line.raw:
            raise Refused(
                f"line {line.number}, which names this id, cannot be read: {line.problem}",
                where=ledger.where,
                hint="correct that line by hand (`statectl doctor` shows it); nothing was written",
                data={"line": line.number, "problem": line.problem},
            )
    unread = f"; {len(ledger.doc.bad)} lines cannot be read" if ledger.doc.bad else ""
    raise Refused(
        f"there is no entry with this id{unread}",
        where=ledger.where,
        hint="`seal rec list` shows those that are there; if it was there before, it was removed by hand",
        data={"bad_lines": len(ledger.doc.bad)},
    )


def _edited(ledger: _Ledger, number: int, entry: Record) -> EditLine:
    """The change that rewrites this entry's own line."""
    old = next(line.raw for line in ledger.doc.lines if line.number == number)
    try:
        new = json_lines.edit_line(ledger.doc, number, dict(entry))
    except json_text.Unwritable as error:
        raise Refused(error.reason, where=ledger.where, hint="correct it by hand; nothing was written") from error
    return EditLine(ledger.at, number, old, new)


class _Id(Common, kw_only=True):
    id: Annotated[str, Meta(description="The entry's id.", extra={"positional": True, "metavar": "ID"})]


# rec settle -----------------------------------------------------------------------------------------------------------


class Settle(_Id, kw_only=True):
    measured: Annotated[Decimal | None, Meta(description="What the metric is now.")] = None
    unavailable: Annotated[
        str | None, Meta(description="Why it could not be measured: nothing changes.", extra={"metavar": "WHY"})
    ] = None


def settle(docs: Docs, params: Settle, context: Context) -> Outcome:
    if (params.measured is None) == (params.unavailable is None):
        raise Usage("needs either --measured or --unavailable", where="rec settle")
    ledger = _open(docs, site_of(docs, params.site, context), context)
    number, entry = _entry(ledger, params.id)

    def answer(outcome: str, share: Fraction | None, told: Record) -> dict[str, Any]:
        return {
            "site": ledger.site,
            "id": params.id,
            "outcome": outcome,
            "progress": decimal_of(share) if share is not None else None,
            "verify_on": told.get("verify_on"),
            "status": told.get("status"),
            "entry": dict(told),
            "warnings": [],
            "untrusted": list(UNTRUSTED),
        }

    def unchanged(outcome: str) -> Outcome:
        return Outcome({**answer(outcome, None, entry), "rev": docs.rev(ledger.at)}, subject=ledger.at)

    if entry.get("status") in STATUSES and entry["status"] != "open":
        return unchanged("unchanged")
    wrong = [
        problem
        for name in ("status", "verify_on", "baseline", "target")
        for problem in (_wrong(name, entry[name]) if name in entry else [Problem(name, "is missing")])
    ]
    if wrong:
        raise refusal(f"{ledger.where} line {number}", wrong, hint="correct it by hand; nothing was written")
    verify_on = day_of(entry["verify_on"])
    assert verify_on is not None
    if verify_on > ledger.today:
        return unchanged("not_due")
    if params.measured is None:
        return unchanged("unchanged")
    if entry["baseline"] == entry["target"]:
        raise refusal(
            f"{ledger.where} line {number}",
            [Problem("target", "is the baseline: nothing could verify it")],
            hint="correct it by hand, or `rec discard` it; nothing was written",
        )
    share = progress(entry["baseline"], entry["target"], params.measured)
    outcome = grade(share, extended=entry.get("extended_on") is not None)
    settled = {**entry, "measured": params.measured}
    if outcome == "extended":
        settled["verify_on"] = extension(verify_on, ledger.today).isoformat()
        settled["extended_on"] = ledger.today.isoformat()
    else:
        settled["status"] = outcome
        settled["closed_on"] = ledger.today.isoformat()
    return Outcome(answer(outcome, share, settled), (_edited(ledger, number, settled),), subject=ledger.at)


# rec escalate, rec discard --------------------------------------------------------------------------------------------


class Escalate(_Id, kw_only=True):
    impact: Annotated[Decimal, Meta(description="What it is worth a month now.")]
    currency: Annotated[
        str | None,
        Meta(description="Its currency. Left out: the profile's, else the entry's.", extra={"metavar": "EUR"}),
    ] = None


def escalate(docs: Docs, params: Escalate, context: Context) -> Outcome:
    ledger = _open(docs, site_of(docs, params.site, context), context)
    if params.currency is not None and _wrong("currency", params.currency):
        raise refusal("--currency", _wrong("currency", params.currency))
    number, entry = _entry(ledger, params.id)
    _refuse_closed(ledger, number, entry)
    recorded = impact_of(entry)
    currency = params.currency or ledger.currency or (recorded.currency if recorded is not None else None)
    impact = Impact(params.impact, currency)
    if impact == recorded and "escalated_on" in entry:
        return _untouched(docs, ledger, entry, {"status": "open"})
    grown = growth(recorded, impact)
    if grown == "incomparable":
        raise refusal(
            f"{ledger.where} line {number}",
            [Problem("currency", "of the entry and of the new impact differ, or one is not known", "--currency")],
        )
    if grown == "suppressed":
        raise refusal(
            f"{ledger.where} line {number}",
            [Problem("impact", "has not grown by half: this is no escalation yet")],
            hint="nothing was written",
        )
    return _escalated(docs, ledger, entry, impact, {"status": "open"})


def _escalated(
    docs: Docs,
    ledger: _Ledger,
    entry: Record,
    impact: Impact,
    answer: dict[str, Any],
    warnings: Sequence[dict[str, str]] = (),
) -> Outcome:
    """The growth is recorded on the open entry, so that it is not raised again for the same growth."""
    number = next(line for line, row in ledger.doc.records if row is entry)
    amount = "impact_eur_month" if "impact_eur_month" in entry else "impact_month"
    raised = {**entry, amount: impact.number, "escalated_on": ledger.today.isoformat()}
    reply = {
        "site": ledger.site,
        "id": entry.get("id"),
        "since": entry.get("date"),
        "until": None,
        **answer,
        "entry": raised,
        "warnings": list(warnings),
        "untrusted": list(UNTRUSTED),
    }
    return Outcome(reply, (_edited(ledger, number, raised),), subject=ledger.at)


class Discard(_Id, kw_only=True):
    why: Annotated[str, Meta(min_length=1, description="Why it is not wanted, in one line.")]


def discard(docs: Docs, params: Discard, context: Context) -> Outcome:
    ledger = _open(docs, site_of(docs, params.site, context), context)
    number, entry = _entry(ledger, params.id)
    warnings = refuse_personal(ledger.where, {"notes": params.why})
    if entry.get("status") == "discarded":
        return _untouched(docs, ledger, entry, {"status": "discarded"}, warnings)
    _refuse_closed(ledger, number, entry)
    before = entry.get("notes")
    notes = f"{before}; {params.why}" if isinstance(before, str) and before else params.why
    found = _wrong("notes", params.why) or _wrong("notes", notes)
    if found:
        raise refusal(ledger.where, found)
    closed = {**entry, "status": "discarded", "notes": notes, "closed_on": ledger.today.isoformat()}
    until = ledger.today + timedelta(days=tables.SUPPRESSED_DAYS)
    reply = {
        "site": ledger.site,
        "id": params.id,
        "since": entry.get("date"),
        "until": until.isoformat(),
        "status": "discarded",
        "entry": closed,
        "warnings": warnings,
        "untrusted": list(UNTRUSTED),
    }
    return Outcome(reply, (_edited(ledger, number, closed),), subject=ledger.at)


def _refuse_closed(ledger: _Ledger, number: int, entry: Record) -> None:
    if entry.get("status") != "open":
        found = _wrong("status", entry.get("status")) or [Problem("status", f"is {entry.get('status')}, not open")]
        raise refusal(f"{ledger.where} line {number}", found)


# For a terminal -------------------------------------------------------------------------------------------------------


def draw_entries(reply: Any, width: int) -> str:
    """`rec due`, `rec list` and `rec record` for a terminal."""
    if not reply["entries"]:
        text = "no recommendations"
    else:
        head = ("id", "status", "verify on", "baseline", "target", "measured", "action")
        rows = [
            [row.get(name.replace(" ", "_"), "-") for name in head] for row in reply["entries"] if isinstance(row, dict)
        ]
        text = grid(head, rows, width)
    for total in reply.get("verified_impact", ()):
        text += f"\nverified: {total['impact_month']} {total['currency'] or '(currency not known)'} a month"
    for row in reply["problems"]:
        text += f"\nline {row['line']}: {row['problem']}"
    return text


def draw_entry(reply: Any, width: int) -> str:
    """One entry after `rec add`, `rec settle`, `rec escalate` and `rec discard` for a terminal."""
    rows: list[tuple[str, Any]] = [("site", reply["site"]), ("answer", reply.get("outcome") or reply["status"])]
    rows.extend((name, reply[name]) for name in ("progress", "since", "until") if reply.get(name) is not None)
    rows.extend(
        (name, value) for name, value in reply["entry"].items() if name in _TOLD or name in field_names(Recommendation)
    )
    rows.extend(warning_rows(reply["warnings"]))
    return pairs(rows, width)
