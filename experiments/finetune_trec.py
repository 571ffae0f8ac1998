r"""Fine-tuning on CuratedTREC (REALM section 4.3; ORQA's two losses, its index frozen).

Data:     CuratedTREC train: 1,353 questions after 133 for dev; test 694; answers are patterns
Command:  cp -r runs/wikipedia runs/finetune_trec
          realm finetune --config=experiments/finetune_trec.py --workdir=runs/finetune_trec \
              --questions=data/curatedtrec.train.tsv --format=trec --part=train
Hours:    0.16 v5e chip-hours by its FLOPs at the speed of the compiled REALM step; on one chip,
          one question a step, the host's work comes on top
Expect:   exact match on test 46.8; 42.9 from runs/ccnews (Table 1); an answer is right where
          the pattern matches it
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """Twenty epochs, one question a step."""
    config = config_lib.from_file(REALM)
    config.stages.qa.steps = 27_060
    return config
