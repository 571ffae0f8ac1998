"""Configs of taggers: the default of `realm tag train`, and one that starts from an encoder."""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def tagger_config() -> ConfigDict:
    """Two layers of 128, trained from random weights on CoNLL-2003 or a file of its size.

    The returned config is not locked.
    """
    config = config_lib.default()
    config.model.update(layers=2, hidden=128, heads=4, mlp=512, dropout=0.2)
    config.model.init_stddev = 0.05
    config.stages.tagger.row_length = 64
    config.stages.tagger.unknown_share = 0.2
    # BERT's Adam has no bias correction; with b2 0.999 its first updates are too large.
    config.optimizer.b2 = 0.98
    config.stages.tagger.update(steps=2000, batch=32, learning_rate=1e-3, evaluate_every=500)
    config.checkpoint.every = 500
    config.builder.batch_pieces = 4096
    config.report.every = 100
    return config


def start_tagger_config() -> ConfigDict:
    """The transformer of the encoder `model.start`: about five passes over CoNLL-2003.

    The returned config is not locked.
    """
    config = tagger_config()
    config.model.update(like_start=True, dropout=0.1, init_stddev=0.02)
    config.stages.tagger.update(steps=640, learning_rate=2e-4, evaluate_every=160)
    config.stages.tagger.unknown_share = 0.05
    config.checkpoint.every = 160
    config.report.every = 20
    return config
