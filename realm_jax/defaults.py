"""The default, the meaning and the unit of every config key of both jobs.

`docs/reference/config.md` is generated from this file (`make config-reference`). The comment above
or after a key describes it there, and the docstring of a function describes its section.
"""

from ml_collections import ConfigDict

STAGES = ("reader", "ict", "realm", "qa", "tagger")  # in the order in which they are trained


def default() -> ConfigDict:
    """Sizes and schedule of the paper (REALM section 4.3), or else of the released code."""
    config = ConfigDict()
    config.seed = 0  # seed of every random stream; at least 0 and below 2**63
    config.corpus = _corpus()
    config.model = _model()
    config.lengths = _lengths()
    config.masking = _masking()
    config.retrieval = _retrieval()
    config.search = _search()
    config.stages = ConfigDict()
    config.stages.reader = _reader()
    config.stages.ict = _ict()
    config.stages.realm = _realm()
    config.stages.qa = _qa()
    config.stages.tagger = _tagger()
    config.optimizer = _optimizer()
    config.refresh = _refresh()
    config.checkpoint = _checkpoint()
    config.mesh = _mesh()
    config.builder = _builder()
    config.evaluation = _evaluation()
    config.report = _report()
    return config


def _corpus() -> ConfigDict:
    """Input folders and files of a run."""
    corpus = ConfigDict()
    corpus.knowledge = ""  # folder of the knowledge corpus Z, written by `realm corpus build`
    corpus.pretraining = ""  # folder of the pre-training corpus X; `""`: X is Z
    # Folder of a held-out corpus for evaluation. `""`: every fiftieth passage of X is held out.
    corpus.held_out = ""
    corpus.spans = ""  # folder of the salient spans of X; `""`: the folder spans/ inside X
    # File of training questions, or a folder with train.jsonl. `""`: stage `qa` is skipped.
    corpus.questions = ""
    corpus.questions_format = "own"  # `own` (JSON lines), `nq`, `webquestions`, `trec` or `squad`
    # `all`, or one published part of a file with both (webquestions, trec): `train` or `dev`.
    corpus.questions_part = "all"
    # File in the same format. Questions that occur in it are removed from the training questions.
    corpus.questions_without = ""
    return corpus


def _model() -> ConfigDict:
    """The Transformer encoder. Embedder, reader and tagger have the same sizes."""
    model = ConfigDict()
    model.layers = 12  # Transformer layers
    model.hidden = 768  # hidden width H
    model.heads = 12  # attention heads; a divisor of H
    model.mlp = 3072  # inner width of the feed-forward blocks
    model.embedding = 128  # width E of query and passage vectors
    # `pooler` (BERT's of [CLS], as in the paper), `cls`, `mean`, `max` or `mean_sqrt_len`.
    model.pooling = "pooler"
    # `layer_norm`: linear to E and layer norm, as in the paper; `none` (E is H); or linear layers
    # with activations (`identity`, `tanh`, `relu`, `gelu`), as in `512:tanh 256`.
    model.projection = "layer_norm"
    model.normalise = False  # True: vectors have unit length
    model.temperature = 1.0  # divides inner products; vectors of unit length need about 0.05
    model.learn_temperature = False  # True: model.temperature is only the first value
    # Relevance of the null passage. `embedded`: of its row, as in the paper; about 0 for vectors of
    # unit length. `fixed`: model.null_value / model.temperature. `learned`: the same, and trained.
    model.null_score = "embedded"
    model.null_value = 0.0  # inner product at which a passage is as relevant as the null passage
    # The embedder reads [CLS] title [SEP] body [SEP] (`pair`) or [CLS] title body [SEP] (`single`).
    model.passage_row = "pair"
    model.query_prompt = ""  # text before each query that the embedder reads
    model.passage_prompt = ""  # text before each passage, with model.passage_row=single only
    model.span = 0  # inner width of the span head; 0: a third of H, at least 32
    # `tanh`: the approximation of GELU that REALM and Google's BERT use. `erf`: the exact GELU,
    # which Hugging Face calls "gelu".
    model.gelu = "tanh"
    model.positions = 512  # size of the position table; the longest input row, in word pieces
    model.dropout = 0.1  # dropout rate, at least 0 and below 1
    # Standard deviation of new weight matrices. For narrow models about 0.02 * sqrt(768 / H).
    model.init_stddev = 0.02
    model.entities = "LOC MISC ORG PER"  # entity types that the tagger predicts
    # Dtype of activations and matrix products: `float32` or `bfloat16`, which is several times
    # faster on TPUs. Parameters, moments, sums, layer norms and losses are float32 in both cases.
    model.compute = "float32"
    # `xla`, `pallas` (TPUs), `cudnn` (GPUs, without dropout), or `auto`: `pallas` on TPUs, else
    # `xla`. `pallas` draws other dropout of the attention weights than `xla`.
    model.attention = "auto"
    # Activations that the backward pass recomputes: `none`; `attention`; `full`: all but the input
    # of each layer, a third more FLOPs. `realm compile --advise` chooses for a TPU.
    model.remat = "none"
    # True: the layers are one scanned loop, compiled once. Without remat: about twice the memory,
    # and on CPUs 10 to 33 % more time. Models of up to four layers never use a loop.
    model.scan = True
    # Folder of weights, or a model on the Hub: ORG/NAME[@REVISION]. `""`: random initialisation.
    model.start = ""
    # True: sizes and form are those of model.start, except keys given as flags.
    model.like_start = False
    # True: the embedder's encoder starts from model.start, as in REALM. False: only the reader's.
    model.start_embedder = True
    return model


