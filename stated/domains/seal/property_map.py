"""`property-map.md`: the inventory of a site's properties, written by a skill for people to read and correct.

What may be relied on:

- A put names the revision that was read (`--if-rev`), and is refused when the map is another one by now, with the lines
  that somebody changed: a person's correction is never overwritten unseen.
- The map's date is in the map, as a comment that no Markdown viewer shows. It moves when the map is made and when
  `property-explorer` writes it; a person's correction does not make an old map look fresh.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from stated.domain import At, Conflict, Context, Docs, MemoryKind, Outcome, Refused, Remember, TextDocument, Write
from stated.domains.seal import personal, tables
from stated.domains.seal.common import Common, refusal, shown, warning, writer_warnings
from stated.domains.seal.profile import contradicted_since, stored_profile, today_at
from stated.domains.seal.records import Problem, day_of
from stated.domains.seal.sites import known_site, place, refuse_plugin, site_of, skill_of

MEMORIES = (
    MemoryKind(
        "map",
        "Fingerprints of the lines of each property map as it was last written here",
        "a refused `map put` says which lines of the file it would have overwritten, not which ones a person changed",
    ),
)

_OWN = re.compile(r"[ \t]*<!-- stated: .* -->[ \t]*")
_DATED = re.compile(r"[ \t]*<!-- stated: map of (\d{4}-\d\d-\d\d)(?:, written by .*)? -->[ \t]*")
CHANGES_SHOWN: Final = 20
LINES_REMEMBERED: Final = 5000

# Reading Markdown -----------------------------------------------------------------------------------------------------


_DASHES = re.compile(r"[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)+")


def has_table(text: str) -> bool:
    """A row that begins with a bar, or the row of dashes of a table without outer bars."""
    return any(line.lstrip().startswith("|") or _DASHES.fullmatch(line) for line in text.splitlines())


def dated(text: str) -> date | None:
    """The map's own date: the last of its comments that holds one."""
    found = [day_of(match[1]) for line in text.splitlines() if (match := _DATED.fullmatch(line))]
    return found[-1] if found else None


def _body(text: str) -> str:
    """The map without the daemon's own comments."""
    if not any(_OWN.fullmatch(line) for line in text.splitlines()):
        return text
    kept = [line for line in text.splitlines(keepends=True) if not _OWN.fullmatch(line.rstrip("\r\n"))]
    return "".join(kept)


def _text(doc: TextDocument) -> str | None:
    try:
        return doc.raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


class _Age(NamedTuple):
    state: str
    days: int | None


def _age(day: date | None, today: date, profile: dict[str, Any]) -> _Age:
    days = (today - day).days if day is not None else None
    if day is None or days is None or days < 0:
        return _Age("undated", None)
    if days > tables.MAP_DAYS or contradicted_since(profile, day):
        return _Age("stale", days)
    return _Age("fresh", days)


# map get --------------------------------------------------------------------------------------------------------------


class Get(Common, kw_only=True):
    pass


def get(docs: Docs, params: Get, context: Context) -> Outcome:
    site = known_site(docs, params.site, context)
    reply: dict[str, Any] = {
        "state": "absent",
        "site": site,
        "age_days": None,
        "text": None,
        "warnings": [],
        "untrusted": ["text"],
        "rev": None,
    }
    if site is None:
        return Outcome(reply)
    at = place(context, site, tables.PROPERTY_MAP)
    doc = docs.text(at)
    if not doc.exists:
        return Outcome(reply, subject=at)
    reply["rev"] = docs.rev(at)
    text = _text(doc)
    if text is None:
        return Outcome(reply | {"state": "corrupt", "warnings": [warning("", "is not UTF-8 text")]}, subject=at)
    profile = dict(stored_profile(docs, site, context))
    age = _age(dated(text), today_at(profile, context), profile)
    if age.state != "fresh":
        told = "has no date of its own" if age.days is None else f"is {age.days} days old"
        reply["warnings"] = [warning("", f"the map {told}; run property-explorer before relying on it")]
    return Outcome(reply | {"state": age.state, "age_days": age.days, "text": text}, subject=at)


def show(reply: Any) -> str:
    """The Markdown itself. What there is to say of it stands in a comment before it, which a put takes out again."""
    told = "".join(f"<!-- stated: {row['problem']} -->\n" for row in reply["warnings"])
    return told + (reply["text"] or "")


def draw_get(reply: Any, width: int) -> str:
    """`map get` for a terminal."""
    return show(reply) or "no map yet"


# map put --------------------------------------------------------------------------------------------------------------


class Put(Common, kw_only=True):
    data: Annotated[str, Meta(description="The whole map as Markdown.")]


