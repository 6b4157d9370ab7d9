"""One JSON value <-> bytes, exactly.

What may be relied on:

- `decode` gives integers as `int` of any size and all other numbers as `decimal.Decimal` as written (`1.10` stays
  `1.10`), so that `compact` writes the same number back. It raises ValueError for everything that `json_faults` calls a
  fault, and for nothing else.
- `encode` refuses what JSON cannot hold (NaN, keys that are no strings, half a character pair, other types), naming the
  place by its JSON pointer. What it lets pass, `decode` reads.
- Floats are allowed in values that are written: they get their shortest spelling.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, NoReturn

import msgspec

from stated.documents import json_faults
from stated.documents.json_faults import MAX_DEPTH, MAX_DIGITS

__all__ = ["NotJson", "compact", "decode", "duplicate_keys", "encode", "pointer", "reread"]


class NotJson(ValueError):
    """A value that JSON cannot hold. `pointer` is its place (a JSON pointer, empty for the whole value)."""

    def __init__(self, reason: str, pointer: str) -> None:
        super().__init__(f"{pointer or 'the value'}: {reason}")
        self.reason = reason
        self.pointer = pointer


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text} is out of range") from None
    # Almost all numbers are short; only the others are looked at closely.
    if (len(text) > 20 or not -1000 < number.adjusted() < 1000) and not json_faults.number_fits(text):
        raise ValueError(f"{text} is out of range")
    return number


_DECODER = msgspec.json.Decoder(float_hook=_number)
_ENCODER = msgspec.json.Encoder(decimal_format="number")

compact = _ENCODER.encode
"""`encode` for values already known to be JSON. Equal bytes mean equal values, equally spelled and ordered."""


reread = _DECODER.decode
"""`decode` for texts that it has accepted before."""


def decode(body: bytes) -> Any:
    """The value of a JSON text without BOM. ValueError (without a useful message) when it is not JSON."""
    try:
        value = _DECODER.decode(body)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Each level needs its own opening bracket, so most texts need no walk.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise ValueError("nested too deep")
    return value


def _deeper_than(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def pointer(parts: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a place."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


# What JSON cannot hold ------------------------------------------------------------------------------------------------

_ONLY_TEXT = {str}
_PLAIN = {str, int, bool, NoneType}


_LONG_NEGATIVE = re.compile(rb"-[0-9]{%d}" % MAX_DIGITS)
"""The encoder does not count the minus, the decoder does: this integer would be written and never read."""


def encode(value: Any, *, depth: int = MAX_DEPTH) -> bytes:
    """The bytes of a value, without any space. Raises NotJson when it cannot be written, and read again, as JSON."""
    # Two passes: the first is quick and knows no places, the second runs only when there is something to say.
    if not _seems_fine(value, depth):
        _explain(value, depth)
    try:
        body = compact(value)
    except (ValueError, RecursionError):
        # Half a character pair, or an integer too long: only the encoder looks into each string and integer.
        _explain(value, depth)
        raise  # pragma: no cover - Python was started with a lower limit on digits than its own
    if len(body) > MAX_DIGITS and _LONG_NEGATIVE.search(body):
        _explain(value, depth)
    return body


def _seems_fine(value: Any, limit: int) -> bool:
    level: list[Any] = [[value]]
    for _ in range(limit + 1):
        deeper: list[Any] = []
        for container in level:
            items: Iterable[Any] = container
            if type(container) is dict:
                if container and set(map(type, container)) != _ONLY_TEXT:
                    return False
                items = container.values()
            if _PLAIN.issuperset(map(type, items)):
                continue
            for item in items:
                kind = type(item)
                if kind is dict or kind is list or kind is tuple:
                    deeper.append(item)
                elif kind not in _PLAIN and _scalar_fault(item):
                    return False
        if not deeper:
            return True
        level = deeper
    return False


def _scalar_fault(item: Any) -> str | None:
    """Why this scalar cannot be written, or None."""
    kind = type(item)
    if kind is str:
        return None if _encodable(item) else "half of a character pair cannot be written as UTF-8"
    if kind is int:
        # The exact limit has more than 14000 bits, and most integers are nowhere near.
        if item.bit_length() < 3 * MAX_DIGITS or -(10 ** (MAX_DIGITS - 1)) < item < 10**MAX_DIGITS:
            return None
        return f"an integer of more than {MAX_DIGITS} digits cannot be written"
    if kind is bool or item is None:
        return None
    if kind is float:
        return None if math.isfinite(item) else f"{item} is not a JSON number"
    if kind is Decimal:
        if not item.is_finite():
            return f"{item} is not a JSON number"
        return None if json_faults.number_fits(str(item)) else f"a number beyond {MAX_DIGITS} digits cannot be written"
    return f"a {kind.__name__} is not a JSON value"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain(value: Any, limit: int) -> None:
    """Raises NotJson for the first fault, in the value's order; returns when there is none."""
    places: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while places:
        item, place = places.pop()
        kind = type(item)
        if kind not in (dict, list, tuple):
            fault = _scalar_fault(item)
            if fault:
                _refuse(fault, place)
            continue
        if len(place) >= limit:
            _refuse(f"nested more than {limit} levels deep", place)
        if kind is dict:
            for key in item:
                if type(key) is not str:
                    _refuse(f"the key {key!r} is a {type(key).__name__}: JSON keys are strings", place)
                if not _encodable(key):
                    _refuse(f"the key {key!r} holds half of a character pair", place)
        inside = item.items() if kind is dict else enumerate(item)
        places.extend(reversed([(child, (*place, name)) for name, child in inside]))


def _refuse(reason: str, place: tuple[str | int, ...]) -> NoReturn:
    raise NotJson(reason, pointer(place))


# Keys given twice -----------------------------------------------------------------------------------------------------


class _Members(list[Any]):
    """The members of an object as pairs; a list is a JSON list."""


def duplicate_keys(body: bytes, value: Any) -> tuple[str, ...]:
    """JSON pointers of keys that one object gives more than once. `value` is what `decode` made of `body`."""
    # Each member has one colon. The value lost the earlier of two equal keys, and what was below it; so if its text has
    # as many colons as the file, none was lost. Colons in strings count on both sides, unless spelled \u003a.
    if body.count(b":") == compact(value).count(b":") and b"\\u003" not in body:
        return ()
    tree = json.loads(body.decode(), object_pairs_hook=_Members, parse_int=str, parse_float=str)
    found: dict[str, None] = {}
    places: list[tuple[Any, tuple[str | int, ...]]] = [(tree, ())]
    while places:
        item, place = places.pop()
        if type(item) is _Members:
            seen: set[str] = set()
            for key, _ in item:
                if key in seen:
                    found[pointer((*place, key))] = None
                seen.add(key)
            places.extend(reversed([(child, (*place, key)) for key, child in item]))
        elif type(item) is list:
            places.extend(reversed([(child, (*place, number)) for number, child in enumerate(item)]))
    return tuple(found)
