"""`runs.jsonl`: one line for each run of a skill, with exactly the contract's seven fields.

`run log` checks the new line alone and appends it without reading the file: an old line that breaks the contract is no
reason to refuse a new one. `run last` gives the lines back as they are, newest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta

from stated.documents import json_lines
from stated.documents.json_lines import JsonLines
from stated.domain import Append, Context, Docs, Outcome, Usage
from stated.domains.seal import tables
from stated.domains.seal.common import (
    Common,
    grid,
    pairs,
    refusal,
    refuse_personal,
    skill_warnings,
    warning,
    warning_rows,
)
from stated.domains.seal.records import Problem, Run, field_names, problems, stamp_of
from stated.domains.seal.sites import known_site, place, refuse_plugin, site_of, skill_of

PROBLEMS_SHOWN = 20


def run_problems(record: Mapping[str, Any]) -> list[Problem]:
    """Every way in which a parsed line is not a run of the contract."""
    found = problems(Run, record, renamed=tables.RUN_RENAMED)
    if record.get("skill") != tables.SCORING_SKILL and record.get("verdict") in tables.SCORES:
        says = f"must be one of {', '.join(tables.VERDICTS)}; a score is for {tables.SCORING_SKILL} only"
        found.append(Problem("verdict", says))
    return found


def is_over(calls: int, budget: int) -> bool:
    """Zero is a ceiling like any other."""
    return calls > budget


def stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# run log ------------------------------------------------------------------------------------------------------------


class Log(Common, kw_only=True):
    calls: Annotated[int | None, Meta(description="The Sealmetrics calls that this run made, counted.")] = None
    budget: Annotated[
        int | None, Meta(description="The ceiling that the skill documents. Left out: as the table of skills has it.")
    ] = None
    verdict: Annotated[
        str | None,
        Meta(description=f"{', '.join(tables.VERDICTS)}; from {tables.SCORING_SKILL} also 0/10 to 10/10."),
    ] = None
    scheduled: Annotated[bool, Meta(description="The run was started by a schedule.")] = False
    notes: Annotated[str | None, Meta(description="One line about this run.")] = None
    ts: Annotated[str | None, Meta(description="When it ran, if not now: a full UTC timestamp ending in Z.")] = None
    data: Annotated[
        dict[str, Any] | None, Meta(description="The whole record as a JSON object, in place of the flags.")
    ] = None


def log(docs: Docs, params: Log, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.RUNS)
    where = f"{site} {tables.RUNS}"
    given = _given(params)
    skill = skill_of(params.skill, context)
    if skill is not None and "skill" not in given:
        given["skill"] = skill
    warnings = refuse_personal(where, given)
    found = []
    if params.skill is not None and given["skill"] != params.skill:
        found.append(Problem("skill", "is another one than --skill says"))
    line, odd = judged(where, given, context, found)
    warnings.extend(odd)
    refuse_plugin(docs, context.root, site)
    reply = {
        "site": site,
        "line": line,
        "over_budget": is_over(line["calls"], line["budget"]),
        # Nothing was counted for a run that was not started here, so nothing can differ.
        "mismatch": None,
        "warnings": warnings,
        "untrusted": ["notes"],
    }
    return Outcome(reply, (Append(at, json_lines.encode_line(line)),), subject=at)


def _given(params: Log) -> dict[str, Any]:
    flags = {
        "ts": params.ts,
        "calls": params.calls,
        "budget": params.budget,
        "verdict": params.verdict,
        "scheduled": params.scheduled or None,
        "notes": params.notes,
    }
    filled = {name: value for name, value in flags.items() if value is not None}
    if params.data is None:
        return filled
    if filled:
        raise Usage(
            f"--data is the whole record; it does not go with --{next(iter(filled))}",
            where="run log",
            hint="give the flags or --data",
        )
    return dict(params.data)


def judged(
    where: str, given: Mapping[str, Any], context: Context, found: Sequence[Problem] = ()
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The line that these fields make, with what is odd about it. Refuses a line that breaks the contract, with every
    mistake in it (and those already `found`) at once."""
    record, warnings = _completed(given, context)
    found = [*run_problems(record), *found]
    found = [_hinted(problem, record) for problem in found]
    instant = stamp_of(record["ts"])
    if instant is not None and instant > context.now:
        found.append(Problem("ts", "lies in the future; leave it out for now"))
    if found:
        raise refusal(where, found)
    warnings = [*skill_warnings(record["skill"]), *warnings, *_budget_warnings(record)]
    return {name: record[name] for name in field_names(Run)}, warnings


