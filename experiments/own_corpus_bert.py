r"""REALM on your own corpus, starting from bert-base-uncased of Hugging Face.

Data:     the weights, and a corpus built with their vocabulary
              realm import --from=downloads/bert-base-uncased --to=weights/bert
              realm corpus build --format=text --input='notes/*.txt' \
                  --vocab=weights/bert/vocab.txt --out=runs/for_bert
Command:  realm run --config=experiments/own_corpus_bert.py --workdir=runs/from_bert
Hours:    not measured; needs an accelerator
Expect:   not measured; retrieval utility should rise above zero sooner than from random weights, if
          the corpus repeats facts
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Sizes and activation of bert-base-uncased; embedder and reader start from it."""
    config = config_lib.default()
    config.corpus.knowledge = "runs/for_bert"
    config.model.update(gelu="erf", start="weights/bert", compute="bfloat16", remat="full")
    config.lengths.update(query=64, passage=288, joint=352)
    config.retrieval.candidates = 5
    stages = config.stages
    stages.reader.update(steps=2000, batch=16, learning_rate=3e-5)
    stages.reader.update(neighbour_share=0.3, permuted_share=0.5, hidden_mask_share=0.3)
    stages.ict.update(steps=1000, batch=32, learning_rate=3e-5)
    stages.realm.update(steps=2000, batch=8, learning_rate=3e-5, evaluate_every=250)
    stages.qa.steps = 2000
    config.refresh.every = 250
    config.checkpoint.every = 500
    return config
