"""Fail points: named places where a test may make a fault happen.

`reach(point)` does nothing unless a plan is installed. A plan comes from the variable `STATED_FAIL_POINTS` of the
process that runs `stated` (never from a caller): `point[:n]=action` rows separated by `;`, where n counts from 1
(left out: every time) and action is one of

    kill            SIGKILL to this process
    error:ENOSPC    raise that OSError
    run:COMMAND     run a shell command and wait for it (an outside edit, a deleted journal)
    wait:PATH       wait until PATH exists (at most a minute)
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections import Counter

_plan: dict[str, list[tuple[int, str]]] = {}
_seen: Counter[str] = Counter()


def install(plan: str) -> None:
    """Replace the plan. Raises ValueError for a row that cannot be read."""
    _plan.clear()
    _seen.clear()
    for row in filter(None, (part.strip() for part in plan.split(";"))):
        place, _, action = row.partition("=")
        if not action:
            raise ValueError(f"not a fail point: {row}")
        point, _, nth = place.partition(":")
        _plan.setdefault(point, []).append((int(nth or 0), action))


def reach(point: str) -> None:
    """Do what the plan says for this point. Raises OSError for `error:`."""
    if not _plan:
        return
    _seen[point] += 1
    for nth, action in _plan.get(point, ()):
        if nth in (0, _seen[point]):
            _act(action)


def _act(action: str) -> None:
    verb, _, argument = action.partition(":")
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "error":
        number = getattr(errno, argument)
        raise OSError(number, os.strerror(number))
    elif verb == "run":
        subprocess.run(["/bin/sh", "-c", argument], check=True, stdin=subprocess.DEVNULL)
    elif verb == "wait":
        deadline = time.monotonic() + 60
        while not os.path.exists(argument) and time.monotonic() < deadline:
            time.sleep(0.005)
