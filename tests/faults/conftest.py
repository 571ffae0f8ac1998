"""Processes for the suite of `make faults`, and the count of its cases at the end."""

import collections
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.fork_server import ForkServer
from support.processes import environment

FORMS = "faults"  # under this name a test's report carries its form and its number of cases


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory):
    """Forks `realm` processes; what one of them compiled, the next one need not."""
    fork_server = ForkServer(environment(tmp_path_factory.mktemp("compiled")))
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="module")
def _playing(request, fork_server, tiny, tmp_path_factory):
    """Every chosen case of a module on its way, some at a time: each of them mostly waits."""
    chosen = [item for item in request.session.items if item.module is request.module]
    with ThreadPoolExecutor(request.module.AT_ONCE) as pool:
        yield {
            item.name: pool.submit(
                request.module.play,
                tmp_path_factory.mktemp("case"),
                fork_server,
                tiny.folder,
                **item.callspec.params,
            )
            for item in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def played(request, _playing):
    """What the module's `play(folder, fork_server, knowledge, **parameters)` gave for this test."""
    return _playing[request.node.name].result()


@pytest.fixture
def cases(request, record_property):
    """Counts the cases of a test that tries more than one: `cases.append(what)`."""
    tried = []
    yield tried
    request.node.cases = len(tried)


@pytest.fixture(autouse=True)
def _counted(request, record_property):
    yield
    form = getattr(request.module, "FORM", request.module.__name__)
    record_property(FORMS, [form, getattr(request.node, "cases", 1)])


def pytest_terminal_summary(terminalreporter):
    """The cases of each form that ran, and how many of them lost something."""
    ran, lost = collections.Counter(), 0
    for outcome in ("passed", "failed", "error", ""):
        for report in terminalreporter.getreports(outcome):
            lost += report.failed
            for form, count in (value for name, value in getattr(report, "user_properties", ()) if name == FORMS):
                ran[form] += count
    for form, count in sorted(ran.items()):
        terminalreporter.write_line(f"{form}: {count} cases")
    if ran:
        terminalreporter.write_line(f"lost: {lost}")
