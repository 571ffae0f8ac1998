"""The config of `realm demo`: sizes and steps for minutes on two CPU cores."""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def almanac_config(corpus: str | Path) -> ConfigDict:
    """The config for the almanac that `build_almanac` wrote to `corpus`; not locked."""
    config = config_lib.default()
    folder = Path(corpus)
    config.corpus.knowledge = str(folder / "knowledge")
    config.corpus.pretraining = str(folder / "pretraining")
    config.corpus.held_out = str(folder / "held_out")
    config.corpus.questions = str(folder / "questions")

    config.model.update(
        layers=2, hidden=128, heads=4, mlp=512, embedding=128, positions=128, dropout=0.0
    )
    config.model.init_stddev = 0.08
    # The reader starts from pre-trained weights, the embedder from random ones.
    config.model.update(start="almanac", start_embedder=False)
    config.lengths.update(query=16, passage=36, joint=44, masks=6, answer=8)
    config.retrieval.candidates = 5

    # AdamW here has no bias correction. With the paper's 0.999 the first few hundred updates, which
    # are all of this run's, would be several times too large.
    config.optimizer.b2 = 0.98

    stages = config.stages
    stages.ict.update(steps=150, batch=256, learning_rate=2e-3, mask_share=0.2, removal_share=0.5)
    stages.reader.update(steps=50, batch=64, learning_rate=3e-4)
    stages.reader.update(neighbour_share=0.4, permuted_share=0.5, hidden_mask_share=0.3)
    stages.realm.update(steps=350, batch=32, learning_rate=3e-4, evaluate_every=50)
    stages.qa.update(steps=210, batch=24, learning_rate=5e-4)
    stages.qa.update(reader_passages=10, retriever_passages=24)

    config.refresh.update(every=25, keep=3, alarm_steps=200)
    config.checkpoint.every = 100
    config.builder.update(shard=2048, batch_pieces=8192, poll_seconds=0.2)
    config.report.every = 25
    return config
