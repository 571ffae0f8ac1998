"""What users have lying around, and their commands made small: for tests that run the documents."""

import gzip
import json
import lzma
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import urllib.request
from dataclasses import replace
from pathlib import Path

import documents
from support import tiny_corpus
from support.table2_data import write_data

from realm_jax import config as config_lib
from realm_jax.cli.main import main

SECONDS = 300  # that one command may take
TINY = tiny_corpus.tiny_config(
    model__positions=128, lengths__query=96, lengths__passage=64, lengths__joint=120
)
# what no machine of ours has, or a document leaves to its reader -> what stands for it
INSTEAD = {
    "/shared/run": "runs/shared",
    "--workdir=W": "--workdir=runs/mine",
    "--runner=FlinkRunner --flink_master=localhost:8081": "--runner=DirectRunner",
    "published_index/00000500": "published_index/00000004",
    "--port=8000": "--port=0",
    "stages.realm.steps=1000": "stages.realm.steps=6",
}
# beginning of a command -> what keeps it from reaching out of this machine, or into the code
HARMLESS = {
    "python launch/cloud_tpu.py": ["--dry_run"],
    "python launch/gke_jobset.py": ["--dry_run"],
    "python experiments/warm_start.py": ["--to=weights/made", "--config.stages.reader.steps=4"],
}
MINIATURE = ["python", "experiments/table2.py"]
# words after which a command has a config to make small
TRAINS = ("run", "train", "finetune", "launch/local.py")
LINKED = ("realm_jax", "Makefile", "README.md", "setup.py")
COPIED = ("docs", "experiments", "launch")  # scripts write into them


def write_belongings(folder: Path, land, finished: Path) -> None:
    """The files that documents speak of and do not make: text, questions, labels, weights."""
    for name in LINKED:
        (folder / name).symlink_to(documents.ROOT / name)
    for name in COPIED:
        shutil.copytree(documents.ROOT / name, folder / name)
    vocabulary = (land.folder.parent / "vocab.txt").read_bytes()
    for name in ("vocab.txt", "bert-base-uncased-vocab.txt"):
        (folder / name).write_bytes(vocabulary)
    googles, theirs = folder / "uncased_L-12_H-768_A-12", folder / "downloads/bert-base-uncased"
    ours = folder / "ours"
    assert main(["export", f"--workdir={finished}", f"--to={ours}", "--layout=hf"]) == 0
    for name in (googles, theirs):
        shutil.copytree(ours / "reader", name)
    description = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps({**description, "hidden_act": "gelu"}))
    _write_texts(folder)
    _write_questions(folder, land.questions)
    (folder / "DATA").mkdir()
    write_data(folder / "DATA", _conll())
    for name in ("conll.train", "conll.valid", "conll2003.en.train", "conll2003.en.valid"):
        with lzma.open(folder / f"{name}.txt.xz", "wt") as file:
            file.write(_conll())


def _conll() -> str:
    """Sentences whose capitalised words inside are places."""
    lines = []
    for _, sentences in tiny_corpus.passages(40):
        for word in sentences[0].rstrip(".").split():
            place = word[0].isupper() and word != "The"
            lines.append(f"{word} NN {'B-LOC' if place else 'O'}\n")
        lines.append("\n")
    return "".join(lines)


