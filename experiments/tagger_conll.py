r"""A small tagger from nothing on CoNLL-2003: how far 14,041 sentences go by themselves.

Data:     CoNLL-2003 English with BIO tags (research use: weights trained on it are not shipped) and
          the vocabulary of BERT-base uncased
Command:  realm tag train --config=experiments/tagger_conll.py --input=conll2003.en.train.txt.xz \
              --held-out=conll2003.en.valid.txt.xz --vocab=bert-base-uncased-vocab.txt \
              --workdir=runs/tagger
          realm tag eval --tagger=runs/tagger --input=conll2003.en.valid.txt.xz
Hours:    850 s as logged, beside other work on two cores (0.2 s a step where they were free, so
          about seven minutes)
Expect:   on the validation file FB1 77.4 (precision 74.7, recall 80.4; LOC 83.6, PER 77.8, MISC
          77.2, ORG 68.7), one seed; conlleval prints the same of the predictions. The log of the
          run, experiments/results/tagger_conll.jsonl, ends at 72.5: there an entity beside one of
          its type still cost nothing (`tagging.bio.ADJACENT_PENALTY`). That it should was seen in the
          errors on this very file; how much comes from the training file. Devlin et al. report
          96.4 for a cased BERT-base; a BERT goes in by config.model.start
"""

from ml_collections import ConfigDict

from realm_jax.tagging.small_tagger import tagger_config


def get_config() -> ConfigDict:
    """What `realm tag train` does where it is given no config: two layers of 128, 2,000 steps."""
    return tagger_config()
