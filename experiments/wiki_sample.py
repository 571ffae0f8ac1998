r"""Both jobs on a few thousand passages of English Wikipedia: real text, a small model, two cores.

Data:     WikiExtractor files of English Wikipedia (December 2018) and the vocabulary of BERT-base
          uncased. Below, five files of a megabyte: 250 long articles, 8,127 passages
              realm corpus build --format=wikiextractor --input='wikipedia/AA/wiki_0*' \
                  --vocab=bert-base-uncased-vocab.txt --passage-pieces=160 --out=runs/wiki/corpus
Command:  realm run --config=experiments/wiki_sample.py --workdir=runs/wiki
Hours:    17 minutes of processor time for both jobs, so about ten minutes on two idle cores; that
          is reckoned: the logged run shared its cores and was paused for long, and its clock (79
          minutes) says nothing. Undisturbed, a step took 1.2 s
Expect:   ICT loss 3.9 to 3.15 (in-batch accuracy 5 to 12 %; chance is 3); REALM loss 10.3 to 8.6
          nats per token, held out 8.8 (step 100), 8.6 (200), 8.55 (300); three swaps after the
          first index, at steps 103, 203 and 254; recall@10 of the indexes 0.996 to 1.000. The
          log is experiments/results/wiki_sample.jsonl

It shows the machinery on real text and is no reproduction: the model is random at the start and
learns little more than which pieces are frequent; retrieval utility stays at zero and it answers
nothing. Spans to mask are those of capitals and dates. X is Z, and a sentence never gets its own
passage.
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
