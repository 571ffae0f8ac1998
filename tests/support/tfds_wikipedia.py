"""A data set with the features of tensorflow_datasets.text.Wikipedia."""

from collections.abc import Iterable
from typing import Any

import tensorflow_datasets as tfds


class Wikipedia(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Articles that the test gives.

    Args:
      pages: title and text of each article.
      given: see `GeneratorBasedBuilder`.
    """

    name = "wikipedia"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="20190301.en")]  # noqa: RUF012

    def __init__(self, pages: Iterable[tuple[str, str]], **given: Any):
        self._pages = list(pages)
        super().__init__(**given)

    def _info(self):
        text = tfds.features.Text()
        features = tfds.features.FeaturesDict({"title": text, "text": text})
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i, (title, text) in enumerate(self._pages):
            yield i, {"title": title, "text": text}
