r"""Your corpus with an encoder as it comes: an index and an export, without any training.

Command:  realm corpus build --format=text --input='notes/*.txt' --out=runs/notes \
              --vocab=sentence-transformers/all-MiniLM-L6-v2 --passage-pieces=256
          realm run --config=as_is --config.corpus.knowledge=runs/notes --workdir=runs/mine \
              --config.model.start=sentence-transformers/all-MiniLM-L6-v2
Hours:    0.01 for 1,000 passages on two CPU cores
Expect:   the vectors of sentence-transformers for the texts "title body"; the run can be asked,
          served, evaluated and exported. `--config=own_corpus` with the same flags trains it
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """The sizes and the form of `model.start`; no stage has steps."""
    config = config_lib.default()
    config.model.like_start = True
    config.lengths.update(query=64, passage=256, joint=320, masks=6)
    for stage in ("reader", "ict", "realm", "qa"):
        config.stages[stage].steps = 0
    config.stages.realm.update(publish_start=True, batch=8)
    config.stages.qa.batch = 8
    config.refresh.mode = "sync"
    return config
