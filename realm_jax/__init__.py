"""REALM in JAX: a trainer that learns to retrieve from masked text, and its index builder."""

__version__ = "0.1.0"
