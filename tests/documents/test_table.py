"""Values as text for a person: nothing is cut, nothing breaks a word, nothing reaches the terminal as a command."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stated.documents import table

WRAPS: list[tuple[str, int, list[str]]] = [
    ("", 10, [""]),
    ("one two", 7, ["one two"]),
    ("one two", 6, ["one", "two"]),
    ("a 0123456789abcdef b", 8, ["a", "0123456789abcdef", "b"]),
    ("日本 日本", 5, ["日本", "日本"]),
]


@pytest.mark.parametrize(("text", "width", "expected"), WRAPS)
def test_lines_break_between_words_only(text: str, width: int, expected: list[str]) -> None:
    assert table.wrap(text, width) == expected


ROWS: list[tuple[list[str], list[list[Any]], int, list[str]]] = [
    (["a", "b"], [[1, None], [True, "x"]], 20, ["a    b", "1    -", "yes  x"]),
    (["id", "note"], [["i", "word " * 8]], 30, ["id  note", "i   word word word word word", "    word word word"]),
    (["id", "note"], [["0123456789", "w x"], ["9", ""]], 12, ["id:", "  0123456789", "note: w x", "", "id: 9"]),
    ([], [[], []], 20, ["(2 empty)"]),
]


@pytest.mark.parametrize(("head", "rows", "width", "expected"), ROWS)
def test_records_stand_side_by_side_where_they_have_room(
    head: list[str], rows: list[list[Any]], width: int, expected: list[str]
) -> None:
    assert table.grid(head, rows, width) == expected


def test_a_long_name_stands_above_its_value() -> None:
    name = "n" * 30
    assert table.pairs([(name, "v"), ("a", 1)], 80) == [f"{name}:", "  v", "a: 1"]


words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


@given(st.dictionaries(words, st.lists(words, min_size=1, max_size=30).map(" ".join), min_size=1), st.integers(20, 90))
def test_every_word_is_there_whole_at_any_width(value: dict[str, str], width: int) -> None:
    lines = table.draw(value, width)
    shown = [word for line in lines for word in line.split()]
    given = [word for name, text in value.items() for word in (f"{name}:", *text.split())]
    assert shown == given
    assert all(table.width_of(line) <= width or len(line.split()) == 1 for line in lines)
