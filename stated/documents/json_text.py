"""JSON documents: read them, and change members without touching any other byte.

What may be relied on:

- `parse` never raises. A file that is empty or not JSON is a document with a `problem` (corrupt is not empty); one that
  gives a key twice is readable (the last one wins) and lists those keys.
- `edit` gives bytes whose value is the new value and in which everything that did not change stands as it stood: order,
  unknown members, spelling of numbers and strings, spaces, indentation, line endings, BOM, end of file. What is new is
  laid out like its neighbours. It depends on the document's bytes alone: a caller that changed `doc.value` in place
  gets the right answer too.
- A member is unchanged when its new value is equal and of the same kind: `1`, `1.0` and `true` differ, `1.10` and `1.1`
  do not.
- Work is linear in the size of the document, for each of its at most 64 levels.

How `edit` works: each container is cut into its members (the decoder hands out the source bytes of each value, so this
is quick), members are compared by their compact encoding, and only a member that differs is cut up in turn. A container
is then put together again from the old pieces and the new ones.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from stated.documents import json_faults, json_values
from stated.documents.json_faults import MAX_DEPTH, Problem
from stated.documents.json_values import NotJson, compact

__all__ = ["JsonText", "NotJson", "Problem", "Unwritable", "dumps", "edit", "encode", "parse"]


class Unwritable(ValueError):
    """The document must not be rewritten as it is. `reason` is for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON document. `value` is shared by all who read the document: do not change it."""

    exists: bool
    raw: bytes
    value: Any
    """None where there is no value: look at `ok` first."""
    problem: Problem | None
    duplicates: tuple[str, ...]
    """JSON pointers of the keys that one object gives more than once."""

    @property
    def ok(self) -> bool:
        return self.exists and self.problem is None


_ABSENT = JsonText(exists=False, raw=b"", value=None, problem=None, duplicates=())


def parse(raw: bytes | None) -> JsonText:
    """Reads a document; None means that there is no file."""
    if raw is None:
        return _ABSENT
    body = raw.removeprefix(codecs.BOM_UTF8)
    try:
        value = json_values.decode(body)
    except ValueError as error:
        problem = json_faults.find(body) or Problem(f"this is not JSON: {error}", 1, 1)
        return JsonText(exists=True, raw=raw, value=None, problem=problem, duplicates=())
    duplicates = json_values.duplicate_keys(body, value)
    return JsonText(exists=True, raw=raw, value=value, problem=None, duplicates=duplicates)


def encode(value: Any) -> bytes:
    """A new file: two spaces, UTF-8, a line feed at the end. NotJson when the value is not JSON."""
    return msgspec.json.format(json_values.encode(value), indent=2) + b"\n"


def dumps(value: Any) -> bytes:
    """One line without any space and without its end, for answers. NotJson when the value is not JSON."""
    # Answers wrap documents, so they may be deeper; every reader of JSON in use manages this depth too.
    return json_values.encode(value, depth=2 * MAX_DEPTH)


def edit(doc: JsonText, value: Any, *, one_line: bool = False) -> bytes:
    """The document's bytes with this value. Unwritable for a document with a problem or with duplicate keys.

    `one_line` is for documents that are a line of a larger file: whatever is new contains no line break.
    """
    if not doc.exists:
        return dumps(value) if one_line else encode(value)
    if doc.problem:
        raise Unwritable(f"it is not JSON ({doc.problem})")
    if doc.duplicates:
        raise Unwritable(f"it gives a key twice ({', '.join(doc.duplicates)}), and only one of the two could be kept")
    wanted = json_values.encode(value)
    body = doc.raw.removeprefix(codecs.BOM_UTF8)
    old = json_values.reread(body)
    if compact(old) == wanted:
        return doc.raw
    text = body.strip(b" \t\r\n")
    begin = doc.raw.index(text)
    layout = _first_layout(doc.raw, one_line)
    return doc.raw[:begin] + _change(text, old, value, layout, b"") + doc.raw[begin + len(text) :]


# How things are laid out ----------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How new members of a container are written."""

    broken: bool
    """One member a line; else all on one line."""
    newline: bytes
    unit: bytes
    """One step of indentation."""
    colon: bytes
    gap: bytes
    """On one line: what follows a comma."""
    object_pad: bytes
    list_pad: bytes
    """On one line: what stands inside the brackets."""
    ascii: bool
    """Strings are written with escapes, as all others of the file are."""


