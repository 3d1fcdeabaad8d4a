#!/usr/bin/env python3
"""The golden data of tests/golden: `read` for other tools, and packing.

usage: golden_data.py FOLDER

Packs FOLDER into the archive of its name, data.tar.xz for "golden" and fixtures.tar.xz for "fixtures", the same bytes for the same
files. CMake unpacks them to <build>/golden and <build>/fixtures: change files there, or add some, and pack that folder again. Needs
only the Python standard library.
"""
import lzma
import pathlib
import sys
import tarfile

HOME = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
ARCHIVES = {"golden": HOME / "data.tar.xz", "fixtures": HOME / "fixtures.tar.xz"}


def read(name, folder="golden"):
    """The bytes of one file, such as "tokenizer/cases.json"."""
    with tarfile.open(ARCHIVES[folder]) as tar:
        return tar.extractfile(name).read()


def plain(entry):
    """Without what differs from one machine or day to the next."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else "")
    if not folder.is_dir() or folder.name not in ARCHIVES:
        sys.exit(__doc__.strip())
    archive = ARCHIVES[folder.name]
    # Weights of four-byte words: positions modulo four predict more than the bytes before do.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 2, "pb": 2, "dict_size": 1 << 25}]
    with lzma.open(archive, "wb", format=lzma.FORMAT_XZ, filters=filters) as xz, tarfile.open(fileobj=xz, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if not path.name.startswith("."):
                tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=plain)
    print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main()
