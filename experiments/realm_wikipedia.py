r"""REALM pre-training with X = Z = Wikipedia, at the paper's sizes (section 4, Table 1).

Data:     English Wikipedia of 20 December 2018 as WikiExtractor writes it, Google's BERT-base
          uncased, and a tagger for salient spans; the paper's split has 13,353,718 passages
              realm import --from=uncased_L-12_H-768_A-12 --to=weights/bert-base-uncased
              realm corpus build --format=wikiextractor --input='enwiki/*/wiki_*' \
                  --vocab=weights/bert-base-uncased/vocab.txt --out=runs/wikipedia/corpus
              realm tag annotate --corpus=runs/wikipedia/corpus --tagger=runs/tagger
Command:  python launch/cloud_tpu.py --trainer=v5e:8x8 --builders=4 --name=wikipedia \
              --bucket=BUCKET --project=PROJECT --config=experiments/realm_wikipedia.py
          on one machine: realm run --config=experiments/realm_wikipedia.py --workdir=runs/wikipedia
Hours:    1,150 v5e chip-hours of the trainer (4 h of ICT and 14 h of REALM on 64 chips) and 287 of
          the builder (16 chips, which are started with the trainer). Estimated from
          benchmarks/compile_tables.md at half of the roofline, not measured
Expect:   after fine-tuning (experiments/finetune_*.py), exact match on test: NQ 39.2, WebQuestions
          40.2, CuratedTREC 46.8; on NQ dev 38.2, recall@5 of the retriever before fine-tuning 38.5
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """The defaults in bfloat16; the backward pass recomputes attention, to fit into 16 GB per chip.

    docs/how_to/train_on_pods.md has faster flags for v5e and v6e.
    """
    config = config_lib.default()
    config.corpus.knowledge = "runs/wikipedia/corpus"
    config.corpus.spans = "runs/wikipedia/corpus/tagged_spans"
    config.model.start = "weights/bert-base-uncased"
    config.model.update(compute="bfloat16", remat="attention")
    return config
