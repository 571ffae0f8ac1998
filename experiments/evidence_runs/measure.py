"""Measures one system on one collection with the `realm` command, and writes a record."""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from etils import epath

from evidence_runs.rare_spans import write_rare_spans
from evidence_runs.start import read_of_one_start, start_of
from evidence_runs.systems import (
    AS_IS,
    DOCUMENT_PIECES,
    PASSAGE_PIECES,
    SYSTEMS,
    TRAINED,
    trained,
)
from realm_jax import config as config_lib
from realm_jax.cli.scripts import require_same_settings, run_realm
from realm_jax.data.judged_sets import read_judged_set
from realm_jax.data.trec_runs import read_run
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.judged import Values, measure, retrieve_documents
from realm_jax.storage import files
from realm_jax.storage.logs import read_log

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
      logs: of the commands of the runs and of the evaluation; see `_realm`.
    """

    judged: Path
    system: str
    seed: int
    start: str
    home: Path
    label: str = ""
    overrides: Sequence[str] = ()
    rare_spans: bool = False
    logs: list[Path] = field(default_factory=list)

    def write(self, records: Path) -> None:
        """Writes the record, unless it exists.

        Raises:
          MismatchError: the folder has records that start from another encoder.
          InputError: the record, or one of another seed, is of another recipe, or the run is of
            other settings.
        """
        name, folder = self.judged.name, records / self.label if self.label else records
        path = folder / f"{name}.{self.system}.{self.seed}.json"
        start = {"start": start_of(self.start)}
        read_of_one_start(sorted(folder.glob("*.json")), start)
        if path.exists():
            self._require_own(path)
            return
        for other in sorted(folder.glob(f"{name}.{self.system}.*.json")):
            self._require_own(other)  # seeds are averaged
        system = SYSTEMS[self.system]
        workdir, training = self._evaluated_run(system.run)
        if system.index:
            index, of_index = self._evaluated_run(system.index)
            training = training or of_index
            values = self._search_other_index(workdir, index)
        else:
            values = self._evaluate(workdir, system.flags)
        stage_seconds = training.pop("stage_seconds", 0.0)  # of a trained system
        commands, seconds = self._commands(stage_seconds)
        record = {
            "collection": name,
            "system": self.system,
            "seed": self.seed,
            **start,
            **{measure: float(values[measure].mean()) for measure in MEASURES},
            "queries": len(values[MEASURES[0]]),
            "training": training,
            "seconds": {part: round(value, 1) for part, value in seconds.items()},
            "commit": commit(),
            "device": jax.devices()[0].device_kind,
            "overrides": self._changes() if training else [],
            "commands": commands,
            "by_query": {
                measure: [round(one * UNIT) for one in values[measure].tolist()]
                for measure in MEASURES
            },
        }
        files.write_bytes(epath.Path(path), f"{json.dumps(record)}\n".encode())

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
        self._log_to(workdir / f"{self.system}.commands.jsonl")
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
            self._log_to(place / "commands.jsonl")
            return self._index(self.start, place / "start"), {}
        name = f"{kind}_{self.seed}"
        own = place / (f"{self.label}_{name}" if self.label else name)
        settings = {"recipe": _recipe_hash(), "flags": TRAINED[kind], "overrides": self._changes()}
        require_same_settings(own, settings)
        self._log_to(own / "commands.jsonl")
        kept = own / "training.json"
        if not kept.exists():
            training = self._train(kind, own / "run")
            shutil.rmtree(own / "encoder", ignore_errors=True)  # of an interrupted command
            to = [f"--to={own / 'encoder'}", "--layout=sentence-transformers"]
            self._realm("export", f"--workdir={own / 'run'}", *to)
            files.write_bytes(epath.Path(kept), json.dumps(training).encode())
        files.delete_tree(epath.Path(own / "run" / "checkpoints"))  # gigabytes
        training = json.loads(kept.read_text())
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
        spent = {"stage_seconds": sum(report["seconds"].values())}
        return curves | spent | {"success_at_5": report["baselines"].get("held_out", {})}

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

    def _log_to(self, log: Path) -> None:
        """Logs the next commands here; this measurement counts all commands of the file."""
        self.logs = [*(one for one in self.logs if one != log), log]

    def _realm(self, *arguments: str) -> None:
        """Runs `realm`, and logs the command and its seconds even if it fails or is interrupted."""
        shown = " ".join(["realm", *arguments])
        folders = {str(self.judged): f"DATA/{self.judged.name}", self.start: "START"}
        for folder, name in (folders | {str(self.home): "HOME"}).items():
            shown = shown.replace(folder, name)
        part = " ".join(arguments[:2]) if arguments[0] == "corpus" else arguments[0]
        part = "train" if f"--config={RECIPE}" in arguments else part
        began = time.monotonic()
        try:
            run_realm(*arguments, output=Path(os.devnull))
        finally:
            spent = {"command": shown, "part": part, "seconds": time.monotonic() - began}
            files.append_line(epath.Path(self.logs[-1]), spent)

    def _commands(self, stage_seconds: float = 0.0) -> tuple[list[str], dict[str, float]]:
        """The logged commands, repeated ones once, and the seconds of each part, all added.

        A command that was killed (SIGKILL) is not logged, but checkpoints have the seconds of the
        stages: training took at least `stage_seconds`.
        """
        lines = [line for log in self.logs for line in read_log(epath.Path(log))]
        seconds: defaultdict[str, float] = defaultdict(float)
        for line in lines:
            seconds[line["part"]] += line["seconds"]
        if stage_seconds:
            seconds["train"] = max(seconds["train"], stage_seconds)
        return list(dict.fromkeys(line["command"] for line in lines)), dict(seconds)


def _recipe_hash() -> str:
    content = config_lib.to_json(config_lib.from_file(RECIPE, from_start=True))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def commit() -> str:
    """The commit of this folder, with `+` if files have changed since; "" in a copy without git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    if shutil.which("git") is None:
        return ""
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
