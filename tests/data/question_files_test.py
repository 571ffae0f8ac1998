"""Question files: the published benchmarks, invalid files, and the published splits."""

import gzip
import json
import logging
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from realm_jax.data import published_splits
from realm_jax.data.answers import accepted
from realm_jax.data.question_checks import Question, check_evidence
from realm_jax.data.question_files import FORMATS, LONGEST_LIST, read_questions
from realm_jax.errors import InputError

SHARED = Path(__file__).parents[3] / "shared/data"
FILES = {
    "nq": "topics.dpr.nq.dev.txt",
    "webquestions": "webquestions.*.json",
    "trec": "curatedtrec.large2180-train.tsv",
    "squad": "squad-train-v1.1.json.xz",
}
NQ_TRAIN = "NQ-open.train.partial55589.jsonl.xz"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data next to the checkout")

SQUAD = {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": "c", "qas": []}]}]}
SQUAD["data"][0]["paragraphs"][0]["qas"] = [
    {"id": "7a", "question": " Who? ", "answers": [{"text": "me"}, {"text": "I"}, {"text": "me"}]}
]
GOOD = {
    "own": '{"question": "Who?", "answers": ["me", 7], "evidence": 3}\n',
    "nq": '{"question": "Who?", "answer": ["me", "I"], "more": 1}\n',
    "webquestions": '[{"qId": "w1", "answers": ["me", "I"], "qText": "Who?"}]',
    "trec": "462\tfactoid\tWho?\tme|\tI\\\\b\n",
    "squad": json.dumps(SQUAD),
}
READ = {
    "own": Question("Who?", ("me", "7"), 3),
    "trec": Question("Who?", ("me|\tI\\\\b",), expression=True),
} | dict.fromkeys(("nq", "webquestions", "squad"), Question("Who?", ("me", "I")))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_each_format_is_read(tmp_path, format, bom):
    path = tmp_path / "q"
    path.write_bytes(bom + GOOD[format].replace("\n", "\r\n\r\n").encode())
    assert read_questions(path, format) == [READ[format]]


def test_natural_questions_topics_are_tsv_with_lists(tmp_path):
    path = tmp_path / "topics.txt"
    path.write_bytes(b'who?\t[\'me\', "the \'I\'"]\r\n"what ""it""\twas"\t"[\'a ""b""\']"\r\n')
    assert read_questions(path, "nq") == [
        Question("who?", ("me", "the 'I'")),
        Question('what "it"\twas', ('a "b"',)),
    ]


@pytest.mark.parametrize("packed", [".gz", ".xz", ""])
def test_compressed_files_and_globs_are_read_in_name_order(tmp_path, packed):
    opener = {".gz": gzip.open, ".xz": lzma.open, "": open}[packed]
    for name in ("b", "a"):
        with opener(tmp_path / f"{name}.jsonl{packed}", "wb") as file:
            file.write(GOOD["own"].replace("Who", name).encode())
    found = read_questions(str(tmp_path / f"*.jsonl{packed}"))
    assert [question.text for question in found] == ["a?", "b?"]


@pytest.mark.parametrize("packed", [".gz", ".xz"])
def test_a_truncated_compressed_file_is_named(tmp_path, packed):
    opener = {".gz": gzip.open, ".xz": lzma.open}[packed]
    path = tmp_path / f"q.jsonl{packed}"
    with opener(path, "wb") as file:
        file.writelines(GOOD["own"].replace("Who", str(n)).encode() for n in range(3000))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged or cut short") as error:
        read_questions(path)
    assert path.name in str(error.value)


MALFORMED = [
    ("own", "{", ["line is not JSON", "q:2"]),
    ("own", "[" * 100_000, ["line is not JSON", "q:2"]),
    ("own", "[]", ["not a question", "q:2", "answers"]),
    ("own", '{"question": "a"}', ["q:2", "answers"]),
    ("own", '{"question": "a", "answers": []}', ["q:2", "at least one answer"]),
    ("own", '{"question": "a", "answers": "b"}', ["q:2", "list"]),
    ("own", '{"question": "a", "answers": [["b"]]}', ["q:2", "strings"]),
    ("own", '{"question": "a", "answers": [" "]}', ["q:2", "not empty"]),
    ("own", '{"question": 3, "answers": ["b"]}', ["q:2", "found:    3"]),
    ("own", '{"question": " ", "answers": ["b"]}', ["q:2", "not empty"]),
    ("own", '{"question": "a", "answers": ["b"], "evidence": "c"}', ["q:2", "passage id"]),
    ("own", '{"question": "a", "answers": ["\\ud83d"]}', ["q:2", "surrogate"]),
    ("own", '{"question": "a", "answers": [NaN]}', ["q:2", "nan"]),
    ("own", '{"question": "a", "answers": [Infinity, "b"]}', ["q:2", "inf"]),
    ("own", '{"question": NaN, "answers": ["b"]}', ["q:2", "nan"]),
    ("own", '{"question": "a", "answers": [true]}', ["q:2", "True"]),
    ("own", '{"question": "a", "answers": [null]}', ["q:2", "None"]),
    ("own", '{"question": "a", "answers": ["b"], "evidence": true}', ["q:2", "passage id"]),
    ("own", '{"question": "a", "answers": ["b"], "evidence": -2}', ["q:2", "passage id"]),
    ("own", '{"question": "a", "answers": ["b"], "evidence": 3.0}', ["q:2", "passage id"]),
    ("own", '{"question": "a", "answers": "[\'b\' \'c\']"}', ["q:2", "list"]),
    (
        "own",
        """{"question": "a", "answers": ["['b' 'c']"]}""",
        ["q:2", "printed array", ".map(list)"],
    ),
    ("own", """{"question": "a", "answers": ["['b', 'c']"]}""", ["q:2", "printed array"]),
    ("own", '{"question": "a", "answers": ["19\\\\d\\\\d"]}', ["q:2", "--format=trec"]),
    ("own", '{"question": "a", "answers": ["(Big|Great) Ben"]}', ["q:2", "--format=trec"]),
    ("nq", '{"question": "a", "answer": [NaN]}', ["q:2", "nan"]),
    ("nq", '{"question": "a", "answer": ["New.*York"]}', ["q:2", "--format=trec"]),
    ("nq", '{"question": "a", "answers": ["b"]}', ["q:2", '"answer":']),
    ("nq", "who?\t['me']", ["line is not JSON", "q:2"]),
    ("webquestions", "", ["not JSON", "q:2"]),
    ("trec", "1\tfactoid\tWho?", ["q:2", "TAB"]),
    ("trec", "1\tfactoid\tWho?\t", ["q:2", "not empty"]),
    ("trec", "1\tfactoid\tWho?\t(me", ["does not compile", "q:2", "(me"]),
    ("trec", "1\tfactoid\t\tme", ["q:2", "not empty"]),
]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("who?\t['Noregur' 'Norge']", ["q:1", "printed array", ".map(list)"]),
        ("who?\t['a', 'b' 'c']", ["q:1", "printed array"]),
        ("who?\t['a' 'b' ... 'z']", ["q:1", "list"]),
        ("who?\tarray(['a', 'b'], dtype=object)", ["q:1", "list"]),
        ("who?\t[nan]", ["q:1", "list"]),
        ("who?\t[True]", ["q:1", "True"]),
        ("when?\t['19\\d\\d']", ["q:1", "regular expression", "--format=trec"]),
    ],
)
def test_a_table_row_that_cannot_be_answered_is_refused_by_line(tmp_path, line, words):
    (tmp_path / "q").write_text(line + "\n")
    with pytest.raises(InputError) as error:
        read_questions(tmp_path / "q", "nq")
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("answer", ["C:\\Windows\\System32", "$\\beta$-catenin", "\\sqrt{2}"])
def test_an_answer_with_a_backslash_is_a_text(tmp_path, answer):
    line = json.dumps({"question": "what?", "answers": [answer]})
    (tmp_path / "q.jsonl").write_text(line)
    [question] = read_questions(tmp_path / "q.jsonl")
    assert question.answers == (answer,) and not question.expression


