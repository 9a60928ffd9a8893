#!/usr/bin/env python3
"""Every public prototype carries its labels. Usage: labels.py [ROOT]

A prototype in include/tidings/ has a comment right before it with Errors:, Ownership:, Threads:,
Blocking: and Since:. A slot of a struct td_*_driver has a comment, before it or on its last line.
"""
import re

import source

LABELS = ("Errors:", "Ownership:", "Threads:", "Blocking:", "Since:")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
SLOT = re.compile(r"\(\s*\*\s*(?:const\s+)?(\w+)\s*\)\s*\(")
DRIVER = re.compile(r"struct\s+td_\w+_driver\s*\{")
FUNCTION = re.compile(r"\b(td_\w+)\s*\((?!\s*\*)")
NOT_A_PROTOTYPE = re.compile(r"\s*(typedef\b|struct\s+\w+\s*\{|enum\s+\w+\s*\{|static\s+inline\b)")


def without_preprocessor(code):
    """Blank directives with their continuation lines."""
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*",
                  lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.MULTILINE)


def statements(code):
    """(start, end) of what stands at file scope, up to its ; or }."""
    depth = start = 0
    for position, char in enumerate(code):
        if char == "{":
            depth += 1
            if depth == 1 and re.fullmatch(r'\s*extern\s+"?\w*\s*"?\s*', code[start:position]):
                depth, start = 0, position + 1
        elif char == "}":
            depth = max(depth - 1, 0)
            if depth == 0 and ")" in code[start:position].split("{")[0]:
                start = position + 1
        elif char == ";" and depth == 0:
            yield start, position + 1
            start = position + 1


def comment_before(text, comments, position):
    """The comment that ends right before a position (only white space between), or None."""
    for begin, end in comments:
        if end <= position and not text[end:position].strip():
            return text[begin:end]
    return None


def has_slot_comment(text, comments, begin, end):
    """A slot's comment stands before the slot or after it on the line where it ends."""
    if comment_before(text, comments, begin):
        return True
    line_end = text.find("\n", end)
    return any(end <= start < line_end for start, _ in comments)


def check_slots(path, text, code, comments, begin, end):
    mistakes = []
    for slot in SLOT.finditer(code, begin, end):
        first = max(code.rfind(";", begin, slot.start()), code.rfind("{", begin, slot.start())) + 1
        first += len(code[first:]) - len(code[first:].lstrip())
        last = code.index(";", slot.start()) + 1
        if not has_slot_comment(text, comments, first, last):
            line = source.line_of(text, slot.start())
            mistakes.append(f"{path}:{line}: slot {slot.group(1)} has no comment")
    return mistakes


def check_header(path, text):
    mistakes = []
    comments = [match.span() for match in COMMENT.finditer(text)]
    code = without_preprocessor(source.blank_comments_and_strings(text))
    for begin, end in statements(code):
        begin += len(code[begin:end]) - len(code[begin:end].lstrip())
        statement = code[begin:end]
        if DRIVER.match(statement):
            mistakes += check_slots(path, text, code, comments, begin, end)
            continue
        function = FUNCTION.search(statement)
        if NOT_A_PROTOTYPE.match(statement) or not function:
            continue
        line = source.line_of(text, begin + function.start())
        comment = comment_before(text, comments, begin)
        missing = [label for label in LABELS if label not in (comment or "")]
        if comment is None:
            mistakes.append(f"{path}:{line}: {function.group(1)} has no comment")
        elif missing:
            mistakes.append(f"{path}:{line}: {function.group(1)} lacks {' '.join(missing)}")
    return mistakes


def main():
    root = source.top()
    mistakes = []
    for path in source.c_files(root, ("include",), (".h",)):
        mistakes += check_header(path, source.read(root, path))
    source.finish(mistakes)


if __name__ == "__main__":
    main()
