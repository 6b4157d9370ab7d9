"""The past of every document: what was in it, who changed which line, how to bring it back, and how long it is kept.

What may be relied on:

- `Past` answers from one view of the journal, so its answers fit each other. It waits for no write and makes none.
- A content that is shown, compared or brought back is byte for byte what was there; where that is not known, it is said
  why, never guessed. A log that was only appended to was never read: what it held is taken from a later version, or
  from the file itself, where that must begin with it.
- `restoring` and `undoing` are pure functions for the queue: they look again at what is there then, write nothing when
  they refuse, and check what they bring back.
- `Keeper` drops content only, the oldest first, and never the newest revision of a document, the last good one (that
  parses), one that a group under way was made from, or those around an open conflict.

A revision is the document's content after one call or one outside edit. Its *row* is who, when and how large; its
*frame* is how its content is kept.
"""

from __future__ import annotations

import base64
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from stated import config, store
from stated.documents import json_lines, json_text
from stated.domain import At, Change, Context, Delete, Docs, Outcome, Write
from stated.errors import Refused, StatedError, Usage
from stated.journal import Ask, Journal, Known, Revision, changed_bytes
from stated.log import get_logger
from stated.snapshot import absolute

__all__ = ["Cut", "Keeper", "Past", "Stale", "Undone", "find_documents", "good", "restoring", "since", "undoing"]

_log = get_logger()

Form = Literal["json", "lines", "text"]

_COLUMNS = "rev, root, path, prev, origin, call, method, at, size, hash, frame, head, tail, body, grp"

_HARD = 4_000_000
"""Pairs of equal lines that are still looked at one by one; beyond that, two versions are compared as two blocks."""


# Lines ----------------------------------------------------------------------------------------------------------------


def lines_of(raw: bytes) -> list[bytes]:
    """The lines with their endings; a last one may have none."""
    parts = raw.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    if parts[-1]:
        lines.append(parts[-1])
    return lines


def count_lines(raw: bytes) -> int:
    return raw.count(b"\n") + (1 if raw and not raw.endswith(b"\n") else 0)


class Block(NamedTuple):
    """Lines `old_from … old_to` became lines `new_from … new_to` (counted from 0, ends left out)."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def changed_lines(old: bytes, new: bytes) -> list[Block]:
    """Which lines differ. Only what lies between the first and the last differing byte is compared line by line."""
    if old == new:
        return []
    head, tail, _ = changed_bytes(old, new)
    start = old.rfind(b"\n", 0, head) + 1
    first = old.count(b"\n", 0, start)
    cut = old.find(b"\n", len(old) - tail) if tail else -1
    rest = len(old) - cut - 1 if cut >= 0 else 0
    before = lines_of(old[start : len(old) - rest])
    after = lines_of(new[start : len(new) - rest])
    return [
        Block(first + old_from, first + old_to, first + new_from, first + new_to)
        for old_from, old_to, new_from, new_to in _compare(before, after)
    ]


def _compare(before: list[bytes], after: list[bytes]) -> list[tuple[int, int, int, int]]:
    if not before or not after:
        return [(0, len(before), 0, len(after))]
    there = Counter(after)
    if sum(count * there[line] for line, count in Counter(before).items()) > _HARD:
        return [(0, len(before), 0, len(after))]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [row[1:] for row in matcher.get_opcodes() if row[0] != "equal"]


def unified(old: bytes, new: bytes, old_name: str, new_name: str, context: int = 3) -> str:
    """What `diff -u` prints; nothing when they are equal."""
    blocks = changed_lines(old, new)
    if not blocks:
        return ""
    before, after = lines_of(old), lines_of(new)
    text = [f"--- {old_name}\n+++ {new_name}\n"]
    hunk: list[Block] = []
    for block in blocks:
        if hunk and block.old_from - hunk[-1].old_to > 2 * context:
            text += _hunk(hunk, before, after, context)
            hunk = []
        hunk.append(block)
    text += _hunk(hunk, before, after, context)
    return "".join(text)


def _hunk(blocks: Sequence[Block], before: list[bytes], after: list[bytes], context: int) -> list[str]:
    lead = min(context, blocks[0].old_from)
    follow = min(context, len(before) - blocks[-1].old_to)
    old_from, old_to = blocks[0].old_from - lead, blocks[-1].old_to + follow
    new_from, new_to = blocks[0].new_from - lead, blocks[-1].new_to + follow
    text = [f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@\n"]
    at = old_from
    for block in blocks:
        text += [_diff_line(" ", line) for line in before[at : block.old_from]]
        text += [_diff_line("-", line) for line in before[block.old_from : block.old_to]]
        text += [_diff_line("+", line) for line in after[block.new_from : block.new_to]]
        at = block.old_to
    text += [_diff_line(" ", line) for line in before[at:old_to]]
    return text


def _range(start: int, end: int) -> str:
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _diff_line(sign: str, line: bytes) -> str:
    text = sign + line.decode("utf-8", "backslashreplace")
    return text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n"


# One view of the past -------------------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """A revision while a document's past is walked through, from the oldest on."""

    row: Revision
    content: bytearray | None
    """Valid until the next stage; None: absent (the row has no size), or not known."""
    grown: bytes | None
    """These bytes were added at the end, and nothing else changed."""
    before: bytes | None
    """The content before it, where it was wanted and is known (empty: absent)."""


