"""One group, start to end: load, decide, stage, (commit), make visible.

A group is the calls of a batch that touch one root, or roots that a call joins; it becomes visible whole or is taken
back whole. The phases are methods of `GroupWork`, called in order by a writer thread:

    prepare()       roots, outside locks, load and decide each call, stage      StepAside, or every call has an outcome
    record          what the journal commits (the writer commits all groups of a batch in one transaction)
    make_visible()  step by step, each judged by what it displaced              Redo when somebody's edit came between
    publish()       the new snapshot; the answers may go out

Each call succeeds or fails by itself: a refusal writes nothing, and the calls after it run on what the calls before it
left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from stated import config, store
from stated.call import Answer, Call
from stated.documents import json_lines, json_text
from stated.documents.json_lines import JsonLines
from stated.documents.json_text import JsonText
from stated.domain import (
    Append,
    At,
    Change,
    Context,
    Create,
    Delete,
    EditLine,
    Finding,
    MakeFolder,
    Move,
    Need,
    Outcome,
    Remember,
    Revision,
    TextDocument,
    Write,
)
from stated.errors import Conflict, DocumentTooLarge, Internal, Refused, Reused, StatedError, Unavailable
from stated.faults import reach
from stated.journal import (
    Done,
    Group,
    Journal,
    JournalFailed,
    JournalGone,
    Known,
    Memory,
    Notice,
    changed_bytes,
)
from stated.journal import Revision as Row
from stated.log import get_logger
from stated.roots import OpenRoot, Roots, StepAside
from stated.snapshot import Snapshot, Version, absolute, is_trusted
from stated.store import ABSENT, OutsideEdit, Step

_log = get_logger()

ROUNDS = 3
"""Outside edits that one group meets before its calls are answered as conflicts."""

FRAME_DEPTH = 32
"""Changed-bytes frames after a whole one; rebuilding a revision reads at most these."""


class Redo(Exception):  # a request to run the group's calls again
    """The group was taken back; its calls run again. `alone`: one by one, to find the call at fault."""

    def __init__(self, why: BaseException, *, alone: bool) -> None:
        super().__init__(str(why))
        self.why = why
        self.alone = alone


class Torn(Exception):
    """A group that could be neither made visible nor taken back. It stays committed, and its roots are opened anew:
    recovery finishes it or takes it back."""


class _Apart(Exception):
    """A call that makes or moves a folder is its group's only one: the others would not see what is in it."""


@dataclass(slots=True, eq=False)
class Job:
    """A call in the queue. `settle` gives the answer (or the error) to whoever waits; it may be called from any
    thread."""

    call: Call
    request: str
    """A hash of what is asked; the same id with another one is refused."""
    now: datetime
    context: Context
    roots: tuple[str, ...]
    settle: Callable[[Answer | BaseException], None]
    rounds: int = 0
    voids: set[int] = field(default_factory=set)
    """Groups of earlier rounds that the next commit voids."""
    alone: bool = False
    internal: bool = False
    """A task of the daemon itself: no id, no answer kept."""
    patience: bool = True
    """Whether an editor that still has the file open is waited for; once that wait is over, the file is taken as it
    is."""


@dataclass(slots=True)
class Draft:
    """One document as the calls of this group have left it so far."""

    base: Version
    depth: int
    raw: bytes | None
    """The content now; None: absent, or never loaded (see `loaded`)."""
    loaded: bool
    exists: bool
    rev: Revision | None
    size: int
    appended: list[bytes] = field(default_factory=list)
    """Only for logs that were never loaded: the lines to add."""
    clean_end: bool = True
    changed: bool = False
    rewritten: bool = False
    """The whole content is new: lines that follow are part of it, not appends."""
    json: JsonText | None = None
    lines: JsonLines | None = None

    def copy(self) -> Draft:
        return Draft(
            self.base, self.depth, self.raw, self.loaded, self.exists, self.rev, self.size, list(self.appended),
            self.clean_end, self.changed, self.rewritten, self.json, self.lines,
        )  # fmt: skip

    def put(self, content: bytes | None) -> None:
        self.raw = content
        self.loaded = True
        self.exists = content is not None
        self.size = len(content or b"")
        self.appended = []
        self.clean_end = self.raw is None or self.raw[-1:] in (b"", b"\n")
        self.changed = self.rewritten = True
        self.json = self.lines = None


