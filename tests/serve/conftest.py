"""Fixtures that this folder shares: a run, and the same run over HTTP."""

import pytest
from served import serving
from support.accented_run import accents, answerer, copied

from realm_jax.serve.live_run import LiveRun

__all__ = ["accents", "answerer", "api"]


@pytest.fixture(scope="module")
def api(answerer, tmp_path_factory):
    """A served run without a rate limit; guard_test.py tests that."""
    from realm_jax.serve import guard  # needs the extra [serve]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "RATE", 1e9)
        with serving(LiveRun(copied(answerer, tmp_path_factory.mktemp("api")))) as client:
            yield client
