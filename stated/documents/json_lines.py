"""JSON Lines documents: one JSON object a line.

What may be relied on:

- `parse` never raises, and a bad line costs nothing but itself: it is kept byte for byte, with its number and what is
  wrong with it, and the lines around it are read.
- Lines end in LF or CRLF. The ending is no part of a line's bytes; a BOM at the start of the file is part of the first.
  Blank lines are no lines, but they count.
- A line that is JSON but no object is bad. Logs hold objects; and what a torn write leaves of an object is never one,
  while half of `1234` is `12`.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from stated.documents import json_faults, json_text, json_values
from stated.documents.json_text import NotJson, Unwritable

__all__ = ["JsonLines", "Line", "edit_line", "encode_line", "parse", "replace_line"]


class Line(NamedTuple):
    """A line that is not blank. `value` is shared by all who read the document: do not change it."""

    number: int
    raw: bytes
    """Without its line ending."""
    value: Any
    problem: str | None
    """What is wrong with this line, with the column; its value is then None."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    exists: bool
    raw: bytes
    lines: tuple[Line, ...]

    @property
    def records(self) -> list[tuple[int, Any]]:
        """Number and value of the good lines."""
        return [(number, value) for number, _, value, problem in self.lines if problem is None]

    @property
    def bad(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.problem is not None)

    @property
    def duplicates(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """The good lines that give a key twice, with JSON pointers of those keys. Looked for on each access."""
        found = ((number, json_text.parse(raw).duplicates) for number, raw, _, problem in self.lines if not problem)
        return tuple((number, keys) for number, keys in found if keys)

    @property
    def ends_clean(self) -> bool:
        """Whether a line can be added as it is: the file is empty, or its last line has its ending."""
        return not self.raw or self.raw.endswith(b"\n")


def parse(raw: bytes | None) -> JsonLines:
    """Reads a document; None means that there is no file. An empty file is a log without lines."""
    return JsonLines(exists=raw is not None, raw=raw or b"", lines=tuple(_lines(raw or b"")))


def _lines(raw: bytes) -> Iterator[Line]:
    decode = json_values.decode
    carriage_returns = b"\r" in raw
    for number, line in enumerate(raw.split(b"\n"), 1):
        if carriage_returns:
            line = line.removesuffix(b"\r")
        body = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            value = decode(body)
        except ValueError:
            if body.strip(b" \t\r"):
                problem = json_faults.find(body)
                yield Line(number, line, None, f"column {problem.column}: {problem.message}" if problem else "not JSON")
        else:
            if type(value) is dict:
                yield Line(number, line, value, None)
            else:
                yield Line(number, line, None, f"a line must be a JSON object, and this is {_kind(value)}")


def _kind(value: Any) -> str:
    names = {bool: "true or false", str: "a string", list: "a list", type(None): "null"}
    return names.get(type(value), "a number")


def encode_line(value: Any) -> bytes:
    """A new line with its ending, without any space. NotJson when the value is no JSON object."""
    if type(value) is not dict:
        raise NotJson("a line must be a JSON object", "")
    return json_values.encode(value) + b"\n"


def edit_line(doc: JsonLines, number: int, value: Any) -> bytes:
    """The bytes of one line (without its ending) with this value, changed as little as `json_text.edit` does.

    Unwritable when there is no such line, or when it is bad or gives a key twice.
    """
    if type(value) is not dict:
        raise NotJson("a line must be a JSON object", "")
    place = bisect_left(doc.lines, number, key=attrgetter("number"))
    if place == len(doc.lines) or doc.lines[place].number != number:
        raise Unwritable(f"there is no line {number}")
    line = doc.lines[place]
    if line.problem is not None:
        raise Unwritable(f"line {number} cannot be read ({line.problem})")
    try:
        return json_text.edit(json_text.parse(line.raw), value, one_line=True)
    except Unwritable as error:
        raise Unwritable(f"line {number} cannot be rewritten: {error.reason}") from None


def replace_line(raw: bytes, number: int, old: bytes, new: bytes) -> bytes | None:
    """The file with `new` in the place of `old`, both without their ending; None when the line is not `old`."""
    if b"\n" in new:
        raise ValueError("a line is replaced by one line")
    lines = raw.split(b"\n")
    if not 1 <= number <= len(lines):
        return None
    line = lines[number - 1]
    bare = line.removesuffix(b"\r")
    if bare != old:
        return None
    lines[number - 1] = new + line[len(bare) :]
    return b"\n".join(lines)
