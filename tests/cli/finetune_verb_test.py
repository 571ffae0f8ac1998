"""realm finetune on runs that it refuses."""

from support.finished_run import STEP

from realm_jax.data.open_qa import Question, questions_hash
from realm_jax.storage import commit


def test_finetune_refuses_a_run_without_pre_training(realm, copied, tmp_path):
    folder = tmp_path / "questions"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"question": "Who?", "answers": ["me"]}\n')
    command = ["finetune", f"--workdir={copied.workdir}", f"--questions={folder}"]
    kept = copied.config.read_bytes()
    realm(*command).refused("pre-training is not finished", "step 4", "realm run")
    assert copied.config.read_bytes() == kept  # a refused command changes nothing
    checkpoints = copied.checkpoints("realm")
    commit.publish(checkpoints, 6, lambda folder: None, {"kind": "checkpoint"})
    realm(*command).refused("more steps than the config asks for", "step 4", "stages.realm.steps=6")
    assert copied.config.read_bytes() == kept
    command[2] = f"--questions={tmp_path / 'none'}"
    realm(*command).refused("no question file", "train.jsonl")


def test_a_refused_second_fine_tuning_changes_nothing(realm, copied, tmp_path):
    """It once kept the refused settings, so that the command of the first one was refused too."""
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    fields = {"kind": "checkpoint", "index_step": STEP, "retriever": "dense", "reader_from": ""}
    fields["questions"] = questions_hash([Question("Who?", ("me",))])
    commit.publish(copied.checkpoints("realm"), STEP, lambda folder: None, fields)
    commit.publish(copied.checkpoints("qa"), 4, lambda folder: None, fields)
    command = ["finetune", f"--workdir={copied.workdir}", f"--questions={questions}"]
    kept = copied.config.read_bytes()
    fewer = realm(*command, "--config.stages.qa.steps=2", "--dry-run")
    fewer.refused("fine-tuned for more steps", "--config.stages.qa.steps=4")
    other = realm(*command, "--config.stages.qa.retriever=bm25")
    other.refused("another stages.qa.retriever", "dense", "bm25")
    assert copied.config.read_bytes() == kept
    assert realm(*command, "--dry-run").code == 0


def test_a_fine_tuning_without_steps_or_questions_is_refused(realm, copied, tmp_path):
    """It once did nothing, and reported success."""
    fields = {"kind": "checkpoint"}
    commit.publish(copied.checkpoints("realm"), STEP, lambda folder: None, fields)
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    command = ["finetune", f"--workdir={copied.workdir}", f"--questions={questions}"]
    kept = copied.config.read_bytes()
    none = realm(*command, "--config.stages.qa.steps=0")
    none.refused("fine-tuning has no steps", "--config.stages.qa.steps=N")
    same = realm(*command, f"--without={questions}")
    same.refused("no question is left to train on", "1 questions, all of which", "--without=FILE")
    assert copied.config.read_bytes() == kept
