"""What the operations of this domain share: parameters that each has, refusals, warnings, and text for a terminal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stated.documents import table
from stated.documents.json_text import JsonText
from stated.domain import Refused, Usage
from stated.domains.seal import personal, tables
from stated.domains.seal.records import Problem

SHOWN: int = 80
"""Texts of strangers are cut at this length in messages."""

ALIKE: float = 0.75
"""From this likeness on a skill's name is taken for a documented one, misspelt or cut short."""


class Common(msgspec.Struct, kw_only=True):
    """The parameters of every operation."""

    site: Annotated[
        str | None,
        Meta(description="The site. Left out: SEALMETRICS_SITE_ID, or the only one.", extra={"metavar": "ID"}),
    ] = None
    skill: Annotated[
        str | None, Meta(description="The skill that calls. Left out: STATED_SKILL.", extra={"metavar": "S"})
    ] = None


def refusal(where: str, found: Sequence[Problem], *, hint: str = "nothing was written") -> Refused:
    """One refusal for all mistakes of a record, first line for a person, `problems` for a program."""
    parts = []
    for problem in found:
        meant = f" (meant: {problem.meant})" if problem.meant else ""
        parts.append(f"`{problem.field}` {problem.problem}{meant}")
    return Refused("; ".join(parts), where=where, hint=hint, problems=[problem.row() for problem in found])


def refuse_personal(where: str, value: Any, names: frozenset[str] = frozenset()) -> list[dict[str, str]]:
    """Refuse personal data; what only looks like it comes back as warnings for the reply."""
    seen = personal.screen(value, names=names)
    if seen.refused:
        raise refusal(
            where,
            [Problem(hit.field, hit.problem) for hit in seen.refused],
            hint="state never holds personal data; leave it out; nothing was written",
        )
    return [warning(hit.field, hit.problem) for hit in seen.warned]


def warning(field: str, problem: str, meant: str = "") -> dict[str, str]:
    return {"field": field, "problem": problem, "meant": meant}


def skill_warnings(skill: Any) -> list[dict[str, str]]:
    """Any skill may call; a name that is nearly a documented one is most likely a mistake."""
    known = [*tables.BUDGETS, *tables.BUDGET_PER_RULE]
    if not isinstance(skill, str) or skill in known:
        return []
    close = difflib.get_close_matches(skill[:80].lower().replace("_", "-"), known, n=1, cutoff=ALIKE)
    return [warning("skill", "is close to a documented skill and is not one", close[0])] if close else []


def writer_warnings(command: str, skill: str | None) -> list[dict[str, str]]:
    """A document has one skill that writes it; a person may as well. Another skill is told, and not kept from it."""
    owner = tables.WRITERS[command]
    if skill is None or skill == owner:
        return []
    return [warning("--skill", f"is {shown(skill)}; `{command}` is for {owner} or a person", owner)]


_SPAN = re.compile(r"(\d{1,4})([mhdw])", re.ASCII)
_SPAN_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def span(text: str, where: str) -> timedelta:
    """A length of time as a flag gives it: `90m`, `2h`, `28d`, `4w`."""
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise Usage("expected a number and m, h, d or w", where=where, hint=f"such as {where} 28d")
    return timedelta(seconds=int(match[1]) * _SPAN_SECONDS[match[2]])


def corruption(doc: JsonText) -> dict[str, Any] | None:
    """What is wrong with a document that exists and is not a JSON object, or None."""
    if not doc.exists:
        return None
    if doc.problem is not None:
        return {"problem": doc.problem.message, "line": doc.problem.line, "column": doc.problem.column}
    if not isinstance(doc.value, dict):
        return {"problem": "is not a JSON object", "line": 1, "column": 1}
    return None


def refuse_corrupt(where: str, doc: JsonText) -> None:
    """A file that cannot be read is never replaced: refuse, saying where it is broken."""
    broken = corruption(doc)
    if broken is not None:
        raise Refused(
            f"line {broken['line']}, column {broken['column']}: {broken['problem']}",
            where=where,
            hint="correct the file by hand (`statectl doctor` shows it); nothing was written",
            data=broken,
        )
    if doc.duplicates:
        raise Refused(
            f"the key {doc.duplicates[0]} is there twice",
            where=where,
            hint="remove one of the two by hand; nothing was written",
            data={"duplicates": list(doc.duplicates)},
        )


# For a terminal -----------------------------------------------------------------------------------------------------


def shown(value: Any, length: int = SHOWN) -> str:
    """A value as one harmless line: control characters escaped, long texts cut."""
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif value is None:
        text = "-"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name}: {shown(member)}" for name, member in value.items()) or "-"
    elif isinstance(value, (list, tuple)):
        text = ", ".join(shown(member) for member in value) or "-"
    else:
        text = str(value)
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def pairs(rows: Iterable[tuple[str, Any]], width: int) -> str:
    """Names and values; nothing is cut."""
    return "\n".join(table.pairs(rows, width))


def grid(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> str:
    """Records side by side, or one below the other where there is no room; nothing is cut."""
    return "\n".join(table.grid(head, rows, width))


def warning_rows(warnings: Iterable[Mapping[str, str]]) -> list[tuple[str, Any]]:
    """The rows of a reply's warnings."""
    return [
        ("warning", f"{row['field']} {row['problem']}".strip() + (f" (meant: {row['meant']})" if row["meant"] else ""))
        for row in warnings
    ]
