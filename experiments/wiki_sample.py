r"""Both jobs on 8,127 passages of English Wikipedia, with a small model on two CPU cores.

Data:     WikiExtractor files of English Wikipedia (December 2018) and the vocabulary of BERT-base
          uncased. The command below reads five files of 1 MB each: 250 long articles
              realm corpus build --format=wikiextractor --input='wikipedia/AA/wiki_0*' \
                  --vocab=bert-base-uncased-vocab.txt --passage-pieces=160 --out=runs/wiki/corpus
Command:  realm run --config=experiments/wiki_sample.py --workdir=runs/wiki
Hours:    0.2 on two idle CPU cores, estimated from 17 minutes of CPU time for both jobs; a step
          takes 1.2 s. The logged run shared its cores and was paused, so its 79 minutes mean little
Expect:   ICT loss 3.9 to 3.15 (in-batch accuracy 5 to 12 %; chance is 3); REALM loss 10.3 to 8.6
          nats per token, held out 8.8 (step 100), 8.6 (200), 8.55 (300); three swaps after the
          first index, at steps 103, 203 and 254; recall@10 of the indexes 0.996 to 1.000. The
          log is experiments/results/wiki_sample.jsonl

This is a test of the pipeline on real text, not a reproduction. The model starts from random
weights and learns little more than token frequencies: retrieval utility stays at zero, and the
model cannot answer questions. Masked spans are capitalised names and dates. X is Z, and a sentence
never retrieves its own passage.
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Two layers of width 128; 300 REALM steps with a refresh every 75 steps."""
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
