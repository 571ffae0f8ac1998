r"""REALM on a corpus of your own, started from BERT-base as Hugging Face keeps it.

Data:     a corpus cut with the vocabulary of the weights, and the weights
              realm import --from=downloads/bert-base-uncased --to=weights/bert
              realm corpus build --format=text --input='notes/*.txt' \
                  --vocab=weights/bert/vocab.txt --out=runs/for_bert
Command:  realm run --config=experiments/own_corpus_bert.py --workdir=runs/from_bert
Hours:    made for an accelerator
Expect:   retrieval utility above zero sooner than from random weights, if the corpus says the same
          thing twice; never run to its end by us
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """The sizes and the activation of bert-base-uncased; both networks start from it."""
    config = config_lib.default()
    config.corpus.knowledge = "runs/for_bert"
    config.model.update(gelu="erf", start="weights/bert", compute="bfloat16", remat=True)
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
