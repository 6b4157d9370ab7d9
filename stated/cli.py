"""A command line in, text and an exit status out; the call itself happens in between, elsewhere.

    Commands.parse(argv, …)  ->  Parsed (a call to submit)  or  Ready (the whole reply: help, or an error)
    render(parsed, answer)  and  render_error(parsed, error)  ->  Reply

What may be relied on:

- Pure: nothing is printed, nothing exits, no file, clock or environment is touched. It runs in the daemon, and in the
  caller's process in local mode.
- The tree of commands is built once from the domains' tables (microseconds); a command's flags when it is first used.
- Every failure is one line on standard error: `statectl: place: reason; hint`. Standard output then stays empty, unless
  `--json` was asked for: it gets the same as one object, `{"error": {"code", "message", "data"}}`.
- Nothing that reaches a terminal holds a control character or an escape sequence.

A program called `<domain>-state` is `statectl <domain>` without global flags: an older tool's command line.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec

from stated import __version__
from stated.call import Answer, Call
from stated.core import core
from stated.documents import json_text, table
from stated.domain import Caller, Domain, Kind, Operation
from stated.domains import check, method_name
from stated.errors import Refused, StatedError, Usage
from stated.params import (
    HELP,
    NO_SUCH_FLAG,
    Control,
    Field,
    Raw,
    control_look,
    from_words,
    has_control,
    is_flag,
    json_words,
    look,
    meant,
    request,
    scan_flag,
    schema,
    shown,
)

__all__ = ["Commands", "Parsed", "Ready", "Reply", "View", "methods", "render", "render_error"]

PROGRAM: Final = "statectl"
NO_COMMANDS: Final = {
    "start": "the first command starts the daemon",
    "restart": "end it with statectl stop; the next command starts it again",
    "serve": "the first command starts the daemon; `stated serve` runs it in a terminal",
}
"""What is typed for want of a command that nobody needs, and what to know instead."""


class Globals(msgspec.Struct, kw_only=True):
    json: Annotated[bool, msgspec.Meta(description="JSON also on a terminal; with an error, its object too.")] = False
    human: Annotated[bool, msgspec.Meta(description="Readable tables also off a terminal.")] = False
    quiet: Annotated[
        bool,
        msgspec.Meta(description="No answer on standard output; errors and the status stay.", extra={"short": "-q"}),
    ] = False
    socket: Annotated[str | None, msgspec.Meta(description="The daemon's socket.", extra={"metavar": "P"})] = None
    timeout: Annotated[
        Decimal | None, msgspec.Meta(description="Seconds to wait for the answer.", extra={"metavar": "S"})
    ] = None
    local: Annotated[bool, msgspec.Meta(description="Do it in this process, without the daemon.")] = False
    fresh: Annotated[bool, msgspec.Meta(description="Look at shared roots anew before reading.")] = False
    version: Annotated[bool, msgspec.Meta(description="Print the version.")] = False


@dataclass(frozen=True, slots=True)
class View:
    """How an answer is shown. Off a terminal JSON is the default, on a terminal a table."""

    json: bool = False
    human: bool = False
    quiet: bool = False
    tty: bool = False
    width: int = 80
    raw: bool = False
    """A method was called by its name: its answer is its JSON, not the text that a command makes of it."""


@dataclass(frozen=True, slots=True)
class Reply:
    out: str = ""
    err: str = ""
    status: int = 0
    hand: tuple[tuple[str, str], ...] = ()


Ready = Reply
"""What `parse` gives when there is nothing to call."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A call, and how its answer is to be shown. `place` is the command as a person knows it."""

    call: Call
    view: View = field(default_factory=View)
    program: str = PROGRAM
    place: str = ""
    timeout: float | None = None
    fresh: bool = False
    local: bool = False

    @property
    def deadline(self) -> Literal["read", "write", "hook"]:
        """Which of the deadlines the caller keeps."""
        if _is_hook(self.place):
            return "hook"
        return "read" if self.call.operation.kind is Kind.READER else "write"


class _Page(Exception):  # not an error: a request for help, on its way up
    def __init__(self, node: _Node) -> None:
        super().__init__(node.words)
        self.node = node


@dataclass(slots=True)
class _Node:
    """One word of the tree of commands: a group, a command, or both."""

    words: tuple[str, ...]
    domain: Domain
    operation: Operation | None = None
    children: dict[str, _Node] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return " ".join(self.words)

    def below(self) -> Iterator[_Node]:
        for node in self.children.values():
            if node.operation is not None:
                yield node
            yield from node.below()


