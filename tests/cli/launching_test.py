"""Launch scripts: their dry runs print valid commands and manifests for each cloud."""

import signal
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from support.launch_scripts import LAUNCH, printed, refused, script, words

from realm_jax import config as config_lib
from realm_jax.artifacts.export import read_export
from realm_jax.artifacts.verify import check
from realm_jax.cli import exit_codes
from realm_jax.storage.layout import RunDir

KUBERNETES = "1.33"
# Fields of JobSet v1alpha2 (its custom resource definition), as far as a manifest may set them.
JOBSET = {
    "": {"network", "successPolicy", "failurePolicy", "startupPolicy", "replicatedJobs"}
    | {"suspend", "managedBy", "coordinator", "ttlSecondsAfterFinished"},
    "network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
    "successPolicy": {"operator", "targetReplicatedJobs"},
    "failurePolicy": {"maxRestarts", "restartStrategy", "rules"},
    "rule": {"name", "action", "onJobFailureReasons", "targetReplicatedJobs"},
    "replicatedJob": {"name", "replicas", "template", "groupName", "dependsOn"},
}
ACTIONS = {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"}
REASONS = {"BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"}
REASONS |= {"PodFailurePolicy"}


def test_one_trainer_and_one_builder_are_started_by_realm_run(capsys):
    [line] = printed(
        capsys, "local", "--workdir=r", "--config=c.py", "--config.seed=3"
    ).splitlines()
    assert words(line) == ["realm", "run", "--workdir=r", "--config=c.py", "--config.seed=3"]


def test_several_processes_are_started_on_this_machine(capsys):
    asked = ("--workdir=r", "--config=c.py", "--processes=2", "--builders=2", "--devices=4")
    lines = [words(line) for line in printed(capsys, "local", *asked).splitlines()]
    assert [line[1] for line in lines] == ["train", "train", "index", "index"]
    places = {line[-3] for line in lines[:2]}
    assert len(places) == 1 and places.pop().startswith("--coordinator=localhost:")
    assert [line[-2:] for line in lines[:2]] == [
        ["--processes=2", f"--process={n}"] for n in (0, 1)
    ]
    assert all("--devices=4" in line for line in lines)
    assert [line[3] for line in lines[2:]] == ["--worker=0/2", "--worker=1/2"]


def test_builders_know_the_last_step_of_the_trainer_that_starts_with_them(capsys, tmp_path):
    (tmp_path / "c.py").write_text(
        "from realm_jax import config\n\ndef get_config():\n    return config.default()\n"
    )
    given = ("local", "--workdir=r", "--builders=2")
    own = f"--config={tmp_path / 'c.py'}"
    steps = config_lib.default().stages.realm.steps
    for flags, last in (
        ([own], f"--last-step={steps}"),
        ([own, "--config.stages.realm.steps=12"], "--last-step=12"),
        (["--config=elsewhere.py", "--config.stages.realm.steps=1_000"], "--last-step=1000"),
        (["--config=elsewhere.py"], "--worker=1/2"),
    ):
        assert words(printed(capsys, *given, *flags).splitlines()[-1])[-1] == last


def test_a_config_that_is_valid_with_its_start_only_is_the_trainers_to_check(capsys):
    start = ["--config.model.start=ORG/NAME", "--config.lengths.indexed=1024"]
    given = ("local", "--workdir=r", "--config=own_corpus", "--builders=2")
    assert "--last-step=300" in printed(capsys, *given, *start)


def test_if_one_process_fails_the_others_are_stopped(tmp_path, monkeypatch):
    local, started, start = script("local"), [], subprocess.Popen
    monkeypatch.setattr(
        local.subprocess, "Popen", lambda command: started.append(start(command)) or started[-1]
    )
    index = ["realm", "index", f"--workdir={tmp_path}", "--worker=1/2"]
    wanted = [index, ["realm", "check", str(tmp_path / "no")]]
    assert local.run(wanted) == exit_codes.ERROR
    assert [one.returncode for one in started] in (
        [exit_codes.STOPPED, exit_codes.ERROR],
        [-signal.SIGTERM, exit_codes.ERROR],  # before it handles the signal
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (exit_codes.DONE, exit_codes.STOPPED),
        (exit_codes.STOPPED, exit_codes.STOPPED),
        (exit_codes.ERROR, exit_codes.ERROR),
        (-signal.SIGKILL, exit_codes.ERROR),
    ],
)
def test_after_a_signal_a_process_that_fails_decides_the_exit_code(monkeypatch, code, expected):
    end = f"os.kill(os.getpid(), {-code})" if code < 0 else f"os._exit({code})"
    body = f"import os, signal, sys; signal.signal(15, lambda *_: {end}); print(flush=True)"
    stubborn = [sys.executable, "-c", f"{body}; signal.pause()"]
    local, start = script("local"), subprocess.Popen

    def started(command):
        process = start(stubborn, stdout=subprocess.PIPE)
        with process.stdout as ready:
            ready.readline()  # from now on, it handles SIGTERM
        return process

    monkeypatch.setattr(local.subprocess, "Popen", started)
    monkeypatch.setattr(local.time, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    assert local.run([["realm", "train"]]) == expected


@pytest.mark.slow
def test_two_trainers_and_two_builders_finish_a_run(tiny, tmp_path):
    config = tmp_path / "config.py"
    config.write_text(
        "from support.tiny_corpus import tiny_config\n\n"
        f"def get_config():\n    return tiny_config({str(tiny.folder)!r}, stages__realm__steps=4)\n"
    )
    asked = [f"--workdir={tmp_path / 'run'}", f"--config={config}", "--devices=2"]
    assert script("local").main([*asked, "--processes=2", "--builders=2"]) == exit_codes.DONE
    assert (tmp_path / "run" / "END.json").exists()
    assert read_export(RunDir(tmp_path / "run")).step == 4
    assert check(RunDir(tmp_path / "run").root)["ok"]


@pytest.mark.parametrize("name", ["local", "cloud_tpu", "gke_jobset"])
def test_an_argument_that_is_not_an_override_is_refused(capsys, name):
    needed = ("--workdir=r", "--config=c.py") if name == "local" else ()
    assert "--config.KEY=VALUE" in refused(capsys, name, *needed, "--stages=3")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--name=Realm", "lower-case"),
        ("--name=realm;rm", "lower-case"),
        ("--zone=us-central2-b", "us-west4-a"),
        ("--bucket=gs://B", "lower-case"),
        ("--trainer=v5e-64", "v5e: 2x2"),
        ("--trainer=v5e-64", "where:    --trainer"),
        ("--config=experiments/none.py", "no such config file"),
        ("--config.stages.realm.stepz=3", "did you mean 'stages.realm.steps'"),
        ("--config.stages.realm.steps=many", "wrong type"),
        ("--config.model.heads=5", "divisor"),
    ],
)
def test_names_zones_buckets_and_configs_are_checked(capsys, argument, message):
    assert message in refused(capsys, "cloud_tpu", argument)


