"""`realm tag`: trains the span tagger, judges it, and marks the salient spans of a corpus."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.arguments import add_dry_run, positive
from realm_jax.cli.jobs import add_job_arguments, job_config, until_stopped
from realm_jax.cli.progress import Tally
from realm_jax.errors import UsageError
from realm_jax.storage.layout import RunDir
from realm_jax.tagging.small_tagger import tagger_config

EXAMPLE = "realm tag train --input=conll.train.txt.xz --vocab=vocab.txt --workdir=runs/tagger"
EXAMPLE_EVAL = "realm tag eval --tagger=runs/tagger --input=conll.valid.txt.xz"
EXAMPLE_ANNOTATE = "realm tag annotate --corpus=runs/notes --tagger=runs/tagger"
SPANS = "tagged_spans"  # folder inside the corpus, unless --out names another


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-verbs train, eval and annotate."""
    verbs = parser.add_subparsers(dest="tag_verb", required=True, metavar="train|eval|annotate")
    train = verbs.add_parser("train", help="learn from a file", epilog=f"example: {EXAMPLE}")
    train.add_argument("--input", help="CoNLL file: a word and its BIO tag on each line")
    train.add_argument("--held-out", help="the same, to measure on; never trained on")
    train.add_argument("--vocab", help="BERT vocab.txt; default: one is learnt from the input")
    add_job_arguments(train, dry_run=False)
    judge = verbs.add_parser("eval", help="conlleval's figures", epilog=f"example: {EXAMPLE_EVAL}")
    judge.add_argument("--tagger", help="workdir of `realm tag train`")
    judge.add_argument("--input", help="CoNLL file to tag and to judge by")
    judge.add_argument("--predictions", help="instead: a file whose last columns are truth, guess")
    judge.add_argument("--out", help="file to write the predictions to: word, truth, guess")
    judge.add_argument("--json", action="store_true", help="one JSON object on the last line")
    mark = verbs.add_parser(
        "annotate", help="mark the spans of a corpus", epilog=f"example: {EXAMPLE_ANNOTATE}"
    )
    mark.add_argument("--corpus", required=True, help="folder of `realm corpus build`")
    mark.add_argument("--tagger", help="workdir of `realm tag train`; default: capitals, no tagger")
    mark.add_argument("--out", help=f"folder to make; default: {SPANS}/ inside the corpus")
    mark.add_argument("--knowledge", help="corpus Z that this one is text for; default: itself")
    mark.add_argument(
        "--shard", type=positive, default=4096, help="passages between two points to go on from"
    )
    add_dry_run(mark)
    mark.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains, judges or annotates."""
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
    """As of every job; a fresh workdir without --config gets the small tagger."""
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
        figures = score(read_predictions(arguments.predictions))
    else:
        tagged = _tagged(arguments)
        figures = score((truth, guess) for _, truth, guess in tagged)
        if arguments.out:
            _write_predictions(Path(arguments.out), tagged)
    if not arguments.json:
        sys.stdout.write(str(figures))
    return figures.as_json()


Judged = tuple[Sequence[str], Sequence[str], Sequence[str]]  # words, truth, guess


def _tagged(arguments: argparse.Namespace) -> list[Judged]:
    """Every sentence of the input with its true and its predicted tags.

    Raises:
      UsageError: no tagger, or no input.
    """
    if not (arguments.tagger and arguments.input):
        raise UsageError(
            "nothing to judge",
            expected="--tagger and --input, or --predictions",
            fix=EXAMPLE_EVAL,
        )
    from realm_jax.tagging.batches import sentences_of
    from realm_jax.tagging.conll import read_conll
    from realm_jax.tagging.tagger import Tagger

    tagger, _ = Tagger.open(arguments.tagger)
    documents = read_conll(arguments.input, tagger.types)
    guessed = tagger.tags(sentences_of(documents))
    return [
        (sentence.words, sentence.tags, tags)
        for document, found in zip(documents, guessed, strict=True)
        for sentence, tags in zip(document, found, strict=True)
    ]


def _write_predictions(path: Path, tagged: list[Judged]) -> None:
    lines = (
        "".join(f"{word} {truth} {guess}\n" for word, truth, guess in zip(*sentence, strict=True))
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
    annotator: SpanMarker = CapitalsMarker()
    if arguments.tagger:
        tagger, published = Tagger.open(arguments.tagger)
        annotator = TaggerMarker(tagger, published.identity)
    out = Path(arguments.out or Path(arguments.corpus) / SPANS)
    if arguments.dry_run:
        from realm_jax.cli.dry_run_corpus import dry_run_annotate

        return dry_run_annotate(arguments, store, out)
    try:
        with Tally("passages", len(store)) as tally:
            report = annotate_corpus(
                store,
                out,
                annotator,
                knowledge=knowledge,
                shard=arguments.shard,
                done=tally.done,
                stopped=stop.is_set,
            )
    except Interrupted:
        sys.stderr.write("stopped; the same command goes on at the first unfinished shard\n")
        return {"state": "stopped", "exit_code": exit_codes.STOPPED}
    sys.stderr.write(
        f"{report['spans']} spans in {report['with_spans']} of {report['passages']} passages, "
        f"{report['passages_per_second']:,.0f} passages/s, in {out}\n"
    )
    return {"state": "done", **report, "spans_folder": str(out)}
