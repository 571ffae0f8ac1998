"""Which stored compile report a plan uses."""

import pytest

from realm_jax.planning.chips import slice_of
from realm_jax.planning.reference_reports import (
    REFERENCE_REPORTS,
    add_report,
    read_reports,
    reports_for,
)
from realm_jax.storage.failpoints import armed


@pytest.mark.parametrize(
    "name", sorted({one["topology"] for one in read_reports(REFERENCE_REPORTS)})
)
def test_a_slice_with_reports_is_planned_with_its_own(name):
    assert {one["topology"] for one in reports_for(slice_of(name)).values()} == {name}


def test_another_slice_of_the_same_chips_is_planned_with_theirs():
    found = {one["topology"] for one in reports_for(slice_of("v5e:4x4")).values()}
    assert len(found) == 1 and found.pop().endswith("v5e:8x8")


def test_reports_of_hours_survive_an_interruption_of_the_next_one(tmp_path):
    path = tmp_path / "reports.json"
    one, two = ({"topology": "v5e:8x8", "name": name} for name in ("embed", "realm/train"))
    add_report(path, one)
    with armed("file.write=short"), pytest.raises(OSError, match="failpoint"):
        add_report(path, two)
    assert read_reports(path) == [one]
    add_report(path, two)
    assert read_reports(path) == [one, two]
