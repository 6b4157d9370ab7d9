"""Runs that are under way: `run start`, `run count`, `run finish`, and what becomes of a run that is never finished.

What may be relied on:

- A run that is open is in memory alone. Its line reaches `runs.jsonl` once: when it is finished, or when it was given
  up. A run that was given up and finishes after all gets its own line in the place of the one that gave it up.
- Calls are counted in the queue, so that calls made in parallel all count. What a skill says about its own calls is
  compared with the count and never replaces it.
- A run is waited for until its lease has passed since its last sign of life (its start or its last counted call). Then
  it is logged as `error` with the calls that were counted. Where none were counted, or the ceiling is not known, no
  line is made up: the run shows in `run stats` as unfinished.
- A second run of a skill that is under way is never kept from starting: it is told of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stated.documents import json_lines
from stated.documents.json_text import Unwritable
from stated.domain import Append, Change, Context, Docs, EditLine, MemoryKind, Outcome, Refused, Remember
from stated.domains.seal import tables
from stated.domains.seal.common import Common, refusal, refuse_personal, skill_warnings, span, warning
from stated.domains.seal.records import Problem
from stated.domains.seal.runs import ceilings_of, is_over, judged, newest_first, stamp
from stated.domains.seal.sites import place, refuse_plugin, site_of, skill_of

OPEN_MOST = 200
"""Open runs of one site. A caller in a loop must not fill the journal."""

CLOSED_KEPT = 50
UNFINISHED_KEPT = 200

# What is remembered ---------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A run under way. `seen` is its last sign of life; `calls` is None until one was counted."""

    skill: str
    started: datetime
    seen: datetime
    lease: int
    pid: int = 0
    scheduled: bool = False
    budget: int | None = None
    calls: int | None = None
    tools: tuple[str, ...] = ()
    named: bool = False
    """Whether every counted call was counted with its tool's name."""

    def ended(self, now: datetime) -> bool:
        return now - self.seen >= timedelta(seconds=self.lease)


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is over. `line` is what was logged for one that was given up; `run` what was known of it."""

    how: Literal["finished", "given up"]
    at: datetime
    line: str | None = None
    run: Started | None = None


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    skill: str
    started: datetime


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one site that are not in its log, or were put there by the daemon."""

    open: dict[str, Started] = {}
    closed: dict[str, Closed] = {}
    unfinished: list[Unfinished] = []


MEMORIES = (
    MemoryKind(
        "runs",
        "Runs that were started and not yet finished, and those that never were",
        "runs under way can no longer be counted or finished (log them with `run log`), and `run stats` shows no "
        "unfinished ones",
    ),
    MemoryKind(
        "open-sites",
        "The sites of a state directory that have runs under way",
        "runs under way are not given up when their lease has passed, until the next run of their site starts",
    ),
)


def book_of(docs: Docs, root: str, site: str) -> Book:
    """What is remembered of a site's runs. What cannot be understood (of another release) counts as forgotten."""
    value = docs.memory("runs", f"{root}/{site}")
    try:
        return msgspec.convert(value, Book) if value is not None else Book()
    except msgspec.ValidationError:
        return Book()


def _remembered(root: str, site: str, book: Book) -> Remember:
    recent = sorted(book.closed.items(), key=lambda row: row[1].at)[-CLOSED_KEPT:]
    kept = msgspec.structs.replace(book, closed=dict(recent), unfinished=book.unfinished[-UNFINISHED_KEPT:])
    empty = not (kept.open or kept.closed or kept.unfinished)
    return Remember("runs", f"{root}/{site}", None if empty else msgspec.to_builtins(kept))


def _open_sites(docs: Docs, root: str) -> list[str]:
    value = docs.memory("open-sites", root)
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _listed(docs: Docs, root: str, site: str, book: Book) -> Iterator[Remember]:
    """The list of sites is what `upkeep` goes through: memory documents have no directory of their own."""
    sites = _open_sites(docs, root)
    wanted = sorted({*sites, site} if book.open else {*sites} - {site})
    if wanted != sites:
        yield Remember("open-sites", root, wanted or None)


# run start ------------------------------------------------------------------------------------------------------------