def _lengths() -> ConfigDict:
    """Lengths of input rows in word pieces, special tokens included."""
    lengths = ConfigDict()
    lengths.query = 96  # length of a query row, Q
    lengths.passage = 288  # length of a passage row, P
    lengths.indexed = 0  # length of a passage row outside of training steps, if more than P
    lengths.joint = 384  # length of a row with query and passage, J; more than Q
    lengths.masks = 10  # most masked positions of a query that enter the loss, M
    lengths.answer = 10  # widest answer span that the reader scores
    # True: stages ict and realm compile three batch shapes that fit the rows of the corpus, and
    # stage reader two. False: one each, for the longest rows; less to compile, more padding.
    lengths.fitted = True
    return lengths


def _masking() -> ConfigDict:
    """Masked language modelling, in stages `reader` and `realm`."""
    masking = ConfigDict()
    # `salient_span`: a name or a date (REALM section 3.4), or what else the corpus has marked.
    # `random_span`, `random_token`: the ablations of Table 2.
    masking.scheme = "salient_span"
    # Share of word pieces that the random schemes mask. 0: as many as the salient span has.
    masking.rate = 0.0
    return masking


def _retrieval() -> ConfigDict:
    """Candidate passages of each query, in stage `realm`."""
    retrieval = ConfigDict()
    retrieval.candidates = 8  # candidates per query, K, the null passage included
    retrieval.null_passage = True  # True: candidate 0 is the empty passage
    retrieval.exclude_source = True  # True: a query never retrieves its own passage or a copy of it
    # `index`: queries are embedded with the parameters of the published index. Candidates then
    # depend only on seed, step and index, and a host searches ahead of the step. `fresh`: with
    # those of the current step, which waits for its search; needs search.kind=mesh.
    retrieval.search_with = "index"
    retrieval.rerank = 0  # hits that a step embeds and ranks again (one process only); 0: none
    return retrieval


def _search() -> ConfigDict:
    """Maximum inner product search (MIPS)."""
    search = ConfigDict()
    # `scann`: approximate search in host memory; FAISS or exact search where ScaNN has no wheel
    # (macOS, Arm, Python 3.14). `mesh`: exact search, rows sharded over the memory of all devices,
    # for pods (52 MB per chip for 13.35 million passages on 64 chips). `exact`: NumPy, for small
    # corpora. `faiss`: approximate search in host memory with FAISS (extra [faiss]).
    search.kind = "scann"
    search.dtype = "bfloat16"  # dtype of the vectors of search.kind=mesh: `float32` or `bfloat16`
    search.leaves = 0  # partitions (scann, faiss); 0: square root of N, none below N = 100,000
    search.leaves_searched = 0  # partitions searched per query (scann, faiss); 0: a tenth of them
    search.reorder = 100  # hits per query whose scores are computed again (scann, faiss)
    # Dtype of their vectors: `float32` is exact; `bfloat16` is half as large, `int8` a quarter.
    search.rescore = "bfloat16"
    # Dimensions per 4-bit code (scann). 2 halves the codes and searches about 1.5 times as fast.
    # Raise search.reorder with it, because the codes separate vectors of a trained embedder less.
    search.dims_per_code = 1
    # True: each row is in two partitions (SOAR; scann): fewer are searched, building takes longer.
    search.soar = False
    # Most passages of a segment (not mesh). A larger corpus is indexed in segments of equal size;
    # a builder then needs the memory of one segment, and several builders make different ones.
    search.segment_passages = 2_000_000
    # `everywhere`: each trainer host loads all segments. `hosts`: host i of n loads segments i,
    # i + n, ...; each step gathers the queries of all hosts and merges their hits.
    search.placement = "everywhere"
    return search


