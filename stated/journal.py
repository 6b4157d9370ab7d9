"""The memory of the past and of what is under way: one SQLite file (WAL, `synchronous=FULL`) per home.

What may be relied on:

- A transaction that returned is on the disk. One that raised `JournalFailed` may come back to life after a restart: its
  groups are *doubtful*, and every later transaction voids them first.
- Losing the file makes nothing in a state file wrong: `JournalGone` is raised at the next transaction, and `reopen`
  starts an empty one.
- The connection may be used from several threads, one at a time; no call on a state file is made while it is held.
- Revision numbers come from a block reserved on the disk, so that a reader can take one without a transaction, and a
  number is never given twice.

Rows of a *group* (its steps with their redo bytes) live until it is durable or void. Revisions are the history: each is
a whole frame, or the bytes that differ from the revision before; `history` puts them together and keeps them bounded.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from stated import config
from stated.documents.json_text import dumps, parse
from stated.faults import reach
from stated.store import ABSENT, Start, Step, changed_bytes

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS roots (
    path TEXT PRIMARY KEY, token TEXT, domain TEXT NOT NULL DEFAULT '', opened TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
    id TEXT PRIMARY KEY, request TEXT NOT NULL, answer BLOB NOT NULL, rev INTEGER, grp INTEGER,
    at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_at ON calls (at);
CREATE INDEX IF NOT EXISTS calls_grp ON calls (grp);
CREATE TABLE IF NOT EXISTS groups (
    id INTEGER PRIMARY KEY, state TEXT NOT NULL, boot TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    grp INTEGER NOT NULL, n INTEGER NOT NULL, root TEXT NOT NULL, mount TEXT NOT NULL, kind TEXT NOT NULL,
    path TEXT NOT NULL, target TEXT NOT NULL, staging TEXT NOT NULL,
    start_ino INTEGER, start_size INTEGER, start_mtime INTEGER, start_hash TEXT,
    staged_ino INTEGER, staged_size INTEGER, staged_mtime INTEGER, hash TEXT, content BLOB, files BLOB,
    PRIMARY KEY (grp, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS remembered (
    grp INTEGER NOT NULL, n INTEGER NOT NULL, domain TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, before BLOB,
    after BLOB, PRIMARY KEY (grp, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    root TEXT NOT NULL, path TEXT NOT NULL, rev INTEGER NOT NULL, ino INTEGER, size INTEGER, mtime INTEGER, hash TEXT,
    depth INTEGER NOT NULL, PRIMARY KEY (root, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revisions (
    rev INTEGER NOT NULL, root TEXT NOT NULL, path TEXT NOT NULL, prev INTEGER, origin TEXT NOT NULL, call TEXT,
    method TEXT, at INTEGER NOT NULL, size INTEGER, hash TEXT,
    frame TEXT NOT NULL, head INTEGER, tail INTEGER, body BLOB, grp INTEGER,
    PRIMARY KEY (root, path, rev)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS revisions_grp ON revisions (grp);
CREATE INDEX IF NOT EXISTS revisions_hash ON revisions (hash);
CREATE INDEX IF NOT EXISTS revisions_rev ON revisions (rev);
CREATE TABLE IF NOT EXISTS memory (
    domain TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (domain, kind, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notices (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, root TEXT NOT NULL, path TEXT NOT NULL, problem TEXT NOT NULL,
    hint TEXT NOT NULL, copy TEXT, rev INTEGER);
"""
SCHEMA_VERSION = 1


