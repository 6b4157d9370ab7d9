"""The caller's HOME decides: a fixture can never reach a real home, and a daemon passes on nothing of who started it.

The real home here is the account's own, as a jail's `/etc/passwd` has it, with the socket where a login would have it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Home, MakeHome, listing, wait_for
from tests.jail import Jail, jail

PUT = ("seal", "--site", "demo", "profile", "put", "--why", "discovery", "--data", '{"timezone":"Europe/Madrid"}')
LOG = ("seal", "--site", "demo", "run", "log", "--skill", "triage", "--calls", "1", "--budget", "9", "--verdict", "act")
FIXTURE = (PUT, LOG, ("seal", "--site", "demo", "offer", "monday_briefing"), ("hook", "session-start"), ("doctor",))


@pytest.fixture
def real(short_path: Path) -> Iterator[Jail]:
    with jail(short_path) as made:
        for words in (PUT, LOG):
            made.statectl(*words).ok()
        wait_for(lambda: rests(made), what="the real home's daemon has nothing left to do")
        yield made


def rests(made: Jail) -> bool:
    rows = made.statectl("--timeout", "30", "status").ok()
    return all(root["pending"] == 0 for root in rows["roots"]) and rows["queue"]["waiting"] == 0


def test_the_real_home_is_served_where_a_login_would_look(real: Jail) -> None:
    assert real.daemon()["socket"] == f"/run/user/{real.uid}/stated/stated.sock"


def test_a_fixture_with_another_home_touches_nothing(real: Jail) -> None:
    fixture = real.folder / "other"
    real.do(f"mkdir -m 700 {fixture}", rights=True)
    real.do(f"chown {real.uid} {fixture}", rights=True)
    before = listing(real.home, times=True)
    env = {"HOME": str(fixture), "XDG_RUNTIME_DIR": f"/run/user/{real.uid}"}
    for words in FIXTURE:
        assert real.statectl(*words, env=env).status == 0
    there = real.daemon(fixture)
    real.statectl("stop", env=env).ok()

    assert there["pid"] != real.daemon()["pid"]
    assert there["home"] == str(fixture)
    assert (fixture / ".seal-copilot" / "demo" / "runs.jsonl").read_bytes().count(b"\n") == 1
    assert listing(real.home, times=True) == before


def test_a_fixture_without_a_daemon_does_not_use_the_real_one(real: Jail) -> None:
    fixture = real.folder / "other"
    real.do(f"mkdir -m 700 {fixture}", rights=True)
    real.do(f"chown {real.uid} {fixture}", rights=True)
    before = listing(real.home, times=True)
    # It can start nothing: neither a daemon nor a call without one.
    env = {"HOME": str(fixture), "STATED_PROGRAM": "/bin/false", "XDG_RUNTIME_DIR": f"/run/user/{real.uid}"}

    for words in (PUT, LOG, ("seal", "profile", "get")):
        reply = real.statectl(*words, env=env)
        assert (reply.status, reply.out) == (3, "")
        reply.says()
    assert real.statectl("hook", "session-start", env=env).status == 0
    assert listing(real.home, times=True) == before


def test_a_fixture_with_its_own_state_directory_leaves_the_real_state_alone(real: Jail) -> None:
    """The caller's home is the real one here, so its daemon answers, and its journal remembers the other directory."""
    fixture = real.folder / "fixture"
    real.do(f"mkdir -m 700 {fixture}", rights=True)
    real.do(f"chown {real.uid} {fixture}", rights=True)
    own = real.home / ".local" / "state" / "stated"
    before = listing(real.home, skip=[own], times=True)
    for words in FIXTURE:
        assert real.statectl(*words, env={"SEAL_COPILOT_STATE_DIR": str(fixture)}).status == 0
    for words in FIXTURE[:3]:
        real.statectl("--local", *words, env={"SEAL_COPILOT_STATE_DIR": str(fixture)}).ok()

    assert sorted(path.name for path in (fixture / "demo").iterdir()) == ["profile.json", "runs.jsonl"]
    assert (fixture / "demo" / "runs.jsonl").read_bytes().count(b"\n") == 2
    assert listing(real.home, skip=[own], times=True) == before
    assert len(real.statectl("seal", "run", "last").ok()["runs"]) == 1


