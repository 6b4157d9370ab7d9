"""A real daemon that a test can kill, hold up and cut off, and the questions that every test asks afterwards."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DOMAIN = Path(__file__).parent / "domain"
PATIENCE = 30.0
"""A loaded machine may take long; a test that passes does not wait that long."""


class Lost(Exception):
    """The connection ended before the answer."""


class Failed(Exception):
    """An answer that is an error; `kind` is stable."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = dict(error)
        self.kind = error.get("data", {}).get("kind", "")


def wait_for(condition: Callable[[], object], what: str, deadline: float = PATIENCE) -> None:
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {deadline} s: {what}")
        time.sleep(0.005)  # the poll of this wait


class Connection:
    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(path))
        self._rest = b""
        self._number = 0

    def send(self, method: str, params: Mapping[str, Any]) -> int:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        try:
            self.sock.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise Lost from error
        return self._number

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            try:
                part = self.sock.recv(65536)
            except TimeoutError:
                raise
            except OSError as error:
                raise Lost from error
            if not part:
                raise Lost
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def has_answer(self) -> bool:
        return b"\n" in self._rest or bool(select.select([self.sock], [], [], 0)[0])

    def result(self) -> Any:
        message = self.receive()
        if "error" in message:
            raise Failed(message["error"])
        return message["result"]

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        self.send(method, params)
        return self.result()

    def close(self) -> None:
        self.sock.close()


class World:
    """A HOME with a daemon. `folder`: where it lies (left out: a temporary place)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="sf-"))
        self.home = folder if folder is not None else self.base / "home"
        self.home.mkdir(exist_ok=True)
        self.root = self.home / "trial"
        self.socket = self.base / "run" / "s"
        self.socket.parent.mkdir(mode=0o700)
        self.log = self.base / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._others: list[Connection] = []

    # The daemon -------------------------------------------------------------------------------------------------------

    def start(self, plan: str = "", *, ready: bool = True, prefix: tuple[str, ...] = ()) -> None:
        assert self.process is None
        env = {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join([str(DOMAIN), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "STATED_FAIL_POINTS": plan,
        }
        env |= {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
        command = [*prefix, sys.executable, "-m", "stated", "serve", "--socket", str(self.socket), "--log", "json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.process.stdout.close()
        if ready:
            assert line.startswith(b"ready"), (line, self.tail())
        elif not line:
            self.process.wait(PATIENCE)

    def tail(self) -> str:
        """The end of the daemons' log."""
        return self.log.read_text()[-6000:] if self.log.exists() else ""

    def ended(self) -> int:
        """Wait for the end that a fail point brings."""
        assert self.process is not None
        status = self.process.wait(PATIENCE)
        self._forget()
        return status

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    def pause(self) -> None:
        """Hold the daemon where it is; it no longer begins anything."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/task")
        wait_for(lambda: all(b"State:\tT" in (task / "status").read_bytes() for task in state.iterdir()), "the pause")

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        self._forget()
        assert status == 0, self.tail()

    def _forget(self) -> None:
        self.process = None
        for other in self._others:
            other.close()
        self._others.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def connect(self) -> Connection:
        self._others.append(Connection(self.socket))
        return self._others[-1]

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.socket)
        return self._connection

    # Calls ------------------------------------------------------------------------------------------------------------

    def call(self, operation: str, tag: str, call: str | None = None, **params: Any) -> Any:
        return self.connection.call(f"trial.{operation}", {"tag": tag, "_meta": {"call": call or tag}, **params})

    def arm(self, plan: str) -> None:
        """From now on these fail points count."""
        self.quiet()
        self.connection.call("trial.arm", {"plan": plan})

    def disarm(self) -> None:
        self.connection.call("trial.arm", {"plan": ""})

    def show(self) -> Any:
        return self.connection.call("trial.show", {})

    def status(self) -> Any:
        return self.connection.call("daemon.status", {})

    def quiet(self) -> None:
        """Until the checkpoint has left nothing to do."""

        def done() -> bool:
            status = self.status()
            return not status["queue"]["waiting"] and not any(root["pending"] for root in status["roots"])

        wait_for(done, "the checkpoint")

    def fresh_root(self) -> None:
        """Begin again with no state directory."""
        self.quiet()
        for path in self.home.glob("trial*"):
            shutil.rmtree(path)

    # What is on the disk ----------------------------------------------------------------------------------------------

    def write(self, path: str, content: str | bytes) -> None:
        """A person makes a file."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def tags(self, path: str, root: Path | None = None) -> list[str]:
        """The tags of a counted document; its count is that of its tags."""
        target = (root or self.root) / path
        if not target.exists():
            return []
        value = json.loads(target.read_bytes())
        tags = [str(tag) for tag in value["tags"]]
        assert value["n"] == len(tags), (path, value)
        return tags

    def lines(self, path: str = "log.jsonl") -> list[str]:
        target = self.root / path
        if not target.exists():
            return []
        raw = target.read_bytes()
        assert raw.endswith(b"\n") or not raw, raw[-80:]
        return [json.loads(line)["tag"] for line in raw.splitlines()]

    def staging_names(self) -> list[str]:
        return [str(path) for base in self.home.glob("trial*") for path in base.rglob(".stated-*")]

    @property
    def conflicts(self) -> Path:
        return self.home / ".local" / "state" / "stated" / "conflicts"

    def conflict_copies(self) -> list[Path]:
        return sorted(self.conflicts.iterdir()) if self.conflicts.exists() else []

    def doctor(self) -> list[dict[str, Any]]:
        found = self.connection.call("daemon.doctor", {})["findings"]
        assert isinstance(found, list)
        return found

    def journal_files(self) -> list[Path]:
        return sorted((self.home / ".local" / "state" / "stated").glob("journal.db*"))

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.base, ignore_errors=True)
