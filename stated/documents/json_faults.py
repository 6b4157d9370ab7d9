"""Where a text is not JSON, and what is wrong with it, in words for the person who edited the file.

The decoder in `json_values` decides *whether* a text is JSON; this module is asked only when it said no. What may be
relied on: `find` gives the first fault in the text, with line and column from 1 (columns count characters, a BOM counts
as nothing), and reads each character once, whatever the text holds. `None` means that the text is fine by these rules.

Beyond the grammar, these are faults, since no value could carry them to the next program that reads the file:
half of a character pair (`\\ud800` alone), nesting deeper than `MAX_DEPTH`, and numbers longer than `MAX_DIGITS`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "Problem", "find", "number_fits"]

MAX_DEPTH = 64
"""Containers within containers. The state formats need five; every JSON reader in use manages this many."""

MAX_DIGITS = 4300
"""Digits of a number (a minus counts as one), and its largest power of ten. Python refuses to turn longer integers into
text, so a longer number could be read and never be written again."""


class Problem(NamedTuple):
    """The first thing that is wrong with a text."""

    message: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_WORD = re.compile(r"[^\s,:\[\]{}\"]+")
_NOT_FINITE = re.compile(r"-?(?:NaN|Infinity|nan|inf(?:inity)?)")
_STRING_BODY = re.compile(
    r"""(?: [^"\\\x00-\x1f\ud800-\udfff]+
          | \\["\\/bfnrt]
          | \\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}
          | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
        )*+""",
    re.VERBOSE,
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_NAMES = {"{": "object", "[": "list"}
_CLOSERS = {"{": "}", "[": "]"}
_VALUE_STARTS = frozenset('"{[-0123456789tfn')


def number_fits(text: str) -> bool:
    """Whether a number spelled this way stays within `MAX_DIGITS`, both in length and in size."""
    if len(text) <= MAX_DIGITS and "e" not in text and "E" not in text:
        return True
    mantissa = _EXPONENT.split(text)[0]
    found = _EXPONENT.search(text)
    if len(mantissa) > MAX_DIGITS or (found and len(found[1]) > 20):
        return False
    # The power of ten of the first digit that counts: 0.001e5 is 1e2.
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    power = len(whole) - 1
    if whole == "0" and fraction:
        power = -1 - (len(fraction) - len(fraction.lstrip("0"))) if fraction.strip("0") else -len(fraction)
    return abs(power + int(found[1] if found else 0)) < MAX_DIGITS


class _Fault(Exception):
    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


def find(body: bytes) -> Problem | None:
    """The first fault of a JSON text (given without its BOM), or None."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Problem("this is UTF-16; JSON files are UTF-8: save it in that encoding", 1, 1)
    # Bytes that are not UTF-8 become lone surrogates, so that they are met in the order of the text like other faults.
    text = body.decode("utf-8", "surrogateescape")
    if not text.strip(" \t\r\n"):
        return Problem("there is nothing here: a JSON value was expected", 1, 1)
    if not text.strip("\0 \t\r\n"):
        return Problem("there is nothing but NUL bytes here: a write was cut short, as a power loss does", 1, 1)
    try:
        _scan(text)
    except _Fault as fault:
        line, column = _place(text, fault.position)
        return Problem(fault.message, line, column)
    return None


def _place(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _scan(text: str) -> None:
    """Walks through the text with a stack of its own, so that no nesting can exhaust Python's."""
    end = len(text)
    opened: list[int] = []  # where each container that is still open begins
    position = _skip(text, 0)
    while True:
        # Here a value begins.
        character = text[position] if position < end else ""
        if character in ("{", "["):
            opened.append(position)
            if len(opened) > MAX_DEPTH:
                raise _Fault(f"this is nested more than {MAX_DEPTH} levels deep", position)
            inside = _skip(text, position + 1)
            if text[inside : inside + 1] != _CLOSERS[character]:
                position = _key(text, inside, opened) if character == "{" else inside
                continue
            opened.pop()
            position = inside + 1
        else:
            position = _scalar(text, position, opened)
        # Here a value has ended: close what it closes, until a comma asks for the next.
        while True:
            position = _skip(text, position)
            character = text[position : position + 1]
            if not opened:
                if character:
                    raise _Fault(_unexpected(text, position, "there is more text after the end of the value"), position)
                return
            bracket = text[opened[-1]]
            if character == _CLOSERS[bracket]:
                opened.pop()
                position += 1
                continue
            if character != ",":
                raise _between(text, position, opened)
            after = _skip(text, position + 1)
            if text[after : after + 1] in ("}", "]"):
                raise _Fault(f"there is a comma before the closing {text[after]}: JSON allows none there", position)
            position = _key(text, after, opened) if bracket == "{" else after
            break


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _still_open(text: str, position: int, opened: list[int]) -> _Fault:
    begin = opened[-1]
    line, here = _place(text, begin)[0], _place(text, position)[0]
    where = f" of line {line}" if line != here else ""
    return _Fault(f"the text ends too early: the {_NAMES[text[begin]]}{where} is not closed", position)


def _between(text: str, position: int, opened: list[int]) -> _Fault:
    """What is wrong where a comma or a closing bracket should stand."""
    if position >= len(text):
        return _still_open(text, position, opened)
    character = text[position]
    bracket = text[opened[-1]]
    if character in _VALUE_STARTS:
        return _Fault("a comma is missing before this", position)
    if character in "}]":
        line = _place(text, opened[-1])[0]
        closer = _CLOSERS[bracket]
        return _Fault(f"{character} closes nothing: {closer} must close the {_NAMES[bracket]} of line {line}", position)
    return _Fault(_unexpected(text, position, f"a comma or {_CLOSERS[bracket]} was expected"), position)


def _key(text: str, position: int, opened: list[int]) -> int:
    """Reads a key and its colon; gives where the value begins."""
    if position >= len(text):
        raise _still_open(text, position, opened)
    if text[position] != '"':
        raise _Fault(_unexpected(text, position, "a key in double quotes was expected"), position)
    colon = _skip(text, _string(text, position))
    if colon >= len(text):
        raise _still_open(text, colon, opened)
    if text[colon] != ":":
        raise _Fault(_unexpected(text, colon, "a colon was expected after the key"), colon)
    return _skip(text, colon + 1)


def _string(text: str, position: int) -> int:
    """Reads a string from its opening quote; gives the position after its closing one."""
    found = _STRING_BODY.match(text, position + 1)
    stop = found.end() if found else position + 1
    if stop >= len(text):
        raise _Fault("the text ends too early: this string is not closed", position)
    character = text[stop]
    if character == '"':
        return stop + 1
    if character == "\n" or text.startswith("\r\n", stop):
        raise _Fault("this string is not closed before the end of the line", position)
    if character == "\\":
        raise _Fault(_escape(text, stop), stop)
    if character == "\t":
        raise _Fault("a tab inside a string must be written as \\t", stop)
    raise _Fault(_unexpected(text, stop, f"the character U+{ord(character):04X} in a string must be escaped"), stop)


def _escape(text: str, position: int) -> str:
    following = text[position + 1 : position + 2]
    if _SURROGATE.match(text, position):
        return f"{text[position : position + 6]} is half of a character pair and means nothing alone"
    if following == "u":
        return "\\u needs four hexadecimal digits"
    if not following:
        return "the text ends too early, inside a string"
    return 'a backslash in a string must be followed by one of " \\ / b f n r t u; write \\\\ for a backslash'


def _scalar(text: str, position: int, opened: list[int]) -> int:
    """Reads a string, number or word; gives the position after it."""
    if position >= len(text):
        raise _still_open(text, position, opened)
    character = text[position]
    if character == '"':
        return _string(text, position)
    word_found = _WORD.match(text, position)
    word = word_found[0] if word_found else ""
    if word in ("true", "false", "null"):
        return position + len(word)
    if character == "-" or (character.isascii() and character.isdigit()):
        return _number(text, position, word)
    raise _Fault(_unexpected(text, position, "a value was expected"), position)


def _number(text: str, position: int, word: str) -> int:
    found = _NUMBER.match(text, position)
    if found is None or found.end() != position + len(word):
        if _NOT_FINITE.fullmatch(word):
            raise _Fault(_not_finite(word), position)
        stop = found.end() if found else position
        if "\0" in word or any("\ud800" <= letter <= "\udfff" for letter in word):
            raise _Fault(_unexpected(text, stop, f"{_show(word)} is not a number"), stop)
        raise _Fault(f"{_show(word)} is not how JSON writes a number", position)
    if not number_fits(word):
        raise _Fault(f"this number is too long: more than {MAX_DIGITS} digits", position)
    return found.end()


def _not_finite(word: str) -> str:
    return f"{word} is not JSON, though Python's json module writes it: put a number or null in its place"


def _show(word: str) -> str:
    return word if len(word) <= 20 else word[:17] + "..."


def _unexpected(text: str, position: int, expected: str) -> str:
    """What stands at a place where something else was expected; the usual slips are named."""
    character = text[position]
    if character == "\0":
        return "there is a NUL byte here: a write was cut short, as a power loss does"
    if "\udc80" <= character <= "\udcff":
        return "this is not UTF-8: save the file in that encoding"
    if character == "\ufeff":
        return "there is a byte order mark inside the text: delete this invisible character"
    if character in "#/":
        return "JSON has no comments"
    if character == "'":
        return "JSON writes strings in double quotes"
    if character == ",":
        return f"there is a comma too many here: {expected}"
    if text.startswith(("<<<<<<<", "=======", ">>>>>>>", "|||||||"), position):
        return "this is a conflict marker of git: finish the merge first"
    found = _WORD.match(text, position)
    word = found[0] if found else character
    if _NOT_FINITE.fullmatch(word):
        return _not_finite(word)
    if word in _PYTHON_WORDS:
        return f"JSON writes {_PYTHON_WORDS[word]}, not {word}"
    if not character.isprintable():
        return f"{expected}, not the character U+{ord(character):04X}"
    return f"{expected}, not {_show(word)}"
