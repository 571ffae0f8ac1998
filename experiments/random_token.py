r"""Ablation of Table 2: random word pieces are masked instead of salient spans.

Data:     as in experiments/realm_wikipedia.py, and the ICT checkpoint of that run:
              mkdir -p runs/random_token/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/random_token/checkpoints/
              or, with both runs in a bucket:
              gcloud storage cp -r gs://BUCKET/wikipedia/checkpoints/ict \
                  gs://BUCKET/random-token/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=random-token \
              --bucket=BUCKET --project=PROJECT --config=experiments/random_token.py
          on one machine: realm run --config=experiments/random_token.py --workdir=runs/random_token
          then experiments/finetune_nq.py on its workdir
Hours:    872 v5e chip-hours of the trainer (14 h on 64 chips) and 218 of the builder (16 chips),
          without ICT. Estimated from benchmarks/compile_tables.md at half of the roofline, not
          measured
Expect:   exact match on NQ dev 32.3, recall@5 before fine-tuning 24.2 (REALM: 38.2 and 38.5). As
          many pieces are masked as the salient span has; BERT's rate: --config.masking.rate=0.15
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Differs from realm_wikipedia in the masking scheme only."""
    config = config_lib.from_file("realm_wikipedia")
    config.masking.scheme = "random_token"
    return config
