"""`realm export`: converts trained networks for Hugging Face or sentence-transformers."""

import argparse
import sys
from pathlib import Path
from typing import Any

from realm_jax import runtime
from realm_jax.cli.overrides import PATHS

EXAMPLE = "realm export --workdir=runs/demo --to=exported --layout=hf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.set_defaults(overridable=PATHS)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workdir", help="folder of a finished run")
    source.add_argument("--from", dest="source", help="folder that `realm import` wrote")
    parser.add_argument("--to", required=True, help="new folder")
    parser.add_argument("--layout", choices=("hf", "sentence-transformers"), default="hf")
    parser.add_argument(
        "--network", help="network to export, as embedder or reader; default: all (hf) or embedder"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Writes the networks; several networks go into subfolders named after them."""
    runtime.start_interruptible()
    from realm_jax.interop.sentence_layout import write_sentence_transformers
    from realm_jax.interop.weights import open_weights, require_new, write_weights

    to = Path(arguments.to)
    require_new(to)
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
    return {
        "layout": arguments.layout,
        "networks": sorted(weights.networks),
        "parameters": weights.parameters,
    }


def _of_run(workdir: str, paths: dict[str, str]) -> Any:
    """The networks of a finished run; the span head belongs to the reader."""
    from realm_jax.artifacts.export import read_export
    from realm_jax.artifacts.run_config import run_config
    from realm_jax.corpus.store_writer import VOCABULARY
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
    )
