"""Runs every command of README, docs, `--help`, experiments and launch scripts, scaled down.

The commands of a document run in order, as processes, in a folder of their own. The folder starts
with the results of the documents that this one builds on. `scaled_commands` makes the commands
small and replaces what this machine does not have.
"""

import importlib.util
import json
import shutil

import documented_commands as documented
import pytest
import scaled_commands
from support.processes import environment

from realm_jax.cli.main import main

HELP, DATA = "realm --help", "data of realm_wikipedia.py"
COMMANDS = {page.name: documented.page_commands(page) for page in documented.PAGES}
COMMANDS |= {script.name: documented.script_commands(script) for script in documented.SCRIPTS}
COMMANDS |= {HELP: documented.help_commands()}
_is_launch = [command.startswith("python launch") for command in COMMANDS["realm_wikipedia.py"]]
COMMANDS[DATA] = COMMANDS["realm_wikipedia.py"][: _is_launch.index(True)]
# documents whose commands need the run that README creates
RUN_PAGES = ("run_ablations.md", "serve.md", "watch_a_run.md", "import_and_export_weights.md")
RUN_PAGES += ("almanac.py",)
# a document -> the documents whose results it uses
NEEDS = {
    **{page: ["README.md"] for page in RUN_PAGES},
    "commands.md": ["README.md", "own_corpus.md"],
    "bring_questions.md": ["own_corpus.md"],
    "add_and_delete_documents.md": ["own_corpus.md"],
    **{one: ["wiki_sample.py"] for one in ("local.py", "train_on_pods.md")},
    HELP: ["wiki_sample.py"],
    "table2.py": ["results_random_weights.md"],
    DATA: ["tagger_conll.py"],
    "realm_wikipedia.py": ["tagger_conll.py"],
    "ict_wikipedia.py": [DATA],
    "realm_ccnews.py": ["realm_wikipedia.py"],
    "encoder_only.py": ["realm_wikipedia.py"],
    "retriever_only.py": ["encoder_only.py"],
    **{one: ["realm_wikipedia.py"] for one in ("random_span.py", "random_token.py")},
    **{one: ["realm_wikipedia.py"] for one in ("stale_30x.py", "finetune_nq.py")},
    **{one: ["realm_wikipedia.py"] for one in ("finetune_webq.py", "finetune_trec.py")},
}
# text in a command -> the package of an optional extra that it needs
OPTIONAL = {"realm compile": "libtpu", "--beam=": "apache_beam"}
missing = [part for part, package in OPTIONAL.items() if importlib.util.find_spec(package) is None]


@pytest.fixture(scope="session")
def folder_after(tmp_path_factory, tiny, documented_run, compilation_cache):
    """Function from a document to a folder in which its commands have run, once per session."""
    settings = environment(compilation_cache)
    finished = {}

    def folder_after(name):
        if name in finished:
            return finished[name]
        folder = tmp_path_factory.mktemp("document")
        scaled_commands.write_user_files(folder, tiny, documented_run)
        for one in NEEDS.get(name, []):
            for made in ("runs", "weights"):
                if (folder_after(one) / made).exists():
                    shutil.copytree(folder_after(one) / made, folder / made, dirs_exist_ok=True)
        for command in COMMANDS[name]:
            if not any(part in command for part in missing):
                scaled_commands.run(command, folder, settings)
        finished[name] = folder
        return folder

    return folder_after


def test_documents_that_build_on_each_other_exist():
    assert NEEDS.keys() <= COMMANDS.keys()
    assert {one for needed in NEEDS.values() for one in needed} <= COMMANDS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, commands in COMMANDS.items() if commands])
def test_the_commands_of_a_document_run(folder_after, name):
    folder_after(name)


@pytest.mark.slow
def test_a_question_about_own_text_is_answered_with_evidence_from_it(
    folder_after, monkeypatch, capsys
):
    monkeypatch.chdir(folder_after("own_corpus.md"))
    ask = COMMANDS["own_corpus.md"][2]
    capsys.readouterr()
    assert main([*documented.split(ask)[1:], "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["answer"] and len(report["passages"]) > 1
    found = {passage["title"] for passage in report["passages"][1:]}
    assert found <= {page.stem for page in documented.PAGES}


@pytest.mark.slow
@pytest.mark.parametrize("part", OPTIONAL)
def test_the_packages_of_optional_commands_are_installed(part):
    if part in missing:
        pytest.skip(f"without {OPTIONAL[part]}, commands with {part} were not run")
