"""Links between the pages lead somewhere: to a file of the project, and to a heading of it."""
import os
import re

from tap import main, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.M | re.S)


def pages():
    yield os.path.join(ROOT, "README.md")
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".md"))


def read(path):
    with open(path, encoding="utf-8") as file:
        return CODE.sub("", file.read())


def anchors(path):
    """As GitHub and GitLab make them of headings."""
    titles = re.findall(r"^#+ (.+)$", read(path), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@test
def every_link_leads_somewhere():
    broken = []
    for page in pages():
        for link in LINK.findall(read(page)):
            if link.startswith(("http://", "https://")):
                continue
            name, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
            if not os.path.exists(target) or (anchor and anchor not in anchors(target)):
                broken.append(f"{os.path.relpath(page, ROOT)}: {link}")
    assert not broken, broken


PATH = re.compile(r"^(src|tests|include|scripts|docs|examples|cmake|bench)/[\w./-]+$")
NAME = re.compile(r"^[a-z]\w*_\w+$")


@test
def the_files_and_tests_that_are_named_exist():
    """In the pages for contributors: `a/path` exists, and what is named behind a test file is in it."""
    wrong = []
    for page in ("docs/ARCHITECTURE.md", "docs/HACKING.md"):
        for line in read(os.path.join(ROOT, page)).splitlines():
            current = None
            for code in re.findall(r"`([^`]+)`", line):
                if PATH.match(code) and "NAME" not in code:
                    current = os.path.join(ROOT, code)
                    if not os.path.exists(current):
                        wrong.append(f"{page}: {code}")
                elif current and "/tests/" in current and NAME.match(code) and os.path.isfile(current):
                    with open(current, encoding="utf-8") as file:
                        if not re.search(rf"\b{code}\b", file.read()):
                            wrong.append(f"{page}: {code} is not in {current}")
    assert not wrong, wrong


main()
