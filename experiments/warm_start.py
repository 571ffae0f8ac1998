"""Trains the weights from which `realm demo` starts: a small BERT reader.

Command:  python experiments/warm_start.py --workdir=runs/warm_start
Hours:    0.4 on two CPU cores
Expect:   2.1 nats per masked token (in 40 % of the rows the passage does not contain the answer)
          and 0.13 nats for the span choice, with half of the rows permuted. The log of the run that
          trained the published weights is experiments/results/warm_start.jsonl

Only stage `reader` is trained, on facts that are not held out.
"""

import shutil
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli.demo_config import almanac_config
from realm_jax.cli.jobs import until_stopped
from realm_jax.cli.scripts import exit_with, parse_script, script_parser
from realm_jax.corpus.almanac_store import VOCABULARY, build_almanac, learn_vocabulary
from realm_jax.defaults import STAGES
from realm_jax.interop.names import SPAN_HEAD
from realm_jax.interop.save import save_bert
from realm_jax.interop.warm_start import BUILT_IN, weights_folder
from realm_jax.models.modules import Parameters
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.run import run

LOG = Path(__file__).parent / "results" / "warm_start.jsonl"


def get_config(corpus: str = "runs/warm_start/corpus") -> ConfigDict:
    """The model of the demo; only stage `reader` has steps."""
    config = almanac_config(corpus)
    config.model.start = ""
    for stage in STAGES:
        config.stages[stage].steps = 0
    config.stages.reader.update(steps=5000, batch=128, learning_rate=1.5e-3)
    config.checkpoint.every = 500
    config.report.every = 100
    return config


def main() -> int:
    """Trains, then writes the weights into the package, or into the folder of --to."""
    parser = script_parser(__doc__)
    parser.add_argument("--workdir", default="runs/warm_start")
    parser.add_argument(
        "--to", type=Path, help="folder for the weights; default: that of the package"
    )
    arguments, overrides = parse_script(parser)
    config = get_config(f"{arguments.workdir}/corpus")
    for override in overrides:
        key, _, value = override.removeprefix("--config.").partition("=")
        config_lib.set_key(config, key, value)
    config_lib.check(config)
    stop = runtime.start()
    if not VOCABULARY.is_file():
        learn_vocabulary(VOCABULARY)
    build_almanac(Path(arguments.workdir) / "corpus")

    def work() -> dict[str, Any]:
        run(arguments.workdir, config, stop)
        return {}

    stopped = until_stopped(work)
    if stopped:
        return int(stopped["exit_code"])
    trained = final_params(RunDir(arguments.workdir), "reader")
    assert trained is not None
    write(arguments.to or weights_folder(BUILT_IN), trained[1], config.model)
    if not arguments.to:
        shutil.copyfile(RunDir(arguments.workdir).logs / "reader.jsonl", LOG)
    return 0


def write(to: Path, trained: Parameters, model: ConfigDict) -> None:
    """Writes the reader with its vocabulary, from which a corpus for it is built."""
    to.mkdir(parents=True, exist_ok=True)
    vocabulary = to / VOCABULARY.name
    if vocabulary.resolve() != VOCABULARY.resolve():
        shutil.copyfile(VOCABULARY, vocabulary)
    save_bert(to, {**trained["reader"], SPAN_HEAD: trained["span_head"]}, model)


if __name__ == "__main__":
    exit_with(main)
