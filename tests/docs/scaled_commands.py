"""Runs documented commands with tiny models, on tiny versions of the files that they name."""

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

import documented_commands as documented
from sample_inputs import write_sample_inputs
from support import tiny_corpus
from support.judged import write_judged_set
from support.launch_scripts import commit
from support.table2_data import write_data
from support.tiny_encoder import LIKE_MINILM, write_tiny_encoder

from realm_jax import config as config_lib
from realm_jax.cli.main import main
from realm_jax.defaults import STAGES

TIMEOUT_SECONDS = 900  # seven rows of Table 2, each in a process, take minutes on two cores
TINY = tiny_corpus.tiny_config(
    model__positions=128, lengths__query=96, lengths__passage=64, lengths__joint=120
)
# text in a command that does not exist on this machine -> its replacement
REPLACEMENTS = {
    "/shared/run": "runs/shared",
    "sentence-transformers/all-MiniLM-L6-v2": "downloads/all-MiniLM-L6-v2",
    "--workdir=W": "--workdir=runs/short",
    "--runner=FlinkRunner --flink_master=localhost:8081": "--runner=DirectRunner",
    "published_index/00000500": "published_index/00000004",
    "--port=8000": "--port=0",
    "stages.realm.steps=1000": "stages.realm.steps=6",
}
# prefix of a command -> flags that keep it from using the network or changing the checkout
SAFE_FLAGS = {
    "python launch/cloud_tpu.py": ["--dry_run"],
    "python launch/gke_jobset.py": ["--dry_run"],
    "python experiments/squad_minilm.py": ["--config.stages.qa.steps=2"],
    "python experiments/warm_start.py": ["--to=weights/made", "--config.stages.reader.steps=4"],
}
TABLE2 = ["python", "experiments/table2.py"]
EVIDENCE = ["python", "experiments/evidence.py"]
TRAINING_VERBS = ("run", "train", "finetune", "launch/local.py")  # their config is scaled down
LINKED = ("realm_jax", "Makefile", "README.md", "setup.py")
COPIED = ("docs", "experiments", "launch")  # scripts write into these folders


def write_user_files(folder: Path, corpus: tiny_corpus.TinyCorpus, finished: Path) -> None:
    """Writes the files that documents name but do not create.

    Args:
      folder: the folder in which the commands run.
      corpus: provides the vocabulary and the questions.
      finished: workdir of a finished run, which provides the weights.
    """
    for name in LINKED:
        (folder / name).symlink_to(documented.ROOT / name)
    for name in COPIED:
        shutil.copytree(documented.ROOT / name, folder / name)
    commit(folder, *COPIED)
    vocabulary = (corpus.folder.parent / "vocab.txt").read_bytes()
    for name in ("vocab.txt", "bert-base-uncased-vocab.txt"):
        (folder / name).write_bytes(vocabulary)
    google, hugging_face = (
        folder / "uncased_L-12_H-768_A-12",
        folder / "downloads/bert-base-uncased",
    )
    exported = folder / "ours"
    assert main(["export", f"--workdir={finished}", f"--to={exported}", "--layout=hf"]) == 0
    for name in (google, hugging_face):
        shutil.copytree(exported / "reader", name)
    shutil.copytree(exported / "embedder", folder / "downloads/all-MiniLM-L6-v2")
    hf_config = json.loads((hugging_face / "config.json").read_text())
    (hugging_face / "config.json").write_text(json.dumps({**hf_config, "hidden_act": "gelu"}))
    _write_texts(folder)
    write_judged_set(folder / "cranfield")
    write_sample_inputs(folder)
    _write_questions(folder, corpus.questions)
    (folder / "DATA").mkdir()
    write_data(folder / "DATA", _conll())
    for name in ("conll.train", "conll.valid", "conll2003.en.train", "conll2003.en.valid"):
        with lzma.open(folder / f"{name}.txt.xz", "wt") as file:
            file.write(_conll())