class Commands:
    """All commands and methods of these domains and of the core. Raises ValueError when two of them share a name."""

    def __init__(self, domains: Sequence[Domain]) -> None:
        named = tuple(domain for domain in domains if domain.name)
        self.core = core(named, self.openrpc)
        self.domains = (self.core, *named)
        check(self.domains)
        self.methods: dict[str, tuple[Domain, Operation]] = {}
        self._root = _Node((), self.core)
        for domain in self.domains:
            for operation in domain.operations:
                if method := method_name(domain, operation):
                    self.methods[method] = (domain, operation)
                if operation.name:
                    self._add(domain, operation)

    def _add(self, domain: Domain, operation: Operation) -> None:
        node = self._root
        for word in (*([domain.name] if domain.name else []), *operation.name.split()):
            if word not in node.children:
                node.children[word] = _Node((*node.words, word), domain)
            node = node.children[word]
        node.operation = operation

    # Parsing ----------------------------------------------------------------------------------------------------------

    def parse(
        self, argv: Sequence[str], program: str, caller: Caller, stdin: str | None = None, call_id: str = ""
    ) -> Ready | Parsed:
        """`argv` without the program's name; `stdin` what the shim read, None when it read nothing. `call_id` is the
        call's id where the words give none."""
        program = program.rpartition("/")[2] or PROGRAM
        view = View(tty=caller.tty, width=max(20, caller.width))
        state = _State(program=program, view=view, hook=_is_hook(" ".join(argv[:1])))
        try:
            return self._parse(list(argv), state, caller, stdin, call_id)
        except _Page as page:
            return Ready(self._page(page.node, view.width))
        except StatedError as error:
            return _failure(error, state.program, state.place, state.view, state.domain, state.hook, state.writes)

    def _parse(self, argv: list[str], state: _State, caller: Caller, stdin: str | None, call_id: str) -> Ready | Parsed:
        node = self._root
        given = Globals()
        at = 0
        if state.program.endswith("-state"):
            name = state.program.removesuffix("-state")
            found = node.children.get(name)
            if found is None or not name or found.domain is self.core:
                raise Refused(f"this installation has no domain {name}", hint="the commands it has: statectl help")
            state.domain = found.domain
            node = found
        else:
            at, given = self._globals(argv, state)
            state.hook = _is_hook(" ".join(argv[at : at + 1]))
            if given.version:
                return Ready(f"{PROGRAM} {caller.version or __version__} (stated {__version__})\n")
        node, at, options = self._walk(node, argv, at, state)
        operation = node.operation
        if operation is None:
            if node is self._root and at == len(argv):
                raise _Page(node)
            if argv[at:] == ["help"] and not node.domain.takes_over:
                raise _Page(node)
            raise self._no_command(node, argv, at, state.took)
        words = argv[at:]
        if words == ["help"] and not node.domain.takes_over:
            raise _Page(node)  # a document called so is ./help, any other value -- help
        state.writes = _writes(node.domain, operation)
        if node.domain is self.core and operation.name == "help":
            return self._help(words, node, state)
        try:
            done = from_words(node.domain, operation, words, stdin, options)
        except Usage as error:
            if error.where in _GLOBAL_FLAGS.flags and error.reason == NO_SUCH_FLAG:
                raise self._misplaced(node, error.where) from None
            raise
        if done is None:
            raise _Page(node)
        parsed = Parsed(
            call=Call(
                domain=node.domain,
                operation=operation,
                params=done.params,
                caller=caller,
                id=done.control.call or call_id,
                if_rev=done.control.if_rev,
                dry_run=done.control.dry_run,
            ),
            view=state.view,
            program=state.program,
            place=node.place,
            timeout=None if given.timeout is None else float(given.timeout),
            fresh=given.fresh,
            local=given.local,
        )
        if node.domain is self.core and operation.name == "rpc":
            return self._rpc(parsed)
        return parsed

    def _globals(self, argv: list[str], state: _State) -> tuple[int, Globals]:
        flags = _GLOBAL_FLAGS.flags
        raw: Raw = {}
        at = 0
        while at < len(argv) and is_flag(argv[at]):
            try:
                at = scan_flag(argv, at, flags, raw, last_wins=True) if argv[at] != "--" else at + 1
            except Usage as error:
                raise self._before_its_domain(error, argv, at) from None
            if argv[at - 1] == "--":
                break
            state.view = replace(state.view, json="json" in raw, human="human" in raw, quiet="quiet" in raw)
            if "help" in raw:
                raise _Page(self._root)
        if not raw:
            return at, _NO_GLOBALS
        if state.view.json and state.view.human:
            raise Usage("--json and --human exclude each other")
        values: dict[str, Any] = {name: True for name in raw if _GLOBAL_FLAGS.fields[name].shape == "switch"}
        if "socket" in raw:
            values["socket"] = raw["socket"][-1]
        if "timeout" in raw:
            values["timeout"] = _seconds(raw["timeout"][-1])
        return at, Globals(**values)

    def _before_its_domain(self, error: Usage, argv: list[str], at: int) -> Usage:
        """A domain's option that stands before the domain's name."""
        if error.reason != NO_SUCH_FLAG:
            return error
        name, equals, _ = argv[at].partition("=")
        rest = argv[at + 1 if equals else at + 2 :]
        for domain in self.domains[1:]:
            node = self._root.children.get(domain.name)
            flag = self._options(node).get(name) if node is not None else None
            if node is not None and flag is not None and rest and (rest[0] == domain.name or rest[0] in node.children):
                hint = f"write {PROGRAM} {domain.name} {flag.flag} {flag.metavar} …"
                return Usage(f"stands after {domain.name} only", where=flag.flag, hint=hint)
        return error

    def _walk(self, node: _Node, argv: list[str], at: int, state: _State) -> tuple[_Node, int, Raw]:
        """Follow the command's words; the domain's options may stand between them."""
        options: Raw = {}
        while at < len(argv):
            word = argv[at]
            state.place = node.place
            if is_flag(word):
                if node.operation is not None or word == "--":
                    break
                flags = self._options(node)
                name = word.partition("=")[0]
                if node is not self._root and name not in flags and name in _GLOBAL_FLAGS.flags:
                    raise self._misplaced(node, name)
                after = scan_flag(argv, at, flags, options, last_wins=node.domain.takes_over)
                if "help" in options:
                    raise _Page(node)
                if after == at + 2 and name in flags and argv[at + 1] in node.children:
                    state.took = (name, argv[at + 1])
                at = after
                continue
            child = node.children.get(word)
            if child is None:
                break
            node = child
            state.domain = node.domain
            at += 1
        state.place = node.place
        return node, at, options

    def _options(self, node: _Node) -> Mapping[str, Field]:
        flags: dict[str, Field] = {"--help": HELP, "-h": HELP}
        if node.domain.options and node.domain.operations:
            # Every operation of the domain has them, so the first one knows how they look.
            fields = look(node.domain.operations[0].params).by_name
            for name in node.domain.options:
                if name in fields:
                    flags[fields[name].flag] = fields[name]
        return flags

    def _misplaced(self, node: _Node, flag: str) -> Usage:
        return Usage("stands before the command only", where=flag, hint=f"write {PROGRAM} {flag} {node.place} …")

    def _no_command(
        self, node: _Node, argv: Sequence[str], at: int, took: tuple[str, str] | None = None
    ) -> StatedError:
        names = sorted(node.children)
        page = " ".join(filter(None, [PROGRAM, "help", node.place]))
        if took is not None:
            flag, value = took
            hint = f"write {PROGRAM} {node.place} {flag} {self._options(node)[flag].metavar} {value} …"
            return Usage(f"took the word {value} as its value", where=flag, hint=hint)
        if at >= len(argv):
            return Usage(f"needs one of: {', '.join(names)}", hint=f"see {page}")
        word = argv[at]
        if node is self._root and (known := NO_COMMANDS.get(word)):
            return Usage(f"no command {word}", hint=known)
        within = self._within(argv[at:]) if node is self._root else ""
        if within:
            return Usage(f"no command {shown(word)}", hint=f"did you mean {within}?")
        close = meant(word, names)
        hint = f"did you mean {' '.join((*node.words, close))}?" if close else f"see {page}"
        return Usage(f"no command {shown(word)}", hint=hint)

    def _within(self, words: Sequence[str]) -> str:
        """The command of a domain that these words are, without the domain's name."""
        for domain in self.domains:
            node = self._root.children.get(domain.name)
            if node is None or words[0] not in node.children:
                continue
            for word in words:
                if node.operation is not None or word not in node.children:
                    break
                node = node.children[word]
            return node.place
        return ""

    def _help(self, words: list[str], own: _Node, state: _State) -> Ready:
        node = self._root
        for at, word in enumerate(words):
            if word in ("-h", "--help"):
                raise _Page(own)
            if word not in node.children:
                if word == "choices" and at == len(words) - 1 and node.words == (node.domain.name,):
                    return Ready(_choices(node.domain, min(state.view.width, 100)))
                state.place = "help"
                raise self._no_command(node, words, at)
            node = node.children[word]
        raise _Page(node)

    def _rpc(self, parsed: Parsed) -> Parsed:
        words: Any = parsed.call.params
        found = self.methods.get(words.method)
        if found is None:
            close = meant(words.method, self.methods)
            raise Usage(
                f"no method {shown(words.method)}",
                hint=f"did you mean {close}?" if close else "see statectl rpc rpc.discover",
            )
        if words.data is not None and words.params:
            raise Usage("K=V and --data exclude each other")
        domain, operation = found
        place = f"rpc {words.method}"
        try:
            done = request(domain, operation, json_words(words.params) if words.data is None else words.data)
        except Usage as error:
            where = f"{place}: {error.where}" if error.where else place
            kind = Usage if words.data is None else Refused  # what --data holds is content
            raise kind(error.reason, where=where, hint=error.hint, data=error.data) from None
        call = replace(
            parsed.call,
            domain=domain,
            operation=operation,
            params=done.params,
            id=done.control.call or parsed.call.id,
            if_rev=done.control.if_rev,
            dry_run=done.control.dry_run,
        )
        return replace(parsed, call=call, place=place, view=replace(parsed.view, raw=True))

    # Help -------------------------------------------------------------------------------------------------------------

    def page(self, words: Sequence[str] = (), width: int = 80) -> str:
        """The help page of a command, a group, a domain or everything. Raises KeyError for other words."""
        node = self._root
        for word in words:
            node = node.children[word]
        return self._page(node, width)

    def _page(self, node: _Node, width: int) -> str:
        width = min(width, 100)
        if node.operation is not None:
            text = _operation_page(node, node.operation, width)
            return text if not node.children else text + _section("Below it", _rows(node.below()), width)
        if node is self._root:
            return self._top_page(width)
        domain = node.domain
        lead = node.words == (domain.name,)
        purpose = (
            f"{domain.title}: {domain.summary}"
            if lead
            else domain.groups.get(" ".join(node.words[bool(domain.name) :]), "")
        )
        lines = [purpose if lead else f"{PROGRAM} {node.place}: {purpose or 'a group of commands'}", ""]
        lines.append(f"Usage: {PROGRAM} {node.place} COMMAND …")
        text = "\n".join(_fill(line, width) for line in lines) + "\n"
        text += _section("Commands", _rows(node.below()), width)
        options = [one for name, one in self._options(node).items() if name not in ("--help", "-h")]
        text += _section("Flags of every command here, before or after its words", _flag_rows(options), width)
        if lead and domain.notes:
            told = (
                f"Choices made where the contract is silent ({len(domain.notes)}): {PROGRAM} help {node.place} choices"
            )
            text += f"\n{_fill(told, width)}\n"
        return text + f"\n{PROGRAM} {node.place} COMMAND --help says more.\n"

    def _top_page(self, width: int) -> str:
        about = f"{PROGRAM}: reads and writes the state of agent skills, through one daemon that owns it."
        text = _fill(about, width) + "\n"
        text += f"\nUsage: {PROGRAM} [GLOBAL FLAGS] COMMAND … [FLAGS]\n"
        text += _section("State", [(domain.name, domain.summary) for domain in self.domains[1:]], width)
        text += _section("The daemon", _rows(n for n in self._root.below() if n.domain is self.core), width)
        text += _section("Global flags, before the command only", _flag_rows(_GLOBAL_FLAGS.shown), width)
        control = _flag_rows(control_look().fields)
        text += _section(f"{_CONTROLLED}, after it", control, width)
        text += _section(
            "Exit status",
            [
                ("0", "done; also when the answer is that there is nothing"),
                ("1", "refused, or a check found something; nothing was written"),
                ("2", "the command line is wrong"),
                ("3", "the state can't be reached: carry on without it"),
            ],
            width,
        )
        first = next((d.operations[0] for d in self.domains[1:] if d.operations and d.operations[0].examples), None)
        examples = [*(first.examples[:1] if first else ()), "help doctor", "--human roots list"]
        text += "\nExamples:\n" + "".join(_example(line, width) for line in examples)
        return text + "\n" + _fill("An answer is one JSON object on one line; on a terminal, a table.", width) + "\n"

    def reference(self) -> str:
        """Every command as a Markdown table, for the documentation."""
        lines = ["| command | kind | what it does |", "|---|---|---|"]
        for node in self._root.below():
            assert node.operation is not None
            usage = _usage(node, node.operation).replace("|", "\\|")
            lines.append(f"| `{usage}` | {node.operation.kind.value} | {node.operation.summary} |")
        return "\n".join(lines) + "\n"

    # Description ------------------------------------------------------------------------------------------------------

    def openrpc(self) -> dict[str, Any]:
        """The OpenRPC document of all methods that come from the table."""
        shared: dict[str, Any] = {}
        rows = [_openrpc_row(name, *self.methods[name], shared) for name in sorted(self.methods)]
        return {
            "openrpc": "1.3.2",
            "info": {"title": "stated", "version": __version__},
            "methods": rows,
            "components": {"schemas": shared},
        }


