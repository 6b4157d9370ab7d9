"""A person edits a file between two calls that belong together, with and without a daemon.

The ledger between `rec due` and `rec settle`: the entry is judged as it now stands, and one that is gone or cannot be
read is never settled from memory. The property map between `map get` and `map put`: the correction is never overwritten
unseen. In each case the answer tells what to do, doing that works, and the history names the edit as made by hand.

What is refused changes no byte; what goes through changes the one line or map that it is about.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Home, Reply
from tests.load import SITE

Edit = Callable[[bytes], bytes]


def save(path: Path, edit: Edit) -> bytes:
    """As most editors save: a new file in the place of the old one. Gives what now stands there."""
    new = edit(path.read_bytes())
    beside = path.with_name(path.name + ".edited")
    beside.write_bytes(new)
    os.replace(beside, path)
    return new


def overwrite(path: Path, edit: Edit) -> bytes:
    """As a shell's `>` does: the file itself is emptied and filled."""
    new = edit(path.read_bytes())
    path.write_bytes(new)
    return new


def loads(text: str | bytes) -> Any:
    """Numbers as they are written."""
    return json.loads(text, parse_float=Decimal)


def error_of(reply: Reply) -> dict[str, Any]:
    """What a refused call answered as JSON."""
    assert (reply.status, reply.out == "") == (1, False), reply
    error = json.loads(reply.out)["error"]
    assert isinstance(error, dict)
    return error


def origins(home: Home, path: Path) -> list[tuple[str, str | None]]:
    """Who wrote each revision of a document, the newest first."""
    rows = home.statectl("log", str(path)).ok()["revisions"]
    return [(row["origin"], row["method"]) for row in rows]


def newest(home: Home, path: Path, origin: str) -> int:
    """The newest revision that was written by a call, or by hand."""
    return int(home.statectl("log", str(path), "--origin", origin).ok()["revisions"][0]["rev"])


# The ledger between `rec due` and `rec settle` ------------------------------------------------------------------------

LINES = [
    b'{"id":"first","date":"2026-01-05","skill":"opportunity-scan","pattern":"leaky-campaign","subject":"a",'
    b'"evidence":"e","action":"x","impact_eur_month":100,"metric":"CR","baseline":0.010,"target":0.022,'
    b'"verify_on":"2026-02-01","status":"open"}',
    b'{ "id": "second", "date": "2026-01-05", "skill": "opportunity-scan", "pattern": "leaky-campaign", "subject": "b",'
    b' "evidence": "e", "action": "x", "impact_eur_month": 1e2, "metric": "CR", "baseline": 0.010, "target": 0.0220,'
    b' "verify_on": "2026-02-02", "status": "open" }',
    b'{"id":"third","date":"2026-01-06","skill":"opportunity-scan","pattern":"leaky-campaign","subject":"c",'
    b'"evidence":"e","action":"x","impact_eur_month":100,"metric":"CR","baseline":0.010,"target":0.022,'
    b'"verify_on":"2026-02-03","status":"open"}',
]


