r"""Ablation of Table 2: the retriever of the baseline (ICT only) with REALM's reader.

Data:     a finished run of experiments/realm_wikipedia.py in runs/wikipedia; its ICT checkpoint:
              mkdir -p runs/encoder_only/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/encoder_only/checkpoints/
Command:  realm run --config=experiments/encoder_only.py --workdir=runs/encoder_only
          cp -r runs/encoder_only runs/encoder_only_nq
          realm finetune --config=experiments/encoder_only.py --workdir=runs/encoder_only_nq \
              --questions=data/NQ-open.train.jsonl --format=nq --without=data/NQ-open.dev.jsonl
          for the baseline (31.3 and 13.9), copy runs/encoder_only to runs/baseline_nq, and
          fine-tune that with --config.stages.qa.reader_from= (nothing after the =)
Hours:    0.59 v5e chip-hours, estimated from its FLOPs at the speed of the REALM step; with one
          question per step on one chip, the host's work adds to this. One index refresh takes 4
          minutes on 16 chips
Expect:   exact match on NQ dev 35.3, recall@5 before fine-tuning 13.9 (REALM: 38.2 and 38.5)
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """One REALM step with learning rate 0, so that the corpus is embedded and indexed."""
    config = config_lib.from_file("realm_wikipedia")
    config.stages.realm.update(steps=1, learning_rate=0.0)
    config.stages.qa.reader_from = "runs/wikipedia"
    return config
