r"""Fine-tuning on WebQuestions (REALM section 4.3; ORQA's two losses, its index frozen).

Data:     WebQuestions train: 3,417 questions after 361 for dev; test 2,032
Command:  cp -r runs/wikipedia runs/finetune_webq
          realm finetune --config=experiments/finetune_webq.py --workdir=runs/finetune_webq \
              --questions=data/webquestions.train.json --format=webquestions --part=train
Hours:    0.40 v5e chip-hours by its FLOPs at the speed of the compiled REALM step; on one chip,
          one question a step, the host's work comes on top
Expect:   exact match on test 40.2; 40.7 from runs/ccnews (Table 1). The released checkpoint
          took 205,020 steps, 60 epochs (41.7 measured again by others)
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """Twenty epochs, one question a step."""
    config = config_lib.from_file(REALM)
    config.stages.qa.steps = 68_340
    return config
