"""The engine as the entrances see it: calls in, answers out, in a daemon or (for one call) without one.

What may be relied on:

- `submit` settles with an answer or raises StatedError; a write that was accepted happens whatever becomes of
  whoever waits.
- A repeat of an undone call, and of one still under way, gets the first answer.
- Readers run on the published snapshot, in the event loop when everything is at hand, else in a reader thread.
- `close` finishes what was accepted, checkpoints, and gives every root back.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, Literal, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from stated import __version__, config, history, roots, store, syscalls
from stated.call import Answer, Call
from stated.documents import json_lines, json_text
from stated.documents.json_text import dumps
from stated.domain import (
    At,
    Caller,
    Context,
    DocumentKind,
    Domain,
    Finding,
    Kind,
    Location,
    MemoryKind,
    Operation,
    Outcome,
    Remember,
    TextDocument,
)
from stated.errors import Refused, Reused, StatedError, Unavailable, Usage
from stated.history import Form, Keeper, Past
from stated.journal import DocumentRow, Journal, JournalFailed, JournalGone
from stated.log import get_logger
from stated.recovery import Recovery
from stated.roots import Roots
from stated.snapshot import ReadView, Snapshot, Version, absolute
from stated.transaction import Job, Services, internal
from stated.watch import Watcher
from stated.writer import Writer

_log = get_logger()

T = TypeVar("T")

SESSION_VARIABLE = "STATED_SESSION"
SESSION_KEEP_SECONDS = 30 * 24 * 3600
READERS = 32
"""Threads for reads that must look at the disk; they exist only while there is such work."""
SLOW_READS = 4
"""Of these, how many one root may keep busy."""
NOTICE_KEEP_SECONDS = 7 * 24 * 3600
"""How long `doctor` tells of an outside edit that needs nothing but to be known."""


class _Observe(msgspec.Struct, kw_only=True):
    places: list[tuple[str, str]]


class _Announce(msgspec.Struct, kw_only=True):
    session: str
    roots: dict[str, str]
    at: int


class _Restore(msgspec.Struct, kw_only=True):
    root: str
    path: str
    rev: int


class _Undo(msgspec.Struct, kw_only=True):
    call: str


def _observe(docs: Any, params: _Observe, context: Context) -> Outcome:
    for root, path in params.places:
        docs.text(At(root, path))
    return Outcome({})


def _announce(docs: Any, params: _Announce, context: Context) -> Outcome:
    value = {"at": params.at, "roots": params.roots}
    return Outcome({}, (Remember("session", params.session, value),))


def _nowhere(caller: Caller, announced: str | None) -> Location:
    return Location("", "default")


_ENGINE = Domain(
    name="stated",
    title="The engine itself",
    summary="Tasks of the daemon.",
    operations=(),
    locate=_nowhere,
    memories=(
        MemoryKind(
            name="session",
            title="Which directories were announced to which session",
            loss="A session falls back to its variables and the defaults; one that had another directory is refused.",
        ),
    ),
)
_OBSERVE = Operation(name="observe", kind=Kind.READER, summary="", params=_Observe, run=_observe)
_ANNOUNCE = Operation(name="announce", kind=Kind.MEMORY, summary="", params=_Announce, run=_announce)
_BROKEN = "put it right by hand, or restore it"


class Engine:
    """`socket` is where other daemons can ask for a root; `on_stop` is called (in the event loop) for `stop`.

    A daemon's engine is the owner of its home from `start` to `close`. In local mode it becomes the owner (`own`)
    when the call writes, or when a killed daemon has left something to recover; a plain read makes no file and takes
    no lock.
    """

    def __init__(
        self,
        home: str,
        *,
        config: config.Config,
        domains: Sequence[Domain],
        mode: Literal["daemon", "local"] = "daemon",
        socket: str = "",
        own: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.home = home
        self.domains = {domain.name: domain for domain in domains}
        self.on_stop: Callable[[], None] = lambda: None
        self._config = config
        self._mode = mode
        self._socket = socket
        self._clock = clock
        self._started = time.monotonic()
        self._since = datetime.fromtimestamp(clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._under_way: dict[str, tuple[str, asyncio.Future[Answer]]] = {}
        self._kinds: dict[str, list[tuple[re.Pattern[str], DocumentKind]]] = {
            domain.name: [(_pattern(kind.pattern), kind) for kind in domain.documents] for domain in domains
        }
        self._root_domains: dict[str, str] = {}
        self._touched_roots: set[str] = set()
        self._kept_up: dict[str, float] = {}
        self._watcher: Watcher | None = None
        self._watched: frozenset[str] = frozenset()
        self._hints: set[str] = set()
        self._monitor: asyncio.Task[None] | None = None
        self._local_zone: tuple[float, tzinfo] = (0.0, UTC)
        self._own = own
        self._owner: object = None
        self._stack = contextlib.ExitStack()
        self._opened = False
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="stated-sync")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="stated-read")
        self._slow_reads: dict[str, asyncio.Semaphore] = {}
        self._real_paths: dict[str, str] = {}
        self._resolving: dict[str, asyncio.Future[str]] = {}

    # Start and stop ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the journal, recover every root that has something pending. Raises Unavailable."""
        self._loop = asyncio.get_running_loop()
        if self._mode == "daemon":
            self._open_journal(readonly=False)
            await self._begin_writing()
            self._watcher = Watcher(self._hint, self._config.watch)
            self._watch_roots()
            self._monitor = asyncio.create_task(self._watch_over())

    async def _ready(self, *, writes: bool) -> None:
        """Local mode: open what this call needs."""
        if self._mode == "daemon" or self._owner is not None or (self._opened and not writes):
            return
        if not writes:
            self._open_journal(readonly=True)
            if not self.journal.pending():
                return
        try:
            self._owner = self._stack.enter_context(self._own())
            self._close_journal()
            self._open_journal(readonly=False)
            await self._begin_writing()
        except StatedError:
            if writes:
                raise
            # Somebody else owns what is pending, or it cannot be written: the files are read as they are.
            self._owner = None
            self._open_journal(readonly=True)

    def _open_journal(self, *, readonly: bool) -> None:
        state_home = config.state_home(self.home)
        try:
            if not readonly:
                os.makedirs(state_home, mode=0o700, exist_ok=True)
            self.journal = Journal(
                config.journal_path(self.home), boot=syscalls.boot_identity(), clock=self._seconds, readonly=readonly
            )
            known = {At(root, path): known for root, path, known in self.journal.documents()}
            memory = {(row.domain, row.kind, row.key): row.value for row in self.journal.memory()}
            recorded = self.journal.roots()
        except (OSError, JournalFailed) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Unavailable(
                f"the journal cannot be opened: {reason}",
                where=state_home,
                hint="make this folder writable, or set HOME",
            ) from error
        self.snapshot = Snapshot(known, memory)
        for row in recorded:
            self._root_domains[row["root"]] = row["domain"]
        self._roots = Roots(self.journal, self._socket, self._recover, self._seconds)
        self._opened = True

    def _recover(self, root: roots.OpenRoot, others: Mapping[str, roots.OpenRoot]) -> None:
        recovery = Recovery(self.journal, config.conflicts_path(self.home), self._remember, self._reload_memory)
        recovery.recover(root, others)

    async def _begin_writing(self) -> None:
        if threading.current_thread() is threading.main_thread():
            syscalls.ignore_lease_signal()
        services = Services(
            self.journal,
            self._roots,
            self.snapshot,
            self._pool,
            self._seconds,
            config.conflicts_path(self.home),
            self.check,
            self._outside_locks,
            lambda root: self._root_domains.get(root, ""),
            content_of=self._content_of,
            keep_history=self._config.history_bytes > 0,
            checkpointed=lambda: self._keeper.checkpointed(),
        )
        self.writer = Writer(
            services, self._deliver, file_durability=self._mode == "local" or self._config.durability == "file"
        )
        daemon = self._mode == "daemon"
        self._keeper = Keeper(
            self.journal, self._config.history_bytes, self.snapshot.known, form=self._form, forgot=self._forgot,
            queue=self.writer.put_task, aside=self._aside if daemon else self.writer.put_task,
            # A call without a daemon has nobody after it: it does one slice, at its end.
            ending=self.writer.is_stopping if daemon else lambda: True,
        )  # fmt: skip
        self.writer.start()
        await self._recover_pending()
        self.writer.put_task(self._keeper.checkpointed)

    def _close_journal(self) -> None:
        if self._opened:
            self._roots.close()
            self.journal.close()

    async def _recover_pending(self) -> None:
        pending: set[str] = set()
        loose: list[int] = []
        for group in self.journal.pending():
            if not group.steps:
                loose.append(group.id)
            pending.update(step.root for step in group.steps)
        if loose:
            self.journal.durable(loose)
        self._forget_old_sessions()
        if pending:
            tasks = [
                self._loop.create_task(self._task(partial(self._open_root, root), root)) for root in sorted(pending)
            ]
            await asyncio.wait(tasks, timeout=config.STUCK_AFTER + 1.0)

    def _forget_old_sessions(self) -> None:
        old = [
            key
            for key, value in self.snapshot.memory.items()
            if key[:2] == ("stated", "session") and int(value.get("at", 0)) < self._seconds() - SESSION_KEEP_SECONDS
        ]
        if old:
            with contextlib.suppress(JournalFailed, JournalGone), self.journal.transaction() as db:
                db.executemany("DELETE FROM memory WHERE domain=? AND kind=? AND key=?", old)
            self.snapshot.publish({}, {}, dict.fromkeys(old))

    async def close(self) -> None:
        """Finish, checkpoint, give back. Safe to call when `start` failed."""
        if self._monitor is not None:
            self._monitor.cancel()
        if self._watcher is not None:
            self._watcher.stop()
        if hasattr(self, "writer"):
            deadline = time.monotonic() + config.STOP_DEADLINE
            finished = await asyncio.to_thread(self.writer.drain, deadline)
            if not finished:
                _log.error(
                    "stopped before everything was finished", waiting=self.writer.depth(), stuck=self.writer.stuck()
                )
        self._close_journal()
        self._stack.close()
        self._pool.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    def request_stop(self) -> None:
        self._loop.call_soon(self.on_stop)

    # Calls ------------------------------------------------------------------------------------------------------------

    async def submit(self, call: Call) -> Answer:
        await self._ready(writes=call.operation.kind is not Kind.READER)
        now = datetime.fromtimestamp(self._clock(), UTC)
        location = self.locate(call.domain, call.caller)
        root = await self._resolve(location.root) if location.root else ""
        operation = call.operation
        if operation.roots is None:
            real: tuple[str, ...] = (root,) if root else ()
        else:
            named = operation.roots(call.params, location, call.caller)
            real = tuple(dict.fromkeys([await self._resolve(path) for path in named if path]))
        for path in real:
            self._root_domains.setdefault(path, call.domain.name)
        context = Context(
            now=now, zone=self._zone(call.caller), caller=call.caller, call=call.id, root=root, if_rev=call.if_rev
        )
        if operation.kind is Kind.READER:
            return await self._read(call, context, real)
        request = _request_hash(call, context.root, real)
        if call.id:
            under_way = self._under_way.get(call.id)
            if under_way is not None:
                if under_way[0] != request:
                    raise Reused("this call id belongs to another request", hint="leave --call out, or make a new id")
                return await asyncio.shield(under_way[1])
        for path in real if self._mode == "local" else ():
            self._keep_up(path)
        future: asyncio.Future[Answer] = self._loop.create_future()
        job = Job(call, request, now, context, real, _settler(future))
        self.writer.put(job)
        if call.id:
            self._under_way[call.id] = (request, future)
        future.add_done_callback(partial(self._done, call.id, real))
        return await asyncio.shield(future)

    async def _resolve(self, path: str) -> str:
        """A root's real path. Only a local root that is open is looked at in the event loop: anything else may not come
        back. Calls that wait for the same path go on in their order."""
        root = self._roots.open_roots.get(self._real_paths.get(path, ""))
        if root is not None and root.local and root.is_at(path):
            return root.path
        under_way = self._resolving.get(path)
        if under_way is None:
            under_way = self._loop.run_in_executor(self._readers, os.path.realpath, path)
            self._resolving[path] = under_way
            under_way.add_done_callback(lambda done: self._resolved(path, done))
        return await asyncio.shield(under_way)

    def _resolved(self, path: str, future: asyncio.Future[str]) -> None:
        del self._resolving[path]
        if not future.cancelled() and future.exception() is None:
            if len(self._real_paths) > 1000:
                self._real_paths.clear()
            self._real_paths[path] = future.result()

    def _done(self, call: str, roots: tuple[str, ...], future: asyncio.Future[Answer]) -> None:
        self._under_way.pop(call, None)
        if not self._watched.issuperset(roots):
            self._watch_roots()  # a write has opened, or made, a root
        if not future.cancelled():
            future.exception()  # looked at, so that nobody is told of an error whose caller has gone

    def _deliver(self, answers: Sequence[tuple[Job, Any]]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: whoever waited is gone with it
            self._loop.call_soon_threadsafe(_settle_all, list(answers))

    def locate(self, domain: Domain, caller: Caller) -> Location:
        """Where the state is for this caller. A session's announced directory stands behind its variable."""
        session = caller.env.get(SESSION_VARIABLE)
        announced = None
        if session:
            remembered = self.snapshot.memory.get(("stated", "session", session))
            announced = remembered["roots"].get(domain.name) if remembered else None
        return domain.locate(caller, announced)

    async def _read(self, call: Call, context: Context, real: tuple[str, ...]) -> Answer:
        self._touch_roots(real)
        with contextlib.suppress(ReadView.Slow):
            if all(self._is_local(path) for path in real):
                return self._read_once(call, context, quick=True)
        # A directory that does not answer keeps its own few threads, not those of the others.
        async with self._slow_reads.setdefault(context.root, asyncio.Semaphore(SLOW_READS)):
            return await self._loop.run_in_executor(self._readers, self._read_slowly, call, context)

    def _read_slowly(self, call: Call, context: Context) -> Answer:
        for _ in range(50):
            with contextlib.suppress(ReadView.Slow):
                return self._read_once(call, context, quick=False)
            time.sleep(0.002)
        raise Unavailable("the documents change faster than they can be read", hint="try again")

    def _read_once(self, call: Call, context: Context, *, quick: bool) -> Answer:
        observed: dict[At, Version] = {}
        view = ReadView(
            self.snapshot,
            call.domain.name,
            quick=quick,
            number=self.journal.reserved_number,
            observed=lambda at, version: observed.__setitem__(at, version),
        )
        run = call.operation.run
        assert run is not None
        try:
            outcome = run(view, call.params, context)
        except (ReadView.Slow, StatedError):
            raise
        except OSError as error:
            raise Unavailable(f"the state cannot be read: {error.strerror}", where=call.domain.name) from error
        except Exception as error:  # a fault of ours: logged, not described
            raise internal(error, call.operation.name) from error
        if not view.consistent():
            raise ReadView.Slow
        if observed:
            self._loop.call_soon_threadsafe(self.observe, list(observed))
        return Answer(outcome.result, outcome.status, None, outcome.hand)

    def _is_local(self, path: str) -> bool:
        opened = self._roots.open_roots.get(path)
        return opened is not None and opened.local

    def _touch_roots(self, real: tuple[str, ...]) -> None:
        """A root is opened by its first call, also by a reader, and is watched from then on."""
        if self._mode == "local":
            return
        for path in real:
            if path not in self._roots.open_roots and path not in self._touched_roots and os.path.isdir(path):
                self._touched_roots.add(path)
                self.observe([At(path, "")])

    def observe(self, places: Sequence[At]) -> None:
        """Have the writer look at these documents: an outside edit becomes a revision."""
        if self._mode == "local":
            return  # the next write or the next daemon looks for itself
        for root in {at.root for at in places}:
            params = _Observe(places=[(at.root, at.path) for at in places if at.root == root and at.path])
            name = self._root_domains.get(root, "")
            domain = self.domains.get(name, _ENGINE)
            call = Call(domain, _OBSERVE, params, Caller(home=self.home, cwd=None), "")
            now = datetime.fromtimestamp(self._clock(), UTC)
            context = Context(now=now, zone=UTC, caller=call.caller, call="", root=root)
            job = Job(call, "", now, context, (root,), lambda answer, root=root: self._observed(root), internal=True)  # type: ignore[misc]  # the default binds the loop's value
            with contextlib.suppress(StatedError):
                self.writer.put(job)

    def _observed(self, root: str) -> None:
        self._touched_roots.discard(root)
        self._watch_roots()
        self._keep_up(root)

    def _keep_up(self, root: str) -> None:
        """Put the root's upkeep into the queue, when its last one is some minutes old."""
        domain = self.domains.get(self._root_domains.get(root, ""))
        now = time.monotonic()
        if domain is None or domain.upkeep is None or now - self._kept_up.get(root, -math.inf) < config.UPKEEP_EVERY:
            return
        self._kept_up[root] = now
        caller = Caller(home=self.home, cwd=None)
        call = Call(domain, domain.upkeep, domain.upkeep.params(), caller, "")
        moment = datetime.fromtimestamp(self._clock(), UTC)
        context = Context(now=moment, zone=self._zone(caller), caller=caller, call="", root=root)
        with contextlib.suppress(StatedError):
            self.writer.put(Job(call, "", moment, context, (root,), _told_to_nobody, internal=True))

    async def _task(self, run: Callable[[], None], root: str = "") -> None:
        """Run something in the queue's order and wait for it."""
        future: asyncio.Future[None] = self._loop.create_future()

        def task() -> None:
            problem: BaseException | None = None
            try:
                run()
            except Exception as error:  # handed to whoever waits
                problem = error
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_finish, future, problem)

        self.writer.put_task(task, root)
        await asyncio.shield(future)

    def _open_root(self, path: str) -> None:
        try:
            self._roots.get(path, self._root_domains.get(path, "stated"))
        except (roots.StepAside, StatedError, JournalFailed) as error:
            _log.warning("a root with pending changes cannot be opened yet", root=path, reason=str(error))

    # What recovery tells ----------------------------------------------------------------------------------------------

    def _remember(self, rows: Sequence[DocumentRow]) -> None:
        self.snapshot.publish({}, {At(root, path): known for root, path, known in rows}, {})

    def _reload_memory(self) -> None:
        self.snapshot.memory.clear()
        self.snapshot.memory.update({(row.domain, row.kind, row.key): row.value for row in self.journal.memory()})

    # Watching ---------------------------------------------------------------------------------------------------------

    def _watch_roots(self) -> None:
        if self._watcher is None:
            return
        folders: set[str] = set()
        for path in list(self._roots.open_roots):
            folders.add(path)
            domain = self.domains.get(self._root_domains.get(path, ""))
            for kind in domain.documents if domain is not None else ():
                folders.update(os.path.dirname(absolute(at)) for at in _places(path, kind))
        wanted = frozenset(folders)
        if wanted != self._watched:
            self._watched = wanted
            self._watcher.set_folders(wanted)

    def _hint(self, path: str) -> None:
        """From the watcher's thread."""
        self._hints.add(path)

    async def _watch_over(self) -> None:
        """Twice a second: look at hinted documents, and after the writer."""
        while True:
            await asyncio.sleep(0.5)
            try:
                self.writer.watch_over()
                for root in list(self._roots.open_roots):
                    self._keep_up(root)
                if self._hints:
                    hints, self._hints = self._hints, set()
                    await self._loop.run_in_executor(self._readers, self._follow, hints)
                    self._watch_roots()
            except Exception as error:  # hints only; the next one is looked at again
                internal(error, "watch")

    def _follow(self, hints: set[str]) -> None:
        changed: list[At] = []
        for path in hints:
            root = next(
                (root for root in list(self._roots.open_roots) if path == root or path.startswith(f"{root}/")), None
            )
            if root is None:
                continue
            domain = self.domains.get(self._root_domains.get(root, ""))
            if domain is None:
                continue
            places = (
                [at for kind in domain.documents for at in _places(root, kind) if absolute(at).startswith(f"{path}/")]
                if os.path.isdir(path)
                else [At(root, os.path.relpath(path, root))]
            )
            changed += [at for at in places if self._kind_of(at) is not None and self._differs(at)]
        if changed:
            self._loop.call_soon_threadsafe(self.observe, changed)

    def _differs(self, at: At) -> bool:
        known = self.snapshot.known.get(at)
        now = store.look(absolute(at))
        if known is None:
            return now is not None
        return known.start != (now.start if now is not None else store.ABSENT)

    # Contracts --------------------------------------------------------------------------------------------------------

    def _kind_of(self, at: At) -> DocumentKind | None:
        for pattern, kind in self._kinds.get(self._root_domains.get(at.root, ""), ()):
            if pattern.fullmatch(at.path):
                return kind
        return None

    def _outside_locks(self, root: str) -> tuple[str, ...]:
        domain = self.domains.get(self._root_domains.get(root, ""))
        return domain.locks if domain is not None else ()

    def check(self, at: At, raw: bytes | None) -> list[Finding]:
        """The contract check of one document; a file that does not parse is a finding."""
        kind = self._kind_of(at)
        if kind is None or raw is None:
            return []
        try:
            if kind.form == "json":
                parsed = json_text.parse(raw)
                if parsed.problem is not None:
                    where = f"column {parsed.problem.column}"
                    return [Finding(f"not JSON: {parsed.problem.message}", parsed.problem.line, where, _BROKEN)]
                found = [
                    Finding(
                        "a key stands twice; the last one counts, and the file is not rewritten",
                        None,
                        pointer,
                        "remove one",
                    )
                    for pointer in parsed.duplicates
                ]
                return [*found, *kind.check(parsed, at)]
            if kind.form == "lines":
                lines = json_lines.parse(raw)
                bad = [
                    Finding(f"not a record: {line.problem}", line.number, "", "put it right, or leave it: it is kept")
                    for line in lines.bad
                ]
                return [*bad, *kind.check(lines, at)]
            return list(kind.check(TextDocument(True, raw), at))
        except Exception as error:  # a check must not stop an edit from being adopted
            return [Finding(internal(error, "check").reason)]

    # The core's own operations ----------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        await self._ready(writes=False)
        held = await self._loop.run_in_executor(self._readers, self._statistics)
        return {
            "daemon": {
                "pid": os.getpid(),
                "version": __version__,
                "since": self._since,
                "uptime_s": int(time.monotonic() - self._started),
                "socket": self._socket,
                "mode": self._mode,
                "home": self.home,
            },
            "queue": {"waiting": self.writer.depth(), **self.writer.counters}
            if hasattr(self, "writer")
            else {"waiting": 0},
            "stuck": self.writer.stuck() if hasattr(self, "writer") else [],
            "roots": self._open_roots(),
            "history": {**held, "limit": self._config.history_bytes},
            "cache": self.snapshot.statistics(),
            "watches": self._watcher.state() if self._watcher is not None else {"mode": "off"},
        }

    def _statistics(self) -> dict[str, Any]:
        try:
            return self.journal.statistics()
        except JournalFailed as failed:
            return {"problem": str(failed)}

    def _open_roots(self) -> list[dict[str, Any]]:
        return [
            {"root": root.path, "domain": self._root_domains.get(root.path, ""), "pending": root.pending}
            for root in list(self._roots.open_roots.values())
        ]

    async def where(self, domain: Domain, caller: Caller) -> dict[str, Any]:
        await self._ready(writes=False)
        location = self.locate(domain, caller)
        return await self._loop.run_in_executor(self._readers, self._where, location)

    def _where(self, location: Location) -> dict[str, Any]:
        root = os.path.realpath(location.root)
        nearest = root
        while not os.path.exists(nearest) and os.path.dirname(nearest) != nearest:
            nearest = os.path.dirname(nearest)
        if root in self._roots.open_roots:
            owner = "this daemon" if self._mode == "daemon" else "this call"
        else:
            owner = roots.owner_of(root)
        return {
            "root": root,
            "origin": location.origin,
            "writable": os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK),
            "owner": owner,
        }

    async def roots(self) -> list[dict[str, Any]]:
        await self._ready(writes=False)
        rows = await self._loop.run_in_executor(self._readers, self.journal.roots)
        known: dict[str, int] = {}
        for at in list(self.snapshot.known):
            known[at.root] = known.get(at.root, 0) + 1
        return [
            {
                "root": row["root"],
                "domain": row["domain"],
                "documents": known.get(row["root"], 0),
                "opened": row["opened"] or None,
                "open": row["root"] in self._roots.open_roots,
            }
            for row in rows
        ]

    async def forget(self, root: str) -> dict[str, Any]:
        await self._ready(writes=False)
        real = await self._resolve(root)
        if not any(row["root"] == real for row in self.journal.roots()):
            raise Refused("this root is not known", where=real, hint="`statectl roots list` names those that are")
        await self._ready(writes=True)
        counts: list[int] = []

        def task() -> None:
            self.writer.checkpoint_root(real)
            counts.append(self.journal.forget_root(real))
            self._roots.drop(real)
            self.snapshot.forget(real)

        try:
            await self._task(task, real)
        except JournalFailed as failed:
            raise Unavailable(f"the journal cannot be written: {failed.reason}") from failed
        self._watch_roots()
        return {"root": real, "forgotten": counts[0]}

    async def release(self, root: str) -> dict[str, Any]:
        """Another daemon of this user asks for a root: finish, checkpoint, give it back."""
        real = await self._resolve(root)

        def task() -> None:
            self.writer.checkpoint_root(real)
            self._roots.drop(real)
            self.snapshot.forget_versions(real)

        await self._task(task, real)
        self._touched_roots.discard(real)
        return {"released": real}

    async def doctor(self, targets: Sequence[str], caller: Caller) -> list[dict[str, Any]]:
        await self._ready(writes=False)
        return await self._loop.run_in_executor(
            self._readers, lambda: self._examine(self._doctor_roots(targets, caller))
        )

    def _doctor_roots(self, targets: Sequence[str], caller: Caller) -> list[tuple[str, str]]:
        """`(root, path below it that is asked for)`, over all roots when nothing is named."""
        known = {row["root"]: row["domain"] for row in self.journal.roots()}
        for domain in self.domains.values():
            with contextlib.suppress(StatedError):
                known.setdefault(os.path.realpath(self.locate(domain, caller).root), domain.name)
        for root, name in known.items():
            self._root_domains.setdefault(root, name)
        if not targets:
            return [(root, "") for root in sorted(known)]
        wanted = []
        for target in targets:
            if target in self.domains:
                location = os.path.realpath(self.locate(self.domains[target], caller).root)
                wanted += [(root, "") for root in sorted(known) if known[root] == target or root == location]
                continue
            path = os.path.realpath(os.path.join(caller.cwd or "/", target))
            inside = [root for root in known if path == root or path.startswith(f"{root}/")]
            below = [root for root in known if root.startswith(f"{path}/")]
            if not inside and not below:
                raise Usage("no known state is there", where=target, hint="`statectl roots list` names the roots")
            wanted += [(root, os.path.relpath(path, root) if path != root else "") for root in inside] + [
                (root, "") for root in below
            ]
        return wanted

    def _examine(self, wanted: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for root, below in wanted:
            domain = self.domains.get(self._root_domains.get(root, ""))
            for kind in domain.documents if domain is not None else ():
                for at in _places(root, kind):
                    if below and at.path != below and not at.path.startswith(f"{below}/"):
                        continue
                    try:
                        found = store.read(absolute(at))
                        findings = self.check(at, found[0] if found else None)
                    except OSError as error:
                        findings = [Finding(f"cannot be read: {error.strerror}", hint="look at its permissions")]
                    except StatedError as error:
                        findings = [Finding(error.reason, hint=error.hint)]
                    findings = [self._with_last_good(at, finding) for finding in findings]
                    rows += [_finding_row(at, finding) for finding in _by_line(findings)]
        shown = dict(wanted)
        for notice in self.journal.notices():
            if notice.root not in shown:
                continue
            below = shown[notice.root]
            if below and notice.path != below and not notice.path.startswith(f"{below}/"):
                continue
            if notice.copy is not None and not os.path.exists(notice.copy):
                continue
            if notice.copy is None and notice.at < self._seconds() - NOTICE_KEEP_SECONDS:
                continue
            at = At(notice.root, notice.path)
            hint = notice.hint if notice.rev is None else self._missing_lines(at, notice.rev)
            if hint is not None:
                rows.append(_finding_row(at, Finding(notice.problem, hint=hint)))
        return rows

    def _content_of(self, at: At, rev: int) -> bytes | None:
        with contextlib.suppress(JournalFailed, StatedError, OSError), self.journal.reading() as rows:
            return Past(rows, self.snapshot.known, set(self.journal.doubtful)).content(at, rev)[1]
        return None

    def _missing_lines(self, at: At, rev: int) -> str | None:
        """How the lines that an edit removed are put back; None when they are there again. Only while that edit is the
        last change does a restore take nothing else back."""
        show = f"`statectl show {absolute(at)}@{rev}` has them"
        try:
            with self.journal.reading() as rows:
                past = Past(rows, self.snapshot.known, set(self.journal.doubtful))
                before, later = past.content(at, rev)[1], past.after(at, rev)
            found = store.read(absolute(at))
        except (JournalFailed, StatedError, OSError):
            return show
        missing = set((before or b"").split(b"\n")) - set((found[0] if found is not None else b"").split(b"\n"))
        if not any(line and not self.check(at, line + b"\n") for line in missing):
            return None
        if len(later) == 1 and later[0].origin == "outside":
            return f"`statectl restore {absolute(at)}@{rev}` puts them back"
        return f"{show}: add them by hand, as the file has changed since"

    async def announce(self, caller: Caller, session: str, only_lines: bool = False) -> dict[str, Any]:
        """Every domain's lines, and the session's token, under which the directories are remembered."""
        try:
            await self._ready(writes=True)
        except StatedError:  # nothing can be remembered; the lines can be said all the same
            await self._ready(writes=False)
            only_lines = True
        lines: list[str] = []
        announced: dict[str, str] = {}
        token = session or caller.env.get(SESSION_VARIABLE, "").partition("~")[0] or os.urandom(8).hex()
        elsewhere: list[str] = []
        now = datetime.fromtimestamp(self._clock(), UTC)
        for domain in self.domains.values():
            if domain.announce is None:
                continue
            try:
                location = self.locate(domain, caller)
                root = await self._resolve(location.root)
                self._root_domains.setdefault(root, domain.name)
                context = Context(now=now, zone=self._zone(caller), caller=caller, call="", root=root)
                self._touch_roots((root,))
                part = await self._loop.run_in_executor(self._readers, self._announce_one, domain, context, location)
            except StatedError as error:
                lines.append(f"{domain.title}: {error.line()}")
                continue
            lines += part
            announced[domain.name] = root
            if location.origin != "default":
                elsewhere.append(root)
        if elsewhere:
            token = f"{token}~{hashlib.sha256(chr(0).join(sorted(elsewhere)).encode()).hexdigest()[:8]}"
        if not only_lines and announced:
            call = Call(_ENGINE, _ANNOUNCE, _Announce(session=token, roots=announced, at=self._seconds()), caller, "")
            remembered = self.snapshot.memory.get(("stated", "session", token))
            if remembered is None or remembered["roots"] != announced:
                future: asyncio.Future[Answer] = self._loop.create_future()
                context = Context(now=now, zone=UTC, caller=caller, call="", root="")
                self.writer.put(Job(call, "", now, context, (), _settler(future), internal=True))
                await future
        return {"lines": lines, "session": token}

    def _announce_one(self, domain: Domain, context: Context, location: Location) -> list[str]:
        assert domain.announce is not None
        for _ in range(20):
            view = ReadView(
                self.snapshot,
                domain.name,
                quick=False,
                number=self.journal.reserved_number,
                observed=lambda at, version: None,
            )
            with contextlib.suppress(ReadView.Slow):
                return list(domain.announce(view, context, Location(context.root, location.origin)).lines)
        return []

    # History ----------------------------------------------------------------------------------------------------------

    async def log(
        self, path: str | None, since: str | None, limit: int, origin: str | None, caller: Caller
    ) -> dict[str, Any]:
        await self._ready(writes=False)
        after = None
        if since is not None:
            after = history.since(since, datetime.fromtimestamp(self._clock(), UTC).astimezone(self._zone(caller)))
        places, exact = (None, False) if path is None else await self._documents(path, caller)
        if not exact and origin != "call" and self._mode == "daemon":
            await self._adopt(places)
        answer = await self._past(lambda past: past.log(places, limit, after, origin))
        if exact and places and origin != "call":
            at = places[0]
            unrecorded = await self._past(lambda past: past.unrecorded(at))
            if unrecorded is not None:
                self.observe([at])
                answer["revisions"] = [unrecorded, *answer["revisions"]]
        return answer

    async def _adopt(self, places: Collection[At] | None) -> None:
        """Have the edits by hand of known documents recorded, as far as that takes no longer than a moment."""
        known = [at for at in list(self.snapshot.known) if places is None or at in places]
        changed = await self._loop.run_in_executor(
            self._readers, lambda: [at for at in known if at.root in self._roots.open_roots and self._differs(at)]
        )
        if changed:
            self.observe(changed)
            await asyncio.wait([asyncio.ensure_future(self._task(lambda: None))], timeout=config.READ_DEADLINE / 4)

    async def show(self, path: str, rev: int, caller: Caller) -> dict[str, Any]:
        at = await self._document(path, caller)
        return await self._past(lambda past: past.show(at, rev))

    async def diff(self, path: str, rev: int, to: int | None, caller: Caller) -> dict[str, Any]:
        at = await self._document(path, caller)
        return await self._past(lambda past: past.diff(at, rev, to))

    async def blame(self, path: str, caller: Caller) -> dict[str, Any]:
        at = await self._document(path, caller)
        return await self._past(lambda past: past.blame(at))

    async def restore(self, path: str, rev: int, call: Call) -> Answer:
        await self._ready(writes=True)
        at = await self._document(path, call.caller)

        def content(past: Past) -> tuple[bytes | None, Refused | None]:
            try:
                return past.content(at, rev)[1], None
            except Refused as problem:
                return None, problem  # said in the queue, where a repeat of a done call gets its first answer

        found, refused = await self._past(content)
        run = history.restoring(at, rev, found, refused, self._form(at))
        return await self._bring_back(call, "restore", _Restore(root=at.root, path=at.path, rev=rev), run, (at.root,))

    async def undo(self, undone: str, call: Call) -> Answer:
        await self._ready(writes=True)

        def changes(past: Past) -> tuple[list[history.Undone], Refused | None]:
            try:
                return past.of_call(undone), None
            except Refused as problem:
                return [], problem

        rows, refused = await self._past(changes)
        run = history.undoing(undone, rows, refused, self._form)
        touched = tuple(dict.fromkeys(row.row.root for row in rows))
        try:
            return await self._bring_back(call, "undo", _Undo(call=undone), run, touched)
        except Refused as error:
            if "changed" not in error.data:
                raise
            found = error
            raise await self._past(lambda past: history.changed_since(past, found)) from None

    async def purge(self, path: str, before: int | None, caller: Caller) -> dict[str, Any]:
        await self._ready(writes=True)
        at = await self._document(path, caller)
        counts: list[tuple[int, int]] = []

        def task() -> None:
            self.writer.checkpoint_root(at.root)
            counts.append(self._keeper.cut(at, before if before is not None else 1 << 62, purge=True))

        try:
            await self._task(task, at.root)
        except (JournalFailed, JournalGone) as failed:
            raise Unavailable(f"the journal cannot be written: {failed}", hint="nothing was dropped") from failed
        copies = await self._loop.run_in_executor(self._readers, self._conflict_copies, at)
        return {"root": at.root, "path": at.path, "revisions": counts[0][0], "bytes": counts[0][1], "copies": copies}

    def _conflict_copies(self, at: At) -> list[str]:
        copies = [row.copy for row in self.journal.notices() if (row.root, row.path) == at and row.copy is not None]
        return [copy for copy in copies if os.path.exists(copy)]

    async def _bring_back(
        self, call: Call, name: str, params: msgspec.Struct, run: history.Run, touched: tuple[str, ...]
    ) -> Answer:
        for root in touched:
            # Each by itself: in a group of several, the first call's domain would be taken for the domain of all.
            if root not in self._roots.open_roots:
                await self._task(functools.partial(self._open_root, root), root)
        owner = self.domains.get(self._root_domains.get(touched[0], "") if touched else "", _ENGINE)
        operation = Operation(
            name=name, method=f"daemon.{name}", kind=Kind.WRITER, summary="", params=type(params), run=run,
            roots=lambda params, location, caller: touched,
        )  # fmt: skip
        domain = dataclasses.replace(owner, locate=_nowhere)
        return await self.submit(dataclasses.replace(call, domain=domain, operation=operation, params=params))

    async def _past(self, question: Callable[[Past], T]) -> T:
        """Ask one view of the journal, in a reader's thread."""
        await self._ready(writes=False)

        def ask() -> T:
            try:
                for patient in (True,) * 100 + (False,):
                    with contextlib.suppress(history.Stale), self.journal.reading() as rows:
                        doubtful, pinned = set(self.journal.doubtful), self.snapshot.is_pinned
                        return question(Past(rows, self.snapshot.known, doubtful, pinned, patient))
                    time.sleep(0.002)
                raise AssertionError("the last one asks nothing of the state")
            except JournalFailed as failed:
                raise Unavailable(f"the journal cannot be read: {failed.reason}") from failed
            except OSError as error:
                raise Unavailable(f"the state cannot be read: {error.strerror}") from error

        return await self._loop.run_in_executor(self._readers, ask)

    async def _documents(self, path: str, caller: Caller) -> tuple[list[At], bool]:
        await self._ready(writes=False)
        known, places = list(self.snapshot.known), set(self._root_domains)
        return await self._loop.run_in_executor(
            self._readers, history.find_documents, path, caller.cwd, known, places | {at.root for at in known}
        )

    async def _document(self, path: str, caller: Caller) -> At:
        places, exact = await self._documents(path, caller)
        if not exact:
            hint = f"`statectl log {path}` shows them"
            raise Refused("this is a folder; name one of its documents", where=path, hint=hint)
        return places[0]

    def _form(self, at: At) -> Form:
        kind = self._kind_of(at)
        return kind.form if kind is not None else "text"

    def _forgot(self, at: At) -> None:
        known = self.snapshot.known.get(at)
        if known is not None:
            self.snapshot.publish({}, {at: known._replace(depth=-1)}, {})

    def _aside(self, run: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the threads have ended: the next start looks again
            self._readers.submit(run)

    def _with_last_good(self, at: At, finding: Finding) -> Finding:
        """Of a file that does not parse, the last revision that did."""
        if finding.hint != _BROKEN:
            return finding
        try:
            with self.journal.reading() as rows:
                rev = Past(rows, self.snapshot.known, set(self.journal.doubtful)).last_good(at, self._form(at))
        except JournalFailed:
            rev = None
        if rev is None:
            return dataclasses.replace(finding, hint="put it right by hand")
        hint = f"put it right by hand, or bring the last good one back: `statectl restore {absolute(at)}@{rev}`"
        return dataclasses.replace(finding, hint=hint)

    # Small things -----------------------------------------------------------------------------------------------------

    def _seconds(self) -> int:
        return int(self._clock())

    def _zone(self, caller: Caller) -> tzinfo:
        """The caller's TZ, else this machine's zone. An unknown TZ counts as unset."""
        name = caller.env.get("TZ", "").removeprefix(":")
        if name:
            with contextlib.suppress(Exception):  # zoneinfo raises many kinds for a bad name
                return ZoneInfo(name)
        now = time.monotonic()
        if now - self._local_zone[0] > 60.0 or not self._local_zone[0]:
            zone = datetime.now(UTC).astimezone().tzinfo or UTC
            with contextlib.suppress(OSError, ValueError), open("/etc/localtime", "rb") as file:
                zone = ZoneInfo.from_file(file)
            self._local_zone = (now, zone)
        return self._local_zone[1]


def _settler(future: asyncio.Future[Answer]) -> Callable[[Answer | BaseException], None]:
    def settle(answer: Answer | BaseException) -> None:
        if future.done():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return settle


def _told_to_nobody(answer: Answer | BaseException) -> None:
    """The answer of a task of our own; what went wrong in it is in the log."""


def _settle_all(answers: Sequence[tuple[Job, Any]]) -> None:
    for job, answer in answers:
        job.settle(answer)


def _finish(future: asyncio.Future[None], problem: BaseException | None) -> None:
    if not future.done():
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(problem)


def _request_hash(call: Call, root: str, roots: tuple[str, ...]) -> str:
    """What makes two calls with one id the same request. A call's place in time, its terminal and its deadline do
    not."""
    what = [
        call.domain.name, call.operation.name, msgspec.to_builtins(call.params, builtin_types=(Decimal,)),
        root, list(roots), call.if_rev, call.dry_run,
    ]  # fmt: skip
    return hashlib.sha256(dumps(what)).hexdigest()


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(re.escape(part) for part in glob.split("*")))


def _places(root: str, kind: DocumentKind) -> list[At]:
    """The documents of one kind below a root, by walking the pattern's parts."""
    found = [""]
    parts = kind.pattern.split("/")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        matcher = _pattern(part)
        following = []
        for base in found:
            if "*" not in part:
                following.append(f"{base}/{part}" if base else part)
                continue
            for name in store.names(os.path.join(root, base)):
                if name.endswith("/") != last and matcher.fullmatch(name.rstrip("/")) and not name.startswith("."):
                    bare = name.rstrip("/")
                    following.append(f"{base}/{bare}" if base else bare)
        found = following
    return [At(root, path) for path in found if os.path.isfile(os.path.join(root, path))]


def _by_line(findings: Sequence[Finding]) -> list[Finding]:
    """One finding a line of a file, however much is wrong in it; each with what to do."""
    joined: dict[object, Finding] = {}
    for number, finding in enumerate(findings):
        hint = finding.hint or "put it right by hand; what was there before is in `statectl log`"
        key: object = finding.line if finding.line is not None else (number,)
        first = joined.get(key)
        if first is None:
            joined[key] = dataclasses.replace(finding, hint=hint)
        else:
            joined[key] = dataclasses.replace(
                first,
                problem=f"{first.problem}; {finding.problem}",
                field=f"{first.field}, {finding.field}".strip(", "),
            )
    return list(joined.values())


def _finding_row(at: At, finding: Finding) -> dict[str, Any]:
    return {
        "root": at.root,
        "path": at.path,
        "line": finding.line,
        "field": finding.field,
        "problem": finding.problem,
        "hint": finding.hint,
    }


__all__ = ["Engine"]
