"""The vocabulary of external weights: word pieces, and whether its tokenizer is ours."""

import json
import re
from pathlib import Path
from typing import Any

from realm_jax.errors import InputError
from realm_jax.interop.lfs import require_no_lfs_pointer

VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer.json"
_PLACES = (VOCABULARY, f"assets/{VOCABULARY}", TOKENIZER)
# [MASK], and <S> and <T>, which Google's Chinese and multilingual vocabularies have.
_SPECIAL = re.compile(r"\[.+\]|<.+>")
_CASED_FIX = (
    "use the uncased model of the same family, such as bert-base-uncased or "
    "sentence-transformers/all-MiniLM-L6-v2"
)


def find_vocabulary(folder: Path) -> Path | None:
    """The `vocab.txt` or `tokenizer.json` in the folder, if any."""
    return next((folder / name for name in _PLACES if (folder / name).is_file()), None)


def vocabulary_of(folder: Path) -> Path:
    """The vocabulary of a weights folder; in its transformer's folder or in a network's.

    Raises:
      InputError: there is none.
    """
    for place in (folder, folder / "0_Transformer", folder / "embedder"):
        found = find_vocabulary(place)
        if found is not None:
            return found
    raise InputError(
        "no vocabulary in the folder of the weights",
        where=folder,
        expected=" or ".join((VOCABULARY, TOKENIZER)),
        found="neither",
        fix="download the tokenizer of these weights into the folder",
    )


def read_pieces(path: Path) -> list[str]:
    """The word pieces of a `vocab.txt` or a `tokenizer.json`, in the order of their ids.

    Raises:
      InputError: the file is not a vocabulary of word pieces.
    """
    require_no_lfs_pointer(path)
    if path.suffix != ".json":
        try:
            return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError("the vocabulary is not UTF-8", where=path, found=error) from error
    model = _json(path).get("model") or {}
    model = model if isinstance(model, dict) else {}
    vocabulary = model.get("vocab")
    vocabulary = vocabulary if isinstance(vocabulary, dict) else {}
    ids = sorted(vocabulary.values())
    if not ids or ids != list(range(len(ids))) or model.get("type", "WordPiece") != "WordPiece":
        raise InputError(
            "the tokenizer is not one of word pieces",
            where=path,
            expected="model WordPiece, as BERT has",
            found=f"model {model.get('type')}",
            fix="use a BERT-type encoder, such as sentence-transformers/all-MiniLM-L6-v2",
        )
    return sorted(vocabulary, key=vocabulary.__getitem__)


def require_uncased(folder: Path, vocabulary: Path) -> None:
    """Checks that the weights were trained on lower-cased text without accents, as ours reads it.

    Raises:
      InputError: the tokenizer keeps case or accents, or the vocabulary has capital letters.
    """
    config, tokenizer = folder / "tokenizer_config.json", folder / TOKENIZER
    settings = _json(config) if config.is_file() else {}
    steps = _normalizers(_json(tokenizer).get("normalizer")) if tokenizer.is_file() else []
    keeps_case = False in (settings.get("do_lower_case"), *(s.get("lowercase") for s in steps))
    keeps_accents = False in [step.get("strip_accents") for step in (settings, *steps)]
    words = (piece for piece in read_pieces(vocabulary) if not _SPECIAL.fullmatch(piece))
    cased = [piece for piece in words if piece != piece.lower()]
    if keeps_case or keeps_accents or cased:
        found = "do_lower_case false" if keeps_case else "strip_accents false"
        raise InputError(
            "the weights are cased: their tokenizer keeps capital letters or accents",
            where=vocabulary if cased and not keeps_case else folder,
            expected="a tokenizer that lower-cases text and strips accents",
            found=f"word pieces such as {', '.join(cased[:3])}" if cased else found,
            fix=_CASED_FIX,
        )


def _normalizers(normalizer: Any) -> list[dict[str, Any]]:
    """The steps of the normalizer of a `tokenizer.json`; a sequence holds others."""
    if not isinstance(normalizer, dict):
        return []
    inner = normalizer.get("normalizers")
    steps = inner if isinstance(inner, list) else []
    return [normalizer, *(found for step in steps for found in _normalizers(step))]


def _json(path: Path) -> dict[str, Any]:
    require_no_lfs_pointer(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError("the tokenizer's file is not JSON", where=path, found=error) from error
    if not isinstance(found, dict):
        raise InputError(
            "the tokenizer's file is not a JSON object", where=path, found=str(found)[:60]
        )
    return found
