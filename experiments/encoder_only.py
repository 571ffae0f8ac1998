r"""Ablation of Table 2: the baseline's retriever (ICT alone) with REALM's encoder.

Data:     a finished run of experiments/realm_wikipedia.py in runs/wikipedia; its ICT is used again:
              mkdir -p runs/encoder_only/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/encoder_only/checkpoints/
Command:  realm run --config=experiments/encoder_only.py --workdir=runs/encoder_only
          cp -r runs/encoder_only runs/encoder_only_nq
          realm finetune --config=experiments/encoder_only.py --workdir=runs/encoder_only_nq \
              --questions=data/NQ-open.train.jsonl --format=nq --without=data/NQ-open.dev.jsonl
          the baseline itself (31.3 and 13.9): the same with --config.stages.qa.reader_from=
Hours:    0.93 v5e chip-hours by its FLOPs at the speed of the compiled REALM step; on one chip,
          one question a step, the host's work comes on top; and one refresh of the index,
          4 minutes on 16 chips at full speed
Expect:   exact match on NQ dev 35.3, recall@5 before fine-tuning 13.9 (REALM: 38.2 and 38.5)
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """One step of REALM that changes nothing, so that the corpus is embedded and indexed."""
    config = config_lib.from_file(REALM)
    config.stages.realm.update(steps=1, learning_rate=0.0)
    config.stages.qa.reader_from = "runs/wikipedia"
    return config
