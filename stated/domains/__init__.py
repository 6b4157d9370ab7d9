"""The built-in domains, and those that other distributions offer under the entry point group `stated.domains`.

What may be relied on:

- `load()` always returns the built-in domains, in the table's order. A third-party domain that cannot be imported, or
  whose table breaks a rule of `check`, is reported and left out; it never keeps the daemon from starting.
- `check()` raises for what would make two commands or two methods answer to one name. It is a programming error, so it
  is meant to end the process at start.
- Nothing is imported until `load()` is called.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from stated.domain import Domain, Kind, Operation

__all__ = ["BUILT_IN", "GROUP", "RESERVED", "check", "load", "method_name"]

BUILT_IN: Final = ("stated.domains.seal",)
"""Modules with a `DOMAIN`."""

GROUP: Final = "stated.domains"

_COMMANDS = """
backup blame cli completion config detector diff doctor help hook log purge repair report restore roots rpc show status
stop undo version watch where
"""

RESERVED: Final = frozenset([*_COMMANDS.split(), "daemon", "state"])
"""Words that a domain may not be called: the core's commands, of this release and of those to come, and the first parts
of methods that are not a domain's."""


def load(report: Callable[[str], None] | None = None) -> tuple[Domain, ...]:
    """Every domain of this installation. `report` gets a line for each one left out (default: the log)."""
    found: list[Domain] = [importlib.import_module(module).DOMAIN for module in BUILT_IN]
    check(found)
    for name, get in _offered():
        try:
            domain = get()
            if not isinstance(domain, Domain):
                raise TypeError("the entry point is not a stated.domain.Domain")
            check([*found, domain])
        except Exception as error:  # somebody else's module may raise anything
            (report or _log)(f"domain {name} is left out: {type(error).__name__}: {error}")
        else:
            found.append(domain)
    return tuple(found)


def _log(line: str) -> None:
    logging.getLogger(__name__).error("%s", line)


def _offered() -> Iterator[tuple[str, Callable[[], object]]]:
    # importlib.metadata costs a cold start 20 ms; most installations have no third-party domain, and a look at the
    # entry points' files tells.
    if not any(_mentions(folder) for folder in dict.fromkeys(sys.path)):
        return
    from importlib import metadata

    for point in metadata.entry_points(group=GROUP):
        yield point.name, point.load


def _mentions(folder: str) -> bool:
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return False
    wanted = f"[{GROUP}]".encode()
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if wanted in file.read():
                        return True
            except OSError:
                continue
    return False


# Rules of the tables --------------------------------------------------------------------------------------------------


def method_name(domain: Domain, operation: Operation) -> str:
    """`seal` and `rec add` make `seal.rec.add`; empty for a command that is not a method."""
    if operation.run is None and operation.serve is None and operation.queue is None:
        return ""
    if operation.method:
        return operation.method
    return f"{domain.name}.{operation.name}".replace(" ", ".").replace("-", "_")


def check(domains: Sequence[Domain]) -> None:
    """Raise ValueError when a table of these domains breaks a rule. The core's own domain has the name ""."""
    _unique("domain", (domain.name for domain in domains))
    _unique("method", (name for domain in domains for row in domain.operations if (name := method_name(domain, row))))
    for domain in domains:
        if domain.name in RESERVED:
            raise ValueError(f"the name {domain.name} belongs to the core")
        if domain.name and not domain.name.replace("-", "").isalnum():
            raise ValueError(f"{domain.name!r} is not a word of letters, digits and -")
        _unique(f"command of {domain.name or 'the core'}", (row.name for row in domain.operations if row.name))
        for row in domain.operations:
            fields = row.params.__struct_encode_fields__
            if row.run is not None and row.serve is not None:
                raise ValueError(f"{domain.name} {row.name}: has both run and serve")
            if domain.name and row.run is None:
                raise ValueError(f"{domain.name} {row.name}: has no run")
            if domain.name and row.method and not row.method.startswith(domain.name + "."):
                raise ValueError(f"{domain.name} {row.name}: its method {row.method} is outside {domain.name}")
            if row.kind is Kind.WRITER and domain.name and not domain.takes_over:
                taken = {"if_rev", "call", "dry_run"}.intersection(fields)
                if taken:
                    raise ValueError(f"{domain.name} {row.name}: {', '.join(sorted(taken))} is every writer's own")


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the {what} {name} stands there twice")
        seen.add(name)
