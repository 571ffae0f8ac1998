"""`refresh.mode=rolling`: which segment a refresh makes, and that it keeps the others."""

import threading

import numpy as np
from support.index_of_segments import config_of, damage, opened, shards_of

from realm_jax.artifacts.run_config import open_knowledge
from realm_jax.index_builder.recall import PROBE_HITS
from realm_jax.index_builder.refresh import refresh
from realm_jax.index_builder.rolling import KeptIndex
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage.layout import step_name


def test_a_rolling_refresh_makes_one_segment_and_keeps_the_others(
    run, publish, embedded, tiny, caplog
):
    """With a largest age of 0, the segment to make is always the oldest."""
    settings = {"refresh__mode": "rolling", "builder__recall_floor": 0.9}
    config = config_of(tiny, **settings, refresh__segment_max_age=0)
    made = []
    for step in (2, 4, 6, 8, 10, 12):
        embedded.clear()
        metrics = refresh(run, publish(run, step, config), threading.Event())
        assert metrics["recall"] == metrics["recall_passages"] == 1.0
        made.append(embedded.copy())
        if step == 8:  # it is not kept if it is damaged
            damage(run.published_index / step_name(step) / "searcher" / "hidden.npy")
    one_each = [shards_of(number) for number in range(4)]
    assert made[0] == made[4] == shards_of(0, 1, 2, 3)
    assert made[1] != made[2] != made[3] != made[1] and made[5] in one_each
    assert all(one in one_each for one in made[1:4])
    steps = [[one["snapshot_step"] for one in opened(run, s).manifest["segments"]] for s in (6, 12)]
    assert [sorted(one) for one in steps] == [[2, 2, 4, 6], [10, 10, 10, 12]]
    first, third = opened(run, 2), opened(run, 6)
    kept = np.repeat(np.array(steps[0]) == 2, 10)
    np.testing.assert_array_equal(third.vectors[kept], first.vectors[kept])
    np.testing.assert_array_equal(third.rows, np.arange(40))
    assert "index of step 8 is not kept" in caplog.text
    embedded.clear()
    other = config_of(tiny, refresh__mode="rolling", search__segment_passages=20)
    refresh(run, publish(run, 14, other), threading.Event())
    assert embedded == list(range(0, 40, 4))


def test_a_rolling_refresh_makes_the_segment_with_most_probe_hits_times_age(
    run, publish, embedded, tiny
):
    config = config_of(tiny, refresh__mode="rolling", builder__recall_floor=0.9)
    hits, made, ages = shared_hits(run, publish, config, 2), [0, 1, 2, 3], np.zeros(4, np.int64)
    for step in (4, 6, 8):
        embedded.clear()
        expected = int(np.argmax(hits * (ages + 2)))
        hits = shared_hits(run, publish, config, step)
        assert embedded == shards_of(expected)
        made.append(expected)
        ages = np.where(np.arange(4) == expected, 0, ages + 2)
    assert made != [0, 1, 2, 3, 0, 1, 2]


def shared_hits(run, publish, config, step):
    """Publishes an index; probe hits of its segments, which those of one search must equal."""
    snapshot = publish(run, step, config)
    refresh(run, snapshot, threading.Event())
    index, vocabulary = opened(run, step), open_knowledge(run, config).vocabulary
    encoder = Encoder(config, vocabulary.size)
    queries = encoder.embed_queries(index.query_params, snapshot.require_probes())
    found, _ = index.searcher.search(queries, PROBE_HITS)
    hits = [one["probe_hits"] for one in index.manifest["segments"]]
    np.testing.assert_array_equal(hits, np.bincount(found.ravel() // 10, minlength=4))
    return np.array(hits)


def test_each_worker_makes_the_segment_whose_hits_are_most_out_of_date():
    steps, hits = [8, 4, 2, 4, 6], [9, 4, 1, 5, 3]
    entries = [{"snapshot_step": a, "probe_hits": b} for a, b in zip(steps, hits, strict=True)]
    kept = KeptIndex(8, entries)
    assert kept.to_make(1, 10, 100) == [3]  # 18, 24, 8, 30 and 12
    assert kept.to_make(2, 10, 100) == [0, 3]
    assert kept.to_make(9, 10, 100) == [0, 1, 2, 3, 4]
    assert kept.to_make(1, 10, 7) == [2] and kept.to_make(1, 10, 8) == [3]
    assert kept.to_make(2, 10, 5) == [2, 3]


def test_without_probe_hits_the_oldest_segment_is_made():
    kept = KeptIndex(8, [{"snapshot_step": step} for step in [8, 4, 2, 4, 2]])
    assert kept.to_make(1, 10, 100) == [2] and kept.to_make(2, 10, 100) == [1, 2]
