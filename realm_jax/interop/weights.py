"""Weights in memory: networks with canonical array names, sizes, vocabulary and import report."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from realm_jax.errors import InputError, MismatchError
from realm_jax.interop.detect import QUESTIONS, SENTENCE_ENCODER, detect_networks
from realm_jax.interop.form import PAPER
from realm_jax.interop.metadata import DESCRIPTION, Sizes, infer_sizes, sizes_of
from realm_jax.interop.names import SPAN_HEAD, WORDS, from_bert_names, to_bert_names
from realm_jax.interop.save import write_network
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.interop.sources import open_source
from realm_jax.interop.vocabulary_files import read_pieces, require_uncased
from realm_jax.models.modules import Parameters

# Subfolders for one network each, if `write_weights` writes several networks.
NETWORK_FOLDERS = ("embedder", QUESTIONS, "reader", "question_reader")


@dataclass(frozen=True)
class Weights:
    """Imported or exported networks.

    Attributes:
      kind: bert, embedder, sentence-transformers, scorer, encoder, reader, openqa or run.
      sizes: the values that `config.model` must have.
      networks: bert, or some of `NETWORK_FOLDERS` -> float32 arrays by canonical name.
      vocabulary: their `vocab.txt` or `tokenizer.json`, or None.
      unused, missing: original array names; see `interop.detect.DetectedNetworks`.
      left_out: reason -> number of arrays.
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
        """Number of parameters of all networks."""
        return sum(array.size for names in self.networks.values() for array in names.values())

    def parts(self, network: str) -> dict[str, Any]:
        """The parts (`interop.names`) of a network as our parameter trees."""
        return from_bert_names(self.networks[network], self.sizes.heads)

    def only(self, network: str) -> "Weights":
        """These weights reduced to one network.

        Raises:
          InputError: the weights do not have this network.
        """
        if network not in self.networks:
            raise InputError(
                "no such network in these weights",
                expected=" or ".join(self.networks),
                found=network,
            )
        return replace(self, networks={network: self.networks[network]})


def weights_of_run(
    networks: Parameters,
    model: ConfigDict,
    widest: int,
    vocabulary: Path | None,
    longest: int = 0,
) -> Weights:
    """Networks of a run as weights to export.

    Args:
      networks: some of `NETWORK_FOLDERS`, and optionally a `span_head`, which is stored with the
        reader that it was fine-tuned with.
      model: `config.model` of the run.
      widest: `config.lengths.answer`.
      vocabulary: its `vocab.txt`, if it exists.
      longest: word pieces at which sentence-transformers cuts rows; 0: `model.positions`.
    """
    span_reader = "question_reader" if "question_reader" in networks else "reader"
    found = {}
    for name in networks.keys() & set(NETWORK_FOLDERS):
        tree = dict(networks[name])
        if name == span_reader and SPAN_HEAD in networks:
            tree[SPAN_HEAD] = networks[SPAN_HEAD]
        found[name] = to_bert_names(tree)
    rows = {len(names[WORDS]) for names in found.values()}
    embedder = next((networks[name] for name in ("embedder", QUESTIONS) if name in networks), None)
    sizes = sizes_of(model, rows.pop(), widest, embedder, longest)
    return Weights("run", sizes, dict(sorted(found.items())), vocabulary, [], [], {})


def open_weights(
    path: str | Path, heads: int | None = None, vocabulary: Path | None = None
) -> Weights:
    """Reads weights in any format of `interop.sources`, or a folder with one folder per network.

    Args:
      path: see `open_source`.
      heads: see `open_source`.
      vocabulary: the `vocab.txt` of these weights; None uses the one in their folder, if any.

    Raises:
      InputError, DamageError: see `open_source`.
      MismatchError: the arrays do not fit the description or the vocabulary.
    """
    path = Path(path)
    folders = [name for name in NETWORK_FOLDERS if (path / name / DESCRIPTION).is_file()]
    if folders and not (path / DESCRIPTION).exists():
        parts = {name: open_weights(path / name, heads, vocabulary) for name in folders}
        return _merge_folders(parts)
    source = open_source(path, heads)
    sentence = source.form is not None and not source.form.is_paper
    found = detect_networks(
        source.arrays, source.description, SENTENCE_ENCODER if sentence else None
    )
    sizes = infer_sizes(source.description, found.networks, source.where, source.form)
    vocabulary = vocabulary or source.vocabulary
    networks, padding = found.networks, {}
    if vocabulary is not None:
        require_uncased((source.vocabulary or vocabulary).parent, vocabulary)
        pieces = len(read_pieces(vocabulary))
        if _is_padded(pieces, sizes.vocabulary):
            networks = {name: _unpadded(arrays, pieces) for name, arrays in networks.items()}
            padding = {"word vectors that pad the vocabulary": sizes.vocabulary - pieces}
            sizes = replace(sizes, vocabulary=pieces)
        _require_pieces(vocabulary, pieces, sizes.vocabulary)
    first = source.original_names
    return Weights(
        found.kind,
        sizes,
        networks,
        vocabulary,
        sorted(first.get(name, name) for name in found.unused),
        found.missing,
        source.left_out | found.left_out | padding,
    )


