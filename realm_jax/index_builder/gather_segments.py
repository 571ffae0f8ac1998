"""Worker 0: makes its segments, waits for those of the other workers, and joins all of them."""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32

from realm_jax.artifacts.published_index import KIND as INDEX
from realm_jax.corpus.concatenated import Concatenated
from realm_jax.errors import DamageError, Stopped
from realm_jax.index_builder import embed_corpus
from realm_jax.index_builder.build import BuiltIndex
from realm_jax.index_builder.built_segments import KIND, Segment, open_segment
from realm_jax.index_builder.embed_corpus import Progress
from realm_jax.index_builder.recall import PROBE_HITS, merged
from realm_jax.index_builder.rolling import open_kept
from realm_jax.index_builder.segment_maker import SegmentMaker
from realm_jax.index_builder.worker import Worker
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher
from realm_jax.storage import files, integrity
from realm_jax.storage.commit import NotPublishedError
from realm_jax.storage.layout import RunDir, step_name

log = logging.getLogger(__name__)


@contextlib.contextmanager
def made_segments(
    run: RunDir,
    maker: SegmentMaker,
    worker: Worker,
    stop: threading.Event,
    poll_seconds: float,
    progress: Progress,
) -> Iterator[list[Segment]]:
    """All segments of an index, made or kept, verified; they may be read during the block.

    Args:
      run: the run folder.
      maker: of the snapshot.
      worker: worker 0 of n; segment s belongs to worker s % n.
      stop: see `SegmentMaker.make`.
      poll_seconds: time between two checks for the segments of other workers.
      progress: called with the number of passages that are embedded.

    Raises:
      Stopped: when `stop` is set.
      RealmError: the recall of a segment is below the floor.
    """
    while True:
        _finish(maker, worker, stop, poll_seconds, progress)
        with contextlib.ExitStack() as opened:
            segments = _open(maker, run, opened)
            if segments is not None:
                yield segments
                return


def joined(segments: list[Segment], maker: SegmentMaker) -> tuple[BuiltIndex, Concatenated]:
    """The index of all segments, and the vectors of all rows in float16.

    Its recall is that of the segments that were made, its `seconds` are sums over all workers. The
    entry of a segment in the manifest has `probe_hits`: see `probe_hits`.
    """
    names, hits = segments[0].seconds, probe_hits(segments, maker.queries)
    trained = [one.trained | {"probe_hits": n} for one, n in zip(segments, hits, strict=True)]
    built = BuiltIndex(
        SegmentedSearcher([segment.searcher for segment in segments]),
        merged([one.asked for one in segments if one.asked is not None]).recall(),
        merged([one.passages for one in segments if one.passages is not None]).recall(),
        {"segments": trained, "segment_settings": maker.settings},
        {name: sum(segment.seconds[name] for segment in segments) for name in names},
    )
    return built, Concatenated([segment.vectors for segment in segments])


def probe_hits(segments: list[Segment], queries: Float32[np.ndarray, "B E"]) -> list[int]:
    """How many of the first ten hits of each probe query are in each segment."""
    scores = [_scores(segment, queries) for segment in segments]
    number = np.repeat(np.arange(len(scores)), [part.shape[1] for part in scores])
    best = np.argsort(-np.concatenate(scores, axis=1), axis=1, kind="stable")[:, :PROBE_HITS]
    counts: list[int] = np.bincount(number[best].ravel(), minlength=len(scores)).tolist()
    return counts


def _scores(segment: Segment, queries: Float32[np.ndarray, "B E"]) -> Float32[np.ndarray, "B K"]:
    """The scores of the hits in a segment; those of a kept one are not stored."""
    if segment.asked is not None:
        return segment.asked.scores
    return segment.searcher.search(queries, min(PROBE_HITS, len(segment.vectors)))[1]


def _finish(
    maker: SegmentMaker,
    worker: Worker,
    stop: threading.Event,
    poll_seconds: float,
    progress: Progress,
) -> None:
    """Returns when all segments are finished."""
    numbers, own = maker.numbers, set(worker.starts(len(maker.bounds), 1))
    missing = maker.unfinished(numbers)
    arrived = reported = time.monotonic()
    while missing:
        before = sum(maker.size(number) for number in numbers if number not in missing)
        mine = next((number for number in missing if number in own), None)
        if mine is not None:
            maker.make(mine, stop, functools.partial(_add, progress, before))
        elif stop.wait(poll_seconds):
            raise Stopped("embed")
        found, now = maker.unfinished(missing), time.monotonic()
        if found != missing:
            missing, arrived = found, now
        elif now > reported + embed_corpus.REPORT_SECONDS:
            reported = now
            progress(before)
            _warn(missing, worker.count, now - arrived)


def _add(progress: Progress, before: int, done: int) -> None:
    progress(before + done)


def _warn(missing: list[int], workers: int, seconds: float) -> None:
    names = ", ".join(f"{one}/{workers}" for one in sorted({one % workers for one in missing}))
    log.warning(
        "waiting for %d segments of workers %s: none has arrived for %.0f s; start these workers "
        "again if they have ended (realm index --worker=i/n)",
        len(missing),
        names,
        seconds,
    )


def _open(maker: SegmentMaker, run: RunDir, opened: contextlib.ExitStack) -> list[Segment] | None:
    """All segments, held by `opened`; deletes damaged ones that were made, and returns None."""
    segments: dict[int, Segment] = {}
    for number in maker.numbers:
        folder = maker.folder(number)
        try:
            copy, manifest = opened.enter_context(integrity.verified(folder, KIND))
            segments[number] = open_segment(copy, manifest)
        except (DamageError, NotPublishedError) as error:
            log.warning(
                "segment %d is damaged (%s: %s); its worker makes it again",
                number,
                error.where,
                error.problem,
            )
            files.delete_tree(folder)
    if len(segments) < len(maker.numbers):
        return None
    if maker.kept is not None:
        folder = run.published_index / step_name(maker.kept.step)
        copy, _ = opened.enter_context(integrity.verified(folder, INDEX))
        for number, bounds in enumerate(maker.bounds):
            if number not in segments:
                segments[number] = open_kept(copy, maker.kept, number, bounds)
    return [segments[number] for number in range(len(maker.bounds))]