def test_expressions_of_dpr_tables_are_read_as_expressions(tmp_path, recwarn):
    (tmp_path / "q").write_text("when?\t['19\\d\\d', '(May|June) 8']\n")
    [question] = read_questions(tmp_path / "q", "trec")
    assert question == Question("when?", ("19\\d\\d", "(May|June) 8"), expression=True)
    assert accepted(question).may_be_in("It ended in 1945.")
    assert not recwarn
    (tmp_path / "q").write_text("when?\t['(']\n")
    with pytest.raises(InputError, match="does not compile"):
        read_questions(tmp_path / "q", "trec")


def test_evidence_outside_the_corpus_is_refused_by_line(tmp_path):
    (tmp_path / "q").write_text(GOOD["own"])
    questions = read_questions(tmp_path / "q")
    check_evidence(questions, 4)
    with pytest.raises(InputError, match="0 to 2") as error:
        check_evidence(questions, 3)
    assert "q:1" in str(error.value)


@pytest.mark.parametrize(("format", "line", "words"), MALFORMED)
def test_an_invalid_line_is_named(tmp_path, format, line, words):
    before = "[" if format == "webquestions" else GOOD[format].strip("\n")
    (tmp_path / "q").write_text(f"{before}\n{line}")
    with pytest.raises(InputError) as error:
        read_questions(tmp_path / "q", format)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "answers",
    [
        "",
        "me",
        "['me'",
        "[]",
        "[[]]",
        "{'a': 1}",
        "['a'] + ['b']",
        "[open('q')]",
        "[1",
        "-" * 90_000,
        "[" * 90_000,
        "\"['me']",
        "['" + "a" * LONGEST_LIST + "']",
    ],
)
def test_invalid_answer_lists_are_named_and_never_executed(tmp_path, answers):
    (tmp_path / "q").write_text(f"who?\t['me']\nwho?\t{answers}\nwho?\t['me']\n")
    with pytest.raises(InputError) as error:
        read_questions(tmp_path / "q", "nq")
    assert "q:2" in str(error.value) and len(str(error.value)) < 1000


