"""THE QUEUE: one order for every write of this process.

What may be relied on:

- Calls are taken in the order in which they were put. The queue itself has no lock: `put` appends to a deque and rings
  a bell.
- One writer thread takes what is waiting as one batch: one journal transaction, and one wake-up of the event loop, for
  all.
- A call is settled exactly once, by an answer or an error.
- Calls on a root that must wait (an outside lock, an editor that saves, another owner) are *parked* in their order; the
  queue goes on with the others. A root on which a call on a file does not come back is left to its thread; a fresh one
  takes the rest.
- No lock, transaction or shared structure is held across a call on a state file.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stated import config, store
from stated.errors import Conflict, QueueFull, StatedError, Stopping, Unavailable, UnknownOutcome
from stated.faults import reach
from stated.journal import DocumentRow, JournalFailed, JournalGone, Notice
from stated.log import get_logger
from stated.roots import Dirty, OpenRoot, StepAside
from stated.store import OutsideEdit
from stated.transaction import ROUNDS, GroupWork, Job, Redo, Services, disk_error, internal

_log = get_logger()

BATCH = 256
"""Calls taken at once: enough to share a sync among all that wait, few enough to answer the first soon."""


@dataclass(slots=True, eq=False)
class Task:
    """Something the daemon itself does in the queue's order, on no state file or on one root: `run` is called alone."""

    run: Callable[[], None]
    root: str = ""


@dataclass(slots=True, eq=False)
class _Parked:
    reason: str
    since: float
    jobs: deque[Job] = field(default_factory=deque)


