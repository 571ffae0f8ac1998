"""Both jobs on a few thousand passages of English Wikipedia: real text, a small model, two cores.

Data:     WikiExtractor files of English Wikipedia (December 2018) and the vocabulary of BERT-base
          uncased; the figures below come from five files, 250 long articles
              realm corpus build --format=wikiextractor --input='wikipedia/AA/wiki_0*' \
                  --vocab=bert-base-uncased-vocab.txt --passage-pieces=160 --out=runs/wiki/corpus
Command:  realm run --config=experiments/wiki_sample.py --workdir=runs/wiki
Hours:    about half an hour on two cores that were busy with other work; not timed on idle ones
Expect:   300 steps, 3 swaps (indexes of steps 75, 150, 225), loss 10.26 in the first 25 steps,
          8.60 in the last; retrieval utility stays at zero: it learned words, not yet to read
          (log: experiments/results/wiki_sample.jsonl)

It shows the machinery on real text and is no reproduction: the model is random at the start, reads
a tenth of a percent of what the paper's does, and answers nothing. Spans to mask are those of
capitals and dates; X is Z, so a sentence never gets its own passage.
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Two layers of 128; 300 steps of REALM, a fresh index every 75."""
    config = config_lib.default()
    config.corpus.knowledge = "runs/wiki/corpus"

    config.model.update(layers=2, hidden=128, heads=4, mlp=512, positions=256, dropout=0.0)
    config.model.init_stddev = 0.05
    config.lengths.update(query=64, passage=160, joint=224, masks=8)
    config.retrieval.candidates = 4

    config.stages.ict.update(steps=100, batch=32, learning_rate=2e-4)
    config.stages.realm.update(steps=300, batch=16, learning_rate=5e-4, evaluate_every=100)

    config.refresh.update(every=75, alarm_steps=300)
    config.checkpoint.every = 100
    config.builder.shard = 2048
    config.evaluation.queries = 128
    config.report.every = 25
    return config
