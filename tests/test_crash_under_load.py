"""The daemon, or a call without one, is killed again and again in the midst of its work.

What was acknowledged is there once. What got no answer is there at most once, and exactly once when the call is made
again with its id. The first to notice that the daemon is gone starts a new one.

Some seconds of it belong to every run; `pytest -m slow tests/test_crash_under_load.py` is fifty kills in each mode.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stated import client_line
from tests.conftest import Home, MakeHome, wait_for
from tests.load import SITE, Callers, Reader, profile_of, runs_of, twice

FEW_OR_FIFTY = [pytest.param(5, id="few"), pytest.param(50, id="fifty", marks=pytest.mark.slow)]


def daemon_of(home: Home) -> int:
    """The process that answers, if any does. It was started by one of our callers; nothing else is ever killed."""
    reply = home.statectl("status", mode="daemon-only", patience=5)
    if reply.status:
        return 0
    pid = int(reply.json()["daemon"]["pid"])
    return pid if is_of(pid, home) else 0


def is_of(pid: int, home: Home) -> bool:
    try:
        return b"HOME=" + os.fsencode(home.path) in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


class Asker(threading.Thread):
    """A program that speaks to the socket itself, and does not repeat a call by itself when the connection ends.

    Of its unanswered calls it makes every other one again, under the same id, until there is an answer.
    """

    def __init__(self, home: Home, name: str) -> None:
        super().__init__(daemon=True)
        self.home = home
        self.caller = name
        self.answered: list[str] = []
        self.left: list[str] = []
        self.broken = 0
        self.problems: list[str] = []
        self._enough = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._enough.wait(0.005) and not self.problems:
            number += 1
            self._call(f"{self.caller}-{number}", again=self.broken % 2 == 1)

    def _call(self, note: str, again: bool) -> None:
        record = {"site": SITE, "skill": "load", "calls": 1, "budget": 9, "verdict": "watch", "notes": note}
        params = {**record, "_meta": {"call": note}}
        while True:
            try:
                reply = client_line.ask(str(self.home.socket), "seal.run.log", params, timeout=30)
            except (FileNotFoundError, ConnectionRefusedError):
                if self._enough.wait(0.005):  # nobody listens: nothing was sent
                    return
                continue
            except LookupError as error:
                if "stopping" not in str(error):
                    self.problems.append(f"{note}: {error}")
                return
            except OSError as error:
                if isinstance(error, TimeoutError):
                    self.problems.append(f"{note}: no answer")
                self.broken += 1
                if not again:
                    self.left.append(note)
                    return
                continue
            if reply["line"]["notes"] != note:
                self.problems.append(f"{note}: the answer of another call: {reply}")
            self.answered.append(note)
            return

    def finish(self) -> None:
        self._enough.set()
        self.join(40)
        assert not self.is_alive()
        assert self.problems == []


@pytest.fixture
def callers(tmp_path: Path, request: pytest.FixtureRequest, make_home: MakeHome) -> Iterator[Callers]:
    made = Callers(make_home(request.param), tmp_path, tries=100)
    yield made
    made.end()


def wait_for_answers(callers: Callers, more: int) -> None:
    """Until so many more calls have been answered, or there are no more."""
    goal = callers.count() + more
    wait_for(lambda: callers.count() >= goal or not callers.running(), 120, "calls are answered")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", FEW_OR_FIFTY)
@pytest.mark.parametrize("callers", ["daemon"], indirect=True)
def test_a_daemon_is_killed_under_load(callers: Callers, kills: int) -> None:
    home = callers.home
    chance = random.Random(kills)
    reader = Reader(home.path / ".seal-copilot" / SITE, kills=True)
    askers = [Asker(home, f"asker{number}") for number in range(4)]
    callers.patience = 120
    callers.add("run", 6, 15 * kills)
    callers.add("put", 6, 15 * kills)
    callers.add("offer", 2, kills)
    for watching in (reader, *askers):
        watching.start()
    callers.go()
    killed = 0
    while killed < kills and callers.running():
        # The next kill comes after so many more answers: at any point of the daemon's work, and never before it works.
        wait_for_answers(callers, chance.randint(1, 60))
        pid = daemon_of(home)
        if pid:
            time.sleep(chance.random() * 0.01)  # the poll of this wait: any point, not always just after an answer
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    callers.wait(600)
    for asker in askers:
        asker.finish()
    reader.finish()

    assert killed == kills
    assert callers.refused() == {}
    assert len(set(callers.acknowledged("run"))) == callers.expected["run"]
    lines = runs_of(home)
    assert twice(lines) == {}
    answered = {note for asker in askers for note in asker.answered}
    left = {note for asker in askers for note in asker.left}
    acknowledged = set(callers.acknowledged("run")) | answered
    assert acknowledged - set(lines) == set(), "acknowledged, and not there"
    assert set(lines) - acknowledged <= left, "there, and asked for by nobody"
    assert profile_of(home)["thresholds"] == {
        name: count for name, (kind, count) in callers.names.items() if kind == "put"
    }
    assert sum(reply["first"] for reply in callers.replies("offer")) == 1
    print(
        f"{killed} kills; {callers.count()} calls answered, {len(callers.unanswered())} tries were not; "
        f"{len(answered)} calls of others answered, {len(left)} never: {len(left & set(lines))} of these are there; "
        f"{reader.reads} reads"
    )


def locals_of(home: Home) -> list[int]:
    """The processes of this home that answer one call without a daemon, which our callers started."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and b"\0local\0" in Path("/proc", entry, "cmdline").read_bytes():
                found += [int(entry)] if is_of(int(entry), home) else []
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", FEW_OR_FIFTY)
@pytest.mark.parametrize("callers", ["local"], indirect=True)
def test_calls_without_a_daemon_are_killed(callers: Callers, kills: int) -> None:
    home = callers.home
    chance = random.Random(kills)
    reader = Reader(home.path / ".seal-copilot" / SITE, kills=True)
    callers.add("run", 2, 2 * kills)
    callers.add("put", 2, 2 * kills)
    reader.start()
    callers.go()
    killed = 0
    while killed < kills and callers.running():
        wait_for_answers(callers, chance.randint(1, 4))
        wait_for(lambda: locals_of(home) or not callers.running(), 60, "a call runs")
        time.sleep(chance.random() * 0.4)  # the poll of this wait: a call takes about so long, any point of it
        for pid in chance.sample(found := locals_of(home), min(1, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    callers.wait(600)
    reader.finish()

    assert callers.refused() == {}
    assert twice(runs_of(home)) == {}
    assert set(runs_of(home)) == set(callers.acknowledged("run"))
    assert len(runs_of(home)) == callers.expected["run"]
    assert profile_of(home)["thresholds"] == {
        name: count for name, (kind, count) in callers.names.items() if kind == "put"
    }
    assert killed >= kills // 2
    print(f"{killed} kills, {callers.count()} calls, {len(callers.unanswered())} tries got no answer")


def test_a_repeat_after_a_crash_gets_the_first_answer(home: Home) -> None:
    """The answer itself is remembered, not only that there was one: `offer` says `first` again to the one it was."""
    words = ("seal", "--site", SITE, "offer", "monday_briefing", "--call", "the-first")
    first = home.statectl(*words).ok()
    home.kill()
    home.start()

    assert first["first"] is True
    assert home.statectl(*words).ok() == first
    assert home.statectl("seal", "--site", SITE, "offer", "monday_briefing").ok()["first"] is False
    other = home.statectl("seal", "--site", SITE, "offer", "cart_watchdog", "--call", "the-first")
    assert other.status == 1
    assert "another request" in other.err
    assert json.loads((home.path / ".seal-copilot" / SITE / "profile.json").read_text())["scheduling_offered"] == {
        "monday_briefing": True
    }
