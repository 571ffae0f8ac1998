r"""Ablation of Table 2: the index is refreshed thirty times less often.

Data:     as experiments/realm_wikipedia.py; ICT is that run's:
              mkdir -p runs/stale_30x/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/stale_30x/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=stale-30x \
              --bucket=BUCKET --project=PROJECT --config=experiments/stale_30x.py
          on one machine: realm run --config=experiments/stale_30x.py --workdir=runs/stale_30x
          then experiments/finetune_nq.py on its workdir
Hours:    1,365 v5e chip-hours of the trainer (21 h on 64), and 341 of the builder (16 beside it),
          when half of the compile report's roofline is reached; reckoned from
          benchmarks/compile_tables.md, not measured; ICT is done already
Expect:   exact match on NQ dev 28.7, recall@5 before fine-tuning 15.1 (REALM: 38.2 and 38.5)
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """Fifteen thousand steps between snapshots, and no alarm about it."""
    config = config_lib.from_file(REALM)
    config.refresh.update(every=15_000, alarm_steps=60_000)
    return config
