"""`realm demo` for three seeds. Each takes minutes, so only `make test-slow` runs them."""

import json
import os
import subprocess

import pytest

from realm_jax.runtime import realm_command


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--seed=0", "--seed=1", "--config.seed=2"])
def test_demo_learns_to_retrieve(tmp_path, flag):
    done = subprocess.run(
        realm_command("demo", f"--workdir={tmp_path}", flag, "--json"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XLA_FLAGS": ""},  # without the eight virtual devices of the tests
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert report["seed"] == int(flag[-1])

    assert report["passages"] >= 3000
    assert report["facts"] >= 10_000
    assert report["index_swaps"] >= 5
    recall = report["recall_at_5"]
    missing = 1.0 - recall["ict"]
    assert recall["realm"] - recall["ict"] >= min(0.15, missing / 2), recall
    assert report["retrieval_utility"] > 1.0
    curve = [utility for _, utility in report["retrieval_utility_curve"]]
    assert curve[-1] > curve[0], curve
    assert report["exact_match"] >= 0.5
    assert report["exact_match"] >= 3 * report["exact_match_closed_book"]
