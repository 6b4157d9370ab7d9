"""One value to bytes and back: exactly, or refused with its place."""

from __future__ import annotations

import enum
import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from stated.documents.json_faults import MAX_DEPTH, MAX_DIGITS
from stated.documents.json_values import NotJson, decode, duplicate_keys, encode, pointer


class Colour(enum.StrEnum):
    RED = "red"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("-18446744073709551617", -18446744073709551617),
        ("1.10", Decimal("1.10")),
        ("1.0", Decimal("1.0")),
        ("0.1", Decimal("0.1")),
        ("1E+400", Decimal("1E+400")),
        ('"\u2028\x7fé😀"', "\u2028\x7fé😀"),
        ("[true,false,null]", [True, False, None]),
    ],
)
def test_exact_both_ways(text: str, value: Any) -> None:
    read = decode(text.encode())

    assert read == value
    assert type(read) is type(value)
    assert encode(value) == text.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.008, "0.008"),
        ((1, (2,)), "[1,[2]]"),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
    ],
)
def test_writes_what_callers_make(value: Any, text: str) -> None:
    assert encode(value) == text.encode()


REFUSED = [
    (math.nan, "", "nan is not a JSON number"),
    ({"a": [0, math.inf]}, "/a/1", "inf is not a JSON number"),
    ({"a": {"b": Decimal("NaN")}}, "/a/b", "NaN is not a JSON number"),
    ([Decimal("-Infinity")], "/0", "-Infinity is not a JSON number"),
    ([Decimal("1e4300")], "/0", "a number beyond 4300 digits cannot be written"),
    ({"a": 10**MAX_DIGITS}, "/a", "an integer of more than 4300 digits cannot be written"),
    ({"a": {1: 2}}, "/a", "the key 1 is a int: JSON keys are strings"),
    ({"a": {"x": 1, None: 2}}, "/a", "the key None is a NoneType: JSON keys are strings"),
    ({"a/b~c": "\ud800"}, "/a~1b~0c", "half of a character pair cannot be written as UTF-8"),
    ([{"\udc80": 1}], "/0", "the key '\\udc80' holds half of a character pair"),
    ({"when": date(2026, 1, 1)}, "/when", "a date is not a JSON value"),
    ([{1}], "/0", "a set is not a JSON value"),
    ([b"x"], "/0", "a bytes is not a JSON value"),
    ([Colour.RED], "/0", "a Colour is not a JSON value"),
    ([10 ** (MAX_DIGITS - 1), 3, False, math.nan], "/3", "nan is not a JSON number"),
    (nested(MAX_DEPTH + 1), "/0" * MAX_DEPTH, "nested more than 64 levels deep"),
]


@pytest.mark.parametrize(("value", "place", "reason"), REFUSED, ids=[row[2] for row in REFUSED])
def test_refuses_with_the_place(value: Any, place: str, reason: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode(value)

    assert caught.value.pointer == place
    assert caught.value.reason == reason
    assert str(caught.value) == f"{place or 'the value'}: {reason}"


def test_the_first_of_several_faults_is_named() -> None:
    with pytest.raises(NotJson, match=r"^/b/0: "):
        encode({"a": 1, "b": [math.nan, {1: 1}], "c": "\ud800"})


def test_a_cycle_is_too_deep() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(NotJson, match="nested more than 64 levels deep"):
        encode(value)


def test_depth_has_the_same_limit_both_ways() -> None:
    body = encode(nested(MAX_DEPTH))

    assert decode(body) == nested(MAX_DEPTH)
    with pytest.raises(ValueError, match="nested too deep"):
        decode(b"[" + body + b"]")


def test_integers_have_the_same_limit_both_ways() -> None:
    largest = 10**MAX_DIGITS - 1

    assert decode(encode(largest)) == largest
    assert decode(encode(-(largest // 10))) == -(largest // 10)
    with pytest.raises(NotJson):
        encode(-largest)


def test_wide_is_not_deep() -> None:
    value = [{"a": [nested(60)]} for _ in range(100)]

    assert decode(encode(value)) == value


def test_what_looks_like_a_fault_and_is_none() -> None:
    value = ["-" + "1" * MAX_DIGITS]

    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1, "b": {"a": 1}}', ()),
        ('{"a": ":", "b": "::\\":"}', ()),
        ('{"\\u003a": 1, ":": 2}', ("/:",)),
        ('{"\\u003a": "x", "b": ":"}', ()),
        ('{"a": 1, "a": 1}', ("/a",)),
        ('{"a": 1, "\\u0061": 2, "a": 3}', ("/a",)),
        ('{"x": [{}, {"a/b": 1, "a/b": 2, "~": 1, "~": 1}]}', ("/x/1/a~1b", "/x/1/~0")),
        ('{"a": {"b": 1, "b": 2}, "c": 1, "c": [{"d": 1, "d": 2}]}', ("/c", "/a/b", "/c/0/d")),
        ('{"": 1, "": 2}', ("/",)),
        ("[[1, 1], 123456789012345678901234567890]", ()),
    ],
)
def test_duplicate_keys(text: str, found: tuple[str, ...]) -> None:
    assert duplicate_keys(text.encode(), decode(text.encode())) == found


def test_pointer() -> None:
    assert pointer(["a", 0, "b/c", "~"]) == "/a/0/b~1c/~0"
    assert pointer([]) == ""