def _conll() -> str:
    """Sentences in CoNLL format; capitalised words except "The" are tagged as locations."""
    lines = []
    for _, sentences in tiny_corpus.passages(40):
        for word in sentences[0].rstrip(".").split():
            is_location = word[0].isupper() and word != "The"
            lines.append(f"{word} NN {'B-LOC' if is_location else 'O'}\n")
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
    with tarfile.open(folder / "wiki.tar.xz", "w:xz") as archive:
        archive.add(folder / "wiki/wiki_00", "AA/wiki_00")
    (folder / "news").mkdir()
    with gzip.open(folder / "news/one.jsonl.gz", "wt") as file:
        for title, sentences in passages:
            file.write(json.dumps({"title": title, "text": " ".join(sentences[::-1])}) + "\n")
    (folder / "new").mkdir()
    (folder / "new/Bergen.txt").write_text("Bergen is a city. It lies in Norway.")
    (folder / "notes").mkdir()
    for city in ("Rome", "Oslo", "Lima"):
        text = f"{city} is a city. It was Founded in 1535 by Romulus. " * 9
        (folder / f"notes/{city}.txt").write_text(text)


def _write_questions(folder: Path, questions) -> None:
    data = folder / "data"
    data.mkdir()
    # distinct texts, so that the published split assigns some of them to its dev part
    questions = [replace(one, text=f"{one.text[:-1]} {n}?") for n, one in enumerate(questions)]
    own = [json.dumps({"question": q.text, "answers": q.answers}) for q in questions]
    for name in ("questions.jsonl", "held_out.jsonl"):
        (folder / name).write_text("\n".join(own) + "\n")
    rows = [json.dumps({"question": q.text, "answer": q.answers}) for q in questions]
    (data / "NQ-open.train.jsonl").write_text("\n".join(rows) + "\n")
    (data / "NQ-open.dev.jsonl").write_text(rows[0] + "\n")
    squad = [
        {
            "title": title,
            "paragraphs": [{"context": " ".join(sentences), "qas": [_squad_question(question)]}],
        }
        for (title, sentences), question in zip(tiny_corpus.passages(40), questions, strict=False)
    ]
    (folder / "train-v1.1.json").write_text(json.dumps({"data": squad}))
    web = json.dumps([{"qText": q.text, "answers": q.answers} for q in questions])
    for name in ("data/webquestions.train.json", "webquestions.trainmodel.json"):
        (folder / name).write_text(web)
    trec = "".join(f"{i}\tx\t{q.text}\t{q.answers[0]}|y\n" for i, q in enumerate(questions))
    for name in ("data/curatedtrec.train.tsv", "curatedtrec.tsv"):
        (folder / name).write_text(trec)


def _squad_question(question) -> dict:
    answers = [{"text": text} for text in question.answers]
    return {"id": question.text, "question": question.text, "answers": answers}


