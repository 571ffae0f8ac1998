"""`realm corpus`: output, error messages, and no incomplete files after an error."""

import gzip
import json
import subprocess
from importlib.util import find_spec

import pytest

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.runtime import realm_command


def test_build_prints_all_documented_fields(realm, tmp_path, notes, vocabulary):
    command = ["corpus", "build", "--format=text", f"--input={notes}", f"--out={tmp_path / 'out'}"]
    result = realm(*command, f"--vocab={vocabulary}", "--json")
    report = result.json()
    assert result.out.count("\n") == 1
    assert report["documents"] == 3
    assert report["passages"] == len(PassageStore.open(tmp_path / "out"))
    assert report["passages_per_second"] > 0
    assert report["seconds"] > 0
    assert report["peak_memory_bytes"] > 2**20
    assert report["skipped"] == {}
    assert report["corpus_hash"] == PassageStore.open(tmp_path / "out").corpus_hash
    assert realm("check", tmp_path / "out").code == 0
    assert realm("corpus", "inspect", tmp_path / "out", "--json").json()["documents"] == 3


def test_without_a_vocabulary_file_one_is_trained(realm, tmp_path, notes):
    command = ["corpus", "build", "--format=text", f"--input={notes}", f"--out={tmp_path / 'out'}"]
    assert realm(*command).code == 0
    assert "[MASK]" in (tmp_path / "out.vocab.txt").read_text().splitlines()


@pytest.mark.parametrize("given", ["missing", "notes/*.md", "empty"])
def test_missing_input_is_refused_and_nothing_is_written(build, tmp_path, notes, given):
    (tmp_path / "empty").mkdir()
    build(tmp_path / given).refused("no input file", given)
    assert not (tmp_path / "out").exists()


def test_what_is_not_read_is_named_and_encodings_are_detected_or_stated(build, tmp_path, notes):
    (notes / "Bern.txt").write_bytes("Zürich is a big city, schöne Grüße.".encode("cp1252"))
    (notes / "Photo.txt").write_bytes(bytes(range(256)))
    (notes / "Plan.rst").write_text("No.")
    result = build(notes)
    assert result.code == 0
    for line in (
        "skipped: 2\n",
        f"1 not_text: {notes}/Photo.txt is binary data",
        f"1 other_extension: {notes}/Plan.rst\n",
        f"1 cp1252: {notes}/Bern.txt\n",
    ):
        assert line in result.err
    report = PassageStore.open(tmp_path / "out").summary()
    assert report["skipped"] == {"not_text": 1, "other_extension": 1}
    assert report["encodings"] == {"cp1252": 1}
    bodies = [PassageStore.open(tmp_path / "out").body(i) for i in range(report["passages"])]
    assert any("Zürich" in body for body in bodies)
    assert build(notes, out=tmp_path / "stated", encoding="latin-1").code == 0
    build(notes, out=tmp_path / "no", encoding="klingon").refused("unknown encoding", "klingon")
    build(notes, out=tmp_path / "no", encoding="zlib").refused("unknown encoding", "zlib")


@pytest.mark.parametrize("learnt", [False, True])
def test_input_without_usable_text_leaves_no_files(build, tmp_path, vocabulary, learnt):
    (tmp_path / "Bern.txt").write_bytes(b"\xff\xfe\xff")
    result = build(tmp_path / "Bern.txt", vocab=None if learnt else vocabulary)
    result.refused("realm corpus build: the input has no passages", "not_utf8", "Bern.txt")
    assert not list(tmp_path.glob("out*"))


