"""Worlds for the fault tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.harness import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        print(made.tail())  # pytest shows it when the test failed
        made.close()
