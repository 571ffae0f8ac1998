r"""A small model on a corpus of your own; a start, not a recipe.

Command:  realm corpus build --format=text --input='notes/*.txt' --out=runs/notes
          realm run --config=experiments/own_corpus.py \
              --config.corpus.knowledge=runs/notes --workdir=runs/mine
Hours:    reckoned: a step of ICT took 6.6 s of processor time, one of the reader 3.4 s, so an
          hour each on two idle CPU cores; REALM reads five passages a sentence, some five hours
Expect:   retrieval utility above zero and rising; how far depends on how often your corpus says
          the same thing twice, since a sentence never sees its own passage
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Four layers of 256; sentences of the corpus itself are masked."""
    config = config_lib.default()
    config.model.update(layers=4, hidden=256, heads=4, mlp=1024, init_stddev=0.035)
    config.lengths.update(query=64, passage=288, joint=352)
    config.retrieval.candidates = 5
    config.masking.update(permute=0.5, neighbour=0.3, unseen=0.3)
    config.stages.ict.update(steps=1000, batch=32, learning_rate=3e-4)
    config.stages.reader.update(steps=2000, batch=16, learning_rate=3e-4)
    config.stages.realm.update(steps=2000, batch=8, learning_rate=1e-4, evaluate_every=250)
    config.stages.qa.steps = 2000
    config.refresh.every = 250
    config.checkpoint.every = 500
    return config
