"""Code blocks of a Markdown page that carry a marking, in order.

A marking is an HTML comment on the line before a fenced block:

    <!-- test -->              console: run the commands, compare their output
    <!-- test: wait -->        the same, again and again until the output is as shown
    <!-- test: unordered -->   the same, and the lines may come in another order
    <!-- test: background -->  console: start the one command; it gets SIGTERM at the end of the page
                               (or by `stop`) and must end with 0
    <!-- test: stop -->        console: the commands that this block shows are run, then every program
                               of the background must end by itself
    <!-- test: terminate -->   every program of the background gets SIGTERM, then console
    <!-- test: file NAME -->   the block is the content of this file
    <!-- test: sql DB -->      sql: the statements are given to sqlite3

A command begins with `$ `; lines with `> ` continue it. The other lines are what it prints, stdout and
stderr. A line `...` stands for any lines, `...` inside a line for any text.
"""
import re

_MARK = re.compile(r"^<!-- test(?:: (\w+)(?: (\S+))?)? -->$")
_FENCE = re.compile(r"^```(\w*)$")
KINDS = {None, "wait", "unordered", "background", "stop", "terminate", "file", "sql"}


class Block:
    def __init__(self, line, kind, name, language, lines):
        self.line, self.kind, self.name, self.language, self.lines = line, kind, name, language, lines

    @property
    def text(self):
        return "".join(line + "\n" for line in self.lines)

    def commands(self):
        """(command, lines of its output) of a console block."""
        result = []
        for line in self.lines:
            if line.startswith("$ "):
                result.append((line[2:], []))
            elif line.startswith("> ") and result and not result[-1][1]:
                result[-1] = (result[-1][0] + "\n" + line[2:], [])
            else:
                result[-1][1].append(line)
        return result


def read(path):
    """Every marked block of a page. A marking that no block follows is a mistake."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    blocks = []
    at = 0
    while at < len(lines):
        mark = _MARK.match(lines[at])
        fence = _FENCE.match(lines[at])
        if "<!-- test" in lines[at] and (not mark or mark[1] not in KINDS):
            raise ValueError(f"{path}:{at + 1}: this marking is not known: {lines[at]}")
        if mark and (at + 1 == len(lines) or not _FENCE.match(lines[at + 1])):
            raise ValueError(f"{path}:{at + 1}: no block follows this marking")
        if fence:
            end = lines.index("```", at + 1)
            before = _MARK.match(lines[at - 1]) if at > 0 else None
            if before:
                blocks.append(Block(at + 1, before[1], before[2], fence[1], lines[at + 1:end]))
            at = end
        at += 1
    return blocks


def unmarked_commands(path):
    """Line numbers of console blocks without a marking: nobody would notice when they become wrong."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return [at + 1 for at, line in enumerate(lines)
            if line == "```console" and not (at > 0 and _MARK.match(lines[at - 1]))]
