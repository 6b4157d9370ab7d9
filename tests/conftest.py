"""What the tests that run real programs share: a private HOME, a daemon of its own, and `statectl` as callers start it.

A test takes `home` (a daemon runs), `either` (run twice: through a daemon, and in local mode), or `make_home`. Each
home is checked at the test's end: `doctor` finds nothing in it unless the test said `expect_findings`, its daemon
stopped in order unless the test ended it, and logged no error unless the test said `expect_errors`.

The installed package is what is tested: without an installed `stated` beside this interpreter these fixtures say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

REPOSITORY = Path(__file__).parent.parent
CLIENTS = REPOSITORY / "clients"

Mode: TypeAlias = Literal["daemon", "local"]


def wait_for(condition: Callable[[], object], deadline: float = 15.0, what: str = "") -> None:
    """Until the condition is true. A loaded machine may take long; a test that passes does not wait that long."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {deadline} s: {what or condition}")
        time.sleep(0.01)  # the poll of this wait


@dataclass(frozen=True)
class Reply:
    """What one process left: its exit status and the two streams."""

    argv: tuple[str, ...]
    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def ok(self) -> Any:
        """The JSON printed by a call that must have gone well."""
        assert (self.status, self.err) == (0, ""), self
        return json.loads(self.out)


@dataclass
class Home:
    """A HOME of its own, how commands are run in it, and the daemon that answers there."""

    path: Path
    mode: Mode
    env: dict[str, str]
    daemon: subprocess.Popen[bytes] | None = None
    expect_findings: bool = False
    expect_errors: bool = False
    ended: bool = field(default=False, repr=False)

    @property
    def socket(self) -> Path:
        return Path(self.env["STATED_SOCKET"])

    @property
    def state(self) -> Path:
        """The daemon's own folder."""
        return self.path / ".local" / "state" / "stated"

    @property
    def log(self) -> Path:
        return self.path.with_name(self.path.name + ".log")

    def start(self, *flags: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground, and wait until it answers."""
        command = [sys.executable, "-m", "stated", "serve", "--socket", str(self.socket), *flags]
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                command, env=self.env | dict(env or {}), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.ended = False
        wait_for(self.answers, 40, "the daemon answers")  # a machine that does much else starts it late
        return self.daemon

    def answers(self) -> bool:
        if self.daemon is not None and self.daemon.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.daemon.returncode}: {self.log.read_text()}")
        return self.statectl("status", mode="daemon-only").status == 0

    def kill(self) -> None:
        """End the daemon as a crash would."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None

    def stop(self) -> None:
        """End the daemon in order."""
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGTERM)
            status = self.daemon.wait(30)
            self.daemon = None
            assert status == 0, f"the daemon ended with {status}: {self.log.read_text()}"

    def statectl(
        self,
        *argv: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        mode: Mode | Literal["daemon-only"] | None = None,
        patience: float | None = 30.0,
        program: Literal["statectl", "bodhi-state"] = "statectl",
    ) -> Reply:
        """Run the client as a process with nothing but HOME, PATH and what a test adds.

        `patience` takes the place of the deadlines, as a loaded machine must not fail a test that is not about them;
        None leaves them as they are. `daemon-only` never starts a daemon.
        """
        extra = dict(env or {})
        flags: list[str] = []
        if program == "statectl":
            if (mode or self.mode) == "local":
                flags.append("--local")
            if patience is not None:
                flags += ["--timeout", str(patience)]
        if mode == "daemon-only":
            extra["STATED_PROGRAM"] = "/bin/false"
        done = subprocess.run(
            [CLIENTS / program, *flags, *argv],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            env=self.env | extra,
            cwd=cwd or self.path,
            capture_output=True,
            timeout=50,
            check=False,
        )
        return Reply(argv, done.returncode, done.stdout.decode(), done.stderr.decode())

    def listing(self, *, times: bool = False) -> dict[str, str]:
        """Every file and folder with its content's hash (and a file's times, if asked), without the daemon's own."""
        return listing(self.path, skip=(self.state, self.socket.parent), times=times)

    def findings(self) -> list[dict[str, Any]]:
        reply = self.statectl("doctor")
        assert reply.status in (0, 1), reply
        rows = reply.json()["findings"]
        assert isinstance(rows, list)
        return rows

    def check(self) -> None:
        """What every home must pass at the end of a test."""
        try:
            if not self.ended and not self.expect_findings:
                assert self.findings() == []
        finally:
            if self.daemon is None and self.mode == "daemon":
                self.statectl("stop", mode="daemon-only")  # one that a command started
            self.stop()
        if not self.expect_errors and self.log.exists():
            bad = [
                line for line in self.log.read_text().splitlines() if '"level":"error"' in line or "Traceback" in line
            ]
            assert bad == []


def listing(folder: Path, *, skip: Sequence[Path] = (), times: bool = False) -> dict[str, str]:
    rows: dict[str, str] = {}
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if Path(base, name) not in skip)
        for name in (*folders, *sorted(names)):
            path = Path(base, name)
            found = path.lstat()
            row = f"{found.st_mode:o} {os.readlink(path) if path.is_symlink() else ''}"
            if path.is_file() and not path.is_symlink():
                row += hashlib.sha256(path.read_bytes()).hexdigest()
            if times and not path.is_dir():
                row += f" {found.st_ino} {found.st_mtime_ns} {found.st_ctime_ns}"
            rows[str(path.relative_to(folder))] = row
    return rows


@pytest.fixture(scope="session")
def stated_program() -> Path:
    program = Path(sys.executable).with_name("stated")
    if not program.exists():
        pytest.exit(f"stated is not installed for {sys.executable}: pip install -e '.[test]'", 2)
    return program


MakeHome: TypeAlias = Callable[[Mode], Home]


@pytest.fixture
def make_home(stated_program: Path) -> Iterator[MakeHome]:
    """Make homes (without a daemon yet). In a short temporary folder, as a socket's path may have 107 bytes."""
    homes: list[Home] = []

    def make(mode: Mode) -> Home:
        path = Path(tempfile.mkdtemp(prefix="st-"))
        sockets = Path(tempfile.mkdtemp(prefix="st-run-"))
        env = {
            "HOME": str(path),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "STATED_PROGRAM": str(stated_program),
            "STATED_SOCKET": str(sockets / "s"),
        }
        # Coverage of the daemons, and the sources of a tree that is not installed: both belong to who runs the tests.
        env |= {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE_", "PYTHONPATH"))}
        homes.append(Home(path, mode, env))
        return homes[-1]

    yield make
    try:
        for home in homes:
            home.check()
    finally:
        for home in homes:
            if home.daemon is not None and home.daemon.poll() is None:
                home.daemon.kill()
                home.daemon.wait()
            for folder in (home.path, home.socket.parent):
                shutil.rmtree(folder, ignore_errors=True)
            home.log.unlink(missing_ok=True)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name, and that another user may pass."""
    path = Path(tempfile.mkdtemp(prefix="st-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    """A home whose daemon runs."""
    made = make_home("daemon")
    made.start()
    return made


@pytest.fixture(params=["daemon", "local"])
def either(request: pytest.FixtureRequest, make_home: MakeHome) -> Home:
    """A home, once with a daemon and once without one for ever: what a command does must not differ."""
    made = make_home(request.param)
    if made.mode == "daemon":
        made.start()
    return made
