r"""Ablation of Table 2: spans anywhere are hidden instead of salient ones.

Data:     as experiments/realm_wikipedia.py; ICT is that run's:
              mkdir -p runs/random_span/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/random_span/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=random-span \
              --bucket=BUCKET --project=PROJECT --config=experiments/random_span.py
          on one machine: realm run --config=experiments/random_span.py --workdir=runs/random_span
          then experiments/finetune_nq.py on its workdir
Hours:    1,365 v5e chip-hours of the trainer (21 h on 64), and 341 of the builder (16 beside it),
          when half of the compile report's roofline is reached; reckoned from
          benchmarks/compile_tables.md, not measured; ICT is done already
Expect:   exact match on NQ dev 35.3, recall@5 before fine-tuning 26.1 (REALM: 38.2 and 38.5)
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """Where spans are hidden is all that differs."""
    config = config_lib.from_file(REALM)
    config.masking.scheme = "random_span"
    return config
