r"""Your own corpus on two CPU cores: from random weights, or from an encoder (`model.start`).

Command:  realm corpus build --format=text --input='notes/*.txt' --passage-pieces=64 \
              --out=runs/my_notes
          realm run --config=experiments/own_corpus.py \
              --config.corpus.knowledge=runs/my_notes --workdir=runs/my_run
          To start from an encoder: add --vocab=ORG/NAME to the first command, and
          --config.model.start=ORG/NAME (or a folder) to the second
Hours:    0.6 on two CPU cores: 18 minutes for the reader (the cores were shared), 4 for ICT, 11 for
          REALM and the index builder
Expect:   on 250 long articles of English Wikipedia (22,171 passages): the reader starts to copy
          after about 600 steps (loss falls from 7 to 5 nats per masked token); ICT picks the right
          one of 64 passages for 95 %; retrieval utility of held-out sentences 0.26 at step 120 and
          0.37 at step 960; p(null) below 0.01. The log is experiments/results/own_corpus.jsonl (the
          reader stage and the other stages were two runs). Utility depends on how often your corpus
          repeats a fact, because a sentence never retrieves its own passage

From an encoder, the passages should be short (--passage-pieces=64): training reads the first 64
word pieces of a passage, the index 256. Half of the queries follow the title of their document;
without, the embedder learns to ignore titles. Eight sentences are drawn for each query of REALM;
the first whose hidden words a candidate has is used. Penalties keep vectors near those of the
encoder: with them, none of the eleven collections of docs/evidence.md loses nDCG@10 beyond chance;
without, ICT lost 0.21 and REALM 0.28 of 0.72 on pages of annual reports. Passages of medical
articles gain 0.034, IBM's support answers 0.024; the mean gain is 0.007 (0.003 to 0.011; one
seed, two of three collections). A run takes 34 to 40 minutes on two CPU cores.

From random weights two settings matter, measured on the same corpus. Short rows: with sentences of
48 tokens, passages of 96 and fewer permuted rows, the reader had not started to copy after 1,400
steps (6.8 nats). Enough ICT: after 400 steps of ICT (and REALM with 5 candidates, batch 32, 3e-4),
utility stayed at 0.07 to 0.09, and p(null) rose to 0.4 within 360 steps.
"""

from ml_collections import ConfigDict

from realm_jax import config as config_lib


def get_config() -> ConfigDict:
    """Two layers of width 128, from random weights; the sentences of the corpus are masked."""
    config = config_lib.default()
    config.model.update(layers=2, hidden=128, heads=4, mlp=512, positions=96, dropout=0.0)
    config.model.init_stddev = 0.08
    config.lengths.update(query=32, passage=64, joint=96, masks=6, answer=8)
    config.retrieval.candidates = 16
    # Without bias correction, b2 = 0.999 would make the first few hundred updates too large.
    config.optimizer.b2 = 0.98
    stages = config.stages
    stages.reader.update(steps=6000, batch=32, learning_rate=2e-3)
    stages.reader.update(copying_share=0.3, neighbour_share=0.3, null_share=0.05)
    stages.reader.update(permuted_share=0.5, hidden_mask_share=0.1)
    stages.ict.update(steps=2000, batch=64, learning_rate=1e-3, from_reader=True)
    stages.ict.update(mask_share=0.1, removal_share=0.7)
    stages.realm.update(steps=960, batch=8, learning_rate=1e-4, evaluate_every=120)
    stages.qa.update(steps=200, batch=16, learning_rate=3e-4)
    config.refresh.every = 60
    config.checkpoint.every = 120
    config.report.every = 30
    return config


def get_config_from_start() -> ConfigDict:
    """Sizes and form of the encoder `model.start`; its transformer is the reader's too.

    The reader's masked-LM head is new, so stage `reader` teaches it.
    """
    config = config_lib.default()
    config.model.update(like_start=True, compute="bfloat16", dropout=0.0)
    # Training reads short rows. The index and the export keep what the encoder can read.
    config.lengths.update(query=48, passage=64, joint=112, indexed=256, masks=6, answer=8)
    config.retrieval.candidates = 5
    config.optimizer.b2 = 0.98
    stages = config.stages
    stages.reader.update(steps=300, batch=32, learning_rate=3e-4)
    stages.reader.update(copying_share=0.4, neighbour_share=0.3, null_share=0.1)
    stages.ict.update(steps=300, batch=32, learning_rate=2e-5)
    stages.ict.update(title_share=0.5, distance_penalty=10.0)  # see above
    stages.realm.update(steps=300, batch=8, learning_rate=2e-5, evaluate_every=100)
    stages.realm.update(draws=8, title_share=0.5, distance_penalty=3.0)  # see above
    stages.qa.update(steps=200, batch=8, learning_rate=3e-5)
    config.refresh.every = 100
    config.checkpoint.every = 100
    config.report.every = 10
    return config
