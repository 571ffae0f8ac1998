"""What a build did not read, divided, cut or decoded, as lines for people."""

from collections.abc import Mapping
from typing import Any

from realm_jax.corpus.tally import Tally

_LONG = {
    "sentence_divided": "sentences longer than a passage were divided between words",
    "title_cut": "titles were cut to half a passage (their text is kept)",
}


def report_lines(report: Mapping[str, Any]) -> str:
    """Text that follows "passages of documents; ", from the summary of a store.

    A corpus of an earlier version has no names.
    """
    tallies = {
        name: Tally(report.get(name, {}), report.get(f"{name}_names", {}))
        for name in ("skipped", "long", "encodings")
    }
    skipped = tallies["skipped"]
    lines = [f"skipped: {skipped.total() or 'nothing'}", *skipped.lines()]
    for reason, count in tallies["long"].items():
        names = ", ".join(tallies["long"].names.get(reason, []))
        lines.append(f"long: {count} {_LONG.get(reason, reason)}: {names}")
    if tallies["encodings"]:
        lines.append("detected encodings (state another with --encoding):")
        lines += tallies["encodings"].lines()
    if report.get("repeated_ids"):
        lines.append(
            f"repeated ids: {report['repeated_ids']} of {report['documents_with_id']} documents "
            "with an id have that of an earlier document"
        )
    return "".join(f"{line}\n" for line in lines)
