r"""The inverse cloze task on Wikipedia: the retriever that REALM starts from (section 3.4; ORQA).

Data:     as experiments/realm_wikipedia.py; no tagger is needed
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=0 --name=wikipedia \
              --bucket=BUCKET --project=PROJECT --config=experiments/ict_wikipedia.py
          on one machine: realm train --config=experiments/ict_wikipedia.py --workdir=runs/wikipedia
          then, in the same workdir, experiments/realm_wikipedia.py goes on from it
Hours:    418 v5e chip-hours (7 h on 64), when half of the compile report's roofline is reached;
          reckoned from benchmarks/compile_tables.md, not measured
Expect:   the baseline of Table 2: recall@5 on NQ dev 13.9, and 31.3 exact match once ORQA's reader
          is fine-tuned on it. Sentences are cut to 94 word pieces, not to ORQA's 62
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """Only the stage `ict`."""
    config = config_lib.from_file(REALM)
    config.corpus.spans = ""  # those of the build; ICT uses none
    config.stages.realm.steps = 0
    return config
