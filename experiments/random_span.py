"""Ablation of Table 2: spans anywhere are hidden instead of salient ones.

Data:     as experiments/realm_wikipedia.py; ICT is that run's:
              mkdir -p runs/random_span/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/random_span/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v4:4x4x4 --builders=4 --name=random-span \\
              --bucket=BUCKET --project=PROJECT --config=experiments/random_span.py
          on one machine: realm run --config=experiments/random_span.py --workdir=runs/random_span
          then experiments/finetune_nq.py on its workdir
Hours:    HOURS
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
