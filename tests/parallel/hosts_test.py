"""Training jobs of several real processes, over loopback."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.builder_thread import building
from support.processes import environment
from support.tiny_corpus import tiny_config

from realm_jax.errors import Stopped
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from realm_jax.storage.logs import read_log
from realm_jax.trainer import run as trainer

HERE = Path(__file__).parent
PATIENCE = 900.0
GROUPS = {"mesh__groups": 8}  # dropout then does not depend on the number of devices
FITTED = {"lengths__fitted": True}
WITHOUT_BUILDER = {"model__layers": 1, "stages__ict__steps": 8, **GROUPS, **FITTED}
WITH_BUILDER = {
    "model__layers": 1,
    "stages__realm__steps": 100_000,  # until stopped
    "refresh__mode": "async",
    "refresh__every": 4,
    "checkpoint__every": 10,
    **FITTED,
}


@pytest.fixture(scope="module")
def compiled(compilation_cache):
    """An environment with a compilation cache that all processes of this file share."""
    return environment(compilation_cache)


class Hosts:
    """Processes of one job; `extra` holds environment variables by process number."""

    def __init__(self, folder, compiled, config, count, devices, extra=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.logs = [folder / f"host{number}.txt" for number in range(count)]
        (folder / "config.py").write_text(
            "from realm_jax.config import from_json\n"
            f"def get_config():\n    return from_json({json.dumps(config.to_json())}, __file__)\n"
        )
        self.processes = []
        for number, log in enumerate(self.logs):
            command = [sys.executable, HERE / "host_process.py", "train", f"--devices={devices}"]
            command += [f"--config={folder / 'config.py'}", f"--workdir={folder / 'run'}"]
            command += [f"--coordinator=127.0.0.1:{port}", f"--processes={count}"]
            command += [f"--process={number}"]
            with log.open("w") as output:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        stdout=output,
                        stderr=output,
                        env=compiled | (extra or {}).get(number, {}),
                        cwd=HERE.parents[1],
                    )
                )

    def wait(self, *codes):
        """The output of each process, after all ended with these exit codes."""
        found = tuple(process.wait(PATIENCE) for process in self.processes)
        outputs = [log.read_text() for log in self.logs]
        assert found == codes, "\n".join(outputs)
        return outputs

    def until(self, holds):
        """Waits until `holds()` is true; all processes must be running."""
        while not holds():
            assert [p.poll() for p in self.processes] == [None] * len(self.processes), [
                log.read_text() for log in self.logs
            ]
            time.sleep(0.05)

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def start(tmp_path, compiled):
    """Starts jobs of several processes, and kills them after the test."""
    started = []

    def start(config, count, devices, extra=None):
        started.append(Hosts(tmp_path, compiled, config, count, devices, extra))
        return started[-1]

    yield start
    for hosts in started:
        hosts.kill()


@pytest.fixture
def builder(tmp_path):
    """Runs the index builder in a thread."""
    with building(tmp_path / "run"):
        yield


def listening(process):
    """Addresses on which a process listens, in the kernel's notation (Linux)."""
    folder, found = Path(f"/proc/{process.pid}"), set()
    with contextlib.suppress(OSError):  # files can disappear
        links = [str(file.readlink()) for file in (folder / "fd").iterdir()]
        for table in ("tcp", "tcp6"):
            for line in (folder / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == "0A" and f"socket:[{columns[9]}]" in links:
                    found.add(columns[1].split(":")[0])
    return found


def losses(workdir, stage):
    return [
        record["loss"]
        for record in read_log(RunDir(workdir).logs / f"{stage}.jsonl")
        if "loss" in record
    ]


@pytest.mark.parametrize(
    ("count", "devices", "mesh", "stage", "fitted"),
    [
        (2, 2, {"mesh__fsdp": 2}, "ict", False),  # one batch shape, which is compiled sooner
        pytest.param(2, 2, {"mesh__fsdp": 2}, "reader", True, marks=pytest.mark.slow),
        pytest.param(
            4, 2, {"mesh__fsdp": 4, "mesh__model": 2}, "ict", True, marks=pytest.mark.slow
        ),
        pytest.param(2, 4, {"mesh__replica": 2}, "ict", True, marks=pytest.mark.slow),
    ],
)
def test_several_processes_train_with_the_losses_of_one(
    start, tiny, tmp_path, count, devices, mesh, stage, fitted
):
    settings = WITHOUT_BUILDER | {"stages__ict__steps": 0, "lengths__fitted": fitted}
    settings |= {f"stages__{stage}__steps": 8}
    hosts = start(tiny_config(tiny.folder, **settings, **mesh), count, devices)
    log, addresses = RunDir(tmp_path / "run").logs / f"{stage}.jsonl", set()
    hosts.until(lambda: addresses.update(*map(listening, hosts.processes)) or log.exists())
    hosts.wait(*[0] * count)
    loopback = "0100007F"
    assert all(address.endswith(loopback) for address in addresses), addresses
    assert addresses or sys.platform != "linux"
    single = tiny_config(tiny.folder, **settings)
    trainer.run(str(tmp_path / "single"), single, threading.Event())
    expected = losses(tmp_path / "single", stage)
    assert len(expected) == 8
    np.testing.assert_allclose(losses(tmp_path / "run", stage), expected, rtol=1e-3)


@pytest.mark.slow
def test_a_process_may_come_to_the_first_step_later_than_gloo_waits(start, tiny):
    config = tiny_config(tiny.folder, **{**WITHOUT_BUILDER, "stages__ict__steps": 2})
    start(config, 2, 2, {1: {"LATE": "40"}}).wait(0, 0)


@pytest.mark.slow
def test_hosts_that_load_different_segments_train_with_the_losses_of_one(
    start, builder, tiny, tmp_path
):
    """Four segments of ten passages; two hosts load two each.

    The params are large, so that scores of passages differ by more than rounding errors.
    """
    settings = {"model__layers": 1, "stages__realm__steps": 6, "evaluation__queries": 16}
    settings |= {"search__segment_passages": 12, "model__init_stddev": 0.3, **GROUPS}
    spread = tiny_config(tiny.folder, search__placement="hosts", **settings)
    outputs = start(spread, 2, 2).wait(0, 0)
    assert "this host loads segments [0, 2] of 4" in outputs[0]
    assert "this host loads segments [1, 3] of 4" in outputs[1]
    run, single = RunDir(tmp_path / "run"), RunDir(tmp_path / "single")
    built = {one["index_step"]: one["candidates"] for one in read_log(run.indexes)}
    searched = [(one["index_step"], one["candidates"]) for one in read_log(run.swaps)]
    assert len(searched) >= 3 and all(built[step] == found for step, found in searched)
    with building(single.root):
        trainer.run(str(single.root), tiny_config(tiny.folder, **settings), threading.Event())
    for name in ("loss", "held_out_loss"):
        expected, found = (values_of(one.root, "realm", name) for one in (single, run))
        assert expected
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def values_of(workdir, stage, name):
    records = read_log(RunDir(workdir).logs / f"{stage}.jsonl")
    return [record[name] for record in records if name in record]


def swaps(run):
    return [(record["step"], record["index_step"]) for record in read_log(run.swaps)]


def logged_swaps(output):
    """(step, index step) of every swap in the output of a process."""
    found = re.findall(r"step (\d+): index of step (\d+) in use", output)
    return [(int(step), int(index)) for step, index in found]


def stopped_after(hosts, holds):
    """Sends one process SIGTERM once `holds()` is true; returns the outputs after all stopped."""
    hosts.until(holds)
    hosts.processes[1].send_signal(signal.SIGTERM)
    return hosts.wait(*[75] * len(hosts.processes))


@pytest.mark.slow
def test_all_processes_swap_at_the_same_step_with_one_slow_host(start, builder, tiny, tmp_path):
    """Process 1 verifies each index 1.5 s later than process 0."""
    run = RunDir(tmp_path / "run")
    hosts = start(tiny_config(tiny.folder, **WITH_BUILDER), 2, 2, {1: {"SLOW": "1.5"}})
    outputs = stopped_after(hosts, lambda: len(swaps(run)) >= 4)
    assert logged_swaps(outputs[0]) == logged_swaps(outputs[1]) == swaps(run)
    assert all(index < step for step, index in swaps(run)[1:])


@pytest.mark.slow
def test_no_process_swaps_to_an_index_that_one_cannot_verify(start, builder, tiny, tmp_path):
    run = RunDir(tmp_path / "run")
    hosts = start(tiny_config(tiny.folder, **WITH_BUILDER), 2, 2, {1: {"REFUSES": "1"}})
    outputs = stopped_after(hosts, lambda: len(swaps(run)) >= 2)
    refusal = r"index of step (\d+): process 1 of 2 could not verify it, so none swaps to it"
    refused = [re.findall(refusal, output) for output in outputs]
    assert refused[0] == refused[1] and len(refused[0]) == 1
    assert "published file is damaged" in outputs[1]
    assert logged_swaps(outputs[0]) == logged_swaps(outputs[1]) == swaps(run)
    assert int(refused[0][0]) not in [index for _, index in swaps(run)]
    assert swaps(run)[-1][1] > int(refused[0][0])  # the next index was swapped to


def killed_at(hosts, victim, run, steps):
    """Kills one process after that many logged steps; returns the outputs of all processes."""
    hosts.until(lambda: len(losses(run, "ict")) >= steps)
    hosts.processes[victim].send_signal(signal.SIGKILL)
    codes = [76] * len(hosts.processes)
    codes[victim] = -signal.SIGKILL
    return hosts.wait(*codes)


@pytest.mark.slow
def test_all_processes_exit_if_one_is_killed_and_another_number_of_hosts_resumes(
    start, tiny, tmp_path
):
    """Two hosts until one is killed, then a single one: repeated steps have the same losses."""
    steps = {"model__layers": 1, "stages__ict__steps": 3000, "checkpoint__every": 5, **GROUPS}
    outputs = killed_at(start(tiny_config(tiny.folder, **steps), 2, 2), 1, tmp_path / "run", 7)
    assert "process 1 of 2 is lost; process 0 exits too" in outputs[0]
    assert "start all processes again with the same command" in outputs[0]
    run = RunDir(tmp_path / "run")
    saved, before = commit.latest(run.checkpoints("ict")), len(losses(run.root, "ict"))
    assert before > saved >= 5
    stop = threading.Event()
    watcher = threading.Thread(target=stop_after, args=(stop, run.root, before + 5))
    watcher.start()
    with pytest.raises(Stopped):
        trainer.run(str(run.root), tiny_config(tiny.folder, **steps), stop)
    watcher.join()
    losses_of = by_step(run.root)
    repeated = [values for values in losses_of.values() if len(values) > 1]
    assert min(losses_of) == 1 and len(repeated) == before - saved
    for first, second in repeated:
        np.testing.assert_allclose(first, second, rtol=1e-3)


def stop_after(stop, workdir, count):
    while len(losses(workdir, "ict")) < count:
        time.sleep(0.05)
    stop.set()


def by_step(workdir):
    """Losses of each step, one for each time it was trained."""
    found = {}
    for record in read_log(RunDir(workdir).logs / "ict.jsonl"):
        found.setdefault(record["step"], []).extend([record["loss"]] if "loss" in record else [])
    return found