class JournalFailed(Exception):
    """The journal could not be written (full, read-only, broken). `doubtful`: COMMIT itself failed."""

    def __init__(self, reason: str, doubtful: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.doubtful = doubtful


class JournalGone(Exception):  # a state of the world, answered by `reopen`
    """The file at the journal's path is not the one that is open."""


class Known(NamedTuple):
    """What the journal knows of a document: its last revision and how the file looked then."""

    rev: int
    start: Start
    hash: str
    """Empty: never read (a log that was only appended to)."""
    depth: int
    """How many changed-bytes frames since the last whole one; -1: no whole frame to start from."""


class Revision(NamedTuple):
    """One row of the history. `frame`: `full` (body is the content), `delta` (prev[:head] + body + prev's last `tail`
    bytes), `gone` (absent), `none` (never read), `dropped` (no longer kept). In a whole frame, `head` and `tail` still
    tell how many bytes at its ends were there before."""

    rev: int
    root: str
    path: str
    prev: int | None
    origin: str
    call: str | None
    method: str | None
    at: int
    size: int | None
    hash: str
    frame: str
    head: int = 0
    tail: int = 0
    body: bytes = b""
    grp: int | None = None


class Done(NamedTuple):
    """A call that changed something, as remembered under its id."""

    id: str
    request: str
    answer: bytes
    rev: int


class Memory(NamedTuple):
    domain: str
    kind: str
    key: str
    value: Any


class Notice(NamedTuple):
    root: str
    path: str
    problem: str
    hint: str
    copy: str | None = None
    id: int = 0
    at: int = 0
    rev: int | None = None
    """Of lines that an edit removed: the revision that still has them."""


@dataclass(slots=True)
class Group:
    """What becomes visible together, as the journal keeps it."""

    id: int
    steps: list[Step] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    revisions: list[Revision] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    state: str = "committed"
    boot: str = ""
    at: int = 0


DocumentRow = tuple[str, str, Known]


Ask = Callable[[str, Sequence[Any]], list[Any]]
"""Puts one question to a view of the journal. Raises JournalFailed."""

WAL_KEPT = 16 * config.MIB
"""Bytes that the write-ahead log keeps on the disk when it starts anew; a burst may need more for a moment."""


class Journal:
    def __init__(self, path: str, *, boot: str, clock: Callable[[], int], readonly: bool = False) -> None:
        """Open or create; `readonly` makes no file, and one that is not there is an empty one. `clock` gives seconds
        since the epoch. Raises JournalFailed."""
        self.path = path
        self.boot = boot
        self.readonly = readonly
        self.doubtful: set[int] = set()
        self.fresh = False
        self._clock = clock
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._next = 1
        self._next_group = 0
        self._ceiling = 0
        self._group_ceiling = 0
        self.held = (0, 0)
        """Bytes and rows of the history, as of the last checkpoint."""
        self._open()

    # opening and closing ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            self.fresh = not os.path.exists(self.path)
            if self.readonly:
                if self.fresh:
                    self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                    self._db.executescript(_SCHEMA)
                    return
                # A read-only folder has no room for the shared-memory file that a WAL reader needs.
                writable = os.access(os.path.dirname(self.path), os.W_OK)
                uri = f"file:{_uri(self.path)}?mode=ro" + ("" if writable else "&immutable=1")
                self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
                self.held = self._read_held(self._db)
            else:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.close(fd)
                self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
                if os.path.getsize(self.path) == 0:
                    self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # only a file without a table takes it
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute(f"PRAGMA journal_size_limit={WAL_KEPT}")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.execute("PRAGMA temp_store=MEMORY")
            self._identity = self._place()
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise JournalFailed(f"it was written by a newer release (format {version})", doubtful=False)
            if not self.readonly:
                self._db.executescript(_SCHEMA)
                if version < SCHEMA_VERSION:
                    self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                row = self._db.execute("SELECT value FROM meta WHERE key='rev'").fetchone()
                self._next = max(self._next, (row[0] if row else 0) + 1)
                # Above every number that a staging name may still have: of groups that were never committed, or that
                # another journal gave.
                row = self._db.execute("SELECT value FROM meta WHERE key='group'").fetchone()
                self._next_group = max(self._next_group, row[0] if row else 0, self._clock())
                self._ceiling = self._group_ceiling = 0
                with self.transaction() as db:
                    self._count_history(db)
        except (sqlite3.Error, OSError) as error:
            self._close_quietly()
            raise JournalFailed(str(error), doubtful=False) from error
        except JournalFailed:
            self._close_quietly()
            raise

    def _place(self) -> tuple[int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def in_place(self) -> bool:
        try:
            return self._place() == self._identity
        except OSError:
            return False

    def reopen(self) -> None:
        """After JournalGone: an empty journal at the same path; numbers go on. Raises JournalFailed."""
        with self._lock:
            self._close_quietly()
            self._next = max(self._next, self._clock())
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(OSError):
                    if not os.path.exists(self.path):
                        os.unlink(self.path + suffix)
            self._open()

    def close(self) -> None:
        with self._lock:
            if self._db is not None and not self.readonly:
                with contextlib.suppress(sqlite3.Error):
                    # What was reserved and not given is given back: one call without a daemon takes one number.
                    self._db.execute("UPDATE meta SET value=? WHERE key='rev'", (self._next - 1,))
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._close_quietly()

    def _close_quietly(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    # numbers ----------------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """The next revision number. Numbers rise and are never given twice; they may have gaps."""
        with self._lock:
            value = self._next
            self._next += 1
            return value

    def group_number(self) -> int:
        """A number for a group, never one that was given before."""
        with self._lock:
            self._next_group += 1
            return self._next_group

    def reserved_number(self) -> int | None:
        """The next number if the reserved block still has one: for readers, which make no transaction."""
        with self._lock:
            return self.number() if self._next < self._ceiling else None

    def numbers_from_the_clock(self) -> None:
        """After a foreign past was met: go on above anything that an older journal may have given."""
        with self._lock:
            self._next = max(self._next, self._clock())

    # transactions -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """BEGIN … COMMIT, with the doubtful groups voided first. Raises JournalFailed or JournalGone."""
        with self._lock:
            if self.readonly:
                raise JournalFailed("the journal is read-only", doubtful=False)
            if not self.in_place():
                raise JournalGone
            if self._db is None:
                self._open()
            db = self._db
            assert db is not None
            committing = False
            try:
                reach("journal.begin")
                db.execute("BEGIN IMMEDIATE")
                doubtful = set(self.doubtful)
                for group in doubtful:
                    self._void(db, group)
                yield db
                if self._next + config.REV_BLOCK // 2 > self._ceiling:
                    ceiling = self._next + config.REV_BLOCK
                    db.execute("INSERT OR REPLACE INTO meta VALUES ('rev', ?)", (ceiling,))
                else:
                    ceiling = self._ceiling
                group_ceiling = self._group_ceiling
                if self._next_group + config.REV_BLOCK // 2 > group_ceiling:
                    group_ceiling = self._next_group + config.REV_BLOCK
                    db.execute("INSERT OR REPLACE INTO meta VALUES ('group', ?)", (group_ceiling,))
                committing = True
                reach("journal.commit")
                db.execute("COMMIT")
                reach("journal.committed")
            except (sqlite3.Error, OSError) as error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                # A connection that met an I/O error is not trusted again.
                self._close_quietly()
                if not self.in_place():
                    raise JournalGone from error
                raise JournalFailed(str(error), doubtful=committing) from error
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
            self._ceiling = ceiling
            self._group_ceiling = group_ceiling
            self.doubtful -= doubtful
            if not self.in_place():
                raise JournalGone

    def commit(
        self,
        groups: Sequence[Group],
        *,
        voids: Iterable[int] = (),
        visible: Sequence[tuple[int, Sequence[DocumentRow]]] = (),
    ) -> None:
        """One transaction for a batch: void, mark visible, and insert the new groups. Raises JournalFailed (a doubtful
        one has put the groups among `doubtful`) or JournalGone."""
        try:
            with self.transaction() as db:
                for group_id in voids:
                    self._void(db, group_id)
                self._mark_visible(db, visible)
                for group in groups:
                    self._insert(db, group)
                reach("commit.before")
        except JournalFailed as failed:
            if failed.doubtful:
                self.doubtful.update(group.id for group in groups)
            raise

    def _insert(self, db: sqlite3.Connection, group: Group) -> None:
        now = self._clock()
        db.execute("INSERT INTO groups VALUES (?, ?, ?, ?)", (group.id, group.state, self.boot, now))
        db.executemany(
            "INSERT INTO steps VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    group.id, number, step.root, group.mounts.get(step.root, ""), step.kind, step.path, step.target,
                    step.staging,
                    *step.start, step.start_hash, *step.staged, step.hash, step.content,
                    msgspec.msgpack.encode(dict(step.files)) if step.files else None,
                )
                for number, step in enumerate(group.steps)
            ],
        )  # fmt: skip
        db.executemany(
            "INSERT OR REPLACE INTO calls VALUES (?,?,?,?,?,?)",
            [(done.id, done.request, done.answer, done.rev, group.id, now) for done in group.done],
        )
        self._put_revisions(db, group.revisions)
        for number, memory in enumerate(group.memory):
            before = db.execute(
                "SELECT value FROM memory WHERE domain=? AND kind=? AND key=?", (memory.domain, memory.kind, memory.key)
            ).fetchone()
            after = None if memory.value is None else dumps(memory.value)
            key = (memory.domain, memory.kind, memory.key)
            db.execute(
                "INSERT INTO remembered VALUES (?,?,?,?,?,?,?)",
                (group.id, number, *key, before[0] if before else None, after),
            )
            self._put_memory(db, key, after)

    def _put_memory(self, db: sqlite3.Connection, key: tuple[str, str, str], value: bytes | None) -> None:
        if value is None:
            db.execute("DELETE FROM memory WHERE domain=? AND kind=? AND key=?", key)
        else:
            db.execute("INSERT OR REPLACE INTO memory VALUES (?,?,?,?)", (*key, value))

    def _void(self, db: sqlite3.Connection, group: int) -> None:
        """As if the group had never been; its number stays taken."""
        for *key, before, after in db.execute(
            "SELECT domain, kind, key, before, after FROM remembered WHERE grp=? ORDER BY n DESC", (group,)
        ).fetchall():
            now = db.execute("SELECT value FROM memory WHERE domain=? AND kind=? AND key=?", key).fetchone()
            if (now[0] if now else None) == after:  # else a later call has set it anew
                domain, kind, name = key
                self._put_memory(db, (domain, kind, name), before)
        for table in ("calls", "revisions", "remembered"):
            db.execute(f"DELETE FROM {table} WHERE grp=?", (group,))
        # Its steps tell what a left-over staging name holds.
        db.execute("UPDATE steps SET content=NULL, files=NULL WHERE grp=?", (group,))
        db.execute("UPDATE groups SET state='void' WHERE id=?", (group,))

    def void(self, groups: Iterable[int]) -> None:
        """Void groups in a transaction of their own. Raises JournalFailed; then they are doubtful."""
        wanted = set(groups)
        try:
            self.commit((), voids=wanted)
        except JournalFailed:
            self.doubtful |= wanted
            raise

    def _mark_visible(self, db: sqlite3.Connection, visible: Sequence[tuple[int, Sequence[DocumentRow]]]) -> None:
        for group, rows in visible:
            db.execute("UPDATE groups SET state='visible' WHERE id=?", (group,))
            self._put_documents(db, rows)

    def _put_documents(self, db: sqlite3.Connection, rows: Sequence[DocumentRow]) -> None:
        # A group's rows come with the next transaction: an edit recorded meanwhile is newer.
        db.executemany(
            "INSERT INTO documents VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (root, path) DO UPDATE SET rev=excluded.rev,"
            " ino=excluded.ino, size=excluded.size, mtime=excluded.mtime, hash=excluded.hash, depth=excluded.depth"
            " WHERE excluded.rev >= documents.rev",
            [(root, path, known.rev, *known.start, known.hash, known.depth) for root, path, known in rows],
        )

    def _put_revisions(self, db: sqlite3.Connection, revisions: Sequence[Revision]) -> None:
        db.executemany("INSERT OR REPLACE INTO revisions VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", revisions)

    def record(
        self, revisions: Sequence[Revision], documents: Sequence[DocumentRow], notices: Sequence[Notice] = ()
    ) -> None:
        """Outside edits: their revisions and how the files look now."""
        with self.transaction() as db:
            self._put_revisions(db, revisions)
            self._add_held(db, sum(len(row.body) for row in revisions), len(revisions))
            self._put_documents(db, documents)
            self._put_notices(db, notices)
            held = self._read_held(db)
        self.held = held

    def _put_notices(self, db: sqlite3.Connection, notices: Sequence[Notice]) -> None:
        now = self._clock()
        db.executemany(
            "INSERT INTO notices (at, root, path, problem, hint, copy, rev) VALUES (?,?,?,?,?,?,?)",
            [(now, row.root, row.path, row.problem, row.hint, row.copy, row.rev) for row in notices],
        )

    def durable(
        self,
        groups: Sequence[int],
        visible: Sequence[tuple[int, Sequence[DocumentRow]]] = (),
        notices: Sequence[Notice] = (),
    ) -> None:
        """From here on the files need these groups no more: redo bytes and steps go."""
        with self.transaction() as db:
            self._mark_visible(db, visible)
            for group in groups:
                self._end(db, group)
            self._put_notices(db, notices)
            old = self._clock() - config.ID_KEEP_SECONDS
            db.execute("DELETE FROM calls WHERE at < ?", (old,))
            db.execute("DELETE FROM groups WHERE state='void' AND at < ? AND id NOT IN (SELECT grp FROM steps)", (old,))
            held = self._read_held(db)
        self.held = held

    def settle_root(
        self,
        ends: Sequence[tuple[int, str | None]],
        visible: Sequence[tuple[int, Sequence[DocumentRow]]] = (),
        notices: Sequence[Notice] = (),
        *,
        voids: Iterable[int] = (),
        redo: Sequence[Group] = (),
    ) -> None:
        """Recovery: these groups are done with, whole or only in one root (what is left of one is then for its other
        roots to bring back, and no longer to be taken back); `redo` takes their place; those of `voids` are forgotten
        with their ids."""
        with self.transaction() as db:
            for group in voids:
                self._void(db, group)
            for group, root in ends:
                if root is not None:
                    db.execute("DELETE FROM steps WHERE grp=? AND root=?", (group, root))
                    if db.execute("SELECT 1 FROM steps WHERE grp=? LIMIT 1", (group,)).fetchone():
                        db.execute("UPDATE groups SET state='redo' WHERE id=? AND state='committed'", (group,))
                        continue
                self._end(db, group)
            for new in redo:
                self._insert(db, new)
            self._mark_visible(db, visible)
            self._put_notices(db, notices)

    def _end(self, db: sqlite3.Connection, group: int) -> None:
        for table in ("steps", "remembered"):
            db.execute(f"DELETE FROM {table} WHERE grp=?", (group,))
        if db.execute("DELETE FROM groups WHERE id=?", (group,)).rowcount:
            # Counted here and not when they are written: the hot path has enough to do.
            held = db.execute("SELECT coalesce(sum(length(body)), 0), count(*) FROM revisions WHERE grp=?", (group,))
            self._add_held(db, *held.fetchone())

    # questions --------------------------------------------------------------------------------------------------------

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Raises JournalFailed."""
        with self._lock:
            try:
                if self._db is None:
                    if not self.in_place():
                        raise JournalFailed("the journal's file is gone", doubtful=False)
                    self._open()
                assert self._db is not None
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise JournalFailed(str(error), doubtful=False) from error

    def find_call(self, call: str, void: set[int]) -> Done | None:
        """A done call by its id; one of a group that is void or doubtful is not done."""
        rows = self._rows("SELECT id, request, answer, rev, grp FROM calls WHERE id=?", (call,))
        if not rows or rows[0][4] in void or rows[0][4] in self.doubtful:
            return None
        return Done(*rows[0][:4])

    def documents(self) -> Iterator[DocumentRow]:
        for root, path, rev, ino, size, mtime, digest, depth in self._rows("SELECT * FROM documents"):
            yield root, path, Known(rev, Start(ino, size, mtime), digest or "", depth)

    def memory(self) -> Iterator[Memory]:
        for domain, kind, key, value in self._rows("SELECT * FROM memory"):
            yield Memory(domain, kind, key, parse(value).value)

    def roots(self) -> list[dict[str, Any]]:
        return [
            {"root": path, "token": token, "domain": domain, "opened": opened}
            for path, token, domain, opened in self._rows("SELECT path, token, domain, opened FROM roots ORDER BY path")
        ]

    def put_root(self, path: str, token: str | None, domain: str, opened: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO roots VALUES (?,?,?,?)", (path, token, domain, opened))

    def forget_root(self, path: str) -> int:
        """Drop all that is remembered of a root; returns how many documents."""
        with self.transaction() as db:
            count = db.execute("SELECT count(*) FROM documents WHERE root=?", (path,)).fetchone()[0]
            size, rows = self._held_of(db, "root=?", (path,))
            self._add_held(db, -size, -rows)
            for table in ("documents", "revisions", "notices"):
                db.execute(f"DELETE FROM {table} WHERE root=?", (path,))
            db.execute("DELETE FROM roots WHERE path=?", (path,))
            held = self._read_held(db)
        self.held = held
        return int(count)

    def pending(self, root: str | None = None) -> list[Group]:
        """The groups that are neither durable nor void, oldest first: of one root, or all."""
        groups = []
        for group_id, state, boot, at in self._rows("SELECT * FROM groups WHERE state != 'void' ORDER BY id"):
            group = Group(group_id, state=state, boot=boot, at=at)
            for row in self._rows(
                "SELECT root, mount, kind, path, target, staging, start_ino, start_size, start_mtime, start_hash,"
                " staged_ino, staged_size, staged_mtime, hash, content, files FROM steps WHERE grp=? ORDER BY n",
                (group_id,),
            ):
                step_root, mount, kind, path, target, staging = row[:6]
                step = Step(
                    kind, step_root, path, target, staging, Start(*row[6:9]), row[9], bytes(row[14] or b""),
                    Start(*row[10:13]),
                    row[13], msgspec.msgpack.decode(row[15]) if row[15] else {},
                )  # fmt: skip
                group.mounts[step_root] = mount
                group.steps.append(step)
            if root is None or any(step.root == root for step in group.steps):
                group.revisions = [
                    Revision(*found)
                    for found in self._rows("SELECT * FROM revisions WHERE grp=? ORDER BY rev", (group_id,))
                ]
                groups.append(group)
        return groups

    def was_committed(self, group: int) -> bool:
        """Whether a group number on a left-over staging name was ever committed (a void one was)."""
        return bool(
            self._rows(
                "SELECT 1 FROM groups WHERE id=? UNION ALL SELECT 1 FROM revisions WHERE grp=? LIMIT 1", (group, group)
            )
        )

    def void_step(self, group: int, number: int) -> Step | None:
        """A step of a void group, without its content."""
        rows = self._rows(
            "SELECT kind, root, path, target, staging, start_ino, start_size, start_mtime, start_hash, staged_ino,"
            " staged_size, staged_mtime FROM steps JOIN groups ON id = grp WHERE grp=? AND n=? AND state='void'",
            (group, number),
        )
        if not rows:
            return None
        kind, root, path, target, staging, *rest = rows[0]
        return Step(kind, root, path, target, staging, Start(*rest[:3]), rest[3], staged=Start(*rest[4:]))

    def forget_void_steps(self, root: str) -> None:
        """When no left-over staging name is there any more."""
        of_root = "root=? AND grp IN (SELECT id FROM groups WHERE state='void')"
        if self._rows(f"SELECT 1 FROM steps WHERE {of_root} LIMIT 1", (root,)):
            with self.transaction() as db:
                db.execute(f"DELETE FROM steps WHERE {of_root}", (root,))

    def partners(self, root: str) -> list[str]:
        """The other roots of the groups that are pending in this one."""
        return [
            row[0]
            for row in self._rows(
                "SELECT DISTINCT other.root FROM steps AS mine JOIN steps AS other ON other.grp = mine.grp"
                " JOIN groups ON id = mine.grp WHERE mine.root=? AND other.root != mine.root AND state != 'void'"
                " ORDER BY 1",
                (root,),
            )
        ]

    def knows_content(self, root: str, path_hash: str) -> bool:
        """Whether this content is a revision in the history of that root."""
        return bool(self._rows("SELECT 1 FROM revisions WHERE hash=? AND root=? LIMIT 1", (path_hash, root)))

    def notices(self) -> list[Notice]:
        return [
            Notice(*row)
            for row in self._rows("SELECT root, path, problem, hint, copy, id, at, rev FROM notices ORDER BY id")
        ]

    # The history ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[Ask]:
        """One view for several questions, which fit each other: nobody waits for it, and it waits for nobody. Raises
        JournalFailed."""
        if self.readonly:
            yield self._rows
            return
        db: sqlite3.Connection | None = None
        try:
            db = sqlite3.connect(f"file:{_uri(self.path)}?mode=ro", uri=True, isolation_level=None, timeout=5.0)
            db.execute("BEGIN")
            view = db
            yield lambda query, values: view.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise JournalFailed(str(error), doubtful=False) from error
        finally:
            if db is not None:
                db.close()

    def fill(self, root: str, path: str, rev: int, content: bytes, digest: str) -> bool:
        """A log that was only appended to has been read: its last revision becomes a whole frame. The bytes in front of
        what that revision added stay known by `head`. False: there is no such revision, or its content was dropped."""
        with self.transaction() as db:
            found = db.execute(
                "SELECT coalesce(length(body), 0), grp IN (SELECT id FROM groups) FROM revisions"
                " WHERE root=? AND path=? AND rev=? AND frame IN ('delta', 'none')",
                (root, path, rev),
            ).fetchone()
            if found is None:
                return False
            db.execute(
                "UPDATE revisions SET frame='full', body=?, size=?, hash=? WHERE root=? AND path=? AND rev=?",
                (content, len(content), digest, root, path, rev),
            )
            db.execute("UPDATE documents SET depth=0 WHERE root=? AND path=? AND rev=?", (root, path, rev))
            if not found[1]:
                self._add_held(db, len(content) - found[0], 0)
            held = self._read_held(db)
        self.held = held
        return True

    def reframe(
        self, root: str, path: str, whole: Mapping[int, bytes], dropped: Collection[int], *, erase: bool = False
    ) -> None:
        """These revisions of one document become whole frames, and those lose their content. `erase`: its bytes are
        overwritten in the journal's file too."""
        with self._lock:
            if erase:
                self._pragma("secure_delete=ON")
            with self.transaction() as db:
                settled = "root=? AND path=? AND (grp IS NULL OR grp NOT IN (SELECT id FROM groups))"
                before, _ = self._held_of(db, settled, (root, path))
                db.executemany(
                    "UPDATE revisions SET frame='full', body=? WHERE root=? AND path=? AND rev=?",
                    [(content, root, path, rev) for rev, content in whole.items()],
                )
                db.executemany(
                    "UPDATE revisions SET frame='dropped', body=x'' WHERE root=? AND path=? AND rev=?",
                    [(root, path, rev) for rev in dropped],
                )
                db.executemany(
                    "UPDATE documents SET depth=-1 WHERE root=? AND path=? AND rev=?",
                    [(root, path, rev) for rev in dropped],
                )
                after, _ = self._held_of(db, settled, (root, path))
                self._add_held(db, after - before, 0)
                held = self._read_held(db)
            self.held = held
            if erase:
                self._pragma("wal_checkpoint(TRUNCATE)")
                self._pragma("secure_delete=OFF")

    def drop_rows(self, before: int, most: int) -> int:
        """Remove rows that have no content any more, the oldest first, but never a document's last; tells how many."""
        with self.transaction() as db:
            old = db.execute(
                "SELECT root, path, rev FROM revisions AS r WHERE rev < ? AND frame NOT IN ('full', 'delta')"
                " AND rev < (SELECT max(rev) FROM revisions WHERE root=r.root AND path=r.path)"
                " AND (grp IS NULL OR grp NOT IN (SELECT id FROM groups)) ORDER BY rev LIMIT ?",
                (before, most),
            ).fetchall()
            db.executemany("DELETE FROM revisions WHERE root=? AND path=? AND rev=?", old)
            self._add_held(db, 0, -len(old))
            held = self._read_held(db)
        self.held = held
        return len(old)

    def shrink(self, pages: int) -> bool:
        """Give free pages at the file's end back to the disk when a good part of it is free; whether there are more."""
        with self._lock:
            free, count = (self._rows(f"PRAGMA {name}")[0][0] for name in ("freelist_count", "page_count"))
            if free < 1024 or free * 5 < count:
                return False
            self._pragma(f"incremental_vacuum({pages})")
            return bool(self._rows("PRAGMA freelist_count")[0][0] < free)

    def _pragma(self, text: str) -> None:
        self._rows(f"PRAGMA {text}")

    def _count_history(self, db: sqlite3.Connection) -> None:
        """At opening: a journal that has no figures yet is counted once."""
        if db.execute("SELECT 1 FROM meta WHERE key='held_rows'").fetchone() is None:
            settled = "grp IS NULL OR grp NOT IN (SELECT id FROM groups)"
            size, rows = self._held_of(db, settled, ())
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("held_bytes", size), ("held_rows", rows)])
        self.held = self._read_held(db)

    def _held_of(self, db: sqlite3.Connection, condition: str, values: Sequence[Any]) -> tuple[int, int]:
        query = f"SELECT coalesce(sum(length(body)), 0), count(*) FROM revisions WHERE {condition}"
        size, rows = db.execute(query, values).fetchone()
        return int(size), int(rows)

    def _read_held(self, db: sqlite3.Connection) -> tuple[int, int]:
        found = dict(db.execute("SELECT key, value FROM meta WHERE key IN ('held_bytes', 'held_rows')").fetchall())
        return found.get("held_bytes", 0), found.get("held_rows", 0)

    def _add_held(self, db: sqlite3.Connection, size: int, rows: int) -> None:
        for key, more in (("held_bytes", size), ("held_rows", rows)):
            if more:
                db.execute("UPDATE meta SET value=max(0, value+?) WHERE key=?", (more, key))

    def statistics(self) -> dict[str, Any]:
        """Figures for `status`; the history's are those of the last checkpoint."""
        size, rows = self.held
        calls = self._rows("SELECT count(*) FROM calls")[0][0]
        pages = self._rows("PRAGMA page_count")[0][0] * self._rows("PRAGMA page_size")[0][0]
        return {"revisions": rows, "bytes": size, "calls": calls, "file_bytes": pages}


def _uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


__all__ = [
    "ABSENT", "Ask", "Done", "Group", "Journal", "JournalFailed", "JournalGone", "Known", "Memory", "Notice",
    "Revision", "changed_bytes",
]  # fmt: skip
