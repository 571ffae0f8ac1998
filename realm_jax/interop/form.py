"""The form of an embedder as part of a model's description."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ml_collections import ConfigDict

from realm_jax.models.embedder import null_score_of, temperature_of


@dataclass(frozen=True)
class Form:
    """Values of the keys of `config.model` with these names; the defaults are the paper's form.

    Attributes:
      longest: rows are cut at this many word pieces; 0: at `model.positions`. Not a key of
        `config.model`; recipes set `lengths` with it.
    """

    pooling: str = "pooler"
    projection: str = "layer_norm"
    normalise: bool = False
    temperature: float = 1.0
    null_score: str = "embedded"
    null_value: float = 0.0
    passage_row: str = "pair"
    query_prompt: str = ""
    passage_prompt: str = ""
    longest: int = 0

    def keys(self) -> dict[str, Any]:
        """The keys of `config.model` with their values."""
        values = asdict(self)
        del values["longest"]
        return values

    @property
    def is_paper(self) -> bool:
        """Whether the layers are those of the paper; row layout and scores may differ."""
        return (self.pooling, self.projection, self.normalise) == ("pooler", "layer_norm", False)


PAPER = Form()
# Keys that `config.json` has under "realm", because other libraries have no place for them.
STORED_UNDER = "realm"
STORED = (
    "temperature",
    "null_score",
    "null_value",
    "passage_row",
    "query_prompt",
    "passage_prompt",
)


def stored_keys(form: Form) -> dict[str, Any]:
    """The part of `config.json` that `stored_form` reads; {} for the paper's form."""
    values = {key: getattr(form, key) for key in STORED}
    if form.is_paper:  # readers of other forms have other defaults, so they need all keys
        values = {key: value for key, value in values.items() if value != getattr(PAPER, key)}
    return {STORED_UNDER: values} if values else {}


def stored_form(description: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a form that a `config.json` holds, as far as their types are right."""
    stored = description.get(STORED_UNDER)
    stored = stored if isinstance(stored, dict) else {}
    return {
        key: stored[key]
        for key in STORED
        if key in stored and type(stored[key]) is type(getattr(PAPER, key))
    }


def form_of(model: ConfigDict, embedder: Mapping[str, Any] | None, longest: int = 0) -> Form:
    """The form of a model of this package; learned numbers become fixed ones.

    Args:
      model: `config.model`.
      embedder: params of the embedder, for the learned numbers; None: they are not needed.
      longest: see `Form`.
    """
    keys = {key: model[key] for key in PAPER.keys()}  # noqa: SIM118 - a method, not a dict
    form = Form(**keys, longest=longest)
    if embedder is None:
        return form
    values = asdict(form) | {"temperature": float(temperature_of(model, embedder))}
    null_score = null_score_of(model, embedder)
    if null_score is not None:
        null_value = float(null_score) * values["temperature"]
        values |= {"null_score": "fixed", "null_value": null_value}
    return Form(**values)
