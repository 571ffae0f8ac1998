"""Architecture rules: import floors, file sizes, names, and imports without JAX."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "realm_jax"
FILES = sorted(PACKAGE.rglob("*.py"))
PUBLIC_PACKAGES = {PACKAGE, PACKAGE / "interop"}  # their __init__.py exports names
MAX_LINES = 350
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
OTHER_TEST_FOLDERS = {"benchmarks", "docs", "experiments", "faults", "support"}
FLOORS = [  # a module imports only from its own package and from lower floors
    {"errors", "defaults", "moved_keys"},
    {"config_checks", "config_paths"},
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
# Their threads pass every exception to the thread that waits for the result, or must not end: the
# lock renewal retries after any error.
BROAD_EXCEPT_ALLOWED = {
    "trainer/prefetch.py",
    "trainer/index_watcher.py",
    "trainer/publisher.py",
    "storage/renewal.py",
}


def module_name(path):
    return ".".join(["realm_jax", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(
        ".__init__"
    )


MODULES = {module_name(path): path for path in FILES}


@cache
def tree(path):
    return ast.parse(path.read_text())


def imported(nodes):
    """Returns the modules of the package that these nodes import."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            assert node.level == 0
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= submodules & MODULES.keys() or {node.module}
    return found


def part(module):
    """Returns `trainer` for realm_jax.trainer.loop, and "" for realm_jax."""
    return [*module.split("."), ""][1]


def upward_imports(module, targets):
    """Returns the imported modules of other packages that are not on a lower floor."""
    floor = FLOOR[part(module)]
    others = {target for target in targets if part(target) not in ("", part(module))}
    return {target for target in others if FLOOR[part(target)] >= floor}


def relative(path):
    return str(path.relative_to(PACKAGE))


def test_every_package_has_a_floor():
    missing = {part(name) for name in MODULES} - {""} - FLOOR.keys()
    assert not missing, f"add these to FLOORS: {sorted(missing)}"


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"realm_jax"}))
def test_a_module_imports_only_from_lower_floors(module):
    found = upward_imports(module, imported(ast.walk(tree(MODULES[module]))))
    assert not found, f"{module} imports from its own floor or a higher one: {sorted(found)}"


def test_storage_imports_only_errors():
    for module, path in MODULES.items():
        if part(module) == "storage":
            used = {part(target) for target in imported(ast.walk(tree(path)))}
            assert used <= {"storage", "errors"}, module


def test_an_upward_import_is_found():
    up = ast.parse("def late():\n    from realm_jax.artifacts import export").body
    [found] = upward_imports("realm_jax.models.bert", imported(ast.walk(up[0])))
    assert found == "realm_jax.artifacts.export"
    assert upward_imports("realm_jax.index_builder.run", {"realm_jax.trainer.loop"})
    assert upward_imports("realm_jax.losses", {"realm_jax.metrics"})
    assert not upward_imports("realm_jax.retrieval.retriever", {"realm_jax.data.rows"})


def test_models_and_losses_do_not_import_data():
    for module, path in MODULES.items():
        if part(module) in ("models", "losses"):
            assert not {m for m in imported(ast.walk(tree(path))) if part(m) == "data"}, module


def test_no_import_cycles():
    graph = {module: imported(tree(path).body) - {module} for module, path in MODULES.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError with the modules


@pytest.mark.parametrize("part", ["text", "corpus", "data"])
def test_text_corpus_and_data_import_without_jax(part):
    modules = ", ".join(m for m in MODULES if m.split(".")[1:2] == [part])
    script = f"import sys, {modules}; assert not {{'jax', 'flax', 'optax'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("package", ["realm_jax", "realm_jax.interop"])
def test_public_packages_import_without_jax(package):
    script = f"import sys, {package}; assert not {{'jax', 'flax', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_realm_jax_exports_exactly_the_names_in_all():
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
def test_each_file_is_short_and_has_a_docstring(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES
    if path.name == "__init__.py" and path.parent not in PUBLIC_PACKAGES:
        assert path.read_text() == ""
    else:
        assert ast.get_docstring(tree(path))


def test_files_outside_the_package_are_short():
    folders = (TESTS.parent / name for name in ("benchmarks", "experiments", "launch", "tests"))
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(paths) > 100
    assert not [path for path in paths if len(path.read_text().splitlines()) > MAX_LINES]


def test_module_names_say_what_is_in_them():
    parts = {part for path in FILES for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert not parts & VAGUE_NAMES


def is_broad(handler):
    """Whether an `except` clause catches all exceptions."""
    nodes = [] if handler.type is None else ast.walk(handler.type)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return handler.type is None or bool(names & {"Exception", "BaseException"})


def test_only_threads_that_pass_errors_on_or_must_not_end_catch_all_exceptions():
    for path in FILES:
        handlers = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ExceptHandler)]
        if any(map(is_broad, handlers)):
            assert relative(path) in BROAD_EXCEPT_ALLOWED


def test_importing_a_module_does_not_change_jax_settings():
    for path in FILES:
        for statement in tree(path).body:
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                assert not re.search(r"\bjax\.config\b", ast.unparse(statement)), relative(path)


def test_test_files_have_unique_names():
    names = [path.name for path in TESTS.rglob("*.py") if path.name != "conftest.py"]
    assert len(names) == len(set(names))


def test_test_folders_mirror_the_packages():
    folders = {path.parent.relative_to(TESTS).parts for path in TESTS.rglob("*.py")} - {()}
    packages = {path.parent.relative_to(PACKAGE).parts for path in FILES}
    assert not folders - packages - {(name,) for name in OTHER_TEST_FOLDERS}


def test_test_files_at_the_top_mirror_the_top_modules():
    tested = {path.stem.removesuffix("_test") for path in TESTS.glob("*_test.py")}
    assert tested <= {path.stem for path in PACKAGE.glob("*.py")} | {"architecture"}


COMPILES = {"jit", "pjit", "pmap"}


def jits(tree):
    """Names of functions that compile, as an attribute (`jax.jit`) or imported (`import jit`)."""
    for node in ast.walk(tree):
        named = [node.attr] if isinstance(node, ast.Attribute) else []
        named += [one.name for one in node.names] if isinstance(node, ast.ImportFrom) else []
        yield from COMPILES.intersection(named)


def test_only_named_programs_are_jitted():
    """Every program has a name, which `realm compile --step=all` must compile."""
    found = {relative(path) for path in FILES if any(jits(ast.parse(path.read_text())))}
    assert found == {"parallel/program.py"}
    for other in ("from jax import jit as fast", "nnx.jit(f)", "jax.jit(f)", "@partial(jax.jit)"):
        assert [*jits(ast.parse(f"{other}\ndef f(): pass"))] == ["jit"]