def methods(domains: Sequence[Domain]) -> dict[str, tuple[Domain, Operation]]:
    """Every method by its name, the core's too. Raises ValueError for a name that stands there twice."""
    return Commands(domains).methods


@dataclass(slots=True)
class _State:
    """What is known so far, for the error that may come."""

    program: str
    view: View
    place: str = ""
    domain: Domain | None = None
    hook: bool = False
    writes: bool = False
    took: tuple[str, str] | None = None
    """An option that took a command's word as its value, and that word."""


class _GlobalFlags:
    """The table of global flags, worked out when the first command line has one."""

    def __init__(self) -> None:
        self._known: tuple[Mapping[str, Field], Mapping[str, Field]] | None = None

    def _get(self) -> tuple[Mapping[str, Field], Mapping[str, Field]]:
        if self._known is None:
            known = look(Globals)
            self._known = ({"--help": HELP, "-h": HELP, **known.flags}, known.by_name)
        return self._known

    @property
    def flags(self) -> Mapping[str, Field]:
        return self._get()[0]

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**self._get()[1], "help": HELP}

    @property
    def shown(self) -> list[Field]:
        return [*self._get()[1].values(), HELP]


_GLOBAL_FLAGS: Final = _GlobalFlags()
_NO_GLOBALS: Final = Globals()


