"""Where the state cannot be reached as usual: the caller gets its answer or exit 3 with one line, in time, and goes on.

All of it runs as a user without rights, in a jail; each test first shows that the fault bites.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import CLIENTS, Home, MakeHome, listing, wait_for
from tests.jail import Jail, Timed, is_stated, jail, one_of

PUT = ("seal", "--site", "demo", "profile", "put", "--why", "user", "--data", '{"timezone":"Europe/Oslo"}')
GET = ("seal", "--site", "demo", "profile", "get")
LAST = ("seal", "--site", "demo", "run", "last")
LOG = ("seal", "--site", "demo", "run", "log", "--skill", "triage", "--calls", "1", "--budget", "9", "--verdict", "act")
OFFER = ("seal", "--site", "demo", "offer", "monday_briefing")
HOOK = ("hook", "session-start")

READ, WRITE, HOOK_TIME = 1.0, 10.0, 0.3
START = 15.0
PROCESS = 1.5
"""What starting processes may add on a machine that does much else."""

BYTES = b'{"site_id":"demo","timezone":"Europe/Madrid","discovery_cached_at":"2026-09-07"}\n'
LINE = (
    b'{"ts":"2026-09-07T08:00:12Z","skill":"monday-briefing","calls":13,"budget":15,"verdict":"watch",'
    b'"scheduled":true,"notes":""}\n'
)


@pytest.fixture
def somebody(short_path: Path) -> Iterator[Jail]:
    with jail(short_path) as made:
        yield made


@pytest.fixture
def small_disk(short_path: Path) -> Iterator[Jail]:
    """A home on a disk of two megabytes."""
    owner = f"$(stat -c uid=%u,gid=%g {short_path}/home)"
    with jail(short_path, f"mount -t tmpfs -o size=2m,mode=700,{owner} tmpfs $HOME") as made:
        yield made


@pytest.fixture
def read_only_disk(short_path: Path) -> Iterator[Jail]:
    with jail(short_path, "mount --bind $HOME $HOME\nmount -o remount,ro,bind $HOME") as made:
        yield made


def old_state(made: Jail) -> None:
    """What a skill wrote by hand, before there was a daemon."""
    made.do("mkdir -p ~/.seal-copilot/demo")
    made.do(f"cat > ~/.seal-copilot/demo/profile.json <<'E'\n{BYTES.decode()}E")
    made.do(f"cat > ~/.seal-copilot/demo/runs.jsonl <<'E'\n{LINE.decode()}E")


def in_time(reply: Timed, limit: float, *, started: bool = False) -> Timed:
    """With an answer, or with exit 3 and one line."""
    return one_of((0, 3), reply, limit + PROCESS + (START if started else 0))


def soon(made: Jail, *words: str, limit: float = HOOK_TIME) -> Timed:
    """The best of three, as other tests run at the same time; but each of them ends well."""
    replies = [made.statectl(*words) for _ in range(3)]
    assert {reply.status for reply in replies} == {0}, replies
    assert {reply.err for reply in replies} == {""}, replies
    best = min(replies, key=lambda reply: reply.seconds)
    assert best.seconds < limit + 0.2, replies  # nsenter, setpriv and the interpreter take their time too
    return best


# cron -----------------------------------------------------------------------------------------------------------------


def test_cron_has_home_and_path_and_that_is_enough(somebody: Jail) -> None:
    put = in_time(somebody.statectl(*PUT), WRITE, started=True).ok()
    assert put["profile"]["timezone"] == "Europe/Oslo"
    in_time(somebody.statectl(*LOG), WRITE).ok()
    assert in_time(somebody.statectl(*LAST), READ).ok()["runs"][0]["skill"] == "triage"
    assert in_time(somebody.statectl(*GET), READ).ok()["state"] == "fresh"
    soon(somebody, *HOOK)

    assert len(somebody.processes()) == 1
    assert somebody.daemon()["socket"].startswith(f"/run/user/{somebody.uid}/")
    own = somebody.home / ".local" / "state" / "stated"
    for path in own.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, f"others may read {path}"


def test_without_a_runtime_folder_and_without_an_account(somebody: Jail) -> None:
    """A container: no `/run/user`, a uid that nobody knows."""
    somebody.do("umount /run; umount /etc/passwd", rights=True)
    assert "jailed" not in Path("/etc/passwd").read_text()
    put = in_time(somebody.statectl(*PUT), WRITE, started=True).ok()
    assert put["profile"]["timezone"] == "Europe/Oslo"
    assert len(somebody.processes()) == 1
    assert somebody.daemon()["socket"].startswith(f"{somebody.home}/.local/state/stated/run/")


def test_a_home_whose_path_no_socket_address_can_hold(somebody: Jail) -> None:
    somebody.do("umount /run", rights=True)
    home = somebody.home / ("a-long-name-" * 12)
    somebody.do(f"mkdir -m 700 {home}")
    for words in (PUT, LOG, GET):
        in_time(somebody.statectl(*words, env={"HOME": str(home)}), WRITE, started=True).ok()
    socket = Path(somebody.daemon(home)["socket"])

    assert len(somebody.processes()) == 1
    assert len(os.fsencode(socket)) <= 107
    assert socket.parent.stat().st_mode & 0o7777 == 0o700
    somebody.statectl("stop", env={"HOME": str(home)}).ok()
    assert not socket.exists()


# A home that cannot be written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["never seen", "the daemon knew it"])
def test_a_home_without_the_right_to_write(somebody: Jail, known: bool) -> None:
    old_state(somebody)
    if known:
        somebody.statectl(*OFFER).ok()
        somebody.statectl("stop").ok()
    somebody.do("chmod -R a-w ~")
    assert "denied" in somebody.fails("touch ~/new")
    assert "denied" in somebody.fails("touch ~/.seal-copilot/demo/new")
    check_read_only(somebody)
    somebody.do("chmod -R u+w ~")
    somebody.statectl(*PUT).ok()


def test_a_disk_that_is_mounted_read_only(read_only_disk: Jail) -> None:
    # Under the mount the home can still be written.
    folder = read_only_disk.home / ".seal-copilot" / "demo"
    folder.mkdir(parents=True)
    (folder / "profile.json").write_bytes(BYTES)
    (folder / "runs.jsonl").write_bytes(LINE)
    assert "Read-only" in read_only_disk.fails("touch ~/new")
    check_read_only(read_only_disk)


def check_read_only(made: Jail) -> None:
    before = listing(made.home, times=True)
    profile = in_time(made.statectl(*GET), READ, started=True).ok()["profile"]
    assert profile["timezone"] == "Europe/Madrid"
    assert in_time(made.statectl(*LAST), READ, started=True).ok()["runs"][-1]["calls"] == 13
    assert made.statectl("where", "seal").ok()["writable"] is False
    assert made.statectl("doctor").status in (0, 1)
    for words in (PUT, LOG, OFFER):
        reply = in_time(made.statectl(*words), WRITE, started=True)
        assert reply.status == 3
    announced = soon(made, *HOOK).json()["hookSpecificOutput"]["additionalContext"]
    assert f"State directory: {made.home}/.seal-copilot" in announced
    assert made.statectl("version").status == 0
    assert made.processes() == []
    assert listing(made.home, times=True) == before


# A full disk ----------------------------------------------------------------------------------------------------------

FILL = "cat /dev/zero > ~/ballast 2>/dev/null || true; cat /dev/zero > ~/ballast2 2>/dev/null || true"


def fill(made: Jail) -> None:
    made.do(FILL)
    assert "No space" in made.fails("head -c 100000 /dev/zero > ~/more")
    made.do("rm -f ~/more; " + FILL.replace("ballast", "rest"))


def free(made: Jail) -> None:
    made.do("rm -f ~/ballast* ~/rest*")


def runs(made: Jail) -> list[str]:
    text = made.do("cat ~/.seal-copilot/demo/runs.jsonl")
    return [json.loads(line)["notes"] for line in text.splitlines()]


def test_a_disk_that_fills_up_while_the_daemon_runs(small_disk: Jail) -> None:
    made = small_disk
    old_state(made)
    made.statectl(*PUT).ok()
    fill(made)
    there: list[str] = []
    refused: list[str] = []
    for number in range(12):
        note = f"{number} " + "x" * 250  # until nothing more fits into what is already allotted
        reply = in_time(made.statectl(*LOG, "--notes", note, "--call", f"full-{number}"), WRITE)
        (refused if reply.status else there).append(note)
        reply = in_time(made.statectl("seal", "--site", "demo", "offer", f"schedule_{number}"), WRITE)
        (refused if reply.status else there).append(f"schedule_{number}")
    assert refused, "the disk was never full"
    assert in_time(made.statectl(*GET), READ).ok()["profile"]["timezone"] == "Europe/Oslo"
    assert in_time(made.statectl(*LAST), READ).status == 0
    soon(made, *HOOK)

    free(made)
    in_time(made.statectl(*LOG, "--notes", "after"), WRITE).ok()
    lines = runs(made)
    assert lines[0] == ""
    assert lines[-1] == "after"
    assert lines[1:-1] == [note for note in there if " " in note], "refused means: not there"
    offered = made.statectl(*GET).ok()["profile"].get("scheduling_offered", {})
    assert sorted(offered) == sorted(name for name in there if " " not in name)
    # Each that was refused can be made again with its id; each that was done is not done twice.
    for number in range(12):
        note = f"{number} " + "x" * 250
        made.statectl(*LOG, "--notes", note, "--call", f"full-{number}").ok()
    assert sorted(runs(made)) == sorted(["", "after", *(f"{number} " + "x" * 250 for number in range(12))])
    assert made.statectl("doctor").ok() == {"findings": []}
    assert made.do("find ~/.seal-copilot -name '.stated*'") == ""


def test_no_daemon_can_start_on_a_full_disk(small_disk: Jail) -> None:
    made = small_disk
    old_state(made)
    fill(made)
    assert in_time(made.statectl(*GET), READ, started=True).ok()["profile"]["timezone"] == "Europe/Madrid"
    assert in_time(made.statectl(*LAST), READ, started=True).ok()["runs"][0]["calls"] == 13
    for words in (PUT, OFFER):
        assert in_time(made.statectl(*words), WRITE, started=True).status == 3
    soon(made, *HOOK)
    assert made.do("cat ~/.seal-copilot/demo/profile.json").encode() == BYTES

    free(made)
    made.statectl(*PUT).ok()
    assert made.statectl(*GET).ok()["profile"]["timezone"] == "Europe/Oslo"
    assert made.statectl("doctor").ok() == {"findings": []}


# A daemon that hangs --------------------------------------------------------------------------------------------------


@pytest.fixture
def hung(somebody: Jail) -> Iterator[Jail]:
    somebody.statectl(*PUT).ok()
    (pid,) = somebody.processes()
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text(), what="the daemon is stopped")
    yield somebody
    assert somebody.processes() == [pid], "nobody else took its place"


def test_a_daemon_that_hangs(hung: Jail) -> None:
    (pid,) = hung.processes()
    for words in (GET, LAST, ("doctor",), ("status",)):
        reply = in_time(hung.statectl(*words), READ)
        assert reply.status == 3
    write = in_time(hung.statectl(*LOG, "--notes", "late", "--call", "the-late-one"), READ)
    assert write.status == 3
    assert "the-late-one" in write.says()
    announced = soon(hung, *HOOK).json()["hookSpecificOutput"]["additionalContext"]
    assert f"State directory: {hung.home}/.seal-copilot" in announced

    os.kill(pid, signal.SIGCONT)
    again = hung.statectl("--timeout", "20", *LOG, "--notes", "late", "--call", "the-late-one").ok()
    assert again["line"]["notes"] == "late"
    assert runs(hung) == ["late"]


def test_many_callers_of_a_daemon_that_hangs_are_each_done_once(hung: Jail) -> None:
    (pid,) = hung.processes()
    calls = [[*LOG, "--notes", f"n{number}", "--call", f"c{number}"] for number in range(8)]
    waiting = [start(hung.command(*words)) for words in calls]
    assert {process.wait(30) for process in waiting} == {3}
    os.kill(pid, signal.SIGCONT)
    for words in calls:
        hung.statectl("--timeout", "20", *words).ok()
    assert sorted(runs(hung)) == sorted(f"n{number}" for number in range(8))


def test_a_caller_that_is_stopped_or_killed_does_no_harm(somebody: Jail) -> None:
    somebody.statectl(*PUT).ok()
    callers = [start(somebody.command(*LOG, "--notes", f"n{number}")) for number in range(10)]
    for number, caller in enumerate(callers):
        caller.send_signal(signal.SIGKILL if number % 2 else signal.SIGSTOP)
    in_time(somebody.statectl(*LOG, "--notes", "other"), WRITE).ok()
    assert runs(somebody).count("other") == 1
    for caller in callers:
        caller.send_signal(signal.SIGCONT)
        caller.wait(30)
    assert [note for note in set(runs(somebody)) if runs(somebody).count(note) > 1] == []


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# Nobody runs yet ------------------------------------------------------------------------------------------------------


def test_thirty_callers_at_one_instant_start_one_daemon(make_home: MakeHome) -> None:
    home = make_home("daemon")
    ready, go = os.pipe()
    with contextlib.ExitStack() as callers:
        started = []
        for number in range(30):
            words = [str(CLIENTS / "statectl"), "--timeout", "40", *LOG, "--notes", f"n{number}"]
            caller = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r _; exec "$@" </dev/null', "sh", *words],
                env=home.env,
                cwd=home.path,
                stdin=ready,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            started.append(callers.enter_context(caller))
            callers.callback(caller.kill)
        os.close(ready)
        os.close(go)  # all of them read the end at once
        answers = []
        for caller in started:
            out, err = caller.communicate(timeout=50)
            assert (caller.returncode, err) == (0, b"")
            answers.append(json.loads(out))

    notes = sorted(f"n{number}" for number in range(30))
    assert sorted(answer["line"]["notes"] for answer in answers) == notes
    assert sorted(answer["rev"] for answer in answers) == list(range(1, 31))
    lines = (home.path / ".seal-copilot" / "demo" / "runs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["notes"] for line in lines) == notes
    assert len(daemons(home)) == 1
    log = (home.state / "stated.log").read_text()
    assert log.count('"event":"serving"') == 1, log


def daemons(home: Home) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if not (entry.isdigit() and is_stated(Path("/proc", entry), "serve")):
                continue
            environment = Path("/proc", entry, "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"HOME={home.path}".encode() in environment:
            found.append(int(entry))
    return found


# What the first caller does to itself ---------------------------------------------------------------------------------

HARSH = ["env", "--block-signal=TERM,INT", "--ignore-signal=CHLD,TERM", "/bin/sh", "-c"]
LIMITS = 'ulimit -S -f 8; ulimit -S -n 16; ulimit -S -t 5; exec "$@"'


def test_a_daemon_is_not_bound_by_what_its_first_caller_was(either: Home) -> None:
    """Signals held back or ignored, and soft limits (here files of 4 KB), are that caller's own."""
    either.stop()
    flags = ["--local"] if either.mode == "local" else []
    words = [*HARSH, LIMITS, "sh", str(CLIENTS / "statectl"), *flags, *OFFER]
    first = subprocess.run(words, env=either.env, capture_output=True, timeout=50, check=False)
    assert (first.returncode, first.stderr) == (0, b"")
    assert json.loads(first.stdout)["first"] is True
    if either.mode == "local":
        return
    (pid,) = daemons(either)
    status = dict(row.split(":\t", 1) for row in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in row)
    held = int(status["SigBlk"], 16) | int(status["SigIgn"], 16)
    assert [name.name for name in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD) if held >> (name - 1) & 1] == []
    large = json.dumps({"extra": {"large": ["words"] * 5000}})
    either.statectl("seal", "profile", "put", "--why", "user", "--data", "-", stdin=large).ok()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not daemons(either), what="the daemon stops when it is told to")


