r"""Fine-tuning on WebQuestions (REALM section 4.3): ORQA's two losses, frozen index.

Data:     WebQuestions train: 3,417 questions after 361 for dev; test 2,032
Command:  cp -r runs/wikipedia runs/finetune_webq
          realm finetune --config=experiments/finetune_webq.py --workdir=runs/finetune_webq \
              --questions=data/webquestions.train.json --format=webquestions --part=train
Hours:    0.25 v5e chip-hours, estimated from its FLOPs at the speed of the REALM step; with one
          question per step on one chip, the host's work adds to this
Expect:   exact match on test 40.2; 40.7 from runs/ccnews (Table 1). The released checkpoint
          took 205,020 steps, 60 epochs (41.7 in later measurements by others)
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Twenty epochs, one question per step."""
    config = config_lib.from_file("realm_wikipedia")
    config.stages.qa.steps = 68_340
    return config
