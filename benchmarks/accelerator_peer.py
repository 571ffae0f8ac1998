"""The REALM step and the embedder in PyTorch, with BERT of transformers, for `accelerator.py`."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from step_peers import bert_sizes

Variants = dict[str, Callable[[], Any]]  # empty if PyTorch or transformers is not installed


def torch_step(config: ConfigDict, padded: Any, pieces: int) -> Variants:
    """A training step on padded rows (`support.padded.PaddedBatch`), ended by a synchronisation."""
    torch = _torch()
    if torch is None:
        return {}
    embedder, reader = _bert(config, pieces), _bert(config, pieces)
    parameters = [*embedder.parameters(), *reader.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    queries, passages, joint = (
        _rows(rows) for rows in (padded.text.queries, padded.passages, padded.joint)
    )
    size, count = padded.valid.shape
    read = np.argwhere(np.repeat(padded.text.weights, count, axis=0) > 0)
    rows, slots = read.T
    where = np.repeat(padded.text.positions, count, axis=0)[rows, slots]
    wanted = np.repeat(padded.text.targets, count, axis=0)[rows, slots]
    rows, where, wanted = (torch.tensor(part).cuda().long() for part in (rows, where, wanted))

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            query = embedder(**queries).last_hidden_state[:, 0]
            passage = embedder(**passages).last_hidden_state[:, 0].view(size, count - 1, -1)
            # The null passage, one row for all queries, is left out; its score is 0.
            scores = torch.einsum("bh,bkh->bk", query, passage).float()
            scores = torch.cat([torch.zeros_like(scores[:, :1]), scores], 1).log_softmax(1)
            hidden = reader(**joint).last_hidden_state[rows, where]
            logits = hidden @ reader.embeddings.word_embeddings.weight.T
        log_p = -torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
        by_row = torch.zeros(size * count, device="cuda").index_add(0, rows, log_p)
        loss = -torch.logsumexp(scores + by_row.view(size, count), 1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        torch.cuda.synchronize()

    return {"torch": step}


def torch_embedder(config: ConfigDict, rows: Any, pieces: int) -> Variants:
    """The vectors of [CLS] of padded rows."""
    torch = _torch()
    if torch is None:
        return {}
    model, inputs = _bert(config, pieces).eval(), _rows(rows)

    def embed() -> None:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            model(**inputs).last_hidden_state[:, 0].float().cpu()

    return {"torch": embed}


def _torch() -> Any:
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"not compared with PyTorch: {error}\n")
        return None
    if not torch.cuda.is_available():
        sys.stderr.write("not compared with PyTorch: it finds no GPU\n")
        return None
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch


def _bert(config: ConfigDict, pieces: int) -> Any:
    from transformers import BertConfig, BertModel

    size = BertConfig(**bert_sizes(config, pieces), attn_implementation="sdpa")
    return BertModel(size, add_pooling_layer=False).cuda().train()


def _rows(rows: Any) -> dict[str, Any]:
    import torch

    names = ("input_ids", "attention_mask", "token_type_ids")
    flat = (np.asarray(part).reshape(-1, part.shape[-1]) for part in rows)
    return {
        name: torch.tensor(part.astype(np.int64)).cuda()
        for name, part in zip(names, flat, strict=True)
    }