def test_config_keys_are_checked_if_the_config_is_in_an_image(capsys):
    message = refused(capsys, "gke_jobset", "--config.stages.realm.stepz=3")
    assert "did you mean 'stages.realm.steps'" in message
    assert "where:    --trainer" in refused(capsys, "gke_jobset", "--trainer=v5e-64")


@pytest.mark.parametrize(
    ("name", "flag"),
    [("gke_jobset", "--builders=-1"), ("cloud_tpu", "--builders=-1"), ("local", "--processes=0")],
)
def test_too_few_machines_are_wrong_usage(capsys, name, flag):
    needed = ("--workdir=r", "--config=c.py") if name == "local" else ()
    with pytest.raises(SystemExit) as end:
        script(name).main([*needed, flag, "--dry_run"])
    assert end.value.code == exit_codes.USAGE
    assert "at least" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("cloud_tpu", "--bucket=b-1", "--project"),
        ("cloud_tpu", "--project=p", "--bucket"),
        ("gke_jobset", "--bucket=b-1", "--image"),
    ],
)
def test_without_required_names_no_machine_is_requested(capsys, monkeypatch, name, given, missing):
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    assert script(name).main([given]) == exit_codes.ERROR
    assert f"where:    {missing}" in capsys.readouterr().err
    assert not asked


