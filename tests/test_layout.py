"""The layout: who may import whom, what lies where. It reads the sources and runs nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stated import domains
from stated.domain import Domain

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "stated"
SHIM = REPOSITORY / "clients" / "statectl"

LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(row.split())
    for row in (
        "stated",  # the version
        "errors syscalls faults documents",
        "domain config",
        "call log params client_line",
        "store places",
        "journal watch",
        "roots",
        "snapshot recovery",
        "transaction history",
        "writer",
        "engine",
        "core domains",
        "cli",
        "rpc",
        "server",
        "daemon",
        "local",
        "__main__",
    )
)
"""From the bottom to the top: a module imports from rows above its own only (documents and domains are packages of
their own, looked at apart)."""

ENGINE = frozenset("store journal recovery history transaction writer snapshot roots watch engine".split())
WIRING = frozenset("engine daemon local __main__".split())

PURE_STANDARD = frozenset(
    "__future__ abc base64 binascii bisect calendar collections contextlib copy dataclasses datetime decimal difflib "
    "enum fnmatch fractions functools hashlib heapq html ipaddress itertools json math numbers operator posixpath re "
    "statistics string textwrap types typing unicodedata urllib zoneinfo".split()
)
"""What a domain may take from the standard library: nothing that opens, asks the time, or is random."""

PURE_THIRD_PARTY = frozenset({"msgspec"})

TOP_LEVEL = frozenset(
    ".ci .git .github .gitignore CHANGELOG.md LICENSE README.md clients pyproject.toml stated systemd tests".split()
)


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package by its dotted name below `stated` (`domains.seal.profile`)."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "stated", path


MODULES = dict(modules())
DOMAIN_NAMES = sorted(name.removeprefix("stated.domains.") for name in domains.BUILT_IN)


def imports(path: Path) -> set[str]:
    """Full dotted names of all that a file imports, also inside functions."""
    return imports_of(path.read_text())


def imports_of(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import in line {node.lineno}"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own(path: Path) -> set[str]:
    """The modules of the package that a file imports, as `modules` names them."""
    found: set[str] = set()
    for name in imports(path):
        if name == "stated":
            continue  # `from stated import x`: x is there by its own name
        if name.startswith("stated."):
            below = name.removeprefix("stated.")
            if below in MODULES:
                found.add(below)
            elif below.startswith("__version__"):
                found.add("stated")
    # `from stated.a.b import name` gives both a.b and a.b.name; a package counts when nothing below it was meant.
    return {name for name in found if not any(other.startswith(name + ".") for other in found)}


def layer(module: str) -> int:
    top = module.split(".", 1)[0]
    return next((number for number, row in enumerate(LAYERS) if top in row), -1)


def test_every_module_has_its_layer() -> None:
    assert [name for name in MODULES if layer(name) < 0] == []


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards_only(module: str) -> None:
    if module.startswith("domains."):
        return  # see below: a domain has rules of its own
    upwards = []
    for name in own(MODULES[module]):
        same_package = name.split(".")[0] == module.split(".")[0]
        if layer(name) >= layer(module) and not same_package:
            upwards.append(name)

    assert upwards == []


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("domains.")])
def test_a_domain_imports_the_contract_documents_itself_and_what_is_pure(module: str) -> None:
    domain = ".".join(module.split(".")[:2])
    bad = []
    for name in imports(MODULES[module]):
        top, _, below = name.partition(".")
        if top == "stated":
            allowed = (
                not below or below.split(".")[0] in ("domain", "documents") or f"{below}.".startswith(f"{domain}.")
            )
        else:
            allowed = top in PURE_STANDARD | PURE_THIRD_PARTY
        if not allowed:
            bad.append(name)

    assert bad == []


def words(path: Path) -> Iterator[tuple[int, str]]:
    """The names and texts that a program acts on: docstrings and comments are left out."""
    tree = ast.parse(path.read_bytes())
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias):
            yield 0, node.name


def test_the_core_names_no_domain() -> None:
    found = [
        f"{module}:{number}: {text}"
        for module, path in MODULES.items()
        if not module.startswith("domains")
        for number, text in words(path)
        for name in ("seal", "bodhi", "brainstorm")
        if name in text.lower().replace("unseal", "").replace("sealed", "")
    ]

    assert found == []


def test_only_the_wiring_imports_the_engine() -> None:
    bad = {
        module: sorted(own(path) & ENGINE)
        for module, path in MODULES.items()
        if module not in ENGINE | WIRING and own(path) & ENGINE
    }

    assert bad == {}


def test_only_daemon_and_the_program_import_the_server() -> None:
    assert {module for module, path in MODULES.items() if "server" in own(path)} <= {"daemon", "__main__"}


@pytest.mark.parametrize(
    ("library", "home"),
    [("jsonrpcserver", {"rpc"}), ("watchfiles", {"watch"}), ("structlog", {"log"}), ("sqlite3", {"journal"})],
)
def test_a_library_has_one_module_that_imports_it(library: str, home: set[str]) -> None:
    assert {module for module, path in MODULES.items() if library in imports(path)} <= home


def test_a_domain_is_in_the_built_in_table_and_the_other_way_round() -> None:
    folders = {path.name for path in (PACKAGE / "domains").iterdir() if (path / "__init__.py").exists()}

    assert folders == set(DOMAIN_NAMES)
    assert all(isinstance(domain, Domain) for domain in domains.load())


def test_the_shim_imports_nothing_of_the_package_and_nothing_from_elsewhere() -> None:
    names = {name.split(".")[0] for text in shim_texts() for name in imports_of(text)}

    assert names <= sys.stdlib_module_names


def shim_texts() -> list[str]:
    """The shim, and the texts in it that are programs of their own."""
    source = SHIM.read_text()
    inner = [
        node.value.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if "\ndef " in node.value.value
    ]
    return [source, *inner]


def test_the_shim_is_python_3_9() -> None:
    for text in shim_texts():
        ast.parse(text, feature_version=(3, 9))


def test_bodhi_state_is_the_same_file_under_its_second_name() -> None:
    assert os.readlink(SHIM.with_name("bodhi-state")) == "statectl"
    assert os.access(SHIM, os.X_OK)


def test_the_top_level_is_as_the_design_has_it() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if tracked.returncode or not tracked.stdout:  # an unpacked release, or nothing added yet
        names = {path.name for path in REPOSITORY.iterdir() if not path.name.startswith(".")} - {"build", "dist"}
    else:
        names = {name.split("/")[0] for name in tracked.stdout.split("\0") if name}

    assert names - TOP_LEVEL == set()


def test_no_test_sleeps_but_in_the_poll_of_a_wait() -> None:
    found = [
        f"{path.name}:{number}"
        for path in (REPOSITORY / "tests").rglob("*.py")
        if "golden" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ".sleep(" in line and "# the poll of this wait" not in line and '.sleep(" in' not in line
    ]

    assert found == []
