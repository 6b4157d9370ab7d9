"""`run stats`: what the run log says about budgets, skill by skill.

The numbers come from lines of the contract alone. A line of an old release that lacks them is a run all the same, and
counted as `unmeasured`; a run that was started and never finished, with nothing counted, has no line and is counted as
`unfinished`. Nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from msgspec import Meta

from stated.domain import Context, Docs, Outcome
from stated.domains.seal import tables
from stated.domains.seal.common import Common, grid
from stated.domains.seal.leases import book_of, given_up_line
from stated.domains.seal.ledger import decimal_of
from stated.domains.seal.records import stamp_of
from stated.domains.seal.runs import is_over, newest_first
from stated.domains.seal.sites import known_site, place, sites


class Stats(Common, kw_only=True):
    since: Annotated[
        date | None, Meta(description="Only runs from this day on (UTC).", extra={"metavar": "YYYY-MM-DD"})
    ] = None
    all_sites: Annotated[bool, Meta(description="Over all sites of the state directory.")] = False


def stats(docs: Docs, params: Stats, context: Context) -> Outcome:
    site = None if params.all_sites else known_site(docs, params.site, context)
    names = sites(docs, context.root) if params.all_sites else [site] if site is not None else []
    start = datetime.combine(params.since, datetime.min.time(), UTC) if params.since is not None else None
    lines: list[Mapping[str, Any]] = []
    unfinished: list[str] = []
    bad = 0
    for name in names:
        doc = docs.lines(place(context, name, tables.RUNS))
        bad += len(doc.bad)
        lines.extend(record for record in newest_first(doc) if _since(start, stamp_of(record.get("ts"))))
        unfinished.extend(_unfinished(docs, name, start, context))
    if params.skill is not None:
        lines = [record for record in lines if record.get("skill") == params.skill]
        unfinished = [skill for skill in unfinished if skill == params.skill]
    # Of all sites together the newest first, too: the newest run of a skill tells its ceiling.
    lines.sort(key=lambda record: stamp_of(record.get("ts")) or datetime.min.replace(tzinfo=UTC), reverse=True)
    reply = {
        "site": site,
        "sites": list(names),
        "skills": _rows(lines, unfinished),
        "bad_lines": bad,
        "untrusted": [],
        "rev": docs.rev(place(context, site, tables.RUNS)) if site is not None else None,
    }
    return Outcome(reply, subject=place(context, site, tables.RUNS) if site is not None else None)


def _since(start: datetime | None, instant: datetime | None) -> bool:
    """A line without a usable stamp belongs to no period."""
    return start is None or (instant is not None and instant >= start)


def _unfinished(docs: Docs, site: str, start: datetime | None, context: Context) -> Iterable[str]:
    """The skills of the runs that have no line and will have none."""
    book = book_of(docs, context.root, site)
    for row in book.unfinished:
        if _since(start, row.started):
            yield row.skill
    for run in book.open.values():
        # Its lease has passed and nobody has looked since.
        if run.ended(context.now) and given_up_line(run) is None and _since(start, run.started):
            yield run.skill


def _rows(lines: Iterable[Mapping[str, Any]], unfinished: Iterable[str]) -> list[dict[str, Any]]:
    by_skill: dict[str, list[Mapping[str, Any]]] = {}
    for record in lines:
        skill = record.get("skill")
        if isinstance(skill, str) and skill:
            by_skill.setdefault(skill, []).append(record)
    lost = list(unfinished)
    for skill in lost:
        by_skill.setdefault(skill, [])
    return [_row(skill, records, lost.count(skill)) for skill, records in sorted(by_skill.items())]


def _row(skill: str, records: list[Mapping[str, Any]], unfinished: int) -> dict[str, Any]:
    measured = [
        (record["calls"], record["budget"])
        for record in records
        if type(record.get("calls")) is int and record["calls"] >= 0
        if type(record.get("budget")) is int and record["budget"] >= 1
    ]
    calls = sorted(count for count, _ in measured)
    over = sum(is_over(count, budget) for count, budget in measured)
    return {
        "skill": skill,
        "runs": len(records),
        "unfinished": unfinished,
        "unmeasured": len(records) - len(measured),
        "calls_median": _median(calls),
        "calls_max": calls[-1] if calls else None,
        # The newest run's: ceilings moved between releases, and each run is judged by its own.
        "budget": measured[0][1] if measured else None,
        "over_share": decimal_of(Fraction(over, len(measured))) if measured else None,
    }


def _median(ordered: list[int]) -> int | Decimal | None:
    if not ordered:
        return None
    middle, even = len(ordered) // 2, len(ordered) % 2 == 0
    if not even:
        return ordered[middle]
    total = ordered[middle - 1] + ordered[middle]
    return total // 2 if total % 2 == 0 else Decimal(total) / 2


def draw_stats(reply: Any, width: int) -> str:
    """`run stats` for a terminal."""
    if not reply["skills"]:
        return "no runs"
    head = ("runs", "unfinished", "calls median", "calls max", "budget", "over share", "skill")
    return grid(head, [[row[name.replace(" ", "_")] for name in head] for row in reply["skills"]], width)
