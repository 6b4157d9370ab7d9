"""The client as a process, against daemons that answer as a script says: what it sends, prints, writes and exits with.

How it starts real daemons is in `test_daemon.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stated import __version__, domains
from stated.core import PROTOCOL
from stated.errors import Stopping
from stated.rpc import BEGIN
from tests.conftest import CLIENTS, Home, wait_for

SHIM = CLIENTS / "statectl"
Answer = Callable[[socket.socket, dict[str, Any]], None]


def unfolded() -> str:
    """The client as an ordinary module: what it keeps as text to compile later is in its place."""
    text = re.sub(r"^(ANSWER|RARE) = r'''\n|^'''  # the end of (ANSWER|RARE)\n", "", SHIM.read_text(), flags=re.M)
    return text.replace("for text in (ANSWER, RARE):", 'for text in ("",):')


def result(out: str = "", err: str = "", status: int = 0, hand: Any = ()) -> bytes:
    """The last frame, as `rpc.py` writes it."""
    body = {"status": status, "hand": list(hand), "err": err, "out": out}
    frame = {"jsonrpc": "2.0", "id": 1, "result": body}
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def part(text: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "cli.part", "params": {"out": text}}).encode() + b"\n"


def sends(*frames: bytes) -> Answer:
    def answer(peer: socket.socket, _: dict[str, Any]) -> None:
        for frame in frames:
            peer.sendall(frame)

    return answer


def hangs(peer: socket.socket, _: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        peer.recv(1)  # until the client is gone


class Scripted:
    """A daemon that answers one connection after the other as told, the last answer again and again."""

    def __init__(self, path: Path, *answers: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answers = list(answers)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                with peer, contextlib.suppress(OSError):
                    line = b""
                    while not line.endswith(b"\n"):
                        chunk = peer.recv(65536)
                        if not chunk:
                            break
                        line += chunk
                    else:
                        self.requests.append(json.loads(line))
                        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                        answer(peer, self.requests[-1])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


class Place:
    """A HOME, a socket's place, and the client run there with nothing else around it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.socket = folder / "s"
        self.daemon: Scripted | None = None
        self.env = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "STATED_SOCKET": str(self.socket),
            "STATED_PROGRAM": "/bin/false",
        }

    def answer(self, *answers: Answer) -> Scripted:
        self.daemon = Scripted(self.socket, *answers)
        return self.daemon

    def run(self, *argv: str | bytes, client: str = "statectl", **options: Any) -> subprocess.CompletedProcess[bytes]:
        given: dict[str, Any] = {"env": self.env, "timeout": 50, "cwd": self.home} | options
        if "input" not in given:
            given.setdefault("stdin", subprocess.DEVNULL)
        command: list[Any] = [CLIENTS / client, *argv]
        done: subprocess.CompletedProcess[bytes] = subprocess.run(command, capture_output=True, check=False, **given)
        return done

    def timed(self, *argv: str, **options: Any) -> tuple[subprocess.CompletedProcess[bytes], float]:
        before = time.monotonic()
        done = self.run(*argv, **options)
        return done, time.monotonic() - before


@pytest.fixture
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="sh-"))
    made = Place(folder)
    yield made
    if made.daemon is not None:
        made.daemon.close()
    shutil.rmtree(folder)


# The file -------------------------------------------------------------------------------------------------------------


def test_it_is_one_file_under_two_names() -> None:
    assert os.path.samefile(CLIENTS / "statectl", CLIENTS / "bodhi-state")
    assert os.access(SHIM, os.X_OK)


def test_it_imports_only_the_standard_library_and_at_first_only_what_is_built_in() -> None:
    text = SHIM.read_text()
    always = text[: text.index("ANSWER = r'''")]
    names = set(re.findall(r"^(?: *)(?:from|import) (\w+)", always, re.M))

    # `typing` for the linters only, `json` only where its accelerators are missing
    built_in = {"sys", "posix", "pwd", "_codecs", "_socket", "time", "_frozen_importlib_external"}
    assert names <= built_in | {"typing", "_json", "json"}
    everywhere = set(re.findall(r"^(?: *)(?:from|import) (\w+)", unfolded(), re.M))
    assert everywhere - {"_frozen_importlib_external"} <= sys.stdlib_module_names


