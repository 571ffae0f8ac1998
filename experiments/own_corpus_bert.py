r"""REALM on a corpus of your own, started from BERT-base as Hugging Face keeps it.

Data:     a corpus cut with the vocabulary of the weights, and the weights
              realm import --from=downloads/bert-base-uncased --to=weights/bert
              realm corpus build --format=text --input='notes/*.txt' \
                  --vocab=weights/bert/vocab.txt --out=runs/for_bert
Command:  realm run --config=experiments/own_corpus_bert.py --workdir=runs/from_bert
Hours:    made for an accelerator; a step is 27 times the FLOPs of experiments/own_corpus.py
Expect:   retrieval utility above zero sooner than from random weights, if the corpus says the same
          thing twice; never run to its end by us
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

SMALL = Path(__file__).with_name("own_corpus.py")


def get_config() -> ConfigDict:
    """The sizes and the activation of bert-base-uncased; both networks start from it."""
    config = config_lib.from_file(SMALL)
    config.corpus.knowledge = "runs/for_bert"
    config.model.update(layers=12, hidden=768, heads=12, mlp=3072, gelu="erf", init_stddev=0.02)
    config.model.update(start="weights/bert", compute="bfloat16", remat=True)
    for stage in ("ict", "reader", "realm"):
        config.stages[stage].learning_rate = 3e-5
    return config