@dataclass(slots=True)
class Services:
    """What a group needs from the process it runs in."""

    journal: Journal
    roots: Roots
    snapshot: Snapshot
    pool: ThreadPoolExecutor
    clock: Callable[[], int]
    conflicts: str
    check: Callable[[At, bytes | None], Sequence[Finding]]
    """The contract check of a document, by its place."""
    outside_locks: Callable[[str], tuple[str, ...]]
    """Names of the lock files that older programs take in a root."""
    domain_of: Callable[[str], str]
    """The domain whose state a root holds ("": not known)."""
    held: dict[tuple[str, str, str], GroupWork] = field(default_factory=dict)
    """Memory documents that a group has set and that are not published yet: a group of other roots that asks for one
    waits."""
    content_of: Callable[[At, int], bytes | None] = lambda at, rev: None
    """The content of a revision, from the history."""
    keep_history: bool = True
    checkpointed: Callable[[], None] = lambda: None
    """Called in the writer's thread after each checkpoint."""


class GroupWork:
    def __init__(self, services: Services, jobs: Sequence[Job]) -> None:
        self.services = services
        self.jobs = list(jobs)
        self.roots = tuple(dict.fromkeys(root for job in jobs for root in job.roots))
        self.record = Group(services.journal.group_number())
        self.voids = {group for job in jobs for group in job.voids}
        self.answers: list[tuple[Job, Answer | StatedError]] = []
        self.syncs: list[tuple[Future[None], int]] = []
        self.phase = "new"
        self._drafts: dict[At, Draft] = {}
        self._memory: dict[tuple[str, str, str], Any] = {}
        self._folders: list[tuple[Change, str]] = []
        self._order: list[At] = []
        self._open: dict[str, OpenRoot | None] = {}
        self._locks: list[int] = []
        self._new_roots: list[str] = []
        self._pinned: list[At] = []
        self._finished = threading.Event()
        self._job: Job | None = None

    # Prepare ----------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Raises StepAside (nothing has happened), Redo (staging failed), JournalFailed."""
        try:
            for root in self.roots:
                self._open[root] = self._get_root(root)
            if any(job.call.operation.kind.value == "W" for job in self.jobs):
                self._take_locks()
            for job in self.jobs:
                self._decide(job)
            self._open_new_roots()
            self._build_steps()
            self._stage()
        except BaseException:
            self.abandon()
            raise
        self.phase = "prepared"

    def _get_root(self, path: str) -> OpenRoot | None:
        return self.services.roots.get(path, self.services.domain_of(path) or self.jobs[0].call.domain.name)

    def _take_locks(self) -> None:
        for root in self.roots:
            if self._open[root] is None:
                continue
            for name in self.services.outside_locks(root):
                path = os.path.join(root, name)
                fd = _try_lock(path)
                if fd is None:
                    raise StepAside(f"{name} is held by another program", lambda path=path: _wait_lock(path))  # type: ignore[misc]  # the default binds the loop's value
                self._locks.append(fd)

    def _open_new_roots(self) -> None:
        """A root that does not exist is made by the first change in it; never by a refusal."""
        for root in self.roots:
            if self._open[root] is None and any(at.root == root for at in self._touched()):
                made = _missing_folders(root)
                os.makedirs(root, mode=0o700, exist_ok=True)
                self._new_roots.append(root)
                opened = self._get_root(root)
                if opened is None:
                    raise Unavailable(
                        "the state directory was removed while it was made", where=self.jobs[0].call.domain.name
                    )
                self._open[root] = opened
                opened.dirty.folders.update(os.path.dirname(folder) for folder in made)
                if store.names(root):
                    # Somebody was first: decide again on what is there now.
                    raise Redo(OutsideEdit(root), alone=False)

    def _touched(self) -> list[At]:
        places = [at for at, draft in self._drafts.items() if draft.changed]
        for change, _ in self._folders:
            places.append(change.target if isinstance(change, Move) else change.at)  # type: ignore[union-attr]  # only folders and moves are kept here
        return places

    def _decide(self, job: Job) -> None:
        self._job = job
        try:
            answer = self._answer(job)
        except (StepAside, Redo, JournalFailed, JournalGone):
            raise
        except StatedError as error:
            self.answers.append((job, error))
        except OSError as error:
            self.answers.append((job, disk_error(job, error)))
        except Exception as error:  # a fault in one operation fails that call alone, never the queue
            self.answers.append((job, internal(error, job.call.operation.name)))
        else:
            self.answers.append((job, answer))

    def _answer(self, job: Job) -> Answer:
        call = job.call
        if call.id and not job.internal:
            done = self.services.journal.find_call(call.id, self.voids)
            if done is None:
                done = next((row for row in self.record.done if row.id == call.id), None)
            if done is not None:
                if done.request != job.request:
                    raise Reused("this call id belongs to another request", hint="leave --call out, or make a new id")
                return stored_answer(done.answer)
        run = call.operation.run
        assert run is not None
        outcome = self._run(run, job)
        trial = _Trial(self, job)
        for change in outcome.changes:
            trial.apply(change)
        self._check_revision(job, outcome, trial)
        changed = trial.changed()
        if trial.folders and len(self.jobs) > 1:
            raise Redo(_Apart(), alone=True)
        if call.dry_run:
            result = dict(outcome.result) if isinstance(outcome.result, dict) else outcome.result
            if isinstance(result, dict):
                result["dry_run"] = True
                result["would_change"] = sorted(at.path for at in changed)
            return Answer(result, outcome.status)
        if not changed and not trial.memory and not trial.folders:
            return Answer(outcome.result, outcome.status, None, outcome.hand)
        rev = self.services.journal.number()
        result = outcome.result
        if isinstance(result, dict) and (changed or trial.folders):
            result = {**result, "rev": rev}
        answer = Answer(result, outcome.status, rev, outcome.hand)
        encoded = encode_answer(answer)
        trial.keep(rev)
        if call.id and not job.internal:
            self.record.done.append(Done(call.id, job.request, encoded, rev))
        return answer

    def _run(self, run: Callable[[Any, Any, Context], Outcome], job: Job) -> Outcome:
        view = _DraftView(self, job.call.domain.name)
        for _ in range(10_000):
            try:
                return run(view, job.call.params, job.context)
            except Need as need:
                if need.at is None:
                    raise
                self.load(need.at, content=True)
        raise Internal("the operation asks for ever more documents")

    def wait_for_memory(self, key: tuple[str, str, str]) -> None:
        """Raises StepAside while another group has set this memory document and is not visible yet."""
        holder = self.services.held.get(key)
        if holder is not None and holder is not self:
            finished = holder._finished
            raise StepAside("another call is setting what this one asks for", lambda: _wait_for(finished))

    def _check_revision(self, job: Job, outcome: Outcome, trial: _Trial) -> None:
        wanted = job.call.if_rev
        if wanted is None:
            return
        at = outcome.subject
        if at is None:
            at = next((_place(change) for change in outcome.changes if not isinstance(change, Remember)), None)
        if at is None:
            raise Refused("there is no document whose revision could be asked for", hint="leave --if-rev out")
        draft = self.load(at, content=isinstance(wanted, str) and wanted != "absent")
        now = draft.rev if draft.exists else None
        matches = now is None if wanted == "absent" else now is not None and now == wanted
        if isinstance(wanted, str) and wanted.startswith("sha256:") and draft.exists and draft.raw is not None:
            matches = wanted == f"sha256:{store.digest(draft.raw)}"
        if not matches:
            raise Conflict(
                f"the document is {f'at revision {now}' if now is not None else 'absent'}, not at {wanted}",
                where=at.path,
                hint="read it again and decide on what it says now",
                data={"rev": now},
            )

    # Load -------------------------------------------------------------------------------------------------------------

    def load(self, at: At, *, content: bool) -> Draft:
        """The draft of a document; with its content, or (a log to append to) only with what `stat` tells.

        Raises StepAside while an editor has a changed file open.
        """
        draft = self._drafts.get(at)
        if draft is not None and (draft.loaded or not content):
            return draft
        if at.root not in self._open:
            raise Refused("the operation reached outside its roots", where=at.path)
        fresh = self._load(at, content)
        if draft is None:
            self._drafts[at] = fresh
            return fresh
        if fresh.base.stat is None or draft.base.stat is None or fresh.base.stat.start != draft.base.stat.start:
            raise Redo(OutsideEdit(at.path), alone=False)
        # A log that was only appended to is now read: what this group added comes behind it.
        draft.base = fresh.base
        added = b"".join(draft.appended)
        draft.raw = (fresh.raw or b"") + added if fresh.exists or added else None
        draft.loaded = True
        draft.exists = draft.raw is not None
        return draft

    def _load(self, at: At, content: bool) -> Draft:
        reach("load.before")
        snapshot, path = self.services.snapshot, store.real_target(absolute(at))
        known = snapshot.known.get(at)
        seen = snapshot.current(at)
        now = store.look(path)
        if now is None:
            if known is not None and known.start != ABSENT:
                known = self._outside(at, path, None, None, known, seen)
            return Draft(Version(None, None, trusted=True), known.depth if known else -1, None, True, False, None, 0)
        if known is not None and known.start == now.start:
            if seen is not None and seen.stat == now and seen.trusted and seen.raw is not None:
                return self._draft(seen, known)
            if not content:
                return Draft(
                    Version(now, None, known.hash, known.rev), known.depth, None, False, True, known.rev, now.size,
                    clean_end=store.last_byte(path, now.size) in (b"", b"\n"),
                )  # fmt: skip
        elif known is None and not content:
            # A log that was here before us: it is adopted as it is, unread.
            return self._adopt_unread(at, path, now)
        found = store.read(path)
        if found is None:
            return self._load(at, content)
        raw, now = found
        same = seen is not None and seen.raw == raw
        digest = seen.hash if same and seen is not None and seen.hash else store.digest(raw)
        if known is not None and (known.hash == digest or (not known.hash and known.start == now.start)):
            if known.depth < 0 and not known.hash:
                known = self._read_at_last(at, known, raw, digest)
            if known.start != now.start or known.hash != digest:
                # Touched, or written anew with the same bytes: not an edit, but not surely on the disk either.
                store.sync_file(path)
                store.sync_folder(os.path.dirname(path))
                known = known._replace(start=now.start, hash=digest)
                snapshot.known[at] = known
        else:
            number = seen.rev if same and seen is not None and isinstance(seen.rev, int) else None
            known = self._outside(at, path, raw, now, known, seen, number)
            again = store.look(path)
            if again is None or again.start != now.start:
                return self._load(at, content)
        version = Version(now, raw, digest, known.rev, is_trusted(now))
        if same and seen is not None:
            version.json, version.lines = seen.json, seen.lines
        if not snapshot.is_pinned(at):
            snapshot.publish({at: version}, {}, {})
        reach("load.after")
        return self._draft(version, known)

    def _read_at_last(self, at: At, known: Known, raw: bytes, digest: str) -> Known:
        """A log that was only appended to is about to be changed: what it holds would be lost to the history."""
        if self.services.keep_history and self.services.journal.fill(at.root, at.path, known.rev, raw, digest):
            return known._replace(depth=0)
        return known

    def _draft(self, version: Version, known: Known) -> Draft:
        raw = version.raw or b""
        draft = Draft(version, known.depth, raw, True, True, version.rev, len(raw), clean_end=raw[-1:] in (b"", b"\n"))
        draft.json, draft.lines = version.json, version.lines
        return draft

    def _adopt_unread(self, at: At, path: str, now: store.Stat) -> Draft:
        store.sync_file(path)
        store.sync_folder(os.path.dirname(path))
        rev = self.services.journal.number()
        known = Known(rev, now.start, "", -1)
        row = Row(rev, at.root, at.path, None, "outside", None, None, self.services.clock(), now.size, "", "none")
        self.services.journal.record([row], [(at.root, at.path, known)])
        self.services.snapshot.known[at] = known
        clean = store.last_byte(path, now.size) in (b"", b"\n")
        return Draft(Version(now, None, "", rev), -1, None, False, True, rev, now.size, clean_end=clean)

    def _outside(
        self, at: At, path: str, raw: bytes | None, now: store.Stat | None, known: Known | None, seen: Version | None,
        number: int | None = None,
    ) -> Known:  # fmt: skip
        """Adopt an outside edit: wait until it is finished, put it on the disk, record it as a revision of its own."""
        if raw is not None and self._job is not None and self._job.patience and not store.is_quiet(path):
            raise StepAside("an editor has the file open", lambda: _wait_quiet(path))
        if raw is not None:
            store.sync_file(path)
        store.sync_folder(os.path.dirname(path))
        reach("load.outside")
        rev = number if number is not None else self.services.journal.number()
        previous = known.rev if known is not None else None
        start = now.start if now is not None else ABSENT
        before = seen.raw if seen is not None and known is not None and seen.rev == known.rev else None
        if before is None and known is not None and raw is not None:
            before = self.services.content_of(at, known.rev)  # a reader was there first
        if before is not None and known is not None and known.depth < 0 and not known.hash:
            known = self._read_at_last(at, known, before, store.digest(before))
        at_time = self.services.clock()
        if raw is None:
            row = Row(rev, at.root, at.path, previous, "outside", None, None, at_time, None, "", "gone")
            fresh = Known(rev, start, "", -1)
        else:
            digest = store.digest(raw)
            row = Row(rev, at.root, at.path, previous, "outside", None, None, at_time, len(raw), digest, "none")
            row, depth = self.frame(row, before, raw, known.depth if known is not None else -1)
            fresh = Known(rev, start, digest, depth)
        notices = self._removed_lines(at, before, raw)
        self.services.journal.record([row], [(at.root, at.path, fresh)], notices)
        self.services.snapshot.known[at] = fresh
        findings = self.services.check(at, raw)
        _log.info("outside edit", root=at.root, path=at.path, rev=rev, findings=len(findings))
        for finding in findings[:20]:
            _log.warning(
                "outside edit breaks the contract", root=at.root, path=at.path, line=finding.line, field=finding.field
            )
        return fresh

    def frame(self, row: Row, before: bytes | None, content: bytes, depth: int) -> tuple[Row, int]:
        """How a revision keeps its content, and the depth of that: the bytes that differ from the version before, where
        that one is kept; a whole frame still tells which bytes were there before."""
        if not self.services.keep_history:
            return row, -1
        if before is None:
            return row._replace(frame="full", body=content), 0
        head, tail, body = changed_bytes(before, content)
        if 0 <= depth < FRAME_DEPTH and row.prev is not None:
            return row._replace(frame="delta", head=head, tail=tail, body=body), depth + 1
        return row._replace(frame="full", head=head, tail=tail, body=content), 0

    def _removed_lines(self, at: At, before: bytes | None, raw: bytes | None) -> list[Notice]:
        """Records of a log that an edit removed are reported, never put back by the daemon. A line that broke the
        contract was rightly removed, and one that another line took the place of was edited."""
        if before is None or raw is None or not at.path.endswith(".jsonl"):
            return []
        old, new = set(before.split(b"\n")), set(raw.split(b"\n"))
        gone = [line for line in old - new if line]
        added = sum(1 for line in new - old if line)
        count = sum(1 for line in gone if not self.services.check(at, line + b"\n")) - added
        if count <= 0:
            return []
        last = self.services.snapshot.known.get(at)
        problem = f"{count} line{'s' if count > 1 else ''} removed by an outside edit"
        return [Notice(at.root, at.path, problem, "see `statectl log`", rev=last.rev if last is not None else None)]

    # Stage ------------------------------------------------------------------------------------------------------------

    def _build_steps(self) -> None:
        """Appends first, then files in the order of the operations."""
        appends: list[Step] = []
        files: list[Step] = []
        for at in self._order:
            draft = self._drafts[at]
            if not draft.changed:
                continue
            target = store.real_target(absolute(at))
            start = draft.base.stat.start if draft.base.stat else ABSENT
            if draft.appended and draft.base.stat is not None:
                content = b"".join(draft.appended)
                appends.append(Step("append", at.root, at.path, target, start=start, content=content))
            elif draft.raw is None and not draft.appended:
                if draft.base.stat is not None:
                    files.append(Step("delete", at.root, at.path, target, start=start, start_hash=draft.base.hash))
            else:
                content = draft.raw if draft.raw is not None else b"".join(draft.appended)
                kind = "replace" if draft.base.stat is not None else "create"
                files.append(
                    Step(
                        kind, at.root, at.path, target, start=start, start_hash=draft.base.hash, content=content,
                        hash=store.digest(content),
                    )
                )  # fmt: skip
        for change, _ in self._folders:
            if isinstance(change, MakeFolder):
                files.append(
                    Step("folder", change.at.root, change.at.path, absolute(change.at), files=dict(change.files))
                )
            elif isinstance(change, Move):
                source = absolute(change.source)
                now = store.look_here(source)
                if now is None:
                    raise Redo(OutsideEdit(change.source.path), alone=False)
                files.append(
                    Step("move", change.target.root, change.target.path, absolute(change.target), source, now.start)
                )
        self.record.steps = appends + files
        for number, step in enumerate(self.record.steps):
            if step.kind != "move":
                step.staging = store.staging_name(step.target, self.record.id, number)
            opened = self._open.get(step.root)
            self.record.mounts[step.root] = opened.mount if opened is not None else ""

    def _stage(self) -> None:
        try:
            for step in self.record.steps:
                fd = store.stage(step)
                if fd is not None:
                    self.syncs.append((self.services.pool.submit(_sync_and_close, fd), fd))
        except OSError as error:
            raise Redo(error, alone=True) from error

    def wait_for_syncs(self) -> None:
        """Step 8 may begin only when every staged file is on the disk. Raises OSError."""
        for future, _ in self.syncs:
            future.result()
        self.syncs.clear()

    def abandon(self) -> None:
        """Nothing has become visible: drop what was staged, release the outside locks."""
        for future, _ in self.syncs:
            with contextlib.suppress(OSError):
                future.result()
        self.syncs.clear()
        for step in self.record.steps:
            if not step.made:
                with contextlib.suppress(OSError):
                    store.drop_staging(step)
        self.let_go()
        for root in self._new_roots:
            if not store.names(root):
                self.services.roots.drop(root)
                with contextlib.suppress(OSError):
                    os.rmdir(root)
        self._new_roots.clear()

    def let_go(self) -> None:
        """Nobody waits for this group any more: its locks, its pinned files and its memory documents are free."""
        self.release_locks()
        self.services.snapshot.unpin(self._pinned)
        self._pinned.clear()
        for key in self._memory:
            if self.services.held.get(key) is self:
                del self.services.held[key]
        self._finished.set()

    def release_locks(self) -> None:
        for fd in self._locks:
            os.close(fd)
        self._locks.clear()

    # Make visible -----------------------------------------------------------------------------------------------------

    def make_visible(self) -> None:
        """Raises Redo after everything was taken back, Torn when it could not be."""
        pinned = {
            At(step.root, step.path): self._drafts[At(step.root, step.path)].base
            for step in self.record.steps
            if At(step.root, step.path) in self._drafts
        }
        self._pinned = list(pinned)
        self.services.snapshot.pin(pinned)
        try:
            self.wait_for_syncs()
            for step in self.record.steps:
                store.make(step)
        except Exception as error:
            try:
                self._take_back()
            except Exception as worse:
                raise Torn(str(worse)) from error
            raise Redo(error, alone=not isinstance(error, OutsideEdit)) from error
        for step in self.record.steps:
            store.settle(step)
        self.release_locks()
        self.phase = "visible"

    def _take_back(self) -> None:
        """From the last to the first; what cannot be taken back stops it, so that those before it stay as they are."""
        for future, _ in self.syncs:
            with contextlib.suppress(OSError):
                future.result()
        self.syncs.clear()
        for step in reversed(self.record.steps):
            store.take_back(step)
        notices = []
        for step in self.record.steps:
            content = self._foreign_content(step)
            if content is not None:
                copy = store.keep_copy(self.services.conflicts, step.root, step.path, content)
                _log.warning("conflict copy kept", root=step.root, path=step.path, copy=copy)
                notices.append(
                    Notice(step.root, step.path, "two edits met: one is kept as a conflict copy",
                           f"compare it with the file, then remove {copy}", copy)
                )  # fmt: skip
            store.drop_staging(step)
        if notices:
            with contextlib.suppress(JournalFailed, JournalGone):
                self.services.journal.record([], [], notices)

    def _foreign_content(self, step: Step) -> bytes | None:
        """After taking back: somebody else's version that is now only under the staging name."""
        if step.kind not in ("replace", "delete", "create"):
            return None
        try:
            now = os.lstat(step.staging)
        except FileNotFoundError:
            return None
        if (now.st_ino, now.st_size, now.st_mtime_ns) in (tuple(step.staged), tuple(step.start)):
            return None
        found = store.read(step.staging)
        return found[0] if found and store.digest(found[0]) not in (step.hash, step.start_hash) else None

    # Publish ----------------------------------------------------------------------------------------------------------

    def publish(self) -> list[tuple[str, str, Known]]:
        """The new versions; returns how the documents look now, for the journal's next transaction."""
        versions: dict[At, Version] = {}
        known: dict[At, Known] = {}
        for step in self.record.steps:
            at = At(step.root, step.path)
            opened = self._open.get(step.root)
            if opened is not None:
                self._soil(opened, step)
            draft = self._drafts.get(at)
            if draft is None:
                continue
            rev = draft.rev
            assert isinstance(rev, int)
            if step.kind == "delete":
                versions[at] = Version(None, None, trusted=True)
                known[at] = Known(rev, ABSENT, "", -1)
                continue
            now = store.look(step.target)
            if step.kind == "append":
                size = step.start.size + len(step.content)
                undisturbed = now is not None and step.landed == step.start.size and now.size == size
                start = now.start if undisturbed and now is not None else step.start
                known[at] = Known(rev, start, "", draft.depth)
                raw = draft.base.raw + step.content if draft.base.raw is not None else None
                if undisturbed and now is not None:
                    versions[at] = Version(now, raw, "", rev, False)
                else:
                    # Somebody's bytes came with ours: the next look at the file records them as their edit.
                    known[at] = Known(rev, step.start, "", -1)
                    versions[at] = Version(draft.base.stat, draft.base.raw, draft.base.hash, draft.base.rev)
            else:
                known[at] = Known(rev, step.staged, step.hash, draft.depth)
                ours = now is not None and now.start == step.staged
                stat = now if ours else None
                if stat is not None:
                    version = Version(stat, step.content, step.hash, rev, False, draft.json, draft.lines)
                    versions[at] = version
                else:
                    versions[at] = Version(store.Stat(0, *step.staged, 0, 0), step.content, step.hash, rev, False)
        self.services.snapshot.publish(versions, known, self._memory)
        self.phase = "published"
        self.let_go()
        return [(at.root, at.path, row) for at, row in known.items()]

    def _soil(self, opened: OpenRoot, step: Step) -> None:
        dirty = opened.dirty
        if step.kind == "append":
            dirty.appended[step.target] = step.start.ino
        dirty.folders.add(os.path.dirname(step.target))
        for folder in step.folders:
            dirty.folders.add(os.path.dirname(folder))
        if step.kind == "move":
            dirty.folders.add(os.path.dirname(step.staging))
        if step.displaced >= 0 or step.late:
            dirty.displaced.append(step)

    def settle_all(self) -> None:
        for job, answer in self.answers:
            job.settle(answer)


