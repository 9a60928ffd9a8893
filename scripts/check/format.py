#!/usr/bin/env python3
"""clang-format 14 on every C file. Usage: format.py [ROOT] [--fix]"""
import subprocess
import sys

import source

CLANG_FORMAT = "clang-format-14"


def main():
    root = source.top()
    files = source.c_files(root)
    if not files:
        return 0
    how = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror", "--ferror-limit=3"]
    try:
        code = subprocess.run([CLANG_FORMAT, "--style=file", *how, *files], cwd=root).returncode
    except FileNotFoundError:
        sys.exit(f"{CLANG_FORMAT} is missing: scripts/install-deps check")
    if code:
        print("`make format` puts it right")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
