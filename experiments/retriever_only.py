r"""Ablation of Table 2: REALM's retriever with the reader of the baseline.

Data:     a finished run of experiments/realm_wikipedia.py in runs/wikipedia, and one of
          experiments/encoder_only.py in runs/encoder_only, whose reader is the original BERT
Command:  cp -r runs/wikipedia runs/retriever_only
          realm finetune --config=experiments/retriever_only.py --workdir=runs/retriever_only \
              --questions=data/NQ-open.train.jsonl --format=nq --without=data/NQ-open.dev.jsonl
Hours:    0.59 v5e chip-hours, estimated from its FLOPs at the speed of the REALM step; with one
          question per step on one chip, the host's work adds to this
Expect:   exact match on NQ dev 37.4, recall@5 before fine-tuning 38.5 (REALM: 38.2 and 38.5)
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Fine-tuning starts from a reader without REALM pre-training."""
    config = config_lib.from_file("realm_wikipedia")
    config.stages.qa.reader_from = "runs/encoder_only"
    return config
