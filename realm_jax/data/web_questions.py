"""WebQuestions from TensorFlow Datasets, read without TensorFlow."""

import os
from collections.abc import Iterator

from realm_jax.errors import InputError

PREFIX = "tfds:"
SPLITS = ("train", "test")


def read(path: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yields (where, question, answers) for every example of `tfds:train` or `tfds:test`.

    The first use downloads and prepares the dataset in `TFDS_DATA_DIR`.

    Raises:
      InputError: the split does not exist, or the dataset cannot be downloaded.
    """
    split = path.removeprefix(PREFIX)
    if split not in SPLITS:
        raise InputError(
            "no such split of TFDS web_questions", expected=" or ".join(SPLITS), found=repr(split)
        )
    import tensorflow_datasets as tfds
    from tensorflow_datasets.question_answering.web_questions import WebQuestions

    folder = os.environ.get("TFDS_DATA_DIR")
    builder = WebQuestions(data_dir=folder, file_format="array_record")
    try:
        builder.download_and_prepare()
    except (OSError, tfds.download.DownloadError) as error:
        raise InputError(
            "TFDS web_questions cannot be downloaded",
            where=builder.data_dir,
            found=f"{type(error).__name__}: {error}",
            fix="check the network, or prepare the dataset elsewhere and set TFDS_DATA_DIR",
        ) from error
    for number, example in enumerate(builder.as_data_source(split)):
        answers = [answer.decode("utf-8") for answer in example["answers"]]
        yield f"{PREFIX}{split}: example {number}", example["question"].decode("utf-8"), answers
