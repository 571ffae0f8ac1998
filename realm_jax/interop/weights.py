"""Weights in memory: networks under canonical names, with sizes, vocabulary and a report."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from realm_jax.errors import InputError, MismatchError
from realm_jax.interop.detect import QUESTIONS, recognise
from realm_jax.interop.metadata import DESCRIPTION, Sizes, described, sizes_of
from realm_jax.interop.names import SPAN_HEAD, WORDS, from_bert_names, to_bert_names
from realm_jax.interop.save import write_network
from realm_jax.interop.sources import open_source
from realm_jax.models.modules import Parameters

# Folders that hold one network each, beside each other: what `write_weights` makes of several.
NETWORK_FOLDERS = ("embedder", QUESTIONS, "reader", "question_reader")


@dataclass(frozen=True)
class Weights:
    """Networks made by others or by us.

    Attributes:
      kind: bert, embedder, scorer, encoder, reader or openqa.
      sizes: what `config.model` must be.
      networks: bert, or some of `NETWORK_FOLDERS`, to float32 arrays by canonical names.
      vocabulary: the `vocab.txt` that goes with them, or None.
      unused, missing: names as they came; see `interop.recognise`.
      left_out: reason to number of arrays.
    """

    kind: str
    sizes: Sizes
    networks: dict[str, dict[str, np.ndarray]]
    vocabulary: Path | None
    unused: list[str]
    missing: list[str]
    left_out: dict[str, int]

    @property
    def parameters(self) -> int:
        """How many numbers the networks hold."""
        return sum(array.size for names in self.networks.values() for array in names.values())

    def parts(self, network: str) -> dict[str, Any]:
        """The parts (`interop.names`) of a network as trees of ours."""
        return from_bert_names(self.networks[network], self.sizes.heads)

    def only(self, network: str) -> "Weights":
        """One of the networks alone.

        Raises:
          InputError: there is no such network.
        """
        if network not in self.networks:
            raise InputError(
                "no such network in these weights",
                expected=" or ".join(self.networks),
                found=network,
            )
        return replace(self, networks={network: self.networks[network]})


def of_networks(
    networks: Parameters, model: ConfigDict, widest: int, vocabulary: Path | None
) -> Weights:
    """Networks of a run as weights for others.

    Args:
      networks: some of `NETWORK_FOLDERS` and a `span_head`, which goes with the reader that it was
        tuned with.
      model: `config.model` of the run.
      widest: `config.lengths.answer`.
      vocabulary: its `vocab.txt`, if it is still there.
    """
    of_spans = "question_reader" if "question_reader" in networks else "reader"
    found = {}
    for name in networks.keys() & set(NETWORK_FOLDERS):
        tree = dict(networks[name])
        if name == of_spans and SPAN_HEAD in networks:
            tree[SPAN_HEAD] = networks[SPAN_HEAD]
        found[name] = to_bert_names(tree)
    rows = {len(names[WORDS]) for names in found.values()}
    sizes = sizes_of(model, rows.pop(), widest)
    return Weights("run", sizes, dict(sorted(found.items())), vocabulary, [], [], {})


def open_weights(
    path: str | Path, heads: int | None = None, vocabulary: Path | None = None
) -> Weights:
    """Weights in any form that `interop.sources` knows, or a folder of such folders by network.

    Args:
      path: see `open_source`.
      heads: see `open_source`.
      vocabulary: the `vocab.txt` of these weights; None takes the one beside them, if any.

    Raises:
      InputError, DamageError: see `open_source`.
      MismatchError: arrays and description, or the vocabulary beside them, do not belong together.
    """
    path = Path(path)
    folders = [name for name in NETWORK_FOLDERS if (path / name / DESCRIPTION).is_file()]
    if folders and not (path / DESCRIPTION).exists():
        alone = {name: open_weights(path / name, heads, vocabulary) for name in folders}
        return _together(alone)
    source = open_source(path, heads)
    found = recognise(source.arrays, source.description)
    sizes = described(source.description, found.networks, source.where)
    vocabulary = vocabulary or source.vocabulary
    if vocabulary is not None:
        _require_pieces(vocabulary, sizes.vocabulary)
    first = source.first_names
    return Weights(
        found.kind,
        sizes,
        found.networks,
        vocabulary,
        sorted(first.get(name, name) for name in found.unused),
        found.missing,
        source.left_out | found.left_out,
    )


def write_weights(folder: Path, weights: Weights) -> None:
    """Writes every network: one into the folder itself, several into folders named after them.

    `BertModel.from_pretrained` reads each; an embedder's projection lies beside its BERT as
    `cls.dense.*` and `cls.LayerNorm.*`, a reader's span head as `qa_outputs.*`.

    Raises:
      InputError: the folder exists and is not empty.
    """
    require_new(folder)
    for name, names in weights.networks.items():
        place = folder if len(weights.networks) == 1 else folder / name
        write_network(place, names, weights.sizes, weights.vocabulary)


def require_new(folder: Path) -> None:
    """Refuses to write into a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "the folder is there already", where=folder, fix="choose another --to, or delete it"
        )


def _require_pieces(vocabulary: Path, expected: int) -> None:
    with vocabulary.open("rb") as lines:
        found = sum(1 for _ in lines)
    if found != expected:
        raise MismatchError(
            "weights with another vocabulary size",
            where=vocabulary,
            expected=f"{expected} word pieces, as the weights have",
            found=f"{found} word pieces",
            fix="put the vocab.txt there that these weights were trained with",
        )


def _together(alone: dict[str, Weights]) -> Weights:
    """One of several folders; what the one does not say of the sizes another may."""
    first, *others = alone.values()
    sizes = first.sizes
    for other in others:
        sizes = _joined(sizes, other.sizes)
    networks = {name: next(iter(weights.networks.values())) for name, weights in alone.items()}
    left_out: dict[str, int] = {}
    for weights in alone.values():
        for reason, count in weights.left_out.items():
            left_out[reason] = left_out.get(reason, 0) + count
    return Weights(
        "openqa" if any("reader" in name for name in alone) else "scorer",
        sizes,
        networks,
        next((weights.vocabulary for weights in alone.values() if weights.vocabulary), None),
        [f"{name}/{array}" for name, weights in alone.items() for array in weights.unused],
        [f"{name}/{array}" for name, weights in alone.items() for array in weights.missing],
        left_out,
    )


def _joined(one: Sizes, other: Sizes) -> Sizes:
    joined = replace(one, embedding=one.embedding or other.embedding, span=one.span or other.span)
    same = replace(other, embedding=joined.embedding, span=joined.span)
    if joined != replace(same, widest=joined.widest):
        raise MismatchError(
            "networks of one folder that do not belong together", expected=one, found=other
        )
    return joined
