#!/usr/bin/env python3
"""Calls and words that the house style bans. Usage: banned.py [ROOT]"""
import re

import source

CALLS = {
    "time": "struct td_clock", "gettimeofday": "struct td_clock", "rand": "struct tdi_random",
    "srand": "struct tdi_random", "random": "struct tdi_random", "strcpy": "snprintf or tdi_*",
    "stpcpy": "snprintf or tdi_*", "strcat": "snprintf or tdi_*", "strncat": "snprintf or tdi_*",
    "sprintf": "snprintf", "vsprintf": "vsnprintf", "atoi": "tdi_*", "atol": "tdi_*",
    "atoll": "tdi_*", "atof": "tdi_*", "strtok": "tdi_*", "alloca": "an arena", "gets": "fgets",
}
# Only the base reads clocks and entropy; everybody else is given them.
BASE_ONLY = {
    "clock_gettime": "struct td_clock", "getrandom": "struct tdi_random",
    "getentropy": "struct tdi_random",
}
# Not a member (x.time, x->time), and with a parenthesis.
CALL = re.compile(r"(?<![\w.])(?<!->)(" + "|".join([*CALLS, *BASE_ONLY]) + r")\s*\(")
WORD = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
TYPEDEF = re.compile(r"^typedef\s+(?:struct|union)\b", re.MULTILINE)


def check(path, text):
    mistakes = []
    code = source.blank_comments_and_strings(text)
    for match in CALL.finditer(code):
        name = match.group(1)
        if name in BASE_ONLY and not path.startswith("src/"):
            continue
        if name in BASE_ONLY and path.startswith("src/base/"):
            continue
        mistakes.append((match.start(), f"{name}() is banned; use {(CALLS | BASE_ONLY)[name]}"))
    for match in WORD.finditer(text):
        mistakes.append((match.start(), f"{match.group()} in the code: do it or file an issue"))
    for match in TYPEDEF.finditer(code):
        mistakes.append((match.start(), "no typedef of a struct"))
    return [f"{path}:{source.line_of(text, position)}: {mistake}"
            for position, mistake in sorted(mistakes)]


def main():
    root = source.top()
    mistakes = []
    for path in source.c_files(root):
        mistakes += check(path, source.read(root, path))
    source.finish(mistakes)


if __name__ == "__main__":
    main()