_BEYOND_ASCII = re.compile(rb"\\u(?:00[89a-fA-F]|0[1-9a-fA-F]|[1-9a-fA-F])")


def _first_layout(raw: bytes, one_line: bool) -> _Layout:
    end = raw.find(b"\n")
    return _Layout(
        broken=not one_line,
        newline=b"\r\n" if end > 0 and raw[end - 1] == 0x0D else b"\n",
        unit=b"  ",
        colon=b":" if one_line else b": ",
        gap=b"" if one_line else b" ",
        object_pad=b"",
        list_pad=b"",
        ascii=raw.isascii() and _BEYOND_ASCII.search(raw) is not None,
    )


class _Member(NamedTuple):
    """A member of an object or an element of a list: `lead key colon text tail`, then a comma or a bracket."""

    lead: bytes
    key: bytes
    colon: bytes
    text: bytes
    tail: bytes


_AS_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_AS_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT_HEAD = re.compile(rb'([ \t\r\n]*)("[^"\\]*(?:\\.[^"\\]*)*")([ \t\r\n]*:[ \t\r\n]*)')
_LIST_HEAD = re.compile(rb"([ \t\r\n]*)()()")
_TAIL = re.compile(rb"([ \t\r\n]*)[,\]}]")


def _cut(text: bytes) -> list[_Member]:
    """Cuts the text of a container (valid, without duplicate keys) into its members."""
    is_object = text.startswith(b"{")
    values: Iterable[msgspec.Raw] = _AS_OBJECT.decode(text).values() if is_object else _AS_LIST.decode(text)
    pattern = _OBJECT_HEAD if is_object else _LIST_HEAD
    members = []
    position = 1
    for value in values:
        head = pattern.match(text, position)
        assert head, "the decoder found a member here"
        source = bytes(value)
        tail = _TAIL.match(text, head.end() + len(source))
        assert tail, "the decoder found the end of a member here"
        members.append(_Member(head[1], head[2], head[3], source, tail[1]))
        position = tail.end()
    return members


def _indent_of(space: bytes) -> bytes | None:
    """What follows the last line break, if there is one."""
    _, newline, indent = space.rpartition(b"\n")
    return indent if newline else None


def _layout_of(members: Sequence[_Member], outer: _Layout, indent: bytes) -> tuple[_Layout, bytes, bytes]:
    """How these members are laid out; the indentation of their closing bracket, and their own."""
    if not members:
        return outer, indent, indent + outer.unit if outer.broken else indent
    first, last = members[0], members[-1]
    closing = _indent_of(last.tail)
    own = indent if closing is None else closing
    colon = outer.colon if b"\n" in last.colon else last.colon or outer.colon
    inner = next((found for member in members if (found := _indent_of(member.lead)) is not None), None)
    if inner is not None:
        unit = inner.removeprefix(own) if inner.startswith(own) and inner != own else outer.unit
        return outer._replace(broken=True, unit=unit, colon=colon), own, inner
    # On one line. A lone member shows no comma; a space after its colon makes one after a comma likely.
    alone = b" " if colon.endswith(b" ") else b""
    gap = members[1].lead if len(members) > 1 else alone if first.colon else outer.gap
    flat = outer._replace(broken=False, colon=colon, gap=gap)
    flat = flat._replace(object_pad=first.lead) if first.key else flat._replace(list_pad=first.lead)
    return flat, own, own


def _render(value: Any, layout: _Layout, indent: bytes) -> bytes:
    """A new value; `indent` is that of the line it begins on."""
    kind = type(value)
    if kind is str and layout.ascii:
        return json.dumps(value).encode()
    if kind not in (dict, list, tuple):
        return compact(value)
    opening, closing, pad = (b"{", b"}", layout.object_pad) if kind is dict else (b"[", b"]", layout.list_pad)
    if not value:
        return opening + closing
    inner = indent
    start, comma, end = pad, b"," + layout.gap, pad
    if layout.broken:
        inner = indent + layout.unit
        start, comma, end = layout.newline + inner, b"," + layout.newline + inner, layout.newline + indent
    if kind is dict:
        parts = [_render(key, layout, b"") + layout.colon + _render(item, layout, inner) for key, item in value.items()]
    else:
        parts = [_render(item, layout, inner) for item in value]
    return opening + start + comma.join(parts) + end + closing


