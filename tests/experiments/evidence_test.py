"""The evidence experiment: its records, its JSON file and its page."""

import json
import shutil

import evidence
import numpy as np
import pytest
from evidence_runs import aggregate, plots, recipes, rows, rule, tables
from evidence_runs.collections import COLLECTIONS, Collection
from evidence_runs.rare_spans import write_rare_spans
from evidence_runs.recipes import Recipe
from evidence_runs.systems import AS_IS, CROSSED
from support.judged import write_judged_set, write_judged_store
from support.tiny_corpus import vocabulary
from support.tiny_encoder import LIKE_MINILM, write_tiny_encoder

import realm_jax
from realm_jax import config as config_lib
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.judged_sets import read_judged_set
from realm_jax.errors import RealmError
from realm_jax.inference.answerer import Answerer
from realm_jax.text.vocabulary import write_vocabulary


def test_the_committed_pages_plots_and_json_equal_the_records():
    made = evidence.summary()
    assert json.loads((evidence.RESULTS / "evidence.json").read_text()) == made
    for page in evidence.PAGES:
        assert tables.with_tables(page.read_text(), made) == page.read_text()
    drawings = plots.plots(made)
    assert set(drawings) == {"evidence_collections.svg", "evidence_rows.svg"}
    for name, drawing in drawings.items():
        assert (evidence.PAGES[0].parent / name).read_text() == drawing


def write_record(folder, collection, system, seed, values):
    mean = sum(values) / len(values)
    record = {"collection": collection, "system": system, "seed": seed, "seconds": {"train": 90}}
    record["device"] = "cpu"
    record |= {"ndcg_at_10": mean, "recall_at_100": 1.0}
    curve = [[100, 0.5], [300, 0.75]]
    record["training"] = {
        "held_out_retrieval_utility": curve,
        "held_out_p_null": curve,
        "success_at_5": {"start": 0.25, "realm": 0.5},
    }
    counts = {"ndcg_at_10": [round(1e4 * one) for one in values], "recall_at_100": [10_000] * 4}
    path = folder / f"{collection}.{system}.{seed}.json"
    path.write_text(json.dumps(record | {"by_query": counts}))


def test_gains_are_paired_by_query_and_averaged_over_seeds_then_collections(tmp_path, monkeypatch):
    monkeypatch.setattr(aggregate, "CHOSEN_ON", ("cisi",))
    write_record(tmp_path, "adi", "start", 0, [0.1, 0.3, 0.5, 0.7])
    write_record(tmp_path, "adi", "realm", 0, [0.2, 0.4, 0.6, 0.8])
    write_record(tmp_path, "adi", "realm", 1, [0.4, 0.6, 0.8, 1.0])
    write_record(tmp_path, "cisi", "start", 0, [0.5, 0.5, 0.5, 0.5])
    write_record(tmp_path, "cisi", "realm", 0, [0.5, 0.5, 0.5, 0.1])
    write_record(tmp_path, "npl", "bm25", 0, [0.5, 0.5, 0.5, 0.5])
    made = aggregate.aggregate(tmp_path)
    assert list(made["collections"]) == ["adi", "cisi", "npl"]
    assert list(made["collections"]["npl"]) == ["bm25"]  # what was not measured is absent
    realm = made["collections"]["adi"]["realm"]["ndcg_at_10"]
    assert realm["mean"] == 0.6 and realm["seeds"] == [0.5, 0.7]
    of_adi = made["differences"]["adi"]["realm_over_start"]
    assert of_adi == {"mean": 0.2, "low": 0.2, "high": 0.2}  # every query gains the same
    gain = made["gain"]
    assert list(gain) == ["realm_over_start"]
    assert gain["realm_over_start"]["mean"] == pytest.approx((0.2 - 0.1) / 2)
    # cisi loses 0.1 times the number of draws of its last query: 0 to 3 of 4 in 95 % of the samples
    low, high = gain["realm_over_start"]["low"], gain["realm_over_start"]["high"]
    assert (low, high) == (pytest.approx((0.2 - 0.3) / 2), pytest.approx(0.1))
    made |= rows.aggregate_rows(tmp_path / "none") | {"recipes": [], "rule": []}
    page = "".join(f"<!-- table {name} -->\nold\n<!-- end -->\n" for name in tables.tables(made))
    page = tables.with_tables(page, made)
    assert "\nold\n" not in page
    assert "| adi | 0 | 0.50, 0.75 | 0.750 | 0.25 to 0.50 | +0.100 | 2 | cpu |" in page
    assert (
        "| `realm` − `start` | +0.050 (-0.050 to +0.100) | 2 | +0.200 (+0.200 to +0.200) |" in page
    )