def put(docs: Docs, params: Put, context: Context) -> Outcome:
    site = site_of(docs, params.site, context)
    at = place(context, site, tables.PROPERTY_MAP)
    where = f"{site} {tables.PROPERTY_MAP}"
    skill = skill_of(params.skill, context)
    doc = docs.text(at)
    body = _ended(_body(params.data.removeprefix("\ufeff")))
    _refuse_unread(docs, at, where, doc, body, context)
    if not has_table(body):
        problem = Problem("--data", "holds no table: the inventory of properties is missing")
        raise refusal(where, [problem], hint="a row of names, a row of dashes, a row for each property")
    warnings = [*_screened(where, body), *_missing_parts(body), *writer_warnings("map put", skill)]
    before = _text(doc) if doc.exists else None
    today = today_at(stored_profile(docs, site, context), context)
    explored = skill == tables.WRITERS["map put"]
    day = today if explored or not doc.exists else dated(before or "")
    writer = skill if skill is not None and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", skill) else None
    text = body
    if day is not None:
        # Another skill's name is recorded with the write; a person's correction leaves the line as it was.
        by = f", written by {writer}" if writer is not None else _writer_before(before)
        text = f"{body}\n<!-- stated: map of {day.isoformat()}{by} -->\n"
    elif writer is not None:
        text = f"{body}\n<!-- stated: map without a date, written by {writer} -->\n"
    content = text.encode()
    age = _age(day, today, {})
    reply: dict[str, Any] = {
        "site": site,
        "state": age.state,
        "age_days": age.days,
        "skill": skill,
        "warnings": warnings,
    }
    remembered = _fingerprints(text)
    if doc.exists and doc.raw == content:
        return Outcome({**reply, "changed": False, "rev": docs.rev(at)}, subject=at)
    if not doc.exists:
        refuse_plugin(docs, context.root, site)
    changes = (Write(at, content), Remember("map", f"{context.root}/{site}", remembered))
    return Outcome({**reply, "changed": True}, changes, subject=at)


def _ended(text: str) -> str:
    return text.rstrip("\r\n \t") + "\n"


def _writer_before(text: str | None) -> str:
    found = [line.strip() for line in (text or "").splitlines() if _DATED.fullmatch(line)]
    match = re.search(r", written by [A-Za-z0-9._-]{1,64}(?= -->)", found[-1]) if found else None
    return match[0] if match else ""


def _missing_parts(body: str) -> Iterator[dict[str, str]]:
    text = body.casefold()
    if re.search(r"\btop\b", text) is None:
        yield warning("--data", "the top five with their reasons are missing")
    if re.search(r"\bstarter\b|\banalys[ei]s\b", text) is None:
        yield warning("--data", "the recommended starter analyses are missing")


def _screened(where: str, body: str) -> list[dict[str, str]]:
    """Personal data, told by its line."""
    refused: list[Problem] = []
    warned: list[dict[str, str]] = []
    for number, line in enumerate(body.splitlines(), 1):
        seen = personal.screen(line)
        refused.extend(Problem(f"line {number}", hit.problem) for hit in seen.refused)
        warned.extend(warning(f"line {number}", hit.problem) for hit in seen.warned)
    if refused:
        raise refusal(where, refused, hint="state never holds personal data; leave it out; nothing was written")
    return warned


# What a person changed ------------------------------------------------------------------------------------------------


def _fingerprints(text: str) -> list[str] | None:
    lines = text.splitlines()
    return [_fingerprint(line) for line in lines] if len(lines) <= LINES_REMEMBERED else None


def _fingerprint(line: str) -> str:
    # Not the line itself: a memory document is no second place where the map's words are kept.
    return hashlib.sha256(line.rstrip().encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _refuse_unread(docs: Docs, at: At, where: str, doc: TextDocument, body: str, context: Context) -> None:
    """A map that is there is replaced only by one that knows it."""
    if not doc.exists:
        return  # an `--if-rev` of a map that has gone is the core's to refuse
    rev = docs.rev(at)
    if context.if_rev is None:
        raise Refused(
            "a map is there, and a person may have corrected it",
            where=where,
            hint="read it with `statectl --json seal map get` and give its `rev` with --if-rev; nothing was written",
            data={"rev": rev},
        )
    digest = f"sha256:{hashlib.sha256(doc.raw).hexdigest()}"
    if context.if_rev in (rev, digest):
        return
    changes, removed, certain = _changes(docs, where, doc, body, context)
    lines = ", ".join(str(row["line"]) for row in changes[:CHANGES_SHOWN])
    parts = [
        f"line {lines}" if lines else "",
        f"{removed} line{'' if removed == 1 else 's'} taken out" if removed else "",
    ]
    told = " and ".join(part for part in parts if part) or "by another call"
    what = f"was changed since it was read: {told}" if certain else f"is not the one that was read; it differs: {told}"
    raise Conflict(
        f"the map {what}",
        where=where,
        hint="read it again, take over what changed, and give the new `rev`; nothing was written",
        data={"rev": rev, "changes": changes[:CHANGES_SHOWN], "removed": removed, "untrusted": ["changes"]},
    )


def _changes(
    docs: Docs, where: str, doc: TextDocument, body: str, context: Context
) -> tuple[list[dict[str, Any]], int, bool]:
    """The lines of the file that differ from what was written here last. Where that is not known, or where nobody but a
    call changed the map, those that the refused put would have overwritten."""
    lines = list(enumerate((_text(doc) or "").splitlines(), 1))
    base = docs.memory("map", f"{context.root}/{where.partition(' ')[0]}")
    certain = isinstance(base, list) and base != [_fingerprint(line) for _, line in lines]
    if not certain or not isinstance(base, list):
        base = [_fingerprint(line) for line in body.splitlines()]
        lines = [(number, line) for number, line in lines if not _OWN.fullmatch(line)]
        while lines and not lines[-1][1].strip():
            lines.pop()
    return (*_compared(base, lines), certain)


def _compared(base: Sequence[str], lines: Sequence[tuple[int, str]]) -> tuple[list[dict[str, Any]], int]:
    """The lines that are not in the base, and how many of the base have gone without another in their place."""
    changes: list[dict[str, Any]] = []
    removed = 0
    now = [_fingerprint(line) for _, line in lines]
    for kind, start, end, first, last in difflib.SequenceMatcher(None, base, now, autojunk=False).get_opcodes():
        if kind != "equal":
            changes.extend({"line": number, "text": shown(line)} for number, line in lines[first:last])
            removed += max((end - start) - (last - first), 0)
    return changes, removed