class Ledger:
    """A ledger with two entries that are due and were told to a process. A third one was discarded by a call before, so
    that the history knows the ledger: reading alone records nothing."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.path = home.path / ".seal-copilot" / SITE / "recommendations.jsonl"
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(b"".join(line + b"\n" for line in LINES))
        self.seal("rec", "discard", "third", "--why", "no budget").ok()
        self.before = self.path.read_bytes()
        due = self.seal("rec", "due", "--limit", "2").ok()
        assert [row["id"] for row in due["entries"]] == ["first", "second"]

    def seal(self, *words: str) -> Reply:
        return self.home.statectl("--json", "seal", "--site", SITE, *words)

    def settle(self, name: str) -> Reply:
        """Measured at what verifies both entries as they were told."""
        return self.seal("rec", "settle", name, "--measured", "0.02250")

    def lines(self) -> list[bytes]:
        raw = self.path.read_bytes()
        assert raw.endswith(b"\n")
        return raw.splitlines()


@pytest.fixture
def ledger(either: Home) -> Ledger:
    return Ledger(either)


@pytest.fixture(params=[save, overwrite])
def by_hand(request: pytest.FixtureRequest) -> Callable[[Path, Edit], bytes]:
    how: Callable[[Path, Edit], bytes] = request.param
    return how


def in_days(days: int) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def test_an_entry_is_judged_as_the_person_left_it(ledger: Ledger, by_hand: Callable[[Path, Edit], bytes]) -> None:
    """They raised the target and made a note, and put another entry on top, so that each line has another number."""
    above = LINES[0].replace(b'"first"', b'"zero"').replace(b'"a"', b'"c"')

    def raised(raw: bytes) -> bytes:
        noted = LINES[0].replace(b"0.022", b"0.0300").replace(b'"open"', '"open", "agreed with": "Ms Ås"'.encode())
        return above + b"\n" + raw.replace(LINES[0], noted)

    by_hand(ledger.path, raised)
    first = ledger.settle("first").ok()
    second = ledger.settle("second").ok()

    assert (first["outcome"], first["status"], first["progress"]) == ("extended", "open", 0.625)
    assert (second["outcome"], second["status"]) == ("verified", "verified")
    lines = ledger.lines()
    assert lines[0] == above
    row = loads(lines[1])
    assert row == loads(ledger.seal("rec", "list").out)["entries"][1]
    assert (row["agreed with"], str(row["target"]), str(row["measured"])) == ("Ms Ås", "0.0300", "0.02250")
    assert lines[2].startswith(LINES[1].partition(b' "status"')[0]), "what the call did not change keeps its spelling"
    assert origins(ledger.home, ledger.path)[:3] == [
        ("call", "seal.rec.settle"), ("call", "seal.rec.settle"), ("outside", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        pytest.param(b'"status":"open"', b'"status":"discarded","notes":"no budget"', "unchanged", id="closed"),
        pytest.param(b"2026-02-01", b"DAY", "not_due", id="put off"),
    ],
)
def test_what_the_person_decided_stands(ledger: Ledger, old: bytes, new: bytes, outcome: str) -> None:
    edited = save(ledger.path, lambda raw: raw.replace(old, new.replace(b"DAY", in_days(9).encode()), 1))
    reply = ledger.settle("first").ok()

    assert reply["outcome"] == outcome
    assert reply["entry"] == json.loads(edited.splitlines()[0]), "the answer shows the entry as it is"
    assert ledger.path.read_bytes() == edited
    assert ledger.settle("second").ok()["outcome"] == "verified"


def test_an_entry_that_was_deleted(ledger: Ledger, by_hand: Callable[[Path, Edit], bytes]) -> None:
    """It is not brought back by a settlement. Who wants it back asks the history for it, and then it can be settled."""
    edited = by_hand(ledger.path, lambda raw: raw.replace(LINES[0] + b"\n", b""))
    error = error_of(ledger.settle("first"))

    assert error["message"] == "there is no entry with this id"
    assert (error["data"]["where"], error["data"]["bad_lines"]) == (f"{SITE} recommendations.jsonl", 0)
    assert "removed by hand" in error["data"]["hint"]
    assert ledger.path.read_bytes() == edited
    assert [row["id"] for row in ledger.seal("rec", "due").ok()["entries"]] == ["second"]

    # The edit is the newest revision; the one before it is the ledger that was read.
    edit, read = ledger.home.statectl("log", str(ledger.path)).ok()["revisions"][:2]
    assert (edit["origin"], edit["removed"], read["origin"]) == ("outside", 1, "call")
    before = f"{ledger.path}@{read['rev']}"
    ledger.home.expect_findings = True  # that a line was removed
    assert ledger.home.statectl("show", before).out.encode() == ledger.before
    ledger.home.statectl("restore", before).ok()
    assert ledger.settle("first").ok()["outcome"] == "verified"
    assert ledger.lines()[1:] == ledger.before.splitlines()[1:]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(LINES[0][:150], "line 1, which names this id, cannot be read", id="cut off"),
        pytest.param(LINES[0].replace(b",", b"", 1), "line 1, which names this id, cannot be read", id="no comma"),
        pytest.param(LINES[0][20:], "there is no entry with this id; 1 line", id="id lost"),
    ],
)
def test_an_entry_whose_line_was_broken(
    ledger: Ledger, by_hand: Callable[[Path, Edit], bytes], broken: bytes, message: str
) -> None:
    """The line stays as it is until a person puts it right; the others are settled meanwhile."""
    edited = by_hand(ledger.path, lambda raw: raw.replace(LINES[0], broken))
    error = error_of(ledger.settle("first"))

    assert error["message"].startswith(message)
    assert "nothing was written" in error["data"]["hint"] or "bad_lines" in error["data"]
    assert ledger.path.read_bytes() == edited
    due = ledger.seal("rec", "due").ok()
    assert ([row["id"] for row in due["entries"]], due["bad_lines"], due["problems"][0]["line"]) == (["second"], 1, 1)
    found = ledger.home.findings()
    assert [(row["path"], row["line"]) for row in found] == [(f"{SITE}/recommendations.jsonl", 1)]
    assert ledger.settle("second").ok()["outcome"] == "verified"
    assert ledger.lines()[0] == broken

    save(ledger.path, lambda raw: raw.replace(broken, LINES[0]))
    assert ledger.settle("first").ok()["outcome"] == "verified"
    assert [loads(line)["status"] for line in ledger.lines()] == ["verified", "verified", "discarded"]


def test_an_id_that_stands_twice(ledger: Ledger) -> None:
    """A line that was copied to be changed later: neither is settled, as nobody can tell which one is meant."""
    edited = save(ledger.path, lambda raw: raw + LINES[0].replace(b"0.022", b"0.030") + b"\n")
    error = error_of(ledger.settle("first"))

    assert error["data"]["lines"] == [1, 4]
    assert ledger.path.read_bytes() == edited
    ledger.home.expect_findings = True  # that a line was removed
    save(ledger.path, lambda raw: raw.replace(b'0.030,"verify_on":"2026-02-01"', b'0.030,"verify_on":"2026-02-03"'))
    save(ledger.path, lambda raw: raw.replace(LINES[0] + b"\n", b""))
    reply = ledger.settle("first").ok()
    assert (reply["outcome"], reply["entry"]["target"]) == ("extended", 0.03)


# The property map between `map get` and `map put` ---------------------------------------------------------------------

MAP = """# Properties

