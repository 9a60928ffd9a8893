#!/usr/bin/env python3
"""Who may include whom. Usage: arrows.py [ROOT]

    base <- core <- {relay, consumer, ops} <- {http, cli}
Drivers (store/X, broker/X, handler/X) see base, core and their interface in include/tidings; only
the registry beside them (store/, broker/, handler/) sees drivers. Tests may see everything.
"""
import os
import re

import source

# Folder of src/ -> folders of src/ that it may include, besides itself.
ALLOWED = {
    "base": set(),
    "core": {"base"},
    "config": {"base", "core"},
    "sqlite": {"base", "core"},
    "store": {"base", "core"},
    "broker": {"base", "core"},
    "handler": {"base", "core"},
    "relay": {"base", "core", "store", "broker"},
    "consumer": {"base", "core", "store", "broker", "handler"},
    "ops": {"base", "core", "config", "store", "broker", "handler"},
    "bench": {"base", "core"},  # measures: has its own way to the database, as an application has
    "http": {"base", "core", "config", "store", "broker", "handler", "relay", "consumer", "ops"},
    "cli": {"base", "core", "config", "store", "broker", "handler", "relay", "consumer", "ops",
            "bench", "http"},
}
REGISTRIES = ("store", "broker", "handler")
USES_SQLITE = ("store/sqlite", "broker/embedded")

# Folder -> public headers that it must not know.
INTERFACES = {"store.h", "broker.h", "handler.h"}
FORBIDDEN_PUBLIC = {
    "base": INTERFACES | {"message.h", "outbox.h", "consumer.h"},
    "core": {"broker.h", "outbox.h", "consumer.h"},
    "config": {"store.h", "broker.h", "outbox.h", "consumer.h"},
    "sqlite": INTERFACES | {"outbox.h", "consumer.h"},
    "store": {"broker.h", "handler.h"},
    "broker": {"store.h", "handler.h"},
    "handler": {"broker.h"},
}

# Header of a third party -> the only folders that may know it.
THIRD_PARTY = {
    "sqlite3.h": {"sqlite", "store/sqlite", "broker/embedded", "bench"},
    "yaml.h": {"config"},
}
# Single files that may know one all the same: `tidings bench` plays an application there.
THIRD_PARTY_FILES = {
    "src/cli/bench_db.c": {"sqlite3.h"},
}
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)


def part_of(path):
    """src/store/sqlite/x.c -> store/sqlite; src/base/x.c -> base."""
    folders = path.split("/")[1:-1]
    if folders and folders[0] in REGISTRIES:
        return "/".join(folders[:2])
    return folders[0] if folders else ""


def is_allowed(part, target):
    if part == target:
        return True
    above, _, driver = part.partition("/")
    if driver:
        return target in ("base", "core") or (target == "sqlite" and part in USES_SQLITE)
    if above in REGISTRIES and target.startswith(above + "/"):
        return True
    return target in ALLOWED[part]


def resolve(root, path, name):
    """The included file relative to root, or None if it is not one of ours."""
    for folder in (os.path.dirname(path), "src", "include"):
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.exists(os.path.join(root, candidate)):
            return candidate
    return None


def check_include(root, path, name):
    """The mistake in one #include, or None."""
    target = resolve(root, path, name)
    if path.startswith("include/"):
        if target and not target.startswith("include/"):
            return f"a public header must not include {target}"
        if name in THIRD_PARTY:
            return f"a public header must not include {name}"
        return None
    part = part_of(path)
    if target and target.startswith("src/") and not is_allowed(part, part_of(target)):
        return f"{part} must not include {part_of(target)} ({name})"
    if target and target.startswith("include/"):
        header = os.path.basename(target)
        if header in FORBIDDEN_PUBLIC.get(part.partition("/")[0], ()):
            return f"{part} must not know {name}"
    if (part not in THIRD_PARTY.get(name, (part,)) and
            name not in THIRD_PARTY_FILES.get(path, ())):
        return f"{part} must not know {name}; it belongs to {', '.join(sorted(THIRD_PARTY[name]))}"
    return None


def main():
    root = source.top()
    mistakes = []
    for path in source.c_files(root, ("include", "src")):
        if path.startswith("src/") and part_of(path).partition("/")[0] not in ALLOWED:
            mistakes.append(f"{path}:1: its folder has no row in scripts/check/arrows.py")
            continue
        text = source.blank_comments(source.read(root, path))
        for match in INCLUDE.finditer(text):
            mistake = check_include(root, path, match.group(2))
            if mistake:
                mistakes.append(f"{path}:{source.line_of(text, match.start(1))}: {mistake}")
    source.finish(mistakes)


if __name__ == "__main__":
    main()
