"""Keys and values of earlier versions, which config.json files and flags may still have."""

# Key of an earlier version -> key of this version.
MOVED_KEYS = {
    "masking.copying": "stages.reader.copying_share",
    "masking.neighbour": "stages.reader.neighbour_share",
    "masking.alone": "stages.reader.null_share",
    "masking.permute": "stages.reader.permuted_share",
    "masking.unseen": "stages.reader.hidden_mask_share",
    "masking.words": "stages.tagger.unknown_share",
    "objective.hidden": "stages.ict.mask_share",
    "objective.removal": "stages.ict.removal_share",
    "objective.marginal": "stages.realm.marginal",
    "objective.retriever_loss": "stages.realm.retriever_loss",
    "corpus.tagged": "stages.tagger.train_file",
    "corpus.tagged_held_out": "stages.tagger.held_out_file",
    "corpus.vocabulary": "stages.tagger.vocabulary",
    "lengths.sentences": "stages.tagger.row_length",
    "retrieval.exclude_own": "retrieval.exclude_source",
    "optimizer.warmup_most": "optimizer.warmup_max_steps",
    "refresh.most_stale": "refresh.max_staleness",
    "evaluation.neighbours": "evaluation.recall_k",
    "report.most_passages": "report.max_passages",
}

# Key of this version -> earlier value, as text -> value of this version.
MOVED_VALUES = {"model.remat": {"false": "none", "true": "full"}}
