"""Measures one system on one collection with the `realm` command, and writes a record."""

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from evidence_runs.rare_spans import write_rare_spans
from evidence_runs.systems import (
    AS_IS,
    DOCUMENT_PIECES,
    PASSAGE_PIECES,
    SYSTEMS,
    TRAINED,
    trained,
)
from realm_jax import config as config_lib
from realm_jax.cli.scripts import require_same_settings
from realm_jax.data.judged_sets import read_judged_set
from realm_jax.data.trec_runs import read_run
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.judged import Values, measure, retrieve_documents
from realm_jax.runtime import realm_command

RECIPE = "own_corpus"
UNIT = 1e4  # values of queries are stored as integers
MEASURES = ("ndcg_at_10", "recall_at_100")


@dataclass
class Measurement:
    """One record.

    Attributes:
      judged: folder of the collection.
      system: key of `SYSTEMS`.
      seed: of the training.
      start: folder or name of the encoder.
      home: folder of all runs.
      label: of another recipe.
      overrides: `--config.KEY=VALUE` of the trained runs.
      rare_spans: True: training hides only the spans of `write_rare_spans`.
      commands: that were run, with names in place of folders.
      seconds: of each of them.
    """

    judged: Path
    system: str
    seed: int
    start: str
    home: Path
    label: str = ""
    overrides: Sequence[str] = ()
    rare_spans: bool = False
    commands: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def write(self, records: Path) -> None:
        """Writes the record, unless it exists."""
        name, folder = self.judged.name, records / self.label if self.label else records
        path = folder / f"{name}.{self.system}.{self.seed}.json"
        if path.exists():
            self._require_own(path)
            return
        system = SYSTEMS[self.system]
        workdir, training = self._evaluated_run(system.run)
        if system.index:
            index, of_index = self._evaluated_run(system.index)
            training = training or of_index
            values = self._search_other_index(workdir, index)
        else:
            values = self._evaluate(workdir, system.flags)
        record = {
            "collection": name,
            "system": self.system,
            "seed": self.seed,
            **{measure: float(values[measure].mean()) for measure in MEASURES},
            "queries": len(values[MEASURES[0]]),
            "training": training,
            "seconds": {part: round(value, 1) for part, value in self.seconds.items()},
            "commit": commit(),
            "device": jax.devices()[0].device_kind,
            "overrides": self._changes() if training else [],
            "commands": self.commands,
            "by_query": {
                measure: [round(one * UNIT) for one in values[measure].tolist()]
                for measure in MEASURES
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".tmp")
        written.write_text(json.dumps(record) + "\n")
        written.replace(path)

    def _require_own(self, path: Path) -> None:
        """Refuses a record of another recipe; those of the tables may be older than the recipe."""
        overrides = json.loads(path.read_text())["overrides"]
        if self.label and trained(self.system) and overrides != self._changes():
            raise InputError(
                "the record is of another recipe",
                where=path,
                expected=" ".join(overrides) or "no overrides",
                found=" ".join(self._changes()) or "no overrides",
                fix="give the same overrides, or another --label",
            )

    def _changes(self) -> list[str]:
        return [*(["--rare-spans"] if self.rare_spans else []), *self.overrides]

    def _evaluate(self, workdir: Path, flags: Sequence[str]) -> Values:
        """The measures of each query, in the order of the collection."""
        run_file = workdir / f"{self.system}.trec"
        flags = [f"--workdir={workdir}", f"--questions={self.judged}", *flags, "--format=beir"]
        self._realm("eval", *flags, f"--run-file={run_file}", "--json")
        return measure(read_judged_set(self.judged, "all").qrels, read_run(run_file))

    def _search_other_index(self, workdir: Path, index: Path) -> Values:
        """As `_evaluate`, with the queries of one run and the passages of another."""
        passages = Answerer.open(str(index)).current
        judged = read_judged_set(self.judged, "all")
        answerer = Answerer.open(str(workdir)).over(passages)
        return measure(judged.qrels, retrieve_documents(answerer, judged.queries))

    def _evaluated_run(self, kind: str) -> tuple[Path, dict[str, Any]]:
        """A run over the whole documents, and what the training measured."""
        place = self.home / self.judged.name
        require_same_settings(place, {"start": self.start})
        if kind not in TRAINED:
            return self._index(self.start, place / "start"), {}
        name = f"{kind}_{self.seed}"
        own = place / (f"{self.label}_{name}" if self.label else name)
        settings = {"recipe": _recipe_hash(), "flags": TRAINED[kind], "overrides": self._changes()}
        require_same_settings(own, settings)
        kept = own / "trained.json"
        if not kept.exists():
            training = self._train(kind, own / "run")
            shutil.rmtree(own / "encoder", ignore_errors=True)  # of an interrupted command
            to = [f"--to={own / 'encoder'}", "--layout=sentence-transformers"]
            self._realm("export", f"--workdir={own / 'run'}", *to)
            shutil.rmtree(own / "run" / "checkpoints")  # gigabytes
            kept.write_text(json.dumps([training, self.commands, self.seconds]))
        training, self.commands, self.seconds = json.loads(kept.read_text())
        return self._index(str(own / "encoder"), own / "documents"), training

    def _index(self, encoder: str, workdir: Path) -> Path:
        """A run over the whole documents without training."""
        corpus = self._corpus("documents", DOCUMENT_PIECES)
        if not (workdir / "END.json").exists():
            flags = [f"--config.model.start={encoder}", f"--config.corpus.knowledge={corpus}"]
            self._realm("run", *AS_IS, *flags, f"--workdir={workdir}")
        return workdir

    def _train(self, kind: str, workdir: Path) -> dict[str, Any]:
        """Trains the start on the documents, and returns what was measured without labels."""
        corpus = self._corpus("passages", PASSAGE_PIECES)
        flags = [f"--config.model.start={self.start}", f"--config.corpus.knowledge={corpus}"]
        flags += [f"--config.seed={self.seed}", *TRAINED[kind], *self.overrides]
        if self.rare_spans:
            flags.append(f"--config.corpus.spans={self._rare_spans(corpus)}")
        self._realm("run", f"--config={RECIPE}", *flags, f"--workdir={workdir}")
        log = workdir / "logs" / "realm.jsonl"  # missing without REALM steps
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        names = ("held_out_retrieval_utility", "held_out_p_null", "held_out_loss")
        curves = {
            name: [[line["step"], round(line[name], 5)] for line in lines if name in line]
            for name in names
        }
        report = json.loads((workdir / "report.json").read_text())
        return curves | {"success_at_5": report["baselines"].get("held_out", {})}

    def _corpus(self, name: str, pieces: int) -> Path:
        out = self.home / self.judged.name / name
        if not (out / "spans" / "MANIFEST.json").exists():
            flags = [f"--input={self.judged}", f"--vocab={self.start}", f"--out={out}"]
            self._realm("corpus", "build", "--format=beir", *flags, f"--passage-pieces={pieces}")
        return out

    def _rare_spans(self, corpus: Path) -> Path:
        out = corpus.parent / "rare_spans"
        if not (out / "MANIFEST.json").exists():
            shutil.rmtree(out, ignore_errors=True)  # of an interrupted command
            write_rare_spans(corpus, out)
        return out

    def _realm(self, *arguments: str) -> str:
        """Runs `realm` and returns its output."""
        began = time.monotonic()
        command = realm_command(*arguments)
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        shown = " ".join(["realm", *arguments])
        folders = {str(self.judged): f"DATA/{self.judged.name}", self.start: "START"}
        for folder, name in (folders | {str(self.home): "HOME"}).items():
            shown = shown.replace(folder, name)
        self.commands.append(shown)
        part = " ".join(arguments[:2]) if arguments[0] == "corpus" else arguments[0]
        part = "train" if f"--config={RECIPE}" in arguments else part
        self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - began
        return output


def _recipe_hash() -> str:
    content = config_lib.to_json(config_lib.from_file(RECIPE, from_start=True))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def commit() -> str:
    """The commit of this folder, with `+` if files have changed since; "" in a copy without git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    if shutil.which("git") is None:
        return ""
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