def _seconds(text: str) -> Decimal:
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", text, re.ASCII) and (seconds := Decimal(text)) > 0:
        return seconds
    raise Usage("expected a number of seconds above 0", where="--timeout")


def _is_hook(place: str) -> bool:
    """`hook …` always exits 0: a hook's failure must not become the session's."""
    return place.partition(" ")[0] == "hook"


# Replies --------------------------------------------------------------------------------------------------------------


def render(parsed: Parsed, answer: Answer) -> Reply:
    """The reply to a call that was answered."""
    status = 0 if _is_hook(parsed.place) else answer.status
    view = parsed.view
    if view.quiet:
        return Reply(status=status, hand=answer.hand)
    result = answer.result
    if answer.rev is not None and isinstance(result, dict) and "rev" not in result:
        result = {**result, "rev": answer.rev}
    operation = parsed.call.operation
    human = view.human or (view.tty and not view.json and not parsed.call.domain.takes_over)
    if operation.text is not None and not (view.json or view.raw or view.human):
        out = operation.text(result)
        if view.tty and not out and operation.human is not None:
            out = operation.human(result, view.width)  # an empty document on a terminal looks like a fault
        out = _clean_lines(out) if view.tty else out
    elif not human:
        out = _json(result, view.tty)
    else:
        dry, drawn = "", max(20, view.width)
        if parsed.call.dry_run and isinstance(result, Mapping):
            dry, drawn = _dry(result, drawn), max(20, drawn - 2)
            result = {key: value for key, value in result.items() if key not in ("dry_run", "would_change")}
        draws = operation.human or _draw_result
        out = _clean_lines(draws(result, drawn))
        out = dry + textwrap.indent(out, "  ") if dry else out
    if out and not out.endswith("\n") and (operation.text is None or view.tty or human):
        out += "\n"  # a text off a terminal is a document's, to the byte
    return Reply(out=out, status=status, hand=answer.hand)


