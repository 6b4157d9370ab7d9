"""A root's first task when it is opened: bring every acknowledged call back, and leave everybody else's edits alone.

The three pasts, and what each allows to conclude:

- *The same boot and mount*: nothing that was written is lost, so each step tells by itself whether it was made. A group
  known as visible is left alone, whatever its files hold now.
- *After a power loss*: only what was synced is there, file by file. A file in a version that the journal knows is
  brought to the last one; all else is somebody's later edit and stays, with ours in a conflict copy.
- *Not our past* (the tokens differ): nothing is redone; what differs is reported.

What is redone is committed as a group of its own before it is made visible, so that a recovery killed in the middle is
recovered like any group.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence

from stated import store, syscalls
from stated.faults import reach
from stated.journal import DocumentRow, Group, Journal, Known, Notice
from stated.log import get_logger
from stated.roots import OpenRoot
from stated.store import ABSENT, STAGING, OutsideEdit, Stat, Step

_log = get_logger()


class Recovery:
    """`conflicts` is the folder for conflict copies; `remember` is told of the documents' state after recovery, and
    `reload_memory` when the memory documents may have changed."""

    def __init__(
        self,
        journal: Journal,
        conflicts: str,
        remember: Callable[[Sequence[DocumentRow]], None],
        reload_memory: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._conflicts = conflicts
        self._remember = remember
        self._reload_memory = reload_memory

    def recover(self, root: OpenRoot, others: Mapping[str, OpenRoot]) -> None:
        """`others`: the roots that are open too, this one among them: a group may have steps in several.

        Raises JournalFailed (the root must not be written then) and OSError.
        """
        pending = self._journal.pending(root.path)
        if pending:
            reach("recovery.begin")
            if not root.ours:
                self._not_our_past(root, pending)
            elif all(self._is_here(group, root) for group in pending):
                self._same_boot(root, pending, others)
            else:
                self._after_power_loss(root, pending)
        self._sweep(root)

    def _is_here(self, group: Group, root: OpenRoot | None) -> bool:
        """Whether nothing that the group wrote in this root can have been lost."""
        return (
            root is not None
            and root.ours
            and group.boot == self._journal.boot
            and group.mounts.get(root.path) == root.mount
        )

    # The same boot ----------------------------------------------------------------------------------------------------

    def _same_boot(self, root: OpenRoot, pending: Sequence[Group], others: Mapping[str, OpenRoot]) -> None:
        rows: list[DocumentRow] = []
        ends: list[tuple[int, str | None]] = []
        notices: list[Notice] = []
        finished: list[Step] = []
        for group in pending:
            whole = all(self._is_here(group, others.get(path)) for path in group.mounts)
            if group.state == "committed" and whole:
                if not self._finish(group, notices):
                    self._journal.void([group.id])
                    _log.warning("recovery took a group back", group=group.id, root=root.path)
                    continue
            elif group.state != "visible":
                # Either ours to bring back whatever became of the others, or the other roots of the group are not there
                # and it cannot be taken back whole: each step by itself.
                for step in group.steps:
                    if step.root == root.path:
                        self._make_alone(step, notices)
            steps = [step for step in group.steps if whole or step.root == root.path]
            rows += _rows_after(group, steps)
            finished += steps
            ends.append((group.id, None if whole else root.path))
        self._sync_and_settle(finished, notices)
        self._journal.settle_root(ends, [(0, rows)], notices)
        self._remember(rows)
        self._reload_memory()
        if ends:
            _log.info("recovery finished", groups=len(ends), root=root.path)

    def _finish(self, group: Group, notices: list[Notice]) -> bool:
        """Make the rest of a group that was interrupted; False when it was taken back instead.

        A step made proves those before it (they are made in order).
        """
        states = _which_were_made(group.steps)
        last_made = max((number for number, state in enumerate(states) if state), default=-1)
        for number, step in enumerate(group.steps):
            step.made = number <= last_made
        judged = all(not state or _displaced_is_start(step) for state, step in zip(states, group.steps, strict=True))
        if judged and last_made == len(group.steps) - 1:
            return True
        if judged:
            try:
                for step in group.steps[last_made + 1 :]:
                    reach("recovery.step")
                    _make_again(step)
            except (OutsideEdit, OSError) as error:
                _log.info("recovery cannot finish a group", group=group.id, reason=type(error).__name__)
            else:
                return True
        for step in reversed(group.steps):
            store.take_back(step)
            self._keep_if_unknown(step, notices)
        return False

    def _make_alone(self, step: Step, notices: list[Notice]) -> None:
        """A step that is ours to bring back. Where somebody's edit stands in its place, ours becomes a conflict
        copy."""
        (made,) = _which_were_made([step])
        if made and _displaced_is_start(step):
            return
        try:
            reach("recovery.step")
            if made:
                step.made = True
                store.take_back(step)
                raise OutsideEdit(step.path)
            _make_again(step)
        except OutsideEdit:
            self._keep_if_unknown(step, notices)
            notices.append(self._keep_ours(step.root, step.path, _final_content([step])))

    def _keep_if_unknown(self, step: Step, notices: list[Notice]) -> None:
        """After taking back: the staging name holds ours (dropped) or a version that nobody has (kept as a conflict
        copy)."""
        if step.kind == "folder":
            store.drop_staging(step)
        elif step.kind in ("replace", "delete", "create"):
            self._drop_displaced(step, "an edit that met an interrupted write", notices)

    def _drop_displaced(self, step: Step, why: str, notices: list[Notice]) -> None:
        """Drop a staging name: what it holds is ours or the version that the step started from, else it is kept as a
        copy."""
        found = _read_here(step.staging)
        if found is not None:
            content, now = found
            known = now.ino == step.staged.ino or now.start == step.start
            if content and not known and store.digest(content) not in (step.start_hash, step.hash):
                notices.append(self._conflict(step.root, step.path, content, why))
        _remove(step.staging)

    def _sync_and_settle(self, steps: Sequence[Step], notices: list[Notice]) -> None:
        """What a checkpoint would do for these steps."""
        folders: set[str] = set()
        for step in steps:
            reach("recovery.sync")
            if step.kind == "append":
                store.sync_file(step.target)
            # Which folders were made on the way is not in the journal: all up to the root's own entry are synced.
            folder = os.path.dirname(step.target)
            folders.add(folder)
            while folder.startswith(step.root):
                folder = os.path.dirname(folder)
                folders.add(folder)
            if step.kind == "move":
                folders.add(os.path.dirname(step.staging))
            if step.kind in ("replace", "delete"):
                self._drop_displaced(step, "a late edit of a replaced file", notices)
        for folder in folders:
            store.sync_folder(folder)

    # After a power loss -----------------------------------------------------------------------------------------------

    def _after_power_loss(self, root: OpenRoot, pending: Sequence[Group]) -> None:
        """File by file: bring a known version to the last one, leave anything else.

        Each file's redo is a group of its own, so that an edit that meets one of them does not keep the others from
        coming back.
        """
        same_boot = all(group.boot == self._journal.boot for group in pending)
        chains: dict[str, list[tuple[Group, Step]]] = {}
        for group in pending:
            for step in group.steps:
                if step.root == root.path:
                    chains.setdefault(step.path, []).append((group, step))
        redo: list[Group] = []
        notices: list[Notice] = []
        edited: set[str] = set()
        for path, chain in chains.items():
            # A person's edit is younger than this boot; where only the mount is new, younger than what was committed.
            limit = (max(group.at for group, _ in chain) + 3) * 1_000_000_000 if same_boot else syscalls.boot_time_ns()
            try:
                steps = _steps_to_last([step for _, step in chain], limit)
            except _SomebodysEdit:
                edited.add(path)
                notices.append(self._keep_ours(root.path, path, _final_content([step for _, step in chain])))
            else:
                if steps:
                    redo.append(Group(self._journal.group_number(), steps, {root.path: root.mount}, state="redo"))
        for chain in chains.values():
            for _, step in chain:
                if step.kind in ("replace", "create", "delete", "folder"):
                    self._drop_displaced(step, "a version that was being replaced", notices)
        # A call of which nothing came back was not done: its id is forgotten, so that a repeat runs. Of one that came
        # back in part the rest is in a conflict copy; to run it again would do the other part twice.
        lost = {
            group.id
            for group in pending
            if group.state == "committed"
            and all(step.root == root.path and step.path in edited for step in group.steps)
        }
        kept = [group for group in pending if group.id not in lost]
        revisions = {
            revision.path: revision for group in kept for revision in group.revisions if revision.root == root.path
        }
        for group in redo:
            for number, step in enumerate(group.steps):
                if step.kind != "move":
                    step.staging = store.staging_name(step.target, group.id, number)
                fd = store.stage(step)
                if fd is not None:
                    os.fdatasync(fd)
                    os.close(fd)
        self._journal.settle_root([(group.id, root.path) for group in kept], (), notices, voids=lost, redo=redo)
        if lost:
            self._reload_memory()
        late: list[Notice] = []
        for group in redo:
            for step in group.steps:
                self._make_alone(step, late)
        steps = [step for group in redo for step in group.steps]
        rows: list[DocumentRow] = []
        self._sync_and_settle(steps, late)
        for path, chain in chains.items():
            if path in revisions and path not in edited and chain[-1][1].kind not in ("folder", "move"):
                found = _read(chain[-1][1].target)
                known = Known(revisions[path].rev, ABSENT, "", -1)
                if found is not None:
                    known = known._replace(start=found[1].start, hash=store.digest(found[0]))
                rows.append((root.path, path, known))
                store.sync_file(chain[-1][1].target)
        self._journal.settle_root([(group.id, None) for group in redo], [(0, rows)], late)
        self._remember(rows)
        _log.warning("recovery after a power loss", root=root.path, redone=len(steps), edits_left=len(notices))

    def _keep_ours(self, root: str, path: str, ours: bytes | None) -> Notice:
        if ours is None:
            return Notice(
                root,
                path,
                "changed by somebody after a power loss; left as it is",
                "see `statectl log` for what was written",
            )
        return self._conflict(root, path, ours, "edited after a power loss; this is what was acknowledged before it")

    # Not our past -----------------------------------------------------------------------------------------------------

    def _not_our_past(self, root: OpenRoot, pending: Sequence[Group]) -> None:
        notices = []
        for group in pending:
            for step in group.steps:
                if step.root == root.path and not _looks_done(step):
                    notices.append(
                        Notice(root.path, step.path, "differs from what this journal remembers; the folder was used by "
                               "another home or restored, so nothing was redone", "compare with `statectl log`")
                    )  # fmt: skip
        self._journal.settle_root([(group.id, root.path) for group in pending], (), notices)
        _log.warning("the folder's past is not ours", root=root.path, differences=len(notices))

    # Left-over names --------------------------------------------------------------------------------------------------

    def _sweep(self, root: OpenRoot) -> None:
        """Staging names that no pending group explains: dropped when their content is known or never was visible."""
        busy = {step.staging for group in self._journal.pending() for step in group.steps}
        notices: list[Notice] = []
        for base, folders, files in os.walk(root.path):
            for name in [*folders, *files]:
                match = STAGING.match(name)
                path = os.path.join(base, name)
                if not match:
                    continue
                if name in folders:
                    folders.remove(name)
                if path in busy:
                    continue
                reach("recovery.sweep")
                self._sweep_one(root, path, int(match[1]), int(match[2]), notices)
        if notices:
            self._journal.record([], [], notices)
        self._journal.forget_void_steps(root.path)

    def _sweep_one(self, root: OpenRoot, path: str, group: int, number: int, notices: list[Notice]) -> None:
        found = _read_here(path)
        if found is not None and not (root.ours and not self._journal.was_committed(group)):
            content, now = found
            staged = self._journal.void_step(group, number)
            ours = staged is not None and staged.staged.ino == now.ino
            if content and not ours and not self._journal.knows_content(root.path, store.digest(content)):
                relative = os.path.relpath(path, root.path)
                notices.append(self._conflict(root.path, relative, content, "left over by an interrupted write"))
        _remove(path)

    def _conflict(self, root: str, path: str, content: bytes, why: str) -> Notice:
        copy = store.keep_copy(self._conflicts, root, path, content)
        _log.warning("conflict copy kept", root=root, path=path, copy=copy, why=why)
        return Notice(
            root, path, f"{why}: kept as a conflict copy", f"compare it with the file, then remove {copy}", copy
        )


def _rows_after(group: Group, steps: Sequence[Step]) -> list[DocumentRow]:
    """How the documents of a finished group look now, where they are still what the group made of them."""
    rows = []
    last = {(revision.root, revision.path): revision for revision in group.revisions}
    for step in steps:
        revision = last.get((step.root, step.path))
        if revision is None:
            continue
        now = store.look(step.target)
        if step.kind == "append":
            expected = now is not None and now.ino == step.start.ino and now.size == step.start.size + len(step.content)
            start = now.start if expected and now is not None else step.start
            rows.append((step.root, step.path, Known(revision.rev, start, "", -1)))
        elif step.kind == "delete":
            rows.append((step.root, step.path, Known(revision.rev, ABSENT, "", -1)))
        elif step.kind in ("replace", "create"):
            rows.append((step.root, step.path, Known(revision.rev, step.staged, step.hash, -1)))
    return rows


def _which_were_made(steps: Sequence[Step]) -> list[bool]:
    states = [_was_made(step) for step in steps]
    # Displaced names are dropped when all steps are made: while one surely is not, a name that is not there never was.
    otherwise = not any(state is False for state in states)
    return [
        state if state is not None else otherwise and step.kind != "append"
        for step, state in zip(steps, states, strict=True)
    ]


def _was_made(step: Step) -> bool | None:
    """What one step's names tell, when nothing written was lost; None: nothing for sure."""
    here = store.look_here(step.staging) if step.staging else None
    now = store.look(step.target)
    match step.kind:
        case "replace":
            # The staged file was there before the commit: a name that is gone was exchanged, and dropped.
            if here is not None:
                return here.ino != step.staged.ino
            return not (now is not None and now.start == step.start)
        case "create" | "folder":
            # A name that is gone was renamed, whatever a person did since.
            return not (here is not None and here.ino == step.staged.ino)
        case "delete":
            if here is not None:
                return True
            return False if now is not None and now.start == step.start else None
        case "move":
            # A source that is gone was renamed, whatever a person did with it since.
            return not (here is not None and here.ino == step.start.ino)
        case "append":
            if now is not None and now.start == step.start:
                return False
            step.landed, _ = store.find_lines(step)
            return True if step.landed >= 0 else None
    return None


