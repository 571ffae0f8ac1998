"""The Hugging Face REALM classes that `step.py` compares with, trained as they document."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from ml_collections import ConfigDict

Step = Callable[[], None]


def torch_variants(
    config: ConfigDict, batches: list[Any], pieces: int
) -> dict[str, Callable[[], Step]]:
    """Builds training steps of RealmScorer and RealmKnowledgeAugEncoder.

    Args:
      config: gives the model sizes.
      batches: padded batches (`support.padded.PaddedBatch`); a step runs all of them.
      pieces: vocabulary size.

    Returns:
      Functions that build a step in float32 and under bfloat16 autocast, by name. The dictionary
      is empty if PyTorch or transformers is not installed.
    """
    try:
        import torch
        from transformers import RealmConfig, RealmKnowledgeAugEncoder, RealmScorer
    except ImportError as error:
        sys.stderr.write(f"not compared with PyTorch: {error} (pip install -e '.[bench]')\n")
        return {}
    size = RealmConfig(
        **bert_sizes(config, pieces),
        retriever_proj_size=config.model.embedding,
        num_candidates=config.retrieval.candidates,
    )
    inputs = [torch_inputs(batch) for batch in batches]

    def make_step(autocast: bool) -> Step:
        torch.manual_seed(0)
        scorer, encoder = RealmScorer(size), RealmKnowledgeAugEncoder(size)
        parameters = [*scorer.parameters(), *encoder.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=1e-4)

        def step() -> None:
            for scorer_inputs, encoder_inputs in inputs:
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    relevance = scorer(**scorer_inputs).relevance_score
                    loss = encoder(**encoder_inputs, relevance_score=relevance).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()

        return step

    return {"torch": partial(make_step, False), "torch bf16": partial(make_step, True)}


def bert_sizes(config: ConfigDict, pieces: int) -> dict[str, Any]:
    """The sizes of `config.model` as arguments of a config of transformers, without dropout."""
    model = config.model
    return {
        "vocab_size": pieces,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.mlp,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


def torch_inputs(padded: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the keyword arguments of RealmScorer and of RealmKnowledgeAugEncoder."""
    import torch

    text = padded.text
    null = [np.broadcast_to(part, (len(text.weights), *part.shape)) for part in padded.null]
    both = zip(null, padded.passages, strict=True)
    candidates = [np.concatenate(parts, axis=1) for parts in both]

    def tensors(rows: Any, prefix: str = "") -> dict[str, Any]:
        pairs = zip(("input_ids", "attention_mask", "token_type_ids"), rows, strict=True)
        return {prefix + name: torch.tensor(part.astype(np.int64)) for name, part in pairs}

    labels, is_masked = np.zeros((2, len(text.weights), padded.joint.ids.shape[-1]), np.int64)
    for row, column in np.argwhere(text.weights > 0):
        labels[row, text.positions[row, column]] = text.targets[row, column]
        is_masked[row, text.positions[row, column]] = 1
    scorer_inputs = tensors(text.queries) | tensors(candidates, "candidate_")
    encoder_inputs = tensors(padded.joint) | {"labels": torch.tensor(labels)}
    return scorer_inputs, encoder_inputs | {"mlm_mask": torch.tensor(is_masked)}
