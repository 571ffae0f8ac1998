"""One process of a job that only agrees.

python agreeing_process.py PORT PROCESSES PROCESS PART FOLDER; PART is what it does, see `PARTS`.
"""

import logging
import os
import pathlib
import sys
import time

from realm_jax.parallel import hosts, peers

WARNING, LIMIT = 1.0, 4.0  # seconds


def agree():
    """All processes take the value of process 0, which alone computes it."""
    me = hosts.process_index()
    print("agreed", hosts.agreed("choice", 3, lambda: [me, "from process 0"]), flush=True)
    print("gathered", hosts.all_gather("numbers", 3, me), flush=True)


def silent():
    """Process 1 does not answer in step 8; process 0 and the others wait."""
    hosts.all_gather("ready", 7)
    if hosts.process_index() == 1:
        time.sleep(600)
    hosts.all_gather("swap", 8)


def silent_leader():
    """Process 0 does not answer; nobody waits in it."""
    hosts.all_gather("ready", 7)
    if hosts.process_index() == 0:
        time.sleep(600)
    hosts.all_gather("swap", 8)


def late():
    """Process 1 answers after the warning."""
    hosts.all_gather("ready", 7)
    if hosts.process_index() == 1:
        time.sleep(2.5)
    print("gathered", hosts.all_gather("swap", 8, hosts.process_index()), flush=True)


def lost():
    """Process 1 ends; process 0 finds that out when it sends a result, or before."""
    hosts.all_gather("ready", 7)
    if hosts.process_index() == 1:
        os._exit(1)
    hosts.all_gather("swap", 8)


def besieged():
    """Process 0 writes its port and token; the others connect once the test allows it."""
    agree()


PARTS = {part.__name__: part for part in (agree, silent, silent_leader, late, lost, besieged)}


def announce(folder, is_leader):
    """Before the followers connect, process 0 writes where it listens, and they wait for `go`."""
    broadcast = peers._broadcast

    def announced(content):
        content = broadcast(content)
        if is_leader:
            (folder / "port.tmp").write_text("\n".join(map(str, content[1:])))
            (folder / "port.tmp").rename(folder / "port")
        while not is_leader and not (folder / "go").exists():
            time.sleep(0.05)
        return content

    peers._broadcast = announced


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    port, count, number, part, folder = sys.argv[1:]
    if part == "besieged":
        announce(pathlib.Path(folder), number == "0")
    else:
        peers.WARNING_SECONDS, peers.AGREEMENT_SECONDS = WARNING, LIMIT
    hosts.join(f"127.0.0.1:{port}", int(count), int(number))
    with hosts.membership():
        PARTS[part]()
