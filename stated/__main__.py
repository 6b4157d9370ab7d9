"""The program `stated`: `serve` is the daemon, `local` answers one message without one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from stated import __version__

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    if plan := os.environ.pop("STATED_FAIL_POINTS", ""):
        from stated import faults

        faults.install(plan)
    # Each command imports what it needs: `--version` and a wrong word answer at once.
    if given.command == "local":
        from stated import local

        return local.run(given.patience or local.PATIENCE)
    if given.command == "domains":
        from stated import domains

        for domain in domains.load():
            sys.stdout.write(f"{domain.name}\t{domain.title}\n")
        return 0
    from stated import daemon

    # The journal takes lines of JSON as they are.
    form = {"json": "json", "journal": "json", "console": "console", None: None}[given.log]
    return daemon.serve(given.socket, given.idle_exit, form)  # type: ignore[arg-type]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stated", description="The daemon that owns the state of agent skills.")
    parser.add_argument("--version", action="version", version=f"stated {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="be the daemon, in the foreground")
    serve.add_argument("--socket", metavar="P", help="listen here; left out: the usual place")
    serve.add_argument("--idle-exit", metavar="S", type=_seconds, help="stop after so many seconds without a client")
    serve.add_argument("--log", choices=("json", "journal", "console"), help="form of the log on standard error")
    alone = commands.add_parser("local", help="answer one message from standard input, without a daemon")
    alone.add_argument("--patience", metavar="S", type=_seconds, help="wait so long for another call without a daemon")
    commands.add_parser("domains", help="list the installed domains")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise ValueError(text)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
