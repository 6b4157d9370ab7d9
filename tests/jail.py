"""A place with a disk, an account and rights of its own, for the tests of hard environments.

What runs in a jail has no rights beyond its user's: as root the tests become another uid, else they drop every
capability. Its account's home is `Jail.home` (the jail has its own `/etc/passwd`), it has its own `/run/user`, and its
mounts are seen by nobody else. The interpreter and the package under test are mounted where that user may execute them,
wherever they are installed.

A machine that allows none of this skips such a test and says why.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stated
from tests.conftest import CLIENTS, Reply, wait_for

UID = 64321
"""Somebody whom nobody else uses."""


@dataclass(frozen=True)
class Timed(Reply):
    seconds: float

    def says(self) -> str:
        """The one line on standard error."""
        assert self.err.startswith("statectl: "), self
        assert self.err.count("\n") == 1, self
        assert self.err.endswith("\n"), self
        return self.err


@dataclass
class Jail:
    folder: Path
    holder: subprocess.Popen[bytes]
    uid: int

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def env(self) -> dict[str, str]:
        """What a cron job has, and where the programs of the jail are."""
        return {"HOME": str(self.home), "PATH": f"{self.folder}/bin:/usr/bin:/bin"}

    def inside(self, *, rights: bool = False) -> list[str]:
        """The words before a command that runs in the jail; with `rights` as who built it."""
        enter = ["nsenter", f"--target={self.holder.pid}", "--mount"]
        if os.getuid() != 0:
            enter += ["--user", "--preserve-credentials"]
        if rights:
            return [*enter, "--"]
        drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        if os.getuid() == 0:
            drop = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--inh-caps=-all"]
        return [*enter, "--", *drop, "--"]

    def do(self, script: str, *, rights: bool = False) -> str:
        """Run a shell script in the jail that must go well; what it printed."""
        command = [*self.inside(rights=rights), "/bin/sh", "-ec", script]
        done = subprocess.run(command, env=self.env, capture_output=True, timeout=50, check=False)
        assert done.returncode == 0, (script, done)
        return done.stdout.decode()

    def fails(self, script: str) -> str:
        """Run a shell script that must not go well: the fault that a test is about is really there."""
        command = [*self.inside(), "/bin/sh", "-ec", script]
        done = subprocess.run(command, env=self.env, capture_output=True, timeout=50, check=False)
        assert done.returncode != 0, script
        return done.stderr.decode()

    def command(self, *argv: str, env: Mapping[str, str] | None = None) -> list[str]:
        """`statectl …` with nothing but the jail's own environment and `env`; `env -i` is what makes it so."""
        given = self.env | dict(env or {})
        return [*self.inside(), "env", "-i", *(f"{name}={value}" for name, value in given.items()), "statectl", *argv]

    def statectl(
        self, *argv: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None, limit: float = 50
    ) -> Timed:
        began = time.monotonic()
        done = subprocess.run(
            self.command(*argv, env=env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=limit,
            check=False,
        )
        seconds = time.monotonic() - began
        return Timed(argv, done.returncode, done.stdout.decode(), done.stderr.decode(), seconds)

    def processes(self, word: str = "serve") -> list[int]:
        """Processes of the jail's user that run `stated WORD`."""
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and is_stated(Path("/proc", entry), word) and self._is_ours(Path("/proc", entry)):
                    found.append(int(entry))
        return found

    def _is_ours(self, process: Path) -> bool:
        # Mounts are what only the jail's processes have in common; a zombie has none any more.
        return os.readlink(process / "ns/mnt") == os.readlink(f"/proc/{self.holder.pid}/ns/mnt")

    def end_daemons(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.processes(), what="the jail's daemons are gone")

    def daemon(self, home: Path | None = None) -> dict[str, Any]:
        """What `status` says of the daemon; it must be running."""
        env = {"STATED_PROGRAM": "/bin/false"} | ({"HOME": str(home)} if home else {})
        value = self.statectl("--timeout", "30", "status", env=env).ok()["daemon"]
        assert isinstance(value, dict)
        return value


def is_stated(process: Path, word: str) -> bool:
    words = (process / "cmdline").read_bytes().split(b"\0")
    return word.encode() in words[1:] and any(
        part == b"stated" or part.endswith((b"/stated", b"/stated/__main__.py")) for part in words[:4]
    )


SETUP = """
mount --bind {python} {folder}/python
mount --bind {site} {folder}/site
mount --bind {tree} {folder}/tree
mount --bind {folder}/passwd /etc/passwd
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/user/{uid}
chmod 700 /run/user/{uid}
{chown} {folder}/home /run/user/{uid}
{more}
echo ready
exec cat
"""


@contextlib.contextmanager
def jail(folder: Path, more: str = "") -> Iterator[Jail]:
    """Build one in this folder. `more` are further commands for its mounts; `$HOME` there is its home."""
    root = os.getuid() == 0
    uid = UID if root else 0  # what the user is called inside
    for name in ("home", "python", "site", "tree", "bin"):
        (folder / name).mkdir()
    (folder / "home").chmod(0o700)
    for parent in (folder, folder / "bin"):
        parent.chmod(0o755)
    accounts = Path("/etc/passwd").read_text().splitlines()
    accounts = [row for row in accounts if row.split(":")[2:3] != [str(uid)]]
    (folder / "passwd").write_text("\n".join([*accounts, f"jailed:x:{uid}:{uid}::{folder}/home:/bin/sh", ""]))
    (folder / "passwd").chmod(0o644)
    interpreter = f"python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    # An interpreter that was moved would find another one's library.
    variables = f"LD_LIBRARY_PATH={folder}/python/lib PYTHONPATH={folder}/tree:{folder}/site"
    tool(folder / "bin" / "stated", f'{variables} exec {folder}/{interpreter} -m stated "$@"')
    client = folder / "bin" / "statectl"
    client.write_bytes((CLIENTS / "statectl").read_bytes())
    client.chmod(0o755)
    script = SETUP.format(
        python=shlex.quote(os.path.realpath(sys.base_prefix)),
        site=shlex.quote(str(Path(msgspec.__file__).parent.parent)),
        tree=shlex.quote(str(Path(stated.__file__).parent.parent)),
        folder=shlex.quote(str(folder)),
        uid=uid,
        chown=f"chown {uid}:{uid}" if root else "true",
        more=more,
    )
    holder = subprocess.Popen(
        ["unshare", "--mount" if root else "-Urm", "--propagation=private", "--", "/bin/sh", "-ec", script],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder / "home")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    made = Jail(folder, holder, uid)
    try:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"ready\n":
            pytest.skip(f"this machine gives no mounts of one's own: {holder.stderr.read().decode().strip()}")
        runs = [*made.inside(), "env", "-i", str(folder / "bin" / "stated"), "--version"]
        works = subprocess.run(runs, capture_output=True, check=False)
        if works.returncode != 0:
            pytest.skip(f"this interpreter cannot be run by another user: {works.stderr.decode().strip()}")
        yield made
    finally:
        try:
            made.end_daemons()
        finally:
            holder.communicate(b"", timeout=30)


def tool(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def one_of(statuses: Sequence[int], reply: Timed, seconds: float) -> Timed:
    """Exit 0 or 3, in time, with an answer or one line."""
    assert reply.status in statuses, reply
    assert reply.seconds < seconds, reply
    if reply.status:
        assert reply.out == "", reply
        reply.says()
    else:
        assert reply.err == "", reply
    return reply
