"""Process fixtures of the fault-injection tests, and a summary of the cases that ran."""

import collections
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.fork_server import ForkServer
from support.processes import environment

PROPERTY = "faults"  # report property: [kind of fault, number of cases]


@pytest.fixture(scope="session")
def fork_server(compilation_cache):
    """A server that forks `realm` processes; they share one compilation cache."""
    fork_server = ForkServer(environment(compilation_cache))
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="module")
def _running(request, fork_server, tiny, tmp_path_factory):
    """Runs all selected cases of a module, some in parallel because they mostly wait."""
    selected = [item for item in request.session.items if item.module is request.module]
    with ThreadPoolExecutor(request.module.PARALLEL) as pool:
        yield {
            item.name: pool.submit(
                request.module.run_case,
                tmp_path_factory.mktemp("case"),
                fork_server,
                tiny.folder,
                **item.callspec.params,
            )
            for item in selected
        }
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def outcome(request, _running):
    """The result of `run_case(folder, fork_server, knowledge, **parameters)` of this test."""
    return _running[request.node.name].result()


@pytest.fixture
def cases(request, record_property):
    """A list to which a test appends each of its cases; its length is counted."""
    found = []
    yield found
    request.node.cases = len(found)


@pytest.fixture(autouse=True)
def _case_count(request, record_property):
    yield
    fault = getattr(request.module, "FAULT", request.module.__name__)
    record_property(PROPERTY, [fault, getattr(request.node, "cases", 1)])


def pytest_terminal_summary(terminalreporter):
    """Prints the number of cases of each kind of fault, and the number of failed tests."""
    cases, failed = collections.Counter(), 0
    for outcome in ("passed", "failed", "error", ""):
        for report in terminalreporter.getreports(outcome):
            failed += report.failed
            properties = getattr(report, "user_properties", ())
            for fault, count in (value for name, value in properties if name == PROPERTY):
                cases[fault] += count
    for fault, count in sorted(cases.items()):
        terminalreporter.write_line(f"{fault}: {count} cases")
    if cases:
        terminalreporter.write_line(f"failed: {failed}")
