"""The house rules, read from the syntax trees and from fresh processes."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "realm_jax"
FILES = sorted(PACKAGE.rglob("*.py"))
PUBLIC_FACES = {PACKAGE, PACKAGE / "interop"}
MOST_LINES = 350
FLOORS = [
    {"errors", "defaults"},
    {"config_checks"},
    {"config", "runtime"},
    {"storage", "text"},
    {"corpus"},
    {"data", "models", "parallel"},
    {"losses", "metrics", "retrieval", "interop"},
    {"artifacts"},
    {"monitoring"},
    {"trainer", "index_builder", "inference"},
    {"tagging"},
    {"report", "planning", "serve"},
    {"cli"},
]
FLOOR = {part: number for number, floor in enumerate(FLOORS) for part in floor}
# Threads hand any failure over to the thread that asked for the work; that of a claim outlives it.
BROAD_EXCEPT_ALLOWED = {
    "trainer/prefetch.py",
    "trainer/index_watcher.py",
    "trainer/publisher.py",
    "storage/locks.py",
}


def name_of(path):
    return ".".join(["realm_jax", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in FILES}


@cache
def tree(path):
    return ast.parse(path.read_text())


def imported(nodes):
    """Modules of the package that these nodes import; `from a import b` may mean module a.b."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            assert node.level == 0
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & MODULES.keys() or {node.module}
    return found


def part(module):
    """`trainer` of realm_jax.trainer.loop; "" of the package itself."""
    return [*module.split("."), ""][1]


def breaches(module, targets):
    """Imports of the same or a higher floor, outside a module's own part."""
    own = FLOOR[part(module)]
    others = {target for target in targets if part(target) not in ("", part(module))}
    return {target for target in others if FLOOR[part(target)] >= own}


def relative(path):
    return str(path.relative_to(PACKAGE))


def test_every_part_of_the_package_has_a_floor():
    assert {part(name) for name in MODULES} - {""} <= FLOOR.keys()


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"realm_jax"}))
def test_imports_go_down_only(module):
    assert not breaches(module, imported(ast.walk(tree(MODULES[module]))))


def test_an_import_that_goes_up_is_a_breach():
    up = ast.parse("def late():\n    from realm_jax.artifacts import export").body
    [found] = breaches("realm_jax.models.bert", imported(ast.walk(up[0])))
    assert found == "realm_jax.artifacts.export"
    assert breaches("realm_jax.index_builder.run", {"realm_jax.trainer.loop"})
    assert breaches("realm_jax.losses", {"realm_jax.metrics"})
    assert not breaches("realm_jax.retrieval.retriever", {"realm_jax.data.rows"})


def test_models_and_losses_never_import_data():
    for module, path in MODULES.items():
        if part(module) in ("models", "losses"):
            assert not {m for m in imported(ast.walk(tree(path))) if part(m) == "data"}, module


def test_no_import_cycles():
    graph = {module: imported(tree(path).body) - {module} for module, path in MODULES.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


@pytest.mark.parametrize("part", ["text", "corpus", "data"])
def test_importing_the_host_side_never_imports_jax(part):
    modules = ", ".join(m for m in MODULES if m.split(".")[1:2] == [part])
    script = f"import sys, {modules}; assert not {{'jax', 'flax', 'optax'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("face", ["realm_jax", "realm_jax.interop"])
def test_importing_a_public_face_never_imports_jax(face):
    script = f"import sys, {face}; assert not {{'jax', 'flax', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_face_gives_what_it_names_and_nothing_else():
    script = """
import realm_jax
for name in realm_jax.__all__:
    assert getattr(realm_jax, name) is not None, name
assert dir(realm_jax) == sorted(realm_jax.__all__)
assert realm_jax.Run.__name__ == "Run"
assert callable(realm_jax.interop.load)
assert not hasattr(realm_jax, "opne")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_each_file_is_short_and_says_what_it_is(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
    if path.name == "__init__.py" and path.parent not in PUBLIC_FACES:
        assert path.read_text() == ""
    else:
        assert ast.get_docstring(tree(path))


def test_no_file_is_called_utils():
    assert not [path for path in FILES if path.stem in ("util", "utils", "helpers", "common")]


def is_broad(handler):
    """Whether an `except` clause catches everything."""
    kinds = [] if handler.type is None else ast.walk(handler.type)
    names = {node.id for node in kinds if isinstance(node, ast.Name)}
    return handler.type is None or bool(names & {"Exception", "BaseException"})


def test_broad_except_only_where_threads_hand_errors_over_or_must_live_on():
    for path in FILES:
        handlers = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ExceptHandler)]
        if any(map(is_broad, handlers)):
            assert relative(path) in BROAD_EXCEPT_ALLOWED


def test_nothing_changes_jax_settings_on_import():
    for path in FILES:
        for statement in tree(path).body:
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                assert "jax.config" not in ast.unparse(statement), relative(path)


def test_test_files_have_names_of_their_own():
    names = [p.name for p in Path(__file__).parent.rglob("*.py") if p.name != "conftest.py"]
    assert len(names) == len(set(names))