def test_a_run_below_the_threshold_counts_as_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(rule, "THRESHOLDS", {"other": (0.8,), "": (0.0, 0.5, 0.8)})
    write_record(tmp_path, "adi", "start", 0, [0.1, 0.3, 0.5, 0.7])
    write_record(tmp_path, "adi", "realm", 0, [0.2, 0.4, 0.6, 0.8])  # the last utility is 0.75
    (tmp_path / "other").mkdir()
    write_record(tmp_path / "other", "adi", "realm", 0, [0.1, 0.3, 0.5, 0.0])
    other, never, kept, stopped = rule.aggregate_rule(tmp_path)
    assert [one["label"] for one in (other, never)] == ["other", ""]
    assert never["kept"] == kept["kept"] == ["adi"] and kept["gain"]["mean"] == 0.1
    for one in (other, stopped):
        assert one["kept"] == [] and one["gain"] == {"mean": 0.0, "low": 0.0, "high": 0.0}


def test_a_recipe_is_compared_with_the_start_and_with_the_same_seeds_of_its_base(
    tmp_path, monkeypatch
):
    known = {"one": Recipe("one change"), "two": Recipe("two changes", "one")}
    known["three"] = Recipe("a change of ICT", system="ict")
    monkeypatch.setattr(recipes, "RECIPES", known)
    write_record(tmp_path, "adi", "start", 0, [0.1, 0.3, 0.5, 0.7])
    write_record(tmp_path, "adi", "realm", 0, [0.2, 0.4, 0.6, 0.8])
    write_record(tmp_path, "adi", "ict", 0, [0.1, 0.2, 0.4, 0.6])
    (tmp_path / "three").mkdir()
    write_record(tmp_path / "three", "adi", "ict", 0, [0.2, 0.3, 0.5, 0.7])
    for label, seed, gain in (("one", 1, 0.0), ("two", 1, 0.1), ("two", 2, 0.3)):
        (tmp_path / label).mkdir(exist_ok=True)
        values = [one + gain for one in (0.1, 0.3, 0.5, 0.7)]
        write_record(tmp_path / label, "adi", "realm", seed, values)
    (tmp_path / "two" / "change.patch").touch()
    write_record(tmp_path, "adi", "start_hybrid", 0, [0.3, 0.3, 0.5, 0.7])
    write_record(tmp_path / "two", "adi", "realm_hybrid", 1, [0.5, 0.5, 0.7, 0.9])
    for system in CROSSED:
        write_record(tmp_path / "two", "adi", system, 1, [0.1, 0.3, 0.5, 0.9])
    one, two, three = recipes.aggregate_recipes(tmp_path)
    assert one["over_base"] is None  # `realm` of the tables has seed 0 only
    assert two["seeds"] == [1, 2] and two["ndcg_at_10"] == 0.6
    assert two["over_start"] == {"mean": 0.2, "low": 0.2, "high": 0.2}
    assert two["over_base"] == {"mean": 0.1, "low": 0.1, "high": 0.1}  # of seed 1
    made = aggregate.aggregate(tmp_path) | rows.aggregate_rows(tmp_path / "none")
    assert one["crossed"] == {} and set(two["crossed"]) == set(CROSSED)
    shown = tables.tables(
        made | {"recipes": [one, two, three], "rule": rule.aggregate_rule(tmp_path)}
    )
    table, crossed = shown["recipes"], shown["crossed"]
    gains = "+0.200 (+0.200 to +0.200) | `one`: +0.100 (+0.100 to +0.100)"
    hybrid = "+0.200 (+0.200 to +0.200)"
    assert f"| `two`* | two changes | adi | 0.600 | {gains} | {hybrid} | 0.75, 0.75 |" in table
    half = "+0.050 (+0.000 to +0.150)"
    assert f"| `two` | adi | +0.200 (+0.200 to +0.200) | {half} | {half} |" in crossed
    assert "`one`" not in crossed
    assert "| `realm` | none | adi | +0.100 (+0.100 to +0.100) |" in shown["rule"]
    none = "+0.000 (+0.000 to +0.000)"
    lacks = f"| `one` | one change | adi | 0.400 | {none} | `realm`: – | – | 0.75 |"
    assert lacks in table
    gains = "+0.025 (+0.000 to +0.075) | `ict`: +0.100 (+0.100 to +0.100)"
    assert f"| `three` | a change of ICT | adi | 0.425 | {gains} | – | – |" in table


