"""Segments that are spread over hosts; `tests/parallel/hosts_test.py` has a job of two hosts."""

import numpy as np
import pytest

from realm_jax.config import default
from realm_jax.parallel import hosts
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.placement import placement
from realm_jax.retrieval.search_process import load_in_subprocess
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher
from realm_jax.retrieval.spread_searcher import SpreadSearcher, is_of_other_host, load_spread


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)


def test_hits_of_one_host_are_those_of_its_searcher(vectors):
    own = ExactSearcher(vectors)
    searcher = SpreadSearcher(own, 30, 8)
    for mine, theirs in zip(searcher.search(vectors, 7), own.search(vectors, 7), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_host_reads_only_the_files_of_its_segments(vectors, tmp_path, monkeypatch):
    SegmentedSearcher([ExactSearcher(part) for part in np.split(vectors, 3)]).save(tmp_path)
    monkeypatch.setattr(hosts, "process_count", lambda: 2)
    found = []
    for process in range(2):
        monkeypatch.setattr(hosts, "process_index", lambda process=process: process)
        files = [f"searcher/{file.relative_to(tmp_path)}" for file in tmp_path.rglob("*.npy")]
        found.append({name for name in files if not is_of_other_host(name)})
        own = load_spread(tmp_path)._own
        assert own.starts.tolist() == ([0, 20], [10])[process]
    shared = {"searcher/hidden.npy"}
    segments = [f"searcher/segment_0000{number}/vectors.npy" for number in range(3)]
    assert found == [shared | {segments[0], segments[2]}, shared | {segments[1]}]
    others = ["rows.npy", "vectors.npy", "searcher/searcher.json", "searcher", "segment_00001/x"]
    assert not any(map(is_of_other_host, others))


def test_one_process_and_a_mesh_index_are_placed_everywhere(monkeypatch):
    search = default().search
    search.placement = "hosts"
    assert placement(search)[0] is load_in_subprocess
    monkeypatch.setattr(hosts, "process_count", lambda: 2)
    assert placement(search) == (load_spread, is_of_other_host)
    search.kind = "mesh"
    assert placement(search)[0] is load_in_subprocess