| property | table | score |
|---|---|---|
| sku | conversion_items | 9 |
| color | microconversions | 3 |

## Top five

1. sku

## Starter analyses

1. sku by country
"""


class Map:
    """A map that `property-explorer` made and read again, with the revision that it read."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.path = home.path / ".seal-copilot" / SITE / "property-map.md"
        self.put(MAP).ok()
        self.text, self.rev = self.get()

    def get(self) -> tuple[str, str]:
        reply = self.home.statectl("--json", "seal", "--site", SITE, "map", "get").ok()
        assert (reply["state"], reply["text"].encode()) == ("fresh", self.path.read_bytes())
        return reply["text"], str(reply["rev"])

    def put(self, text: str, *flags: str) -> Reply:
        words = ("seal", "--site", SITE, "--skill", "property-explorer", "map", "put", "--data", "-", *flags)
        return self.home.statectl("--json", *words, stdin=text)


@pytest.fixture
def made(either: Home) -> Map:
    return Map(either)


def test_a_map_that_was_corrected_by_hand(made: Map, by_hand: Callable[[Path, Edit], bytes]) -> None:
    """The put is refused with the lines that were corrected; `show` and `diff` tell the rest; with both it goes
    through."""
    home = made.home
    rewritten = made.text.replace("| color | microconversions | 3 |", "| color | both | 4 |")

    def corrected(raw: bytes) -> bytes:
        raw = raw.replace(b"| sku | conversion_items | 9 |", b"| sku | both | 7 |")
        return raw.replace(b"1. sku by country\n", b"")

    edited = by_hand(made.path, corrected)
    error = error_of(made.put(rewritten, "--if-rev", made.rev))

    data = error["data"]
    assert (data["kind"], data["where"]) == ("conflict", f"{SITE} property-map.md")
    assert "line 5" in error["message"]
    assert "1 line taken out" in error["message"]
    assert data["changes"] == [{"line": 5, "text": "| sku | both | 7 |"}]
    assert data["removed"] == 1
    assert "nothing was written" in data["hint"]
    assert made.path.read_bytes() == edited

    read = f"{made.path}@{made.rev}"
    assert home.statectl("show", read).out == made.text
    diff = home.statectl("diff", read).out.splitlines()
    assert [line for line in diff[2:] if line[0] in "+-"] == [
        "-| sku | conversion_items | 9 |", "+| sku | both | 7 |", "-1. sku by country",
    ]  # fmt: skip
    assert newest(home, made.path, "outside") == data["rev"]

    # What it read before is still not enough, whatever it now wants to write.
    assert made.put(rewritten.replace("9", "7"), "--if-rev", made.rev).status == 1
    text, rev = made.get()
    assert int(rev) == data["rev"]
    both = text.replace("| color | microconversions | 3 |", "| color | both | 4 |")
    done = made.put(both, "--if-rev", rev).ok()
    assert done["changed"] is True
    now = made.path.read_text()
    assert "| sku | both | 7 |" in now
    assert "| color | both | 4 |" in now
    assert "1. sku by country" not in now
    assert origins(home, made.path) == [("call", "seal.map.put"), ("outside", None), ("call", "seal.map.put")]
    lines = home.statectl("blame", str(made.path)).ok()["lines"]
    assert {row["text"]: row["origin"] for row in lines if " both " in row["text"]} == {
        "| sku | both | 7 |": "outside",
        "| color | both | 4 |": "call",
    }


