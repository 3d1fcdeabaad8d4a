#!/usr/bin/env python3
"""Sums up what gcov says of a build folder: lines of src/ that some test ran, of those that could be.

usage: coverage_summary.py BUILD_FOLDER AT_LEAST_PERCENT

A line counts once, however many objects hold it (headers, templates), and as run when one of them ran it.
Threads add to the counters without locks, so that a count may come out wrong, even negative; only zero or not
is read. src/kernels/cuda is left out: it runs on a GPU only.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = ("src/kernels/cuda/",)


def lines_of(notes: pathlib.Path):
    """[(file, line, ran)] of one object; one that no test loaded has notes and no counts."""
    report = subprocess.run(["gcov", "--json-format", "--stdout", str(notes)], cwd=notes.parent, check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    found = []
    for document in report.splitlines():
        if not document.startswith(b"{"):
            continue
        unit = json.loads(document)
        for entry in unit["files"]:
            path = os.path.normpath(os.path.join(unit["current_working_directory"], entry["file"]))
            name = os.path.relpath(path, SOURCE)
            if name.startswith("src/") and not name.startswith(LEFT_OUT):
                found += [(name, line["line_number"], line["count"] != 0) for line in entry["lines"]]
    return found


def main() -> int:
    build, at_least = pathlib.Path(sys.argv[1]).resolve(), float(sys.argv[2])
    objects = sorted(build.rglob("*.gcno"))
    if not objects:
        sys.exit(f"{build}: expected *.gcno files of a build with --coverage, got none")
    ran = collections.defaultdict(dict)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lines_of, objects):
            for name, line, is_run in found:
                ran[name][line] = ran[name].get(line, False) or is_run

    folders = collections.defaultdict(lambda: [0, 0])
    for name, lines in ran.items():
        for key in ("/".join(name.split("/")[:2]), "src"):
            folders[key][0] += sum(lines.values())
            folders[key][1] += len(lines)
    worst = sorted(ran, key=lambda name: sum(ran[name].values()) - len(ran[name]))[:10]
    print("most lines that nothing runs:")
    for name in worst:
        missing = sorted(line for line, is_run in ran[name].items() if not is_run)
        print(f"  {name:<44} {len(missing):>4} of {len(ran[name]):>4}: {' '.join(map(str, missing[:12]))}")
    print("line coverage:")
    for folder in sorted(folders, key=lambda folder: (folder == "src", folder)):
        count, of = folders[folder]
        print(f"  {folder:<16} {count:>6} of {of:>6}  {100 * count / of:5.1f}%")
    count, of = folders["src"]
    return 0 if 100 * count >= at_least * of else 1


if __name__ == "__main__":
    sys.exit(main())
