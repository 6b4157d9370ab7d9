"""One state directory on disk. The only module that touches state files.

What may be relied on:

- A step is judged by what it displaced, so an edit that came between is never overwritten unseen: it is put back and
  `OutsideEdit` is raised.
- A name shows the old bytes or the new bytes, never a part (appends: one `write` on an `O_APPEND` descriptor).
- Nothing here knows the journal; steps are plain data that the journal can keep and `recovery` can judge again.

A *start* is what a step expects to find: inode, size and modification time. Exchanging names does not change them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat as stat_module
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stated import config, syscalls
from stated.errors import DocumentTooLarge, Refused
from stated.faults import reach

STAGING = re.compile(r"^\.stated-(\d+)-(\d+)(\.old)?\.tmp$")
_ATTRIBUTES_NOT_COPIED = {syscalls.TOKEN}


class OutsideEdit(Exception):  # not an error: somebody else's version was found
    """The file is not what the step starts from. Whatever was there is still there."""


class Start(NamedTuple):
    ino: int
    size: int
    mtime: int


ABSENT = Start(0, 0, 0)


class Stat(NamedTuple):
    """One look at a file. `mtime` and `ctime` in nanoseconds."""

    dev: int
    ino: int
    size: int
    mtime: int
    ctime: int
    mode: int

    @property
    def start(self) -> Start:
        return Start(self.ino, self.size, self.mtime)


def look(path: str) -> Stat | None:
    """Follows links; None: absent."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _stat(found)


def look_at(fd: int) -> Stat:
    return _stat(os.fstat(fd))


def look_here(path: str) -> Stat | None:
    """Like `look`, for a staging name: a link is not followed."""
    try:
        return _stat(os.lstat(path))
    except FileNotFoundError:
        return None