def render_error(parsed: Parsed | None, error: StatedError) -> Reply:
    """The reply to a call that failed; `parsed` is None when it never was one."""
    if parsed is None:
        return _failure(error, PROGRAM, "", View(), None, False)
    call = parsed.call
    hook = _is_hook(parsed.place)
    return _failure(
        error, parsed.program, parsed.place, parsed.view, call.domain, hook, _writes(call.domain, call.operation)
    )


def _writes(domain: Domain, operation: Operation) -> bool:
    """Whether its refusals end by saying that nothing was written; an older tool's say what they always said."""
    return operation.kind is Kind.WRITER and not domain.takes_over


_NOTHING = re.compile(r"\b(nothing was|no run was) \w+")


def _failure(
    error: StatedError, program: str, place: str, view: View, domain: Domain | None, hook: bool, writes: bool = False
) -> Reply:
    status = error.status
    if domain is not None and status == 3:
        status = domain.unavailable_status
    where = error.where
    head, _, rest = where.partition(": ")
    if head and f" {place}".endswith(f" {head}"):
        where = rest  # the command's own words, or the last of them
    if place and not where.startswith(place) and (isinstance(error, Usage) or not where or where.startswith("-")):
        # A flag says too little without its command; a document's name says enough.
        where = f"{place}: {where}" if where else place
    line = table.clean(StatedError(error.reason, where=where, hint=error.hint).line())
    if writes and isinstance(error, Refused) and not _NOTHING.search(line):
        line += "; nothing was written"
    out = ""
    if view.json:
        data = error.payload() | ({"where": where} if where else {})
        body = {"code": error.code, "message": error.reason, "data": data}
        out = _json({"error": body}, view.tty)
    elif status == 1 and (domain.takes_over if domain is not None else program.endswith("-state")):
        # What callers of the older tool read.
        out = json.dumps({"ok": False, "error": line}) + "\n"
    return Reply(out=out, err=f"{table.clean(program)}: {line}\n", status=0 if hook else status)