class _Thread(threading.Thread):
    """A writer thread. `place` is the root it is touching now, since when; a monitor reads both."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(name="stated-writer", daemon=True)
        self.writer = writer
        self.touching: tuple[str, ...] = ()
        self.since = 0.0
        self.rest: list[GroupWork] = []
        self.works: list[GroupWork] = []
        """Taken from the queue, and neither answered nor put back yet."""
        self.commit_done = False

    def run(self) -> None:
        self.writer._run(self)


class Writer:
    """`wake` is called (from the writer's thread) with a list of deliveries `(job, answer)` to settle in one go."""

    def __init__(
        self, services: Services, deliver: Callable[[Sequence[tuple[Job, Any]]], None], *, file_durability: bool = False
    ) -> None:
        self._services = services
        self._deliver = deliver
        self._file_durability = file_durability
        self._queue: deque[Job | Task] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._front: deque[Job] = deque()
        self._parked: dict[str, _Parked] = {}
        self._park_lock = threading.Lock()
        self._unmarked: list[tuple[int, list[DocumentRow]]] = []
        self._awaiting: dict[int, set[str]] = {}
        self._loose: set[int] = set()
        self._undecided: list[GroupWork] = []
        """Their commit failed, and is not voided yet; what they staged stays until then."""
        self._last_commit = 0.0
        self._first_dirty = 0.0
        self._stopping = False
        self._idle = threading.Event()
        self._thread: _Thread = _Thread(self)
        self.counters = {"calls": 0, "batches": 0, "commits": 0, "outside_edits_met": 0, "checkpoints": 0, "stuck": 0}

    # From any thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, job: Job) -> None:
        """Raises QueueFull, Stopping."""
        if self._stopping and not job.internal:
            raise Stopping("the daemon is stopping", hint="repeat the call: it starts a new one")
        if len(self._queue) >= config.MAX_QUEUE:
            raise QueueFull(f"more than {config.MAX_QUEUE} calls are waiting", hint="try again in a moment")
        self._queue.append(job)
        self._bell.put(None)

    def put_task(self, run: Callable[[], None], root: str = "") -> None:
        self._queue.append(Task(run, root))
        self._bell.put(None)

    def depth(self) -> int:
        return len(self._queue) + sum(len(parked.jobs) for parked in self._parked.values())

    def stuck(self) -> list[dict[str, Any]]:
        """Roots whose calls wait, for `status`: `{root, reason, seconds, calls}`."""
        now = time.monotonic()
        with self._park_lock:
            return [
                {
                    "root": root,
                    "reason": parked.reason,
                    "seconds": round(now - parked.since, 1),
                    "calls": len(parked.jobs),
                }
                for root, parked in self._parked.items()
            ]

    def watch_over(self) -> None:
        """Called regularly: when the thread has been in one call on a file for too long, a fresh one takes over."""
        thread = self._thread
        if thread.touching and time.monotonic() - thread.since > config.STUCK_AFTER and thread.is_alive():
            self._take_over(thread)

    def is_stopping(self) -> bool:
        return self._stopping

    def drain(self, deadline: float) -> bool:
        """Stop taking calls, finish what was accepted, checkpoint. True when all was done before `deadline`
        (monotonic)."""
        self._stopping = True
        self._bell.put(None)
        return self._idle.wait(max(0.0, deadline - time.monotonic()))

    # Taking over ------------------------------------------------------------------------------------------------------

    def _take_over(self, stuck: _Thread) -> None:
        with self._park_lock:
            roots = stuck.touching
            if not roots or self._thread is not stuck:
                return
            for root in roots:
                self._parked.setdefault(root, _Parked("a call on its files does not come back", time.monotonic()))
            fresh = _Thread(self)
            fresh.rest, stuck.rest = stuck.rest, []
            fresh.commit_done = stuck.commit_done
            fresh.works = list(fresh.rest)
            stuck.works = [work for work in stuck.works if work not in fresh.works]
            self._thread = fresh
        self.counters["stuck"] += 1
        _log.error("a state directory does not answer; a fresh writer takes the others", roots=list(roots))
        fresh.start()

    def _superseded(self, thread: _Thread) -> bool:
        return self._thread is not thread

    @contextlib.contextmanager
    def _touch(self, thread: _Thread, roots: tuple[str, ...]) -> Iterator[None]:
        thread.since = time.monotonic()
        thread.touching = roots
        try:
            yield
        finally:
            with self._park_lock:
                thread.touching = ()

    # The loop ---------------------------------------------------------------------------------------------------------

    def _run(self, thread: _Thread) -> None:
        try:
            if thread.rest:
                rest, thread.rest = thread.rest, []
                if thread.commit_done:
                    self._show(thread, rest)
                else:
                    self._batch(thread, [job for work in rest for job in work.jobs], rest)
            while not self._superseded(thread):
                if not self._turn(thread):
                    return
        except BaseException as error:  # the queue must not die silently: every waiting call is told
            self._broken(thread, error)

    def _turn(self, thread: _Thread) -> bool:
        """One batch, one task, one checkpoint, or a wait. False: the end."""
        if not self._queue and not self._front:
            wait = self._until_checkpoint()
            if wait is not None and wait <= 0:
                self._checkpoint(thread)
                return True
            if self._stopping and not self._parked:
                self._checkpoint(thread)
                if not self._queue and not self._front:
                    self._idle.set()
                    return False
                return True
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=wait if wait is not None else (0.2 if self._stopping else None))
            return True
        while True:
            try:
                self._bell.get_nowait()
            except queue.Empty:
                break
        if self._front:
            self._batch(thread, [self._front.popleft()] if self._front[0].alone else self._take_front())
            return True
        if isinstance(self._queue[0], Task):
            task = self._queue.popleft()
            assert isinstance(task, Task)
            with self._touch(thread, (task.root,) if task.root else ()):
                try:
                    task.run()
                except Exception as error:  # a task of our own never stops the queue
                    internal(error, "task")
            if self._superseded(thread) and task.root:
                self._unpark((task.root,))
            return True
        jobs: list[Job] = []
        while self._queue and len(jobs) < BATCH and isinstance(self._queue[0], Job):
            job = self._queue.popleft()
            assert isinstance(job, Job)
            jobs.append(job)
        self._batch(thread, jobs)
        if self._due_under_load():
            self._checkpoint(thread)
        return True

    def _take_front(self) -> list[Job]:
        """Jobs that run again, as the group they were; they go before everything else."""
        jobs = [self._front.popleft()]
        while self._front and not self._front[0].alone and set(self._front[0].roots) & set(jobs[0].roots):
            jobs.append(self._front.popleft())
        return jobs

    def _batch(self, thread: _Thread, jobs: Sequence[Job], ready: Sequence[GroupWork] = ()) -> None:
        self.counters["batches"] += 1
        self.counters["calls"] += len(jobs)
        works = list(ready) or [GroupWork(self._services, group) for group in self._groups(self._unparked(jobs))]
        prepared: list[GroupWork] = []
        thread.works = list(works)
        thread.commit_done = False
        for number, work in enumerate(works):
            if work.phase == "prepared":
                prepared.append(work)
                continue
            thread.rest = prepared + works[number + 1 :]
            if self._prepare(thread, work):
                prepared.append(work)
            else:
                thread.works.remove(work)
            if self._superseded(thread):
                # We were stuck in this group; the fresh thread has the others. Ours starts anew, in the queue.
                if work in prepared:
                    thread.works.remove(work)
                    work.abandon()
                    self._again(work.jobs)
                self._unpark(work.roots)
                return
        thread.rest = []
        # A refusal after an earlier round is answered only when a transaction has voided that round.
        quiet = [work for work in prepared if not (work.voids or work.record.steps or work.record.memory)]
        for work in quiet:
            work.release_locks()
        writes = [work for work in prepared if work not in quiet]
        self._answer(quiet)
        thread.works = list(writes)
        if not writes or not self._commit(writes):
            thread.works = []
        else:
            thread.commit_done = True
            reach("commit.after")
            self._show(thread, writes)

    def _groups(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """The calls of one root, or of roots that a call joins, in their order; a call that must run alone is its
        own."""
        groups: list[tuple[set[str], list[Job]]] = []
        for job in jobs:
            roots = set(job.roots)
            touching = [group for group in groups if group[0] & roots]
            if not touching:
                groups.append((roots, [job]))
                continue
            first = touching[0]
            for other in touching[1:]:
                first[0].update(other[0])
                first[1].extend(other[1])
                groups.remove(other)
            first[0].update(roots)
            first[1].append(job)
        return [members for _, members in groups]

    def _prepare(self, thread: _Thread, work: GroupWork) -> bool:
        if any(root not in self._services.roots.open_roots for root in work.roots):
            self._mark()
        with self._touch(thread, work.roots):
            try:
                work.prepare()
            except StepAside as aside:
                self._park(work, aside)
            except Redo as redo:
                self._redo(work, redo)
            except JournalGone:
                self._journal_gone()
                self._again(work.jobs)
            except JournalFailed as failed:
                self._fail(
                    work, Unavailable(f"the journal cannot be written: {failed.reason}", hint="nothing was written")
                )
            except StatedError as error:
                self._fail(work, error)
            except OSError as error:
                self._fail(work, disk_error(work.jobs[0], error))
            except Exception as error:  # fails these calls alone
                self._fail(work, internal(error, "prepare"))
            else:
                return True
        return False

    def _commit(self, works: list[GroupWork]) -> bool:
        voids = {group for work in works for group in work.voids}
        unmarked = list(self._unmarked)
        for attempt in (1, 2):
            try:
                self._services.journal.commit([work.record for work in works], voids=voids, visible=unmarked)
                break
            except JournalGone:
                self._journal_gone()
                unmarked = []
                if attempt == 2:
                    self._refuse(works, "the journal's file is replaced again and again", known=True)
                    return False
            except JournalFailed as failed:
                self._refuse(works, failed.reason, known=self._surely_void(works, voids))
                return False
        del self._unmarked[: len(unmarked)]
        self._drop_undecided()
        self.counters["commits"] += 1
        now = time.monotonic()
        self._last_commit = now
        if not self._first_dirty:
            self._first_dirty = now
        return True

    def _surely_void(self, works: Sequence[GroupWork], voids: Iterable[int]) -> bool:
        """After a failed commit: whether a transaction has voided it, so that "nothing was written" is true."""
        try:
            self._services.journal.void({work.record.id for work in works} | set(voids))
        except JournalFailed:
            return False
        except JournalGone:
            self._journal_gone()  # and with it the commit
        self._drop_undecided()
        return True

    def _drop_undecided(self) -> None:
        """A transaction has gone through, and voided them first."""
        undecided, self._undecided = self._undecided, []
        for work in undecided:
            work.abandon()

    def _refuse(self, works: Sequence[GroupWork], reason: str, *, known: bool) -> None:
        if not known:
            # It may come back to life after a restart: recovery then tells by the staging names what was made.
            self._undecided += works
        for work in works:
            if known:
                work.abandon()
            else:
                work.let_go()
            for job, answer in work.answers:
                if isinstance(answer, StatedError):
                    self._deliver([(job, answer)])
                elif known:
                    error = Unavailable(f"the journal cannot be written: {reason}", hint="nothing was written")
                    self._deliver([(job, error)])
                else:
                    self._deliver([(job, _unknown(job, reason))])

    def _show(self, thread: _Thread, works: list[GroupWork]) -> None:
        """Make the groups of one commit visible, in order, and answer each."""
        for number, work in enumerate(works):
            thread.rest = works[number + 1 :]
            done = False
            with self._touch(thread, work.roots):
                try:
                    work.make_visible()
                    rows = work.publish()
                    done = True
                except Redo as redo:
                    self._redo(work, redo)
                except Exception as error:  # a disk that refuses, or a fault of ours, in the middle of a group
                    self._tear(work, error)
            thread.works = thread.rest
            if done:
                self._unmarked.append((work.record.id, rows))
                self._await_sync(work)
                if self._file_durability and self._superseded(thread):
                    for root in work.roots:
                        self.checkpoint_root(root)
                elif self._file_durability:
                    self._checkpoint(thread)
                self._answer([work])
            if self._superseded(thread):
                self._unpark(work.roots)
                return
        thread.rest = []

    def _await_sync(self, work: GroupWork) -> None:
        roots = {step.root for step in work.record.steps}
        if not roots:
            self._loose.add(work.record.id)
            return
        self._awaiting[work.record.id] = roots
        for root in roots:
            opened = self._services.roots.open_roots.get(root)
            if opened is not None:
                opened.dirty.groups.add(work.record.id)

    def _tear(self, work: GroupWork, error: BaseException) -> None:
        """A group that is neither visible nor taken back stays as it is, committed; its roots are closed, so that the
        next call on them begins with recovery, which finishes it or takes it back."""
        told = internal(error, "visible")
        self._mark()
        work.let_go()
        for root in work.roots:
            self._services.roots.drop(root)
        for job, answer in work.answers:
            self._deliver([(job, answer if isinstance(answer, StatedError) else _unknown(job, told.reason))])

    def _mark(self) -> None:
        """Tell the journal which groups are visible, before a root is opened anew: recovery leaves those alone."""
        unmarked = list(self._unmarked)
        if unmarked:
            with contextlib.suppress(JournalFailed, JournalGone):
                self._services.journal.durable((), unmarked)
                del self._unmarked[: len(unmarked)]

    # Answers ----------------------------------------------------------------------------------------------------------

    def _answer(self, works: Sequence[GroupWork]) -> None:
        answers = [row for work in works for row in work.answers]
        try:
            reach("answer.before")
        except OSError as error:
            internal(error, "answer")
        if answers:
            self._deliver(answers)

    def _fail(self, work: GroupWork, error: StatedError) -> None:
        """All calls of a group fail with one error; groups of earlier rounds are voided first."""
        if work.voids and not self._surely_void([], work.voids):
            self._deliver([(job, _unknown(job, error.reason)) for job in work.jobs])
            return
        self._deliver([(job, error) for job in work.jobs])

    def _redo(self, work: GroupWork, redo: Redo) -> None:
        """The group was taken back: its calls run again before everything else, or are given up."""
        committed = work.phase == "prepared"
        rest: list[Job] = []
        self.counters["outside_edits_met"] += isinstance(redo.why, OutsideEdit)
        for job in work.jobs:
            job.rounds += 1
            if committed:
                job.voids.add(work.record.id)
            if job.rounds <= ROUNDS and not (redo.alone and job.alone):
                job.alone = job.alone or redo.alone
                rest.append(job)
        given_up = [job for job in work.jobs if job not in rest]
        if committed and work.record.memory:
            # Others may ask for these memory documents at once.
            self._surely_void([work], ())
        work.let_go()
        if given_up:
            voids = set().union(*(job.voids for job in given_up))
            if voids and not self._surely_void([], voids):
                self._deliver([(job, _unknown(job, "the journal cannot be written")) for job in given_up])
            elif isinstance(redo.why, OSError):
                self._deliver([(job, disk_error(job, redo.why)) for job in given_up])
            elif isinstance(redo.why, StatedError):
                self._deliver([(job, redo.why) for job in given_up])
            elif not isinstance(redo.why, OutsideEdit):
                self._deliver([(job, internal(redo.why, "visible")) for job in given_up])
            else:
                conflict = Conflict(
                    "the file is edited again and again by something else",
                    where=str(redo.why),
                    hint="nothing was written; try again",
                )
                self._deliver([(job, conflict) for job in given_up])
        self._again(rest)

    def _again(self, jobs: Sequence[Job]) -> None:
        """These run before everything else that waits for their roots."""
        free: list[Job] = []
        with self._park_lock:
            for job in reversed(jobs):
                waiting = next((self._parked[root] for root in job.roots if root in self._parked), None)
                if waiting is not None:
                    waiting.jobs.appendleft(job)
                else:
                    free.append(job)
        self._front.extendleft(free)
        self._bell.put(None)

    # Parking ----------------------------------------------------------------------------------------------------------

    def _unparked(self, jobs: Sequence[Job]) -> list[Job]:
        """The calls whose roots are free; the others join those that wait for the same root, in order."""
        free = []
        with self._park_lock:
            for job in jobs:
                waiting = next((self._parked[root] for root in job.roots if root in self._parked), None)
                if waiting is None:
                    free.append(job)
                else:
                    waiting.jobs.append(job)
        return free

    def _park(self, work: GroupWork, aside: StepAside) -> None:
        parked = _Parked(aside.reason, time.monotonic(), deque(work.jobs))
        roots = work.roots or (f"call {work.jobs[0].call.id}",)  # one without a root waits as well
        with self._park_lock:
            for root in roots:
                before = self._parked.get(root)
                if before is not None:
                    parked.jobs.extend(job for job in before.jobs if job not in parked.jobs)
                self._parked[root] = parked

        def wait() -> None:
            try:
                aside.wait()
            except Exception as error:  # whatever the wait met, the calls are tried again
                internal(error, "wait")
            for job in work.jobs:
                if aside.reason.startswith("an editor"):
                    job.patience = False
            self._unpark(roots)

        threading.Thread(target=wait, name="stated-wait", daemon=True).start()

    def _unpark(self, roots: Sequence[str]) -> None:
        """In the queue's order: calls that came meanwhile still join those that wait, behind them."""
        self.put_task(lambda: self._release(roots))

    def _release(self, roots: Sequence[str]) -> None:
        released: list[_Parked] = []
        with self._park_lock:
            for root in roots:
                parked = self._parked.pop(root, None)
                if parked is not None and parked not in released:
                    released.append(parked)
        for parked in released:
            self._again(list(parked.jobs))

    # The journal's file was taken away --------------------------------------------------------------------------------

    def _journal_gone(self) -> None:
        """An empty journal at the same path. What is visible is synced at the next checkpoint as before; what the old
        one remembered (ids, history, memory documents) is lost, as each description says."""
        _log.error("the journal's file is gone; a new one is begun")
        with contextlib.suppress(JournalFailed):
            self._services.journal.reopen()
        self._unmarked.clear()
        self._services.snapshot.memory.clear()
        self._services.snapshot.known.clear()
        for path in list(self._services.roots.open_roots):
            opened = self._services.roots.open_roots[path]
            opened.dirty.groups.clear()
            if opened.token is not None:
                with contextlib.suppress(JournalFailed, JournalGone):
                    self._services.journal.put_root(path, opened.token, opened.domain, "")
        self._awaiting.clear()
        self._loose.clear()

    # Checkpoint -------------------------------------------------------------------------------------------------------

    def _dirty(self) -> bool:
        return (
            bool(self._loose)
            or bool(self._unmarked)
            or any(opened.dirty for opened in self._services.roots.open_roots.values())
        )

    def _until_checkpoint(self) -> float | None:
        """Seconds until a checkpoint is due while nothing comes; None: none is."""
        if not self._dirty():
            self._first_dirty = 0.0
            return None
        return self._last_commit + config.CHECKPOINT_IDLE - time.monotonic()

    def _due_under_load(self) -> bool:
        displaced = sum(len(opened.dirty.displaced) for opened in self._services.roots.open_roots.values())
        late = bool(self._first_dirty) and time.monotonic() - self._first_dirty > config.CHECKPOINT_BUSY
        return displaced > config.DISPLACED_MAX or late

    def _checkpoint(self, thread: _Thread) -> None:
        if self._superseded(thread):
            return  # the fresh thread does
        self._first_dirty = 0.0
        self._last_commit = time.monotonic()
        for opened in list(self._services.roots.open_roots.values()):
            if opened.dirty and opened.path not in self._parked:
                with self._touch(thread, (opened.path,)):
                    self._checkpoint_root(opened)
                if self._superseded(thread):
                    self._unpark((opened.path,))
                    return
        if self._loose or self._unmarked:
            unmarked = list(self._unmarked)
            loose = list(self._loose)
            try:
                self._services.journal.durable(loose, unmarked)
            except JournalGone:
                self._journal_gone()
                return
            except JournalFailed as failed:
                self._put_off(failed.reason)
                return
            del self._unmarked[: len(unmarked)]
            self._loose.difference_update(loose)
        self._services.checkpointed()

    def checkpoint_root(self, path: str) -> None:
        """In the queue: checkpoint one root before it is given back."""
        opened = self._services.roots.open_roots.get(path)
        if opened is not None and opened.dirty:
            self._checkpoint_root(opened)

    def _checkpoint_root(self, opened: OpenRoot) -> None:
        """From here on the files of this root need the journal no more. A sync that failed is never repeated on that
        file: it is staged anew."""
        dirty, opened.dirty = opened.dirty, Dirty()
        opened.syncing = dirty
        try:
            self._sync_root(opened, dirty)
        except JournalGone:
            self._give_back(opened, dirty)
            self._journal_gone()
        except JournalFailed as failed:
            self._give_back(opened, dirty)
            self._put_off(failed.reason)
        except (OSError, OutsideEdit, StatedError) as error:
            _log.error("checkpoint failed", root=opened.path, reason=str(error))
            self._give_back(opened, dirty)
            self._put_off(type(error).__name__)
        else:
            self.counters["checkpoints"] += 1
        finally:
            opened.syncing = None

    def _sync_root(self, opened: OpenRoot, dirty: Dirty) -> None:
        reach("checkpoint.before")
        for target, ino in dirty.appended.items():
            self._sync_log(opened, target, ino)
        for folder in dirty.folders:
            reach("checkpoint.folder")
            store.sync_folder(folder)
        waiting = [step for step in dirty.displaced if store.may_still_change(step)]
        settled = [step for step in dirty.displaced if step not in waiting]
        for step in settled:
            self._keep_late_edit(step, dirty.notices)
        durable = [group for group in dirty.groups if self._awaiting.get(group, {opened.path}) <= {opened.path}]
        unmarked = list(self._unmarked)
        self._services.journal.durable(durable, unmarked, dirty.notices)
        del self._unmarked[: len(unmarked)]
        for group in dirty.groups:
            self._awaiting.get(group, set()).discard(opened.path)
        for group in durable:
            self._awaiting.pop(group, None)
        # What is left of `dirty` is what an error from here on gives back.
        dirty.notices.clear()
        reach("checkpoint.durable")
        dirty.groups.clear()
        dirty.appended.clear()
        dirty.folders.clear()
        opened.dirty.displaced += waiting
        dirty.displaced = settled
        for step in settled:
            store.drop_displaced(step)

    def _sync_log(self, opened: OpenRoot, target: str, ino: int) -> None:
        try:
            reach("checkpoint.sync")
            now = store.look(target)
            if now is not None and now.ino == ino:
                store.sync_file(target)
        except OSError as error:
            _log.error("a log could not be synced; it is staged anew", root=opened.path, reason=error.strerror)
            store.stage_anew(target, self._services.journal.group_number())

    def _keep_late_edit(self, step: store.Step, notices: list[Notice]) -> None:
        content = store.late_edit(step)
        if content is None or store.digest(content) in (step.start_hash, step.hash):
            return
        copy = store.keep_copy(self._services.conflicts, step.root, step.path, content)
        _log.warning("conflict copy kept", root=step.root, path=step.path, copy=copy)
        notices.append(
            Notice(
                step.root, step.path, "an editor wrote into a version that was being replaced: kept as a conflict copy",
                f"compare it with the file, then remove {copy}", copy,
            )
        )  # fmt: skip

    def _give_back(self, opened: OpenRoot, dirty: Dirty) -> None:
        now = opened.dirty
        now.groups |= dirty.groups
        now.appended = dirty.appended | now.appended
        now.folders |= dirty.folders
        now.displaced = [step for step in dirty.displaced if step.displaced >= 0 or step.late] + now.displaced
        now.notices = dirty.notices + now.notices

    def _put_off(self, reason: str) -> None:
        """Try again in a second, not at once."""
        self._last_commit = time.monotonic() + config.CHECKPOINT_BUSY
        _log.error("checkpoint put off", reason=reason)

    # The end ----------------------------------------------------------------------------------------------------------

    def _broken(self, thread: _Thread, error: BaseException) -> None:
        """Our own fault: the calls that this thread had are answered as what they are, and a fresh one goes on."""
        told = internal(error, "writer")
        works, thread.works = thread.works, []
        for work in works:
            if thread.commit_done:
                self._tear(work, error)
            else:
                work.abandon()
                self._fail(work, told)
        with self._park_lock:
            if self._superseded(thread):
                return
            self._thread = _Thread(self)
        # What waits has nothing to do with it, unless it is the queue itself that is broken: then it would go on for
        # ever.
        waiting = [*self._front, *(job for job in self._queue if isinstance(job, Job))] if not works else []
        if not works:
            tasks = [task for task in self._queue if isinstance(task, Task)]
            self._front.clear()
            self._queue.clear()
            self._queue.extend(tasks)
        for job in waiting:
            sure = not job.voids or self._surely_void([], job.voids)
            self._deliver([(job, told if sure else _unknown(job, told.reason))])
        self._thread.start()


def _unknown(job: Job, reason: str) -> UnknownOutcome:
    return UnknownOutcome(
        f"whether this was written is not known: {reason}",
        hint=f"repeat it with --call {job.call.id}" if job.call.id else "read before you repeat it",
        data={"call": job.call.id},
    )
