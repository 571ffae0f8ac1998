r"""Fine-tuning on CuratedTREC (REALM section 4.3): ORQA's two losses, frozen index.

Data:     CuratedTREC train: 1,353 questions after 133 for dev; test 694; answers are patterns
Command:  cp -r runs/wikipedia runs/finetune_trec
          realm finetune --config=experiments/finetune_trec.py --workdir=runs/finetune_trec \
              --questions=data/curatedtrec.train.tsv --format=trec --part=train
Hours:    0.10 v5e chip-hours, estimated from its FLOPs at the speed of the REALM step; with one
          question per step on one chip, the host's work adds to this
Expect:   exact match on test 46.8; 42.9 from runs/ccnews (Table 1). An answer is right
          if the pattern matches it
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Twenty epochs, one question per step."""
    config = config_lib.from_file("realm_wikipedia")
    config.stages.qa.steps = 27_060
    return config
