r"""REALM pre-training on news, with Wikipedia as its knowledge (Table 1).

Data:     Wikipedia as in experiments/realm_wikipedia.py, and CC-News as news-please writes it
              realm corpus build --format=cc_news --input='news/*.jsonl.gz' \
                  --knowledge=runs/wikipedia/corpus --out=runs/ccnews/corpus
              realm tag annotate --corpus=runs/ccnews/corpus --tagger=runs/tagger \
                  --knowledge=runs/wikipedia/corpus
          ICT is that of Wikipedia:
              mkdir -p runs/ccnews/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/ccnews/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=ccnews \
              --bucket=BUCKET --project=PROJECT --config=experiments/realm_ccnews.py
          on one machine: realm run --config=experiments/realm_ccnews.py --workdir=runs/ccnews
Hours:    1,365 v5e chip-hours of the trainer (21 h on 64), and 341 of the builder (16 beside it),
          when half of the compile report's roofline is reached; reckoned from
          benchmarks/compile_tables.md, not measured; ICT is done already
Expect:   after fine-tuning, exact match on test: NQ 40.4, WebQuestions 40.7, CuratedTREC 42.9
"""

from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib

REALM = Path(__file__).with_name("realm_wikipedia.py")


def get_config() -> ConfigDict:
    """X is news."""
    config = config_lib.from_file(REALM)
    config.corpus.pretraining = "runs/ccnews/corpus"
    config.corpus.spans = "runs/ccnews/corpus/tagged_spans"
    return config
