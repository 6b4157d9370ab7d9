"""Typed parameters, and the three ways they are spelled: words of a command line, JSON by name, a schema.

Everything here is made from an operation's `params` Struct and from nothing else, so the three can't disagree. What may
be relied on:

- Pure: no file, no clock, no environment. Standard input arrives as a string.
- A field's look is worked out when its operation is first used, and kept: a daemon start pays nothing for it.
- A wrong command line is `Usage`. What `--data` holds is content: wrong in form or in shape, it is `Refused`.
- An error names the place (a flag, or a JSON pointer), what was expected and the name that was probably meant. It
  never repeats a value, which may be personal data.

How a field looks on a command line (`Annotated[T, msgspec.Meta(description=…, extra={…})]`, every key optional):

    positional  True: a word without a flag; a list takes all that are left
    flag        the flag's name where it is not `--field-name`
    short       a second, short name such as `-n`
    metavar     what the help shows for the value
    comma       False: a list's value is not split at commas
    hint        what an error says to whom left it out
    stdin       True: filled with standard input, not with a flag

A field named `data` is what `--data JSON|-` fills; when its type is `str` the text is taken as it is (Markdown).
"""

from __future__ import annotations

import enum
import functools
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import inspect

from stated.config import MAX_DEPTH
from stated.documents import json_text
from stated.documents.json_faults import number_fits
from stated.domain import Domain, Kind, Operation, Revision
from stated.errors import Refused, StatedError, Usage

__all__ = [
    "Control",
    "Field",
    "Look",
    "Words",
    "control_look",
    "from_json",
    "from_words",
    "has_control",
    "json_words",
    "look",
    "meant",
    "request",
    "scan_flag",
    "schema",
    "shown",
]

