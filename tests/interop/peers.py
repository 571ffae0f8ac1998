"""Shared by the parity tests: random models of other libraries, and comparisons with ours.

transformers has the REALM classes up to 4.40.2. BertModel and sentence-transformers are tested in
the installed versions. Weights are moved as users do it: `save_pretrained`, import, load.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_corpus import vocabulary

import realm_jax.interop
from realm_jax.interop.detect import detect_networks
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.names import SPAN_HEAD, network_of, to_bert_names
from realm_jax.interop.weights import open_weights, write_weights
from realm_jax.models.modules import Modules

NOT_HERE = "is not installed: make test-parity"
torch = pytest.importorskip("torch", reason=f"torch {NOT_HERE}")
transformers = pytest.importorskip("transformers", reason=f"transformers {NOT_HERE}")

MOST = 1e-4  # largest difference over largest value
CLOSEST: dict[str, float] = {}  # name of the compared output -> largest relative difference
B, K, L, M, WIDEST = 2, 3, 20, 4, 5
SIZES = {
    "narrow": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "deep": {"hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6},
    "wide": {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6},
}
REALM = {
    "narrow": {"retriever_proj_size": 16, "span_hidden_size": 256},
    "deep": {"retriever_proj_size": 24, "span_hidden_size": 16},
    "wide": {"retriever_proj_size": 128, "span_hidden_size": 128},
}
V = len(vocabulary())
PARITY = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore"),  # for torch and transformers
]
each_size = pytest.mark.parametrize("size", SIZES)
each_seed = pytest.mark.parametrize("seed", [0, 1])


def the_class(name):
    found = getattr(transformers, name, None)
    if found is None or not hasattr(found, "from_pretrained") or not _works(name):
        pytest.skip(f"{name} is not in transformers {transformers.__version__}: 4.40.2 has it")
    return found


def _works(name):
    return not name.startswith("Realm") or transformers.__version__.startswith("4.")


def drawn(name, size, seed, **more):
    """Returns a transformers model in evaluation mode; every parameter is random."""
    kind = "Realm" if name.startswith("Realm") else "Bert"
    own = {"vocab_size": V, "max_position_embeddings": 64, **SIZES[size], **more}
    own["intermediate_size"] = 3 * own["hidden_size"]
    if kind == "Realm":
        own |= {**REALM[size], "num_candidates": K, "num_block_records": 5}
        own |= {"max_span_width": WIDEST, "reader_beam_size": K, "searcher_beam_size": K}
    model = the_class(name)(getattr(transformers, f"{kind}Config")(**own))
    torch.manual_seed(seed)
    with torch.no_grad():
        for place, parameter in model.named_parameters():
            scale = place.lower().endswith(("layernorm.weight", "layer_normalization.weight"))
            spread = 2 * own["hidden_size"] ** -0.5 if parameter.ndim > 1 else 0.3
            parameter.normal_(float(scale), spread)
    model.tie_weights()
    return model.eval()


def ours(theirs, folder, **how):
    """Returns our model with the same weights, after `save_pretrained` and import."""
    theirs.save_pretrained(folder / "theirs", **how)
    weights = open_weights(folder / "theirs")
    assert weights.missing == []
    assert weights.unused == []
    write_weights(folder / "ours", weights)
    return realm_jax.interop.load(str(folder / "ours"))


def rows(seed, count, shape=()):
    """Returns ids, mask and segments of padded joint rows, int64 for PyTorch."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, V, (count, L))
    used = rng.integers(12, L + 1, (count, 1))
    used[0] = L
    mask = (np.arange(L) < used).astype(np.int64)
    segments = ((np.arange(L) >= rng.integers(4, 8, (count, 1))) * mask).astype(np.int64)
    return [part.reshape(*shape, count, L) if shape else part for part in (ids, mask, segments)]


def named(parts):
    keys = ("input_ids", "attention_mask", "token_type_ids")
    return {key: torch.tensor(part) for key, part in zip(keys, parts, strict=True)}


def close(what, mine, other):
    """Asserts that the largest difference is below 1e-4 of the largest value."""
    mine = np.asarray(mine)
    other = other.detach().numpy() if hasattr(other, "detach") else np.asarray(other)
    assert mine.shape == other.shape
    difference = float(np.abs(mine - other).max() / np.abs(other).max())
    CLOSEST[what] = max(CLOSEST.get(what, 0.0), difference)
    assert difference < MOST, what


def close_gradients(what, tree, theirs):
    """Compares our gradients, under published names, with the `.grad` of PyTorch."""
    grads = {
        name: LazyArray(tuple(p.shape), lambda p=p: p.grad.numpy())
        for name, p in theirs.named_parameters()
        if p.grad is not None
    }
    # The decoder is tied to the word embeddings, so torch has one gradient for both.
    expected = {
        name: array
        for network in detect_networks(
            grads, {"architectures": [_architecture(tree)]}
        ).networks.values()
        for name, array in network.items()
    }
    found = to_bert_names(jax.device_get(tree))
    largest = max(np.abs(array).max() for array in expected.values())
    without = {name: found.pop(name) for name in found.keys() - expected.keys()}
    assert not any(np.any(array) for array in without.values())  # not stored in torch
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        # Biases without effect, such as those of keys, have only rounding errors as gradients.
        scale = max(np.abs(array).max(), 1e-2 * largest)
        difference = float(np.abs(found[name] - array).max() / scale)
        CLOSEST[what] = max(CLOSEST.get(what, 0.0), difference)
        assert difference < MOST, f"{what}: {name}"


def _architecture(tree):
    if "projection" in tree:
        return "RealmEmbedder"
    return "RealmReader" if SPAN_HEAD in tree else "RealmKnowledgeAugEncoder"


def bound(model, network, names):
    """Returns our modules and the params in `model`."""
    weights = model.weights
    modules = Modules(weights.sizes.model(), weights.sizes.vocabulary, names)
    parts = weights.parts(network)
    return modules, {name: network_of(parts, name) for name in names}


def as_ours(parts):
    ids, mask, segments = (jnp.asarray(part) for part in parts)
    return ids, mask.astype(bool), segments