def write_weights(folder: Path, weights: Weights) -> None:
    """Writes a single network to the folder itself, several networks to folders of their names.

    `BertModel.from_pretrained` reads each of them. An embedder of another form than the paper's is
    a sentence-transformers folder. The same file contains an embedder's projection
    as `cls.dense.*` and `cls.LayerNorm.*`, and a reader's span head as `qa_outputs.*`.

    Raises:
      InputError: the folder exists and is not empty.
    """
    require_new(folder)
    for name, names in weights.networks.items():
        target = folder if len(weights.networks) == 1 else folder / name
        embeds = name in ("embedder", QUESTIONS)
        sizes = weights.sizes if embeds else replace(weights.sizes, form=PAPER)
        write = write_network if sizes.form.is_paper else write_sentence_transformers
        write(target, names, sizes, weights.vocabulary)


def require_new(folder: Path) -> None:
    """Raises InputError if the folder exists and is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "the folder already exists", where=folder, fix="choose another --to, or delete it"
        )


_PADDINGS = (8, 16, 32, 64, 128, 256, 512, 1024)  # sizes are rounded up to a multiple of these


def _is_padded(pieces: int, rows: int) -> bool:
    """Whether there are unused word vectors, because the size was rounded up for the hardware."""
    return any(rows == -(-pieces // size) * size for size in _PADDINGS) and pieces < rows


def _unpadded(names: dict[str, np.ndarray], pieces: int) -> dict[str, np.ndarray]:
    cut = (WORDS, "cls.predictions.bias")
    return {name: array[:pieces] if name in cut else array for name, array in names.items()}


def _require_pieces(vocabulary: Path, found: int, expected: int) -> None:
    if found != expected:
        raise MismatchError(
            "weights with another vocabulary size",
            where=vocabulary,
            expected=f"{expected} word pieces, as the weights have",
            found=f"{found} word pieces",
            fix="replace it by the vocab.txt that these weights were trained with; tokens that "
            "were added later are its last lines, in the order of their ids",
        )


def _merge_folders(parts: dict[str, Weights]) -> Weights:
    """Merges the weights of several folders; a size unknown in one may come from another."""
    first, *others = parts.values()
    sizes = first.sizes
    for other in others:
        sizes = _merge_sizes(sizes, other.sizes)
    networks = {name: next(iter(weights.networks.values())) for name, weights in parts.items()}
    left_out: dict[str, int] = {}
    for weights in parts.values():
        for reason, count in weights.left_out.items():
            left_out[reason] = left_out.get(reason, 0) + count
    return Weights(
        "openqa" if any("reader" in name for name in parts) else "scorer",
        sizes,
        networks,
        next((weights.vocabulary for weights in parts.values() if weights.vocabulary), None),
        [f"{name}/{array}" for name, weights in parts.items() for array in weights.unused],
        [f"{name}/{array}" for name, weights in parts.items() for array in weights.missing],
        left_out,
    )


def _merge_sizes(one: Sizes, other: Sizes) -> Sizes:
    joined = replace(
        one,
        embedding=one.embedding or other.embedding,
        span=one.span or other.span,
        form=other.form if one.form == PAPER else one.form,
    )
    form = joined.form if other.form == PAPER else other.form
    same = replace(other, embedding=joined.embedding, span=joined.span, form=form)
    if joined != replace(same, widest=joined.widest):
        raise MismatchError(
            "the networks of one folder have different sizes", expected=one, found=other
        )
    return joined
