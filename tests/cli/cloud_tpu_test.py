"""`launch/cloud_tpu.py`: its commands, and what the same command does the second time."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest
from support.launch_scripts import LAUNCH, commit, printed, script, words

from realm_jax.cli import exit_codes
from realm_jax.errors import RealmError

AWKWARD = 'it\'s $(date) `date` "$HOME"; x'


def remote(line):
    """Returns the shell script that a command runs on another machine."""
    [text] = [word for word in words(line) if word.startswith("--command=")]
    return text.removeprefix("--command=")


def test_cloud_tpu_requests_waits_installs_and_starts(capsys):
    asked = ("--project=p", "--bucket=b-1", "--trainer=v6e:4x4", "--builders=2", "--name=wiki")
    lines = [words(line) for line in printed(capsys, "cloud_tpu", *asked, "--spot").splitlines()]
    asking = [line for line in lines if line[3:5] == ["queued-resources", "create"]]
    assert [line[5] for line in asking] == ["wiki-trainer", "wiki-builder-0", "wiki-builder-1"]
    assert ["--accelerator-type=v6e-16" in line for line in asking] == [True, False, False]
    for line in asking:
        assert {"--runtime-version=v2-alpha-tpuv6e", "--zone=us-central1-b", "--spot"} <= set(line)
    order = [line.index("describe") for line in lines if "describe" in line]
    assert len(order) == 3
    assert sum(line[4:5] == ["scp"] for line in lines) == 3
    started = [word for line in lines for word in words(line[-1]) if "/2" in word]
    assert started == ["--worker=0/2", "--worker=1/2"]


def test_overrides_are_quoted_for_the_remote_shell(capsys):
    override = f"--config.corpus.knowledge={AWKWARD}"
    lines = printed(capsys, "cloud_tpu", "--trainer=v5e:2x2", override).splitlines()
    [started] = [remote(line) for line in lines if "realm train" in line]
    assert override in shlex.split(started)


def test_hosts_of_a_slice_get_the_coordinator_address(capsys):
    lines = printed(capsys, "cloud_tpu", "--trainer=v5e:4x4").splitlines()
    [started] = [remote(line) for line in lines if "realm train" in line]
    assert "--coordinator=auto" in shlex.split(started)
    for single in ("v5e:2x2", "v5e:2x4", "v6e:2x4"):
        lines = printed(capsys, "cloud_tpu", f"--trainer={single}").splitlines()
        assert not [line for line in lines if "--coordinator" in line]


def test_a_service_restarts_on_resumable_exit_codes(capsys):
    lines = printed(capsys, "cloud_tpu").splitlines()
    services = [remote(line) for line in lines if "systemd-run" in line]
    assert len(services) == 2
    codes = f"{exit_codes.STOPPED} {exit_codes.PEER_GONE} SIGABRT"
    wanted = f"--property=RestartForceExitStatus={codes}"
    assert all(wanted in shlex.split(text) for text in services)


CONFIG = "from realm_jax import config\n\ndef get_config():\n    return config.default()\n"


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """Returns the current folder, that of a stand-in for gcloud.

    It has NAME.state, `calls` with each change, and `failures`, one line for each query to fail.
    `code` is the repository of the script.
    """
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text(GCLOUD.format(folder=tmp_path))
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", str(gcloud.parent), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "code" / "launch").mkdir(parents=True)
    shutil.copy(LAUNCH / "cloud_tpu.py", tmp_path / "code" / "launch")
    (tmp_path / "code" / "setup.py").touch()
    (tmp_path / "code" / "c.py").write_text(CONFIG)
    commit(tmp_path / "code", "launch", "setup.py", "c.py")
    return tmp_path


@pytest.fixture
def tpu(cloud, monkeypatch):
    """Returns the script, which asks again without a pause."""
    module = script("cloud_tpu", cloud / "code" / "launch")
    monkeypatch.setattr(module, "_POLL", 0.0)
    return module


CLOUD = ["--project=p", "--bucket=b-1", "--name=w", "--trainer=v5e:2x2", "--config=c.py"]
GCLOUD = """#!/bin/bash
cd {folder}
case "$4" in
  describe)
    echo "$5" >> queries
    if [ -s failures ]; then sed -i 1d failures; echo "503: try again" >&2; exit 1; fi
    cat "$5.state" 2>/dev/null || {{ echo "NOT_FOUND: $5" >&2; exit 1; }} ;;
  list) ls | sed -n 's/\\.state$//p' ;;
  "") [ -e data ] && [ "$3" = gs://b-1/data/ ] ;;
  create) cp new "$5.state" 2>/dev/null || echo ACTIVE > "$5.state"; echo "create $5" >> calls ;;
  delete) rm "$5.state"; echo "delete $5" >> calls ;;
  *) echo "$4 ${{@: -1}}" >> calls ;;
