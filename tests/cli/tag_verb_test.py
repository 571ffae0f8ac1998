"""`realm tag train`, `eval` and `annotate`: output, resumption, and errors for invalid input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore

HERE = Path(__file__).parents[1]
TEXT = "Oslo NN B-LOC\nrose NN O\n\nBo NN B-PER\nEk NN I-PER\nsang NN O\n\n"


@pytest.fixture
def conll(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(TEXT * 10)
    return path


@pytest.fixture(scope="session")
def tag_config(tmp_path_factory):
    path = tmp_path_factory.mktemp("tag") / "tiny.py"
    path.write_text(
        """
from support.tiny_corpus import tiny_config


def get_config():
    return tiny_config(stages__tagger__row_length=24, stages__tagger__steps=2)
"""
    )
    return path


def test_train_eval_annotate_and_check(realm, tmp_path, conll, tag_config, vocabulary, tiny):
    flags = [f"--workdir={tmp_path / 'run'}", f"--vocab={vocabulary}", "--json"]
    command = ["tag", "train", f"--input={conll}", f"--held-out={conll}", *flags]
    assert realm(*command, f"--config={tag_config}").json() == {"state": "done", "step": 2}
    assert realm("tag", "train", flags[0], "--json").json()["state"] == "done"  # goes on as it was

    predicted = tmp_path / "predicted.txt"
    lines = realm("status", f"--workdir={tmp_path / 'run'}").out
    assert "done, step 2 of 2" in lines and "builder" not in lines
    command = ["tag", "eval", f"--tagger={tmp_path / 'run'}", f"--input={conll}"]
    report = realm(*command, f"--out={predicted}", "--json").json()
    assert (report["tokens"], report["phrases"]) == (50, 20)
    again = realm("tag", "eval", f"--predictions={predicted}", "--json").json()
    assert again == report
    printed = realm("tag", "eval", f"--predictions={predicted}").out
    assert printed.startswith("processed 50 tokens with 20 phrases; found: ")

    out = tmp_path / "spans"
    command = ["tag", "annotate", f"--corpus={tiny.folder}", f"--out={out}", "--json"]
    result = realm(*command, f"--tagger={tmp_path / 'run'}", "--shard=16")
    report = result.json()
    assert (report["state"], report["passages"]) == ("done", len(tiny.store))
    assert report["passages_per_second"] > 0 and "passages/s" in result.err
    assert len(SpanStore.open(out, tiny.store)) == len(tiny.store)
    assert realm("check", out).code == 0
    assert realm("check", tmp_path / "run").code == 0
    realm(*command).refused("already exist", out)


def test_without_a_tagger_spans_come_from_capitals(realm, tmp_path, tiny):
    out = tmp_path / "spans"
    assert realm("tag", "annotate", f"--corpus={tiny.folder}", f"--out={out}").code == 0
    spans = SpanStore.open(out, tiny.store)
    assert [spans.of(i).tolist() for i in range(len(spans))] == [
        tiny.spans.of(i).tolist() for i in range(len(spans))
    ]


def test_training_masks_the_spans_in_a_given_folder(realm, tmp_path, tiny):
    from support.tiny_corpus import tiny_config

    from realm_jax.trainer.inputs import open_inputs

    out = tmp_path / "spans"
    realm("tag", "annotate", f"--corpus={tiny.folder}", f"--out={out}")
    inputs = open_inputs(tiny_config(tiny.folder, corpus__spans=str(out)))
    assert inputs.text.spans.path == inputs.held_out.spans.path == out


def test_eval_of_a_prediction_file_prints_conllevals_metrics(realm):
    folder = HERE / "tagging"
    result = realm("tag", "eval", f"--predictions={folder / 'predictions.txt'}")
    assert result.out == (folder / "conlleval.txt").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb O x\n", ["malformed line", "bad.txt:2", "2 columns", "3 columns"]),
        ("a O\nb B-CITY\n", ["bad.txt:2", "B-CITY", "LOC, MISC, ORG, PER"]),
        ("caf\xe9 O\n", ["not UTF-8", "bad.txt:1"]),
        ("\n", ["no sentence", "bad.txt"]),
    ],
)
def test_an_invalid_file_is_refused_and_leaves_no_files(realm, tmp_path, vocabulary, text, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(text.encode("latin-1"))
    flags = [f"--input={path}", f"--vocab={vocabulary}", f"--workdir={tmp_path / 'run'}"]
    realm("tag", "train", *flags).refused(*message)
    assert not (tmp_path / "run").exists()


def test_missing_files_are_refused_with_their_path(realm, tmp_path, tiny):
    realm("tag", "train", f"--workdir={tmp_path}").refused(
        "no tagged training text", "--input=FILE"
    )
    realm("tag", "eval").refused("realm tag eval: nothing", "--tagger and --input", code=2)
    realm("tag", "eval", f"--tagger={tmp_path}", "--input=x").refused("no tagger here")
    realm("tag", "annotate", f"--corpus={tmp_path}").refused("no corpus in this folder")
    command = ["tag", "annotate", f"--corpus={tiny.folder}", f"--tagger={tmp_path}"]
    realm(*command).refused("no tagger here", "realm tag train")


SLOW = """
import sys, time
from realm_jax.tagging.marker import CapitalsMarker
from realm_jax.cli.main import main
plain = CapitalsMarker.spans
def slowly(self, store, passages):
    for own in plain(self, store, passages):
        time.sleep(0.2)
        yield own
CapitalsMarker.spans = slowly
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "sign", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_it_resumes_after_a_signal(realm, tmp_path, tiny, sign):
    out = tmp_path / "spans"
    command = ["tag", "annotate", f"--corpus={tiny.folder}", f"--out={out}", "--shard=4", "--json"]
    environment = dict(os.environ)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    second = tmp_path / "spans.shards" / "00000004" / "MANIFEST.json"
    while not second.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(sign)
    printed, message = process.communicate(timeout=120)
    assert process.returncode == (75 if sign == signal.SIGTERM else -signal.SIGKILL), message
    if sign == signal.SIGTERM:
        assert json.loads(printed)["state"] == "stopped"
    assert not any(out.iterdir())  # the folder that the command locks
    report = realm(*command).json()
    assert 8 <= report["resumed"] < 40
    spans = SpanStore.open(out, PassageStore.open(tiny.folder))
    assert [spans.of(i).tolist() for i in range(40)] == [
        tiny.spans.of(i).tolist() for i in range(40)
    ]
    assert not (tmp_path / "spans.shards").exists()
