"""Each benchmark that has a tiny size runs to its end and prints its report."""

import io
import json
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.processes import environment
from support.table2_data import write_questions
from support.tiny_corpus import passages, vocabulary

from realm_jax.text.vocabulary import write_vocabulary

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROWS = "--rows=2000"
APPROXIMATE = "--rows=20000"  # fewer rows are searched without approximation
SEARCH = ("--seconds=0.05", "--folder=kept")
# benchmark -> its flags, and where its report has a number: keys and positions
TINY = {
    "annotate": [(("--corpus={tiny}",), ("capitals", "spans_per_passage"))],
    "corpus": [(("--data={data}", "--quick"), ("fetch", "passage_rows", "median"))],
    "embed": [(("--corpus={tiny}", "--sizes=tiny", "--rounds=1"), ("tiny", "ratio_bf16"))],
    "idle_builder": [(("--seconds=1",), ("core_share",))],
    "input_formats": [(("--data={data}", "--quick"), ("mediawiki_bz2", "cpu_seconds_ratio"))],
    "open_qa": [(("--data={data}",), ("squad-train-v1.1.json.xz", "questions"))],
    "overlap": [(("--size=tiny", ROWS, "--blocks=1"), ("overlap_ratio",))],
    "profiles": [
        (("--size=tiny", "--trace=kept"), ("shares", "products")),
        (("--size=tiny", "--of=embed", "--trace=kept"), ("shares", "products")),
    ],
    "refresh": [(("--size=tiny", APPROXIMATE), ("options", "new index", "recall_at_8"))],
    "search": [
        (("--only=scann bfloat16 finer", APPROXIMATE, *SEARCH), ("rows", -1, "recall_at_8"))
    ],
    "segments": [
        (("--segments=1,2", "--hosts=2", ROWS, *SEARCH), ("against_one", -1, "recall_ratio"))
    ],
    "startup": [(("--quick",), ("one step, compiled",))],
    "step": [(("--sizes=tiny", "--rounds=1"), ("tiny", "ratio_vs_padded"))],
    "swap": [(("--size=tiny", ROWS, "--swaps=2"), ("p99_ratio",))],
}
NOT_STARTED = {  # of the files that have a command
    "accelerator": "needs a GPU",
    "compile_tables": "needs the TPU compiler and hours",
    "rehearsal": "16 minutes and 20 GB: `make rehearsal`",
    "rehearsal_job": "started by rehearsal.py",
    "soak": "`make soak`",
}


def test_every_benchmark_is_started_or_named():
    commands = {path.stem for path in BENCHMARKS.glob("*.py") if "Command:" in path.read_text()}
    assert commands == TINY.keys() | NOT_STARTED.keys()
    assert not TINY.keys() & NOT_STARTED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_tiny_benchmark_prints_its_report(name, tiny, data, tmp_path, compilation_cache):
    variables = environment(compilation_cache)
    del variables["PYTHONPATH"]  # a user starts benchmarks without tests/ on the path
    for flags, keys in TINY[name]:
        given = [flag.format(tiny=tiny.folder, data=data) for flag in flags]
        done = subprocess.run(
            [sys.executable, BENCHMARKS / f"{name}.py", *given, "--json"],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        for key in keys:
            found = found[key]
        assert found >= 0
    if "--folder=kept" in given:
        changed = [sys.executable, BENCHMARKS / f"{name}.py", *given, "--seconds=0.06"]
        done = subprocess.run(
            changed, cwd=tmp_path, env=variables, capture_output=True, check=False
        )
        assert done.returncode == 1 and b"results of other settings" in done.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files with the names and formats of the published ones."""
    folder = tmp_path_factory.mktemp("data")
    write_vocabulary(folder / "bert-base-uncased-vocab.txt", vocabulary())
    write_questions(folder)
    texts = [(title, " ".join(sentences)) for title, sentences in passages(120)]
    question = {"id": "1", "question": "What is it?", "answers": [{"text": "Aro0"}]}
    paragraphs = [{"context": text, "qas": [question]} for _, text in texts]
    squad = json.dumps({"data": [{"paragraphs": paragraphs}]})
    (folder / "squad-train-v1.1.json.xz").write_bytes(lzma.compress(squad.encode()))
    with tarfile.open(folder / "enwiki-2018-sample.wikiextractor.tar.xz", "w:xz") as archive:
        for number in range(8):  # `corpus.py --quick` reads an eighth of the files
            articles = "".join(
                f'<doc id="{row}" url="u" title="{title}">\n{title}\n\n{text}\n</doc>\n'
                for row, (title, text) in enumerate(texts)
            )
            entry = tarfile.TarInfo(f"AA/wiki_{number:02}")
            entry.size = len(articles.encode())
            archive.addfile(entry, io.BytesIO(articles.encode()))
    return folder
