"""The small tagger that `realm tag train` makes where no config says otherwise."""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def tagger_config() -> ConfigDict:
    """Two layers of 128, trained from nothing on a file of the size of CoNLL-2003; not locked."""
    config = config_lib.default()
    config.model.update(layers=2, hidden=128, heads=4, mlp=512, dropout=0.2)
    config.model.init_stddev = 0.05
    config.stages.tagger.row_length = 64
    config.stages.tagger.unknown_share = 0.2
    # Without bias correction BERT's 0.999 makes the first hundreds of steps far too large.
    config.optimizer.b2 = 0.98
    config.stages.tagger.update(steps=2000, batch=32, learning_rate=1e-3, evaluate_every=500)
    config.checkpoint.every = 500
    config.builder.batch_pieces = 4096
    config.report.every = 100
    return config
