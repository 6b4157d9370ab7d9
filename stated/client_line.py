"""One question over a daemon's socket, without an event loop: one JSON line out, one answer back."""

from __future__ import annotations

import socket
import time
from typing import Any

import orjson

from stated import config


def ask(path: str, method: str, params: dict[str, Any], *, timeout: float) -> Any:
    """The result of one method. Raises OSError (nobody answers, in time or at all) or LookupError (an error was
    answered)."""
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(path)
        connection.sendall(orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + b"\n")
        received: list[bytes] = []
        size = 0
        while True:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            part = connection.recv(65536)
            if not part:
                raise ConnectionResetError(f"{path} ended the connection")
            received.append(part)
            size += len(part)
            if size > config.MAX_LINE:
                raise OSError(f"{path} answers without end")
            if b"\n" not in part:
                continue
            *lines, rest = b"".join(received).split(b"\n")
            received = [rest]
            for line in lines:
                message = orjson.loads(line)
                if message.get("id") == 1:
                    if "error" in message:
                        raise LookupError(message["error"].get("message", "refused"))
                    return message.get("result")
