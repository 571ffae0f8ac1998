"""Every knob of both jobs, with its meaning and unit; the one home of every default."""

from ml_collections import ConfigDict

STAGES = ("reader", "ict", "realm", "qa", "tagger")  # in which they follow each other


def _stage(*, steps: int, batch: int, learning_rate: float) -> ConfigDict:
    """One stage of training; each has its own optimiser state and its own warm-up."""
    return ConfigDict(
        {
            "steps": steps,  # optimiser steps; 0 skips the stage
            "batch": batch,  # queries per step, over all devices
            "learning_rate": learning_rate,  # peak of the linear warm-up and decay
            "evaluate_every": 1000,  # steps between evaluations; 0: only at the end
        }
    )


def default() -> ConfigDict:  # noqa: PLR0915 - one home for every default
    """The paper's sizes and schedule (REALM section 4 and appendix; released code where silent)."""
    config = ConfigDict()
    config.seed = 0  # every random stream is derived from it

    config.corpus = ConfigDict()
    config.corpus.knowledge = ""  # folder of the knowledge corpus Z (`realm corpus build`)
    config.corpus.pretraining = ""  # folder of the pre-training corpus X; "" means Z itself
    config.corpus.held_out = ""  # like X, to measure on; "" keeps every fiftieth passage of X apart
    config.corpus.questions = ""  # question file, or folder with train.jsonl; "" skips stage qa
    config.corpus.questions_format = "own"  # own, nq, webquestions, trec or squad
    config.corpus.questions_part = "all"  # or the published train or dev part (webquestions, trec)
    config.corpus.questions_without = ""  # file of the same form; its questions are left out

    config.corpus.spans = ""  # folder of the salient spans of X; "" means spans/ inside it
    config.corpus.tagged = ""  # CoNLL file that the tagger learns from
    config.corpus.tagged_held_out = ""  # the same, to measure on; "" measures nothing
    config.corpus.vocabulary = ""  # of the tagger: BERT's vocab.txt; "" learns one from `tagged`

    config.model = ConfigDict()  # widths of the encoder that embedder and reader share in shape
    config.model.layers = 12
    config.model.hidden = 768  # H
    config.model.heads = 12
    config.model.mlp = 3072  # inner width of the feed-forward blocks
    config.model.embedding = 128  # E, width of query and passage vectors
    config.model.span = 0  # inner width of the span head; 0 is a third of hidden, at least 32
    config.model.gelu = "tanh"  # tanh (as REALM and the first BERT) or erf (other people's "gelu")
    config.model.positions = 512  # longest row the position table can hold, in word pieces
    config.model.dropout = 0.1  # share of activations dropped in training
    config.model.init_stddev = 0.02  # of fresh matrices; narrow models want about 0.02 sqrt(768/H)
    config.model.entities = "LOC MISC ORG PER"  # types that the tagger tells apart
    # float32, or bfloat16: activations and products take half the memory and on TPUs a fraction of
    # the time; parameters, moments, sums, norms and losses stay float32
    config.model.compute = "float32"
    # True: keep a layer's input alone and compute the rest again in the backward pass; a third more
    # work, and activations of one layer instead of all of them
    config.model.remat = False
    # True: layers are one loop, compiled once; False: each is compiled, several times as long, but
    # without remat the loop needs about twice the memory, and on a CPU a tenth to a third more
    # time (twelve layers, bfloat16). Four layers or fewer never are a loop
    config.model.scan = True
    config.model.start_embedder = True  # start the embedder's BERT there too, as REALM did
    config.model.start = ""  # weights to start from (`realm import`); "" is random

    config.lengths = ConfigDict()  # in word pieces, special pieces included
    config.lengths.query = 96  # Q
    config.lengths.passage = 288  # P
    config.lengths.joint = 384  # J: query + passage body
    config.lengths.masks = 10  # M, scored masked positions per query
    config.lengths.answer = 10  # widest answer span considered
    config.lengths.sentences = 128  # of a tagger's row: sentences that follow each other

    config.masking = ConfigDict()
    config.masking.scheme = "salient_span"  # salient_span, random_span or random_token
    # Reader stage: share of its steps, the first, that hide random pieces beside their own passage,
    # as a reader from nothing needs to learn copying
    config.masking.copying = 0.0
    config.masking.neighbour = 0.0  # reader stage: share shown beside a neighbour of that passage
    config.masking.alone = 0.0  # reader stage: share shown beside the null passage
    config.masking.permute = 0.0  # reader stage: share of rows whose rare pieces change places
    config.masking.unseen = 0.0  # reader stage: share of rows whose blank the reader cannot see
    config.masking.rate = 0.0  # share of pieces random schemes mask; 0: as many as salient_span
    config.masking.words = 0.0  # tagger stage: share of words shown as [UNK]

    config.retrieval = ConfigDict()
    config.retrieval.candidates = 8  # K, the null passage included
    config.retrieval.null_passage = True  # candidate 0 is the empty passage
    config.retrieval.exclude_own = True  # never show the passage that the sentence came from
    # index: search with the query embedder published in the index, ahead of the step where the
    # searcher is on the host; candidates depend on seed, step and index alone. fresh: search with
    # the parameters of the step itself, in one program with the query embedding; needs search.kind
    # mesh. Queries are then never stale, passages are as stale as before, and each step waits for
    # its search. Take it where staleness is many thousand steps.
    config.retrieval.search_with = "index"
    # Hits of each query that are ranked anew by vectors made with the parameters of the step, so
    # that neither queries nor passages are stale among them; 0: the order of the index stands. Each
    # step then waits for that many passages a query to be embedded (one process only).
    config.retrieval.rerank = 0

    config.search = ConfigDict()
    # scann: approximate, in the memory of every host; the one for a laptop, few hosts, serving.
    # mesh: exact, rows spread over the memory of all devices; the better one on pods (52 MB a chip
    # for 13.35 M passages on 64 chips). exact: numpy, for small corpora. faiss: as scann, by
    # another library (extra [faiss]).
    config.search.kind = "scann"
    config.search.dtype = "bfloat16"  # of the vectors that kind mesh keeps: float32 or bfloat16
    # Of kinds scann and faiss:
    config.search.leaves = 0  # partitions; 0 is about the square root of N
    config.search.leaves_searched = 0  # partitions looked into; 0 is a tenth of them
    config.search.reorder = 100  # hits rescored per query, in the precision of `rescore`
    # float32: scores are exact. bfloat16, int8: half and a quarter of the memory.
    config.search.rescore = "bfloat16"
    # Codes have 4 bits each. 2: half of them, half as quick again; then rescore more hits, for they
    # tell vectors of a trained embedder apart less well (benchmarks/RESULTS.md).
    config.search.dims_per_code = 1
    # ScaNN keeps each row in two partitions (SOAR): as good with fewer looked into, a longer build.
    config.search.soar = False

    config.objective = ConfigDict()
    config.objective.marginal = (
        "paper"  # paper: sum_z p(z|x) prod_j p(y_j|z,x); released: per token
    )
    # What the embedder learns from in stage realm. marginal: log p(y|x), as in the paper; pdist:
    # which candidate makes what is hidden likeliest, however p(z|x) stands.
    config.objective.retriever_loss = "marginal"
    config.objective.hidden = 0.0  # ICT: share of query pieces shown as [MASK], as REALM will
    config.objective.removal = 0.9  # ICT: share of queries removed from their passage

    config.stages = ConfigDict()
    config.stages.reader = _stage(steps=0, batch=512, learning_rate=1e-4)
    config.stages.ict = _stage(steps=100_000, batch=4096, learning_rate=1e-4)
    config.stages.realm = _stage(steps=200_000, batch=512, learning_rate=3e-5)
    config.stages.qa = _stage(steps=160_000, batch=1, learning_rate=1e-5)
    config.stages.tagger = _stage(steps=1400, batch=32, learning_rate=5e-5)
    # The embedder's BERT begins as that of stage reader ended, which is to a run from nothing what
    # BERT is to ORQA and REALM
    config.stages.ict.from_reader = False
    config.stages.qa.reader_passages = 5  # passages that the span reader reads per question
    config.stages.qa.retriever_passages = 100  # hits over which the retriever is taught
    config.stages.qa.reader_from = ""  # workdir of the run whose reader to start from; "": own

    config.optimizer = ConfigDict()  # AdamW as in BERT, without bias correction
    config.optimizer.b1 = 0.9
    config.optimizer.b2 = 0.999
    config.optimizer.eps = 1e-6
    config.optimizer.weight_decay = 0.01  # not on biases and layer norms
    config.optimizer.clip = 1.0  # global norm of the gradient
    # Micro-batches whose gradients are added up for one step; activations of one alone are kept.
    # Stages realm and tagger: the update of the whole batch. ict and qa: negatives come from the
    # micro-batch alone, so a query has fewer. reader: the masked LM's update is the whole batch's,
    # the span loss is a mean of micro-batch means. Dropout is drawn anew for each micro-batch.
    config.optimizer.accumulate_steps = 1
    config.optimizer.warmup_share = 0.1  # of a stage's steps ...
    config.optimizer.warmup_most = 10_000  # ... but never more steps than this

    config.refresh = ConfigDict()
    config.refresh.mode = "async"  # async: never wait; sync: wait for the index of each snapshot
    config.refresh.every = 500  # steps between snapshots
    # Staleness in steps above which the trainer waits for a newer index; 0: it never waits, as in
    # the paper. At least refresh.every - 1; what bounds staleness where refreshes may be late.
    config.refresh.most_stale = 0
    # Snapshots and published indexes that retention leaves; in sync mode also the indexes since the
    # newest checkpoint, which a resumed run searches again.
    config.refresh.keep = 3
    config.refresh.alarm_steps = 5000  # staleness above which the trainer warns
    config.refresh.wait_seconds = 3600.0  # patience for the first index, and for each in sync mode

    config.checkpoint = ConfigDict()
    config.checkpoint.every = 1000  # steps between checkpoints
    config.checkpoint.keep = 2  # checkpoints that retention leaves

    config.mesh = ConfigDict()  # devices along each axis; one of them may be -1: all that are left
    config.mesh.replica = 1  # copies of all below; on several TPU slices, a multiple of them
    config.mesh.data = -1  # parts of the batch, each with parameters of its own copy
    config.mesh.fsdp = 1  # parts of the batch that share one copy of parameters and moments
    config.mesh.model = 1  # devices that compute one row together: heads, mlp and vocabulary
    # Groups that the queries of stages ict and realm are packed in (`data.packing`): a multiple of
    # the parts of the batch times micro-batches, and a divisor of the batch; 0: just as many. The
    # same number draws the same dropout on any mesh; fewer leave less padding.
    config.mesh.groups = 0

    config.builder = ConfigDict()
    config.builder.shard = 4096  # passages embedded between two resumable shard files
    # Word pieces per embedding batch, padding included; on a CPU passages go by 1,200 at most.
    config.builder.batch_pieces = 16_384
    config.builder.recall_floor = 0.95  # recall@10 against exact search; an index below it is
    # searched wider until it is reached, and not published if it never is
    # Keeps partitions and codes of the last index (kinds scann, faiss) and only encodes its rows
    # again, while recall holds: a quicker refresh, whose index depends on those before it too.
    config.builder.reencode = False
    config.builder.reencode_loss = 0.02  # of recall, below that of the last index built anew
    config.builder.probes = 128  # passages used as probe queries for that recall
    config.builder.poll_seconds = 0.5  # between looks for a new snapshot

    config.evaluation = ConfigDict()
    config.evaluation.queries = 512  # held-out sentences and questions per evaluation
    config.evaluation.neighbours = 5  # recall is measured at this many passages

    config.report = ConfigDict()
    config.report.every = 50  # steps between records of figures
    config.report.writers = "tensorboard"  # beside JSON lines: tensorboard, wandb, both or ""
    config.report.examples = 10  # held-out examples in report.html
    config.report.most_passages = 200_000  # of a corpus whose recall before training is measured
    config.report.peak_flops = 0.0  # a second, of one device, for MFU; 0: known by its name or not
    return config