class Start(Common, kw_only=True):
    scheduled: Annotated[bool, Meta(description="The run was started by a schedule.")] = False
    budget: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="The ceiling that the skill documents. Left out: as the table of skills has it."),
    ] = None
    lease: Annotated[
        str | None,
        Meta(
            description="How long to wait for its end after its last counted call. Left out: 2h.",
            extra={"metavar": "2h"},
        ),
    ] = None


def start(docs: Docs, params: Start, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    where = f"{site} run"
    skill = skill_of(params.skill, context)
    if not skill:
        raise refusal(where, [Problem("skill", "is missing", "--skill or STATED_SKILL")], hint="no run was started")
    refuse_personal(where, {"skill": skill})
    refuse_plugin(docs, context.root, site)
    lease = int(span(params.lease, "--lease").total_seconds()) if params.lease is not None else tables.LEASE_SECONDS
    book = book_of(docs, context.root, site)
    if len(book.open) >= OPEN_MOST:
        raise Refused(f"{OPEN_MOST} runs of this site are open", where=where, hint="finish them; no run was started")
    budget = params.budget if params.budget is not None else _ceiling(docs, site, skill, context)
    run = Started(
        skill=skill, started=context.now, seen=context.now, lease=lease, pid=context.caller.pid,
        scheduled=params.scheduled, budget=budget,
    )  # fmt: skip
    name = _run_id(book, context)
    first = min(
        (
            (other.started, other_name, other)
            for other_name, other in book.open.items()
            if other.skill == skill and not other.ended(context.now)
        ),
        default=None,
    )
    runs = newest_first(docs.lines(place(context, site, tables.RUNS)))
    book = msgspec.structs.replace(book, open={**book.open, name: run})
    reply = {
        "site": site,
        "run": name,
        "budget": budget,
        "overlap": None if first is None else _overlap(first[1], first[2], context.now),
        # Information only: it never makes this run unnecessary, and its notes were about that run.
        "last": next((record for record in runs if record.get("skill") == skill), None),
        "warnings": skill_warnings(skill),
        "untrusted": ["last"],
    }
    return Outcome(reply, (_remembered(context.root, site, book), *_listed(docs, context.root, site, book)))


def _overlap(name: str, run: Started, now: datetime) -> dict[str, Any]:
    age = int((now - run.started).total_seconds())
    return {"run": name, "age_s": max(age, 0), "pid": run.pid or None}


def _run_id(book: Book, context: Context) -> str:
    """From the call's own id, which no other call has: nothing here may be random."""
    seed = f"{context.call}\n{context.now.isoformat()}\n{context.caller.pid}"
    number = 0
    while True:
        name = "r" + hashlib.sha256(f"{seed}\n{number}".encode("utf-8", "replace")).hexdigest()[:10]
        if name not in book.open and name not in book.closed:
            return name
        number += 1


def _ceiling(docs: Docs, site: str, skill: str, context: Context) -> int | None:
    """The ceiling that the tables give, where the site itself tells which of several it is."""
    with_plan = tables.BUDGET_WITH_PLAN.get(skill)
    if with_plan is not None and docs.exists(place(context, site, tables.PLAN)):
        return with_plan
    per_rule = tables.BUDGET_PER_RULE.get(skill)
    if per_rule is not None:
        doc = docs.json(place(context, site, tables.ALERTS))
        rules = doc.value.get("rules") if isinstance(doc.value, dict) else doc.value
        rows = rules if isinstance(rules, list) else []
        active = [rule for rule in rows if isinstance(rule, dict) and rule.get("status") == "active"]
        return per_rule * max(len(active), 1)
    ceilings = ceilings_of(skill)
    return ceilings[0] if len(ceilings) == 1 or with_plan is not None else None


# Which run ------------------------------------------------------------------------------------------------------------


class Which(Common, kw_only=True):
    run: Annotated[
        str | None,
        Meta(description="The run. Left out: the only one that is open (of the skill, where one is named).",
             extra={"metavar": "ID"}),
    ] = None  # fmt: skip


class _Chosen(NamedTuple):
    name: str
    run: Started
    given_up: Closed | None


def _chosen(book: Book, params: Which, where: str, context: Context, *, late: bool = False) -> _Chosen:
    """The run that a call means. `late` takes one that was given up as well, when it is named."""
    skill = skill_of(params.skill, context)
    if params.run is None:
        found = {name: run for name, run in book.open.items() if skill is None or run.skill == skill}
        if len(found) == 1:
            return _Chosen(*next(iter(found.items())), None)
        of_skill = f" of {skill}" if skill is not None else ""
        if not found:
            raise Refused(
                f"no run{of_skill} is open",
                where=where,
                hint="start one with `run start`, or log it in one call with `run log`",
                data={"runs": sorted(book.open)},
            )
        raise Refused(
            f"{len(found)} runs{of_skill} are open: {', '.join(sorted(found))}",
            where=where,
            hint="name one with --run",
            data={"runs": sorted(found)},
        )
    run = book.open.get(params.run)
    closed = book.closed.get(params.run)
    if run is None and closed is not None and closed.run is not None and late:
        run = closed.run
    if run is None:
        if closed is not None:
            raise Refused(f"this run was {closed.how} at {stamp(closed.at)}", where=where, data={"how": closed.how})
        raise Refused(
            "this run is not known here",
            where=where,
            hint="its site may be another one; a run that is over is logged with `run log`",
            data={"runs": sorted(book.open)},
        )
    if params.skill is not None and params.skill != run.skill:
        raise refusal(where, [Problem("skill", "of this run is another one than --skill says")])
    return _Chosen(params.run, run, closed)


# run count ------------------------------------------------------------------------------------------------------------


class Count(Which, kw_only=True):
    tool: Annotated[str | None, Meta(description="The tool that was called.")] = None
    n: Annotated[int, Meta(ge=1, le=100_000, description="How many calls.", extra={"metavar": "N"})] = 1


TOOLS_KEPT = 100


def count(docs: Docs, params: Count, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    book = book_of(docs, context.root, site)
    name, run, _ = _chosen(book, params, f"{site} run", context)
    tools = run.tools
    if params.tool is not None:
        # `mcp__sealmetrics__list_sites` is the same tool under the name that a client gives it.
        tool = params.tool.rpartition("__")[2]
        tools = tuple(sorted({*tools, tool}))[:TOOLS_KEPT]
    calls = (run.calls or 0) + params.n
    named = params.tool is not None and (run.named or run.calls is None)
    run = msgspec.structs.replace(run, calls=calls, tools=tools, named=named, seen=max(context.now, run.seen))
    book = msgspec.structs.replace(book, open={**book.open, name: run})
    reply = {
        "site": site,
        "run": name,
        "calls": calls,
        "left": max(run.budget - calls, 0) if run.budget is not None else None,
        "over": run.budget is not None and is_over(calls, run.budget),
    }
    return Outcome(reply, (_remembered(context.root, site, book),))


# run finish -----------------------------------------------------------------------------------------------------------


class Finish(Which, kw_only=True):
    verdict: Annotated[
        str, Meta(description=f"{', '.join(tables.VERDICTS)}; from {tables.SCORING_SKILL} also 0/10 to 10/10.")
    ]
    calls: Annotated[
        int | None, Meta(description="The calls as the skill counted them; compared with those that were counted here.")
    ] = None
    budget: Annotated[int | None, Meta(description="The ceiling, where `run start` did not know it.")] = None
    notes: Annotated[str | None, Meta(description="One line about this run.")] = None


def finish(docs: Docs, params: Finish, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    where = f"{site} {tables.RUNS}"
    book = book_of(docs, context.root, site)
    name, run, given_up = _chosen(book, params, f"{site} run", context, late=True)
    calls = run.calls if run.calls is not None else params.calls
    mismatch = None
    if run.calls is not None and params.calls is not None and params.calls != run.calls:
        mismatch = {"counted": run.calls, "stated": params.calls}
    given = {
        "skill": run.skill,
        "calls": calls,
        "budget": params.budget if params.budget is not None else run.budget,
        "verdict": params.verdict,
        "scheduled": run.scheduled,
        "notes": params.notes or "",
    }
    given = {field: value for field, value in given.items() if value is not None}
    warnings = refuse_personal(where, given)
    line, told = judged(where, given, context)
    warnings.extend(told)
    if mismatch is not None:
        line["notes"] = _with_difference(line["notes"], mismatch)
    refuse_plugin(docs, context.root, site)
    at = place(context, site, tables.RUNS)
    if _lost_discovery(docs, site, run, line, context):
        said = "profile_not_written: this run made calls and the site has no profile"
        warnings.append(warning(tables.PROFILE, said, "profile put --why discovery"))
    append = Append(at, json_lines.encode_line(line))
    change: Change = append
    if given_up is not None and given_up.line is not None:
        change = _in_its_place(docs, append, given_up.line, line)
    book = Book(
        open={other: value for other, value in book.open.items() if other != name},
        closed={**book.closed, name: Closed(how="finished", at=context.now)},
        unfinished=[row for row in book.unfinished if row.run != name],
    )
    reply = {
        "site": site,
        "run": name,
        "line": line,
        "over_budget": is_over(line["calls"], line["budget"]),
        "mismatch": mismatch,
        "warnings": warnings,
        "untrusted": ["notes"],
    }
    changes = (change, _remembered(context.root, site, book), *_listed(docs, context.root, site, book))
    return Outcome(reply, changes, subject=at)


def _with_difference(notes: str, mismatch: dict[str, int]) -> str:
    """A difference is recorded where the line has room for it."""
    said = f"{mismatch['counted']} calls counted, {mismatch['stated']} stated"
    longer = f"{notes}; {said}" if notes else said
    return longer if len(longer) <= tables.NOTES_LENGTH else notes


def _lost_discovery(docs: Docs, site: str, run: Started, line: dict[str, Any], context: Context) -> bool:
    """Whether this run asked what a profile holds, and none was written. Where the calls were counted without names,
    any call may have been one: every skill begins with them on a site that has no profile."""
    if docs.exists(place(context, site, tables.PROFILE)):
        return False
    if run.named:
        return not tables.DISCOVERY_CALLS.isdisjoint(run.tools)
    return bool(line["calls"] > 0)


def _in_its_place(docs: Docs, append: Append, given_up: str, line: dict[str, Any]) -> Change:
    """The line that gave the run up is the daemon's own: it is corrected, unless somebody has changed it since."""
    doc = docs.lines(append.at)
    for old in reversed(doc.lines):
        if old.raw == given_up.encode():
            try:
                return EditLine(append.at, old.number, old.raw, json_lines.edit_line(doc, old.number, line))
            except Unwritable:
                break
    return append


# Runs that are never finished -----------------------------------------------------------------------------------------


class Upkeep(msgspec.Struct, kw_only=True):
    """It takes nothing."""


def upkeep(docs: Docs, params: Upkeep, context: Context) -> Outcome:
    """Give up every run whose lease has passed, for all sites of the root."""
    changes: list[Change] = []
    rows = []
    sites = _open_sites(docs, context.root)
    left = []
    for site in sites:
        book = book_of(docs, context.root, site)
        ended = {name: run for name, run in book.open.items() if run.ended(context.now)}
        if len(ended) < len(book.open):
            left.append(site)
        if not ended:
            continue
        closed, unfinished = dict(book.closed), list(book.unfinished)
        for name, run in sorted(ended.items(), key=lambda row: row[1].started):
            line = given_up_line(run)
            if line is None:
                unfinished.append(Unfinished(run=name, skill=run.skill, started=run.started))
            else:
                changes.append(Append(place(context, site, tables.RUNS), json_lines.encode_line(line)))
            text = json_lines.encode_line(line).decode().rstrip("\n") if line is not None else None
            closed[name] = Closed(how="given up", at=context.now, line=text, run=run)
            rows.append({"site": site, "run": name, "skill": run.skill, "logged": line is not None})
        still = {name: run for name, run in book.open.items() if name not in ended}
        changes.append(_remembered(context.root, site, Book(open=still, closed=closed, unfinished=unfinished)))
    if left != sites:
        changes.append(Remember("open-sites", context.root, left or None))
    return Outcome({"given_up": rows}, tuple(changes))


def given_up_line(run: Started) -> dict[str, Any] | None:
    """The line of a run that was cut off, at the time of its last sign of life; None where it would need a number that
    nobody counted."""
    budget = run.budget if run.budget is not None else max(ceilings_of(run.skill), default=None)
    if run.calls is None or budget is None:
        return None
    return {
        "ts": stamp(run.seen),
        "skill": run.skill,
        "calls": run.calls,
        "budget": budget,
        "verdict": "error",
        "scheduled": run.scheduled,
        "notes": f"started {stamp(run.started)} and never finished",
    }