def _stage(*, steps: int, batch: int, learning_rate: float) -> ConfigDict:
    """Keys of every stage. Each stage has its own optimizer state and its own warm-up."""
    return ConfigDict(
        {
            "steps": steps,  # optimizer steps; 0: the stage is skipped
            "batch": batch,  # queries per step, summed over all devices
            "learning_rate": learning_rate,  # peak learning rate, reached after the warm-up
            "evaluate_every": 1000,  # steps between evaluations; 0: only after the last step
        }
    )


def _reader() -> ConfigDict:
    """Warm start of the reader: masked language modelling with one given passage, no retrieval."""
    stage = _stage(steps=0, batch=512, learning_rate=1e-4)
    # Share of the steps, the first ones, that mask random tokens and show each sentence with the
    # passage it comes from. A randomly initialised reader learns copying in these steps.
    stage.copying_share = 0.0
    # Share of rows with a neighbouring passage instead of the right one, not to be trusted.
    stage.neighbour_share = 0.0
    stage.null_share = 0.0  # share of rows that are shown with the null passage
    stage.permuted_share = 0.0  # share of rows with rare pieces permuted: no fact can be memorised
    # Share of rows with [MASK] hidden from attention, as a question has none; train the span head.
    stage.hidden_mask_share = 0.0
    return stage


def _ict() -> ConfigDict:
    """Warm start of the embedder: inverse cloze task (ORQA section 5)."""
    stage = _stage(steps=100_000, batch=4096, learning_rate=1e-4)
    stage.distance_penalty = 0.0  # weight of the distance (1 - cosine) to vectors before the stage
    stage.from_reader = False  # True: the embedder's encoder starts from the trained reader
    stage.mask_share = 0.0  # share of query tokens replaced by [MASK], as REALM's queries have some
    stage.removal_share = 0.9  # share of queries that are removed from their passage
    stage.title_share = 0.0  # share of queries after the title of their passage
    return stage


def _realm() -> ConfigDict:
    """Pre-training of retriever and reader (REALM section 3)."""
    stage = _stage(steps=200_000, batch=512, learning_rate=3e-5)
    # `paper`: log sum_z p(z|x) prod_j p(y_j|z,x), equation 1. `released`: a sum over z per token.
    stage.marginal = "paper"
    stage.distance_penalty = 0.0  # weight of the distance (1 - cosine) to vectors before the stage
    # Loss of f(x, z). `marginal`: -log p(y|x), as in the paper. `pdist`: perplexity distillation
    # (Izacard et al. 2022), the divergence of p(z|x) from the candidates' likelihoods.
    stage.retriever_loss = "marginal"
    stage.publish_start = False  # True: with steps=0, the untrained networks are exported
    stage.draws = 1  # sentences drawn per query; the first whose hidden words a candidate has stays
    stage.title_share = 0.0  # share of queries that the embedder reads after their document's title
    stage.least_utility = 0.0  # nats; held-out utility below which the embedder is reset; 0: never
    stage.stop_utility = 0.0  # a lower one ends the stage; at most least_utility; 0: none
    return stage


def _qa() -> ConfigDict:
    """Fine-tuning on open-domain question answering, with a frozen index (REALM section 3.3)."""
    stage = _stage(steps=160_000, batch=1, learning_rate=1e-5)
    stage.reader_passages = 5  # passages per question that the reader reads
    stage.retriever_passages = 100  # passages per question in the retriever's loss
    stage.retriever = "dense"  # `dense` or `bm25`; the embedder scores what it finds
    # Workdir of another run, whose reader is the initial one; `""`: the reader of this run.
    stage.reader_from = ""
    return stage


def _tagger() -> ConfigDict:
    """The span tagger, trained by `realm tag train` only."""
    stage = _stage(steps=1400, batch=32, learning_rate=5e-5)
    stage.train_file = ""  # CoNLL file of training sentences
    stage.held_out_file = ""  # CoNLL file for evaluation; `""`: no evaluation
    stage.vocabulary = ""  # BERT's vocab.txt; `""`: learned from train_file
    stage.row_length = 128  # word pieces per input row; a row has several sentences of a document
    stage.unknown_share = 0.0  # share of words replaced by [UNK] in training
    return stage


