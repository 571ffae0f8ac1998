"""Evaluates a run on a judged set: TREC's measures, run files, and intervals between two runs."""

import logging
from functools import partial
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float64

from realm_jax.data.judged_sets import JudgedSet, Qrels
from realm_jax.data.open_qa import question_rows
from realm_jax.data.trec_runs import TrecRun, check_run_file, id_of_run, write_run
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.padded_batches import SIZES, padded_batches
from realm_jax.retrieval.fusion import NO_PASSAGE

DEPTH = 100  # documents of a query in a run file
_PASSAGES = 1000  # of a query whose documents are merged
_RESAMPLES = 10_000  # of the bootstrap
_LOG_EVERY = 16 * SIZES[-1]  # queries between two log lines

log = logging.getLogger(__name__)

Values = dict[str, Float64[np.ndarray, "queries"]]  # by measure, in the order of the queries


def evaluate_judged(
    answerer: Answerer, judged: JudgedSet, run_file: epath.Path, against: TrecRun | None = None
) -> dict[str, Any]:
    """Retrieves documents for the queries of a judged set and measures them.

    Args:
      answerer: of a finished run; its retriever is used.
      judged: its documents are in the corpus of the run.
      run_file: TREC run file to write: the first 100 documents of each query.
      against: run of another system to compare with.

    Returns:
      `ndcg_at_10`, `map` (of the first 100 documents), `mrr_at_10`, `recall_at` (5 and 100),
      `queries` (their number), `run_file`; and `against` as `compare` returns it.

    Raises:
      InputError: `against` has none of the queries or there is only one, or the run file cannot be
        written.
    """
    _warn_of_equal_ids(judged.qrels)
    qrels_of_run = _ids_of_run(judged.qrels)
    if against is not None:
        _check_same_queries(qrels_of_run, against)
    check_run_file(run_file)
    run = retrieve_documents(answerer, judged.queries)
    write_run(run_file, run, f"realm-{answerer.retriever}")
    values = measure(judged.qrels, run)
    means = {name: float(value.mean()) for name, value in values.items()}
    report: dict[str, Any] = _nested(means)
    report |= {"queries": len(judged.queries), "run_file": str(run_file)}
    if against is not None:
        report["against"] = compare(values, measure(qrels_of_run, against))
    return report


def _ids_of_run(qrels: Qrels) -> Qrels:
    """Judgements whose ids are those of run files."""
    return {
        id_of_run(query): {id_of_run(document): grade for document, grade in grades.items()}
        for query, grades in qrels.items()
    }


def _check_same_queries(qrels: Qrels, against: TrecRun) -> None:
    """Refuses a run of other queries; warns of queries that it lacks, whose measures are 0."""
    if len(qrels) < 2:
        raise InputError(
            "too few queries for the interval of a difference",
            where="--against",
            expected="at least 2 judged queries",
            found=len(qrels),
            fix="leave out --against",
        )
    missing = [query for query in qrels if query not in against]
    if len(missing) == len(qrels):
        raise InputError(
            "the run file has none of the judged queries",
            where="--against",
            expected=f"query ids such as {missing[0]!r}",
            found=", ".join(map(repr, list(against)[:3])),
            fix="give a run file of the same judged set",
        )
    if missing:
        log.warning(
            "%d of %d queries have no document in the run file of --against, for example %s: "
            "their measures in it are 0",
            len(missing),
            len(qrels),
            missing[0],
        )


def retrieve_documents(answerer: Answerer, queries: dict[str, str]) -> TrecRun:
    """Scores of the first 100 documents of each query; long queries are truncated.

    The score of a document is the highest of its passages among the first 1,000 passages. A
    document with the id of the query is left out, as in BEIR: there it is the query's own text.
    """
    run: TrecRun = {}
    names = list(queries)
    length = _query_length(answerer, list(queries.values()))
    for texts, count in padded_batches(list(queries.values())):
        ids, scores = answerer.find(
            texts, partial(answerer.query_vectors, texts, length), _PASSAGES
        )
        found = ids != NO_PASSAGE
        if answerer.retriever == "bm25":
            found &= scores > 0  # passages that share no word with the query
        start = len(run)
        for row, query in enumerate(names[start : start + count]):
            kept = found[row]
            run[query] = _documents(answerer, ids[row][kept], scores[row][kept], query)
        if len(run) % _LOG_EVERY == 0:
            log.info("%d of %d queries searched", len(run), len(names))
    return run