@pytest.fixture
def jobset(capsys):
    asked = ("--bucket=b-1", "--image=r/i:1", "--trainer=v5p:4x4x4", "--builders=4")
    override = "--config.corpus.knowledge=$(JOB_COMPLETION_INDEX)"
    return yaml.safe_load(printed(capsys, "gke_jobset", *asked, override))


def test_the_jobset_has_only_fields_of_its_schema(jobset):
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobset.keys() == {"apiVersion", "kind", "metadata", "spec"}
    spec = jobset["spec"]
    assert spec.keys() <= JOBSET[""]
    for part in ("network", "successPolicy", "failurePolicy"):
        assert spec[part].keys() <= JOBSET[part]
    for rule in spec["failurePolicy"]["rules"]:
        assert {"name", "action"} <= rule.keys() <= JOBSET["rule"]
        assert rule["action"] in ACTIONS and set(rule["onJobFailureReasons"]) <= REASONS
    for job in spec["replicatedJobs"]:
        assert job.keys() <= JOBSET["replicatedJob"] and isinstance(job["replicas"], int)


def test_its_jobs_have_only_fields_of_the_batch_api(jobset):
    for job in jobset["spec"]["replicatedJobs"]:
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
        kubernetes_validate.validate({**whole, **job["template"]}, KUBERNETES, strict=True)
        wrong = {**whole, "spec": {**job["template"]["spec"], "parallelisme": 3}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_each_machine_of_a_slice_has_a_pod(jobset):
    trainer, builder = (job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"])
    assert (trainer["completions"], builder["completions"]) == (16, 4)
    assert (trainer["parallelism"], builder["parallelism"]) == (16, 4)
    assert [job["replicas"] for job in jobset["spec"]["replicatedJobs"]] == [1, 1]
    shapes = [
        job["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
        for job in (trainer, builder)
    ]
    assert shapes == ["4x4x4", "2x2x1"]


def test_eight_chips_are_two_pods_on_nodes_of_four_chips(capsys):
    manifest = yaml.safe_load(printed(capsys, "gke_jobset", "--trainer=v6e:2x4"))
    trainer = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert trainer["completions"] == 2
    pod = trainer["template"]["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-accelerator-count"] == "4"
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    assert "--processes=2" in pod["containers"][0]["command"]


def test_its_hosts_get_the_address_of_the_headless_service(jobset):
    [container] = pod_of(jobset, 0)["containers"]
    service = jobset["spec"]["network"]["subdomain"]
    assert f"--coordinator=realm-trainer-0-0.{service}:8476" in container["command"]
    assert {"--processes=16", "--process=$(JOB_COMPLETION_INDEX)"} <= set(container["command"])
    # also the default of Kubernetes
    assert "--config.corpus.knowledge=$$(JOB_COMPLETION_INDEX)" in container["command"]


def test_each_builder_has_the_number_of_its_pod(jobset):
    [container] = pod_of(jobset, 1)["containers"]
    assert "--worker=$(JOB_COMPLETION_INDEX)/4" in container["command"]
    assert "env" not in container  # Kubernetes sets that variable in indexed jobs


def test_a_jobset_without_builders_has_only_the_trainer(capsys):
    manifest = yaml.safe_load(printed(capsys, "gke_jobset", "--builders=0"))
    assert [job["name"] for job in manifest["spec"]["replicatedJobs"]] == ["trainer"]


def test_resumable_exit_codes_restart_the_jobset_without_a_failure_count(jobset):
    [rule] = jobset["spec"]["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    for job in jobset["spec"]["replicatedJobs"]:
        [stopped] = job["template"]["spec"]["podFailurePolicy"]["rules"]
        assert stopped["action"] == "FailJob"
        assert stopped["onExitCodes"]["values"] == [exit_codes.STOPPED, exit_codes.PEER_GONE]
        assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def pod_of(jobset, number):
    return jobset["spec"]["replicatedJobs"][number]["template"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", ["cloud_tpu", "gke_jobset", "local"])
def test_the_scripts_do_not_import_jax(name):
    imported = f"import sys; sys.path.append({str(LAUNCH)!r}); import {name}"
    code = f"{imported}; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
