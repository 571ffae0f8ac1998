"""Each file of each kind of artifact is damaged in five ways: it is refused, reported, repaired."""

import shutil
import time

import pytest
from support import grown_run
from support.steps import CORPUS_HASH, DIMS, KINDS, NEW, OLD
from support.tiny_corpus import passages, tiny_config, vocabulary

from realm_jax.artifacts.repair import repair
from realm_jax.artifacts.verify import check
from realm_jax.cli.main import main
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import DamageError, RealmError
from realm_jax.storage import commit, files, integrity, sealed
from realm_jax.storage.layout import MANIFEST, PARAMETERS, POINTER, RunDir, step_name
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.trainer.index_manager import IndexManager

FAULT = "damage"
TIMEOUT = 60.0


def delete(path, old):
    path.unlink()


def empty(path, old):
    path.write_bytes(b"")


def cut_in_half(path, old):
    path.write_bytes(path.read_bytes()[: path.stat().length // 2])


def flip_a_bit(path, old):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def replace_by_the_old_one(path, old):
    path.write_bytes(old.read_bytes())


DAMAGES = [delete, empty, cut_in_half, flip_a_bit, replace_by_the_old_one]


def damaged(tmp_path, kind, damage):
    """Yields (run, file name): runs in which one file of the newest step is damaged."""
    intact = RunDir(tmp_path / "intact")
    for step in (OLD, NEW):
        KINDS[kind].publish(intact, step)
    assert check(intact.root)["ok"]
    parent = intact.root / KINDS[kind].folder
    for number, name in enumerate(files.list_files(parent / step_name(NEW))):
        run = RunDir(tmp_path / f"{kind}_{number}")
        shutil.copytree(intact.root, run.root)
        new, old = (run.root / KINDS[kind].folder / step_name(step) / name for step in (NEW, OLD))
        before = new.read_bytes()
        if old.exists():
            damage(new, old)
        elif damage is not replace_by_the_old_one:
            damage(new, None)
        if not new.exists() or new.read_bytes() != before:  # not if both steps have the same file
            yield run, name


def all_cases(*in_make_test):
    """Returns all kinds and damages; `make test` runs only the given ones."""
    return [
        pytest.param(
            kind, damage, marks=[] if (kind, damage) in in_make_test else pytest.mark.faults
        )
        for kind in KINDS
        for damage in DAMAGES
    ]


@pytest.mark.parametrize(
    ("kind", "damage"),
    all_cases(("checkpoint", flip_a_bit), ("index", replace_by_the_old_one), ("snapshot", empty)),
)
def test_damage_is_refused_reported_and_repaired(tmp_path, kind, damage, cases):
    for run, name in damaged(tmp_path, kind, damage):
        parent = run.root / KINDS[kind].folder
        file = f"{KINDS[kind].folder}/{step_name(NEW)}/{name}"
        with pytest.raises((DamageError, commit.NotPublishedError), match=name):
            integrity.read_verified(parent / step_name(NEW), kind)
        if name == MANIFEST:  # readers then do not see the new step
            assert commit.latest(parent) == (NEW if damage is replace_by_the_old_one else OLD)
        else:
            with pytest.raises(DamageError, match=name):
                KINDS[kind].assert_intact(run, NEW)
        assert file in [problem["file"] for problem in check(run.root)["problems"]]
        before = {one: (run.root / one).read_bytes() for one in files.list_files(run.root)}
        announced = repair(run.root, dry_run=True)
        assert {one: (run.root / one).read_bytes() for one in files.list_files(run.root)} == before
        assert repair(run.root) == announced != []
        assert check(run.root)["ok"]
        assert commit.latest(parent) == OLD
        KINDS[kind].assert_intact(run, OLD)
        KINDS[kind].publish(run, NEW)  # as the job does next
        KINDS[kind].assert_intact(run, NEW)
        cases.append(file)
    assert len(cases) > 3


@pytest.mark.parametrize(
    "damage",
    [pytest.param(damage, marks=pytest.mark.faults) for damage in DAMAGES[:-1]] + DAMAGES[-1:],
)
def test_a_damaged_index_is_refused_and_the_old_one_stays_in_use(tmp_path, damage, cases, caplog):
    config = tiny_config(refresh__mode="async", model__embedding=DIMS)
    for run, name in damaged(tmp_path, "index", damage):
        (run.published_index / step_name(NEW)).rename(run.root / "new")
        index = IndexManager(run, config, {CORPUS_HASH}.__contains__, [], set)
        assert index.for_step(0).step == OLD
        caplog.clear()
        (run.root / "new").rename(run.published_index / step_name(NEW))
        deadline = time.monotonic() + TIMEOUT
        hidden = name == MANIFEST and damage is not replace_by_the_old_one
        while not hidden and "refused" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert hidden or name in caplog.text
        index.accept([index.offer(NEW)])  # an index of an earlier step may be swapped in
        assert index.for_step(NEW).step == OLD
        index.close()
        cases.append(name)


@pytest.fixture(scope="module")
def growing(tmp_path_factory):
    """A run whose corpus has grown: two index updates, and two segments."""
    folder = tmp_path_factory.mktemp("growing")
    run, corpus = RunDir(folder / "run"), folder / "corpus"
    write_vocabulary(folder / "vocab.txt", vocabulary())
    write_passages(corpus, passages(8), folder / "vocab.txt")
    grown_run.publish_base(run, PassageStore.open(corpus))
    current = grown_run.open_newest(run, corpus)
    grown_run.write(corpus, *((i, f"was {i}") for i in range(4)), removed=(5,))
    current = grown_run.bring_up_to_date(run, current)
    grown_run.write(corpus, (0, "is new"), removed=(6,))
    assert len(grown_run.bring_up_to_date(run, current).segments) == 3
    return folder


@pytest.mark.parametrize(
    "damage",
    [pytest.param(damage, marks=pytest.mark.faults) for damage in DAMAGES[:-1]] + DAMAGES[-1:],
)
def test_damage_of_segments_and_index_updates_is_refused_reported_and_repaired(
    growing, tmp_path, damage, cases
):
    intact = RunDir(growing / "run")
    one, two = grown_run.open_newest(intact, growing / "corpus").names[1:]
    parts = [(f"segments/{one}", f"segments/{two}"), (f"segments/{two}", f"segments/{one}")]
    parts.append(("index_updates/00000002", "index_updates/00000001"))
    for number, (part, other) in enumerate(parts):
        for name in files.list_files(intact.root / part):
            copy = shutil.copytree(growing, tmp_path / f"{number}_{name.replace('/', '_')}")
            run, corpus, file = RunDir(copy / "run"), copy / "corpus", f"{part}/{name}"
            damage(run.root / file, run.root / other / name)
            if (run.root / file).exists() and (
                (run.root / file).read_bytes() == (intact.root / file).read_bytes()
            ):
                continue  # both have the same file
            try:  # without its manifest, an update is not published: the one before is opened
                grown_run.assert_consistent(grown_run.open_newest(run, corpus))
                assert part == parts[2][0] and name == MANIFEST
            except (DamageError, commit.NotPublishedError) as error:
                assert name in str(error) or name == MANIFEST
            problems = [problem["file"] for problem in check(run.root)["problems"]]
            assert any(problem.startswith(part) for problem in problems), (file, problems)
            repair(run.root)
            assert check(run.root)["ok"]
            current = grown_run.bring_up_to_date(run, grown_run.open_newest(run, corpus))
            grown_run.assert_equals_fresh(current, corpus)
            cases.append(file)
    assert len(cases) > 8


@pytest.mark.parametrize("name", [POINTER, "END.json"])
@pytest.mark.parametrize("damage", DAMAGES[1:4])
def test_small_files_are_repaired(tmp_path, name, damage):
    run = RunDir(tmp_path)
    KINDS["snapshot"].publish(run, OLD)
    sealed.write(run.end_marker, {"time": 0.0})
    path = run.snapshots / name if name == POINTER else run.root / name
    damage(path, None)
    assert [problem["file"].endswith(name) for problem in check(run.root)["problems"]] == [True]
    repair(run.root)
    assert check(run.root)["ok"]
    assert commit.latest(run.snapshots) == OLD
    assert run.end_marker.exists() == (name == POINTER)


def test_the_dry_run_prints_what_the_repair_then_does(tmp_path, capsys):
    run = RunDir(tmp_path)
    for step in (OLD, NEW):
        KINDS["index"].publish(run, step)
    folder = run.published_index / step_name(NEW)
    (folder / "rows.npy").unlink()
    assert main(["check", str(tmp_path)]) == 1
    assert "published_index/00000020/rows.npy" in capsys.readouterr().err
    assert main(["check", str(tmp_path), "--repair", "--dry-run"]) == 1
    assert "00000020: damaged: rows.npy: would be deleted" in capsys.readouterr().err
    assert folder.exists()
    assert main(["check", str(tmp_path), "--repair"]) == 0
    message = capsys.readouterr().err
    assert "00000020: damaged: rows.npy: deleted" in message
    assert "LATEST.json: names 00000020, which is not a published step: set to 00000010" in message
    assert not folder.exists()


def test_repair_deletes_an_unpublished_file_and_keeps_its_step(tmp_path, capsys):
    run = RunDir(tmp_path)
    KINDS["snapshot"].publish(run, NEW)
    stray = run.snapshots / step_name(NEW) / PARAMETERS / ".DS_Store"
    stray.write_bytes(b"x")
    assert main(["check", str(tmp_path), "--repair", "--dry-run"]) == 1
    words = "snapshots/00000020/parameters/.DS_Store: not in the manifest of its step:"
    assert f"{words} would be deleted\n" in capsys.readouterr().err
    assert stray.exists()
    assert main(["check", str(tmp_path), "--repair"]) == 0
    assert f"{words} deleted\n" in capsys.readouterr().err
    assert not stray.exists()
    assert commit.latest(run.snapshots) == NEW
    KINDS["snapshot"].assert_intact(run, NEW)


def test_repair_deletes_a_damaged_step_with_its_unpublished_files(tmp_path):
    run = RunDir(tmp_path)
    KINDS["snapshot"].publish(run, NEW)
    folder = run.snapshots / step_name(NEW)
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "config.json").unlink()
    assert [one["done"] for one in repair(run.root)] == ["deleted", "deleted: no step is left"]
    assert not folder.exists()


def test_the_repair_command_in_an_error_message_works(tmp_path, capsys):
    run = RunDir(tmp_path)
    for step in (OLD, NEW):
        KINDS["index"].publish(run, step)
    for step, left in ((NEW, [OLD]), (OLD, [])):
        folder = run.published_index / step_name(step)
        (folder / "rows.npy").unlink()
        with pytest.raises(DamageError) as refused:
            KINDS["index"].assert_intact(run, step)
        command = refused.value.fix.split("realm ")[1].split()
        assert main([*command, "--dry-run"]) == 1
        assert main(command) == 0
        assert "steps: valid" in capsys.readouterr().err
        assert commit.steps(run.published_index) == left


def test_a_check_that_finds_damage_prints_the_repair_command(tmp_path, capsys):
    run = RunDir(tmp_path)
    for step in (OLD, NEW):
        KINDS["snapshot"].publish(run, step)
    for folder in (run.root, run.snapshots, run.snapshots / step_name(NEW)):
        assert main(["check", str(folder)]) == 0
        assert "--repair" not in capsys.readouterr().err
    (run.snapshots / step_name(NEW) / "config.json").write_text("{}")
    for folder, repaired in (
        (run.root, run.root),
        (run.snapshots, run.root),
        (run.snapshots / step_name(NEW), run.snapshots / step_name(NEW)),
    ):
        assert main(["check", str(folder)]) == 1
        assert capsys.readouterr().err.endswith(f"realm check --repair {repaired}\n")
    repair(run.root)
    files.write_bytes(run.config, b"{")
    assert main(["check", str(run.root)]) == 1
    assert "--repair" not in capsys.readouterr().err


def test_a_single_step_can_be_repaired(tmp_path):
    run = RunDir(tmp_path)
    for step in (OLD, NEW):
        KINDS["snapshot"].publish(run, step)
    (run.snapshots / step_name(OLD) / "config.json").unlink()
    (run.snapshots / step_name(NEW) / "config.json").unlink()
    repair(run.snapshots / step_name(NEW))
    assert commit.steps(run.snapshots) == [OLD]
    with pytest.raises(RealmError, match="nothing to repair"):
        repair(tmp_path / "nowhere")