def _query_length(answerer: Answerer, texts: list[str]) -> int:
    """Length of rows that hold the longest query, in steps of 8; at most `lengths.query`."""
    most = answerer.config.lengths.query
    rows = question_rows(texts, answerer.store.vocabulary, most)
    return min(most, -(-int(rows.mask.sum(1).max()) // 8) * 8)


def _documents(
    answerer: Answerer, ids: np.ndarray, scores: np.ndarray, left_out: str
) -> dict[str, float]:
    """Merges passages, best first, into documents by the maximum of their scores."""
    documents: dict[str, float] = {}
    for passage, score in zip(ids.tolist(), scores.tolist(), strict=True):
        document = answerer.store.document_id(passage)
        if document not in ("", left_out):
            documents.setdefault(document, score)
        if len(documents) == DEPTH:
            break
    return documents


def _warn_of_equal_ids(qrels: Qrels) -> None:
    """Warns if documents that are left out are relevant: then they are not the queries' texts."""
    equal = [query for query, judged in qrels.items() if judged.get(query, 0) > 0]
    if equal:
        log.warning(
            "%d relevant documents have the id of their query, for example %s, and are left out, "
            "as in BEIR: if queries and documents are numbered apart, prefix the queries' ids",
            len(equal),
            equal[0],
        )


def measure(qrels: Qrels, run: TrecRun) -> Values:
    """Measures of each query of `qrels`, in its order; a query that `run` lacks has 0.

    Documents with the id of their query do not count as retrieved; see `retrieve_documents`.

    Returns:
      `ndcg_at_10`, `map` (of the first `DEPTH` documents), `mrr_at_10`, `recall_at_5` and
      `recall_at_100`, each by query.
    """
    import ir_measures
    from ir_measures import AP, RR, R, nDCG

    measures = {
        nDCG @ 10: "ndcg_at_10",
        AP @ DEPTH: "map",
        RR @ 10: "mrr_at_10",
        R @ 5: "recall_at_5",
        R @ 100: "recall_at_100",
    }
    places = {query: place for place, query in enumerate(qrels)}
    values = {name: np.zeros(len(qrels)) for name in measures.values()}
    found = {
        query: {document: score for document, score in scores.items() if document != query}
        for query, scores in run.items()
    }
    found = {query: scores for query, scores in found.items() if scores}
    for metric in ir_measures.iter_calc(list(measures), qrels, found):
        values[measures[metric.measure]][places[metric.query_id]] = metric.value
    return values


def compare(values: Values, others: Values) -> dict[str, Any]:
    """Mean difference of each measure between two runs, with a paired 95 % bootstrap interval.

    Args:
      values: of this run, by measure and query.
      others: of the other run, for the same queries in the same order.

    Returns:
      By measure `difference`, `low` and `high`; positive: this run is better.
    """
    return _nested({name: _interval(values[name] - others[name]) for name in values})


def _interval(differences: Float64[np.ndarray, "queries"]) -> dict[str, float]:
    from scipy.stats import bootstrap

    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=_RESAMPLES,
        batch=256,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    low, high = float(found.low), float(found.high)
    return {"difference": float(differences.mean()), "low": low, "high": high}


def _nested(by_measure: dict[str, Any]) -> dict[str, Any]:
    """Moves `recall_at_K` to `recall_at`, by K."""
    prefix = "recall_at_"
    nested = {k: v for k, v in by_measure.items() if not k.startswith(prefix)}
    recalls = {k.removeprefix(prefix): v for k, v in by_measure.items() if k.startswith(prefix)}
    return {**nested, "recall_at": recalls}