@dataclass(slots=True)
class Undone:
    """One document that a call changed, and what it was before."""

    row: Revision
    before: bytes | None = None
    """None: it was absent."""
    problem: Refused | None = None
    """Why what was there before is not known."""
    later: list[Revision] = field(default_factory=list)


class Stale(Exception):
    """A document is just being changed: its file, what is published and the view of the journal do not fit together."""


@dataclass(slots=True)
class Past:
    """`known` is what is published now; `changing` tells of a document that is just being made visible."""

    ask: Ask
    known: Mapping[At, Known]
    doubtful: Collection[int] = ()
    changing: Callable[[At], bool] = lambda at: False
    patient: bool = False
    """Whether to raise Stale, so that all can be asked again; else a document that does not fit is taken as it is."""
    _unfinished: frozenset[int] = frozenset()
    _files: dict[At, tuple[bytes, store.Stat] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._unfinished = frozenset(row[0] for row in self.ask("SELECT id FROM groups WHERE state='committed'", ()))

    def _read(self, at: At) -> tuple[bytes, store.Stat] | None:
        """The document's file; looked at once, so that all answers speak of the same bytes."""
        if at not in self._files:
            self._files[at] = store.read(absolute(at))
        return self._files[at]

    def _must_fit(self, at: At) -> None:
        """Before it is said that something is not recorded or not known. Raises Stale."""
        changing = self.changing(at)  # before `known`: what is published is known before it changes no more
        known, row = self.known.get(at), self.last(at)
        fits = known.rev == row.rev if known is not None and row is not None else row is None
        if fits and at in self._files:
            # What was read may have been replaced since, by what is known now.
            found, now = self._files[at], store.look(absolute(at))
            fits = (found[1].start if found is not None else None) == (now.start if now is not None else None)
        if self.patient and (changing or not fits):
            raise Stale

    # Rows -------------------------------------------------------------------------------------------------------------

    def _shown(self, row: Revision) -> bool:
        """Not one of a group that may still be taken back."""
        if row.grp is None or (row.grp not in self._unfinished and row.grp not in self.doubtful):
            return True
        known = self.known.get(At(row.root, row.path))
        return row.grp not in self.doubtful and known is not None and known.rev >= row.rev

    def rows(self, at: At, low: int = 0, high: int | None = None) -> list[Revision]:
        """The revisions of a document with their frames, the oldest first, from the last whole frame up to `low` on."""
        found = self.ask(
            f"SELECT {_COLUMNS} FROM revisions WHERE root=?1 AND path=?2 AND rev <= ?4 AND rev >="
            " coalesce((SELECT max(rev) FROM revisions WHERE root=?1 AND path=?2 AND rev <= ?3 AND frame='full'), 0)"
            " ORDER BY rev",
            (at.root, at.path, low, high if high is not None else 1 << 62),
        )
        return [row for row in (Revision(*values) for values in found) if self._shown(row)]

    def row(self, at: At, rev: int) -> Revision | None:
        found = self.ask(f"SELECT {_COLUMNS} FROM revisions WHERE root=? AND path=? AND rev=?", (at.root, at.path, rev))
        row = Revision(*found[0]) if found else None
        return row if row is not None and self._shown(row) else None

    def last(self, at: At) -> Revision | None:
        for values in self.ask(
            f"SELECT {_COLUMNS} FROM revisions WHERE root=? AND path=? ORDER BY rev DESC LIMIT 20", (at.root, at.path)
        ):
            if self._shown(Revision(*values)):
                return Revision(*values)
        return None

    # Content ----------------------------------------------------------------------------------------------------------

    def walk(self, at: At, rows: Sequence[Revision], want: Collection[int] = ()) -> Iterator[Stage]:
        """These revisions (all up to the newest, or up to a known one), each with its content. `want`: for which
        revisions `before` is needed too."""
        content: bytearray | None = None
        previous: Revision | None = None
        hopeless = 0
        for number, row in enumerate(rows):
            grown = None
            absent = (row.prev is None) if previous is None else previous.frame == "gone"
            before = b"" if absent else None
            if content is not None and row.rev in want:
                before = bytes(content)
            follows = previous is not None and previous.rev == row.prev
            if row.frame == "full":
                content = bytearray(row.body)
            elif row.frame == "delta" and content is not None and follows:
                if row.tail == 0 and row.head == len(content):
                    content += row.body
                    grown = bytes(row.body)
                else:
                    content[row.head : len(content) - row.tail] = row.body
            elif row.frame in ("delta", "none"):
                content = None
                if number >= hopeless:
                    content, hopeless = self._from_later(at, rows, number)
                if content is not None and before is None and _grew(previous, row):
                    before = bytes(content[: row.head])
            else:
                content = None
            yield Stage(row, content, grown, before)
            previous = row

    def _from_later(self, at: At, rows: Sequence[Revision], number: int) -> tuple[bytearray | None, int]:
        """The content of a log that was not read then: what only grew since begins with it. Also how far it did."""
        size = rows[number].size
        if size is None:
            return None, 0
        added: list[Revision] = []
        for end in range(number + 1, len(rows)):
            row = rows[end]
            if not _grew(rows[end - 1], row):
                return None, end
            if row.frame == "full":
                return _beginning(bytes(row.body), size, added), end
            added.append(row)
        known = self.known.get(at)
        if known is None or known.rev != rows[-1].rev:
            return None, len(rows)
        try:
            found = self._read(at)
        except (OSError, StatedError):
            return None, len(rows)
        if found is None or found[1].start != known.start or len(found[0]) != rows[-1].size:
            return None, len(rows)
        return _beginning(found[0], size, added), len(rows)

    def content(self, at: At, rev: int) -> tuple[Revision, bytes | None]:
        """A revision and its content; None: the document was absent. Raises Refused."""
        row = self.row(at, rev)
        if row is None:
            raise self._no_such(at, rev)
        if row.frame == "gone":
            return row, None
        for last_look in (False, True):  # what is being written may be published between the two
            for high in (rev, None):
                for stage in self.walk(at, self.rows(at, rev, high)):
                    if stage.row.rev == rev and stage.content is not None:
                        return row, bytes(stage.content)
                if row.frame == "dropped":
                    break
            if not last_look:
                self._must_fit(at)
        raise not_kept(at, row)

    def _no_such(self, at: At, rev: int) -> Refused:
        found = self.ask("SELECT max(rev) FROM revisions WHERE root=? AND path=? AND rev < ?", (at.root, at.path, rev))
        near = found[0][0]
        hint = f"the one before is {near}" if near is not None else ""
        return Refused(f"this document has no revision {rev}", where=at.path, hint=hint or "`statectl log` names them")

    def now(self, at: At) -> tuple[bytes | None, Revision | None]:
        """What is on the disk, and its revision (None: nobody recorded it yet, or there is nothing)."""
        found, row = self._read(at), self.last(at)
        same = self._is(at, found, row)
        if not same:
            self._must_fit(at)
            same = self._is(at, found, row)  # it may have been published between the two looks
        return (found[0] if found is not None else None), (row if same else None)

    def _is(self, at: At, found: tuple[bytes, store.Stat] | None, row: Revision | None) -> bool:
        """Whether what is on the disk is this revision."""
        known = self.known.get(at)
        if found is None:
            return row is not None and row.frame == "gone"
        if row is None or known is None or known.rev != row.rev:
            return False
        return known.start == found[1].start or (bool(known.hash) and known.hash == store.digest(found[0]))

    # Questions --------------------------------------------------------------------------------------------------------

    def log(self, below: Collection[At] | None, limit: int, after: int | None, origin: str | None) -> dict[str, Any]:
        """The newest revisions, of these documents or of all: `{revisions, more}`."""
        conditions, values = ["1"], list[Any]()
        if after is not None:
            conditions.append("r.at >= ?")
            values.append(after)
        if origin is not None:
            conditions.append("r.origin = ?")
            values.append(origin)
        found: list[tuple[Revision, int | None]] = []
        for condition, more in _places(below):
            found += self._newest(" AND ".join((*conditions, condition)), (*values, *more), limit + 1)
        found.sort(key=lambda pair: (-pair[0].rev, pair[0].root, pair[0].path))
        shown = found[:limit]
        counts = self._counts(shown)
        rows = [self._log_row(row, counts[number]) for number, (row, _) in enumerate(shown)]
        return {"revisions": rows, "more": len(found) > limit}

    def _newest(self, condition: str, values: Sequence[Any], count: int) -> list[tuple[Revision, int | None]]:
        """Rows, each with the size of the one before."""
        columns = ", ".join(f"r.{name}" for name in _COLUMNS.split(", "))
        hidden = self.ask(
            "SELECT count(*) FROM revisions WHERE grp IN (SELECT id FROM groups WHERE state='committed')", ()
        )
        found = self.ask(
            f"SELECT {columns}, p.size FROM revisions AS r LEFT JOIN revisions AS p ON p.root=r.root AND p.path=r.path"
            f" AND p.rev=r.prev WHERE {condition} ORDER BY r.rev DESC LIMIT ?",
            (*values, count + hidden[0][0] + len(self.doubtful)),
        )
        rows = [(Revision(*row[:-1]), row[-1]) for row in found]
        return [pair for pair in rows if self._shown(pair[0])]

    def _counts(self, shown: Sequence[tuple[Revision, int | None]]) -> list[tuple[int, int] | None]:
        """Lines added and removed by each, where both contents are known."""
        counts: list[tuple[int, int] | None] = [None] * len(shown)
        harder: dict[At, dict[int, int]] = {}
        for number, (row, size) in enumerate(shown):
            if row.frame == "delta" and row.tail == 0 and row.head == size and row.body[:1] != b"\n":
                counts[number] = (count_lines(bytes(row.body)), 0)
            else:
                harder.setdefault(At(row.root, row.path), {})[row.rev] = number
        for at, wanted in harder.items():
            low = self.row(at, min(wanted))
            first = low.prev if low is not None and low.prev is not None else min(wanted)
            for stage in self.walk(at, self.rows(at, first), wanted):
                if stage.row.rev not in wanted:
                    continue
                counts[wanted[stage.row.rev]] = _count(stage)
                if stage.row.rev == max(wanted):
                    break
        return counts

    def _log_row(self, row: Revision, counted: tuple[int, int] | None) -> dict[str, Any]:
        created = row.prev is None or (row.frame == "full" and self._was_gone(row))
        what = "deleted" if row.frame == "gone" else "found" if created and row.origin == "outside" else None
        return {
            "rev": row.rev,
            "path": row.path,
            "root": row.root,
            "origin": row.origin,
            "call": row.call,
            "method": row.method,
            "at": _stamp(row.at),
            "size": row.size,
            "what": what or ("created" if created else "changed"),
            "added": counted[0] if counted else None,
            "removed": counted[1] if counted else None,
            "kept": row.frame in ("full", "delta", "gone"),
        }

    def _was_gone(self, row: Revision) -> bool:
        found = self.ask(
            "SELECT 1 FROM revisions WHERE root=? AND path=? AND rev=? AND frame='gone'", (row.root, row.path, row.prev)
        )
        return bool(found)

    def unrecorded(self, at: At) -> dict[str, Any] | None:
        """An edit that nobody recorded yet, as a row of the log without a number."""
        try:
            content, row = self.now(at)
        except (OSError, StatedError):
            return None
        last = self.last(at)
        if row is not None or (content is None and (last is None or last.frame == "gone")):
            return None
        before: bytes | None = b""
        if last is not None:
            try:
                before = self.content(at, last.rev)[1] or b""
            except Refused:
                before = None
        found = store.look(absolute(at))
        when = found.mtime // 1_000_000_000 if found is not None else None
        blocks = changed_lines(before, content or b"") if before is not None else None
        return {
            "rev": None,
            "path": at.path,
            "root": at.root,
            "origin": "outside",
            "call": None,
            "method": None,
            "at": _stamp(when) if when is not None else None,
            "size": len(content) if content is not None else None,
            "what": "deleted" if content is None else "found" if last is None else "changed",
            "added": _added(blocks) if blocks is not None else None,
            "removed": _removed(blocks) if blocks is not None else None,
            "kept": False,
        }

    def show(self, at: At, rev: int) -> dict[str, Any]:
        """`{rev, root, path, exists, size, hash, text}`; a content that is no UTF-8 comes as `base64` instead."""
        row, content = self.content(at, rev)
        answer: dict[str, Any] = {"rev": row.rev, "root": at.root, "path": at.path, "exists": content is not None}
        if content is None:
            return {**answer, "text": None}
        _fits(at, content)
        answer |= {"size": len(content), "hash": f"sha256:{store.digest(content)}"}
        try:
            return {**answer, "text": content.decode()}
        except UnicodeDecodeError as error:
            return {**answer, "text": None, "base64": base64.b64encode(content).decode(), "bad_byte": error.start}

    def diff(self, at: At, rev: int, to: int | None) -> dict[str, Any]:
        """`{from, to, same, added, removed, diff}`; without `to`, against what is on the disk."""
        row, old = self.content(at, rev)
        if to is None:
            new, last = self.now(at)
            name, number = "now", last.rev if last is not None else None
        else:
            last, new = self.content(at, to)
            name, number = str(to), to
        _fits(at, old or b"")
        _fits(at, new or b"")
        answer: dict[str, Any] = {"path": at.path, "root": at.root, "from": row.rev, "to": number, "same": old == new}
        if b"\0" in (old or b"") or b"\0" in (new or b""):
            text = "" if old == new else f"{at.path}@{rev} and {at.path}@{name} differ, and are no text\n"
            return {**answer, "added": None, "removed": None, "diff": text}
        blocks = changed_lines(old or b"", new or b"")
        old_name = f"{at.path}@{rev}" if old is not None else "/dev/null"
        new_name = f"{at.path}@{name}" if new is not None else "/dev/null"
        text = unified(old or b"", new or b"", old_name, new_name)
        if not text and (old is None) != (new is None):
            text = f"--- {old_name}\n+++ {new_name}\n"
        return {**answer, "added": _added(blocks), "removed": _removed(blocks), "diff": text}

    def blame(self, at: At) -> dict[str, Any]:
        """Every line of the document as it is now, with the revision that last changed it."""
        content, now = self.now(at)
        _fits(at, content or b"")
        owners, old = self._owners(at)
        if content is None:
            owners = []
        elif now is None:
            _hand_over(owners, old, content, _Owner(None))
        elif old != content:
            owners = [_Owner(now, earlier=True)] * count_lines(content)  # its content was dropped
        lines = lines_of(content or b"")
        rows = [
            {"line": number, "text": line.decode("utf-8", "replace").rstrip("\r\n"), **_described(owner)}
            for number, (line, owner) in enumerate(zip(lines, owners, strict=True), 1)
        ]
        rev = now.rev if now is not None else None
        return {"path": at.path, "root": at.root, "rev": rev, "exists": content is not None, "lines": rows}

    def _owners(self, at: At) -> tuple[list[_Owner], bytes]:
        """Whose the lines of the newest recorded revision are, and its content."""
        owners: list[_Owner] = []
        old = bytearray()
        known = False
        for stage in self.walk(at, self.rows(at)):
            row, content = stage.row, stage.content
            if row.frame == "gone":
                owners, old, known = [], bytearray(), True
            elif content is None:
                owners, old, known = [], bytearray(), False
            elif not known:
                # What was there before is not known, or there was nothing.
                owners = _first_owners(row, bytes(content))
                old, known = bytearray(content), True
            elif stage.grown is not None:
                _append(owners, old, stage.grown, _Owner(row))
                old += stage.grown
            else:
                _hand_over(owners, bytes(old), bytes(content), _Owner(row))
                old = bytearray(content)
        return owners, bytes(old)

    def of_call(self, call: str) -> list[Undone]:
        """What a call changed, and what was there before. Raises Refused when it changed no document."""
        found = self.ask("SELECT rev FROM calls WHERE id=?", (call,))
        if found:
            rows = self.ask(
                f"SELECT {_COLUMNS} FROM revisions WHERE rev=? AND call=? ORDER BY root, path", (found[0][0], call)
            )
        else:  # older than ids are remembered
            rows = self.ask(
                f"SELECT {_COLUMNS} FROM revisions WHERE call=?1 AND rev=(SELECT max(rev) FROM revisions WHERE call=?1)"
                " ORDER BY root, path",
                (call,),
            )
        changed = [row for row in (Revision(*values) for values in rows) if self._shown(row)]
        if not changed:
            if found:
                raise Refused(
                    "the history has no document that this call changed; what is only remembered is not undone",
                    where=call,
                )
            raise Refused(
                "no such call is known", where=call, hint="`statectl log` names the calls that changed something"
            )
        return [self._undone(row) for row in changed]

    def _undone(self, row: Revision) -> Undone:
        at = At(row.root, row.path)
        undone = Undone(row, later=self.after(at, row.rev))
        if row.prev is None:
            return undone
        try:
            undone.before = self.content(at, row.prev)[1]
        except Refused as problem:
            undone.problem = problem
        return undone

    def after(self, at: At, rev: int) -> list[Revision]:
        """The revisions after one, without their bytes."""
        columns = _COLUMNS.replace("body", "x''")
        found = self.ask(
            f"SELECT {columns} FROM revisions WHERE root=? AND path=? AND rev > ? ORDER BY rev", (at.root, at.path, rev)
        )
        return [row for row in (Revision(*values) for values in found) if self._shown(row)]

    def last_good(self, at: At, form: Form) -> int | None:
        """The newest revision whose content is known and parses."""
        for (rev,) in self.ask(
            "SELECT rev FROM revisions WHERE root=? AND path=? AND frame IN ('full', 'delta', 'none')"
            " ORDER BY rev DESC",
            (at.root, at.path),
        ):
            try:
                _, content = self.content(at, rev)
            except Refused:
                continue
            if content is not None and good(form, content):
                return int(rev)
        return None


class _Owner(NamedTuple):
    row: Revision | None
    """None: somebody whose edit is not recorded yet."""
    earlier: bool = False
    """The line is of this row, or older: no content before it is known."""


def _described(owner: _Owner) -> dict[str, Any]:
    row = owner.row
    if row is None or owner.earlier:
        origin = "outside" if row is None else None
        before = row.rev if row is not None else None
        return {"rev": None, "origin": origin, "call": None, "method": None, "at": None, "before": before}
    at = _stamp(row.at)
    return {"rev": row.rev, "origin": row.origin, "call": row.call, "method": row.method, "at": at, "before": None}


def _append(owners: list[_Owner], old: bytearray, grown: bytes, owner: _Owner) -> None:
    """In place: a log may have been appended to ten thousand times."""
    count = count_lines(grown)
    if old and old[-1:] != b"\n":
        count -= 1
        if grown[:1] != b"\n":  # else the line got its ending, and nothing else
            owners[-1] = owner
    owners += [owner] * count


def _hand_over(owners: list[_Owner], old: bytes, new: bytes, owner: _Owner) -> None:
    """The lines that stayed keep their owners. That a last line got its ending is no change of it."""
    for block in reversed(changed_lines(_ended(old), _ended(new))):
        owners[block.old_from : block.old_to] = [owner] * (block.new_to - block.new_from)


def _ended(content: bytes) -> bytes:
    return content + b"\n" if content and not content.endswith(b"\n") else content


def _first_owners(row: Revision, content: bytes) -> list[_Owner]:
    """The oldest known content: which of its lines this revision wrote, as far as its frame tells."""
    count = count_lines(content)
    if row.prev is None:
        return [_Owner(row)] * count
    owners = [_Owner(row, earlier=True)] * count
    if row.head or row.tail:
        first = content.count(b"\n", 0, row.head)
        end = len(content) - row.tail
        last = content.count(b"\n", 0, end) + (end > row.head and content[end - 1 : end] != b"\n")
        owners[first:last] = [_Owner(row)] * (last - first)
    return owners


def _grew(before: Revision | None, row: Revision) -> bool:
    """Whether a revision only added bytes behind all of the one before."""
    return (
        before is not None
        and row.prev == before.rev
        and row.frame in ("full", "delta")
        and row.tail == 0
        and before.frame != "dropped"
        and before.size == row.head
    )


def _beginning(content: bytes, size: int, added: Sequence[Revision]) -> bytearray | None:
    """The first bytes of a later content, if it holds what was added where it was added."""
    for row in added:
        if content[row.head : row.head + len(row.body)] != bytes(row.body):
            return None
    return bytearray(content[:size])


def _count(stage: Stage) -> tuple[int, int] | None:
    before = stage.before
    if before is None:
        return None
    if stage.row.frame == "gone":
        return 0, count_lines(before)
    if stage.content is None:
        return None
    blocks = changed_lines(before, bytes(stage.content))
    return _added(blocks), _removed(blocks)


def _added(blocks: Iterable[Block]) -> int:
    return sum(block.new_to - block.new_from for block in blocks)


def _removed(blocks: Iterable[Block]) -> int:
    return sum(block.old_to - block.old_from for block in blocks)


def _places(below: Collection[At] | None) -> list[tuple[str, tuple[Any, ...]]]:
    if below is None:
        return [("1", ())]
    return [("r.root = ? AND r.path = ?", (at.root, at.path)) for at in below]


def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fits(at: At, content: bytes) -> None:
    """An answer is one message, and its text may take three bytes where a document has one."""
    if len(content) > config.MAX_LINE:
        raise Refused(
            f"{len(content)} bytes are too many for one answer, which holds {config.MAX_LINE}",
            where=at.path,
            hint="`statectl restore` brings it back all the same",
        )


def not_kept(at: At, row: Revision) -> Refused:
    why = {
        "dropped": "was dropped: by `purge`, or as the oldest when the history reached its bound",
        "none": "was not kept: it was never read before it changed, or the history is switched off",
    }
    reason = why.get(row.frame, "cannot be put together: an older version it is made from is not known")
    return Refused(
        f"the content of revision {row.rev} {reason}", where=at.path, hint="`statectl log` tells which are kept"
    )


# Words ----------------------------------------------------------------------------------------------------------------

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def since(text: str, now: datetime) -> int:
    """Seconds since the epoch that `30m`, `7d`, `2026-09-01` or `2026-09-01T06:00:00Z` mean. `now` is in the zone of
    dates without one. Raises Usage."""
    count, unit = text[:-1], text[-1:]
    if count.isascii() and count.isdigit() and unit in _UNITS and len(count) < 10:
        return int(now.timestamp()) - int(count) * _UNITS[unit]
    try:
        given = datetime.fromisoformat(text)
        return int((given if given.tzinfo is not None else given.replace(tzinfo=now.tzinfo)).timestamp())
    except (ValueError, OverflowError):
        raise Usage("expected a duration such as 90m, 24h or 7d, or a date", where="--since") from None


def find_documents(path: str, cwd: str | None, known: Iterable[At], roots: Collection[str]) -> tuple[list[At], bool]:
    """The documents that a path means, and whether it is one's own path and not a folder's. Raises Usage, or Refused
    when none is known there."""
    if not path:
        raise Usage("expected the path of a document", where="PATH")
    if not path.startswith("/") and not (cwd or "").startswith("/"):
        raise Usage("expected an absolute path", where="PATH")
    plain = os.path.normpath(os.path.join(cwd or "/", path))
    folder, name = os.path.split(plain)
    spellings = dict.fromkeys([os.path.join(os.path.realpath(folder), name), os.path.realpath(plain), plain])
    places = {absolute(at): at for at in known}
    for spelling in spellings:
        if spelling in places:
            return [places[spelling]], True
    for spelling in spellings:
        below = [at for absolute_path, at in places.items() if absolute_path.startswith(f"{spelling}/")]
        if below or spelling in roots:
            return below, False
    real = os.path.realpath(plain)
    for absolute_path, at in places.items():
        if os.path.islink(absolute_path) and os.path.realpath(absolute_path) == real:
            return [at], True
    for spelling in spellings:
        root = max((root for root in roots if spelling.startswith(f"{root}/")), key=len, default=None)
        if root is not None and os.path.isfile(spelling):
            return [At(root, spelling[len(root) + 1 :])], True  # nobody looked at it yet
    raise Refused("no history of this file is known", where=path, hint="`statectl log` shows all that is")


# Bringing back --------------------------------------------------------------------------------------------------------


def good(form: Form, content: bytes) -> bool:
    if form == "json":
        return json_text.parse(content).ok
    if form == "lines":
        return not json_lines.parse(content).bad
    return True


def _check(at: At, form: Form, content: bytes | None, now: bytes | None, what: str) -> None:
    """Only what parses is brought back; a bad line of a log may stay where it stands already. Raises Refused."""
    if content is None:
        return
    if form == "json":
        problem = json_text.parse(content).problem
        if problem is not None:
            raise Refused(
                f"{what} is not JSON: {problem.message} (line {problem.line})",
                where=at.path,
                hint="`statectl show` prints it; choose another revision",
            )
    elif form == "lines":
        there = {line.raw for line in json_lines.parse(now).bad} if now is not None else set[bytes]()
        bad = [line for line in json_lines.parse(content).bad if line.raw not in there]
        if bad:
            raise Refused(
                f"{what} has a line that is no record: {bad[0].problem}",
                where=f"{at.path}:{bad[0].number}",
                hint="`statectl show` prints it; choose another revision",
            )


def _change(at: At, content: bytes | None) -> Change:
    return Delete(at) if content is None else Write(at, content)


Run = Callable[[Docs, Any, Context], Outcome]


def restoring(at: At, rev: int, content: bytes | None, problem: Refused | None, form: Form) -> Run:
    """For the queue: make the document what it was in one revision (None: absent)."""

    def run(docs: Docs, params: Any, context: Context) -> Outcome:
        if problem is not None:
            raise problem
        now = docs.text(at)
        there = now.raw if now.exists else None
        _check(at, form, content, there, f"revision {rev}")
        result = {"path": at.path, "root": at.root, "restored": rev, "changed": there != content}
        if there == content:
            return Outcome({**result, "rev": docs.rev(at)}, subject=at)
        return Outcome(result, (_change(at, content),), subject=at)

    return run


def undoing(call: str, rows: Sequence[Undone], problem: Refused | None, form: Callable[[At], Form]) -> Run:
    """For the queue: make every document that a call changed what it was before, unless one was changed since."""

    def run(docs: Docs, params: Any, context: Context) -> Outcome:
        if problem is not None:
            raise problem
        later: list[Undone] = []
        there: dict[At, bytes | None] = {}
        for undone in rows:
            at = At(undone.row.root, undone.row.path)
            now = docs.text(at)
            there[at] = now.raw if now.exists else None
            same = not now.exists if undone.row.frame == "gone" else now.exists and docs.rev(at) == undone.row.rev
            if undone.later or not same:
                later.append(undone)
        if later:
            places = [{"root": undone.row.root, "path": undone.row.path, "rev": undone.row.rev} for undone in later]
            raise Refused("changed since", where=call, data={"changed": places})
        for undone in rows:
            if undone.problem is not None:
                raise undone.problem
        documents = []
        for undone in rows:
            at = At(undone.row.root, undone.row.path)
            _check(at, form(at), undone.before, there[at], "what was there before")
            documents.append({"path": at.path, "root": at.root, "from": undone.row.rev, "to": undone.row.prev})
        changes = tuple(_change(At(undone.row.root, undone.row.path), undone.before) for undone in rows)
        return Outcome({"undone": call, "documents": documents}, changes)

    return run


def changed_since(past: Past, error: Refused) -> Refused:
    """Says of a refused undo which documents were changed since, by whom."""
    parts = []
    places = []
    for place in error.data["changed"]:
        later = past.after(At(place["root"], place["path"]), place["rev"])
        by = [_by(row) for row in later] or ["by hand"]
        if len(by) > 3:
            by = [*by[:2], f"{len(by) - 3} more times", by[-1]]
        parts.append(f"{place['path']} was changed since {', '.join(by)}")
        rows = [{"rev": row.rev, "origin": row.origin, "call": row.call, "method": row.method} for row in later]
        places.append({**place, "by": rows})
    hint = "`statectl restore PATH@REV` brings back one document"
    return Refused("; ".join(parts), where=error.where, hint=hint, data={"changed": places})


def _by(row: Revision) -> str:
    if row.origin != "call":
        return f"by hand (revision {row.rev})"
    return f"by {row.method} (call {row.call}, revision {row.rev})"


# Keeping it within its bound ------------------------------------------------------------------------------------------


class Cut(NamedTuple):
    """A document whose content before a revision may go."""

    at: At
    before: int


class Keeper:
    """`form` tells how a document is parsed, `forgot` is told when a document's newest content is no longer kept.

    `queue` has something done in the writer's thread, in the queue's order, and `aside` in another one; `ending` tells
    that the process is about to stop.
    """

    def __init__(
        self,
        journal: Journal,
        bound: int,
        known: Mapping[At, Known],
        *,
        form: Callable[[At], Form],
        forgot: Callable[[At], None],
        queue: Callable[[Callable[[], None]], None],
        aside: Callable[[Callable[[], None]], None],
        ending: Callable[[], bool],
        rows: int = config.HISTORY_ROWS,
    ) -> None:
        self._journal = journal
        self._bound = bound
        self._most = rows
        self._known = known
        self._form = form
        self._forgot = forgot
        self._queue = queue
        self._aside = aside
        self._ending = ending
        self._busy = False
        self._in_vain = (0, 0)

    def checkpointed(self) -> None:
        """In the writer's thread, after each checkpoint: begin to make room when the history is over its bound."""
        if not self._busy and self._is_over():
            self._busy = True
            self._aside(lambda: self._plan(1))

    def _is_over(self) -> bool:
        size, rows = self._journal.held
        return size > max(self._bound, self._in_vain[0]) or rows > max(self._most, self._in_vain[1])

    def _excess(self) -> tuple[int, int]:
        """Bytes and rows to make free; a little more than what is too much."""
        size, rows = self._journal.held
        low_size = self._bound - self._bound // config.HISTORY_SLACK
        low_rows = self._most - self._most // config.HISTORY_SLACK
        return max(0, size - low_size), max(0, rows - low_rows)

    def _plan(self, strength: int) -> None:
        """Aside: which documents to cut where. `strength` rises while too little could go."""
        try:
            plan, rows_before, all_of_it = self.plan(strength)
        except Exception as error:  # whatever it is, the next checkpoint begins anew
            _log.warning("the history cannot be read to keep it within its bound", reason=str(error))
            self._busy = False
            return
        self._queue(lambda: self._work(plan, rows_before, strength, all_of_it))

    def plan(self, strength: int = 1) -> tuple[deque[Cut], int, bool]:
        """The documents to cut, the revision before which rows without content may go, whether that is all there is.

        It is the oldest content that together is as large as what is too much, `strength` times.
        """
        too_much, too_many = (excess * strength for excess in self._excess())
        documents: dict[At, None] = {}
        before = rows_before = size = count = 0
        last: tuple[int, str, str] = (0, "", "")
        with self._journal.reading() as ask:
            while size < too_much or count < too_many:
                part = ask(
                    "SELECT rev, root, path, length(body), frame IN ('full', 'delta') FROM revisions"
                    " WHERE (rev, root, path) > (?, ?, ?) ORDER BY rev, root, path LIMIT 1000",
                    last,
                )
                if not part:
                    return deque(Cut(at, before) for at in documents), rows_before, True
                for rev, root, path, length, has_content in part:
                    if size >= too_much and count >= too_many:
                        break
                    count += 1
                    if has_content:
                        size += length or 0
                        documents[At(root, path)] = None
                    before = rev + 1
                    rows_before = before if count <= too_many else rows_before
                last = part[-1][:3]
        return deque(Cut(at, before) for at in documents), rows_before, False

    def _work(self, plan: deque[Cut], rows_before: int, strength: int, all_of_it: bool) -> None:
        """In the writer's thread: a slice, then the rest behind what waits in the queue."""
        deadline = time.monotonic() + config.HISTORY_STEP
        try:
            while plan and time.monotonic() < deadline:
                self.cut(*plan.popleft())
            more = bool(plan)
            while rows_before and not more and time.monotonic() < deadline:
                if not self._journal.drop_rows(rows_before, 500):
                    rows_before = 0
            more = more or bool(rows_before) or self._journal.shrink(256)
        except Exception as error:  # whatever it is, the next checkpoint begins anew
            _log.warning("the history cannot be cut", reason=str(error))
            self._busy = False
            return
        if more and not self._ending():
            self._queue(lambda: self._work(plan, rows_before, strength, all_of_it))
        elif any(self._excess()) and not all_of_it and not self._ending():
            self._aside(lambda: self._plan(2 * strength))
        else:
            # What is left over the bound has to stay: look again when there is a good deal more.
            size, rows = self._journal.held
            self._in_vain = (size + size // config.HISTORY_SLACK, rows + rows // config.HISTORY_SLACK)
            self._busy = False

    def cut(self, at: At, before: int, *, purge: bool = False) -> tuple[int, int]:
        """Drop the content of a document's revisions before one; returns how many, and their bytes.

        `purge`: whatever it is needed for, and its bytes are overwritten.
        """
        with self._journal.reading() as ask:
            rows = [
                Revision(*values)
                for values in ask(
                    f"SELECT {_COLUMNS} FROM revisions WHERE root=? AND path=? ORDER BY rev", (at.root, at.path)
                )
            ]
            keep = self._keep(ask, at, rows, before, purge)
            dropped = [row for row in rows if row.rev not in keep and row.frame in _DROPPABLE[purge]]
            if not dropped:
                return 0, 0
            whole = _made_whole(ask, at, rows, keep, {row.rev for row in dropped})
        freed = sum(len(row.body) for row in dropped)
        sizes = {row.rev: len(row.body) for row in rows}
        if not purge and self._bound and sum(len(content) - sizes[rev] for rev, content in whole.items()) >= freed:
            return 0, 0  # a log whose every version is the beginning of the next: nothing would be gained
        self._journal.reframe(at.root, at.path, whole, [row.rev for row in dropped], erase=purge)
        if rows[-1].rev not in keep:
            self._forgot(at)
        return len(dropped), freed

    def _keep(self, ask: Ask, at: At, rows: Sequence[Revision], before: int, purge: bool) -> set[int]:
        keep = {row.rev for row in rows if row.rev >= before}
        if purge:
            return keep
        under_way = {row[0] for row in ask("SELECT id FROM groups", ())}
        keep |= {row.rev for row in rows if row.grp in under_way}
        if not self._bound:
            return keep
        if rows:
            keep.add(rows[-1].rev)
        keep |= _around_conflicts(ask, at, rows)
        known = self._known.get(at)
        if known is None or known.hash or known.start == store.ABSENT:  # else a log that nobody has read
            last_good = Past(ask, self._known).last_good(at, self._form(at))
            if last_good is not None:
                keep.add(last_good)
        return keep


def _made_whole(
    ask: Ask, at: At, rows: Sequence[Revision], keep: Collection[int], dropped: Collection[int]
) -> dict[int, bytes]:
    """Kept revisions whose changed bytes start from one that goes. A log that was never read stays unread."""
    wanted = {row.rev for row in rows if row.rev in keep and row.frame == "delta" and row.prev in dropped}
    whole: dict[int, bytes] = {}
    for stage in Past(ask, {}).walk(at, rows):
        if len(whole) == len(wanted):
            break
        if stage.row.rev in wanted and stage.content is not None:
            whole[stage.row.rev] = bytes(stage.content)
    return whole


_DROPPABLE = {False: ("full", "delta"), True: ("full", "delta", "none")}


def _around_conflicts(ask: Ask, at: At, rows: Sequence[Revision]) -> set[int]:
    """The revisions that were there when two edits met, while the copy is still to be looked at.

    Times are whole seconds: of those within that second, some.
    """
    keep: set[int] = set()
    for moment, copy in ask(
        "SELECT at, copy FROM notices WHERE root=? AND path=? AND copy IS NOT NULL", (at.root, at.path)
    ):
        if not os.path.exists(copy):
            continue
        earlier = [row.rev for row in rows if row.at < moment]
        within = [row.rev for row in rows if row.at == moment]
        later = [row.rev for row in rows if row.at > moment]
        keep.update(earlier[-1:], within[:5], within[-5:], later[:1])
    return keep
