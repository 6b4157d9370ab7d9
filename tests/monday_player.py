"""One process that does the Monday briefing by `statectl`, a process for each call, as a skill would.

It takes one argument, a JSON object: `name`, `partner`, `folder`, `statectl` (the command with its flags), `finding`,
`mondays` and `tries`. It begins when its standard input ends. What it was told is written down as `tests.load.Callers`
reads it; a line of `NAME.out` is `[step, call, what was measured or null, the answer]`.

Two partners overlap: after its `run start` each waits until the other one's was answered too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

READERS = ("profile get", "rec due", "baseline get", "rec check")

WITHOUT_ID = ("run start", "run count")
"""They change memory and take no `--call`, so that a player cannot repeat them. `statectl` itself does, under one id,
until its time is up."""

MEASURED = {"verified": "0.0225", "extended": "0.0160", "failed": "0.0139"}
"""From a baseline of 0.010 to a target of 0.022."""


class Refused(Exception):
    """The call ended otherwise than with an answer; its status and its words are written down."""


class Player:
    def __init__(self, name: str, partner: str, folder: str, statectl: list[str], tries: int) -> None:
        self.name = name
        self.partner = partner
        self.folder = Path(folder)
        self.statectl = statectl
        self.tries = tries
        self.calls = 0

    def call(self, step: str, *words: str, measured: str | None = None) -> Any:
        """One call, made again under its id as long as there is no answer."""
        self.calls += 1
        call = f"{self.name}-{self.calls}"
        command = [*self.statectl, "seal", "--site", "demo", *step.split(), *words]
        command += [] if step in (*READERS, *WITHOUT_ID) else ["--call", call]
        for _ in range(1 if step in WITHOUT_ID else self.tries):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            self._write("err", done.stderr)
            if done.returncode == 0:
                # The answer first: whoever counts the told ones finds all of their answers.
                self._write("out", f"[{json.dumps([step, call, measured])[1:-1]}, {done.stdout.strip()}]\n")
            self._write("told", f"{call} {done.returncode}\n")
            if done.returncode == 0:
                return json.loads(done.stdout)
            if done.returncode != 3:
                break
        raise Refused(call)

    def _write(self, suffix: str, text: str) -> None:
        with (self.folder / f"{self.name}.{suffix}").open("a") as file:
            file.write(text)

    def meet(self, monday: int) -> None:
        """Until the partner's run of this Monday has started as well, or the partner gave up."""
        self._write("begun", f"{monday}\n")
        theirs = self.folder / f"{self.partner}.begun"
        end = time.monotonic() + 300
        while not theirs.exists() or len(theirs.read_text().splitlines()) < monday:
            if time.monotonic() > end:
                raise Refused(f"{self.partner} did not begin")
            time.sleep(0.01)  # the poll of this wait

    def monday(self, monday: int, finding: str) -> None:
        run = self.call("run start", "--skill", "monday-briefing", "--scheduled")["run"]
        self.meet(monday)
        self.call("profile get", "--need", "currency,events")
        self.call("run count", "--run", run, "--tool", "list_sites")
        for entry in self.call("rec due", "--limit", "2")["entries"]:
            # Digits of its own: of two that settle one entry, the file tells which it was.
            measured = f"{MEASURED[entry['evidence']]}0{self.name.removeprefix('monday')}1"
            self.call("rec settle", entry["id"], "--measured", measured, measured=measured)
        self.call("baseline get", "--expect-now")
        found = ("--pattern", "dead-cart", "--subject", finding, "--impact", "500")
        self.call("rec check", *found)
        self.call(
            "rec add", "--skill", "monday-briefing", *found, "--evidence", "e", "--action", "a", "--metric", "m",
            "--baseline", "0.50", "--target", "0.90", "--verify-in", "28d",
        )  # fmt: skip
        self.call("offer", "monday_briefing")
        notes = f"{self.name} of Monday {monday}"
        self.call("run finish", "--run", run, "--verdict", "watch", "--calls", "1", "--notes", notes)


def main() -> None:
    given = json.loads(sys.argv[1])
    mondays, finding = given.pop("mondays"), given.pop("finding")
    player = Player(**given)
    sys.stdin.read()  # all of them begin at the same instant
    try:
        for monday in range(1, mondays + 1):
            player.monday(monday, f"{finding}-{monday}")
    except Refused:
        player._write("begun", "gave up\n" * mondays)  # its partner does not wait; the test reads why


if __name__ == "__main__":
    main()
