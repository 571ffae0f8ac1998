"""`realm import`: converts BERT and REALM weights into a folder for `config.model.start`."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from realm_jax import runtime
from realm_jax.cli import words
from realm_jax.cli.arguments import add_flag, add_json, positive
from realm_jax.cli.corpus_vocabulary import named_file
from realm_jax.errors import InputError

EXAMPLE = "realm import --from=downloads/bert-base-uncased --to=weights/bert"
SHOWN = 5  # names printed per list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_json(parser)
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        help="Hugging Face or sentence-transformers folder, TensorFlow checkpoint, or a model on "
        "the Hub as ORG/NAME[@REVISION]",
    )
    parser.add_argument(
        "--to", type=words.on_disk, required=True, help="new folder, for --config.model.start"
    )
    parser.add_argument(
        "--vocab",
        help="vocab.txt or tokenizer.json of these weights, or a folder or ORG/NAME with one of "
        "them; default: the one in the same folder",
    )
    parser.add_argument(
        "--heads", type=positive, help="number of attention heads, if the weights do not contain it"
    )
    add_flag(
        parser,
        "--block-records",
        "also convert block_records.npy (a pickle, parsed without executing it)",
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Converts the weights; reports unused and missing arrays."""
    runtime.start_interruptible()
    from realm_jax.interop.block_records import BLOCK_RECORDS, TEXTS, convert_block_records
    from realm_jax.interop.warm_start import require_shapes, weights_folder
    from realm_jax.interop.weights import open_weights, require_new, write_weights

    to = Path(arguments.to)
    require_new(to)
    source = weights_folder(arguments.source)
    if source.name == BLOCK_RECORDS:
        raise InputError(
            "block_records.npy is a pickle of passages, not weights",
            where=source,
            expected="the folder that contains it",
            fix=f"realm import --from={shlex.quote(str(source.parent))} "
            f"--to={shlex.quote(str(to))} --block-records",
        )
    vocabulary = named_file(arguments.vocab) if arguments.vocab else None
    weights = open_weights(source, arguments.heads, vocabulary)
    if not weights.missing:
        require_shapes(weights)
    write_weights(to, weights)
    report: dict[str, Any] = {
        "kind": weights.kind,
        "parameters": weights.parameters,
        "unused": weights.unused,
        "missing": weights.missing,
        "left_out": weights.left_out,
        "networks": sorted(weights.networks),
        "vocabulary": weights.sizes.vocabulary,
        "gelu": weights.sizes.gelu,
        "has_vocabulary": weights.vocabulary is not None,
    }
    if "embedder" in weights.networks:
        report["form"] = weights.sizes.form.keys() | {"longest": weights.sizes.form.longest}
    records = source / BLOCK_RECORDS
    if records.is_file() and arguments.block_records:
        report["blocks"] = convert_block_records(records, to / TEXTS)
    elif records.is_file():
        report["left_out"][f"{BLOCK_RECORDS}, a pickle; --block-records converts it"] = 1
    sys.stderr.write(_summary(report, to))
    return report


def _summary(report: dict[str, Any], to: Path) -> str:
    lines = [f"{report['kind']}: {report['parameters']:,} parameters in {to}"]
    for side in ("unused", "missing"):
        names = report[side]
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append(f"  {side}: {', '.join(names[:SHOWN]) or 'nothing'}{more}")
    lines += [f"  skipped: {count}: {reason}" for reason, count in report["left_out"].items()]
    if not report["has_vocabulary"]:
        lines.append(
            "  warning: no vocab.txt and no tokenizer.json. A corpus must be built with the "
            "vocabulary of these weights; import again with --vocab=FILE"
        )
    return "\n".join(lines) + "\n"