def _displaced_is_start(step: Step) -> bool:
    if step.kind not in ("replace", "delete"):
        return True
    here = store.look_here(step.staging)
    return here is None or here.start == step.start


def _make_again(step: Step) -> None:
    """Make a step of an interrupted group. An append of which a part stands at the end is completed. Raises
    OutsideEdit."""
    if step.kind == "append":
        now = store.look(step.target)
        if now is not None and now.ino == step.start.ino and now.size > step.start.size:
            part = _tail(step.target, step.start.size, len(step.content) + 1)
            if not step.content.startswith(part):
                raise OutsideEdit(step.path)
            _write_at(step.target, step.start.size, step.content)
            step.made = True
            step.landed = step.start.size
            return
    elif step.kind in ("replace", "create", "folder") and store.look_here(step.staging) is None:
        fd = store.stage(step)
        if fd is not None:
            os.fdatasync(fd)
            os.close(fd)
    try:
        store.make(step)
    except FileNotFoundError:
        raise OutsideEdit(step.path) from None


def _tail(path: str, offset: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return store.pread_all(fd, size, offset)
    finally:
        os.close(fd)


def _write_at(path: str, offset: int, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while content:
            written = os.pwrite(fd, content, offset)
            offset += written
            content = content[written:]
    finally:
        os.close(fd)


class _SomebodysEdit(Exception):  # a finding
    """The file is in no version that the journal knows."""


def _steps_to_last(steps: Sequence[Step], limit: int) -> list[Step]:
    """The steps that bring one file from what it is now to its last version. Raises _SomebodysEdit.

    `limit`: a file modified after this (nanoseconds) was modified by somebody after the power loss.
    """
    if any(step.kind in ("folder", "move") for step in steps):
        return _folder_steps(steps)
    found = _read(steps[-1].target)
    content = _last_content(steps, found, limit)
    last = steps[-1]
    if found is None:
        if content is None:
            return []
        return [Step("create", last.root, last.path, last.target, content=content, hash=store.digest(content))]
    raw, now = found
    if raw == content:
        return []
    if content is None:
        return [Step("delete", last.root, last.path, last.target, start=now.start, start_hash=store.digest(raw))]
    return [
        Step("replace", last.root, last.path, last.target, start=now.start, start_hash=store.digest(raw),
             content=content, hash=store.digest(content))
    ]  # fmt: skip


def _last_content(steps: Sequence[Step], found: tuple[bytes, Stat] | None, limit: int) -> bytes | None:
    """The last acknowledged content, starting from the version that the file is in now; None: deleted."""
    at, content = _version_now(steps, found)
    while at < len(steps) and steps[at].kind == "append":
        # Ours stand behind what was there; bytes that are missing, cut or NUL are filled in, anything else is an edit.
        step = steps[at]
        raw = found[0] if found else b""
        there = raw[step.start.size : step.start.size + len(step.content)]
        before = raw[: step.start.size] if content is None or len(raw) >= step.start.size else content
        if len(before) < step.start.size:
            raise _SomebodysEdit
        complete = there == step.content
        if not complete:
            if any(byte not in (own, 0) for own, byte in zip(step.content, there, strict=False)):
                raise _SomebodysEdit
            if found is not None and found[1].mtime > limit:
                raise _SomebodysEdit
        content = before + step.content + raw[step.start.size + len(step.content) :]
        if found is not None:
            found = (content, found[1])
        at += 1
    for step in steps[at:]:
        if step.kind == "delete":
            content = None
        elif step.kind == "append":
            content = (content or b"")[: step.start.size] + step.content
        else:
            content = step.content
    return content


def _version_now(steps: Sequence[Step], found: tuple[bytes, Stat] | None) -> tuple[int, bytes | None]:
    """Which version the file is in: the number of the first step that is not in it, and its content."""
    if found is None:
        for number in reversed(range(len(steps))):
            if steps[number].kind == "delete":
                return number + 1, None
        if steps[0].start == ABSENT:
            return 0, None
        raise _SomebodysEdit
    raw, now = found
    for number in reversed(range(len(steps))):
        step = steps[number]
        if step.kind not in ("replace", "create") or now.ino != step.staged.ino:
            continue
        # It was synced before the commit, so it is whole: one that is shorter was cut by somebody.
        follows = number + 1 < len(steps) and steps[number + 1].kind == "append"
        if raw == step.content or (follows and raw.startswith(step.content)):
            return number + 1, step.content
        raise _SomebodysEdit
    first = steps[0]
    if first.kind == "append" and now.ino == first.start.ino and len(raw) >= first.start.size:
        return 0, raw[: first.start.size]
    if now.start == first.start and first.start_hash in ("", store.digest(raw)):
        return 0, raw
    raise _SomebodysEdit


def _folder_steps(steps: Sequence[Step]) -> list[Step]:
    wanted = []
    for step in steps:
        now = store.look(step.target)
        if step.kind == "move":
            source = store.look_here(step.staging)
            if source is not None and source.ino == step.start.ino and now is None:
                wanted.append(Step("move", step.root, step.path, step.target, step.staging, step.start))
            elif now is None or now.ino != step.start.ino:
                raise _SomebodysEdit
        elif step.kind != "folder":
            raise _SomebodysEdit
        elif now is None:
            wanted.append(Step("folder", step.root, step.path, step.target, files=step.files))
        else:
            for name, content in step.files.items():
                inner = os.path.join(step.target, name)
                if store.look(inner) is None:
                    path = os.path.join(step.path, name)
                    wanted.append(Step("create", step.root, path, inner, content=content, hash=store.digest(content)))
    return wanted


def _final_content(steps: Sequence[Step]) -> bytes | None:
    """What was acknowledged, for the conflict copy: the last whole content, with the appends behind it."""
    content: bytes | None = None
    for step in steps:
        if step.kind in ("replace", "create"):
            content = step.content
        elif step.kind == "append":
            content = (content or b"") + step.content
    return content


def _looks_done(step: Step) -> bool:
    try:
        found = _read(step.target) if step.kind not in ("folder", "move") else None
    except _SomebodysEdit:
        return False
    match step.kind:
        case "replace" | "create":
            return found is not None and found[0] == step.content
        case "append":
            return found is not None and step.content.strip(b"\n") in found[0]
        case "delete":
            return found is None
    return store.look(step.target) is not None


def _read(path: str) -> tuple[bytes, Stat] | None:
    """A file of any size; None: absent. Raises _SomebodysEdit where something else than a file is there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        now = store.look_at(fd)
        if not stat.S_ISREG(now.mode):
            raise _SomebodysEdit
        return store.pread_all(fd, now.size), now
    finally:
        os.close(fd)


def _read_here(path: str) -> tuple[bytes, Stat] | None:
    if not path:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        now = store.look_at(fd)
        return (store.pread_all(fd, now.size), now) if stat.S_ISREG(now.mode) else None
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    if path:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


__all__ = ["Recovery"]