def _json(value: Any, tty: bool) -> str:
    try:
        text = json_text.dumps(value).decode() + "\n"
    except json_text.NotJson:
        text = json_text.dumps(_mended(value)).decode() + "\n"
    # JSON leaves these characters as they are inside strings; a terminal may act on them.
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) if tty else text


def _mended(value: Any) -> Any:
    """A file's name may hold bytes that are no UTF-8: they are shown as question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list | tuple) else value


_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


# Tables ---------------------------------------------------------------------------------------------------------------


def draw(value: Any, width: int = 80) -> str:
    """A table for people, made from any JSON value."""
    return "\n".join(table.draw(value, max(20, width))) + "\n"


def _draw_result(result: Any, width: int) -> str:
    told = _telling(result)
    return draw(told if told or not result else {"done": True}, width)


def _telling(result: Any) -> Any:
    """An answer without what says nothing to a person: absent revisions, empty lists and texts, notes for programs."""
    if not isinstance(result, Mapping):
        return result
    told = {key: _telling(value) for key, value in result.items() if key != "untrusted"}
    return {
        key: value for key, value in told.items() if value not in ([], {}, (), "") and (key, value) != ("rev", None)
    }


def _dry(result: Mapping[str, Any], width: int) -> str:
    """What a person must see first of a call that was only tried."""
    paths = [table.clean(str(path)) for path in result.get("would_change", ())]
    would = f"would change: {', '.join(paths)}" if paths else "no document would change"
    return "\n".join([*table.wrap(f"dry run: nothing was written; {would}", width), "it would answer:"]) + "\n"


def _clean_lines(text: str) -> str:
    return "".join(char if char in "\n\t" else table.visible(char) for char in text)


# Help pages -----------------------------------------------------------------------------------------------------------


def _usage(node: _Node, operation: Operation) -> str:
    known = look(operation.params)
    parts = [PROGRAM, node.place]
    parts += [one.usage for one in known.positionals]
    parts += [one.usage for one in known.fields if one.flag and one.required]
    if any(one.flag and not one.required for one in known.fields) or has_control(node.domain, operation):
        parts.append("[FLAGS]")
    return " ".join(parts)


def _operation_page(node: _Node, operation: Operation, width: int) -> str:
    known = look(operation.params)
    text = _fill(f"{PROGRAM} {node.place}: {operation.summary}", width) + "\n"
    text += "\n" + _fill(f"Usage: {_usage(node, operation)}", width, "       ") + "\n"
    if operation.details:
        text += "\n" + "\n".join(_fill(part, width) for part in operation.details.split("\n")) + "\n"
    text += _section(
        "Words", [(one.metavar + ("…" if one.many else ""), one.description) for one in known.positionals], width
    )
    text += _section("Flags", _flag_rows(one for one in known.fields if one.flag), width)
    if has_control(node.domain, operation):
        text += _section(_CONTROLLED, _flag_rows(control_look().fields), width)
    if operation.examples:
        text += "\nExamples:\n" + "".join(_example(line, width) for line in operation.examples)
    if method := method_name(node.domain, operation):
        text += f"\nAs a method: {method}\n"
    status = "always 0" if _is_hook(node.place) else "0 done, 1 refused, 2 usage, 3 no state"
    return text + "\n" + _fill(f"Global flags: {PROGRAM} --help. Exit: {status}.", width) + "\n"


_CONTROLLED: Final = "Flags of the commands that write documents"


def _choices(domain: Domain, width: int) -> str:
    """What a domain decided where its contract is silent."""
    parts = [f"{domain.title}: choices made where the contract is silent"]
    for title, sentence in domain.notes.items():
        parts.append(f"{_fill(title, width)}\n" + textwrap.indent(_fill(sentence, width - 2), "  "))
    return "\n\n".join(parts) + "\n"


_WORDS: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")


def _example(line: str, width: int) -> str:
    """A command line that can be copied as it stands, in several lines where it is long."""
    lines = [f"  {PROGRAM}"]
    for word in _WORDS.findall(line):
        if table.width_of(lines[-1]) + table.width_of(word) + 3 > width and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(f"     {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines) + "\n"


def _fill(text: str, width: int, indent: str = "") -> str:
    """Lines broken between words only: a flag and a name stay whole."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _flag_rows(fields: Iterable[Field]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for one in fields:
        name = f"{one.short}, {one.flag}" if one.short else one.flag
        about = one.description
        if one.required:
            about += " (needed)"
        elif one.default not in (msgspec.NODEFAULT, None, msgspec.UNSET, False, "", [], {}, ()):
            about += f" (default: {table.cell(one.default)})"
        if one.many and one.shape != "pairs":
            about += " (may be given again, or with commas)" if one.comma else " (may be given again)"
        rows.append((name if one.shape == "switch" else f"{name} {one.metavar}", about.strip()))
    return rows