class _Trial:
    """The changes of one call on copies of the drafts: all of them apply, or none."""

    def __init__(self, work: GroupWork, job: Job) -> None:
        self._work = work
        self._job = job
        self.drafts: dict[At, Draft] = {}
        self.memory: dict[tuple[str, str, str], Any] = {}
        self.folders: list[Change] = []

    def changed(self) -> list[At]:
        return [at for at, draft in self.drafts.items() if draft.changed]

    def _draft(self, at: At, *, content: bool) -> Draft:
        draft = self.drafts.get(at)
        if draft is None or (content and not draft.loaded):
            before = draft
            draft = self._work.load(at, content=content).copy()
            draft.changed = False
            self.drafts[at] = draft
            if before is not None and before.changed:
                # This call has appended to it already: its lines come behind what was loaded now.
                for line in before.appended[len(draft.appended) :]:
                    self._add(draft, line)
        return draft

    def apply(self, change: Change) -> None:
        match change:
            case Write(at, content):
                draft = self._draft(at, content=True)
                if draft.raw != content:
                    _fits(at, content)
                    draft.put(content)
            case Create(at, content):
                draft = self._draft(at, content=True)
                if draft.exists:
                    raise Conflict("the document is there already", where=at.path, hint="read it, then decide")
                _fits(at, content)
                draft.put(content)
            case Append(at, line):
                self._append(at, line)
            case EditLine(at, number, old, new):
                draft = self._draft(at, content=True)
                edited = json_lines.replace_line(draft.raw or b"", number, old, new)
                if edited is None:
                    raise Conflict("the line is not what the change starts from", where=f"{at.path}:{number}")
                if edited != draft.raw:
                    draft.put(edited)
            case Delete(at):
                draft = self._draft(at, content=True)
                if draft.exists:
                    draft.put(None)
            case MakeFolder(at, _):
                if os.path.lexists(absolute(at)):
                    raise Conflict("the folder is there already", where=at.path)
                self.folders.append(change)
            case Move(source, target):
                if os.path.lexists(absolute(target)):
                    raise Conflict("the target is there already", where=target.path)
                if not os.path.lexists(absolute(source)):
                    raise Conflict("there is nothing to move", where=source.path)
                self.folders.append(change)
            case Remember(kind, key, value):
                self._work.wait_for_memory((self._job.call.domain.name, kind, key))
                self.memory[self._job.call.domain.name, kind, key] = value

    def _append(self, at: At, line: bytes) -> None:
        draft = self._draft(at, content=False)
        added = line if draft.clean_end else b"\n" + line
        self._add(draft, added)

    @staticmethod
    def _add(draft: Draft, added: bytes) -> None:
        draft.clean_end = True
        if draft.rewritten or draft.base.stat is None:
            draft.put((draft.raw or b"") + added)
            return
        draft.appended.append(added)
        draft.changed = True
        draft.exists = True
        draft.size += len(added)
        if draft.raw is not None:
            draft.raw += added
            draft.json = draft.lines = None

    def keep(self, rev: int) -> None:
        """Let the calls after this one see the changes, and write their revisions."""
        work = self._work
        call = self._job.call
        name = f"{call.domain.name}.{call.operation.name}"
        method = call.operation.method or name.replace(" ", ".").replace("-", "_")
        for at, draft in self.drafts.items():
            if not draft.changed:
                continue
            before = work._drafts[at]
            work.record.revisions.append(self._revision(at, before, draft, rev, method))
            draft.rev = rev
            work._drafts[at] = draft
            if at not in work._order:
                work._order.append(at)
        for key, value in self.memory.items():
            work._memory[key] = value
            work.services.held[key] = work
            work.record.memory.append(Memory(*key, value))
        for change in self.folders:
            work._folders.append((change, method))

    def _revision(self, at: At, before: Draft, after: Draft, rev: int, method: str) -> Row:
        work = self._work
        previous = before.rev if isinstance(before.rev, int) else None
        row = Row(
            rev, at.root, at.path, previous, "call", self._job.call.id or None, method, self._work.services.clock(),
            after.size, "", "none", grp=self._work.record.id,
        )  # fmt: skip
        if not after.exists:
            after.depth = -1
            return row._replace(size=None, frame="gone")
        if not after.loaded:
            added = after.appended[len(before.appended) :]
            if not work.services.keep_history:
                after.depth = -1
                return row
            after.depth = after.depth + 1 if after.depth >= 0 else -1
            return row._replace(frame="delta", head=before.size, body=b"".join(added))
        content = after.raw or b""
        digest = store.digest(content)
        known_before = before.raw if before.exists and before.loaded else None
        row, after.depth = work.frame(row._replace(hash=digest), known_before, content, after.depth)
        return row