def test_a_seed_that_an_untrained_system_does_not_have_is_refused(tmp_path, monkeypatch):
    flags = ["--system=bm25", "--system=start", "--seed=1", "--collection=adi", "--start=none"]
    flags += [f"--data={write_judged_set(tmp_path / 'adi').parent}", f"--records={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["evidence.py", *flags])
    with pytest.raises(RealmError, match="do not differ between seeds"):
        evidence.main()


def test_untrained_systems_run_with_the_config_of_the_experiment():
    config = config_lib.from_file("as_is")
    for flag in AS_IS[1:]:
        key, _, value = flag.removeprefix("--config.").partition("=")
        config_lib.set_key(config, key, value)
    assert config.to_dict() == evidence.get_config().to_dict()


def test_rare_spans_are_in_2_to_1_percent_of_the_passages(tmp_path):
    names = {0: "Ani", 1: "Ube and Ilo", 2: "Ube", 8: "Ube", 3: "Osk", 4: "Osk", 5: "Osk"}
    texts = [f"the river of Ora is {names.get(i, 'Ora')}." for i in range(200)]
    texts[6] = "the river is osk."  # not marked: a name in lower case
    write_vocabulary(tmp_path / "vocab.txt", vocabulary())
    corpus = tmp_path / "corpus"
    write_passages(corpus, [("", [text]) for text in texts], tmp_path / "vocab.txt")
    store = PassageStore.open(corpus)
    marked = mark_spans(store)
    assert {len(marked.of(i)) for i in (0, 1, 7)} == {2, 3}
    rare = write_rare_spans(corpus, tmp_path / "rare")
    assert rare.rows.tolist() == [1, 2, 8]  # three have Ube, one Ilo, all Ora, four Osk
    assert rare.of(1).tolist() == marked.of(1)[1:2].tolist()
    assert rare.source.tolist() == marked.source.tolist()


def gains_of_crossed(judged, runs):
    """nDCG@10 of each query, times 10,000, by brute force; document i is right for query i."""
    queries = read_judged_set(judged).queries.values()
    vectors = realm_jax.open(str(runs / "few_realm_0" / "documents")).embed(list(queries))
    passages = Answerer.open(str(runs / "start")).index.vectors_of(np.arange(len(vectors)))
    scores = vectors @ passages.astype(np.float32).T
    ranks = (scores > np.diag(scores)[:, None]).sum(1)
    return [round(1e4 / np.log2(rank + 2)) if rank < 10 else 0 for rank in ranks.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [[], ["--rare-spans"]])
def test_a_tiny_collection_gets_records_of_an_untrained_and_a_trained_system(
    tmp_path, monkeypatch, changes
):
    monkeypatch.setitem(COLLECTIONS, "tiny", Collection(24, 24, 0.0, None, "made"))
    write_judged_set(tmp_path / "tiny")
    corpus = tmp_path / "tiny" / "corpus.jsonl"  # passage 0, which is held out, needs a rare span
    corpus.write_text(corpus.read_text().replace('."}', '. The river was the Ats."}', 1))
    (tmp_path / "store").mkdir()
    write_judged_store(tmp_path / "store")
    form = {**LIKE_MINILM, "positions": 512}
    start = write_tiny_encoder(tmp_path / "start", tmp_path / "store" / "vocab.txt", form)
    records = tmp_path / "records"
    few = ["stages.reader.steps=2", "stages.realm.steps=2", "stages.reader.batch=8"]
    few += ["stages.realm.evaluate_every=1", "refresh.every=1", "model.compute=float32"]
    few += ["stages.ict.steps=2", "stages.ict.batch=8"]
    few += ["stages.realm.learning_rate=0.01"]  # so that rankings change
    few_flags = [f"--config.{one}" for one in few]
    flags = [*few_flags]
    flags += [f"--data={tmp_path}", f"--home={tmp_path / 'runs'}", f"--start={start}"]
    flags += [f"--records={records}", "--label=few", "--collection=tiny", "--seed=0"]
    systems = ["bm25", "realm", "realm_queries"]
    flags += [*(f"--system={system}" for system in systems), *changes]
    monkeypatch.setattr("sys.argv", ["evidence.py", *flags])
    assert evidence.main() == 0
    records /= "few"
    found = {path.name for path in records.iterdir()}
    assert found == {f"tiny.{system}.0.json" for system in systems}
    record = json.loads((records / "tiny.realm.0.json").read_text())
    assert record["queries"] == len(record["by_query"]["ndcg_at_10"]) == 24
    assert [step for step, _ in record["training"]["held_out_retrieval_utility"]] == [1, 2]
    assert not [text for text in record["commands"] if str(tmp_path) in text]
    assert ("HOME/tiny/rare_spans" in str(record["commands"])) == bool(changes)
    assert record["overrides"] == [*changes, *few_flags]
    crossed = json.loads((records / "tiny.realm_queries.0.json").read_text())
    assert crossed["training"] == record["training"]
    expected = gains_of_crossed(tmp_path / "tiny", tmp_path / "runs" / "tiny")
    assert crossed["by_query"]["ndcg_at_10"] == expected
    assert expected != record["by_query"]["ndcg_at_10"]
    shutil.rmtree(tmp_path / "runs")  # records are not made again
    assert evidence.main() == 0
    assert not (tmp_path / "runs" / "tiny").exists()
