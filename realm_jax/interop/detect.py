"""Detects the model behind a set of array names: its networks, and unused and missing arrays."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from realm_jax.errors import DamageError, MismatchError
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.names import names_of

QUESTIONS = "question_embedder"  # the query tower of a scorer with two towers
_TOWERS = {"embedder": "embedder", "query_embedder": QUESTIONS, "reader": "reader"}
_ARCHITECTURES = {
    "RealmEmbedder": "embedder",
    "RealmScorer": "scorer",
    "RealmKnowledgeAugEncoder": "encoder",
    "RealmReader": "reader",
    "RealmForOpenQA": "openqa",
}
_MASKED_LM = ("transform", "norm", "bias")
_EMBEDDER = ("bert", "pooler", "projection", "projection_norm")
_SPANS = ("ends", "span_norm", "score")
SENTENCE_ENCODER = "sentence-transformers"
Parts = tuple[str, ...]
# kind -> network -> (required parts, optional groups of parts)
_KINDS: dict[str, dict[str, tuple[Parts, tuple[Parts, ...]]]] = {
    "bert": {"bert": (("bert",), (("pooler",), _MASKED_LM))},
    "embedder": {"embedder": (_EMBEDDER, ())},
    SENTENCE_ENCODER: {"embedder": (("bert",), tuple((f"dense_{i}",) for i in range(8)))},
    "scorer": {"embedder": (_EMBEDDER, ()), QUESTIONS: (_EMBEDDER, ())},
    "encoder": {"reader": (("bert", *_MASKED_LM), ())},
    "reader": {"reader": (("bert", *_SPANS), (_MASKED_LM,))},
    "openqa": {"embedder": (_EMBEDDER, ()), "reader": (("bert", *_SPANS), (_MASKED_LM,))},
}
_HEAD = re.compile(r"(?:^|.*\.)((?:cls|qa_outputs|sentence_dense)\..*)")
_BERT = re.compile(
    r"(.*?)(?:embeddings\.(?:word|position|token_type)_embeddings|encoder\.layer\.\d+)\."
)
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# Arrays that published models contain but do not use: canonical names -> reason to omit them.
_POSITION_BUFFERS = re.compile(r"bert\.embeddings\.(position_ids|token_type_ids)")
_OF_EMBEDDERS = {
    "cls.predictions.": "masked-LM head that an embedder does not use",
    "bert.pooler.": "pooler that this embedder does not use",
}
_IGNORED = {
    "embedder": _OF_EMBEDDERS,
    QUESTIONS: _OF_EMBEDDERS,
    "reader": {"bert.pooler.": "pooler that a reader does not use"},
}
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_BLOCKS = "block_emb"


@dataclass(frozen=True)
class DetectedNetworks:
    """The networks found in a state dict.

    Attributes:
      kind: bert, embedder, sentence-transformers, scorer, encoder, reader or openqa.
      networks: embedder, question_embedder, reader or bert -> arrays by canonical name (see
        `interop.names`).
      unused: original names of arrays that no network uses.
      missing: original names of arrays that this kind needs and the weights lack.
      left_out: reason -> number of arrays that published models contain but do not use.
    """

    kind: str
    networks: dict[str, dict[str, np.ndarray]]
    unused: list[str]
    missing: list[str]
    left_out: dict[str, int]


@dataclass(frozen=True)
class _Tower:
    """One BERT with its heads; `originals` maps canonical names to original names."""

    name: str
    prefix: str
    originals: dict[str, str]

    def theirs(self, canonical: str) -> str:
        if canonical.startswith("bert."):
            return self.prefix + canonical.removeprefix("bert.")
        return f"{self.name}.{canonical}" if self.name else canonical


def detect_networks(
    theirs: dict[str, LazyArray], description: dict[str, Any], kind: str | None = None
) -> DetectedNetworks:
    """Splits a state dict into networks with canonical names, as float32.

    Args:
      theirs: arrays by the names of Hugging Face's BERT or REALM classes, with or without prefix.
      description: `config.json`, for `architectures`, `model_type` and `num_hidden_layers`.
      kind: of the model, if it is known; None: by its names.

    Raises:
      MismatchError: the names contain no BERT, or the masked-LM decoder is not tied to the word
        embeddings as ours is.
      DamageError: an array has NaN or infinity.
    """
    left_out: Counter[str] = Counter()
    if _BLOCKS in theirs:
        left_out["passage vectors"] += 1
    towers = _towers({name: array for name, array in theirs.items() if name != _BLOCKS})
    found = _kind(towers, description)  # also checks that there is a BERT
    kind = kind or found
    if kind == "scorer":
        towers = _one_embedder(towers, theirs, left_out)
    networks, missing, unused = {}, [], []
    for network, tower in _assigned(kind, towers).items():
        wanted = _wanted(tower, *_KINDS[kind][network], description)
        missing += [tower.theirs(name) for name in wanted if name not in tower.originals]
        originals = {
            name: theirs[tower.originals[name]] for name in wanted if name in tower.originals
        }
        networks[network] = {n: _finite(tower.originals[n], a) for n, a in originals.items()}
        for name in sorted(tower.originals.keys() - originals.keys()):
            _require_tied_decoder(kind, name, theirs[tower.originals[name]], networks[network])
            reason = _ignored_reason(network, name)
            left_out.update([reason] if reason else [])
            unused += [] if reason else [tower.originals[name]]
    return DetectedNetworks(kind, networks, sorted(unused), missing, dict(left_out))


def _finite(name: str, array: LazyArray) -> np.ndarray:
    read = np.asarray(array.read(), np.float32)
    if not np.isfinite(read).all():
        raise DamageError(
            "the weights have NaN or infinity",
            where=name,
            expected="finite numbers",
            found=f"{int((~np.isfinite(read)).sum())} of {read.size} numbers",
            fix="download the weights again, or use a checkpoint from before training diverged",
        )
    return read


def _towers(theirs: dict[str, LazyArray]) -> dict[str, _Tower]:
    """The towers by name; "" for array names without a tower prefix."""
    names: dict[str, list[str]] = {}
    for name in theirs:
        first = name.split(".")[0]
        names.setdefault(first if first in _TOWERS else "", []).append(name)
    towers = {}
    for tower, its in names.items():
        starts = Counter(match[1] for name in its if (match := _BERT.match(name)))
        prefix = starts.most_common(1)[0][0] if starts else "bert."
        originals = {_canonical(name, prefix): name for name in its}
        for decoder, tied in _TIED.items():  # some files store only one of two tied names
            if tied not in originals and decoder in originals:
                originals[tied] = originals.pop(decoder)
        towers[tower] = _Tower(tower, prefix, originals)
    return towers


def _canonical(name: str, prefix: str) -> str:
    head = _HEAD.fullmatch(name)
    if head:
        name = head[1]
    elif name.startswith(prefix):
        name = f"bert.{name.removeprefix(prefix)}"
    for first, present in _OLD_NAMES.items():
        name = name.replace(first, present)
    return name


def _kind(towers: dict[str, _Tower], description: dict[str, Any]) -> str:
    names = [name for tower in towers.values() for name in tower.originals]
    if not any(name.startswith(("bert.embeddings.", "bert.encoder.layer.")) for name in names):
        raise MismatchError(
            "the weights contain no BERT",
            expected="a name that ends in embeddings.word_embeddings.weight",
            found=", ".join(sorted(names)[:5]) or "no array",
        )
    for architecture in description.get("architectures") or []:
        if architecture in _ARCHITECTURES:
            return _ARCHITECTURES[architecture]
    if {"embedder", "query_embedder"} & towers.keys():
        return "openqa" if "reader" in towers else "scorer"
    if any(name.startswith("qa_outputs.dense") for name in names):
        return "reader"
    if any(name.startswith(("cls.dense.", "cls.LayerNorm.")) for name in names):
        return "embedder"
    prefixes = {tower.prefix for tower in towers.values()}
    of_realm = description.get("model_type") == "realm" or prefixes & {"realm.", "reader.realm."}
    return "encoder" if of_realm else "bert"


def _one_embedder(
    towers: dict[str, _Tower], theirs: dict[str, LazyArray], left_out: Counter[str]
) -> dict[str, _Tower]:
    """Merges the two towers of a scorer if their common arrays are equal.

    Some files store each tied array under one tower only.
    """
    none = _Tower("embedder", "embedder.realm.", {})
    passages, queries = towers.get("embedder", none), towers.get("query_embedder", none)
    both = passages.originals.keys() & queries.originals.keys()
    pairs = ((theirs[passages.originals[n]], theirs[queries.originals[n]]) for n in both)
    if any(not np.array_equal(a.read(), b.read()) for a, b in pairs):
        return towers
    left_out.update({"second copy of the embedder": len(both)} if both else {})
    one = passages if passages.originals else queries
    return {"embedder": _Tower(one.name, one.prefix, {**queries.originals, **passages.originals})}


def _assigned(kind: str, towers: dict[str, _Tower]) -> dict[str, _Tower]:
    """The tower of each network of a kind."""
    networks = _KINDS[kind]
    if len(networks) == 1:
        largest = max(towers.values(), key=lambda tower: len(tower.originals))
        return {next(iter(networks)): largest}
    found = {_TOWERS[name]: tower for name, tower in towers.items() if name in _TOWERS}
    absent = networks.keys() - found.keys() - {QUESTIONS}
    found |= {network: _Tower(network, f"{network}.realm.", {}) for network in absent}
    return {network: found[network] for network in networks if network in found}


def _wanted(
    tower: _Tower, whole: Parts, maybe: tuple[Parts, ...], description: dict[str, Any]
) -> list[str]:
    """Canonical names of the required parts, and of the optional parts that are present."""
    numbers = [
        int(name.split(".")[3]) for name in tower.originals if name.startswith("bert.encoder.")
    ]
    layers = int(description.get("num_hidden_layers") or max([-1, *numbers]) + 1)
    wanted = [name for part in whole for name in names_of(part, layers)]
    for group in maybe:
        names = [name for part in group for name in names_of(part, layers)]
        wanted += names if tower.originals.keys() & set(names) else []
    return wanted


def _ignored_reason(network: str, name: str) -> str | None:
    if _POSITION_BUFFERS.fullmatch(name):
        return "position buffers, which are constants"
    for prefix, reason in _IGNORED.get(network, {}).items():
        if name.startswith(prefix):
            return reason
    return "decoder tied to the word embeddings" if name in _TIED else None


def _require_tied_decoder(
    kind: str, name: str, array: LazyArray, kept: dict[str, np.ndarray]
) -> None:
    tied = kept.get(_TIED.get(name, ""))
    if kind not in ("bert", "encoder") or tied is None or np.array_equal(array.read(), tied):
        return
    raise MismatchError(
        "the masked-LM decoder is not tied to the word embeddings",
        where=name,
        expected=f"the values of {_TIED[name]}",
        found="other values",
        fix="use a model whose decoder is tied to the word embeddings",
    )
