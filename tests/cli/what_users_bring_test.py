"""The kinds of files, machines and mistakes that users bring, and the tests that hold their values.

Each row of `KINDS` has an example, the right result, and the tests that check it. A new kind of
fault gets a row here; another example of a known kind gets a value in one of the named tests.
"""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]


class Kind(NamedTuple):
    """One kind of input.

    Attributes:
      example: what a user brings or types.
      result: what must come of it.
      tests: file, relative to `tests` -> its test functions.
    """

    example: str
    result: str
    tests: dict[str, list[str]]


KINDS = {
    "a run folder that was moved": Kind(
        "cp -r run elsewhere; the original is gone",
        "every verb works; a corpus outside of the run is given by --config.corpus.knowledge",
        {
            "cli/changed_corpus_test.py": [
                "test_a_copied_run_uses_the_corpus_inside_it",
                "test_a_corpus_that_was_moved_alone_is_given_by_an_override",
            ]
        },
    ),
    "an owner without a name": Kind(
        "docker run --user=12345",
        "no verb asks the password file",
        {"cli/machines_test.py": ["test_no_verb_needs_the_name_of_an_owner"]},
    ),
    "Python files in the current folder": Kind(
        "random.py beside the user's notes",
        "no job, worker or child imports it",
        {
            "cli/machines_test.py": [
                "test_workers_of_a_build_import_nothing_from_the_current_folder",
                "test_the_builder_imports_nothing_from_the_current_folder",
                "test_the_search_process_imports_nothing_from_the_current_folder",
            ]
        },
    ),
    "streams, encodings and variables": Kind(
        "realm ask … | head -1; LC_ALL=C; JAX_PLATFORMS=gpuu; a script without a guard",
        "no traceback; the real cause is named",
        {
            "cli/machines_test.py": [
                "test_no_stream_gives_a_traceback",
                "test_json_is_valid_in_an_encoding_without_all_characters",
                "test_bytes_of_another_encoding_are_refused_as_a_question",
                "test_a_workdir_in_another_encoding_is_named_as_that",
                "test_a_variable_that_jax_refuses_is_named",
                "test_a_script_without_a_guard_is_told_so",
            ]
        },
    ),
    "machines without ScaNN": Kind(
        "macOS, Arm, Python 3.14",
        "installs; searches with FAISS, else exactly, and says so once",
        {
            "retrieval/no_scann_test.py": [
                "test_an_installation_without_scann_builds_and_searches",
                "test_each_platform_installs_scann_or_faiss",
            ]
        },
    ),
    "places that cannot be written": Kind(
        "eval --predictions=FOLDER; a read-only run; a full disk",
        "refused before the evaluation, or the scores are printed first",
        {
            "cli/machines_test.py": [
                "test_predictions_that_cannot_be_written_are_refused_before_the_evaluation",
                "test_a_full_disk_does_not_lose_the_scores",
                "test_predictions_are_in_the_file_while_the_evaluation_runs",
            ]
        },
    ),
    "documents without a title, with ids": Kind(
        '{"_id": "7", "title": "", "text": "Oslo is new."}',
        "kept, with an empty title and the id 7",
        {
            "corpus/input_kinds_test.py": [
                "test_each_kind_gives_its_documents_and_counts_what_is_left_out"
            ],
            "corpus/document_ids_test.py": ["test_every_format_with_ids_keeps_them"],
            "cli/corpus_verb_test.py": ["test_documents_without_title_are_kept_with_their_ids"],
        },
    ),
    "formats": Kind(
        "Parquet, a MediaWiki dump, psgs_w100.tsv, BEIR, CSV, HTML, zip, zst, PDF, Word, stdin",
        "each gives its documents; another container is named as what it is",
        {
            "corpus/input_kinds_test.py": [
                "test_each_kind_gives_its_documents_and_counts_what_is_left_out",
                "test_pdf_and_word_files_are_read",
                "test_a_file_of_another_kind_is_named_as_what_it_is",
                "test_fields_of_other_names_are_stated",
            ],
            "corpus/wikitext_test.py": ["test_words_are_those_of_the_reference_parser"],
            "cli/corpus_verb_test.py": ["test_standard_input_is_read"],
        },
    ),
    "variants of WikiExtractor's output": Kind(
        '<doc id="7" title="The "B" side" language="en">; an end tag inside the text',
        "attributes are parsed; a broken article is counted and skipped",
        {
            "corpus/input_kinds_test.py": [
                "test_each_kind_gives_its_documents_and_counts_what_is_left_out"
            ],
            "corpus/readers_test.py": ["test_files_not_from_wikiextractor_are_refused"],
        },
    ),
    "files that were left out silently": Kind(
        "A.TXT, a symbolic link, ._a.txt in an archive, cp1252",
        "read, or counted by reason with the first names",
        {
            "corpus/input_kinds_test.py": [
                "test_each_kind_gives_its_documents_and_counts_what_is_left_out",
                "test_symbolic_links_are_followed_once",
                "test_detected_encodings_are_counted_and_a_stated_one_is_used",
            ],
            "cli/corpus_verb_test.py": [
                "test_what_is_not_read_is_named_and_encodings_are_detected_or_stated"
            ],
        },
    ),
    "text without punctuation": Kind(
        "a transcript of 2,000 words without a full stop",
        "divided at the passage length; the build says how many and where",
        {
            "corpus/split_test.py": [
                "test_a_sentence_longer_than_a_passage_is_divided_and_counted"
            ],
            "cli/corpus_verb_test.py": ["test_an_unpunctuated_transcript_is_divided_loudly"],
        },
    ),
    "answers that are none": Kind(
        "['Noregur' 'Norge'] of NumPy; NaN; evidence out of range",
        "read as two answers, or refused with its line",
        {
            "data/question_files_test.py": [
                "test_a_table_row_that_cannot_be_answered_is_refused_by_line",
                "test_expressions_of_dpr_tables_are_read_as_expressions",
                "test_evidence_outside_the_corpus_is_refused_by_line",
                "test_an_invalid_line_is_named",
            ]
        },
    ),
    "weights that cannot be used": Kind(
        "cased, NaN, another vocabulary size, a Git LFS pointer, RoBERTa; padded word vectors",
        "refused with the reason; padding is removed",
        {
            "interop/sentence_import_test.py": [
                "test_weights_that_cannot_be_used_are_refused_with_the_reason",
                "test_sharded_and_padded_weights_are_read",
            ],
            "cli/import_verb_test.py": [
                "test_weights_without_a_vocabulary_are_imported_with_a_warning"
            ],
            "cli/mistakes_test.py": ["test_a_mistake_gets_an_error_message_and_no_traceback"],
        },
    ),
    "words of users": Kind(
        "[mask], <mask>, ~ inside a flag, --out=., a glob without quotes",
        "understood, or refused with the fix",
        {
            "cli/machines_test.py": [
                "test_other_spellings_of_the_blank_are_understood",
                "test_a_home_folder_inside_a_flag_is_expanded",
                "test_a_build_into_the_current_folder",
            ],
            "cli/mistakes_test.py": ["test_a_mistake_gets_an_error_message_and_no_traceback"],
        },
    ),
    "a corpus that changed": Kind(
        "one document more, built again",
        "each verb says what changed; the command that it names builds the index again",
        {
            "cli/changed_corpus_test.py": [
                "test_each_verb_says_what_changed_and_the_named_command_repairs_it",
                "test_a_corpus_with_another_vocabulary_is_refused_by_all_verbs",
                "test_a_run_goes_on_with_a_changed_corpus",
            ],
            "corpus/fingerprints_test.py": ["test_passages_are_compared_by_title_and_text"],
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_of_a_kind_exist(kind):
    assert KINDS[kind].tests
    for file, names in KINDS[kind].tests.items():
        tree = ast.parse((TESTS / file).read_text())
        found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(names) <= found, file
