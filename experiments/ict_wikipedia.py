r"""The inverse cloze task on Wikipedia: the retriever that REALM starts from (section 3.4; ORQA).

Data:     as in experiments/realm_wikipedia.py; no tagger is needed
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=0 --name=wikipedia \
              --bucket=BUCKET --project=PROJECT --config=experiments/ict_wikipedia.py
          on one machine: realm train --config=experiments/ict_wikipedia.py --workdir=runs/wikipedia
          afterwards experiments/realm_wikipedia.py continues in the same workdir
Hours:    267 v5e chip-hours (4 h on 64 chips). Estimated from benchmarks/compile_tables.md at half
          of the roofline, not measured
Expect:   the baseline of Table 2: recall@5 on NQ dev 13.9, and 31.3 exact match once ORQA's reader
          is fine-tuned on it. Sentences are cut to 94 word pieces, not to ORQA's 62
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Stage `ict` only."""
    config = config_lib.from_file("realm_wikipedia")
    config.corpus.spans = ""  # the default folder; ICT uses no spans
    config.stages.realm.steps = 0
    return config
