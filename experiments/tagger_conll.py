r"""A tagger of names, trained on the 14,041 sentences of CoNLL-2003.

Data:     CoNLL-2003 English with BIO tags (research use; weights trained on it are not published)
          and the vocabulary of BERT-base uncased
Command:  realm tag train --config=experiments/tagger_conll.py --input=conll2003.en.train.txt.xz \
              --held-out=conll2003.en.valid.txt.xz --vocab=bert-base-uncased-vocab.txt \
              --workdir=runs/tagger
          realm tag eval --tagger=runs/tagger --input=conll2003.en.valid.txt.xz
          To start from an encoder, add to the first command
          --config.model.start=sentence-transformers/all-MiniLM-L6-v2
Hours:    from random weights, 0.1 on two idle CPU cores (0.2 s per step); the logged run shared its
          cores and took 850 s. From all-MiniLM-L6-v2, 0.5 CPU hours: 31 minutes on two cores that
          other programs shared
Expect:   on the validation file, one seed each; conlleval prints the same scores. From
          all-MiniLM-L6-v2 FB1 94.3 (precision 93.9, recall 94.7; LOC 96.7, PER 96.6, MISC 89.1, ORG
          91.3), 89.1 after 160 of 640 steps: experiments/results/tagger_conll_from_start.jsonl.
          From random weights FB1 77.4 (precision 74.7, recall 80.4; LOC 83.6, PER 77.8, MISC 77.2,
          ORG 68.7). The log, experiments/results/tagger_conll.jsonl, ends at 72.5, because decoding
          then had no penalty for two adjacent entities of one type. The penalty was added after
          reading the errors on this validation file; its value comes from the training file. Devlin
          et al. report 96.4 for a cased BERT-base
"""

from ml_collections import ConfigDict

from realm_jax.tagging.small_tagger import start_tagger_config, tagger_config


def get_config() -> ConfigDict:
    """The default of `realm tag train`: two layers of width 128, 2,000 steps."""
    return tagger_config()


def get_config_from_start() -> ConfigDict:
    """The transformer of the encoder `model.start`."""
    return start_tagger_config()
