r"""Ablation of Table 2: the index is refreshed 30 times less often.

Data:     as in experiments/realm_wikipedia.py, and the ICT checkpoint of that run:
              mkdir -p runs/stale_30x/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/stale_30x/checkpoints/
              or, with both runs in a bucket:
              gcloud storage cp -r gs://BUCKET/wikipedia/checkpoints/ict \
                  gs://BUCKET/stale-30x/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=stale-30x \
              --bucket=BUCKET --project=PROJECT --config=experiments/stale_30x.py
          on one machine: realm run --config=experiments/stale_30x.py --workdir=runs/stale_30x
          then experiments/finetune_nq.py on its workdir
Hours:    872 v5e chip-hours of the trainer (14 h on 64 chips) and 218 of the builder (16 chips),
          without ICT. Estimated from benchmarks/compile_tables.md at half of the roofline, not
          measured
Expect:   exact match on NQ dev 28.7, recall@5 before fine-tuning 15.1 (REALM: 38.2 and 38.5)
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Fifteen thousand steps between snapshots, and no alarm about it."""
    config = config_lib.from_file("realm_wikipedia")
    config.refresh.update(every=15_000, alarm_steps=60_000)
    return config
