"""`realm tag`: trains the span tagger, judges it, and marks the salient spans of a corpus."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli import exit_codes, words
from realm_jax.cli.arguments import add_dry_run, add_json, add_verb, positive
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped
from realm_jax.cli.progress import ProgressBar
from realm_jax.errors import UsageError
from realm_jax.storage.flock import exclusive_folder
from realm_jax.storage.layout import RunDir
from realm_jax.tagging.small_tagger import tagger_config

EXAMPLE = "realm tag train --input=conll.train.txt.xz --vocab=vocab.txt --workdir=runs/tagger"
EXAMPLE_EVAL = "realm tag eval --tagger=runs/tagger --input=conll.valid.txt.xz"
EXAMPLE_ANNOTATE = "realm tag annotate --corpus=runs/notes --tagger=runs/tagger"
SPANS = "tagged_spans"  # folder inside the corpus, unless --out names another


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-verbs train, eval and annotate."""
    verbs = parser.add_subparsers(dest="tag_verb", required=True, metavar="train|eval|annotate")
    train = add_verb(verbs, "train", "train on a CoNLL file", EXAMPLE)
    train.add_argument("--input", help="CoNLL file: one word and its BIO tag per line")
    train.add_argument("--held-out", help="CoNLL file for evaluation during training")
    train.add_argument("--vocab", help="BERT's vocab.txt; default: learned from the input")
    add_job_arguments(train, dry_run=False)
    judge = add_verb(
        verbs, "eval", "precision, recall and F1 as conlleval computes them", EXAMPLE_EVAL
    )
    judge.add_argument("--tagger", help="workdir of `realm tag train`")
    judge.add_argument("--input", help="CoNLL file with the true tags")
    judge.add_argument(
        "--predictions",
        help="instead of --tagger: file with true and predicted tags in its last columns",
    )
    judge.add_argument(
        "--out",
        type=words.on_disk,
        help="file for the predictions: word, true tag, predicted tag",
    )
    add_json(judge)
    mark = add_verb(verbs, "annotate", "write the salient spans of a corpus", EXAMPLE_ANNOTATE)
    mark.add_argument(
        "--corpus", type=words.on_disk, required=True, help="folder of `realm corpus build`"
    )
    mark.add_argument(
        "--tagger",
        help="workdir of `realm tag train`; default: the rules of `realm corpus build` (names, "
        "dates, quantities; rare terms if these are few)",
    )
    mark.add_argument(
        "--out", type=words.on_disk, help=f"new folder; default: {SPANS}/ inside the corpus"
    )
    mark.add_argument(
        "--knowledge",
        type=words.on_disk,
        help="knowledge corpus Z in which evidence is looked up; default: this corpus",
    )
    mark.add_argument(
        "--shard",
        type=positive,
        default=4096,
        help="passages per shard; a restart resumes at the next shard; default: %(default)s",
    )
    add_dry_run(mark)
    add_json(mark)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains, evaluates or annotates."""
    verbs = {"train": _train, "eval": _eval, "annotate": _annotate}
    return verbs[arguments.tag_verb](arguments)


def _train(arguments: argparse.Namespace) -> dict[str, Any]:
    stop = runtime.start(devices=arguments.devices)
    files = {"train_file": arguments.input, "held_out_file": arguments.held_out}
    files["vocabulary"] = arguments.vocab
    arguments.overrides |= {f"stages.tagger.{key}": path for key, path in files.items() if path}
    config = _config(arguments)
    from realm_jax.tagging.train import train_tagger

    def train() -> dict[str, Any]:
        return {"state": "done", "step": train_tagger(arguments.workdir, config, stop)}

    return until_stopped(train)


def _config(arguments: argparse.Namespace) -> ConfigDict:
    """The config of the job; a new workdir without --config gets the small tagger."""
    if arguments.config is not None or RunDir(arguments.workdir).config.exists():
        return job_config(arguments)
    config = tagger_config()
    for key, text in arguments.overrides.items():
        config_lib.set_key(config, key, text)
    return config_lib.check(config)


def _eval(arguments: argparse.Namespace) -> dict[str, Any]:
    runtime.start_interruptible()
    from realm_jax.tagging.conll import read_predictions
    from realm_jax.tagging.conlleval import score

    if arguments.predictions:
        scores = score(read_predictions(arguments.predictions))
    else:
        tagged = _tagged(arguments)
        scores = score((true, predicted) for _, true, predicted in tagged)
        if arguments.out:
            _write_predictions(Path(arguments.out), tagged)
    if not arguments.json:
        sys.stdout.write(str(scores))
    return scores.as_json()


TaggedSentence = tuple[Sequence[str], Sequence[str], Sequence[str]]  # words, true, predicted


def _tagged(arguments: argparse.Namespace) -> list[TaggedSentence]:
    """Every sentence of the input with its true and its predicted tags.

    Raises:
      UsageError: --tagger or --input is missing.
    """
    if not (arguments.tagger and arguments.input):
        raise UsageError(
            "nothing to evaluate",
            expected="--tagger and --input, or --predictions",
            fix=EXAMPLE_EVAL,
        )
    from realm_jax.tagging.batches import sentences_of
    from realm_jax.tagging.conll import read_conll
    from realm_jax.tagging.tagger import Tagger

    tagger, _ = Tagger.open(arguments.tagger)
    documents = read_conll(arguments.input, tagger.types)
    predicted = tagger.tags(sentences_of(documents))
    return [
        (sentence.words, sentence.tags, tags)
        for document, found in zip(documents, predicted, strict=True)
        for sentence, tags in zip(document, found, strict=True)
    ]


def _write_predictions(path: Path, tagged: list[TaggedSentence]) -> None:
    lines = (
        "".join(
            f"{word} {true} {predicted}\n" for word, true, predicted in zip(*sentence, strict=True)
        )
        for sentence in tagged
    )
    path.write_text("\n".join(lines), encoding="utf-8")


def _annotate(arguments: argparse.Namespace) -> dict[str, Any]:
    stop = runtime.start()
    from realm_jax.corpus.store import PassageStore
    from realm_jax.tagging.mark_corpus import Interrupted, annotate_corpus
    from realm_jax.tagging.marker import CapitalsMarker, SpanMarker, TaggerMarker
    from realm_jax.tagging.tagger import Tagger

    store = PassageStore.open(arguments.corpus)
    knowledge = PassageStore.open(arguments.knowledge) if arguments.knowledge else None
    marker: SpanMarker | None = None
    if arguments.tagger:
        tagger, published = Tagger.open(arguments.tagger)
        marker = TaggerMarker(tagger, published.identity)
    out = Path(arguments.out or Path(arguments.corpus) / SPANS)
    if arguments.dry_run:
        from realm_jax.cli.dry_run_corpus import dry_run_annotate

        return dry_run_annotate(arguments, store, out)
    target = Path(arguments.out or arguments.corpus)  # a build locks the folder of the corpus, too
    waiting = f"waiting for another command that writes {target}"
    try:
        with (
            exclusive_folder(target, waiting, "mark with one process at a time"),
            ProgressBar("passages", len(store)) as progress,
        ):
            report = annotate_corpus(
                store,
                out,
                marker or CapitalsMarker.of(store),
                knowledge=knowledge,
                shard=arguments.shard,
                done=progress.update,
                stopped=stop.is_set,
            )
    except Interrupted:
        sys.stderr.write("stopped; the same command resumes at the first unfinished shard\n")
        return {"state": "stopped", "exit_code": exit_codes.STOPPED}
    sys.stderr.write(
        f"{report['spans']} spans in {report['with_spans']} of {report['passages']} passages, "
        f"{report['passages_per_second']:,.0f} passages/s, in {out}\n"
    )
    return {"state": "done", **report, "spans_folder": str(out)}
