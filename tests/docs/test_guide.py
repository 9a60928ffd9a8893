"""Every page of the guide, and README.md, in a folder of its own, against the real program.

A page is one test: its marked blocks (blocks.py) in order. usage: test_guide.py [PAGE]...
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import blocks
from shell import Shell, same
from tap import main, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIDINGS = os.path.abspath(os.environ.get("TIDINGS", os.path.join(ROOT, "build", "tidings")))
WAIT_SECONDS = 60


def pages():
    guide = os.path.join(ROOT, "docs", "guide")
    return [os.path.join(ROOT, "README.md")] + [
        os.path.join(guide, name) for name in sorted(os.listdir(guide)) if name.endswith(".md")]


def late(number, frame):
    raise AssertionError("a command takes too long")


def console(shell, block, where):
    wait = block.kind in ("wait", "unordered")
    unordered = block.kind == "unordered"
    for command, shown in block.commands():
        end = time.monotonic() + WAIT_SECONDS
        printed = shell.run(command)
        while not same(shown, printed, unordered) and wait and time.monotonic() < end:
            time.sleep(0.1)
            printed = shell.run(command)
        assert same(shown, printed, unordered), (
            f"{where}: $ {command}\nshown:\n  " + "\n  ".join(shown) +
            "\nprinted:\n  " + "\n  ".join(printed))


def do(shell, block, where):
    if block.kind == "file":
        path = os.path.join(shell.folder, block.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(block.text)
    elif block.kind == "sql":
        done = subprocess.run(["sqlite3", "-bail", block.name], input=block.text, text=True,
                              cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, timeout=WAIT_SECONDS)
        assert done.returncode == 0 and done.stdout == "", f"{where}: {done.stdout}"
    elif block.kind == "background":
        (command, shown), = block.commands()
        assert not shown, f"{where}: what runs in the background shows nothing"
        shell.start(command)
    else:
        if block.kind == "terminate":
            shell.stop()
        console(shell, block, where)
        if block.kind == "stop":
            shell.stop(send=False)


def follow(page):
    folder = tempfile.mkdtemp(prefix="docs-")
    shell = Shell(folder, TIDINGS)
    try:
        for block in blocks.read(page):
            do(shell, block, f"{os.path.relpath(page, ROOT)}:{block.line}")
        shell.stop()
    finally:
        shell.close()
        shutil.rmtree(folder, ignore_errors=True)


def declare(page):
    def run():
        follow(page)
    run.__name__ = os.path.relpath(page, ROOT)
    test(run)


@test
def every_command_that_is_shown_is_run():
    found = [f"{os.path.relpath(page, ROOT)}:{line}" for page in pages()
             for line in blocks.unmarked_commands(page)]
    assert not found, f"console blocks without a marking: {found}"


signal.signal(signal.SIGALRM, late)
wanted = [os.path.abspath(name) for name in sys.argv[1:]]
for each in wanted or pages():
    declare(each)
main()