SQUAD_BREAKS = [
    lambda entry, paragraph, document: entry.pop("id"),
    lambda entry, paragraph, document: entry.pop("answers"),
    lambda entry, paragraph, document: entry["answers"].clear(),
    lambda entry, paragraph, document: entry["answers"][0].pop("text"),
    lambda entry, paragraph, document: entry.update(question=""),
    lambda entry, paragraph, document: paragraph.pop("qas"),
    lambda entry, paragraph, document: document.pop("data"),
    lambda entry, paragraph, document: document.update(data=[3]),
]


@pytest.mark.parametrize("damage", SQUAD_BREAKS)
def test_squad_with_a_missing_field_is_an_error(tmp_path, damage):
    document = json.loads(GOOD["squad"])
    paragraph = document["data"][0]["paragraphs"][0]
    damage(paragraph["qas"][0], paragraph, document)
    (tmp_path / "q.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="not a question with answers") as error:
        read_questions(tmp_path / "q.json", "squad")
    assert "q.json" in str(error.value)


@pytest.mark.parametrize("content", ['[{"qText": "a"}]', '{"qText": "a"}', "[3]", "[[]]"])
def test_web_questions_with_a_missing_field_is_an_error(tmp_path, content):
    (tmp_path / "q.json").write_text(content)
    with pytest.raises(InputError, match="not a question with answers") as error:
        read_questions(tmp_path / "q.json", "webquestions")
    assert "q.json" in str(error.value)


@pytest.mark.parametrize("format", FORMATS)
def test_a_wrong_encoding_and_an_empty_file_are_errors(tmp_path, format):
    (tmp_path / "q").write_bytes(GOOD[format].replace("Who", "Zürich").encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_questions(tmp_path / "q", format)
    (tmp_path / "q").write_bytes(b"\n")
    with pytest.raises(InputError, match=r"empty|not JSON"):
        read_questions(tmp_path / "q", format)


def test_a_missing_file_a_folder_and_an_unknown_format_are_errors(tmp_path):
    with pytest.raises(InputError, match="no question file"):
        read_questions(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="no question file"):
        read_questions(str(tmp_path / "*.jsonl"))
    with pytest.raises(InputError, match="is a folder"):
        read_questions(tmp_path)
    with pytest.raises(InputError, match="own or nq or webquestions or trec or squad"):
        read_questions(tmp_path, "triviaqa")


@shared
@pytest.mark.parametrize(
    ("format", "message", "first", "last"),
    [
        ("nq", "8,757 questions, as published (dev)", "who sings does", "the gop take"),
        ("webquestions", "3,778 questions, as published (train and dev)", "what is the", "what"),
        ("trec", "1,479 questions, which matches no published split", "When is Fashion", "?"),
        ("squad", "87,599 questions, as published (train)", "To whom did", "What is KMC"),
    ],
)
def test_the_published_benchmark_files_are_read(caplog, format, message, first, last):
    with caplog.at_level(logging.INFO):
        questions = read_questions(SHARED / FILES[format], format)
    assert message in caplog.text
    assert questions[0].text.startswith(first) and last in questions[-1].text
    assert all(question.expression == (format == "trec") for question in questions)


@shared
def test_a_tab_inside_a_trec_expression_is_kept():
    questions = read_questions(SHARED / FILES["trec"], "trec")
    [curies] = [q for q in questions if q.text == "What is measured in curies?"]
    assert "\t" in curies.answers[0] and curies.answers[0].startswith("RAO|contamination|")
    assert curies.answers[0].endswith("Pierre\\;")


@shared
def test_natural_questions_train_overlaps_dev():
    train = read_questions(SHARED / NQ_TRAIN, "nq")
    dev = {question.text for question in read_questions(SHARED / FILES["nq"], "nq")}
    assert len(train) == 55_589
    assert sum(question.text in dev for question in train) == 5_035


@shared
def test_the_published_splits_of_web_questions_and_trec():
    pytest.importorskip("farmhash", reason="pip install -e '.[qa]'")
    path = SHARED / FILES["webquestions"]
    parts = [read_questions(path, "webquestions", part) for part in ("train", "dev")]
    assert [len(part) for part in parts] == [3_417, 361]
    whole = read_questions(path, "webquestions")
    assert sorted(parts[0] + parts[1], key=repr) == sorted(whole, key=repr)
    trec = [len(read_questions(SHARED / FILES["trec"], "trec", p)) for p in ("train", "dev")]
    assert trec == [1_348, 131]  # 1,353 and 133 in the complete file


def test_a_split_without_a_fingerprint_rule_is_an_error(tmp_path):
    (tmp_path / "q").write_text(GOOD["nq"])
    with pytest.raises(InputError, match="webquestions or trec"):
        read_questions(tmp_path / "q", "nq", "dev")
    with pytest.raises(InputError, match="train or dev"):
        published_splits.check_part("test", "trec")


def test_the_number_of_questions_is_compared_with_the_published_splits():
    assert published_splits.compared("own", 1234) == "1,234 questions"
    assert published_splits.compared("trec", 694) == "694 questions, as published (test)"
    assert published_splits.compared("trec", 695) == (
        "695 questions, which matches no published split "
        "(train 1,353, dev 133, train and dev 1,486, test 694)"
    )


def test_reading_imports_neither_tfds_nor_farmhash():
    script = "import sys, realm_jax.data.question_files; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert b"tensorflow_datasets" not in loaded.stdout and b"farmhash" not in loaded.stdout


def test_a_file_without_questions_of_a_part_is_not_called_empty(tmp_path):
    pytest.importorskip("farmhash", reason="pip install -e '.[qa]'")
    (tmp_path / "q").write_text(GOOD["webquestions"])
    [question] = read_questions(tmp_path / "q", "webquestions")
    other = {"train": "dev", "dev": "train"}[published_splits.part_of(question.text)]
    with pytest.raises(InputError, match=f"no question belongs to part {other}"):
        read_questions(tmp_path / "q", "webquestions", other)