def run(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Runs a scaled-down documented command in `folder`; asserts exit code 0 and no traceback."""
    for text, replacement in REPLACEMENTS.items():
        command = command.replace(text, replacement)
    words = documented.split(command)
    added = next((flags for start, flags in SAFE_FLAGS.items() if command.startswith(start)), [])
    words += [flag for flag in added if flag not in words]
    if words[1] in TRAINING_VERBS:
        words += scaling_flags(words, folder)
    if words[:2] == ["realm", "compile"]:
        words += scaling_flags(words, folder, batch=128)  # divisible by 64 chips
    if words[:2] == ["realm", "demo"]:
        words += _demo_flags(folder)
    if words[:2] == TABLE2 and words[2:] != ["--tables"]:
        words += scaling_flags([f"--config={TABLE2[1]}"], folder)
        words.append("--records=runs/records")  # the committed ones are of other sizes
        words += ["--seeds=1"] if "--all" in words else []
    if words[:2] == EVIDENCE and words[2:] != ["--tables"]:
        words = _measure_one_collection(words, folder)
    if words[:3] == ["realm", "tag", "train"]:
        words += ["--config.stages.tagger.row_length=24", "--config.stages.tagger.steps=40"]
    if words[:2] == ["realm", "train"]:
        _train(words, folder, environment)
    elif words[:2] == ["realm", "serve"]:
        _serve(words, folder, environment)
    else:
        words = _make(words, folder) if words[0] == "make" else words
        _wait(_start(words, folder, environment), command)


def _start(words: list[str], folder: Path, environment: dict[str, str]):
    program = {"realm": [sys.executable, "-m", "realm_jax.cli.main"], "python": [sys.executable]}
    program |= {"pip": [sys.executable, "-m", "pip"]}
    if words[:2] == ["pip", "install"]:  # a dry run shows whether the extra exists
        words = [*words, "--dry-run", "--no-deps", "--quiet"]
    return subprocess.Popen(
        [*program.get(words[0], [words[0]]), *words[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _wait(process, command: str) -> None:
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, f"{command}\n{output}"
    assert "Traceback" not in output and "does not provide the extra" not in output, output


def _train(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Starts all trainer processes (`--processes`) and the index builder that they need."""
    flags = dict(word.removeprefix("--").partition("=")[::2] for word in words[2:])
    count = int(flags.get("processes", 1))
    builder = ["realm", "index", f"--workdir={flags['workdir']}"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words = [word.replace("host0:8476", f"localhost:{port}") for word in words]
    trainers = [
        [f"--process={number}" if word.startswith("--process=") else word for word in words]
        for number in range(count)
    ]
    started = [_start(one, folder, environment) for one in [*trainers, builder]]
    try:
        for process in started:
            _wait(process, shlex.join(words))
    finally:
        for process in started:
            process.kill()


def _serve(words: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Starts the server, requests its health page, and stops it with SIGINT."""
    process = _start(words, folder, environment)
    try:
        line = next((line for line in process.stdout if line.startswith("serving http://")), "")
        assert line, "the server ended"
        with urllib.request.urlopen(f"{line.split()[1]}api/health", timeout=60) as reply:
            assert json.load(reply)["status"] == "ok"
        process.send_signal(signal.SIGINT)
    finally:
        _wait(process, shlex.join(words))


def _make(words: list[str], folder: Path) -> list[str]:
    """Adds variables with which `make` uses the running environment and a tiny demo."""
    sizes = shlex.join(_demo_flags(folder))
    environment = Path(sys.executable).parents[1]
    kept = [f"-o{environment}/{name}" for name in ("made", "installed", "installed-dev")]
    return [*words, *kept, f"VENV={environment}", f"ARGS={sizes}"]


def _measure_one_collection(words: list[str], folder: Path) -> list[str]:
    """Measures the untrained systems on one tiny collection, with an encoder of 512 positions."""
    write_judged_set(folder / "DATA/adi")
    form = {**LIKE_MINILM, "positions": 512}
    encoder = write_tiny_encoder(folder / "downloads/encoder", folder / "vocab.txt", form)
    kept = [word for word in words if word != "--all" and not word.startswith("--start=")]
    few = ["--collection=adi", "--system=bm25", "--system=start_hybrid"]
    return [*kept, *few, f"--start={encoder}", "--records=runs/records"]


def _demo_flags(folder: Path) -> list[str]:
    return scaling_flags(["--config=experiments/almanac.py"], folder)


def scaling_flags(words: list[str], folder: Path, batch: int = 8) -> list[str]:
    """Returns `--config.KEY=VALUE` flags that make a command take seconds.

    Args:
      words: the command; config keys that it sets are not changed.
      folder: the folder in which it runs.
      batch: batch size of every stage.
    """
    named = [word.partition("=")[2] for word in words if word.startswith("--config=")]
    config = TINY
    if named:  # a path in the user's folder, or the name of a recipe
        config = config_lib.load(str(folder / named[0]) if "/" in named[0] else named[0])
    groups = ["lengths", "builder", "evaluation"]
    wanted = {f"{group}.{key}": TINY[group][key] for group in groups for key in TINY[group]}
    sizes = ("layers", "hidden", "heads", "mlp", "embedding", "positions")
    wanted |= {f"model.{key}": TINY.model[key] for key in sizes}
    if config.model.start == "almanac":  # pre-trained weights fix these sizes
        wanted = {}
    for stage in STAGES:
        wanted[f"stages.{stage}.batch"] = batch
        if named:
            wanted[f"stages.{stage}.steps"] = min(4, config.stages[stage].steps)
    wanted["stages.qa.steps"] = 4
    wanted |= {"retrieval.candidates": 4, "search.kind": "exact"}
    wanted["refresh.every"] = min(2, config.refresh.every)
    set_already = {word.removeprefix("--config.").partition("=")[0] for word in words}
    return [f"--config.{key}={value}" for key, value in wanted.items() if key not in set_already]
