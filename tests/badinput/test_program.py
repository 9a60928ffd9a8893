"""Runs the cases of program/: something is broken, a command is called, the answer is judged.

A case says what the command must answer, and that nothing was lost: when the damage is undone, the outbox
still holds its rows and the broker its messages. See program/README.md for the format.
"""
import glob
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import project
from project import CONFIG, SEEN, SEEN_TABLE, Project
from tap import Skip, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS, MESSAGES = 3, 2    # in the outbox and in the broker before the damage
NOBODY = 65534
TRACES = ("==ERROR", "Assertion", "core dumped", "Traceback", "SQLITE_")


# ---- what a case can break; each returns how to undo it, or None --------------------------------

def saved(p, name):
    """Keep a file or folder; returns what puts it back."""
    path, copy = p.path(name), p.path(f"saved-{len(os.listdir(p.folder))}-{name.replace('/', '-')}")
    for tail in ("", "-wal", "-shm"):
        if os.path.isdir(path + tail):
            shutil.copytree(path + tail, copy + tail)
        elif os.path.exists(path + tail):
            shutil.copy2(path + tail, copy + tail)

    def undo():
        for tail in ("", "-wal", "-shm"):
            gone(path + tail)
            if os.path.exists(copy + tail):
                shutil.move(copy + tail, path + tail)
    return undo