def test_a_map_that_was_deleted_by_hand(made: Map) -> None:
    made.path.unlink()
    refused = made.put(MAP, "--if-rev", made.rev)

    assert error_of(refused)["data"]["kind"] == "conflict"
    assert not made.path.exists()
    assert made.put(MAP, "--if-rev", "absent").ok()["changed"] is True
    assert made.path.read_text() == made.text


def test_a_map_that_nobody_read(made: Map) -> None:
    """Without `--if-rev`, or with one that says that there is none, a map that is there is never replaced."""
    before = made.path.read_bytes()
    for flags in ((), ("--if-rev", "absent")):
        error = error_of(made.put(MAP.replace("9", "1"), *flags))
        assert error["data"]["rev"] == int(made.rev)
    assert made.path.read_bytes() == before


def test_lines_that_an_edit_removed_are_told_until_they_are_back(either: Home) -> None:
    """Also where a reader, or another process, met the edit first. A restore is advised only while it takes back
    nothing else."""
    either.expect_findings = True
    log = either.path / ".seal-copilot" / "acme" / "runs.jsonl"
    seal = ("seal", "--site", "acme")
    for skill in ("one", "two"):
        run = ("run", "log", "--skill", skill, "--calls", "1", "--budget", "2", "--verdict", "watch")
        assert either.statectl(*seal, *run).status == 0
    whole = log.read_bytes()

    log.write_bytes(whole.splitlines(keepends=True)[0])
    assert either.statectl(*seal, "run", "last").status == 0
    assert either.statectl(*seal, "offer", "x").status == 0
    either.statectl("log", str(log))
    assert either.statectl(*seal, *run[:3], "three", *run[4:]).status == 0
    hints = [row["hint"] for row in json.loads(either.statectl("doctor").out)["findings"]]
    assert [("statectl show" in hint, "restore" in hint) for hint in hints] == [(True, False)]

    log.write_bytes(log.read_bytes() + whole.splitlines(keepends=True)[1])
    assert either.statectl(*seal, *run[:3], "four", *run[4:]).status == 0
    assert json.loads(either.statectl("doctor").out) == {"findings": []}
