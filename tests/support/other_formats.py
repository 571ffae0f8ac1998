"""Random weights in the formats of Hugging Face and of the released REALM code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from support.tiny_corpus import vocabulary

LAYERS, HIDDEN, HEADS, MLP, POSITIONS, EMBEDDING, SPAN = 2, 16, 4, 32, 64, 8, 32
VOCABULARY = len(vocabulary())
KINDS = ("bert", "embedder", "scorer", "encoder", "reader", "openqa")  # of models
BERT_CONFIG: dict[str, Any] = {  # config.json of a Hugging Face model
    "model_type": "bert",
    "hidden_act": "gelu_new",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": MLP,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
}
Names = dict[str, np.ndarray]


class RandomWeights:
    """Draws the arrays of a model from one seed; matrices are [out, in], as in PyTorch."""

    def __init__(self, seed: int, width: int = HIDDEN, vocabulary: int = VOCABULARY):
        self._rng, self.width, self.vocabulary = np.random.default_rng(seed), width, vocabulary

    def bert(self, prefix: str = "bert.") -> Names:
        """Returns embeddings, layers and pooler."""
        width = self.width
        embeddings = f"{prefix}embeddings"
        found = {
            f"{embeddings}.word_embeddings.weight": self._array(self.vocabulary, width),
            f"{embeddings}.position_embeddings.weight": self._array(POSITIONS, width),
            f"{embeddings}.token_type_embeddings.weight": self._array(2, width),
            **self._norm(f"{embeddings}.LayerNorm", width),
            **self._dense(f"{prefix}pooler.dense", width, width),
        }
        for i in range(LAYERS):
            layer = f"{prefix}encoder.layer.{i}"
            for name in ("self.query", "self.key", "self.value", "output.dense"):
                found |= self._dense(f"{layer}.attention.{name}", width, width)
            found |= self._norm(f"{layer}.attention.output.LayerNorm", width)
            found |= self._dense(f"{layer}.intermediate.dense", MLP, width)
            found |= self._dense(f"{layer}.output.dense", width, MLP)
            found |= self._norm(f"{layer}.output.LayerNorm", width)
        return found

    def masked_lm(self, prefix: str = "") -> Names:
        """Returns a masked-LM head."""
        return {
            f"{prefix}cls.predictions.bias": self._array(self.vocabulary),
            **self._dense(f"{prefix}cls.predictions.transform.dense", self.width, self.width),
            **self._norm(f"{prefix}cls.predictions.transform.LayerNorm", self.width),
        }

    def projection(self, prefix: str = "") -> Names:
        """Returns the projection that an embedder adds to BERT."""
        dense = self._dense(f"{prefix}cls.dense", EMBEDDING, self.width)
        return dense | self._norm(f"{prefix}cls.LayerNorm", EMBEDDING)

    def spans(self, prefix: str = "") -> Names:
        """Returns the span head that a question-answering reader adds to BERT."""
        return {
            **self._dense(f"{prefix}qa_outputs.dense_intermediate", 2 * SPAN, self.width),
            **self._dense(f"{prefix}qa_outputs.dense_output", 1, SPAN),
            **self._norm(f"{prefix}qa_outputs.layer_normalization", SPAN),
        }

    def _array(self, *shape: int) -> np.ndarray:
        return self._rng.normal(0, 0.3, shape).astype(np.float32)

    def _dense(self, name: str, size_out: int, size_in: int) -> Names:
        return {
            f"{name}.weight": self._array(size_out, size_in),
            f"{name}.bias": self._array(size_out),
        }

    def _norm(self, name: str, width: int) -> Names:
        return {f"{name}.weight": 1 + self._array(width), f"{name}.bias": self._array(width)}


def state_dict(kind: str, seed: int = 0) -> Names:
    """Returns a model of one of `KINDS`.

    As in the published checkpoints, the dictionary also holds weights that the model does not use.
    """
    draw = RandomWeights(seed)

    def embedder(prefix: str) -> Names:
        bert = draw.bert(f"{prefix}realm.")
        return bert | draw.masked_lm(prefix) | draw.projection(prefix)

    def reader(prefix: str) -> Names:
        return draw.bert(f"{prefix}realm.") | draw.masked_lm(prefix) | draw.spans(prefix)

    if kind == "bert":
        return draw.bert() | draw.masked_lm()
    if kind == "encoder":
        return draw.bert("realm.") | draw.masked_lm()
    if kind == "scorer":
        one = embedder("embedder.")
        return one | {f"query_{name}": array for name, array in one.items()}
    if kind == "openqa":
        blocks = {"block_emb": np.zeros((3, EMBEDDING), np.float32)}
        return embedder("embedder.") | reader("reader.") | blocks
    return {"embedder": embedder, "reader": reader}[kind]("")


def write_hugging_face_folder(folder: Path, names: Names, **changes: Any) -> Path:
    """Writes a folder as `save_pretrained` does, with the vocabulary of `tiny_corpus`.

    Args:
      folder: created if it does not exist.
      names: weights by name.
      changes: values that replace or extend `BERT_CONFIG`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file(names, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(BERT_CONFIG | changes))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary()))
    return folder


def write_unusable_weights(folder: Path) -> Path:
    """Writes one folder of weights for each reason for which `realm import` refuses them."""
    names = state_dict("bert")
    for reason in ("cased", "cut_vocabulary", "pointer", "module"):
        write_hugging_face_folder(folder / reason, names)
    write_hugging_face_folder(folder / "roberta", names, model_type="roberta")
    nan = {"bert.embeddings.LayerNorm.bias": np.full(HIDDEN, np.nan, np.float32)}
    write_hugging_face_folder(folder / "nan", names | nan)
    (folder / "cased" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    (folder / "cut_vocabulary" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n"
    (folder / "pointer" / "model.safetensors").write_text(pointer)
    module = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.LSTM"}]
    (folder / "module" / "modules.json").write_text(json.dumps(module))
    return folder
