"""Forty programs log runs and sixteen change one profile, all at once, while another program reads both files.

Every read parses, every acknowledged call's effect is there once, and of all who ask for the offer one is the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeHome
from tests.load import SITE, Callers, Reader, profile_of, runs_of, twice


@pytest.fixture
def callers(tmp_path: Path, request: pytest.FixtureRequest, make_home: MakeHome) -> Iterator[Callers]:
    made = Callers(make_home(request.param), tmp_path)
    yield made
    made.end()


# In local mode each call is a process that starts, locks, checkpoints and ends: some five a second on two cores.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("callers", "logs", "puts"),
    [pytest.param("daemon", 10, 200, id="daemon"), pytest.param("local", 1, 2, id="local")],
    indirect=["callers"],
)
def test_forty_that_log_and_sixteen_that_update(callers: Callers, logs: int, puts: int) -> None:
    home = callers.home
    reader = Reader(home.path / ".seal-copilot" / SITE)
    callers.patience = 250
    callers.add("run", 40, logs)
    callers.add("put", 16, puts)
    callers.add("offer", 8, 1)
    reader.start()
    callers.go()
    callers.wait(280)
    reader.finish()

    assert callers.errors() == []
    assert [row for row in callers.told() if row[1] != 0] == []
    assert len(callers.acknowledged("run")) == 40 * logs
    assert twice(runs_of(home)) == {}
    assert set(runs_of(home)) == set(callers.acknowledged("run"))
    assert profile_of(home)["thresholds"] == {
        name: count for name, (kind, count) in callers.names.items() if kind == "put"
    }
    assert sum(reply["first"] for reply in callers.replies("offer")) == 1
    assert profile_of(home)["scheduling_offered"] == {"monday_briefing": True}
    print(f"{callers.count()} calls, {reader.reads} reads of {len(reader.seen)} profiles")
