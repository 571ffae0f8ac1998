"""`--vocab` of the verbs: a file, or the folder or Hub name of weights."""

from pathlib import Path

from realm_jax.corpus.store import VOCABULARY, PassageStore
from realm_jax.errors import MismatchError
from realm_jax.text.wordpiece import WordPieces


def given_vocabulary(
    vocab: str | None, knowledge: PassageStore | None, converted: Path
) -> Path | None:
    """The file of `vocab`, or that of the knowledge corpus; None without both.

    Args:
      vocab: value of --vocab.
      knowledge: corpus whose vocabulary is used, if there is one.
      converted: file to write if `vocab` names weights that have only a `tokenizer.json`.

    Raises:
      InputError: there is no such file, or the weights have no vocabulary of word pieces.
      MismatchError: `vocab` differs from the vocabulary of `knowledge`.
    """
    given = _file_of(vocab, converted) if vocab else None
    if knowledge is None:
        return given
    theirs = knowledge.path / VOCABULARY
    if given and WordPieces.load(given).sha256 != knowledge.vocabulary.sha256:
        raise MismatchError(
            "--vocab differs from the vocabulary of the knowledge corpus",
            where=f"--vocab {vocab}",
            expected=theirs,
            fix="leave out --vocab: the vocabulary of the knowledge corpus is used",
        )
    return theirs


def named_file(vocab: str) -> Path:
    """The file of `vocab`: itself, or the `vocab.txt` or `tokenizer.json` of weights.

    Raises:
      InputError: the weights have no vocabulary.
    """
    from realm_jax.interop.hub import download, is_hub_id
    from realm_jax.interop.vocabulary_files import vocabulary_of

    is_file = vocab.endswith((".txt", ".json")) or not is_hub_id(vocab)
    path = Path(vocab) if is_file else download(vocab)
    return vocabulary_of(path) if path.is_dir() else path


def _file_of(vocab: str, converted: Path) -> Path:
    from realm_jax.interop.vocabulary_files import TOKENIZER, read_pieces
    from realm_jax.text.vocabulary import write_vocabulary

    found = named_file(vocab)
    if found.name != TOKENIZER:
        return found
    converted.parent.mkdir(parents=True, exist_ok=True)
    write_vocabulary(converted, read_pieces(found))
    return converted
