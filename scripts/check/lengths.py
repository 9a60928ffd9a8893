#!/usr/bin/env python3
"""Files of at most 1,000 lines, functions of at most 90. Usage: lengths.py [ROOT]

The style asks for 500 and 70; clang-tidy holds the 70 in src/. This one also sees tests.
"""
import re

import source

FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 90
NAME = re.compile(r"(\w+)\s*\(")


def long_functions(path, text):
    """With our braces a function starts at a `{` and ends at a `}` in the first column."""
    mistakes = []
    name, start = None, 0
    for number, line in enumerate(source.blank_comments_and_strings(text).splitlines(), 1):
        if line.startswith("}") and start:
            if number - start - 1 > FUNCTION_LINES_MAX:
                mistakes.append(f"{path}:{start}: {name} has {number - start - 1} lines, "
                                f"at most {FUNCTION_LINES_MAX}")
            start = 0
        elif line.rstrip() == "{":
            start = number
        elif not line.startswith((" ", "\t", "#", "}")) and NAME.search(line):
            name = NAME.search(line).group(1)
    return mistakes


def main():
    root = source.top()
    mistakes = []
    for path in source.c_files(root):
        text = source.read(root, path)
        lines = text.count("\n")
        if lines > FILE_LINES_MAX:
            mistakes.append(f"{path}:1: {lines} lines, at most {FILE_LINES_MAX}")
        mistakes += long_functions(path, text)
    source.finish(mistakes)


if __name__ == "__main__":
    main()
