#!/usr/bin/env python3
"""clang-tidy 14 on the C files of src/. Usage: tidy.py [ROOT] [FILE...]

Compiles as build/dev does. A file that was found clean is not looked at again until its text, a
header of ours that it includes, its command or the configuration changes (.cache/tidy).
"""
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys

import source

CLANG = "clang-14"
CLANG_TIDY = "clang-tidy-14"
# build/dev may be gcc's: clang does not know all of its warnings, and they are not its business.
EXTRA = ["-Wno-unknown-warning-option", "-w"]


def dependencies(root, entry):
    """The files of ours that a source file consists of."""
    words = shlex.split(entry["command"])[1:]
    flags = [word for word in words if word.startswith(("-I", "-D", "-std"))]
    rule = subprocess.run([CLANG, "-MM", *flags, entry["file"]], cwd=entry["directory"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    names = rule.replace("\\\n", " ").split(":", 1)[1].split()
    return [os.path.join(entry["directory"], name) for name in names]


def configuration_files(root, path):
    """Every .clang-tidy from the root down to the file."""
    folders = [root]
    for part in os.path.relpath(os.path.dirname(path), root).split(os.sep):
        folders.append(os.path.join(folders[-1], part))
    names = [os.path.join(folder, ".clang-tidy") for folder in folders]
    return [name for name in names if os.path.exists(name)]


def key_of(root, entry, version):
    digest = hashlib.sha256(version)
    digest.update(entry["command"].encode())
    for name in dependencies(root, entry) + configuration_files(root, entry["file"]):
        with open(name, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def check(root, entry, version, cache):
    """What clang-tidy says about one file; empty when it is clean."""
    stamp = os.path.join(cache, key_of(root, entry, version))
    if os.path.exists(stamp):
        return ""
    extra = [f"--extra-arg={option}" for option in EXTRA]
    run = subprocess.run([CLANG_TIDY, "--quiet", "-p", os.path.join(root, "build", "dev"), *extra,
                          entry["file"]], cwd=root, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    if run.returncode == 0 and not run.stdout.strip():
        with open(stamp, "w", encoding="utf-8"):
            return ""
    return run.stdout or run.stderr


def main():
    root = os.path.abspath(source.top())
    database = os.path.join(root, "build", "dev", "compile_commands.json")
    if not os.path.exists(database):
        sys.exit("build/dev is not configured: scripts/build dev")
    with open(database, encoding="utf-8") as file:
        entries = {entry["file"]: entry for entry in json.load(file)
                   if entry["file"].startswith(os.path.join(root, "src") + os.sep)}
    wanted = [os.path.abspath(name) for name in sys.argv[2:]]
    cache = os.path.join(root, ".cache", "tidy")
    os.makedirs(cache, exist_ok=True)
    try:
        version = subprocess.run([CLANG_TIDY, "--version"], check=True,
                                 stdout=subprocess.PIPE).stdout
    except FileNotFoundError:
        sys.exit(f"{CLANG_TIDY} is missing: scripts/install-deps check")

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(check, root, entry, version, cache)
                for name, entry in sorted(entries.items()) if not wanted or name in wanted]
        for run in concurrent.futures.as_completed(runs):
            if run.result():
                failed += 1
                print(run.result().rstrip(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
