"""`realm export`: converts trained networks for Hugging Face or sentence-transformers."""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from realm_jax import runtime
from realm_jax.cli import words
from realm_jax.cli.arguments import add_json
from realm_jax.cli.overrides import PATHS
from realm_jax.errors import InputError

EXAMPLE = "realm export --workdir=runs/demo --to=exported --layout=hf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.set_defaults(overridable=PATHS)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workdir", help="folder of a finished run")
    source.add_argument(
        "--from", dest="source", type=words.on_disk, help="folder that `realm import` wrote"
    )
    parser.add_argument(
        "--to", type=words.on_disk, help="new folder; with --push-to-hub it may be left out"
    )
    parser.add_argument(
        "--layout",
        choices=("hf", "sentence-transformers"),
        default="hf",
        help="hf: one folder per network for Hugging Face transformers (default); "
        "sentence-transformers: one encoder with its pooling and prompts",
    )
    parser.add_argument(
        "--network", help="network to export, as embedder or reader; default: all (hf) or embedder"
    )
    parser.add_argument(
        "--push-to-hub", metavar="ORG/NAME", help="also upload the folder to the Hugging Face Hub"
    )
    add_json(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Writes the networks; several networks go into subfolders named after them."""
    runtime.start_interruptible()
    if arguments.to:
        return _export(arguments, Path(arguments.to))
    if not arguments.push_to_hub:
        raise InputError(
            "nowhere to export to",
            expected="--to=FOLDER or --push-to-hub=ORG/NAME",
            found="neither",
            fix="--to=exported",
        )
    with tempfile.TemporaryDirectory() as folder:
        return _export(arguments, Path(folder) / "model")


def _export(arguments: argparse.Namespace, to: Path) -> dict[str, Any]:
    from realm_jax.interop.hub import require_hub_id
    from realm_jax.interop.sentence_layout import write_sentence_transformers
    from realm_jax.interop.weights import open_weights, require_new, write_weights

    require_new(to)
    if arguments.push_to_hub:
        require_hub_id(arguments.push_to_hub)
    weights = (
        _of_run(arguments.workdir, arguments.overrides)
        if arguments.workdir
        else open_weights(arguments.source)
    )
    of_one = arguments.layout == "sentence-transformers"
    network = arguments.network or ("embedder" if of_one else None)
    weights = weights.only(network) if network else weights
    if network and of_one:
        names = weights.networks[network]
        write_sentence_transformers(to, names, weights.sizes, weights.vocabulary)
    else:
        write_weights(to, weights)
    sys.stderr.write(
        f"{', '.join(weights.networks)}: {weights.parameters:,} parameters in {to}, "
        f"layout {arguments.layout}\n"
    )
    if arguments.push_to_hub:
        _push(arguments, to)
    return {
        "layout": arguments.layout,
        "networks": sorted(weights.networks),
        "parameters": weights.parameters,
    }


def _push(arguments: argparse.Namespace, to: Path) -> None:
    """Adds the model card of the run, if there is one, and uploads the folder."""
    from realm_jax.interop.hub import upload
    from realm_jax.report.card import CARD
    from realm_jax.storage.layout import RunDir

    card = RunDir(arguments.workdir).export / CARD if arguments.workdir else None
    if card is not None and card.is_file():
        (to / CARD).write_bytes(card.read_bytes())
    elif arguments.workdir:
        sys.stderr.write(
            "warning: no model card is uploaded; realm report "
            f"--workdir={shlex.quote(arguments.workdir)} writes it\n"
        )
    sys.stderr.write(f"uploaded to {upload(to, arguments.push_to_hub)}\n")


def _of_run(workdir: str, paths: dict[str, str]) -> Any:
    """The networks of a finished run; the span head belongs to the reader."""
    from realm_jax.artifacts.export import read_export
    from realm_jax.artifacts.run_config import run_config
    from realm_jax.corpus.store_writer import VOCABULARY
    from realm_jax.data.embedder_rows import indexed_length
    from realm_jax.interop.weights import weights_of_run
    from realm_jax.storage.layout import RunDir

    run, export = RunDir(workdir), read_export(RunDir(workdir))
    config = run_config(run, export.config_json, f"export of step {export.step}", paths)
    vocabulary = Path(config.corpus.knowledge) / VOCABULARY
    return weights_of_run(
        export.networks,
        config.model,
        config.lengths.answer,
        vocabulary if vocabulary.is_file() else None,
        longest=indexed_length(config) if config.model.passage_row == "single" else 0,
    )
