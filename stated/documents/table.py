"""Values as text for a person at a terminal. Pure.

What may be relied on:

- Nothing is cut: a long value goes on in the next line, and a list of records that has no room beside each other is
  shown one below the other.
- No line is wider than asked, except by a single word: a path, an id or a key stays whole, so that it can be copied.
- No control character, escape sequence or sign that turns the direction of writing comes through.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

NAMES: Final = 24
"""A name wider than this stands on a line of its own, above its value."""

LAST: Final = 24
"""The least room in which a table's last column is still worth reading."""


def clean(text: str) -> str:
    """One line."""
    return text if text.isprintable() else "".join(map(visible, text))


def visible(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() else char.encode("unicode_escape").decode("ascii")


def width_of(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text; words stay whole."""
    if width_of(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width_of(line) + 1 + width_of(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line or not lines else lines


def cell(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(str(key))}={cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value) or "-"
    return clean(str(value))


def draw(value: Any, width: int) -> list[str]:
    """Any JSON value."""
    if isinstance(value, Mapping):
        return pairs(value.items(), width)
    if isinstance(value, list | tuple):
        if not value:
            return ["(none)"]
        if all(isinstance(row, Mapping) for row in value):
            head = list(dict.fromkeys(key for row in value for key in row))
            return grid(head, [[row.get(key, "") for key in head] for row in value], width)
        return [line for item in value for line in wrap(cell(item), width)]
    return wrap(cell(value), width)


def pairs(rows: Iterable[tuple[str, Any]], width: int) -> list[str]:
    """Names and values; a value that holds records stands below its name."""
    named = [(clean(str(name)), value) for name, value in rows]
    if not named:
        return ["(nothing)"]
    left = max((size for name, _ in named if (size := width_of(name)) <= NAMES), default=0) + 2
    lines: list[str] = []
    for name, value in named:
        nested = (isinstance(value, Mapping) and value) or (
            isinstance(value, list | tuple) and value and all(isinstance(row, Mapping) for row in value)
        )
        start = f"{name}:"
        if nested:
            lines += [start, *(f"  {line}".rstrip() for line in draw(value, max(18, width - 2)))]
            continue
        text = cell(value)
        beside = wrap(text, max(width - left, 8))
        if width_of(start) + 1 > left or any(width_of(line) > width - left for line in beside):
            lines += [start, *(f"  {line}".rstrip() for line in wrap(text, width - 2))]
        else:
            lines.append((start + " " * (left - width_of(start)) + beside[0]).rstrip())
            lines += [" " * left + line for line in beside[1:]]
    return lines


def grid(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> list[str]:
    """Records side by side, the last column in several lines where it must; or one below the other."""
    if not head:
        return [f"({len(rows)} empty)"]
    table = [[clean(str(name)) for name in head], *([cell(value) for value in row] for row in rows)]
    widths = [max(width_of(line[at]) for line in table) for at in range(len(head) - 1)]
    room = width - sum(widths) - 2 * len(widths)
    last = [wrap(line[-1], max(room, 1)) for line in table]
    needs = max(width_of(text) for lines in last for text in lines)
    wraps = any(len(lines) > 1 for lines in last)
    if needs > room or (wraps and room < LAST):
        blocks = [pairs([(name, row[at]) for at, name in enumerate(head) if row[at] != ""], width) for row in rows]
        return [line for at, block in enumerate(blocks) for line in ([""] if at else []) + block]
    lines: list[str] = []
    for line, texts in zip(table, last, strict=True):
        start = "".join(text + " " * (size - width_of(text) + 2) for text, size in zip(line, widths, strict=False))
        lines.append((start + texts[0]).rstrip())
        lines += [" " * (sum(widths) + 2 * len(widths)) + text for text in texts[1:]]
    return lines