def _stat(found: os.stat_result) -> Stat:
    return Stat(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def real_target(path: str) -> str:
    """The file behind a link, so that a person's link stays a link. Names in between need no care: staging lies
    beside."""
    return os.path.realpath(path) if os.path.islink(path) else path


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def changed_bytes(before: bytes, after: bytes) -> tuple[int, int, bytes]:
    """`(head, tail, body)` with `after == before[:head] + body + before[-tail:]`, found in a few comparisons of
    halves."""
    limit = min(len(before), len(after))
    head = _common(limit, lambda count: before[:count] == after[:count])
    limit -= head
    tail = _common(limit, lambda count: count == 0 or before[len(before) - count :] == after[len(after) - count :])
    return head, tail, after[head : len(after) - tail]


def _common(limit: int, same: Callable[[int], bool]) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if same(middle):
            low = middle
        else:
            high = middle - 1
    return low


def read(path: str) -> tuple[bytes, Stat] | None:
    """The whole file and the look that belongs to it; None: absent. Raises OSError, Refused (not a plain file),
    DocumentTooLarge."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return read_open(fd)
    finally:
        os.close(fd)


def read_open(fd: int) -> tuple[bytes, Stat]:
    """Read until the look before equals the look after."""
    for _ in range(5):
        before = look_at(fd)
        if not stat_module.S_ISREG(before.mode):
            raise Refused("this is not a plain file", hint="move it away")
        if before.size > config.MAX_DOCUMENT:
            raise DocumentTooLarge(f"the file has {before.size} bytes, the limit is {config.MAX_DOCUMENT}")
        content = pread_all(fd, before.size)
        after = look_at(fd)
        if before == after and len(content) == before.size:
            return content, after
    return content, after._replace(ctime=0)  # a ctime that never matches: looked at again by the next reader


def pread_all(fd: int, size: int, offset: int = 0) -> bytes:
    parts = []
    while size > 0:
        part = os.pread(fd, size, offset)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def last_byte(path: str, size: int) -> bytes:
    if size == 0:
        return b""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, 1, size - 1)
    finally:
        os.close(fd)


def is_quiet(path: str) -> bool:
    """Whether nobody has the file open for writing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        return not syscalls.written_elsewhere(fd)
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """fdatasync by name; an absent file needs none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    """fsync a folder; one that is gone needs none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def names(path: str) -> tuple[str, ...]:
    """The names in a folder, sorted; folders end in `/`; staging names are left out; empty when absent."""
    try:
        with os.scandir(path) as entries:
            found = [entry.name + ("/" if entry.is_dir() else "") for entry in entries if not STAGING.match(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(found))


# Steps ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    """One visible step of a group: plain data first (what the journal keeps), then what happened to it in this
    process."""

    kind: str
    """append, replace, create, delete, folder or move."""
    root: str
    path: str
    target: str
    """The real file or folder, absolute."""
    staging: str = ""
    """The name beside it (for `move`: the source)."""
    start: Start = ABSENT
    start_hash: str = ""
    content: bytes = b""
    staged: Start = ABSENT
    hash: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)

    made: bool = False
    judged: bool = False
    """What it displaced was what it starts from: from then on everybody may have seen it."""
    landed: int = -1
    """Where an append landed."""
    displaced: int = -1
    """A descriptor of the file that this step displaced, open until the checkpoint."""
    late: bool = False
    """The displaced file keeps its name until the checkpoint: somebody had it open for writing."""
    since: float = 0.0
    """When it was displaced (monotonic)."""
    folders: list[str] = field(default_factory=list)
    """Folders that staging made on the way, outermost first."""


def staging_name(target: str, group: int, number: int) -> str:
    return os.path.join(os.path.dirname(target), f".stated-{group}-{number}.tmp")


def stage(step: Step) -> int | None:
    """Write a replacement, a new file or a new folder under its staging name; returns a descriptor to sync, if any.

    A replacement keeps mode, owner and attributes of what it replaces. Raises OSError; then nothing is left behind.
    """
    if step.kind in ("append", "delete", "move"):
        if step.kind == "move":
            make_folders(os.path.dirname(step.target), step)
        return None
    try:
        make_folders(os.path.dirname(step.target), step)
        reach("stage.before")
        if step.kind == "folder":
            os.mkdir(step.staging, 0o700)
            for name in sorted(step.files):
                inner = os.path.join(step.staging, name)
                os.makedirs(os.path.dirname(inner), mode=0o700, exist_ok=True)
                os.close(_write_new(inner, step.files[name], sync=True))
            for base, _, _ in os.walk(step.staging, topdown=False):
                sync_folder(base)
            here = look_here(step.staging)
            assert here is not None
            step.staged = here.start
            return None
        fd = _write_new(step.staging, step.content)
    except BaseException:
        drop_staging(step)
        raise
    try:
        if step.kind == "replace":
            _copy_looks(step.target, fd)
        step.staged = look_at(fd).start
        reach("stage.after")
    except BaseException:
        os.close(fd)
        drop_staging(step)
        raise
    return fd


def _write_new(path: str, content: bytes, sync: bool = False) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, content)
        if sync:
            os.fdatasync(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _copy_looks(source: str, fd: int) -> None:
    """Mode, owner and attributes (access lists are attributes) of the file that is replaced."""
    found = os.stat(source)
    mine = os.fstat(fd)
    if (found.st_uid, found.st_gid) != (mine.st_uid, mine.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, found.st_uid, found.st_gid)
    if stat_module.S_IMODE(found.st_mode) != stat_module.S_IMODE(mine.st_mode):
        os.fchmod(fd, stat_module.S_IMODE(found.st_mode))
    listxattr = getattr(os, "listxattr", None)
    if listxattr is None:
        return
    try:
        attributes = listxattr(source)
    except OSError:
        return
    for name in attributes:
        if name not in _ATTRIBUTES_NOT_COPIED:
            with contextlib.suppress(OSError):
                os.setxattr(fd, name, os.getxattr(source, name))


def make_folders(path: str, step: Step) -> None:
    """mkdir -p with 0700, remembering what was made."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            step.folders.append(folder)


def drop_staging(step: Step) -> None:
    """Forget what `stage` wrote, and the folders it made, when they are still empty."""
    if step.staging and step.kind != "move":
        with contextlib.suppress(FileNotFoundError):
            if step.kind == "folder":
                shutil.rmtree(step.staging)
            else:
                os.unlink(step.staging)
    drop_folders(step)


def drop_folders(step: Step) -> None:
    for folder in reversed(step.folders):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    step.folders.clear()


def make(step: Step) -> None:
    """Make one step visible. Raises OutsideEdit (the step is taken back) or OSError (the step is not made)."""
    reach("visible.before")
    _MAKE[step.kind](step)
    reach("visible.after")


def _make_replace(step: Step) -> None:
    now = look(step.target)
    if now is None or now.start != step.start:
        raise OutsideEdit(step.path)
    reach("visible.checked")
    try:
        syscalls.exchange(step.staging, step.target)
    except FileNotFoundError:
        raise OutsideEdit(step.path) from None
    except syscalls.Unsupported:
        _replace_by_link(step)
        return
    step.made = True
    reach("visible.exchanged")
    _judge(step)


def _judge(step: Step) -> None:
    displaced = look_here(step.staging)
    if displaced is not None and displaced.start != step.start:
        take_back(step)
        raise OutsideEdit(step.path)
    step.judged = True


def _old_name(step: Step) -> str:
    return step.staging.removesuffix(".tmp") + ".old.tmp"


def _replace_by_link(step: Step) -> None:
    """Where names cannot be exchanged: keep the old file under a second name, look, rename, look again."""
    old = _old_name(step)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(old)
    try:
        os.link(step.target, old)
    except FileNotFoundError:
        raise OutsideEdit(step.path) from None
    linked = look_here(old)
    now = look(step.target)
    if linked is None or now is None or linked.start != step.start or now.start != step.start:
        os.unlink(old)
        raise OutsideEdit(step.path)
    os.rename(step.staging, step.target)
    os.rename(old, step.staging)
    step.made = True
    _judge(step)


def _make_create(step: Step) -> None:
    try:
        syscalls.rename_noreplace(step.staging, step.target)
    except FileExistsError:
        raise OutsideEdit(step.path) from None
    step.made = True


def _make_delete(step: Step) -> None:
    now = look(step.target)
    if now is None or now.start != step.start:
        raise OutsideEdit(step.path)
    try:
        syscalls.rename_noreplace(step.target, step.staging)
    except FileNotFoundError:
        raise OutsideEdit(step.path) from None
    step.made = True
    reach("visible.exchanged")
    _judge(step)


def _make_move(step: Step) -> None:
    now = look_here(step.staging)
    if now is None or now.ino != step.start.ino:
        raise OutsideEdit(step.path)
    try:
        syscalls.rename_noreplace(step.staging, step.target)
    except FileExistsError:
        raise OutsideEdit(step.path) from None
    step.made = True


def _make_append(step: Step) -> None:
    fd = os.open(step.target, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = look_at(fd)
        if before.start != step.start:
            raise OutsideEdit(step.path)
        reach("visible.checked")
        written = os.write(fd, step.content)
        end = os.lseek(fd, 0, os.SEEK_CUR)
        step.landed = end - written
        if written != len(step.content):
            _cut_off(fd, step.landed, end)
            step.landed = -1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), step.target)
        step.made = True
        reach("visible.exchanged")
        now = look(step.target)
        if step.landed == step.start.size and now is not None and now.ino == before.ino:
            return
        # Somebody else's bytes came between. Ours stand whole; they are ours to keep only if they begin a line in the
        # file that the name shows now.
        if now is not None and now.ino == before.ino:
            glued = step.landed > 0 and step.content[:1] != b"\n" and os.pread(fd, 1, step.landed - 1) != b"\n"
            if not glued and pread_all(fd, written, step.landed) == step.content:
                return
        elif now is None or not _stands_in(fd, step, step.target):
            # Ours went with the file that was displaced; a line like it in the new file is somebody else's.
            step.made = False
            raise OutsideEdit(step.path)
        else:
            return
        take_back(step)
        raise OutsideEdit(step.path)
    finally:
        os.close(fd)


def _stands_in(fd: int, step: Step, target: str) -> bool:
    """Whether the version that replaced the file while we appended took our lines along: it holds more of them than the
    displaced file held before."""
    found = read(target)
    if found is None:
        return False
    lines = step.content.strip(b"\n") + b"\n"
    before = pread_all(fd, step.landed)
    return found[0].count(lines) > before.count(lines)


def _cut_off(fd: int, offset: int, end: int) -> None:
    if os.fstat(fd).st_size == end:
        os.ftruncate(fd, offset)


def take_back(step: Step) -> None:
    """Undo one made step; what somebody else did meanwhile stays. Raises OSError only when the disk refuses."""
    if step.made:
        step.made = False
        _TAKE_BACK[step.kind](step)


def _take_back_replace(step: Step) -> None:
    """Exchange back. When a third version comes out of the target, it is the newest and stays, without what is ours in
    it."""
    try:
        syscalls.exchange(step.staging, step.target)
    except FileNotFoundError:
        return  # the person removed the file: their removal stays
    except syscalls.Unsupported:
        now = look(step.target)
        if now is not None and now.ino == step.staged.ino:
            os.rename(step.target, step.staging + ".back")
            os.rename(step.staging, step.target)
            os.rename(step.staging + ".back", step.staging)
        return
    out = look_here(step.staging)
    if out is None or out.start == step.staged:
        return
    if not step.judged:
        # It came within the few instructions since the exchange, from somebody who had not seen ours.
        syscalls.exchange(step.staging, step.target)
        return
    _take_ours_out(step)


def _take_ours_out(step: Step) -> None:
    """The staging name holds a version that was made while ours was visible: the calls run again, so what it took over
    from ours must not stay. Where it cannot be told, the version stays under the staging name, to become a conflict
    copy."""
    newer, older = read(step.staging), read(step.target)
    if newer is None or older is None or older[1].start != step.start:
        return
    start, theirs = older[0], newer[0]
    if theirs == step.content:
        _drop(step.staging)
    elif _apart(start, step.content, theirs) is not None:
        syscalls.exchange(step.staging, step.target)  # made from the version before ours
    elif (without := _apart(step.content, start, theirs)) is not None:
        edit = Step("replace", step.root, step.path, step.target, _beside(step), older[1].start, content=without)
        if _edit(edit):
            _drop(step.staging)


def _apart(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Two changes of `base` joined, where they change different places; else None."""
    head, tail, body = changed_bytes(base, ours)
    their_head, their_tail, _ = changed_bytes(base, theirs)
    if their_head >= len(base) - tail:
        return theirs[:head] + body + theirs[len(base) - tail :]
    if len(base) - their_tail <= head:
        moved = len(theirs) - len(base)
        return theirs[: head + moved] + body + theirs[len(base) - tail + moved :]
    return None


def _beside(step: Step) -> str:
    return (step.staging or staging_name(step.target, 0, 0)).removesuffix(".tmp") + ".old.tmp"


def _edit(edit: Step) -> bool:
    """Replace a file on the way back; False when somebody was there first. Raises OSError."""
    _drop(edit.staging)
    fd = stage(edit)
    assert fd is not None
    os.close(fd)
    try:
        make(edit)
    except OutsideEdit:
        return False
    finally:
        drop_staging(edit)
    return True


def _drop(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _take_back_create(step: Step) -> None:
    """A version that somebody made of it meanwhile goes with it, and becomes a conflict copy: the calls run again."""
    with contextlib.suppress(FileNotFoundError):
        syscalls.rename_noreplace(step.target, step.staging)


def _take_back_folder(step: Step) -> None:
    """Only while everything in it is ours."""
    expected = {name for path in step.files for name in _prefixes(path)}
    present = {
        os.path.relpath(os.path.join(base, name), step.target)
        for base, folders, files in os.walk(step.target)
        for name in (*folders, *files)
    }
    found = {name: read(os.path.join(step.target, name)) for name in step.files}
    untouched = all(version is None or version[0] == step.files[name] for name, version in found.items())
    if present <= expected and untouched:
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            syscalls.rename_noreplace(step.target, step.staging)


def _prefixes(path: str) -> Iterator[str]:
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _take_back_delete(step: Step) -> None:
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        syscalls.rename_noreplace(step.staging, step.target)


def _take_back_move(step: Step) -> None:
    now = look_here(step.target)
    if now is not None and now.ino == step.start.ino:
        with contextlib.suppress(FileExistsError):
            syscalls.rename_noreplace(step.target, step.staging)


def _take_back_append(step: Step) -> None:
    """Cut our bytes off while they are the end of the file; else edit them out, as any other edit."""
    for _ in range(3):
        at, size = find_lines(step)
        if at < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(step.target, os.O_WRONLY | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size == at + size:
                    os.ftruncate(fd, at)
                    return
            finally:
                os.close(fd)
        found = read(step.target)
        if found is None:
            return
        content = found[0][:at] + found[0][at + size :]
        edit = Step("replace", step.root, step.path, step.target, _beside(step), found[1].start, content=content)
        if _edit(edit):
            return


def find_lines(step: Step) -> tuple[int, int]:
    """Where an append's bytes stand in the file now, and how many of them: at their offset, or as lines elsewhere
    behind it, or (in a file that was written anew) anywhere; (-1, 0): nowhere."""
    offset = step.landed if step.landed >= 0 else step.start.size
    lines = step.content.lstrip(b"\n")
    try:
        fd = os.open(step.target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return -1, 0
    try:
        now = look_at(fd)
        if pread_all(fd, len(step.content), offset) == step.content:
            return offset, len(step.content)
        anew = now.ino != step.start.ino or now.size < offset + len(step.content)
        begin = 0 if anew else max(0, offset - 1)
        text = (b"\n" if begin == 0 else b"") + pread_all(fd, now.size - begin, begin)
        at = text.rfind(b"\n" + lines)
        return (at + begin + (begin != 0), len(lines)) if at >= 0 else (-1, 0)
    finally:
        os.close(fd)


_MAKE = {
    "replace": _make_replace,
    "create": _make_create,
    "append": _make_append,
    "delete": _make_delete,
    "folder": _make_create,
    "move": _make_move,
}
_TAKE_BACK = {
    "replace": _take_back_replace,
    "create": _take_back_create,
    "append": _take_back_append,
    "delete": _take_back_delete,
    "folder": _take_back_folder,
    "move": _take_back_move,
}


# Displaced files ------------------------------------------------------------------------------------------------------


def settle(step: Step) -> None:
    """After all steps of a group are made: drop the name of a displaced file that nobody writes to; keep its
    descriptor.

    Never raises: what cannot be done now keeps its name until the checkpoint.
    """
    if step.kind not in ("replace", "delete"):
        return
    step.late = True
    step.since = time.monotonic()
    with contextlib.suppress(OSError):
        step.displaced = os.open(step.staging, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        if syscalls.written_elsewhere(step.displaced) is False:
            os.unlink(step.staging)
            step.late = False


def may_still_change(step: Step) -> bool:
    """Whether a displaced file is still open for writing somewhere (or may be, where that cannot be asked), and not for
    so long that it is no editor's saving."""
    return (
        step.late
        and step.displaced >= 0
        and time.monotonic() - step.since < config.QUIET_WAIT
        and syscalls.written_elsewhere(step.displaced) is not False
    )


def late_edit(step: Step) -> bytes | None:
    """At the checkpoint: what somebody wrote into the displaced file after it was displaced, or None. Closes the
    descriptor."""
    if step.displaced < 0 and step.late:
        with contextlib.suppress(OSError):
            step.displaced = os.open(step.staging, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if step.displaced < 0:
        return None
    try:
        now = look_at(step.displaced)
        if now.start == step.start:
            return None
        return pread_all(step.displaced, now.size)
    finally:
        os.close(step.displaced)
        step.displaced = -1


def drop_displaced(step: Step) -> None:
    if step.late:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(step.staging)
        step.late = False


def stage_anew(target: str, number: int) -> None:
    """Write a file again as a new one, synced: for a file whose own sync has failed once. Raises OSError,
    OutsideEdit."""
    found = read(target)
    if found is None:
        return
    raw, now = found
    step = Step("replace", "", target, target, staging_name(target, number, 0), now.start, content=raw)
    fd = stage(step)
    assert fd is not None
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
    try:
        make(step)
    finally:
        drop_staging(step)


def keep_copy(folder: str, root: str, path: str, content: bytes) -> str:
    """Write a conflict copy beside the journal (never into the state directory), synced; returns its path."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    stem = os.fsencode(path.replace("/", "-") or os.path.basename(root))[-160:].decode("utf-8", "ignore")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1000):
        name = os.path.join(folder, f"{stamp}-{digest(os.fsencode(root))[:8]}-{number}-{stem}")
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        try:
            write_all(fd, content)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(folder)
        return name
    raise OSError(errno.EEXIST, "too many conflict copies within one second", folder)
