"""One daemon: how it is started, found, replaced and ended, with real processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stated import client_line, config
from tests.conftest import CLIENTS, Home, MakeHome, listing, wait_for

SHIM = CLIENTS / "statectl"
PUT = ["seal", "--site", "acme", "profile", "put", "--why", "user", "--data", '{"site_name":"Acme"}']
RUN = ["seal", "--site", "acme", "run", "log", "--skill", "audit", "--calls", "1", "--budget", "2", "--verdict", "act"]


class Around:
    """HOMEs whose daemons are started by the commands themselves, and everything that ends with the test."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self.folder = Path(tempfile.mkdtemp(prefix="dm-"))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.homes: list[Path] = []

    def home(self, name: str = "home") -> Path:
        path = self.folder / name
        path.mkdir()
        self.homes.append(path)
        return path

    def env(self, home: Path, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE_", "PYTHONPATH"))}
        base = {"HOME": str(home), "PATH": "/usr/bin:/bin", "STATED_PROGRAM": str(self.program)}
        return kept | base | more

    def run(self, home: Path, *argv: str, timeout: str = "30", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SHIM, "--timeout", timeout, *argv],
            env=self.env(home, **more),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    def serve(self, home: Path, *flags: str, **more: str) -> tuple[subprocess.Popen[bytes], str]:
        """A daemon in the foreground, and the first line it says."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stated", "serve", *flags],
            env=self.env(home, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().decode()

    def daemon(self, home: Path, **more: str) -> dict[str, Any]:
        """What the daemon of this home says of itself."""
        done = self.run(home, "status", **more)
        assert done.returncode == 0, done
        found: dict[str, Any] = json.loads(done.stdout)["daemon"]
        return found

    def close(self) -> None:
        for home in self.homes:
            self.run(home, "stop")
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def around(stated_program: Path) -> Iterator[Around]:
    made = Around(stated_program)
    yield made
    made.close()


# Started on demand ----------------------------------------------------------------------------------------------------


def test_the_first_call_starts_it_and_the_next_finds_it(around: Around) -> None:
    home = around.home()

    first = around.run(home, "roots", "list")
    daemon = around.daemon(home)
    second = around.run(home, "roots", "list")

    assert (first.returncode, first.stdout, first.stderr) == (0, '{"roots":[]}\n', "")
    assert second.stdout == first.stdout
    assert around.daemon(home)["pid"] == daemon["pid"]
    assert daemon["home"] == str(home)


def test_it_is_detached_and_has_nothing_of_its_caller(around: Around) -> None:
    home = around.home()
    read, write = os.pipe()
    os.set_inheritable(write, True)
    noise = {"SECRET": "x", "BODHI_TODAY": "2001-01-01", "SEAL_COPILOT_STATE_DIR": "/x", "TZ": "Asia/Tokyo"}

    subprocess.run(
        [SHIM, "--timeout", "30", "roots", "list"],
        env=around.env(home, **noise),
        cwd=around.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        close_fds=False,
        timeout=50,
        check=True,
    )

    proc = Path("/proc", str(around.daemon(home)["pid"]))
    os.close(write)
    assert os.read(read, 1) == b"", "somebody still holds a descriptor of the caller"
    os.close(read)
    assert os.readlink(proc / "cwd") == "/"
    assert [os.readlink(proc / "fd" / str(fd)) for fd in (0, 1)] == ["/dev/null", "/dev/null"]
    environ = dict(row.split(b"=", 1) for row in (proc / "environ").read_bytes().split(b"\0") if b"=" in row)
    assert environ == {
        b"HOME": os.fsencode(home),
        b"LANG": b"C.UTF-8",
        b"PATH": b"/usr/bin:/bin",
    }
    status = dict(row.split(":", 1) for row in (proc / "status").read_text().splitlines())
    assert int(status["Umask"], 8) == 0o077
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    pid, session = around.daemon(home)["pid"], int(fields[3])
    assert session not in (pid, os.getsid(0)), "a session of its own, which it does not lead"


def test_its_own_files_are_closed_to_others(around: Around) -> None:
    home = around.home()

    around.run(home, "roots", "list")

    own = home / ".local" / "state" / "stated"
    for path in (own, *own.rglob("*")):
        assert path.lstat().st_mode & 0o077 == 0, path


def test_of_thirty_clients_at_once_one_starts_it_and_all_are_answered(around: Around) -> None:
    home = around.home()
    start = threading.Barrier(30)

    def one(_: int) -> subprocess.CompletedProcess[str]:
        start.wait()
        return around.run(home, "--json", "status" if _ == 0 else "where", *([] if _ == 0 else ["seal"]))

    with ThreadPoolExecutor(30) as pool:
        done = list(pool.map(one, range(30)))

    wanted = {"root": f"{home}/.seal-copilot", "origin": "default", "writable": True, "owner": "nobody"}
    for reply in done[1:]:
        assert (reply.returncode, reply.stderr) == (0, ""), reply
        assert json.loads(reply.stdout) == wanted
    log = (home / ".local" / "state" / "stated" / "stated.log").read_text()
    assert log.count('"event":"serving"') == 1, log


def test_the_program_is_found_beside_the_client_as_recorded_or_in_path(around: Around) -> None:
    home = around.home()
    beside = around.folder / "bin"
    beside.mkdir()
    shutil.copy(SHIM, beside / "statectl")

    def run(client: Path, **env: str) -> int:
        base = {key: value for key, value in around.env(home).items() if key != "STATED_PROGRAM"} | env
        command: list[Path | str] = [client, "--timeout", "30", "roots", "list"]
        return subprocess.run(command, env=base, capture_output=True, check=False, timeout=50).returncode

    assert run(beside / "statectl") == 3
    assert run(beside / "statectl", PATH=f"{around.program.parent}:/usr/bin:/bin") == 0
    around.run(home, "stop")
    assert (home / ".local/state/stated/program").read_text() == f"{around.program}\n"
    assert run(beside / "statectl") == 0
    around.run(home, "stop")
    (home / ".local/state/stated/program").unlink()
    (beside / "stated").symlink_to(around.program)
    link = around.folder / "link"
    link.symlink_to(beside / "statectl")
    assert run(link) == 0


def test_a_log_that_has_grown_is_put_aside(around: Around) -> None:
    home = around.home()
    own = home / ".local" / "state" / "stated"
    own.mkdir(parents=True)
    (own / "stated.log").write_bytes(b"x" * (1 << 20) + b"yz")

    around.run(home, "roots", "list")

    assert (own / "stated.log.1").stat().st_size == (1 << 20) + 2
    assert b"x" not in (own / "stated.log").read_bytes()[:1]


def test_a_session_that_starts_before_the_daemon_starts_it_for_the_next(around: Around) -> None:
    home = around.home()

    done = subprocess.run(
        [SHIM, "hook", "session-start"], env=around.env(home), input=b"{}", capture_output=True, check=True, timeout=50
    )

    assert f"State directory: {home}/.seal-copilot" in done.stdout.decode()
    wait_for(lambda: around.run(home, "status").returncode == 0, what="the daemon that the hook started")


# Two of them ----------------------------------------------------------------------------------------------------------


def test_a_second_one_for_the_same_home_says_who_answers(around: Around) -> None:
    home = around.home()
    first, ready = around.serve(home, "--socket", str(around.folder / "s" / "one"))

    second, line = around.serve(home, "--socket", str(around.folder / "s" / "two"))

    assert ready == f"ready {around.folder}/s/one\n"
    assert line == f"taken {around.folder}/s/one\n"
    assert second.wait(20) == 1
    assert first.poll() is None


def test_a_second_one_at_the_same_socket_says_so_too(around: Around) -> None:
    path = str(around.folder / "s" / "one")
    first, _ = around.serve(around.home("a"), "--socket", path)

    second, line = around.serve(around.home("b"), "--socket", path)

    assert line == f"taken {path}\n"
    assert second.wait(20) == 1
    assert first.poll() is None


def test_a_client_finds_the_one_that_answers_elsewhere(around: Around) -> None:
    home = around.home()
    process, _ = around.serve(home, "--socket", str(around.folder / "s" / "one"))

    assert around.daemon(home, STATED_SOCKET=str(around.folder / "s" / "one"))["pid"] == process.pid
    done = around.run(home, "roots", "list")  # which knows only the usual places

    assert (done.returncode, done.stdout, done.stderr) == (0, '{"roots":[]}\n', "")
    assert process.poll() is None


def test_a_daemon_that_hangs_is_not_replaced(around: Around) -> None:
    home = around.home()
    path = str(around.folder / "s" / "one")
    process, _ = around.serve(home, "--socket", path)
    process.send_signal(signal.SIGSTOP)

    done = around.run(home, "where", "seal", STATED_SOCKET=path, timeout="0.5")

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    process.send_signal(signal.SIGCONT)
    assert around.daemon(home, STATED_SOCKET=path)["pid"] == process.pid


def test_the_socket_of_a_killed_one_is_replaced(around: Around) -> None:
    home = around.home()
    around.run(home, "roots", "list")
    killed = around.daemon(home)
    os.kill(killed["pid"], signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{killed['pid']}/fd/0"))
    assert os.path.exists(killed["socket"])

    done = around.run(home, "roots", "list")

    assert (done.returncode, done.stderr) == (0, "")
    assert around.daemon(home)["pid"] != killed["pid"]
    assert around.daemon(home)["socket"] == killed["socket"]


def test_another_home_has_another_daemon(around: Around) -> None:
    one, other = around.home("a"), around.home("b")
    run = around.folder / "runtime"
    run.mkdir(mode=0o700)

    for home in (one, other):
        assert around.run(home, "roots", "list", XDG_RUNTIME_DIR=str(run)).returncode == 0

    first, second = (around.daemon(home, XDG_RUNTIME_DIR=str(run)) for home in (one, other))
    assert (first["home"], second["home"]) == (str(one), str(other))
    assert os.path.dirname(first["socket"]) == os.path.dirname(second["socket"]) == f"{run}/stated"
    for home in (one, other):
        around.run(home, "stop", XDG_RUNTIME_DIR=str(run))


def test_a_home_that_is_spelled_otherwise_has_the_same_daemon(around: Around) -> None:
    home = around.home()
    link = around.folder / "link"
    link.symlink_to(home)
    around.run(home, "roots", "list")
    daemon = around.daemon(home)

    done = around.run(link, "roots", "list")

    assert (done.returncode, done.stderr) == (0, "")
    assert around.daemon(home)["pid"] == daemon["pid"]
    log = (home / ".local" / "state" / "stated" / "stated.log").read_text()
    assert log.count('"event":"serving"') == 1


def test_a_call_that_came_to_another_homes_daemon_writes_nothing(around: Around) -> None:
    real, fixture = around.home("real"), around.home("fixture")
    path = str(around.folder / "s" / "one")
    around.serve(real, "--socket", path)
    before = listing(real, times=True)

    done = around.run(fixture, "seal", "--site", "x", "profile", "get", STATED_SOCKET=path)

    assert done.returncode == 3
    assert "serves another HOME" in done.stderr
    assert listing(real, times=True) == before


# A real home is never reached -----------------------------------------------------------------------------------------


def test_fixtures_leave_the_home_of_a_running_daemon_byte_identical(around: Around) -> None:
    real, fixture = around.home("real"), around.home("fixture")
    assert around.run(real, *PUT).returncode == 0
    around.run(real, "status")
    wait_for(lambda: settled(real))
    before = listing(real, times=True)

    for env in ({}, {"SEAL_COPILOT_STATE_DIR": str(around.folder / "elsewhere")}):
        done = around.run(fixture, *PUT, **env)
        assert done.returncode == 0, done
        assert around.run(fixture, "seal", "--site", "acme", "profile", "get", **env).returncode == 0

    assert listing(real, times=True) == before
    assert (fixture / ".seal-copilot" / "acme" / "profile.json").exists()
    assert (around.folder / "elsewhere" / "acme" / "profile.json").exists()


def settled(home: Path) -> bool:
    """The daemon has nothing left to do: nothing changes between two looks."""
    first = listing(home, times=True)
    wait = threading.Event()
    wait.wait(0.3)
    return first == listing(home, times=True)


def test_a_daemon_started_in_another_time_serves_the_next_caller_with_todays(around: Around) -> None:
    home = around.home()
    around.run(home, "where", "seal", BODHI_TODAY="2001-01-01", SEAL_COPILOT_STATE_DIR="/x", TZ="Asia/Tokyo")

    shown = json.loads(around.run(home, "where", "seal").stdout)

    assert shown["root"] == f"{home}/.seal-copilot"
    environ = Path("/proc", str(around.daemon(home)["pid"]), "environ").read_bytes()
    assert b"BODHI_TODAY" not in environ
    assert b"TZ=" not in environ


# The end --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_orderly_end(around: Around, number: signal.Signals) -> None:
    process, ready = around.serve(around.home(), "--socket", str(around.folder / "s" / "one"))

    process.send_signal(number)

    assert process.wait(20) == 0
    assert ready.startswith("ready ")
    assert not (around.folder / "s" / "one").exists()


def test_a_terminal_that_closes_is_no_reason_to_end(around: Around) -> None:
    home = around.home()
    path = str(around.folder / "s" / "one")
    process, _ = around.serve(home, "--socket", path)

    process.send_signal(signal.SIGHUP)

    assert around.daemon(home, STATED_SOCKET=path)["pid"] == process.pid


def test_stop_returns_when_it_is_gone(around: Around) -> None:
    home = around.home()
    around.run(home, "roots", "list")
    pid = around.daemon(home)["pid"]

    done = around.run(home, "stop")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"stopping": True})
    state = Path(f"/proc/{pid}/stat")
    wait_for(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", deadline=1.0)
    assert around.run(home, "status").returncode == 3
    assert around.run(home, "stop").returncode == 0


def test_what_was_accepted_before_the_end_is_answered_and_on_the_disk(around: Around) -> None:
    home = around.home()
    path = str(around.folder / "s" / "one")
    process, _ = around.serve(home, "--socket", path)
    runs = 200

    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        peer.settimeout(30)
        for number in range(runs):
            params = {"argv": [*RUN, "--notes", f"n{number}"], "home": str(home), "call": f"c{number}"}
            message = {"jsonrpc": "2.0", "id": number, "method": "cli", "params": params}
            peer.sendall(json.dumps(message).encode() + b"\n")
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(path)
            other.sendall(b'{"jsonrpc":"2.0","id":1,"method":"daemon.status"}\n')
            other.recv(1 << 20)
        process.send_signal(signal.SIGTERM)
        stream = b""
        while chunk := peer.recv(1 << 20):
            stream += chunk

    assert process.wait(30) == 0
    answers = [frame for frame in map(json.loads, stream.splitlines()) if "result" in frame]
    done = {frame["id"] for frame in answers if frame["result"]["status"] == 0}
    logged = [json.loads(row)["notes"] for row in (home / ".seal-copilot/acme/runs.jsonl").read_text().splitlines()]
    assert len(answers) > 0
    assert [frame for frame in answers if frame["result"]["status"] != 0] == []
    assert sorted(logged) == sorted(f"n{number}" for number in done)


def test_it_ends_when_nobody_comes(around: Around) -> None:
    process, ready = around.serve(around.home(), "--socket", str(around.folder / "s" / "one"), "--idle-exit", "0.3")

    assert ready.startswith("ready ")
    assert process.wait(20) == 0


def test_somebody_who_is_connected_keeps_it(around: Around) -> None:
    path = str(around.folder / "s" / "one")
    process, _ = around.serve(around.home(), "--socket", path, "--idle-exit", "2")
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)

    assert process.wait(20) == 0


# Handed a socket ------------------------------------------------------------------------------------------------------


def test_a_passed_socket_is_served_and_left(around: Around) -> None:
    home = around.home()
    path = str(around.folder / "passed")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        code = (
            "import os, sys; fd = int(sys.argv[1]); os.dup2(fd, 3); os.environ['LISTEN_PID'] = str(os.getpid());"
            "os.environ['LISTEN_FDS'] = '1'; os.execv(sys.executable, [sys.executable, '-m', 'stated', 'serve'])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(listener.fileno())],
            env=around.env(home),
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    around.processes.append(process)

    assert around.daemon(home, STATED_SOCKET=path)["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert os.path.exists(path)


# Words and failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["", "serve --idle-exit x", "serve --idle-exit 0", "srve", "serve x"])
def test_wrong_words_are_a_usage_error(around: Around, words: str) -> None:
    done = subprocess.run([around.program, *words.split()], capture_output=True, text=True, check=False, timeout=50)

    assert done.returncode == 2
    assert "usage: stated" in done.stderr


def test_domains_are_listed(around: Around) -> None:
    done = subprocess.run([around.program, "domains"], capture_output=True, text=True, check=True, timeout=50)

    assert "seal\t" in done.stdout


@pytest.mark.parametrize("trouble", ["no home", "configuration", "a file in the way"])
def test_what_keeps_it_from_starting_is_one_line(around: Around, trouble: str) -> None:
    home = around.home()
    if trouble == "configuration":
        (home / ".config" / "stated").mkdir(parents=True)
        (home / ".config" / "stated" / "config.toml").write_text("durabilty = 1\n")
    elif trouble == "a file in the way":
        (home / ".local").write_text("")
    elif trouble == "no home":
        home = home / "absent"

    process, line = around.serve(home)

    assert line.startswith("failed ")
    assert process.wait(20) == 3
    assert process.stderr is not None
    said = process.stderr.read().decode()
    assert said.startswith("stated: ")
    assert said.count("\n") == 1
    done = around.run(home, *PUT)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    around.homes.clear()


def test_a_journal_that_cannot_be_opened_is_a_failure_to_start(around: Around) -> None:
    home = around.home()
    Path(config.journal_path(str(home))).mkdir(parents=True)

    process, line = around.serve(home)

    assert line.startswith("failed ")
    assert "journal" in line
    assert process.wait(20) == 3
    around.homes.clear()


# Cron, another user, a disk that is read-only or full -----------------------------------------------------------------


def as_nobody() -> dict[str, Any]:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def test_an_unprivileged_user_in_cron_has_a_daemon(around: Around) -> None:
    who = as_nobody()
    with contextlib.suppress(PermissionError):
        subprocess.run([around.program, "--version"], capture_output=True, check=True, **who)
        cron(around, who)
        return
    pytest.skip("what the tests run in is closed to other users")


def cron(around: Around, who: dict[str, Any]) -> None:
    home = around.home()
    os.chown(home, who["user"], who["group"])
    around.folder.chmod(0o755)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "STATED_PROGRAM": str(around.program)}

    def run(*argv: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([SHIM, *argv], env=env, cwd="/", capture_output=True, check=False, timeout=50, **who)

    done = run("--timeout", "30", "roots", "list")

    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"roots":[]}\n', b"")
    assert run("stop").returncode == 0


@pytest.mark.parametrize("words", ["where seal", "seal --site x profile get", "seal offer daily", "hook session-start"])
def test_a_home_that_cannot_be_written_is_answered_in_time_and_in_one_line(around: Around, words: str) -> None:
    home = around.home()
    around.homes.clear()
    command = f"mount -t tmpfs -o ro none {home} && exec {SHIM} {words}"
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    before = time.monotonic()

    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", command], env=around.env(home), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip

    assert time.monotonic() - before < 10
    assert done.returncode in (0, 3)
    assert done.stderr.count("\n") == (0 if done.returncode == 0 else 1)
    if words.startswith("hook"):
        assert done.returncode == 0
        assert f"State directory: {home}/.seal-copilot" in done.stdout


def test_a_full_disk_is_answered_in_one_line(around: Around) -> None:
    home = around.home()
    around.homes.clear()
    put = 'seal --site acme profile put --why user --data \'{"site_name":"Acme"}\''
    fill = f"mkdir {home}/.local; dd if=/dev/zero of={home}/fill bs=4096 2>/dev/null"
    command = f"mount -t tmpfs -o size=64k none {home} && {fill}; {SHIM} --timeout 20 {put}"
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")

    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", command], env=around.env(home), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip

    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


# Without a daemon -----------------------------------------------------------------------------------------------------


def test_local_mode_does_the_same_and_leaves_no_daemon(around: Around) -> None:
    home = around.home()

    done = around.run(home, "--local", "where", "seal")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["root"] == f"{home}/.seal-copilot"
    assert around.run(home, "status").returncode == 3


def test_local_mode_beside_a_daemon_asks_the_daemon(around: Around) -> None:
    home = around.home()
    path = str(around.folder / "s" / "one")
    process, _ = around.serve(home, "--socket", path)

    done = around.run(home, "--local", "where", "seal", STATED_SOCKET=path)

    assert (done.returncode, done.stderr) == (0, "")
    assert process.poll() is None


def test_local_calls_at_once_wait_for_each_other(around: Around) -> None:
    home = around.home()

    def log(number: int) -> int:
        return around.run(home, "--local", *RUN, "--notes", f"n{number}").returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(log, range(8))) == [0] * 8

    rows = [json.loads(row) for row in (home / ".seal-copilot/acme/runs.jsonl").read_text().splitlines()]
    assert sorted(row["notes"] for row in rows) == sorted(f"n{number}" for number in range(8))


def test_a_daemon_that_cannot_start_leaves_the_call_to_local_mode(around: Around) -> None:
    home = around.home()
    run = around.folder / "open"
    run.mkdir()
    run.chmod(0o777)

    done = around.run(home, "where", "seal", STATED_SOCKET=str(run / "sock"))

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["root"] == f"{home}/.seal-copilot"
    assert list(run.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "status"), [(b"", 2), (b"{}\n", 0), (b'{"jsonrpc":"2.0","id":3,"method":"rpc.hello"}\n', 0)]
)
def test_the_local_program_answers_one_line(around: Around, line: bytes, status: int) -> None:
    home = around.home()

    done = subprocess.run(
        [around.program, "local"], env=around.env(home), input=line, capture_output=True, check=False, timeout=50
    )

    assert done.returncode == status
    assert done.stdout.count(b"\n") == (1 if line else 0)
    if b"hello" in line:
        assert json.loads(done.stdout)["result"]["protocol"] == 1


# Deadlines with a real daemon -----------------------------------------------------------------------------------------


def test_a_killed_daemon_in_the_middle_of_a_write_is_replaced_and_the_call_done_once(make_home: MakeHome) -> None:
    home: Home = make_home("daemon")
    home.start(env={"STATED_FAIL_POINTS": "answer.before:1=kill"})

    done = home.statectl(*RUN)
    assert home.daemon is not None
    home.daemon.wait(10)
    home.daemon = None

    assert (done.status, done.err) == (0, ""), done
    assert len((home.path / ".seal-copilot/acme/runs.jsonl").read_text().splitlines()) == 1


def test_nobody_waits_for_a_lock_that_is_held_in_silence(around: Around) -> None:
    home = around.home()
    own = home / ".local" / "state" / "stated"
    own.mkdir(parents=True)
    around.homes.clear()
    with (own / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = time.monotonic()

        done = around.run(home, *PUT, timeout="1")

        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
        assert time.monotonic() - before < 30


def test_the_line_client_of_other_daemons_is_understood(around: Around) -> None:
    path = str(around.folder / "s" / "one")
    around.serve(around.home(), "--socket", path)

    assert client_line.ask(path, "rpc.hello", {}, timeout=10)["protocol"] == 1
    with pytest.raises(LookupError), contextlib.closing(socket.socket()):
        client_line.ask(path, "no.such", {}, timeout=10)
