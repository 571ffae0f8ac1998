"""REALM in JAX: a trainer that learns to retrieve from masked text, and the index builder beside it."""

__version__ = "0.1.0"
