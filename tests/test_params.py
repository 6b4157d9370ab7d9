"""`stated.params`: one Struct, spelled as words, as JSON and as a schema."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stated import params
from stated.domain import Caller, Context, Docs, Domain, Kind, Location, Operation, Outcome
from stated.errors import Refused, StatedError, Usage
from stated.params import Control, Words

Meta = msgspec.Meta


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    label: str = ""


class Every(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"since_": "since"}):
    """One field of each kind that a command line can spell."""

    site: Annotated[str, Meta(description="Whose.", min_length=1, extra={"metavar": "ID"})] = "own"
    limit: Annotated[int, Meta(ge=0, extra={"short": "-n"})] = 10
    value: Decimal | None = None
    ratio: float = 0.0
    scheduled: Annotated[bool, Meta(description="By a timer.")] = False
    verdict: Literal["ok", "act", "watch"] | None = None
    colour: Colour = Colour.RED
    need: list[str] = []
    note: Annotated[list[str], Meta(extra={"comma": False})] = []
    aspect: dict[str, str] = {}
    rev: int | str | None = None
    inner: Inner | None = None
    since_: str | None = None
    renamed: Annotated[str, Meta(extra={"flag": "--other"})] = ""


class Needs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(extra={"positional": True})]
    rest: Annotated[list[str], Meta(extra={"positional": True, "metavar": "PATH"})] = []
    skill: str
    site: str = ""


class Stored(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    data: dict[str, Any]
    why: str = ""


class Shaped(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    data: Inner
    many: dict[str, Inner] = {}
    rows: list[Inner] = []


class Text(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    data: str


class Hook(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    input: Annotated[str, Meta(extra={"stdin": True})] = ""


def run(docs: Docs, given: Any, context: Context) -> Outcome:
    return Outcome({})


def locate(caller: Caller, announced: str | None) -> Location:
    return Location("/", "default")


def operation(fields: type[msgspec.Struct], kind: Kind = Kind.READER) -> Operation:
    return Operation(name="do it", kind=kind, summary="Does it.", params=fields, run=run)


DOMAIN = Domain(name="trial", title="Trial", summary="For tests.", operations=(), locate=locate, options=("site",))
OLD = Domain(name="old", title="Old", summary="An older tool.", operations=(), locate=locate, takes_over=True)


def words(
    fields: type[msgspec.Struct],
    line: Sequence[str],
    kind: Kind = Kind.READER,
    stdin: str | None = None,
    options: dict[str, list[str]] | None = None,
    domain: Domain = DOMAIN,
) -> Words:
    done = params.from_words(domain, operation(fields, kind), line, stdin, options)
    assert done is not None
    return done


# Words ----------------------------------------------------------------------------------------------------------------

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("--site x", {"site": "x"}),
    ("--site=x", {"site": "x"}),
    ("--site=a=b", {"site": "a=b"}),
    ("--sit x", {"site": "x"}),
    ("--site -", {"site": "-"}),
    ("--limit 3", {"limit": 3}),
    ("-n 3", {"limit": 3}),
    ("--value -1.10", {"value": Decimal("-1.10")}),
    ("--value=-5", {"value": Decimal(-5)}),
    ("--value 1e3", {"value": Decimal("1e3")}),
    ("--ratio .5", {"ratio": 0.5}),
    ("--scheduled", {"scheduled": True}),
    ("--sch --verdict act", {"scheduled": True, "verdict": "act"}),
    ("--colour blue", {"colour": Colour.BLUE}),
    ("--need a,b", {"need": ["a", "b"]}),
    ("--need a --need b,c", {"need": ["a", "b", "c"]}),
    ("--note a,b --note c", {"note": ["a,b", "c"]}),
    ("--aspect x=1 --aspect y=a=b", {"aspect": {"x": "1", "y": "a=b"}}),
    ("--rev 7", {"rev": 7}),
    ("--rev absent", {"rev": "absent"}),
    ('--inner {"size":1}', {"inner": Inner(1)}),
    ("--since 28d", {"since_": "28d"}),
    ("--other x", {"renamed": "x"}),
]


@pytest.mark.parametrize(("line", "expected"), GOOD)
def test_words_become_typed_parameters(line: str, expected: dict[str, Any]) -> None:
    assert words(Every, line.split()).params == Every(**expected)


BAD: list[tuple[type[msgspec.Struct], list[str], str]] = [
    (Every, ["--sit"], "--site: needs a value; write --site ID"),
    (Every, ["--site", "--limit", "3"], "--site: needs a value; a value that starts with - is written --site=VALUE"),
    (Every, ["--site", "x", "--site", "y"], "--site: stands there twice"),
    (Every, ["--site="], "--site: expected a string of length >= 1"),
    (Every, ["--limits", "3"], "--limits: no such flag; did you mean --limit?"),
    (Every, ["--limit", "3x"], "--limit: expected an integer"),
    (Every, ["--limit", "9" * 5000], "--limit: expected an integer"),
    (Every, ["--limit", "-1"], "--limit: expected an integer >= 0"),
    (Every, ["--value", "nan"], "--value: expected a number"),
    (Every, ["--value", "1e99999999999999999999"], "--value: expected a number"),
    (Every, ["--scheduled=yes"], "--scheduled: takes no value"),
    (Every, ["--verdict", "acts"], "--verdict: expected one of ok, act, watch; did you mean act?"),
    (Every, ["--s", "x"], "--s: could be --scheduled or --since or --site"),
    (Every, ["--aspect", "x"], "--aspect: expected NAME=VALUE"),
    (Every, ["--aspect", "x=1", "--aspect", "x=2"], "--aspect: names x twice"),
    (Every, ["--qqqqq", "secret"], "--qqqqq: no such flag"),
    (Every, ["-x"], "-x: no such flag"),
    (Every, ["secret"], "takes no words, 1 too many; quote a value that contains spaces"),
    (Every, ["--site", "\udcff"], "--site: not valid UTF-8"),
    (Every, ["--if-rev", "3"], "--if-rev: no such flag; did you mean --rev?"),
    (Needs, [], "missing: NAME, --skill"),
    (Needs, ["a"], "missing: --skill"),
]


@pytest.mark.parametrize(("fields", "line", "expected"), BAD)
def test_wrong_words_are_one_line_that_names_the_flag_and_no_value(
    fields: type[msgspec.Struct], line: list[str], expected: str
) -> None:
    with pytest.raises(Usage) as caught:
        words(fields, line)
    assert caught.value.line() == expected


def test_positionals_are_filled_in_order_and_a_list_takes_the_rest() -> None:
    done = words(Needs, ["a", "--skill", "s", "b,c", "-3", "--", "--d"]).params
    assert done == Needs(name="a", rest=["b,c", "-3", "--d"], skill="s")


def test_options_before_the_words_count_as_flags_and_not_twice() -> None:
    assert words(Needs, ["a", "--skill", "s"], options={"site": ["x"]}).params == Needs(name="a", skill="s", site="x")
    with pytest.raises(Usage, match="twice"):
        words(Needs, ["a", "--skill", "s", "--site", "y"], options={"site": ["x"]})
    with pytest.raises(Usage, match="not an option of this command"):
        words(Stored, ["--data", "{}"], options={"site": ["x"]})


@pytest.mark.parametrize("line", [["--help"], ["-h"], ["--skill", "s", "-h", "--nonsense"]])
def test_help_is_asked_for_wherever_it_stands(line: list[str]) -> None:
    assert params.from_words(DOMAIN, operation(Needs), line) is None


def test_an_older_tools_flags_may_be_repeated_and_the_last_one_counts() -> None:
    assert words(Needs, ["a", "--skill", "s", "--skill", "t"], domain=OLD).params == Needs(name="a", skill="t")


def test_standard_input_fills_its_field_and_mends_what_is_no_text() -> None:
    assert words(Hook, [], stdin="{}").params == Hook(input="{}")
    assert words(Hook, [], stdin="a\udcff").params == Hook(input="a?")
    assert words(Hook, []).params == Hook()


# Control --------------------------------------------------------------------------------------------------------------

HASH = "sha256:" + "0f" * 32


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([], Control()),
        (["--if-rev", "12"], Control(if_rev=12)),
        (["--if-rev=absent", "--dry-run"], Control(if_rev="absent", dry_run=True)),
        (["--if-rev", HASH, "--call", "a-1"], Control(if_rev=HASH, call="a-1")),
    ],
)
def test_every_writer_takes_the_control_flags(line: list[str], expected: Control) -> None:
    assert words(Every, line, Kind.WRITER).control == expected


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (["--if-rev", "-1"], "--if-rev"),
        (["--if-rev", "01"], "--if-rev"),
        (["--if-rev", "sha256:xyz"], "--if-rev"),
        (["--call", "a b"], "--call"),
        (["--call", ""], "--call"),
        (["--call", "x" * 129], "--call"),
    ],
)
def test_control_flags_are_checked(line: list[str], place: str) -> None:
    with pytest.raises(Usage) as caught:
        words(Every, line, Kind.WRITER)
    assert caught.value.where == place


def test_only_a_domains_own_writers_take_the_control_flags() -> None:
    """Also those of memory: a `run start` without an answer is repeated with its id."""
    assert params.has_control(DOMAIN, operation(Every, Kind.MEMORY))
    for kind, domain in [(Kind.READER, DOMAIN), (Kind.WRITER, OLD), (Kind.MEMORY, OLD)]:
        assert not params.has_control(domain, operation(Every, kind))
        with pytest.raises(Usage):
            words(Every, ["--dry-run"], kind, domain=domain)


# Data -----------------------------------------------------------------------------------------------------------------


def test_data_comes_from_the_word_or_from_standard_input_with_numbers_as_written() -> None:
    text = '{"a": 1.10, "b": 123456789012345678901234567890, "é": ["x", null]}'
    expected = {"a": Decimal("1.10"), "b": 123456789012345678901234567890, "é": ["x", None]}
    for line, stdin in [(["--data", text], None), (["--data", "-"], text), (["--data=-"], text)]:
        done = words(Stored, line, stdin=stdin).params
        assert isinstance(done, Stored)
        assert done.data == expected
        assert str(done.data["a"]) == "1.10"
    assert words(Text, ["--data", "-"], stdin="# A\n\nmap\n").params == Text(data="# A\n\nmap\n")


DATA_BAD: list[tuple[type[msgspec.Struct], str, type[StatedError], str]] = [
    (Stored, "{", Refused, "--data: not valid JSON: "),
    (Stored, "", Refused, "--data: not valid JSON: "),
    (Stored, '{"a": NaN}', Refused, "--data: not valid JSON: "),
    (Stored, '{"a":1,"a":2}', Refused, "--data: the key /a stands there twice"),
    (Stored, "[1]", Refused, "--data: expected an object, got a list"),
    (Stored, "[" * 200 + "]" * 200, Refused, "--data: "),
    (Stored, '{"a": "\\ud800"}', Refused, "--data: "),
    (Shaped, '{"siez": 1}', Refused, "--data"),
    (Shaped, '{"size": "secret"}', Refused, "--data /size: expected an integer, got a string"),
    (Shaped, "{}", Refused, "--data /size: missing"),
]


@pytest.mark.parametrize(("fields", "text", "kind", "expected"), DATA_BAD)
def test_wrong_content_is_refused_and_not_repeated(
    fields: type[msgspec.Struct], text: str, kind: type[StatedError], expected: str
) -> None:
    with pytest.raises(StatedError) as caught:
        words(fields, ["--data", text])
    assert type(caught.value) is kind
    assert caught.value.line().startswith(expected)
    assert "secret" not in caught.value.line()


def test_data_from_standard_input_that_nobody_gave_is_a_usage_error() -> None:
    with pytest.raises(Usage, match="no standard input"):
        words(Stored, ["--data", "-"])


# JSON -----------------------------------------------------------------------------------------------------------------


def test_json_fills_the_same_parameters() -> None:
    full = {"site": "x", "limit": 3, "value": Decimal("1.10"), "since": "1d", "colour": "blue", "need": ["a"]}
    expected = Every(site="x", limit=3, value=Decimal("1.10"), since_="1d", colour=Colour.BLUE, need=["a"])
    assert params.from_json(operation(Every), full) == expected
    assert params.from_json(operation(Every), None) == Every()
    assert params.from_json(operation(Every), {"value": 0.1}) == Every(value=Decimal("0.1"))


JSON_BAD: list[tuple[type[msgspec.Struct], Any, str]] = [
    (Every, [1], "/: expected an object, got a list; params are given by name"),
    (Every, {"limt": 1}, "unknown name limt; did you mean limit?"),
    (Every, {"zzz": "secret"}, "unknown name zzz"),
    (Every, {"limit": "3"}, "/limit: expected an integer, got a string"),
    (Every, {"limit": True}, "/limit: expected an integer, got true or false"),
    (Every, {"limit": 1.5}, "/limit: expected an integer, got a number"),
    (Every, {"limit": -1}, "/limit: expected an integer >= 0"),
    (Every, {"site": None}, "/site: expected a string, got null"),
    (Every, {"site": ""}, "/site: expected a string of length >= 1"),
    (Every, {"value": "1.5"}, "/value: expected a number, got a string"),
    (Every, {"scheduled": 1}, "/scheduled: expected true or false, got an integer"),
    (Every, {"verdict": "secret"}, "/verdict: expected one of ok, act, watch"),
    (Every, {"colour": "secret"}, "/colour: expected one of red, blue"),
    (Every, {"need": ["a", 1]}, "/need/1: expected a string, got an integer"),
    (Every, {"aspect": {"a/b": 1}}, "/aspect/a~1b: expected a string, got an integer"),
    (Every, {"inner": {"size": 1, "lable": ""}}, "/inner: unknown name lable; did you mean label?"),
    (
        Shaped,
        {"data": {"size": 1}, "many": {"one": {"size": 1}, "two": {"size": "secret"}}},
        "/many/two/size: expected",
    ),
    (Shaped, {"data": {"size": 1}, "rows": [{"size": 1}, {}]}, "/rows/1/size: missing"),
    (Needs, {"name": "a"}, "/skill: missing"),
    (Stored, {"data": {"a": "\ud800"}}, "a string holds half of a surrogate pair"),
]


@pytest.mark.parametrize(("fields", "given_params", "expected"), JSON_BAD)
def test_wrong_json_names_pointer_and_type_and_no_value(
    fields: type[msgspec.Struct], given_params: Any, expected: str
) -> None:
    with pytest.raises(Usage) as caught:
        params.from_json(operation(fields), given_params)
    assert caught.value.line().startswith(expected)
    assert "secret" not in caught.value.line()


def test_an_unknown_name_comes_with_a_row_for_programs() -> None:
    with pytest.raises(Usage) as caught:
        params.from_json(operation(Every), {"scheduledd": True})
    assert caught.value.data["problems"] == [{"field": "", "problem": "unknown name scheduledd", "meant": "scheduled"}]


def test_deep_json_is_an_error_and_no_recursion() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Usage, match="deep"):
        params.from_json(operation(Stored), {"data": {"a": deep}})


def test_a_writers_json_carries_control_beside_the_parameters() -> None:
    done = params.request(DOMAIN, operation(Needs, Kind.WRITER), {"name": "a", "skill": "s", "if_rev": 3, "call": "c"})
    assert done == Words(Needs(name="a", skill="s"), Control(if_rev=3, call="c"))
    wrong: list[dict[str, Any]] = [
        {"if_rev": True},
        {"if_rev": "now"},
        {"call": 3},
        {"dry_run": "yes"},
        {"dryrun": True},
    ]
    for bad in wrong:
        with pytest.raises(Usage):
            params.request(DOMAIN, operation(Needs, Kind.WRITER), {"name": "a", "skill": "s", **bad})
    with pytest.raises(Usage, match="unknown name if_rev"):
        params.request(DOMAIN, operation(Needs), {"name": "a", "skill": "s", "if_rev": 3})


def test_json_words_are_json_where_they_parse() -> None:
    line = ["a=1", "b=x y", 'c=["d"]', "e=null", "f=", 'g="1"', "h=a=b"]
    assert params.json_words(line) == {
        "a": 1, "b": "x y", "c": ["d"], "e": None, "f": "", "g": "1", "h": "a=b"
    }  # fmt: skip
    for bad in [["a"], ["=1"], ["a=1", "a=2"]]:
        with pytest.raises(Usage):
            params.json_words(bad)


names = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | names, lambda x: st.lists(x) | st.dictionaries(names, x)
)


@given(st.dictionaries(st.sampled_from(Every.__struct_encode_fields__) | names, values, max_size=4))
def test_any_json_is_parameters_or_a_usage_error(mapping: Mapping[str, Any]) -> None:
    with contextlib.suppress(Usage):
        assert isinstance(params.from_json(operation(Every), mapping), Every)


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--site", "--limit=1", "-n", "--", "--need", "-", "--data"])))
def test_any_words_are_parameters_or_an_error_of_ours(line: list[str]) -> None:
    for fields in (Every, Needs, Stored):
        with contextlib.suppress(Usage, Refused):
            params.from_words(DOMAIN, operation(fields, Kind.WRITER), line, None)


# Schema ---------------------------------------------------------------------------------------------------------------


def test_the_schema_says_what_from_json_takes() -> None:
    schema = params.schema(operation(Every))
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Every.__struct_encode_fields__)
    assert schema["properties"]["site"] == {
        "type": "string", "minLength": 1, "description": "Whose.", "default": "own"
    }  # fmt: skip
    assert {"type": "number"} in schema["properties"]["value"]["anyOf"]
    assert schema["$defs"]["Inner"]["required"] == ["size"]
    assert params.schema(operation(Needs))["required"] == ["name", "skill"]


def test_two_fields_of_one_flag_are_found_at_first_use() -> None:
    class Twice(msgspec.Struct, kw_only=True):
        one: str = ""
        two: Annotated[str, Meta(extra={"flag": "--one"})] = ""

    with pytest.raises(ValueError, match="--one"):
        params.look(Twice)