Shape = Literal["text", "integer", "number", "switch", "choice", "pairs", "json", "either"]


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter as a command line sees it. `name` is its JSON name."""

    name: str
    flag: str
    shape: Shape
    many: bool = False
    positional: bool = False
    required: bool = False
    stdin: bool = False
    comma: bool = True
    short: str = ""
    metavar: str = ""
    description: str = ""
    hint: str = ""
    choices: Mapping[str, Any] | None = None
    default: Any = msgspec.NODEFAULT

    @property
    def usage(self) -> str:
        """How it stands in a synopsis: `--site ID`, `[--limit N]`, `PATH…`."""
        if self.positional:
            text = self.metavar + ("…" if self.many else "")
        elif self.shape == "switch":
            text = self.flag
        else:
            text = f"{self.flag} {self.metavar}" + ("…" if self.shape == "pairs" else "")
        return text if self.required else f"[{text}]"


HELP: Final = Field(name="help", flag="--help", shape="switch", short="-h", description="Show this page.")


@dataclass(frozen=True, slots=True)
class Look:
    """All fields of a Struct; `flags` also holds the short names."""

    fields: tuple[Field, ...]
    flags: Mapping[str, Field]
    positionals: tuple[Field, ...]
    by_name: Mapping[str, Field]


class Control(msgspec.Struct, kw_only=True, frozen=True):
    """What every writing operation takes beside its own parameters, on a command line and as JSON params."""

    if_rev: Annotated[
        int | str | None,
        msgspec.Meta(
            description="Write only if the document is still at this revision: a number, sha256:<hex>, or absent.",
            extra={"metavar": "REV"},
        ),
    ] = None
    call: Annotated[
        str | None,
        msgspec.Meta(description="The call's own id: repeating a call with its id is safe.", extra={"metavar": "ID"}),
    ] = None
    dry_run: Annotated[bool, msgspec.Meta(description="Say what would be done, write nothing.")] = False


NO_CONTROL: Final = Control()
CONTROL_NAMES: Final = Control.__struct_encode_fields__


def has_control(domain: Domain, operation: Operation) -> bool:
    """A domain's writers take `Control` (also those of memory: a lost answer is asked for again by the call's id),
    unless it keeps an older tool's interface; of the core's own commands those that go through the queue do."""
    if operation.kind is Kind.READER:
        return False
    return operation.queue is not None or (bool(domain.name) and not domain.takes_over)


# The look of a Struct ------------------------------------------------------------------------------------------------


@functools.cache
def look(params: type[msgspec.Struct]) -> Look:
    info = inspect.type_info(params)
    assert isinstance(info, inspect.StructType)
    hints = {row.encode_name: row.type for row in msgspec.structs.fields(params)}
    fields = tuple(_field(row, hints[row.encode_name]) for row in info.fields)
    flags: dict[str, Field] = {}
    for field in fields:
        for name in (field.flag, field.short):
            if name:
                if name in flags:
                    raise ValueError(f"{params.__name__}: the flag {name} stands for two fields")
                flags[name] = field
    return Look(
        fields=fields,
        flags=flags,
        positionals=tuple(field for field in fields if field.positional),
        by_name={field.name: field for field in fields},
    )


def control_look() -> Look:
    return look(Control)


def _field(row: inspect.Field, hint: Any) -> Field:
    kind, extra, described = _unwrap(row.type)
    name = row.encode_name
    shape, many, choices = _shape(kind, name)
    if choices is not None:
        # msgspec sorts them; the author's order says more.
        choices = {text: choices[text] for text in _choices(hint) if text in choices}
    positional = bool(extra.get("positional"))
    stdin = bool(extra.get("stdin"))
    default = row.default
    if default is msgspec.NODEFAULT and row.default_factory is not msgspec.NODEFAULT:
        default = row.default_factory()
    if isinstance(default, enum.Enum):
        default = default.value
    return Field(
        name=name,
        flag="" if positional or stdin else str(extra.get("flag") or "--" + name.strip("_").replace("_", "-")),
        shape=shape,
        many=many,
        positional=positional,
        required=row.required,
        stdin=stdin,
        comma=bool(extra.get("comma", not positional)),
        short=str(extra.get("short", "")),
        metavar=str(extra.get("metavar") or _metavar(name, shape, positional, choices)),
        description=str(described),
        hint=str(extra.get("hint", "")),
        choices=choices,
        default=default,
    )


def _unwrap(kind: inspect.Type) -> tuple[inspect.Type, dict[str, Any], str]:
    """Take off `Annotated` and `| None`, in whichever order they were written."""
    extra: dict[str, Any] = {}
    described = ""
    while True:
        if isinstance(kind, inspect.Metadata):
            extra = {**(kind.extra or {}), **extra}
            described = described or str((kind.extra_json_schema or {}).get("description", ""))
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            rest = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
            if len(rest) != 1:
                return kind, extra, described
            kind = rest[0]
        else:
            return kind, extra, described


def _shape(kind: inspect.Type, name: str) -> tuple[Shape, bool, Mapping[str, Any] | None]:
    match kind:
        case inspect.BoolType():
            return "switch", False, None
        case inspect.IntType():
            return "integer", False, None
        case inspect.FloatType() | inspect.DecimalType():
            return "number", False, None
        case inspect.LiteralType(values=values):
            return "choice", False, {str(value): value for value in values}
        case inspect.EnumType(cls=cls):
            return "choice", False, {str(member.value): member.value for member in cls}
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType() if (
            name != "data"
        ):
            inner, _, _ = _unwrap(kind.item_type)
            shape, _, choices = _shape(inner, "")
            return shape, True, choices
        case inspect.DictType() if name != "data":
            return "pairs", True, None
        case inspect.UnionType(types=parts):
            plain = all(isinstance(part, inspect.StrType | inspect.IntType | inspect.NoneType) for part in parts)
            return ("either" if plain else "json"), False, None
        case inspect.StrType() | inspect.DateTimeType() | inspect.DateType() | inspect.TimeType():
            return "text", False, None
    return "json", False, None


def _metavar(name: str, shape: Shape, positional: bool, choices: Mapping[str, Any] | None) -> str:
    if choices:
        return "|".join(choices)
    if name == "data":
        return "TEXT|-" if shape == "text" else "JSON|-"
    if positional:
        return name.upper()
    return {"integer": "N", "number": "N", "json": "JSON", "pairs": "NAME=VALUE"}.get(shape, name.upper())


# Words ----------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_REVISION = re.compile(r"(?:0|[1-9]\d{0,18}|sha256:[0-9a-f]{64}|absent)\Z", re.ASCII)
_CALL_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z", re.ASCII)

NO_SUCH_FLAG: Final = "no such flag"

Raw = dict[str, list[str]]
"""What stood on a command line, by JSON name; every value as it was typed."""


def is_flag(word: str) -> bool:
    """`-` alone, a negative number and anything with a space in it are values, as in argparse."""
    if not word.startswith("-") or word == "-" or _NUMBER.match(word):
        return False
    return " " not in word.partition("=")[0]


def scan_flag(words: Sequence[str], at: int, flags: Mapping[str, Field], raw: Raw, last_wins: bool = False) -> int:
    """Read the flag at `words[at]` and its value into `raw`; returns the position after them.

    A flag may be shortened as long as it stays clear which one is meant. Raises Usage.
    """
    name, equals, value = words[at].partition("=")
    field = flags.get(name) or _shortened(name, flags)
    if field.shape == "switch":
        if equals:
            raise Usage("takes no value", where=field.flag)
        value = "true"
        at += 1
    elif equals:
        at += 1
    else:
        if at + 1 >= len(words):
            raise Usage("needs a value", where=field.flag, hint=f"write {field.flag} {field.metavar}")
        value = words[at + 1]
        if is_flag(value):
            raise Usage(
                "needs a value", where=field.flag, hint=f"a value that starts with - is written {field.flag}=VALUE"
            )
        at += 2
    if field.name in raw and not field.many and not last_wins:
        raise Usage("stands there twice", where=field.flag)
    raw.setdefault(field.name, []).append(value)
    return at


def _shortened(name: str, flags: Mapping[str, Field]) -> Field:
    found = [flag for flag in flags if flag.startswith(name)] if len(name) > 2 else []
    if len(found) == 1:
        return flags[found[0]]
    typed = shown(name)
    if found:
        raise Usage(f"could be {' or '.join(sorted(found))}", where=typed)
    close = meant(name, flags)
    raise Usage(NO_SUCH_FLAG, where=typed, hint=f"did you mean {close}?" if close else "")


class Words(NamedTuple):
    params: msgspec.Struct
    control: Control


def from_words(
    domain: Domain,
    operation: Operation,
    words: Sequence[str],
    stdin: str | None = None,
    options: Raw | None = None,
) -> Words | None:
    """The parameters that these words spell, or None when they ask for help.

    `options` are the domain's options that stood before the operation's words. Raises Usage, or Refused for `--data`.
    """
    shape = look(operation.params)
    flags = flags_of(domain, operation)
    raw: Raw = {}
    for name, values in (options or {}).items():
        if name not in shape.by_name:
            raise Usage("not an option of this command", where=f"--{name.replace('_', '-')}")
        raw[name] = list(values)
    plain: list[str] = []
    followed = ""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            plain.extend(words[at + 1 :])
            break
        if is_flag(word):
            at = scan_flag(words, at, flags, raw, last_wins=domain.takes_over)
            if "help" in raw and flags["--help"] is HELP:
                return None
        else:
            if at and not followed and words[at - 1] in flags and flags[words[at - 1]].shape == "switch":
                followed = flags[words[at - 1]].flag
            plain.append(word)
            at += 1
    _place(plain, shape.positionals, raw, followed)
    control = _control(raw) if has_control(domain, operation) else NO_CONTROL
    if stdin is not None:
        for field in shape.fields:
            if field.stdin:
                raw[field.name] = [stdin.encode("utf-8", "replace").decode()]
    missing = [field for field in shape.fields if field.required and field.name not in raw]
    if missing:
        hints = [field.hint or (f"write {field.usage}" if field.choices else "") for field in missing]
        raise Usage(
            f"missing: {', '.join(field.flag or field.metavar for field in missing)}",
            hint="; ".join(filter(None, hints)),
        )
    typed = {name: _value(shape.by_name[name], given, stdin) for name, given in raw.items()}
    try:
        params = msgspec.convert(typed, operation.params)
    except msgspec.ValidationError as error:
        raise _wrong_words(error, operation, typed, shape) from None
    return Words(params, control)


@functools.lru_cache(maxsize=1024)
def _flags(params: type[msgspec.Struct], control: bool) -> Mapping[str, Field]:
    own = look(params).flags
    return {"--help": HELP, "-h": HELP, **(control_look().flags if control else {}), **own}


def flags_of(domain: Domain, operation: Operation) -> Mapping[str, Field]:
    """Every flag that stands after an operation's words."""
    return _flags(operation.params, has_control(domain, operation))


