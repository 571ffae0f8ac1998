"""`realm status` and `realm doctor`: they report the state and change nothing."""

import sys

import pytest

from realm_jax.cli import doctor, extras
from realm_jax.storage import heartbeat
from realm_jax.storage.layout import RunDir

CONTRACT = {"stage", "step", "index_step", "staleness_steps", "builder", "heartbeat_age_s"}


@pytest.fixture
def going(tmp_path):
    run = RunDir(tmp_path)
    heartbeat.beat(run, "trainer", stage="ict", step=7)
    progress = {"state": "embedding", "done": 20, "total": 80, "eta_s": 300.0}
    heartbeat.beat(run, "index_builder", **progress)
    return run


def test_status_prints_all_documented_fields(realm, going):
    result = realm("status", f"--workdir={going.workdir}", "--json")
    assert result.code == 0
    assert result.json().keys() >= CONTRACT
    assert result.json()["builder"].keys() >= {"state", "done", "total", "eta_s"}
    assert result.out.count("\n") == 1


def test_status_prints_text(realm, going):
    lines = realm("status", f"--workdir={going.workdir}").out
    assert "ict, step 7" in lines
    assert "embedding 20 of 80 passages, 5 min left" in lines


def test_status_of_a_finished_run_and_of_a_missing_one(realm, finished, tmp_path):
    assert "ended" in realm("status", f"--workdir={finished.workdir}").out
    realm("status", f"--workdir={tmp_path / 'none'}").refused("no run here", "none")
    realm("status").refused("--workdir", code=2)


def test_status_watches_until_the_run_has_ended(realm, going, monkeypatch):
    from realm_jax.cli import status
    from realm_jax.storage import follow

    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            follow.mark_end(going)

    monkeypatch.setattr(status.time, "sleep", sleep)
    result = realm("status", f"--workdir={going.workdir}", "--watch", "--every=7")
    assert result.code == 0
    assert looks == [7.0, 7.0]
    assert result.out.count("trainer  ict, step 7") == 3
    assert result.out.rstrip().endswith("run      ended")
    both = realm("status", f"--workdir={going.workdir}", "--watch", "--json")
    both.refused("--json", code=2)


def test_status_works_without_importing_jax(going):
    import subprocess

    script = (
        "import sys; from realm_jax.cli.main import main; "
        f"code = main(['status', '--workdir={going.workdir}']); "
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_doctor_reports_the_machine(realm):
    result = realm("doctor", "--json")
    report = result.json()
    assert result.code == (1 if report["problems"] else 0)
    assert report["python"] == sys.version.split()[0]
    assert report["cores"] >= 1
    assert report["devices"] and all(device.startswith("cpu") for device in report["devices"])
    assert report["free_disk_gib"] > 0


def test_doctor_names_each_problem_that_stops_the_demo(realm, monkeypatch):
    monkeypatch.setattr(doctor, "_NEEDED_MEMORY", 1e6)
    monkeypatch.setattr(doctor, "_NEEDED_DISK", 1e6)
    monkeypatch.setattr(doctor, "_IMPORTED", ("jax", "realm_no_such_package"))
    result = realm("doctor")
    assert result.code == 1
    for word in ("GiB of memory", "GiB of disk", "realm_no_such_package cannot be imported"):
        assert word in result.err
    assert "can run" not in result.out


def test_doctor_prints_the_command_that_installs_a_missing_package(realm, monkeypatch):
    declared = {"": ["jax>=0.10", "realm-no-such-package>=2"], "gone": ["also-missing[x]>=1"]}
    monkeypatch.setattr(extras, "requirements", lambda: declared)
    result = realm("doctor")
    assert result.code == 1
    assert "pip install 'realm-no-such-package>=2'" in result.err
    assert "extra     [gone] missing" in result.out
    assert "pip install 'also-missing[x]>=1'" in result.out


def test_packages_that_are_too_old_count_as_missing():
    version = extras.version_of("numpy")
    assert extras.missing([f"numpy>={version}", "numpy", "numpy>=1.0.0"]) == []
    assert extras.missing(["numpy>=999", "jax[tpu]>=0.1", "numpy"])[0] == "numpy>=999"


def test_requirements_are_read_from_the_package_metadata():
    declared = extras.requirements()
    if not declared:
        pytest.skip("the package was not installed with pip")
    assert any(one.startswith("etils[epath]") for one in declared[""])
    assert [extras.name_of(one) for one in declared["tpu"]] == ["jax"]