def test_documents_without_title_are_kept_with_their_ids(build, realm, tmp_path):
    lines = [
        {"_id": "r-1", "title": " ", "text": "Rome is old."},
        {"_id": 7, "title": "Oslo", "text": "Oslo is new."},
        {"_id": "7", "text": "Bergen is wet."},
    ]
    (tmp_path / "scifact").mkdir()
    (tmp_path / "scifact" / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "scifact" / "queries.jsonl").write_text('{"_id": "q", "text": "Which city?"}')
    result = build(tmp_path / "scifact", format="beir")
    assert result.code == 0
    assert "repeated ids: 1" in result.err
    report = realm("corpus", "inspect", tmp_path / "out", "--json").json()
    assert (report["documents"], report["skipped"]) == (3, {"other_extension": 1})
    assert (report["documents_with_id"], report["repeated_ids"]) == (3, 1)
    assert report["sample"].keys() == {"passage", "document_id", "title", "body"}
    store = PassageStore.open(tmp_path / "out")
    assert [(store.document_id(i), store.title(i)) for i in range(3)] == [
        ("r-1", ""),
        ("7", "Oslo"),
        ("7", ""),
    ]


def test_an_unpunctuated_transcript_is_divided_loudly(build, realm, tmp_path):
    path = tmp_path / "Long.txt"
    path.write_text("the " + "river " * 5000 + "end")
    said = f"long: 1 sentences longer than a passage were divided between words: {path}"
    dry = realm(
        "corpus", "build", "--format=text", f"--input={path}", "--out=x", "--dry-run",
        "--passage-pieces=64",
    )  # fmt: skip
    assert said in dry.out
    result = build(path, passage_pieces=64)
    assert result.code == 0
    assert said in result.err
    report = realm("corpus", "inspect", tmp_path / "out", "--json").json()
    assert (report["oversize"], report["long"]) == (0, {"sentence_divided": 1})
    assert report["pieces"] > 5000


def test_standard_input_is_read(vocabulary, tmp_path):
    line = {"_id": "7", "title": "Oslo", "text": "Oslo is new."}
    command = realm_command("corpus", "build", "--format=jsonl", "--input=-")
    command += [f"--vocab={vocabulary}", f"--out={tmp_path / 'out'}"]
    done = subprocess.run(command, input=gzip.compress(json.dumps(line).encode()), check=False)
    assert done.returncode == 0
    store = PassageStore.open(tmp_path / "out")
    assert (store.title(0), store.document_id(0)) == ("Oslo", "7")


def test_fields_of_a_table_are_named(build, tmp_path):
    (tmp_path / "a.csv").write_text("name;body\nOslo;Oslo is new.\n")
    build(tmp_path, format="csv").refused("no field 'text'", "name, body", "--columns")
    result = build(tmp_path, format="csv", columns="text=body,title=name")
    assert result.code == 0
    assert PassageStore.open(tmp_path / "out").title(0) == "Oslo"
    build(tmp_path, format="csv", columns="body").refused("--columns", "text=NAME", code=2)


def test_malformed_json_is_refused_with_its_line_and_leaves_no_files(build, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"title": "Oslo", "text": "Oslo is new."}\n{"title": \n')
    build(tmp_path / "in.jsonl", format="jsonl").refused("malformed JSON", "in.jsonl:2", "expected")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\nriver\n", ["lacks special pieces", "no [MASK]"]),
        ("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n", ["[PAD] must be piece 0", "line 2"]),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", ["repeats", "'a'"]),
        (None, ["no vocabulary file"]),
    ],
)
def test_an_invalid_vocabulary_is_refused_with_its_path(build, tmp_path, notes, content, words):
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_text(content)
    build(notes, vocab=path).refused(*words, path)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_reads_the_vocabulary_of_weights_and_writes_nothing(
    realm, tmp_path, notes, weights
):
    out = tmp_path / "out"
    command = ["corpus", "build", "--format=text", f"--input={notes}", f"--out={out}", "--dry-run"]
    assert realm(*command, f"--vocab={weights}").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "weights"}
    (weights / "tokenizer.json").unlink()
    realm(*command, f"--vocab={weights}").refused("no vocabulary in the folder of the weights")


def test_a_finished_corpus_is_not_changed(build, realm, tmp_path, notes):
    assert build(notes).code == 0
    build(notes).refused("already exists", tmp_path / "out")
    build(notes, vocab=None).refused("already exists", tmp_path / "out")
    assert not (tmp_path / "out.vocab.txt").exists()
    assert realm("check", tmp_path / "out").code == 0


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_other_files_in_the_output_folder_are_kept(realm, tmp_path, notes, dry_run):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "diary.txt").write_text("mine")
    command = ["corpus", "build", "--format=text", f"--input={notes}", f"--out={tmp_path / 'out'}"]
    realm(*command, *dry_run).refused("other files", "diary.txt")
    assert (tmp_path / "out" / "diary.txt").read_text() == "mine"


