"""Every command of README, docs, helps, experiments and launch scripts, run as it stands.

Each document has a reader who has followed those that it needs, in a folder of their own. Its
commands run in their order, as processes of a shell would; `journeys` says what is made small, and
what stands for machines that are not here.
"""

import importlib.util
import json
import shutil

import documents
import journeys
import pytest
from support.processes import environment

from realm_jax.cli.main import main

HELPS, DATA = "realm --help", "data of realm_wikipedia.py"
SHOWN = {page.name: documents.commands(page) for page in documents.PAGES}
SHOWN |= {script.name: documents.of_script(script) for script in documents.SCRIPTS}
SHOWN |= {HELPS: documents.of_helps()}
_cloud = [command.startswith("python launch") for command in SHOWN["realm_wikipedia.py"]]
SHOWN[DATA] = SHOWN["realm_wikipedia.py"][: _cloud.index(True)]
# pages whose commands need the run that README makes
RUN_PAGES = ("run_ablations.md", "commands.md", "bring_questions.md", "serve.md", "demo.md")
RUN_PAGES += ("watch_a_run.md", "import_and_export_weights.md", "almanac.py")
# a document -> those that its reader has followed; the others need none
NEEDS = {
    **{page: ["README.md"] for page in RUN_PAGES},
    **{one: ["wiki_sample.py"] for one in ("local.py", "train_on_pods.md")},
    HELPS: ["wiki_sample.py"],
    "table2.py": ["results.md"],
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
# what a command has in it -> a package that it needs, of an extra that is large
LARGE = {"realm compile": "libtpu", "--beam=": "apache_beam"}
absent = [part for part, package in LARGE.items() if importlib.util.find_spec(package) is None]


@pytest.fixture(scope="session")
def readers(tmp_path_factory, tiny, documented_run):
    """Document -> the folder of somebody who has followed it; followed once, then copied."""
    settings = environment(tmp_path_factory.mktemp("compiled"))
    followed = {}

    def follow(name):
        if name in followed:
            return followed[name]
        folder = tmp_path_factory.mktemp("reader")
        journeys.write_belongings(folder, tiny, documented_run)
        for one in NEEDS.get(name, []):
            for made in ("runs", "weights"):
                if (follow(one) / made).exists():
                    shutil.copytree(follow(one) / made, folder / made, dirs_exist_ok=True)
        for command in SHOWN[name]:
            if not any(part in command for part in absent):
                journeys.run(command, folder, settings)
        followed[name] = folder
        return folder

    return follow


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, commands in SHOWN.items() if commands])
def test_the_commands_of_a_document_run(readers, name):
    readers(name)


@pytest.mark.slow
def test_ones_own_text_answers_with_evidence_from_it(readers, monkeypatch, capsys):
    monkeypatch.chdir(readers("own_corpus.md"))
    ask = SHOWN["own_corpus.md"][2]
    capsys.readouterr()
    assert main([*documents.words(ask)[1:], "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["answer"] and len(report["passages"]) > 1
    found = {passage["title"] for passage in report["passages"][1:]}
    assert found <= {page.stem for page in documents.PAGES}


@pytest.mark.slow
@pytest.mark.parametrize("part", LARGE)
def test_nothing_was_left_out(part):
    if part in absent:
        pytest.skip(f"without {LARGE[part]} no command with {part} was run")