# Changing a value -----------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A member of the new container; `was` is its place in the old one, None if it is new."""

    was: int | None
    head: bytes
    text: bytes


_FRACTIONS = (Decimal, float)


def _kind(value: Any) -> type:
    """A caller's tuple is a list."""
    return list if type(value) is tuple else type(value)


def _change(text: bytes, old: Any, new: Any, layout: _Layout, indent: bytes) -> bytes:
    """The text of `old`, changed so that it means `new`."""
    kind = _kind(new)
    if type(old) is dict and kind is dict:
        return _Container(text, list(old.values()), layout, indent).with_members(list(old), new)
    if type(old) is list and kind is list:
        return _Container(text, old, layout, indent).with_elements(new)
    if type(old) in _FRACTIONS and kind in _FRACTIONS and old == Decimal(str(new)):
        return text
    return _render(new, layout, indent)


class _Container:
    """One object or list on its way from the old text to the new one."""

    def __init__(self, text: bytes, values: list[Any], outer: _Layout, indent: bytes) -> None:
        self.opening = text[:1]
        self.closing = text[-1:]
        self.values = values
        self.members = _cut(text)
        self.layout, self.own, self.inner = _layout_of(self.members, outer, indent)
        self.samples: dict[type, tuple[_Layout, bytes]] = {}

    def with_members(self, keys: list[str], new: dict[str, Any]) -> bytes:
        # A new member comes after the one it follows in the new value; the old ones keep their order.
        places = {key: number for number, key in enumerate(keys)}
        added: dict[str | None, list[str]] = {}
        before: str | None = None
        for key in new:
            if key in places:
                before = key
            else:
                added.setdefault(before, []).append(key)
        pieces: list[_Piece] = []
        for place in (None, *keys):
            if place is not None and place in new:
                pieces.append(self.changed(places[place], new[place]))
            pieces.extend(self.new(new[key], key) for key in added.get(place, ()))
        return self.join(pieces)

    def with_elements(self, new: Sequence[Any]) -> bytes:
        pieces = []
        for index, place, equal in _pair(self.values, new):
            if index is not None and equal:
                pieces.append(_Piece(index, b"", self.members[index].text))
            elif place is not None:
                pieces.append(self.new(new[place]) if index is None else self.changed(index, new[place]))
        return self.join(pieces)

    def changed(self, index: int, value: Any) -> _Piece:
        member, old = self.members[index], self.values[index]
        text = member.text
        if compact(old) != compact(value):
            # A container that stays one shows by itself how it is laid out; for anything else, its neighbours do.
            stays = old and _kind(old) is _kind(value) and _kind(old) in (dict, list)
            layout, indent = (self.layout, self.inner) if stays else self.like_neighbours(value)
            text = _change(text, old, value, layout, indent)
        return _Piece(index, member.key + member.colon, text)

    def new(self, value: Any, key: str | None = None) -> _Piece:
        layout, indent = self.like_neighbours(value)
        head = b"" if key is None else _render(key, layout, b"") + self.layout.colon
        return _Piece(None, head, _render(value, layout, indent))

    def like_neighbours(self, value: Any) -> tuple[_Layout, bytes]:
        """The layout for a new value in this container: that of the last one of the same kind, if there is one."""
        kind = _kind(value)
        if kind not in (dict, list) or not value:
            return self.layout, self.inner
        if kind not in self.samples:
            self.samples[kind] = self.layout, self.inner
            for member, old in zip(reversed(self.members), reversed(self.values), strict=True):
                if old and type(old) is kind:
                    layout, own, _ = _layout_of(_cut(member.text), self.layout, self.inner)
                    self.samples[kind] = layout, own
                    break
        return self.samples[kind]

    def join(self, pieces: Sequence[_Piece]) -> bytes:
        if not pieces:
            return self.opening + self.closing
        first, between, tail, last = self.spaces()
        final = len(self.members) - 1
        out = [self.opening]
        for number, (was, head, text) in enumerate(pieces):
            if was:
                between = self.members[was].lead
            # The space after the opening bracket and the one before the closing bracket belong to the brackets.
            out += (first if number == 0 else between if was else _plain(between, self.layout.newline), head, text)
            if number == len(pieces) - 1:
                out.append(last)
            else:
                out += (tail if was is None or was == final else self.members[was].tail, b",")
        return b"".join([*out, self.closing])

    def spaces(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The spaces after the opening bracket, after a comma, before a comma, before the closing bracket."""
        layout, members = self.layout, self.members
        if not members:
            if layout.broken:
                return layout.newline + self.inner, layout.newline + self.inner, b"", layout.newline + self.own
            pad = layout.object_pad if self.opening == b"{" else layout.list_pad
            return pad, layout.gap, b"", pad
        if len(members) > 1:
            return members[0].lead, members[1].lead, members[-2].tail, members[-1].tail
        between = members[0].lead if layout.broken else layout.gap
        return members[0].lead, between, b"", members[0].tail


def _plain(space: bytes, newline: bytes) -> bytes:
    """The space before a new member: a blank line above its neighbour is not repeated."""
    indent = _indent_of(space)
    return space if indent is None else newline + indent


# Which element of a list became which ---------------------------------------------------------------------------------


def _pair(old: Sequence[Any], new: Sequence[Any]) -> Iterator[tuple[int | None, int | None, bool]]:
    """(old index, new index, whether equal) in order; None: only in the other list.

    Equal elements are found first; what lies between them is paired by name (`id`, `name`, else the first member), and
    what still lies between those by position.
    """
    keys = [*map(compact, old)], [*map(compact, new)]
    for i, j, i_end, j_end in _gaps(*keys):
        if i < i_end or j < j_end:
            names = [*map(_name, old[i:i_end])], [*map(_name, new[j:j_end])]
            for k, m, k_end, m_end in _gaps(*names):
                for index, place in itertools.zip_longest(range(i + k, i + k_end), range(j + m, j + m_end)):
                    yield index, place, False
                if i + k_end < i_end and j + m_end < j_end:
                    yield i + k_end, j + m_end, False
        if i_end < len(old) and j_end < len(new):
            yield i_end, j_end, True


def _name(value: Any) -> Hashable:
    """What tells an element from its neighbours even after a change; equal to nothing else if nothing does."""
    if type(value) is dict:
        for key in ("id", "name", *itertools.islice(value, 1)):
            if type(value.get(key)) in (str, int):
                return key, value[key]
    return object()


def _gaps(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges between equal elements, `(i, j, i_end, j_end)`, the last one ending at the ends; many are empty."""
    i = j = 0
    for i_end, j_end in [*_equal(old, new), (len(old), len(new))]:
        yield i, j, i_end, j_end
        i, j = i_end + 1, j_end + 1


def _equal(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of equal elements, rising on both sides: those at both ends, and between them those that occur once."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    once = Counter(middle_old)
    once_new = Counter(middle_new)
    places = {key: place for place, key in enumerate(middle_old, start) if once[key] == 1}
    shared = [(places[key], j) for j, key in enumerate(middle_new, start) if once_new[key] == 1 and key in places]
    return [
        *((k, k) for k in range(start)),
        *_rising(shared),
        *((len(old) - k, len(new) - k) for k in range(end, 0, -1)),
    ]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of the pairs whose first numbers rise (the second ones do)."""
    tops: list[int] = []  # the smallest first number that ends a rising part of each length
    owners: list[int] = []  # the pair that it belongs to
    previous: list[int] = []
    for number, (first, _) in enumerate(pairs):
        length = bisect_left(tops, first)
        previous.append(owners[length - 1] if length else -1)
        tops[length : length + 1] = [first]
        owners[length : length + 1] = [number]
    chosen = []
    number = owners[-1] if owners else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = previous[number]
    return chosen[::-1]