def gone(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def settle(p, name):
    """Everything of a database into its one file, so that damage to that file is the whole damage."""
    p.sql("PRAGMA wal_checkpoint(TRUNCATE)", name=name)
    for tail in ("-wal", "-shm"):
        gone(p.path(name + tail))


def remove(p, name):
    undo = saved(p, name)
    for tail in ("", "-wal", "-shm"):
        gone(p.path(name + tail))
    return undo


def folder(p, name):
    undo = remove(p, name)
    os.mkdir(p.path(name))
    return undo


def plain(p, name, text="not a database, only text\n"):
    undo = remove(p, name)
    p.write(name, text.replace("\\n", "\n"))
    return undo


def garbage(p, name, size="40000"):
    undo = remove(p, name)
    p.write(name, random.Random(1).randbytes(int(size)))
    return undo


def empty(p, name):
    undo = remove(p, name)
    p.write(name, b"")
    return undo


def cut(p, name, size):
    settle(p, name)
    undo = saved(p, name)
    os.truncate(p.path(name), int(size))
    return undo


def scribble(p, name, offset, size):
    """Random bytes in the middle of a file."""
    settle(p, name)
    undo = saved(p, name)
    with open(p.path(name), "r+b") as file:
        file.seek(int(offset))
        file.write(random.Random(2).randbytes(int(size)))
    return undo


def sql(p, name, statement):
    undo = saved(p, name)
    p.sql(statement, name=name)
    return undo


def locked(p, name):
    """Somebody holds the write lock and does not let go."""
    database = p.db(name)
    database.execute("BEGIN IMMEDIATE")
    return lambda: database.execute("ROLLBACK")


def mode(p, bits, *names):
    former = {name: os.stat(p.path(name)).st_mode for name in names}
    for name in names:
        os.chmod(p.path(name), int(bits, 8))
    return lambda: [os.chmod(p.path(name), bits) for name, bits in former.items()]


def config(p, old, new):
    text = p.read("tidings.yaml").decode()
    assert old in text, old
    p.write("tidings.yaml", text.replace(old, new.replace("\\n", "\n")))
    return lambda: p.write("tidings.yaml", text)


def owner(p):
    """Another program owns the broker; it does nothing else."""
    p.write("owner.yaml", CONFIG)
    running = p.run("-c", "owner.yaml", "--outbox", "shop")
    p.wait_running(running)
    return running.stop


def frozen_owner(p):
    """An owner that does not answer."""
    stop = owner(p)
    p.running[-1].signal(signal.SIGSTOP)

    def undo():
        p.running[-1].signal(signal.SIGCONT)
        stop()
    return undo


def fill(p):
    """The disk is full to the last byte."""
    with open(p.path("ballast"), "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return lambda: gone(p.path("ballast"))


def large(p, name):
    """One byte more than a body may have."""
    p.write(name, b"x" * (64 * 1024 * 1024 + 1))


def application(p):
    """Somebody has the databases open, as an application has."""
    for name in ("shop.db", "broker.d/broker.db"):
        p.db(name).execute("SELECT count(*) FROM sqlite_master").fetchall()


def letter(p):
    """One dead letter of the consumer; takes the outbox and the broker empty with it."""
    p.sql("CREATE TRIGGER no BEFORE INSERT ON seen BEGIN SELECT RAISE(ABORT, 'not yet'); END")
    text = p.read("tidings.yaml")
    p.write("tidings.yaml", text + b"    retry: { attempts: 1 }\n")
    running = p.run()
    p.wait("dead letters", lambda: len(p.dead()) == ROWS + MESSAGES)
    running.stop()
    p.sql("DROP TRIGGER no")


STEPS = {f.__name__.replace("_", "-"): f for f in (
    remove, folder, plain, garbage, empty, cut, scribble, sql, locked, mode, config, owner, frozen_owner,
    fill, large, application, letter)}


# ---- a case ----------------------------------------------------------------------------------------

class Case:
    """The lines of a file by their names."""

    def __init__(self, path):
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.lines = {key: [] for key in ("run", "exit", "says", "not", "break", "stdin", "env", "base",
                                          "disk", "as", "unchanged", "kept", "file", "until", "put")}
        with open(path, encoding="utf-8") as file:
            for line in file.read().splitlines():
                if line and not line.startswith("#"):
                    key, _, value = line.partition(":")
                    self.lines[key].append(value.strip())

    def one(self, key, default=None):
        return self.lines[key][0] if self.lines[key] else default


def escaped(text):
    return text.encode().decode("unicode_escape").encode("latin-1")


def make(case):
    base = case.one("base", "full")
    p = Project(SEEN, tables=[SEEN_TABLE] if base == "full" else [], init=base == "full")
    for line in case.lines["file"]:
        name, _, text = line.partition(" ")
        p.write(name, escaped(text))
    if base == "full":
        for n in range(ROWS):
            p.put(key=f"k{n}")
        p.call("publish", "--type", "order.paid", "--lines", stdin="{}\n" * MESSAGES)
        for line in case.lines["put"]:
            p.sql(f"INSERT INTO tidings_outbox({line.split(' = ')[0]}) VALUES ({line.split(' = ')[1]})")
    return p


def as_nobody(p):
    """Rights count for others than root: open the way to the folder, and leave root."""
    if os.geteuid() != 0:
        return {}
    os.chmod(p.folder, 0o777)
    for path in (p.folder, os.path.dirname(project.TIDINGS)):
        while path != "/":
            path = os.path.dirname(path) if path == p.folder else path
            bits = os.stat(path).st_mode
            if not bits & 0o001 and path.startswith(os.environ.get("TMPDIR", "/nowhere")):
                os.chmod(path, bits | 0o011)
            path = os.path.dirname(path)
    probe = subprocess.run([project.TIDINGS, "version"], user=NOBODY, group=NOBODY, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=p.folder)
    if probe.returncode != 0:
        raise Skip(f"user {NOBODY} cannot run the program where it lies")
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def bytes_of(p, names):
    return {name: p.read(name) for name in names}


def call(case, p, who):
    args = shlex.split(case.one("run"))
    env = dict(pair.split("=", 1) for pair in case.lines["env"])
    if not case.lines["until"]:
        return p.call(*args, code=None, stdin=escaped(case.one("stdin", "")), env=env, **who)
    wanted = int(case.one("until"))
    running = p.run(*args[1:])
    p.wait(f"{wanted} dead letters", lambda: len(p.dead()) >= wanted)
    running.stop()
    return p.call("dead", "list", "--jsonl")


def judge(case, p, result):
    for word in case.lines["says"]:
        assert word in result.out + result.err, f"'{word}' is missing in: {result}"
    for word in (*case.lines["not"], *TRACES):
        assert word not in result.out + result.err, f"'{word}' is in: {result}"
    wanted = int(case.one("exit"))
    assert result.code == wanted, f"wanted exit {wanted}, got: {result}"
    if wanted not in (0, 1):
        last = result.err.splitlines()[-1] if result.err else ""
        assert last.startswith("tidings") or "mistake" in last, f"no sentence: {result}"


def kept(case, p):
    """All that was there before is there: by count, and with `kept: effects` also by its effects."""
    what = case.one("kept", "counts" if case.one("base", "full") == "full" else "nothing")
    if what == "nothing":
        return
    if what == "letters":
        assert len(p.dead()) == ROWS + MESSAGES, p.dead()
        return
    rows = ROWS + len(case.lines["put"])
    assert p.count("tidings_outbox") >= rows, p.sql("SELECT * FROM tidings_outbox")
    for name in ("shop.db", "broker.d/broker.db"):
        assert p.sql("PRAGMA integrity_check", name=name) == [("ok",)], name
    if what == "effects":
        running = p.run()
        p.wait("every effect", lambda: p.count("seen") + len(p.dead()) >= rows + MESSAGES)
        running.stop()
    else:
        status = p.status()
        assert status["outboxes"]["shop"]["pending"] >= rows, status
        assert status["consumers"]["seen"]["lag"] >= MESSAGES, status


def run_case(case):
    with make(case) as p:
        undo = [STEPS[step](p, *args) for step, *args in map(shlex.split, case.lines["break"])]
        who = as_nobody(p) if case.one("as") == "nobody" else {}
        before = bytes_of(p, case.lines["unchanged"])
        result = call(case, p, who)
        judge(case, p, result)
        assert bytes_of(p, case.lines["unchanged"]) == before, "the file was changed"
        for step in reversed(undo):
            if step is not None:
                step()
        kept(case, p)


def on_small_disk(path, case):
    """Again, in a mount namespace of its own, where the temporary folder is a small tmpfs."""
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mount = ["mount", "-t", "tmpfs", "-o", f"size={case.one('disk')}", "none"]
    with tempfile.TemporaryDirectory(prefix="disk-") as disk:
        try:
            probe = subprocess.run([*command, *mount, disk], check=False, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise Skip("unshare is not installed") from error
        if probe.returncode != 0:
            raise Skip("no right to mount a small disk")
        script = 'disk=$1; shift; "$@" && exec "$PYTHON" "$RUNNER" --on-disk "$CASE" "$disk"'
        done = subprocess.run(
            [*command, "sh", "-c", script, "sh", disk, *mount, disk], check=False, timeout=300,
            env=dict(os.environ, PYTHON=sys.executable, RUNNER=__file__, CASE=path),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{case.name} on a small disk:\n{done.stdout.decode()}"


def declare(path):
    case = Case(path)

    def run():
        if case.lines["disk"]:
            on_small_disk(path, case)
        else:
            run_case(case)
    run.__name__ = case.name
    test(run)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--on-disk"]:
        tempfile.tempdir = sys.argv[3]
        run_case(Case(sys.argv[2]))
    else:
        pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
        for found in sorted(glob.glob(os.path.join(HERE, "program", f"{pattern}.case"))):
            declare(found)
        main()