def test_the_unfolded_file_is_a_clean_module(tmp_path: Path) -> None:
    path = tmp_path / "statectl.py"
    path.write_text(unfolded())
    config = str(CLIENTS.parent / "pyproject.toml")
    rules = "E402,I001,UP031,UP036,SIM105,SIM115,RUF012,RUF100"

    for command in (
        ["ruff", "check", "--config", config, "--target-version", "py39", "--ignore", rules],
        ["mypy", "--strict", "--cache-dir", str(tmp_path / "cache")],
    ):
        done = subprocess.run([sys.executable, "-m", *command, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_its_constants_are_the_daemons() -> None:
    text = SHIM.read_text()
    names: dict[str, Any] = {}
    exec("".join(re.findall(r"^(?:VERSION|BEGIN|PLAIN|STOPPING) = .*\n", text, re.M)), names)

    assert names["VERSION"] == __version__
    assert names["BEGIN"] == BEGIN
    assert names["STOPPING"] == Stopping.code
    assert result("").startswith(names["PLAIN"])
    assert f"[:{len(BEGIN)}] == BEGIN" in text
    assert f"[:{len(names['PLAIN'])}] == PLAIN" in text
    assert f'"protocol":{PROTOCOL}' in text


def test_the_table_of_exits_and_announcements_is_made_from_the_domains() -> None:
    names: dict[str, Any] = {}
    exec(re.search(r"^UNAVAILABLE = .*\n", SHIM.read_text(), re.M)[0], names)  # type: ignore[index]
    exec(re.search(r"^ANNOUNCED = .*\n", SHIM.read_text(), re.M)[0], names)  # type: ignore[index]
    later = {"bodhi": 1, "detector": 2}  # tools whose domains come after this one
    wanted = {one.name: one.unavailable_status for one in domains.load() if one.unavailable_status != 3}

    assert names["UNAVAILABLE"] == later | wanted | {"hook": 0}
    assert [(row[0], row[2], row[3]) for row in names["ANNOUNCED"]] == [
        (one.state_dir_variable, one.default_root, one.fallback_line) for one in domains.load() if one.fallback_line
    ]


def copied(place: Place, text: str) -> Path:
    folder = Path(tempfile.mkdtemp(dir=place.home))
    (folder / "statectl").write_text(text)
    (folder / "statectl").chmod(0o755)
    return folder


def run_copy(place: Place, folder: Path, *argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([folder / "statectl", *argv], env=place.env, capture_output=True, check=False, timeout=50)


def test_it_is_compiled_once_and_again_when_it_changed(place: Place) -> None:
    folder = copied(place, SHIM.read_text())
    first = run_copy(place, folder, "version")
    [kept] = (folder / "__pycache__").iterdir()
    inode = kept.stat().st_ino

    second = run_copy(place, folder, "version")
    assert kept.stat().st_ino == inode
    (folder / "statectl").write_text(SHIM.read_text().replace(f'VERSION = "{__version__}"', 'VERSION = "9.9.9b1"', 1))
    third = run_copy(place, folder, "version")

    assert first.stdout == second.stdout
    assert json.loads(third.stdout)["statectl"] == "9.9.9b1"


@pytest.mark.parametrize("mode", [0o1777, 0o500])
def test_where_the_compiled_form_could_be_anothers_or_cannot_be_kept_it_runs_too(place: Place, mode: int) -> None:
    folder = copied(place, SHIM.read_text())
    folder.chmod(mode)

    done = run_copy(place, folder, "version")

    assert json.loads(done.stdout)["statectl"] == __version__
    if mode == 0o1777:
        assert not (folder / "__pycache__").exists()
        (folder / "__pycache__").mkdir()
        name = next((CLIENTS / "__pycache__").glob("statectl*.pyc")).name
        (folder / "__pycache__" / name).write_bytes(b"nonsense")
        assert run_copy(place, folder, "version").stdout == done.stdout
    folder.chmod(0o700)


# What is sent ---------------------------------------------------------------------------------------------------------


def test_a_call_brings_what_it_must_and_nothing_else(place: Place) -> None:
    daemon = place.answer(sends(result("hi\n")))
    noise = {"SECRET_TOKEN": "x", "AWS_KEY": "y", "CLAUDE_OTHER": "z", "NO_COLOUR": "w"}
    wanted = {
        "SEAL_COPILOT_STATE_DIR": "/x",
        "SEAL_COPILOT_NO_STATE": "1",
        "STATED_ANYTHING": "2",
        "SEALMETRICS_SITE_ID": "acme",
        "BODHI_TODAY": "2026-01-01",
        "TZ": "Europe/Madrid",
        "CLAUDE_PROJECT_DIR": "/p",
        "CLAUDE_PLUGIN_ROOT": "/r",
        "CLAUDE_ENV_FILE": "/e",
        "NO_COLOR": "1",
    }

    done = place.run("seal", "profile", "get", env=place.env | noise | wanted)

    [request] = daemon.requests
    params = request.pop("params")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hi\n", b"")
    assert request == {"jsonrpc": "2.0", "id": 1, "method": "cli"}
    assert re.fullmatch(r"[0-9a-f]{32}", params.pop("call"))
    assert params == {
        "argv": ["seal", "profile", "get"],
        "program": "statectl",
        "cwd": str(place.home),
        "home": str(place.home),
        "env": wanted | {"STATED_SOCKET": str(place.socket), "STATED_PROGRAM": "/bin/false"},
        "tty": False,
        "width": 80,
        "version": __version__,
    }


@pytest.mark.parametrize("word", ['"', "\\", "ä", "\n", "\x7f", "𝄞", "\u2028", "a b", "", "'", "%s"])
def test_words_arrive_as_they_are(place: Place, word: str) -> None:
    daemon = place.answer(sends(result(word)))

    done = place.run("put", word, env=place.env | {"TZ": word})

    params = daemon.requests[0]["params"]
    assert (params["argv"], params["env"]["TZ"]) == (["put", word], word)
    assert done.stdout.decode() == word


def test_words_arrive_as_they_are_in_a_locale_that_is_not_utf8(place: Place) -> None:
    daemon = place.answer(sends(result("ok")))
    flags = ["-X", "utf8=0", "-X", "warn_default_encoding"]
    code = f"import sys, runpy; sys.argv = sys.argv[1:]; runpy.run_path({str(SHIM)!r}, run_name='__main__')"

    subprocess.run(
        [sys.executable, *flags[:2], "-c", code, str(SHIM), "ü"],
        env=place.env | {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        timeout=50,
        check=False,
    )

    assert daemon.requests[0]["params"]["argv"] == ["ü"]


@pytest.mark.parametrize(
    ("argv", "env"),
    [([b"seal", b"\xff"], {}), ([b"x"], {b"SEAL_COPILOT_STATE_DIR": b"/\xff"}), ([b"x"], {b"TZ": b"\xff"})],
)
def test_what_is_not_utf8_is_a_usage_error(place: Place, argv: list[bytes], env: dict[bytes, bytes]) -> None:
    daemon = place.answer(sends(result("never")))

    done = place.run(*argv, env={os.fsencode(k): os.fsencode(v) for k, v in place.env.items()} | env)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"not valid UTF-8" in done.stderr
    assert daemon.requests == []


def test_a_working_directory_that_is_gone_is_not_sent(place: Place) -> None:
    daemon = place.answer(sends(result("ok")))
    gone = place.home / "gone"
    gone.mkdir()

    done = place.run("-c", f"cd {gone} && rmdir {gone} && exec {SHIM} status", client="/bin/sh")

    assert done.returncode == 0
    assert daemon.requests[0]["params"]["cwd"] is None


def test_a_missing_home_is_the_accounts(place: Place) -> None:
    daemon = place.answer(sends(result("ok")))
    env = {name: value for name, value in place.env.items() if name != "HOME"}

    place.run("status", env=env)
    place.run("status", env=env | {"HOME": ""})

    home = pwd.getpwuid(os.getuid()).pw_dir
    assert [request["params"]["home"] for request in daemon.requests] == [home, home]


def test_a_home_that_is_no_path_is_unavailable(place: Place) -> None:
    env = {name: value for name, value in place.env.items() if name != "STATED_SOCKET"}
    for argv, status in ((["seal"], 3), (["bodhi", "due"], 1), (["detector", "x"], 2), (["hook", "session-start"], 0)):
        done = place.run(*argv, env=env | {"HOME": "relative"})

        assert done.returncode == status
        assert done.stderr == b"statectl: HOME is not an absolute path\n"


def test_the_old_name_is_sent_and_its_flags_may_come_first(place: Place) -> None:
    daemon = place.answer(sends(result("{}", status=1)))

    done = place.run("--project", "p", "due", client="bodhi-state")

    assert daemon.requests[0]["params"]["program"] == "bodhi-state"
    assert daemon.requests[0]["params"]["argv"] == ["--project", "p", "due"]
    assert done.returncode == 1


def test_a_terminal_and_its_width_are_told(place: Place) -> None:
    daemon = place.answer(sends(result("table\n")))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x18\x00\x63\x00\x00\x00\x00\x00")

    subprocess.run([SHIM, "status"], env=place.env, stdin=theirs, stdout=theirs, stderr=theirs, timeout=50, check=True)

    assert os.read(ours, 100) == b"table\r\n"
    os.close(ours)
    os.close(theirs)
    assert (daemon.requests[0]["params"]["tty"], daemon.requests[0]["params"]["width"]) == (True, 99)


# Standard input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [["--data", "-"], ["--data=-"]])
def test_standard_input_is_sent_for_data(place: Place, flag: list[str]) -> None:
    daemon = place.answer(sends(result("ok")))

    done = place.run("seal", "profile", "put", *flag, input='{"a": "ü"}\n'.encode())

    assert done.returncode == 0
    assert daemon.requests[0]["params"]["stdin"] == '{"a": "ü"}\n'


def test_standard_input_is_not_touched_otherwise(place: Place) -> None:
    daemon = place.answer(sends(result("ok")))
    source, sink = os.pipe()
    os.write(sink, b"mine")

    done = place.run("seal", "-", "x", "--data", stdin=source)

    assert done.returncode == 0
    assert "stdin" not in daemon.requests[0]["params"]
    assert os.read(source, 10) == b"mine"
    os.close(source)
    os.close(sink)


def test_standard_input_that_is_not_utf8_is_refused(place: Place) -> None:
    done = place.run("seal", "profile", "put", "--data", "-", input=b"{\xff")

    assert (done.returncode, done.stderr) == (1, b"statectl: standard input is not UTF-8 at byte 1\n")


def test_standard_input_that_is_too_large_is_refused(place: Place) -> None:
    done = place.run("seal", "profile", "put", "--data", "-", input=b" " * (17 << 20))

    assert (done.returncode, done.stderr) == (1, b"statectl: standard input is larger than 16 MiB\n")


def test_a_hook_reads_what_is_there_and_waits_for_no_end(place: Place) -> None:
    daemon = place.answer(sends(result("ok")))
    source, sink = os.pipe()
    os.write(sink, b'{"session_id":"s1"}')

    done = place.run("hook", "session-start", stdin=source)

    assert (done.returncode, done.stdout) == (0, b"ok")
    assert daemon.requests[0]["params"]["stdin"] == '{"session_id":"s1"}'
    os.close(source)
    os.close(sink)


# What comes back ------------------------------------------------------------------------------------------------------


def test_output_error_and_status_are_handed_on(place: Place) -> None:
    place.answer(sends(result("out ü\n", "err\n", 1)))

    done = place.run("seal", "x")

    assert (done.returncode, done.stdout, done.stderr) == (1, "out ü\n".encode(), b"err\n")


TEXTS = ["", "a\\u0041\\n", '"}}\n', "\x00\x1f\x7f", "é\u2028𝄞\n", "x" * 500_000, "ü" * 300_000]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_any_text_is_printed_as_it_is(place: Place, text: str) -> None:
    place.answer(sends(result(text)))

    assert place.run("seal").stdout.decode() == text


def test_frames_may_come_in_any_pieces(place: Place) -> None:
    def answer(peer: socket.socket, _: dict[str, Any]) -> None:
        stream = BEGIN + part("one\n") + part("two\n") + result("three\n", "err\n", 1)
        for at in range(0, len(stream), 11):
            peer.sendall(stream[at : at + 11])

    place.answer(answer)
    done = place.run("seal")

    assert (done.returncode, done.stdout, done.stderr) == (1, b"one\ntwo\nthree\n", b"err\n")


def test_an_announced_write_may_take_longer_than_a_read(place: Place) -> None:
    def answer(peer: socket.socket, _: dict[str, Any]) -> None:
        peer.sendall(BEGIN)
        threading.Event().wait(1.3)
        peer.sendall(result("written\n"))

    place.answer(answer)
    done = place.run("seal", "put")

    assert (done.returncode, done.stdout) == (0, b"written\n")


def test_what_is_handed_goes_to_the_one_file_that_may_be_written(place: Place) -> None:
    file = place.home / "env"
    file.write_text("before\n")
    rows = [["CLAUDE_ENV_FILE", "export A=1\n"], ["HOME", "never\n"], ["STATED_SOCKET", "never\n"]]
    place.answer(sends(result("ok", hand=rows)))

    done = place.run("hook", "session-start", env=place.env | {"CLAUDE_ENV_FILE": str(file)})

    assert (done.returncode, done.stderr) == (0, b"")
    assert file.read_text() == "before\nexport A=1\n"


def test_a_file_that_cannot_be_written_is_said_and_not_fatal(place: Place) -> None:
    place.answer(sends(result("ok", hand=[["CLAUDE_ENV_FILE", "x"]])))

    done = place.run("hook", "session-start", env=place.env | {"CLAUDE_ENV_FILE": "/nowhere/x"})

    assert (done.returncode, done.stdout) == (0, b"ok")
    assert done.stderr == b"statectl: CLAUDE_ENV_FILE: No such file or directory\n"


@pytest.mark.parametrize(
    ("argv", "status"), [(["seal"], 3), (["bodhi", "due"], 1), (["detector", "f"], 2), (["hook", "other"], 0)]
)
def test_an_error_of_the_protocol_is_one_line(place: Place, argv: list[str], status: int) -> None:
    error = {"code": -32024, "message": "too many\nconnections", "data": {"hint": "wait"}}
    place.answer(sends(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode() + b"\n"))

    done = place.run(*argv)

    assert done.returncode == status
    assert done.stderr == (b"" if status == 0 else b"statectl: too many connections; wait\n")


# Where it is printed --------------------------------------------------------------------------------------------------


def test_a_reader_that_has_gone_is_no_error(place: Place) -> None:
    place.answer(sends(result("x" * 1_000_000)))

    done = place.run("-c", f"{SHIM} seal | head -c 10; exit ${{PIPESTATUS[0]}}", client="/bin/bash")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"x" * 10, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_no_error(place: Place, closed: str) -> None:
    daemon = place.answer(sends(result("out\n", "err\n", 1)))

    done = place.run("-c", f"{SHIM} seal {closed}", client="/bin/sh")

    assert done.returncode == 1
    assert done.stdout == (b"" if " >&-" in f" {closed}" else b"out\n")
    assert done.stderr == (b"" if "2>&-" in closed else b"err\n")
    assert len(daemon.requests) == 1


def test_a_full_disk_is_said(place: Place) -> None:
    place.answer(sends(result("out\n")))

    done = place.run("-c", f"{SHIM} seal > /dev/full", client="/bin/sh")

    assert (done.returncode, done.stderr) == (3, b"statectl: standard output: No space left on device\n")


@pytest.mark.parametrize("size", [10, 500_000])
def test_a_pipe_that_does_not_block_gets_everything(place: Place, size: int) -> None:
    place.answer(sends(result("x" * size)))
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    child = subprocess.Popen([SHIM, "seal"], env=place.env, stdin=subprocess.DEVNULL, stdout=sink)
    os.close(sink)

    with os.fdopen(source, "rb") as stream:
        assert stream.read() == b"x" * size
    assert child.wait(50) == 0


# Trouble --------------------------------------------------------------------------------------------------------------


def test_a_hung_daemon_is_given_up_within_its_second(place: Place) -> None:
    place.answer(hangs)

    done, took = place.timed("seal", "get")

    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"no answer within 1 s" in done.stderr
    assert 0.9 < took < 3


def test_a_write_without_an_answer_has_an_unknown_outcome_and_an_id(place: Place) -> None:
    def answer(peer: socket.socket, request: dict[str, Any]) -> None:
        peer.sendall(BEGIN)
        hangs(peer, request)

    daemon = place.answer(answer)
    done = place.run("--timeout", "0.5", "seal", "put")

    call = daemon.requests[0]["params"]["call"]
    assert done.returncode == 3
    assert f"no answer within 0.5 s: the outcome is unknown; repeat it with --call {call}\n" in done.stderr.decode()


def test_the_id_that_was_given_is_the_one_to_repeat(place: Place) -> None:
    place.answer(hangs)

    assert b"--call mine\n" in place.run("--timeout", "0.2", "seal", "put", "--call", "mine").stderr
    assert b"--call mine\n" in place.run("--timeout", "0.2", "seal", "put", "--call=mine").stderr


def test_a_connection_that_ends_is_tried_again_under_the_same_id(place: Place) -> None:
    def ends(peer: socket.socket, _: dict[str, Any]) -> None:
        peer.close()

    def ends_after_begin(peer: socket.socket, _: dict[str, Any]) -> None:
        peer.sendall(BEGIN)

    stopping = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": Stopping.code, "message": "stopping"}})
    daemon = place.answer(ends, ends_after_begin, sends(stopping.encode() + b"\n"), sends(BEGIN, result("done\n")))

    done = place.run("--timeout", "20", "seal", "put")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")
    assert len(daemon.requests) == 4
    assert len({request["params"]["call"] for request in daemon.requests}) == 1


def test_an_answer_that_broke_off_is_not_printed_twice(place: Place) -> None:
    place.answer(sends(part("half\n")))

    done = place.run("seal", "export")

    assert (done.returncode, done.stdout) == (3, b"half\n")
    assert b"broke off" in done.stderr


def test_nonsense_is_not_an_answer(place: Place) -> None:
    place.answer(sends(b"SSH-2.0\n"))

    done = place.run("--timeout", "0.3", "seal")

    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.count(b"\n") == 1


def test_an_interrupt_ends_it_with_130(place: Place) -> None:
    daemon = place.answer(hangs)
    child = subprocess.Popen([SHIM, "--timeout", "40", "seal"], env=place.env, stderr=subprocess.PIPE)
    wait_for(lambda: daemon.requests)

    child.send_signal(signal.SIGINT)

    assert child.wait(20) == 130
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()


def test_a_socket_in_a_folder_that_others_may_write_is_not_trusted(place: Place) -> None:
    runtime = place.home.parent / "runtime"
    (runtime / "stated").mkdir(parents=True)
    env = {"HOME": str(place.home), "XDG_RUNTIME_DIR": str(runtime), "STATED_PROGRAM": "/bin/false"}
    number = int.from_bytes(os.fsencode(place.home), "big") % 0xFFFFFFFFFFFFFFC5
    place.socket = runtime / "stated" / f"stated-{number:016x}.sock"
    daemon = place.answer(sends(result("ok")))

    (runtime / "stated").chmod(0o770)
    place.run("status", env=env)
    assert daemon.requests == []
    (runtime / "stated").chmod(0o700)
    assert place.run("status", env=env).stdout == b"ok"


# Without a daemon -----------------------------------------------------------------------------------------------------


def test_version_status_and_stop_need_no_daemon(place: Place) -> None:
    version, status, stop = (place.run(word) for word in ("version", "status", "stop"))

    assert json.loads(version.stdout) == {"statectl": __version__, "stated": None, "protocol": PROTOCOL}
    assert (status.returncode, status.stdout) == (3, b"")
    assert status.stderr.count(b"\n") == 1
    assert (stop.returncode, json.loads(stop.stdout)) == (0, {"stopping": False})
    assert place.run("--version").stdout.startswith(f"statectl {__version__}".encode())
    assert list(place.home.iterdir()) == []


@pytest.mark.parametrize(("argv", "status"), [(["seal"], 3), (["bodhi", "due"], 1), (["detector", "f"], 2)])
def test_without_the_program_the_state_is_unavailable(place: Place, argv: list[str], status: int) -> None:
    done = place.run(*argv, env=place.env | {"STATED_PROGRAM": "", "PATH": "/nowhere"})

    assert done.returncode == status
    assert done.stderr.count(b"\n") == 1
    assert b"STATED_PROGRAM" in done.stderr


HOOKS: dict[str, tuple[list[str], dict[str, str], str]] = {
    "the default": ([], {}, "State directory: {home}/.seal-copilot"),
    "a variable": ([], {"SEAL_COPILOT_STATE_DIR": "/x/y"}, "State directory: /x/y"),
    "plain": (["--format", "plain"], {}, "State directory: {home}/.seal-copilot"),
    "plain, in one word": (["--format=plain"], {}, "State directory: {home}/.seal-copilot"),
    "no state": ([], {"SEAL_COPILOT_NO_STATE": "1"}, ""),
}


@pytest.mark.parametrize("trouble", ["no daemon", "hung", "error", "read-only"])
@pytest.mark.parametrize("case", HOOKS)
def test_a_session_starts_in_time_whatever_is_wrong(place: Place, case: str, trouble: str) -> None:
    flags, env, line = HOOKS[case]
    if trouble == "hung":
        place.answer(hangs)
    elif trouble == "error":
        place.answer(sends(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32012,"message":"x"}}\n'))
    elif trouble == "read-only":
        place.home.chmod(0o500)

    for _ in range(5):  # a machine that is busy for a moment says nothing about the client
        done, took = place.timed("hook", "session-start", *flags, env=place.env | env, stdin=subprocess.PIPE)
        in_time = took < 0.3 + load_allowance()
        if in_time:
            break
    place.home.chmod(0o700)
    text = done.stdout.decode()
    if line and "--format" not in "".join(flags):
        told = json.loads(text)["hookSpecificOutput"]
        assert told["hookEventName"] == "SessionStart"
        text = told["additionalContext"] + "\n"
    assert text == (line.format(home=place.home) + "\n" if line else "")
    assert (done.returncode, done.stderr) == (0, b"")
    assert in_time, took


def load_allowance() -> float:
    """What this machine now needs to start an interpreter and leave, beyond an idle one."""
    before = time.monotonic()
    for _ in range(3):
        subprocess.run(["/usr/bin/env", "true"], check=True)
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return (time.monotonic() - before) / 3 * 4


def test_other_hooks_say_nothing_without_a_daemon(place: Place) -> None:
    done = place.run("hook", "seal-pre-tool-use")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_where_usr_bin_python3_is_missing_another_is_found(place: Place) -> None:
    place.answer(sends(result("ok")))
    text = SHIM.read_text().replace("/usr/bin/python3", "/nowhere/python3", 1)
    copy = place.home / "statectl"
    copy.write_text(text)
    copy.chmod(0o755)
    env = place.env | {"PATH": f"{os.path.dirname(sys.executable)}:/bin"}

    assert subprocess.run([copy, "seal"], env=env, capture_output=True, check=True, timeout=50).stdout == b"ok"

    for argv, status in (["seal"], 3), (["hook", "x"], 0):
        done = subprocess.run([copy, *argv], env={"PATH": "/nowhere"}, capture_output=True, check=False, timeout=50)
        assert (done.returncode, done.stderr) == (status, b"statectl: there is no python3 here\n")


def test_an_old_python_is_told_in_one_line() -> None:
    code = f"""import sys; sys.version_info = (3, 8, 1); sys.argv = ['statectl', *sys.argv[1:]]
exec(compile(open({str(SHIM)!r}).read(), 'statectl', 'exec'), {{'__name__': '__main__'}})"""
    for argv, status in (["seal"], 3), (["hook", "x"], 0):
        done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, check=False, timeout=50)

        assert done.returncode == status
        assert done.stderr == b"statectl: needs Python 3.9 or later, this is 3.8\n"


def test_without_the_accelerators_it_does_the_same(place: Place) -> None:
    daemon = place.answer(sends(result("é\n", "err", 1)))
    code = f"""import sys; sys.modules['_json'] = None; sys.argv = sys.argv[1:]; path = {str(SHIM)!r}
exec(compile(open(path).read(), path, 'exec'), {{'__name__': '__main__', '__file__': path}})"""

    done = subprocess.run(
        [sys.executable, "-c", code, "statectl", 'a"b'], env=place.env, capture_output=True, check=False, timeout=50
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "é\n".encode(), b"err")
    assert daemon.requests[0]["params"]["argv"] == ['a"b']


def test_a_socket_that_is_named_is_the_only_one(home: Home) -> None:
    """`--socket` says which daemon: another one, that answers elsewhere, is not asked in its place."""
    assert home.statectl("seal", "--site", "demo", "offer", "briefing").status == 0
    reply = home.statectl("--socket", str(home.path / "elsewhere" / "s"), "seal", "profile", "get")
    assert (reply.status, reply.out) == (3, "")
    assert "--socket" in reply.err


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan"])
def test_a_timeout_is_a_number_above_0(home: Home, seconds: str) -> None:
    reply = home.statectl("--timeout", seconds, "version")
    assert (reply.status, reply.out) == (2, "")
    assert "--timeout" in reply.err


def test_help_of_stop_does_not_wait_for_an_end(home: Home) -> None:
    assert home.statectl("seal", "--site", "demo", "offer", "briefing").status == 0
    began = time.monotonic()
    assert home.statectl("stop", "--help").status == 0
    assert time.monotonic() - began < 5
