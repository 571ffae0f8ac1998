"""Packaging. Tool settings are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "realm_jax/__init__.py").read_text())[1]
COMPLETION = ["argcomplete>=3.5"]
DOCS = ["mkdocs-material>=9.6", "mkdocstrings[python]>=0.29"]
FAISS = ["faiss-cpu>=1.12"]
DOCUMENTS = ["pypdf>=5", "python-docx>=1.1"]
# ScaNN has wheels for this platform only; elsewhere FAISS searches instead.
SCANN = "platform_system == 'Linux' and platform_machine == 'x86_64' and python_version < '3.14'"
NO_SCANN = SCANN.replace("==", "!=").replace(" and ", " or ").replace("<", ">=")
SERVE = ["fastapi>=0.115", "fastapi-offline>=1.7", "uvicorn>=0.32"]

setup(
    name="realm-jax",
    version=VERSION,
    description="Retrieval-augmented language-model pre-training (REALM), in JAX",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[*find_packages(include=["realm_jax", "realm_jax.*"]), "realm_jax.recipes"],
    package_dir={"realm_jax.recipes": "experiments"},
    package_data={
        "realm_jax": [
            "py.typed",
            "weights/*",
            "serve/page/*",
            "report/style.css",
            "planning/*.json",
        ]
    },
    install_requires=[
        "jax>=0.10.2",
        "flax>=0.12.8",
        "optax>=0.2.8",
        "orbax-checkpoint>=0.12.8",
        f"scann>=1.4.2; {SCANN}",
        *(f"{one}; {NO_SCANN}" for one in FAISS),
        "tensorflow-datasets>=4.9.10",
        "importlib_resources>=6",
        "array_record>=0.8.1",
        "packaging>=23",
        "ml-collections>=1.1.0",
        "etils[epath]>=1.14",
        "numpy>=2.0",
        "jaxtyping>=0.3.11",
        "tokenizers>=0.19",
        "sentencex>=1.0.32",
        "babel>=2.18",
        "safetensors>=0.5",
        "huggingface_hub>=0.34",
        "rich>=14",
        "tensorboardX>=2.6.2",
        "regex>=2024.5.15",
        "bm25s>=0.3.8",
        "PyStemmer>=3",
        "ir-measures>=0.4",
        "scipy>=1.15",
        "charset-normalizer>=3.4",
        "pyarrow>=18",
        "selectolax>=0.3.28",
        "backports.zstd>=1.0; python_version < '3.14'",
    ],
    extras_require={
        "tpu": ["jax[tpu]>=0.10.2"],
        "cuda": ["jax[cuda13]>=0.10.2"],
        "qa": ["pyfarmhash>=0.4"],
        "faiss": FAISS,
        "bench": [
            *FAISS,
            "transformers==4.40.2",
            "sentence-transformers>=2.7,<3.1",
            "torch>=2.2",
            "matplotlib>=3.9",
        ],
        # Need Python 3.11 or 3.12 and separate environments (`make test-parity`).
        "parity": ["transformers==4.40.2", "torch>=2.2"],
        "parity-current": ["transformers>=4.57", "sentence-transformers>=5", "torch>=2.2"],
        "serve": SERVE,
        "documents": DOCUMENTS,
        "wandb": ["wandb>=0.18"],
        "completion": COMPLETION,
        "docs": DOCS,
        "s3": ["s3fs>=2025.3"],
        "gs": ["gcsfs>=2025.3"],
        "beam": ["apache-beam>=2.77"],
        "dev": [
            *SERVE,
            *DOCUMENTS,
            "mwparserfromhell>=0.7",
            *COMPLETION,
            *DOCS,
            *FAISS,
            "nbclient>=0.10",
            "ipykernel>=6.29",
            "playwright>=1.49",
            "pyfarmhash>=0.4",
            "kubernetes-validate>=1.33",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "beartype>=0.22",
            "hypothesis>=6.140",
            "ruff>=0.14",
            "mypy>=1.18",
            "moto[server]>=5.1",
            "s3fs>=2025.3",
        ],
    },
    entry_points={"console_scripts": ["realm=realm_jax.cli.main:main"]},
)
