"""What the checks share: the list of C files, and C text without comments and strings."""
import os
import re
import sys

C_FOLDERS = ("include", "src", "tests", "fuzz", "bench", "examples")
_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


def top():
    """The tree to check: the first argument, or the one that this script lies in."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        return sys.argv[1]
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def c_files(root, folders=C_FOLDERS, suffixes=(".c", ".h")):
    """Paths of the C files, relative to root, in order."""
    found = []
    for folder in folders:
        for where, below, names in os.walk(os.path.join(root, folder)):
            below.sort()
            found += [os.path.relpath(os.path.join(where, name), root)
                      for name in sorted(names) if name.endswith(suffixes)]
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def blank_comments(text):
    """The text with comments replaced by spaces; positions and lines stay."""
    return _TOKEN.sub(lambda m: _blank(m) if m.group().startswith("/") else m.group(), text)


def blank_comments_and_strings(text):
    return _TOKEN.sub(_blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def finish(mistakes):
    """Print the mistakes and leave with 1 if there are any."""
    for mistake in mistakes:
        print(mistake)
    sys.exit(1 if mistakes else 0)