@pytest.mark.parametrize("size", [0, 10, 4096, -1], ids=["empty", "torn at once", "torn", "bytes of something else"])
def test_a_client_whose_compiled_copy_is_damaged_still_answers(home: Home, size: int) -> None:
    """A disk that was full for a moment must not break every call from then on."""
    client = home.path / "bin" / "statectl"
    client.parent.mkdir()
    client.write_bytes((CLIENTS / "statectl").read_bytes())
    client.chmod(0o755)

    def answers() -> bool:
        done = subprocess.run([client, *OFFER], env=home.env, capture_output=True, timeout=50, check=False)
        return (done.returncode, done.stderr) == (0, b"")

    assert answers()
    for cached in (client.parent / "__pycache__").glob("*"):
        if size < 0:
            cached.write_bytes(cached.read_bytes()[:16] + os.urandom(1000))
        else:
            os.truncate(cached, size)
    assert answers()
    assert answers()


# The hook -------------------------------------------------------------------------------------------------------------


def test_the_hook_starts_the_daemon_but_does_not_wait_for_it(somebody: Jail) -> None:
    old_state(somebody)
    first = somebody.statectl(*HOOK, "--format", "plain")
    assert (first.status, first.err) == (0, "")
    assert first.out.startswith(f"State directory: {somebody.home}/.seal-copilot\n")
    wait_for(lambda: somebody.processes(), what="a daemon was started behind it")
    wait_for(lambda: somebody.statectl("status").status == 0, what="it answers")
    text = soon(somebody, *HOOK, "--format", "plain").out

    assert "demo" in text
    assert "Europe/Madrid" in text
    assert len(somebody.processes()) == 1


@pytest.mark.parametrize("stdin", [b"", b"not json", b'{"session_id":"s1","cwd":"/"}', b"[" * 100_000, b"\xff\xfe"])
def test_the_hook_takes_whatever_comes(home: Home, stdin: bytes) -> None:
    reply = home.statectl(*HOOK, stdin=stdin)
    assert (reply.status, reply.err) == (0, "")
    assert "State directory: " in reply.json()["hookSpecificOutput"]["additionalContext"]


def test_the_hook_does_not_wait_for_input_that_never_comes(home: Home) -> None:
    began = time.monotonic()
    hook = subprocess.Popen(
        [CLIENTS / "statectl", *HOOK],
        env=home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert hook.stdout is not None
    assert b"State directory: " in hook.stdout.read()
    assert hook.wait(10) == 0
    assert time.monotonic() - began < HOOK_TIME + PROCESS
    hook.communicate(timeout=10)