def _rows(nodes: Iterable[_Node]) -> list[tuple[str, str]]:
    return [(node.place, node.operation.summary) for node in nodes if node.operation is not None]


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    if not rows:
        return ""
    left = min(28, max(len(name) for name, _ in rows))
    lines = [f"\n{title}:"]
    for name, about in rows:
        indent = " " * (left + 4)
        body = _fill(about, max(20, width - left - 4)).split("\n")
        if len(name) > left:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name.ljust(left)}  {body.pop(0)}".rstrip())
        lines.extend(indent + line for line in body if line)
    return "\n".join(lines) + "\n"


# OpenRPC --------------------------------------------------------------------------------------------------------------


def _openrpc_row(name: str, domain: Domain, operation: Operation, shared: dict[str, Any]) -> dict[str, Any]:
    own = schema(operation, ref_template="#/components/schemas/{name}")
    shared.update(own.get("$defs", {}))
    properties = dict(own["properties"])
    needed = set(own.get("required", ()))
    if has_control(domain, operation):
        control = Operation(name="", kind=Kind.WRITER, summary="", params=Control)
        properties |= schema(control)["properties"]
    row: dict[str, Any] = {"name": name, "summary": operation.summary, "paramStructure": "by-name"}
    if operation.details:
        row["description"] = operation.details
    params: list[dict[str, Any]] = []
    for key, value in properties.items():
        one = {"name": key, "required": key in needed, "schema": value}
        if "description" in value:
            one["description"] = value["description"]
        params.append(one)
    row["params"] = params
    row["result"] = {"name": "result", "schema": {"type": "object"}}
    row["x-kind"] = operation.kind.value
    return row