def _completed(given: Mapping[str, Any], context: Context) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The record with what the daemon knows. `calls` and `verdict` are never made up."""
    warnings = []
    record = {"ts": stamp(context.now), "scheduled": False, "notes": "", **given}
    notes = record["notes"]
    if isinstance(notes, str) and len(notes.splitlines()) > 1:
        record["notes"] = " ".join(notes.split())
        warnings.append(warning("notes", "was made one line"))
    verdict = record.get("verdict")
    if isinstance(verdict, str):
        record["verdict"] = tables.SYMBOLS.get(verdict.strip(), verdict)
    ceilings = ceilings_of(record.get("skill"))
    if "budget" not in record and len(ceilings) == 1:
        record["budget"] = ceilings[0]
    return record, warnings


def ceilings_of(skill: Any) -> tuple[int, ...]:
    return tables.BUDGETS.get(skill, ()) if isinstance(skill, str) else ()


def _hinted(problem: Problem, record: Mapping[str, Any]) -> Problem:
    """Say what the daemon would have needed, in the two places where that is not the field itself."""
    if problem.field == "ts" and not problem.meant:
        try:
            instant = datetime.fromisoformat(record["ts"])
        except (TypeError, ValueError):
            return problem
        # A bare date has no time to be kept; a stamp of another zone has.
        return problem._replace(meant=stamp(instant)) if instant.tzinfo is not None else problem
    if problem.field == "budget" and problem.problem == "is missing":
        ceilings = ceilings_of(record.get("skill"))
        known = f" (this skill has {' or '.join(map(str, ceilings))})" if ceilings else ""
        return problem._replace(problem=f"is missing{known}")
    if problem.field == "skill" and problem.problem == "is missing":
        return problem._replace(meant="--skill or STATED_SKILL")
    return problem


def _budget_warnings(record: Mapping[str, Any]) -> list[dict[str, str]]:
    budget, skill = record["budget"], record["skill"]
    ceilings = ceilings_of(skill)
    per_rule = tables.BUDGET_PER_RULE.get(skill)
    if (ceilings and budget not in ceilings) or (per_rule is not None and budget % per_rule != 0):
        documented = " or ".join(map(str, ceilings)) if ceilings else f"{per_rule} for each rule"
        problem = f"is not the documented ceiling ({documented}, as of {tables.BUDGETS_VERSION})"
        return [warning("budget", problem)]
    return []


def draw_log(reply: Any, width: int) -> str:
    """`run log` for a terminal."""
    line = reply["line"]
    over = ", over budget" if reply["over_budget"] else ""
    rows: list[tuple[str, Any]] = [
        ("site", reply["site"]),
        ("logged", f"{line['skill']}: {line['verdict']}, {line['calls']} of {line['budget']} calls{over}"),
    ]
    if line["notes"]:
        rows.append(("notes", line["notes"]))
    rows.extend(warning_rows(reply["warnings"]))
    return pairs(rows, width)


# run last -----------------------------------------------------------------------------------------------------------


class Last(Common, kw_only=True):
    skill: Annotated[str | None, Meta(description="Only the runs of this skill.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most so many runs.")] = 10


def last(docs: Docs, params: Last, context: Context) -> Outcome:
    site = known_site(docs, params.site, context)
    reply: dict[str, Any] = {
        "site": site,
        "runs": [],
        # What a run noted was about that run: a report of today must not repeat it as a finding.
        "history": True,
        "bad_lines": 0,
        "problems": [],
        "untrusted": ["notes"],
        "rev": None,
    }
    if site is None:
        return Outcome(reply)
    at = place(context, site, tables.RUNS)
    doc = docs.lines(at)
    runs = [record for record in newest_first(doc) if params.skill is None or record.get("skill") == params.skill]
    bad = doc.bad
    reply |= {
        "runs": runs[: params.limit],
        "bad_lines": len(bad),
        "problems": [{"line": line.number, "problem": line.problem} for line in bad[:PROBLEMS_SHOWN]],
        "rev": docs.rev(at),
    }
    return Outcome(reply, subject=at)


def newest_first(doc: JsonLines) -> list[dict[str, Any]]:
    """The records by their stamps, newest first. One without a usable stamp (old releases wrote such) stays beside the
    line before it; of two with the same stamp the later line is the newer."""
    before = datetime.min.replace(tzinfo=UTC)
    dated = []
    for number, value in doc.records:
        before = stamp_of(value.get("ts")) or before
        dated.append((before, number, value))
    dated.sort(key=lambda row: row[:2], reverse=True)
    return [value for _, _, value in dated]


def draw_last(reply: Any, width: int) -> str:
    """`run last` for a terminal."""
    head = ("ts", "skill", "calls", "budget", "verdict", "scheduled", "notes")
    if not reply["runs"]:
        text = "no runs"
    else:
        text = grid(head, [[record.get(name) for name in head] for record in reply["runs"]], width)
    if reply["bad_lines"]:
        text += f"\n{reply['bad_lines']} lines cannot be read; `statectl doctor` shows them"
    return text
