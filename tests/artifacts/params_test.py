"""Parameters that cannot be written."""

import errno

import numpy as np
import pytest
from etils import epath
from support.small_files import files_of_at_most

from realm_jax.artifacts.params import load_parameters, save_parameters


def test_a_write_that_the_system_refuses_is_an_os_error(tmp_path):
    """TensorStore reports it as a ValueError, which the commands do not expect."""
    tree = {"weight": np.random.default_rng(0).normal(size=20_000)}
    with files_of_at_most(10_000), pytest.raises(OSError, match="parameters") as refused:
        save_parameters(epath.Path(tmp_path / "parameters"), tree)
    assert refused.value.errno == errno.EFBIG
    save_parameters(epath.Path(tmp_path / "again"), tree)
    assert (load_parameters(epath.Path(tmp_path / "again"))["weight"] == tree["weight"]).all()
