r"""REALM pre-training on news, with Wikipedia as the knowledge corpus (Table 1).

Data:     Wikipedia as in experiments/realm_wikipedia.py, and CC-News in the format of news-please
              realm corpus build --format=cc_news --input='news/*.jsonl.gz' \
                  --knowledge=runs/wikipedia/corpus --out=runs/ccnews/corpus
              realm tag annotate --corpus=runs/ccnews/corpus --tagger=runs/tagger \
                  --knowledge=runs/wikipedia/corpus
          and the ICT checkpoint of the Wikipedia run:
              mkdir -p runs/ccnews/checkpoints
              cp -r runs/wikipedia/checkpoints/ict runs/ccnews/checkpoints/
              or, with both runs in a bucket:
              gcloud storage cp -r gs://BUCKET/wikipedia/checkpoints/ict \
                  gs://BUCKET/ccnews/checkpoints/
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=ccnews \
              --bucket=BUCKET --project=PROJECT --config=experiments/realm_ccnews.py
          on one machine: realm run --config=experiments/realm_ccnews.py --workdir=runs/ccnews
Hours:    872 v5e chip-hours of the trainer (14 h on 64 chips) and 218 of the builder (16 chips),
          without ICT. Estimated from benchmarks/compile_tables.md at half of the roofline, not
          measured
Expect:   after fine-tuning, exact match on test: NQ 40.4, WebQuestions 40.7, CuratedTREC 42.9
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """The pre-training corpus X is CC-News."""
    config = config_lib.from_file("realm_wikipedia")
    config.corpus.pretraining = "runs/ccnews/corpus"
    config.corpus.spans = "runs/ccnews/corpus/tagged_spans"
    return config
