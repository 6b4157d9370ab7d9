"""Log lines that can be trusted to do no harm.

What may be relied on, whatever a caller passes and whatever became of standard error:

- a log call never raises and never blocks: a line that cannot be written at once is dropped and counted, and the next
  line that gets through says how many are missing;
- one call is one line; control characters, lone surrogates and numbers of any size come out readable;
- no state is written: callers give names, paths, sizes and ids, never values, and of an exception only its type and the
  places it came through are kept, as its text may quote what a file holds. Paths are not state.
- nothing is written before `set_up`: a program that is not the daemon prints what it means to print.

A line is a JSON object, or a coloured text when standard error is a terminal. The loggers of the standard library go
the same way (their arguments are left out, for the same reason).
"""

from __future__ import annotations

import logging
import math
import os
import select
import sys
import threading
import types
from collections.abc import Iterator, MutableMapping
from typing import Any, Literal, TypeAlias

import orjson
import structlog

from stated.config import LOG_LINE, LOG_VALUE

Form: TypeAlias = Literal["json", "console"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_QUIET = ("watchfiles", "watchfiles.main", "asyncio", "jsonrpcserver")
"""Libraries whose every change, task or request is a line at `info`."""


class _Sink:
    """Where lines go: a descriptor, or nowhere until `set_up`. One at a time, so that lines never mix."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fd: int | None = None
        self.level = _LEVELS["info"]
        self.form: Form = "json"
        self.dropped = 0
        self.reported = 0

    def write(self, line: bytes) -> None:
        with self.lock:
            if self.fd is None:
                return
            missing = self.dropped - self.reported
            if missing:
                note = {"level": "warning", "event": "log lines were dropped", "count": missing}
                if not self._put(orjson.dumps(note) + b"\n"):
                    self.dropped += 1
                    return
                self.reported = self.dropped
            if not self._put(line):
                self.dropped += 1

    def _put(self, line: bytes) -> bool:
        assert self.fd is not None  # `write` is the only caller
        try:
            poll = select.poll()
            poll.register(self.fd, select.POLLOUT)
            if not any(events & select.POLLOUT for _, events in poll.poll(0)):
                return False
            return os.write(self.fd, line) == len(line)
        except (OSError, ValueError):
            return False


_sink = _Sink()


class Logger(structlog.BoundLoggerBase):
    """`log.info("what happened", path=…, rev=…)`; `bind(**values)` gives a logger that adds these values."""

    def debug(self, event: str, /, **values: object) -> None:
        self._log("debug", event, values)

    def info(self, event: str, /, **values: object) -> None:
        self._log("info", event, values)

    def warning(self, event: str, /, **values: object) -> None:
        self._log("warning", event, values)

    def error(self, event: str, /, **values: object) -> None:
        self._log("error", event, values)

    def exception(self, event: str, /, **values: object) -> None:
        """An error with the exception that is being handled."""
        self._log("error", event, {"exc_info": sys.exc_info()[1], **values})

    def _log(self, level: str, event: str, values: dict[str, object]) -> None:
        if _sink.fd is None or _LEVELS[level] < _sink.level:
            return
        try:
            arguments, _ = self._process_event(level, event, values)
            line = arguments[0]
        except Exception as error:  # a log line must not become its caller's failure
            note = {"level": level, "event": "a log line could not be made", "why": type(error).__name__}
            line = orjson.dumps(note) + b"\n"
        _sink.write(line)


def get_logger(name: str = "stated") -> Logger:
    return Logger(_sink, [_stamp, _flatten, _render], {"logger": name})


def set_up(level: str, form: Form | None = None, fd: int = 2) -> None:
    """Begin to write lines of this level and above to a descriptor; without a form, a terminal gets coloured text."""
    with _sink.lock:
        _sink.fd = fd
        _sink.level = _LEVELS[level]
        _sink.form = form or ("console" if os.isatty(fd) else "json")
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(_sink.level)
    for library in _QUIET:
        logging.getLogger(library).setLevel(max(_sink.level, logging.WARNING))


def silence() -> None:
    """Write nothing any more: back to how it is before `set_up`."""
    with _sink.lock:
        _sink.fd = None
    logging.getLogger().handlers[:] = []


def dropped() -> int:
    """How many lines could not be written."""
    return _sink.dropped


# Processors -----------------------------------------------------------------------------------------------------------


def _stamp(_: Any, level: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    values["level"] = level
    return _now(_, level, values)


_now = structlog.processors.TimeStamper(fmt="iso", utc=True)


def _flatten(_: Any, __: str, values: MutableMapping[str, Any]) -> dict[str, Any]:
    """Only plain, short values, and of an exception what is not state."""
    error = values.pop("exc_info", None)
    first = {key: values.pop(key, "") for key in ("timestamp", "level", "logger", "event")}
    plain = {_text(key): _plain(value) for key, value in (first | dict(values)).items()}
    if isinstance(error, BaseException):
        plain |= _exception(error)
    return plain


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 63 else f"<an integer of {value.bit_length()} bits>"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return _text(os.fsdecode(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain_item(item) for item, _ in zip(value, range(20), strict=False)]
    return f"<{type(value).__name__}>"


def _plain_item(value: object) -> object:
    """One level of a list is enough for paths and names; a deeper one cannot recurse."""
    return f"<{type(value).__name__}>" if isinstance(value, (list, tuple, set, frozenset)) else _plain(value)


def _text(text: str) -> str:
    """Printable and short; a `str` subclass cannot play tricks."""
    text = str.__str__(text)
    if len(text) > LOG_VALUE:
        text = text[:LOG_VALUE] + "…"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return text


def _exception(error: BaseException) -> dict[str, Any]:
    """The types along the chain, and the places the first came through, innermost first."""
    kinds = [type(link).__name__ for link in _chain(error)]
    facts: dict[str, Any] = {"exception": " < ".join(kinds), "at": list(_places(error.__traceback__))[::-1][:12]}
    if isinstance(error, OSError) and isinstance(error.errno, int):
        facts["errno"] = f"{error.errno} {os.strerror(error.errno)}"
    return facts


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(5):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _places(traceback: types.TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield f"{os.path.basename(code.co_filename)}:{traceback.tb_lineno} {code.co_name}"
        traceback = traceback.tb_next


_console = structlog.dev.ConsoleRenderer(colors=True, pad_event_to=30)


def _render(_: Any, level: str, values: MutableMapping[str, Any]) -> bytes:
    if _sink.form == "console":
        return str(_console(_, level, values)).encode("utf-8", "backslashreplace")[: LOG_LINE - 1] + b"\n"
    line = orjson.dumps(dict(values)) + b"\n"
    if len(line) > LOG_LINE:
        short = {key: values[key] for key in ("timestamp", "level", "logger", "event")}
        line = orjson.dumps(short | {"cut": len(line)}) + b"\n"
    return line


class _Bridge(logging.Handler):
    """The standard library's loggers → ours. A library's message is a template; what fills it may be state."""

    def emit(self, record: logging.LogRecord) -> None:
        event = record.msg.split("\n", 1)[0] if isinstance(record.msg, str) else type(record.msg).__name__
        error = record.exc_info[1] if record.exc_info else record.msg
        place = f"{os.path.basename(record.pathname)}:{record.lineno}"
        level = next((name for name, number in reversed(_LEVELS.items()) if record.levelno >= number), "debug")
        get_logger(record.name)._log(level, event, {"place": place, "exc_info": error})

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        """A record that cannot be handled is dropped; the standard library would print it."""
