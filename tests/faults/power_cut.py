"""A disk whose power can be cut at any instant, for root (and `mkfs.xfs`, `mkfs.btrfs` for those kinds).

The file system lies in a loop device over a file on tmpfs: a copy of that file, made while nothing is written to it,
*is* the disk at that instant, with all that was not synced missing. After `cut` the disk is mounted again at the same
path as the power cut left it, so that paths inside stay what they were.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SHM = Path("/dev/shm")
MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}


def why_not(kind: str) -> str:
    """Why there can be no such disk here; empty: there can."""
    if os.geteuid() != 0:
        return "cutting the power of a disk needs root"
    if not SHM.is_dir():
        return "cutting the power of a disk needs /dev/shm"
    if shutil.which(MKFS[kind][0]) is None:
        return f"{MKFS[kind][0]} is not installed"
    try:
        with disk(kind):
            return ""
    except subprocess.CalledProcessError as error:
        return f"a {kind} disk cannot be mounted here: {error.stderr.decode(errors='replace').strip()}"


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)


class Disk:
    def __init__(self, kind: str, image: Path, path: Path) -> None:
        self.kind = kind
        self.path = path
        self._image = image
        self._number = 0

    def mount(self) -> None:
        _run("mount", "-o", "loop,nouuid" if self.kind == "xfs" else "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        _run("umount", str(self.path))

    def cut(self, pause: Callable[[], None], release: Callable[[], None]) -> None:
        """Take the disk of this instant. `pause` stops whatever uses it (a copy made while the disk is written would be
        of no instant at all), `release` ends it."""
        self._number += 1
        after = self._image.with_suffix(f".{self._number}")
        pause()
        while True:
            before = self._image.stat().st_mtime_ns
            _run("cp", "--sparse=always", str(self._image), str(after))
            if self._image.stat().st_mtime_ns == before:
                break
        release()
        self.unmount()
        os.replace(after, self._image)
        self.mount()


@contextmanager
def disk(kind: str, size: str = "320M") -> Iterator[Disk]:
    folder = Path(tempfile.mkdtemp(prefix=f"disk-{kind}-", dir=SHM))
    path = Path(tempfile.mkdtemp(prefix=f"disk-{kind}-"))
    try:
        image = folder / "image"
        _run("truncate", "-s", size, str(image))
        _run(*MKFS[kind], str(image))
        made = Disk(kind, image, path)
        made.mount()
        try:
            yield made
        finally:
            made.unmount()
    finally:
        path.rmdir()
        shutil.rmtree(folder)