OTHER_PEOPLES = {
    "BODHI_TODAY": "2001-01-01",
    "TZ": "Pacific/Kiritimati",
    "SEALMETRICS_SITE_ID": "elsewhere",
    "SEAL_COPILOT_STATE_DIR": "/nowhere",
    "SEAL_COPILOT_NO_STATE": "1",
    "STATED_SKILL": "somebody",
    "PYTHONPATH": "/nowhere",
    "LD_LIBRARY_PATH": "/nowhere",
    "SECRET_TOKEN": "do-not-keep",
}
"""Variables that mean something to a caller or to an interpreter, and nothing to the daemon it starts."""


def check_today(home: Home) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    root = home.path / ".seal-copilot" / "demo"
    line = home.statectl(*LOG).ok()["line"]
    home.statectl(*PUT).ok()

    assert began <= datetime.fromisoformat(line["ts"]) <= datetime.now(UTC)
    stamped = datetime.fromisoformat(json.loads((root / "profile.json").read_text())["discovery_cached_at"])
    assert abs(stamped.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(days=2)
    assert json.loads((root / "runs.jsonl").read_text())["skill"] == "triage"


def test_a_daemon_keeps_nothing_of_the_caller_that_started_it(make_home: MakeHome) -> None:
    home = make_home("daemon")
    assert home.statectl("seal", "--site", "x", "profile", "get", env=OTHER_PEOPLES).status == 0
    pid = home.statectl("status").ok()["daemon"]["pid"]
    check_today(home)

    environment = Path(f"/proc/{pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    assert {row.partition(b"=")[0] for row in environment} <= {b"HOME", b"LANG", b"PATH"}
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    for fd in (0, 1, 2):
        target = str(Path(f"/proc/{pid}/fd/{fd}").readlink())
        assert target == "/dev/null" or target.startswith(str(home.state)), target


def test_a_daemon_started_by_hand_in_another_time_and_place(make_home: MakeHome) -> None:
    home = make_home("daemon")
    others = {name: value for name, value in OTHER_PEOPLES.items() if not name.startswith(("PYTHON", "LD_"))}
    home.start(env=others)
    check_today(home)

    assert not Path("/nowhere").exists()


def test_today_is_each_callers_own(home: Home) -> None:
    """`BODHI_TODAY` belongs to another domain; a caller that has it set logs its run now all the same."""
    home.statectl(*LOG, env={"BODHI_TODAY": "2001-01-01"}).ok()
    lines = home.statectl("seal", "run", "last").ok()["runs"]
    assert abs(datetime.fromisoformat(lines[0]["ts"]) - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize("spelling", ["{home}/", "{home}//", "{parent}/../{parent_name}/{name}"])
def test_one_home_spelled_in_another_way_has_the_same_state(real: Jail, spelling: str) -> None:
    there = real.home
    text = spelling.format(home=there, parent=there.parent, parent_name=there.parent.name, name=there.name)
    reply = real.statectl(*LOG, env={"HOME": text})

    assert reply.status == 0, reply
    assert len(real.statectl("seal", "run", "last").ok()["runs"]) == 2
    assert len(real.processes()) == 1


@pytest.mark.parametrize("home", ["", "relative/home", "/does/not/exist"])
def test_a_home_that_is_none(real: Jail, home: str) -> None:
    """Without HOME the account's own counts. In any other nothing is made, and the real one is not used instead."""
    get = real.statectl("seal", "--site", "demo", "profile", "get", env={"HOME": home})
    if home == "":
        assert get.ok()["profile"]["timezone"] == "Europe/Madrid"
        return
    assert get.status == 3 or get.ok()["state"] == "absent"
    put = real.statectl(*PUT, env={"HOME": home})
    assert (put.status, put.out) == (3, "")
    put.says()
    assert real.statectl("hook", "session-start", env={"HOME": home}).status == 0
    assert not Path("/does").exists()