class _DraftView:
    """The documents of one call in the queue: what the calls before it left, and `Need` for what was not loaded yet."""

    def __init__(self, work: GroupWork, domain: str) -> None:
        self._work = work
        self._domain = domain

    def _loaded(self, at: At, form: str) -> Draft:
        draft = self._work._drafts.get(at)
        if draft is None or not draft.loaded:
            raise Need(at, form)
        return draft

    def json(self, at: At) -> JsonText:
        draft = self._loaded(at, "json")
        if draft.json is None:
            draft.json = json_text.parse(draft.raw)
            if draft.raw is draft.base.raw:
                draft.base.json = draft.json
        return draft.json

    def lines(self, at: At) -> JsonLines:
        draft = self._loaded(at, "lines")
        if draft.lines is None:
            draft.lines = json_lines.parse(draft.raw)
            if draft.raw is draft.base.raw:
                draft.base.lines = draft.lines
        return draft.lines

    def text(self, at: At) -> TextDocument:
        draft = self._loaded(at, "text")
        return TextDocument(draft.exists, draft.raw or b"")

    def exists(self, at: At) -> bool:
        draft = self._work._drafts.get(at)
        return draft.exists if draft is not None else os.path.exists(absolute(at))

    def folder(self, at: At) -> tuple[str, ...]:
        found = set(store.names(absolute(at)))
        prefix = f"{at.path}/" if at.path else ""
        for place, draft in self._work._drafts.items():
            if place.root == at.root and place.path.startswith(prefix):
                name, slash, _ = place.path[len(prefix) :].partition("/")
                if draft.exists:
                    found.add(name + slash)
                elif not slash:
                    found.discard(name)
        return tuple(sorted(found))

    def rev(self, at: At) -> Revision | None:
        draft = self._loaded(at, "rev")
        return draft.rev if draft.exists else None

    def memory(self, kind: str, key: str) -> Any:
        place = (self._domain, kind, key)
        self._work.wait_for_memory(place)
        if place in self._work._memory:
            return self._work._memory[place]
        return self._work.services.snapshot.memory.get(place)


