"""The demonstration of README.md: it ends well, and prints the table that README.md shows."""
import os
import shutil
import subprocess
import sys
import tempfile

from shell import plain
from tap import main, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIDINGS = os.path.abspath(os.environ.get("TIDINGS", os.path.join(ROOT, "build", "tidings")))
DEMO_SECONDS = 240
VARIES = ("tidings ", "placing ", "duplicates ignored")  # figures that differ from run to run


def shown():
    """The lines of the block that begins with `make demo`."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        lines = file.read().split("    $ make demo\n", 1)[1].splitlines()
    end = next(at for at, line in enumerate(lines) if line and not line.startswith("    "))
    return [plain(line) for line in lines[:end] if line.strip()]


@test
def the_demonstration_prints_what_the_readme_shows():
    folder = tempfile.mkdtemp(prefix="demo-")
    try:
        example = os.path.join(folder, "examples", "orders")
        shutil.copytree(os.path.join(ROOT, "examples", "orders"), example,
                        ignore=shutil.ignore_patterns("data", "__pycache__"))
        done = subprocess.run([sys.executable, os.path.join(example, "demo.py"), TIDINGS],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=DEMO_SECONDS)
        assert done.returncode == 0, done.stdout
        printed = {plain(line) for line in done.stdout.splitlines()}
        missing = [line for line in shown() if not line.startswith(VARIES)
                   and not line.startswith("build/") and not line.startswith("Next:")
                   and line not in printed]
        assert not missing, f"not printed: {missing}\n{done.stdout}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