def test_an_output_path_that_is_a_file_is_refused(build, tmp_path, notes):
    (tmp_path / "out").write_text("mine")
    build(notes).refused("a file has this name", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_too_small_budget_is_refused_before_a_vocabulary_is_trained(build, tmp_path, notes):
    build(notes, vocab=None, passage_pieces=3).refused("--passage-pieces", "at least 6", code=2)
    assert not list(tmp_path.glob("out*"))


def test_messages_use_the_singular_for_one(build, tmp_path):
    (tmp_path / "Rome.txt").write_text("Rome is a city.")
    assert "1 passage of 1 document in" in build(tmp_path / "Rome.txt").err


@pytest.mark.parametrize("flag", ["passage_pieces=0", "passage_pieces=5", "workers=0", "workers=x"])
def test_numbers_out_of_range_are_refused(build, tmp_path, notes, flag):
    name, value = flag.split("=")
    result = build(notes, **{name: value})
    result.refused("expected", value, code=result.code)
    assert result.code in (1, 2)
    assert not (tmp_path / "out").exists()


def test_inspecting_another_folder_is_refused(realm, notes):
    realm("corpus", "inspect", notes).refused("no corpus in this folder", notes)
    realm("corpus", "inspect", notes / "no").refused("no corpus in this folder", "no folder")


def test_news_records_the_knowledge_corpus_it_is_trained_with(build, realm, tmp_path, notes):
    assert build(notes, out=tmp_path / "z").code == 0
    news = {"title": "Flood", "maintext": "Rome is flooded.", "url": "https://a.example/1"}
    (tmp_path / "news.jsonl").write_text(json.dumps(news) + "\n")
    flags = {"format": "cc_news", "out": tmp_path / "x", "knowledge": tmp_path / "z"}
    (tmp_path / "other.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nriver\n")
    build(tmp_path / "news.jsonl", vocab=tmp_path / "other.txt", **flags).refused(
        "differs from the vocabulary of the knowledge corpus", "other.txt"
    )
    build(tmp_path / "news.jsonl", vocab=tmp_path / "none.txt", **flags).refused(
        "no vocabulary file", "none.txt"
    )
    assert not (tmp_path / "x").exists()
    assert build(tmp_path / "news.jsonl", vocab=None, **flags).code == 0
    x, z = PassageStore.open(tmp_path / "x"), PassageStore.open(tmp_path / "z")
    spans = SpanStore.open(None, x)
    assert spans.knowledge_hash == z.corpus_hash
    assert spans.source.tolist() == [-1]
    assert x.vocabulary.sha256 == z.vocabulary.sha256


def test_inspect_estimates_padding_for_the_lengths_of_a_config(build, realm, tmp_path, notes):
    assert build(notes).code == 0
    command = ["corpus", "inspect", tmp_path / "out", "--json", "--config.lengths.passage=100"]
    padding = realm(*command).json()["padding"]
    assert [padding[name]["length"] for name in ("query", "passage", "joint")] == [96, 100, 384]


def test_beam_gives_the_same_corpus(build, tmp_path, notes):
    if find_spec("apache_beam") is None:
        build(notes, beam="").refused("Beam is not installed", ".[beam]")
        assert not (tmp_path / "out").exists()
        pytest.skip("needs the extra [beam]")
    assert build(notes, beam="--runner=DirectRunner").code == 0
    assert build(notes, out=tmp_path / "plain").code == 0
    by_beam, plain = (PassageStore.open(tmp_path / name) for name in ("out", "plain"))
    assert by_beam.summary() == plain.summary()
    assert SpanStore.open(None, by_beam).rows.tolist() == SpanStore.open(None, plain).rows.tolist()