# Helpers --------------------------------------------------------------------------------------------------------------


def _place(change: Change) -> At | None:
    match change:
        case Remember():
            return None
        case Move(_, target):
            return target
        case _:
            return change.at


def _fits(at: At, content: bytes) -> None:
    if len(content) > config.MAX_DOCUMENT:
        raise DocumentTooLarge(
            f"the document would have {len(content)} bytes, the limit is {config.MAX_DOCUMENT}", where=at.path
        )


def _sync_and_close(fd: int) -> None:
    try:
        reach("stage.sync")
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _try_lock(path: str) -> int | None:
    """Take an old program's lock file without waiting: opened anew, its inode compared after locking."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            return fd  # no locks on this file system: the old program ignores that too
        now = store.look(path)
        if now is not None and now.ino == os.fstat(fd).st_ino:
            return fd
        os.close(fd)


def _wait_lock(path: str) -> None:
    deadline = time.monotonic() + config.WRITE_DEADLINE
    while time.monotonic() < deadline:
        fd = _try_lock(path)
        if fd is not None:
            os.close(fd)
            return
        time.sleep(0.005)


def _wait_for(finished: threading.Event) -> None:
    finished.wait(config.WRITE_DEADLINE)


def _missing_folders(path: str) -> list[str]:
    missing = []
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _wait_quiet(path: str) -> None:
    deadline = time.monotonic() + config.QUIET_WAIT
    while time.monotonic() < deadline and not store.is_quiet(path):
        time.sleep(0.005)


def encode_answer(answer: Answer) -> bytes:
    return json_text.dumps(
        {
            "result": answer.result,
            "status": answer.status,
            "rev": answer.rev,
            "hand": [list(row) for row in answer.hand],
        }
    )


def stored_answer(encoded: bytes) -> Answer:
    value = json_text.parse(encoded).value
    return Answer(value["result"], value["status"], value["rev"], tuple((name, text) for name, text in value["hand"]))


def disk_error(job: Job, error: OSError) -> StatedError:
    return Unavailable(
        f"the disk refused: {error.strerror or error}",
        where=job.call.domain.name or "stated",
        hint="nothing was written",
    )


def internal(error: BaseException, method: str) -> Internal:
    """Our own fault: the log gets it under an id, the caller gets the id."""
    number = os.urandom(4).hex()
    _log.error("unexpected error", error_id=number, method=method, exc_info=error)
    return Internal(
        f"something unexpected happened in the daemon (error {number})", hint=f"the log has it: look for {number}"
    )


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
