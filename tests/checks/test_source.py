"""Each source check must find a bad sample and pass a good one."""
import os
import shutil
import subprocess
import sys
import tempfile

from tap import Skip, main, test

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

GOOD_COMMENT = """/**
 * What it does.
 *
 * Errors:    none
 * Ownership: none
 * Threads:   any
 * Blocking:  none
 * Since:     0.1
 */
"""


def run(check, files):
    """What a check says about a tree of {path: text}: exit code and output."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        if check == "format":
            shutil.copy(os.path.join(TOP, ".clang-format"), root)
        done = subprocess.run([sys.executable, f"{TOP}/scripts/check/{check}.py", root],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout


def finds(check, files, *wanted):
    code, output = run(check, files)
    assert code == 1, f"exit code {code}: {output}"
    for text in wanted:
        assert text in output, f"'{text}' is not in: {output}"


def passes(check, files):
    code, output = run(check, files)
    assert code == 0, f"exit code {code}: {output}"


HEADERS = {name: "\n" for name in (
    "include/tidings/store.h", "include/tidings/broker.h", "include/tidings/error.h",
    "src/base/buf.h", "src/core/retry.h", "src/sqlite/db.h", "src/store/registry.h",
    "src/store/sqlite/driver.h", "src/relay/relay.h")}


def arrow(path, include):
    return {**HEADERS, path: f"/* x */\n#include {include}\n"}


@test
def arrows_finds_wrong_ones():
    for path, include in (
            ("src/base/a.c", '"core/retry.h"'),
            ("src/base/a.c", '"tidings/store.h"'),
            ("src/core/a.c", '<tidings/broker.h>'),
            ("src/core/a.c", '"relay/relay.h"'),
            ("src/config/a.c", '"tidings/store.h"'),
            ("src/relay/a.c", '"sqlite/db.h"'),
            ("src/relay/a.c", '"store/sqlite/driver.h"'),
            ("src/relay/a.c", '<sqlite3.h>'),
            ("src/consumer/a.c", '"relay/relay.h"'),
            ("src/cli/a.c", '"store/sqlite/driver.h"'),
            ("src/cli/a.c", '"../store/sqlite/driver.h"'),
            ("src/handler/sql/a.c", '"store/sqlite/driver.h"'),
            ("src/handler/sql/a.c", '"store/registry.h"'),
            ("src/broker/embedded/a.c", '"tidings/store.h"'),
            ("src/ops/a.c", '<yaml.h>'),
            ("src/new/a.c", '"base/buf.h"'),
            ("include/tidings/a.h", '"base/buf.h"')):
        finds("arrows", arrow(path, include), f"{path}:")


@test
def arrows_passes_right_ones():
    for path, include in (
            ("src/base/a.c", '"tidings/error.h"'),
            ("src/base/a.c", '"buf.h"'),
            ("src/core/a.c", '"base/buf.h"'),
            ("src/relay/a.c", '"core/retry.h"'),
            ("src/store/registry.c", '"store/sqlite/driver.h"'),
            ("src/store/sqlite/a.c", '"sqlite/db.h"'),
            ("src/store/sqlite/a.c", '<sqlite3.h>'),
            ("src/broker/embedded/a.c", '"sqlite/db.h"'),
            ("src/handler/sql/a.c", '"tidings/store.h"'),
            ("src/cli/a.c", '"store/registry.h"'),
            ("src/cli/a.c", '<stdio.h>'),
            ("include/tidings/a.h", '"tidings/error.h"')):
        passes("arrows", arrow(path, include))
    passes("arrows", {**HEADERS, "src/base/a.c": '/*\n#include "core/retry.h"\n*/\n'})


@test
def labels_finds_missing_ones():
    path = "include/tidings/a.h"
    finds("labels", {path: "\nint td_a(int x);\n"}, f"{path}:2: td_a has no comment")
    for label in ("Errors:", "Ownership:", "Threads:", "Blocking:", "Since:"):
        text = GOOD_COMMENT.replace(label, "Nothing:") + "int td_a(int x);\n"
        finds("labels", {path: text}, "td_a lacks", label)
    two = GOOD_COMMENT + "int td_a(int x);\nint td_b(void (*fn)(int),\n         int y);\n"
    finds("labels", {path: two}, "td_b has no comment")
    quoted = '#ifdef __cplusplus\nextern "C" {\n#endif\nint td_c(void);\n#ifdef __cplusplus\n}\n#endif\n'
    finds("labels", {path: quoted}, "td_c has no comment")
    inline = "static inline int td_d(void)\n{\n    return 1;\n}\nint td_e(void);\n"
    finds("labels", {path: inline}, "td_e has no comment")
    slots = "struct td_x_driver {\n    /* yes */\n    int (*one)(int);\n\n    int (*two)(int a,\n               int b);\n};\n"
    finds("labels", {path: slots}, f"{path}:5: slot two has no comment")


@test
def labels_passes_complete_ones():
    text = (GOOD_COMMENT + "TD_NODISCARD enum td_err td_a(int x)\n    TD_PRINTF(1, 2);\n"
            "typedef int(td_fn)(int x);\nenum td_x { A, B };\nstruct td_s {\n    td_t (*f)(int);\n};\n"
            "#define TD_CALL(x) \\\n    td_call(x)\n"
            "struct td_x_driver {\n    /* yes */\n    int (*one)(int);\n    int (*two)(int); /* yes */\n};\n")
    passes("labels", {"include/tidings/a.h": text})
    passes("labels", {"src/base/a.h": "int tdi_a(int x);\n"})


@test
def lengths_finds_long_files_and_functions():
    finds("lengths", {"src/base/a.c": "\n" * 1001}, "src/base/a.c:1: 1001 lines")
    passes("lengths", {"src/base/a.c": "\n" * 1000})
    body = "int long_one(void)\n{\n" + "    f();\n" * 91 + "}\n"
    finds("lengths", {"tests/a.c": body}, "tests/a.c:2: long_one has 91 lines")
    passes("lengths", {"tests/a.c": body.replace("    f();\n", "", 1)})


@test
def banned_finds_calls_and_words():
    for call in ("time(NULL)", "rand()", "strcpy(a, b)", "strcat(a, b)", "sprintf(a, b)", "atoi(a)",
                 "strtok(a, b)", "alloca(3)", "gets(a)", "clock_gettime(0, &t)"):
        finds("banned", {"src/core/a.c": f"int x = 1;\nint y = {call};\n"}, "src/core/a.c:2:")
    finds("banned", {"src/core/a.c": "/* FIX" "ME: later */\n"}, "FIX" "ME")
    finds("banned", {"src/core/a.h": "typedef struct a b;\n"}, "typedef")


@test
def banned_passes_others():
    passes("banned", {
        "src/core/a.c": '/* time() strcpy() */ const char *x = "rand()";\n'
                        "int y = clock.time(c) + c->time(c) + my_time(c) + snprintf(b, n, f);\n"
                        "int time;\n",
        "src/base/clock.c": "int x = clock_gettime(CLOCK_MONOTONIC, &t);\n",
        "tests/a.c": "int x = clock_gettime(CLOCK_MONOTONIC, &t);\n"})


@test
def format_finds_bad_layout():
    if not shutil.which("clang-format-14"):
        raise Skip("clang-format-14 is not installed")
    finds("format", {"src/base/a.c": "int f(void) { return 1; }\n"}, "src/base/a.c:1")
    finds("format", {"src/base/a.c": "char* f;\n"}, "src/base/a.c:1")
    passes("format", {"src/base/a.c": "int f(void)\n{\n    return 1;\n}\n"})


def tidy_tree(root, text):
    """A tree with one source file and what build/dev would say about it."""
    source = os.path.join(root, "src/base/a.c")
    os.makedirs(os.path.dirname(source))
    os.makedirs(os.path.join(root, "build/dev"))
    shutil.copy(os.path.join(TOP, ".clang-tidy"), root)
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(root, "build/dev/compile_commands.json"), "w", encoding="utf-8") as file:
        file.write(f'[{{"directory": "{root}", "command": "gcc -std=c17 -Wlogical-op -c {source}",'
                   f' "file": "{source}"}}]')
    return source


@test
def tidy_finds_mistakes_and_remembers_clean_files():
    if not shutil.which("clang-tidy-14") or not shutil.which("clang-14"):
        raise Skip("clang-tidy-14 or clang-14 is not installed")
    clean = "int f(int x);\nint f(int x)\n{\n    return x;\n}\n"
    for text, wanted in (
            (clean + "int g;\n", "avoid-non-const-global-variables"),
            ("int f(int x);\nint f(int x)\n{\n    return x ? f(x - 1) : 0;\n}\n", "misc-no-recursion"),
            ("int f(int x);\nint f(int x)\n{\n" + "    x += 1;\n" * 71 + "    return x;\n}\n",
             "readability-function-size")):
        with tempfile.TemporaryDirectory() as root:
            tidy_tree(root, text)
            command = [sys.executable, f"{TOP}/scripts/check/tidy.py", root]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            assert done.returncode == 1 and wanted in done.stdout, done.stdout
    with tempfile.TemporaryDirectory() as root:
        source = tidy_tree(root, clean)
        command = [sys.executable, f"{TOP}/scripts/check/tidy.py", root]
        assert subprocess.run(command).returncode == 0
        assert len(os.listdir(os.path.join(root, ".cache/tidy"))) == 1
        assert subprocess.run(command, env={**os.environ, "TMPDIR": root}).returncode == 0
        with open(source, "a", encoding="utf-8") as file:
            file.write("int g;\n")
        assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 1


main()