esac
"""


def test_the_same_command_requests_lost_machines_and_starts_stopped_jobs(cloud, tpu, capfd):
    assert tpu.main(CLOUD) == exit_codes.DONE, capfd.readouterr().err
    calls = (cloud / "calls").read_text().splitlines()
    assert calls[:2] == ["create w-trainer", "create w-builder-0"]
    assert [call.split()[0] for call in calls[2:]] == ["scp", "ssh"] * 2
    (cloud / "calls").unlink()
    (cloud / "w-trainer.state").write_text("SUSPENDED")
    assert tpu.main(CLOUD) == exit_codes.DONE
    calls = (cloud / "calls").read_text().splitlines()
    assert calls[:2] == ["delete w-trainer", "create w-trainer"]
    assert [call.split()[0] for call in calls[2:]] == ["scp", "ssh"] * 2


def test_the_machines_get_the_code_of_the_scripts_repository(cloud, tpu):
    assert tpu.main(CLOUD) == exit_codes.DONE
    with tarfile.open(cloud / tpu.CODE) as archive:
        assert {"realm-jax/setup.py", "realm-jax/c.py"} <= set(archive.getnames())


def test_a_config_that_the_machines_would_not_get_is_refused(cloud, tpu, capsys):
    code, elsewhere = cloud / "code", cloud / "d.py"
    for path in (code / "new.py", elsewhere):
        path.write_text(CONFIG)
    for config in ("new.py", str(elsewhere)):
        assert tpu.main([*CLOUD, f"--config={config}"]) == exit_codes.ERROR
        assert "is not in HEAD" in capsys.readouterr().err
    (code / "c.py").write_text(CONFIG + "# changed\n")
    assert tpu.main(CLOUD) == exit_codes.ERROR
    assert "differs from HEAD" in capsys.readouterr().err
    assert not (cloud / "calls").exists()


def test_an_absolute_path_in_the_repository_is_a_relative_one_on_the_machines(cloud, tpu):
    assert tpu.parse([*CLOUD, f"--config={cloud / 'code' / 'c.py'}"]).config == "c.py"


def test_nothing_is_requested_for_a_bucket_without_data(cloud, tpu, capfd):
    (cloud / "data").rmdir()
    assert tpu.main(CLOUD) == exit_codes.ERROR
    assert "gcloud storage ls gs://b-1/data/" in capfd.readouterr().err
    assert not (cloud / "calls").exists()


def test_a_machine_that_is_lost_while_waiting_is_an_error_with_a_fix(tpu):
    with pytest.raises(RealmError, match=r"(?s)deleted.*requests it again"):
        tpu.wait(tpu.parse(CLOUD))


def test_queries_that_fail_are_repeated_during_the_wait(cloud, tpu):
    for name in ("w-trainer", "w-builder-0"):
        (cloud / f"{name}.state").write_text("ACTIVE")
    (cloud / "failures").write_text("once\n" * 3)
    tpu.wait(tpu.parse(CLOUD))
    (cloud / "failures").write_text("once\n" * 1000)
    (cloud / "queries").unlink()
    with pytest.raises(RealmError, match="503: try again"):
        tpu.wait(tpu.parse(CLOUD))
    assert len((cloud / "queries").read_text().splitlines()) == tpu._RETRIES + 1


def test_delete_deletes_all_machines_of_the_name_and_no_other(cloud, tpu, capfd):
    assert tpu.main([*CLOUD, "--builders=3"]) == exit_codes.DONE
    [command] = [line for line in capfd.readouterr().err.splitlines() if "--delete" in line]
    (cloud / "w-2-trainer.state").touch()
    arguments = shlex.split(command.partition("cloud_tpu.py ")[2])
    for _ in range(2):  # the second time, nothing is left to delete
        assert tpu.main(arguments) == exit_codes.DONE
    assert [path.name for path in cloud.glob("*.state")] == ["w-2-trainer.state"]
    deleted = [call for call in (cloud / "calls").read_text().splitlines() if "delete" in call]
    machines = ["builder-0", "builder-1", "builder-2", "trainer"]
    assert deleted == [f"delete w-{name}" for name in machines]


def test_an_error_after_the_requests_names_the_machines_and_the_command(cloud, tpu, capfd):
    (cloud / "new").write_text("FAILED")
    assert tpu.main(CLOUD) == exit_codes.ERROR
    message = capfd.readouterr().err
    assert "w-trainer, w-builder-0" in message and "--name=w --trainer=v5e:2x2 --delete" in message


def test_ctrl_c_during_the_wait_names_the_machines_without_a_traceback(cloud):
    (cloud / "new").write_text("WAITING_FOR_RESOURCES")
    command = [sys.executable, cloud / "code" / "launch" / "cloud_tpu.py", *CLOUD]
    # A shell starts background jobs, such as this test may be, with SIGINT ignored.
    restored = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    restored += "os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", restored, *command]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "w-trainer: waiting" in line:
                process.send_signal(signal.SIGINT)
                break
        message = process.communicate(timeout=60)[1]
    assert process.returncode == exit_codes.STOPPED
    assert "Traceback" not in message
    assert "w-trainer, w-builder-0" in message and "--delete" in message


@pytest.mark.parametrize(("state", "starts"), [("active", 0), ("activating", 0), ("failed", 1)])
def test_a_job_is_started_only_if_it_does_not_run(capsys, tmp_path, state, starts):
    lines = printed(capsys, "cloud_tpu", "--trainer=v5e:2x2").splitlines()
    [text] = [remote(line) for line in lines if "realm train" in line]
    for name in ("tar", "sudo", "gcloud", "python3.11", "venv/bin/pip", "systemctl"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True, parents=True)
        program.write_text(f"#!/bin/sh\necho {name} $* >> {tmp_path}/calls\necho {state}\n")
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "USER": "u"}
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("systemd-run" in call and "realm train" in call for call in calls) == starts
    assert sum(call.startswith("venv/bin/pip install") for call in calls) == starts
