"""Many callers at once, and somebody who only reads: what the tests of concurrency and of crashes share.

The callers are shell loops that start `statectl` once for each call, as skills do. Each writes down what it was told:
`NAME-N STATUS` in `*.told`, standard output in `*.out`, standard error in `*.err`.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.conftest import CLIENTS, Home

SITE = "demo"

LOOP = r"""
read -r _ <&3  # all of them begin at the same instant
n=0
while [ "$n" -lt "$COUNT" ]; do
    n=$((n + 1))
    tries=0
    while :; do
        case $KIND in
        run) set -- run log --skill load --calls "$n" --budget 99 --verdict watch --notes "$NAME-$n" ;;
        put) set -- profile put --why user --data "{\"thresholds\":{\"$NAME\":$n}}" ;;
        offer) set -- offer monday_briefing ;;
        esac
        "$STATECTL" $FLAGS seal --site demo "$@" --call "$NAME-$n" </dev/null >>"$AT.out" 2>>"$AT.err" 3<&-
        status=$?
        tries=$((tries + 1))
        echo "$NAME-$n $status" >>"$AT.told"
        [ "$status" = 3 ] && [ "$tries" -lt "$TRIES" ] || break
    done
done
"""

Kind = Literal["run", "put", "offer"]


@dataclass
class Callers:
    """Callers of one home. `tries`: how often a call that got no answer (exit 3) is made in all, under the same id."""

    home: Home
    folder: Path
    tries: int = 1
    patience: float = 60.0
    loops: list[subprocess.Popen[bytes]] = field(default_factory=list)
    expected: Counter[Kind] = field(default_factory=Counter)
    names: dict[str, tuple[Kind, int]] = field(default_factory=dict)

    def add(self, kind: Kind, number: int, count: int) -> None:
        """So many callers of one kind, each of which calls `count` times, one call after the other."""
        flags = ["--timeout", str(self.patience)] + (["--local"] if self.home.mode == "local" else [])
        for _ in range(number):
            name = f"{kind}{len(self.names)}"
            self.names[name] = (kind, count)
            self.expected[kind] += count
            env = {
                "KIND": kind,
                "NAME": name,
                "COUNT": str(count),
                "TRIES": str(self.tries),
                "FLAGS": " ".join(flags),
                "AT": str(self.folder / name),
                "STATECTL": str(CLIENTS / "statectl"),
            }
            loop = subprocess.Popen(
                ["/bin/sh", "-c", 'exec 3<&0; eval "$LOOP"'],
                env=self.home.env | env | {"LOOP": LOOP},
                cwd=self.home.path,
                stdin=subprocess.PIPE,
            )
            self.loops.append(loop)

    def go(self) -> None:
        for loop in self.loops:
            assert loop.stdin is not None
            loop.stdin.close()

    def running(self) -> bool:
        return any(loop.poll() is None for loop in self.loops)

    def wait(self, deadline: float) -> None:
        for loop in self.loops:
            assert loop.wait(deadline) == 0

    def end(self) -> None:
        """After a failed test: nobody calls any more."""
        for loop in self.loops:
            if loop.poll() is None:
                loop.kill()
                loop.wait()

    # What the callers were told -------------------------------------------------------------------------------------

    def told(self) -> Iterator[tuple[str, int]]:
        """Each call's id and exit status, a row for every try."""
        for path in sorted(self.folder.glob("*.told")):
            for line in path.read_text().splitlines():
                name, status = line.split()
                yield name, int(status)

    def acknowledged(self, kind: Kind) -> list[str]:
        return [name for name, status in self.told() if status == 0 and name.startswith(kind)]

    def unanswered(self) -> list[str]:
        return [name for name, status in self.told() if status == 3]

    def count(self) -> int:
        """Acknowledged calls so far."""
        return sum(path.read_bytes().count(b" 0\n") for path in self.folder.glob("*.told"))

    def refused(self) -> dict[str, int]:
        """Calls that ended otherwise than with an answer or with `unknown`: none should. Shows what they said."""
        found = {name: status for name, status in self.told() if status not in (0, 3)}
        return found and found | dict.fromkeys(self.errors(), 0)

    def errors(self) -> list[str]:
        return [line for path in sorted(self.folder.glob("*.err")) for line in path.read_text().splitlines()]

    def replies(self, kind: Kind) -> list[Any]:
        paths = sorted(self.folder.glob(f"{kind}*.out"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


class Reader(threading.Thread):
    """A program that knows nothing of `stated`: it reads both files again and again, and notes what is wrong.

    Besides that every read parses: a line never goes away again or changes, and a caller's counter never falls. Where
    daemons are killed (`kills`), the end of the log may be a part of a line until the next one has completed it: the
    kernel stops a write at the edge of a page.
    """

    def __init__(self, folder: Path, *, kills: bool = False) -> None:
        super().__init__(daemon=True)
        self.profile = folder / "profile.json"
        self.runs = folder / "runs.jsonl"
        self.reads = 0
        self.seen: set[int] = set()
        self.problems: list[str] = []
        self._kills = kills
        self._enough = threading.Event()

    def run(self) -> None:
        before = b""
        counters: dict[str, int] = {}
        while not self._enough.is_set() and not self.problems:
            try:
                counters = self._profile(counters)
                before = self._runs(before)
            except Exception as error:  # whatever it is, it is what this test is about
                self.problems.append(repr(error))
            self.reads += 1
            self._enough.wait(0.002)  # it must not take a whole processor from those that it watches

    def _profile(self, before: dict[str, int]) -> dict[str, int]:
        try:
            raw = self.profile.read_bytes()
        except FileNotFoundError:
            assert not before, "the profile is gone"
            return before
        self.seen.add(hash(raw))
        value = json.loads(raw)
        assert raw.endswith(b"}\n"), raw[-40:]
        now: dict[str, int] = value.get("thresholds", {})
        assert all(now.get(name, -1) >= count for name, count in before.items()), (before, now)
        return now

    def _runs(self, before: bytes) -> bytes:
        try:
            raw = self.runs.read_bytes()
        except FileNotFoundError:
            assert not before, "the log is gone"
            return before
        assert raw.startswith(before), "what stood there has changed"  # also: nothing that was whole goes away
        if self._kills:
            raw = raw[: raw.rfind(b"\n") + 1]
        assert raw.endswith(b"\n") or not raw, f"the last line is torn: {raw[-80:]!r}"
        for line in raw[len(before) :].splitlines():
            json.loads(line)
        return raw

    def finish(self) -> None:
        self._enough.set()
        self.join(30)
        assert self.problems == [], self.problems[:3]  # this module's asserts are not rewritten
        assert self.reads > 0


def runs_of(home: Home) -> list[str]:
    """The notes of every line of the log: the ids of the calls that wrote them."""
    path = home.path / ".seal-copilot" / SITE / "runs.jsonl"
    return [json.loads(line)["notes"] for line in path.read_text().splitlines()]


def profile_of(home: Home) -> dict[str, Any]:
    value = json.loads((home.path / ".seal-copilot" / SITE / "profile.json").read_text())
    assert isinstance(value, dict)
    return value


def twice(names: Sequence[str]) -> dict[str, int]:
    """What is there more than once."""
    return {name: count for name, count in Counter(names).items() if count > 1}
