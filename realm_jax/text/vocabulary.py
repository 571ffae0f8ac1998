"""Deterministic training of a word-piece vocabulary."""

from collections import Counter
from collections.abc import Iterable, Sequence

from etils import epath
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from realm_jax.errors import InputError
from realm_jax.text.wordpiece import SPECIAL


def train_vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """Trains word pieces on `texts`; special pieces come first in the result.

    The most frequent characters become single-character pieces, up to a quarter of the vocabulary.
    All other characters become [UNK]. All texts are held in memory.

    Args:
      texts: training text, cased or not.
      size: maximum number of pieces, including special pieces.

    Raises:
      InputError: there is no text, or `size` is too small for an alphabet.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    lines = [normalizer.normalize_str(text) for text in texts]
    counts = Counter(c for line in lines for c in line if not c.isspace())
    if not counts or size < 8 * len(SPECIAL):
        raise InputError(
            "no vocabulary can be trained",
            where="train_vocabulary",
            expected=f"some text and a size of at least {8 * len(SPECIAL)}",
            found=f"{len(counts)} different characters, size {size}",
        )
    ranked = sorted(counts, key=lambda c: (-counts[c], c))
    alphabet = sorted(ranked[: (size - len(SPECIAL)) // 8])
    tokenizer = Tokenizer(models.WordPiece({}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        # The trainer reads words in hash order, which differs between runs, and numbers the
        # characters inside words in that order. Fixed numbers make all ties deterministic.
        special_tokens=[*SPECIAL, *(f"##{c}" for c in alphabet)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def write_vocabulary(path: epath.PathLike, pieces: Sequence[str]) -> None:
    """Writes one piece per line (BERT's vocab.txt, as `WordPieces.load` reads it)."""
    epath.Path(path).write_bytes("".join(f"{piece}\n" for piece in pieces).encode())


def sample_vocabulary(
    texts: Iterable[str], size: int = 30_522, characters: int = 50_000_000
) -> list[str]:
    """`train_vocabulary` on the first `characters` characters of the texts."""
    sample, held = [], 0
    for text in texts:
        if held >= characters:
            break
        sample.append(text)
        held += len(text)
    return train_vocabulary(sample, size)