def _optimizer() -> ConfigDict:
    """AdamW without bias correction, as in BERT."""
    optimizer = ConfigDict()
    optimizer.b1 = 0.9  # decay rate of the first moment
    optimizer.b2 = 0.999  # decay rate of the second moment
    optimizer.eps = 1e-6  # added to the root of the second moment
    optimizer.weight_decay = 0.01  # decoupled weight decay; not on biases and layer norms
    optimizer.clip = 1.0  # largest global norm of the gradient; 1e9: no clipping
    # Micro-batches per step, whose gradients are summed; only one has activations in memory at a
    # time. realm, tagger: the update equals that of the whole batch. ict, qa: negatives come from
    # the same micro-batch, so there are fewer. reader: the masked LM update is exact. Span loss and
    # distance penalties are means over micro-batches, each of which draws its own dropout.
    optimizer.accumulate_steps = 1
    optimizer.warmup_share = 0.1  # share of a stage's steps with a rising learning rate
    optimizer.warmup_max_steps = 10_000  # most warm-up steps of a stage
    return optimizer


def _refresh() -> ConfigDict:
    """Snapshots and the swap to fresh indexes."""
    refresh = ConfigDict()
    # `async`: the trainer never waits; `sync`: it waits for every index; `rolling`: async, and each
    # snapshot refreshes one segment of each builder: the one with most probe hits times age.
    refresh.mode = "async"
    refresh.every = 500  # steps between snapshots
    # Staleness in steps above which the trainer waits: at least refresh.every - 1. 0: never (paper)
    refresh.max_staleness = 0
    refresh.segment_max_age = 4000  # steps; rolling: an older segment comes before all others
    # Snapshots and indexes to keep. Sync mode also keeps all since the oldest checkpoint
    refresh.keep = 3
    refresh.alarm_steps = 5000  # staleness in steps above which the trainer logs a warning
    refresh.wait_seconds = 3600.0  # longest wait for an index without progress of its builder
    return refresh


def _checkpoint() -> ConfigDict:
    """The trainer's private checkpoints."""
    checkpoint = ConfigDict()
    checkpoint.every = 1000  # steps between checkpoints
    checkpoint.keep = 2  # checkpoints that retention keeps
    return checkpoint


def _mesh() -> ConfigDict:
    """Devices along each mesh axis. One axis may be -1: all remaining devices."""
    mesh = ConfigDict()
    mesh.replica = 1  # copies of everything below; a multiple of the number of TPU slices
    mesh.data = -1  # data parallelism: shards of the batch, each with a copy of the parameters
    mesh.fsdp = 1  # fully sharded data parallelism: shards of the batch that share one copy
    mesh.model = 1  # tensor parallelism: heads, feed-forward width and vocabulary are sharded
    # Groups into which stages reader, ict and realm pack a batch: a multiple of (batch shards *
    # micro-batches) that divides it; 0: that product. Dropout differs between numbers of groups.
    mesh.groups = 0
    return mesh


def _builder() -> ConfigDict:
    """The index builder."""
    builder = ConfigDict()
    builder.shard = 4096  # passages per shard; a restarted builder resumes at the next shard
    # Word pieces, padding included, that each device embeds in a batch; on a CPU at most 1,200.
    builder.batch_pieces = 16_384
    # Least recall@10. Below it the search is widened; if that fails, nothing is published.
    builder.recall_floor = 0.95
    # True: the builder keeps partitions and codebooks as long as recall holds, and only encodes
    # the new vectors (scann, faiss). An index then depends on earlier ones.
    builder.reencode = False
    # Loss of recall@10 since the last full build that causes another; below the floor, also a gain.
    builder.reencode_loss = 0.02
    # Held-out masked sentences in a snapshot, and passages, that measure the recall of an index.
    builder.probes = 128
    builder.poll_seconds = 0.5  # seconds between checks for a new snapshot
    return builder


def _evaluation() -> ConfigDict:
    """Evaluation on held-out data."""
    evaluation = ConfigDict()
    evaluation.queries = 512  # held-out sentences, and questions, per evaluation
    evaluation.recall_k = 5  # number of hits, k, in recall@k
    return evaluation


def _report() -> ConfigDict:
    """Metrics, logs and report.html."""
    report = ConfigDict()
    report.every = 50  # steps between logged metrics
    # Metric writers besides JSON lines: `tensorboard`, `wandb`, `tensorboard wandb` or `""`.
    report.writers = "tensorboard"
    report.examples = 10  # held-out examples in report.html
    report.max_passages = 200_000  # largest corpus whose recall report.html measures again
    # Peak FLOP/s of one device, for MFU. 0: by device name; no MFU if the name is unknown.
    report.peak_flops = 0.0
    # "FIRST:LAST": steps of each stage that JAX's profiler traces into logs/tensorboard; "": none.
    report.profile_steps = ""
    return report