def _place(plain: Sequence[str], positionals: Sequence[Field], raw: Raw, followed: str) -> None:
    """`followed` is a flag without a value that one of these words stood behind."""
    left = list(plain)
    for field in positionals:
        if field.many:
            if left:
                raw[field.name] = left
            return
        if left:
            raw[field.name] = [left.pop(0)]
    if left and followed:
        raise Usage("takes no value", where=followed, hint="leave out the word after it")
    if left:
        # Not repeated here: a value that was not quoted lands in this error.
        wanted = (
            "takes no words" if not positionals else f"takes only {' '.join(field.metavar for field in positionals)}"
        )
        raise Usage(f"{wanted}, {len(left)} too many", hint="quote a value that contains spaces")


def _control(raw: Raw) -> Control:
    given: dict[str, Any] = {}
    if "if_rev" in raw:
        given["if_rev"] = _revision(raw.pop("if_rev")[0], "--if-rev")
    if "call" in raw:
        given["call"] = _call_id(raw.pop("call")[0], "--call")
    if raw.pop("dry_run", None):
        given["dry_run"] = True
    return Control(**given) if given else NO_CONTROL


def _revision(value: Any, where: str) -> Revision:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if not isinstance(value, str) or not _REVISION.match(value):
        raise Usage("expected a revision number, sha256: with 64 hexadecimal digits, or absent", where=where)
    return int(value) if value.isdigit() else value