def _write_texts(folder: Path) -> None:
    passages = tiny_corpus.passages(40)
    articles = "".join(
        f'<doc id="{row}" url="https://x?curid={row}" title="{title} {row}">\n'
        f"{title} {row}\n\n{' '.join(sentences)}\n</doc>\n"
        for row, (title, sentences) in enumerate(passages)
    )
    for name in ("wikipedia/AA/wiki_00", "enwiki/AA/wiki_00", "wiki/wiki_00"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(articles)
    with tarfile.open(folder / "wiki.tar.xz", "w:xz") as packed:
        packed.add(folder / "wiki/wiki_00", "AA/wiki_00")
    (folder / "news").mkdir()
    with gzip.open(folder / "news/one.jsonl.gz", "wt") as file:
        for title, sentences in passages:
            file.write(json.dumps({"title": title, "text": " ".join(sentences[::-1])}) + "\n")
    (folder / "notes").mkdir()
    for city in ("Rome", "Oslo", "Lima"):
        text = f"{city} is a city. It was Founded in 1535 by Romulus. " * 9
        (folder / f"notes/{city}.txt").write_text(text)


def _write_questions(folder: Path, questions) -> None:
    data = folder / "data"
    data.mkdir()
    # unlike texts, so that some fall into the dev part of a published split
    questions = [replace(one, text=f"{one.text[:-1]} {n}?") for n, one in enumerate(questions)]
    own = [json.dumps({"question": q.text, "answers": q.answers}) for q in questions]
    for name in ("questions.jsonl", "held_out.jsonl"):
        (folder / name).write_text("\n".join(own) + "\n")
    rows = [json.dumps({"question": q.text, "answer": q.answers}) for q in questions]
    (data / "NQ-open.train.jsonl").write_text("\n".join(rows) + "\n")
    (data / "NQ-open.dev.jsonl").write_text(rows[0] + "\n")
    web = json.dumps([{"qText": q.text, "answers": q.answers} for q in questions])
    for name in ("data/webquestions.train.json", "webquestions.trainmodel.json"):
        (folder / name).write_text(web)
    trec = "".join(f"{i}\tx\t{q.text}\t{q.answers[0]}|y\n" for i, q in enumerate(questions))
    for name in ("data/curatedtrec.train.tsv", "curatedtrec.tsv"):
        (folder / name).write_text(trec)


def run(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Types a command of a document in `folder`, made small; it must end well."""
    for theirs, ours in INSTEAD.items():
        command = command.replace(theirs, ours)
    words = documents.words(command)
    added = next((flags for start, flags in HARMLESS.items() if command.startswith(start)), [])
    words += [flag for flag in added if flag not in words]
    if words[1] in TRAINS:
        words += small(words, folder)
    if words[:2] == ["realm", "compile"]:
        words += small(words, folder, batch=128)  # 64 chips share it
    if words[:2] == ["realm", "demo"]:
        words += _small_demo(folder)
    if words[:2] == MINIATURE and words[2:] != ["--tables"]:
        words += small([f"--config={MINIATURE[1]}"], folder)
        words += ["--seeds=1"] if "--all" in words else []
    if words[:3] == ["realm", "tag", "train"]:
        words += ["--config.lengths.sentences=24", "--config.stages.tagger.steps=40"]
    if words[:2] == ["realm", "train"]:
        _train(words, folder, environment)
    elif words[:2] == ["realm", "serve"]:
        _serve(words, folder, environment)
    else:
        words = _made(words, folder) if words[0] == "make" else words
        _end(_start(words, folder, environment), command)


def _start(words: list[str], folder: Path, environment: dict[str, str]):
    program = {"realm": [sys.executable, "-m", "realm_jax.cli.main"], "python": [sys.executable]}
    program |= {"pip": [sys.executable, "-m", "pip"]}
    if words[:2] == ["pip", "install"]:  # what is here is enough to see that the extra is known
        words = [*words, "--dry-run", "--no-deps", "--quiet"]
    return subprocess.Popen(
        [*program.get(words[0], [words[0]]), *words[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _end(process, command: str) -> None:
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, f"{command}\n{said}"
    assert "Traceback" not in said and "does not provide the extra" not in said, said


def _train(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    """All processes that the command is one of, and the index builder that a trainer waits for."""
    flags = dict(word.removeprefix("--").partition("=")[::2] for word in words[2:])
    count = int(flags.get("processes", 1))
    index = ["realm", "index", f"--workdir={flags['workdir']}"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words = [word.replace("host0:8476", f"localhost:{port}") for word in words]
    each = [
        [f"--process={number}" if word.startswith("--process=") else word for word in words]
        for number in range(count)
    ]
    started = [_start(one, folder, environment) for one in [*each, index]]
    try:
        for process in started:
            _end(process, shlex.join(words))
    finally:
        for process in started:
            process.kill()


def _serve(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    process = _start(words, folder, environment)
    try:
        line = next((line for line in process.stdout if line.startswith("serving http://")), "")
        assert line, "it ended"
        with urllib.request.urlopen(f"{line.split()[1]}api/health", timeout=60) as reply:
            assert json.load(reply)["status"] == "ok"
        process.send_signal(signal.SIGINT)
    finally:
        _end(process, shlex.join(words))


def _made(words: list[str], folder: Path) -> list[str]:
    """With the packages that are here, and the demo's workdir here too."""
    sizes = shlex.join(_small_demo(folder))
    here = Path(sys.executable).parents[1]
    kept = [f"-o{here}/{name}" for name in ("made", "installed", "installed-dev")]
    return [*words, *kept, f"VENV={here}", f"ARGS={sizes}"]


def _small_demo(folder: Path) -> list[str]:
    return small(["--config=experiments/almanac.py"], folder)


def small(words: list[str], folder: Path, batch: int = 8) -> list[str]:
    """The overrides that turn hours of a command into seconds; what it sets itself stays."""
    named = [word.partition("=")[2] for word in words if word.startswith("--config=")]
    config = config_lib.load(str(folder / named[0])) if named else TINY
    groups = ["lengths", "builder", "evaluation"]
    wanted = {f"{group}.{key}": TINY[group][key] for group in groups for key in TINY[group]}
    sizes = ("layers", "hidden", "heads", "mlp", "embedding", "positions")
    wanted |= {f"model.{key}": TINY.model[key] for key in sizes}
    if config.model.start == "almanac":  # weights that have their sizes
        wanted = {}
    for stage in config_lib.STAGES:
        wanted[f"stages.{stage}.batch"] = batch
        if named:
            wanted[f"stages.{stage}.steps"] = min(4, config.stages[stage].steps)
    wanted["stages.qa.steps"] = 4
    wanted |= {"retrieval.candidates": 4, "search.kind": "exact"}
    wanted["refresh.every"] = min(2, config.refresh.every)
    own = {word.removeprefix("--config.").partition("=")[0] for word in words}
    return [f"--config.{key}={value}" for key, value in wanted.items() if key not in own]
