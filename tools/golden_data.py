#!/usr/bin/env python3
"""The golden data of tests/golden/data.tar.xz: `read` for other tools, and packing.

usage: golden_data.py FOLDER

Packs FOLDER into the archive, the same bytes for the same files. CMake unpacks it to <build>/golden: change files there,
or add some, and pack that folder again. Needs only the Python standard library.
"""
import lzma
import pathlib
import sys
import tarfile

ARCHIVE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "data.tar.xz"


def read(name):
    """The bytes of one file, such as "tokenizer/cases.json"."""
    with tarfile.open(ARCHIVE) as tar:
        return tar.extractfile(name).read()


def plain(entry):
    """Without what differs from one machine or day to the next."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__.strip())
    folder = pathlib.Path(sys.argv[1])
    # Weights of four-byte words: positions modulo four predict more than the bytes before do.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 2, "pb": 2, "dict_size": 1 << 25}]
    with lzma.open(ARCHIVE, "wb", format=lzma.FORMAT_XZ, filters=filters) as xz, tarfile.open(fileobj=xz, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if not path.name.startswith("."):
                tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=plain)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