def _call_id(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _CALL_ID.match(value):
        raise Usage("expected 1 to 128 letters, digits and . _ : -", where=where)
    return value


def _value(field: Field, given: list[str], stdin: str | None) -> Any:
    where = field.flag or field.metavar
    if field.name == "data":
        text = given[-1]
        if text == "-":
            if stdin is None:
                raise Usage("there is no standard input to read", where=where)
            text = stdin
        return _utf8(text, where) if field.shape == "text" else content(text, where)
    for text in given:
        _utf8(text, where)
    if field.shape == "pairs":
        return _pairs(given, where)
    if not field.many:
        return _one(field, given[-1], where)
    parts = [part for text in given for part in text.split(",") if part] if field.comma else given
    return [_one(field, part, where) for part in parts]


def _one(field: Field, text: str, where: str) -> Any:
    match field.shape:
        case "switch":
            return True
        case "integer":
            return _integer(text, where)
        case "number":
            try:
                if _NUMBER.match(text) and number_fits(text):  # arithmetic on a vast exponent would never end
                    return Decimal(text)
            except InvalidOperation:  # an exponent beyond what decimals can hold
                pass
            raise Usage("expected a number", where=where)
        case "choice":
            choices = field.choices or {}
            if text not in choices:
                close = meant(text, choices)
                raise Usage(
                    f"expected one of {', '.join(choices)}", where=where, hint=f"did you mean {close}?" if close else ""
                )
            return choices[text]
        case "either":
            return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
        case "json":
            return content(text, where)
    return text


def _integer(text: str, where: str) -> int:
    # 4300 digits is where Python itself refuses; a number of a tenth of that is already no number a person meant.
    if not _INTEGER.match(text) or len(text) > 400:
        raise Usage("expected an integer", where=where)
    return int(text)


def _pairs(given: Iterable[str], where: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Usage("expected NAME=VALUE", where=where)
        if name in pairs:
            raise Usage(f"names {shown(name)} twice", where=where)
        pairs[name] = value
    return pairs


def _utf8(text: str, where: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Usage("not valid UTF-8", where=where) from None
    return text


def content(text: str, where: str) -> Any:
    """The value of a JSON text that came as content: what is wrong with it is refused, with line and column."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise Refused("not valid UTF-8", where=where) from None
    parsed = json_text.parse(raw)
    if parsed.problem is not None:
        problem = parsed.problem
        raise Refused(f"not valid JSON: {problem.message} (line {problem.line}, column {problem.column})", where=where)
    if parsed.duplicates:
        raise Refused(f"the key {shown(parsed.duplicates[0])} stands there twice", where=where)
    _check_depth(parsed.value, where, Refused)
    return parsed.value


def json_words(pairs: Iterable[str]) -> dict[str, Any]:
    """`K=V …` as params by name: V is JSON where it parses, else a string."""
    values: dict[str, Any] = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Usage("expected NAME=VALUE after the method")
        if name in values:
            raise Usage("stands there twice", where=shown(name))
        parsed = json_text.parse(_utf8(value, shown(name)).encode())
        values[name] = parsed.value if parsed.problem is None and not parsed.duplicates else value
    return values


# JSON by name ---------------------------------------------------------------------------------------------------------


def request(domain: Domain, operation: Operation, mapping: Any) -> Words:
    """Params by name, with those of `Control` taken out for a writer. Raises Usage."""
    if not has_control(domain, operation) or not isinstance(mapping, Mapping):
        return Words(from_json(operation, mapping), NO_CONTROL)
    rest = dict(mapping)
    given: dict[str, Any] = {}
    if rest.get("if_rev") is not None:
        given["if_rev"] = _revision(rest["if_rev"], "/if_rev")
    if rest.get("call") is not None:
        given["call"] = _call_id(rest["call"], "/call")
    if rest.get("dry_run") is not None:
        if not isinstance(rest["dry_run"], bool):
            raise Usage("expected true or false", where="/dry_run")
        given["dry_run"] = rest["dry_run"]
    for name in CONTROL_NAMES:
        rest.pop(name, None)
    return Words(from_json(operation, rest, CONTROL_NAMES), Control(**given) if given else NO_CONTROL)


def from_json(operation: Operation, mapping: Any, also: Sequence[str] = ()) -> msgspec.Struct:
    """The parameters in a JSON object. Types are taken strictly: "3" is not 3, nor is 1 true. Raises Usage.

    `also` are names that are no parameters and may still have been meant.
    """
    params = operation.params
    if mapping is None:
        mapping = {}
    if not isinstance(mapping, Mapping):
        raise Usage(f"expected an object, got {_json_name(mapping)}", where="/", hint="params are given by name")
    names = params.__struct_encode_fields__
    for name in mapping:
        if name not in names:
            close = meant(name, (*names, *also))
            raise _problem(Usage, "", f"unknown name {shown(str(name))}", close)
    _check_depth(mapping, "", Usage)
    for field in look(params).fields:
        # msgspec takes a decimal from a string; on our wire a number is a number.
        if field.shape == "number" and isinstance(mapping.get(field.name), str):
            raise _problem(Usage, _pointer([field.name]), "expected a number, got a string")
    try:
        return msgspec.convert(mapping if isinstance(mapping, dict) else dict(mapping), params)
    except msgspec.ValidationError as error:
        parts, problem, close = explain(error, params, mapping)
        raise _problem(Usage, _pointer(parts), problem, close) from None


def _wrong_words(
    error: msgspec.ValidationError, operation: Operation, values: Mapping[str, Any], shape: Look
) -> StatedError:
    parts, problem, close = explain(error, operation.params, values)
    field = shape.by_name.get(str(parts[0])) if parts else None
    if field is None:
        return Usage(problem)
    if field.name == "data" or field.shape == "json":
        below = _pointer(parts[1:])
        return _problem(Refused, f"{field.flag} {below}" if below else field.flag, problem, close, below)
    return Usage(problem, where=field.flag or field.metavar)


def _problem(
    kind: type[Usage] | type[Refused], where: str, problem: str, close: str = "", field: str | None = None
) -> StatedError:
    row = {"field": where if field is None else field, "problem": problem}
    if close:
        row["meant"] = close
    return kind(problem, where=where, hint=f"did you mean {close}?" if close else "", data={"problems": [row]})


def _check_depth(value: Any, where: str, kind: type[Usage] | type[Refused]) -> None:
    """Nesting within the limit, and no half surrogates: neither can be written back. Level by level, no recursion."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for node in level:
            if isinstance(node, Mapping):
                below.extend(node)
                below.extend(node.values())
            elif isinstance(node, list | tuple):
                below.extend(node)
            elif isinstance(node, str) and not node.isascii():
                try:
                    node.encode()
                except UnicodeEncodeError:
                    raise kind("a string holds half of a surrogate pair", where=where) from None
        if not below:
            return
        level = below
    raise kind(f"nested more than {MAX_DEPTH} deep", where=where)


# Explaining what msgspec found ----------------------------------------------------------------------------------------

_AT = re.compile(r"(?P<text>.*?)(?: - at `(?P<path>\$.*)`)?\Z", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")
_NAMED = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`\Z", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`(?P<rest>[^`]*?)(?:, got `(?P<got>[^`]*)`)?\Z")
_TYPES: Final = {
    "int": "an integer",
    "str": "a string",
    "bool": "true or false",
    "float": "a number",
    "decimal": "a number",
    "array": "a list",
    "object": "an object",
    "null": "null",
}

Part = str | int


def explain(error: msgspec.ValidationError, kind: Any, value: Any) -> tuple[list[Part], str, str]:
    """Where (as the parts of a JSON pointer), what was expected, and the name that was probably meant."""
    match = _AT.match(str(error))
    assert match is not None  # every part of the pattern is optional
    text, path = match["text"], match["path"] or "$"
    parts, kind = _follow(path, kind, value)
    if named := _NAMED.match(text):
        if named["what"] == "missing required":
            return [*parts, named["name"]], "missing", ""
        names = _names(kind)
        return parts, f"unknown name {shown(named['name'])}", meant(named["name"], names)
    if text.startswith("Invalid enum value"):  # msgspec repeats the value here
        choices = _choices(kind)
        return parts, f"expected one of {', '.join(choices)}" if choices else "not one of the allowed values", ""
    if expected := _EXPECTED.match(text):
        wanted = " or ".join(dict.fromkeys(_TYPES.get(part, part) for part in expected["wanted"].split(" | ")))
        got = expected["got"]
        return parts, f"expected {wanted}{expected['rest']}" + (f", got {_TYPES.get(got, got)}" if got else ""), ""
    return parts, text[:1].lower() + text[1:], ""


def _follow(path: str, kind: Any, value: Any) -> tuple[list[Part], Any]:
    """Follow msgspec's path. It leaves a mapping's key out (`[...]`): that is the first whose value does not fit."""
    parts: list[Part] = []
    for step in _STEP.finditer(path):
        options = _members(kind)
        kind = Any
        if step["name"]:
            parts.append(step["name"])
            value = value.get(step["name"]) if isinstance(value, Mapping) else None
            for option in options:
                if isinstance(option, type) and issubclass(option, msgspec.Struct):
                    rows = {row.encode_name: row.type for row in msgspec.structs.fields(option)}
                    kind = rows.get(step["name"], Any)
        elif step["index"] == "...":
            for option in options:
                inner = typing.get_args(option)
                if len(inner) == 2 and isinstance(value, Mapping):
                    kind = inner[1]
            found = _first_bad(value, kind)
            if found is None:
                break
            parts.append(found)
            value = value[found]
        else:
            index = int(step["index"])
            parts.append(index)
            value = value[index] if isinstance(value, list | tuple) and index < len(value) else None
            for option in options:
                inner = typing.get_args(option)
                if inner and typing.get_origin(option) is not dict:
                    kind = inner[0]
    return parts, kind


def _first_bad(value: Any, kind: Any) -> str | None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            try:
                msgspec.convert(item, kind)
            except msgspec.ValidationError:
                return str(key)
    return None


def _members(kind: Any) -> list[Any]:
    """The types that a hint allows, without `Annotated` around them."""
    if typing.get_origin(kind) is Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(kind) for member in _members(part)]
    return [kind]


def _names(kind: Any) -> list[str]:
    names: list[str] = []
    for option in _members(kind):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            names.extend(option.__struct_encode_fields__)
    return names


def _choices(kind: Any) -> list[str]:
    """The values that a hint allows, in the order they were written; also those of a list's items."""
    choices: list[str] = []
    for option in _members(kind):
        if typing.get_origin(option) is Literal:
            choices.extend(str(value) for value in typing.get_args(option))
        elif isinstance(option, type) and issubclass(option, enum.Enum):
            choices.extend(str(member.value) for member in option)
        else:
            choices.extend(text for part in typing.get_args(option) for text in _choices(part))
    return choices


def _json_name(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "a list"
    return _TYPES.get(type(value).__name__, "something else")


def _pointer(parts: Iterable[Part]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def shown(name: str) -> str:
    """A name somebody typed, fit for one line of a terminal."""
    text = name.encode("utf-8", "replace").decode()
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 40 else text[:39] + "…"


def meant(name: str, names: Collection[str]) -> str:
    """The one of `names` that was probably meant, or an empty string."""
    import difflib  # here, as it is needed only when something is already wrong

    close = difflib.get_close_matches(
        name[:80].lower().replace("_", "-"), [item.replace("_", "-") for item in names], 1
    )
    return next((item for item in names if item.replace("_", "-") == close[0]), "") if close else ""


# Schema ---------------------------------------------------------------------------------------------------------------


def schema(operation: Operation, ref_template: str = "#/$defs/{name}") -> dict[str, Any]:
    """The JSON Schema of an operation's params; nested structures stand under `$defs`."""
    (top,), parts = msgspec.json.schema_components([operation.params], ref_template=ref_template)
    name = top["$ref"].rpartition("/")[2] if "$ref" in top else ""
    own = parts.pop(name, top)
    own.pop("title", None)
    own["additionalProperties"] = False
    own.setdefault("properties", {})
    if parts:
        own["$defs"] = parts
    result: dict[str, Any] = _numbers(own)
    return result


def _numbers(node: Any) -> Any:
    """msgspec describes a decimal as a string; ours travel as JSON numbers."""
    if isinstance(node, dict):
        if node.get("format") == "decimal":
            return {key: value for key, value in node.items() if key != "format"} | {"type": "number"}
        return {key: _numbers(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_numbers(item) for item in node]
    return node
