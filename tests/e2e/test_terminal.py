"""Where output goes: closed and full stdout, terminals, colour, control bytes."""
import os
import pty
import re
import select
import subprocess
import time

from project import CONFIG, SEEN, TIDINGS, WAIT_SECONDS, Project
from tap import Skip, main, test

NASTY = "a\x1b[31mred\x07\x9b2J\u009b\x00\x7f\r"  # escape, bell, CSI as one byte and as UTF-8, NUL, DEL


def on_terminal(p, *args, env=None, answer=None):
    """Run a command whose three streams are one terminal; returns exit code and output bytes."""
    main_end, terminal = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment.update(TERM="xterm", **(env or {}))
    process = subprocess.Popen([TIDINGS, *args], cwd=p.folder, env=environment, stdin=terminal,
                               stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    if answer is not None:
        os.write(main_end, answer)
    output, end = b"", time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if not select.select([main_end], [], [], 1)[0]:
            continue
        try:
            data = os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        output += data
    os.close(main_end)
    return process.wait(WAIT_SECONDS), output


def control_bytes(output):
    text = output.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")
    return re.findall("[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f\udc80-\udc9f]", text)


def letters(p):
    """Dead letters whose type, key, headers, reason and body are hostile; returns their ids."""
    keys = ["hostile\x1b]0;title\x07", "k\u009b31m"]
    ids = [p.put(type_=f"stock.{key}", key=key, body=NASTY, headers='{"evil":"\\u001b[2J\\u009b"}')
           for key in keys]
    run = p.run()
    p.wait("dead letters", lambda: len(p.dead()) == len(ids))
    run.stop()
    return ids


@test
def control_bytes_of_messages_never_reach_a_terminal():
    with Project(SEEN) as p:
        for id_ in letters(p):
            for args in (["dead", "list"], ["dead", "show", id_], ["trace", id_], ["status"]):
                code, output = on_terminal(p, *args, env={"NO_COLOR": "1"})
                assert code == 0, output
                assert control_bytes(output) == [], (args, output)
            assert b"hostile" in on_terminal(p, "dead", "list")[1]


@test
def json_escapes_control_bytes():
    with Project(SEEN) as p:
        ids = letters(p)
        for args in (["dead", "list", "--jsonl"], ["dead", "show", ids[0], "--json"],
                     ["trace", ids[0], "--json"]):
            result = p.call(*args)
            assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", result.raw), result


@test
def hostile_arguments_do_not_reach_a_terminal():
    evil = "x\x1b[2J\x07"
    with Project(SEEN) as p:
        for args in (["trace", evil], ["dead", "show", evil], [evil], ["status", evil],
                     ["publish", "--type", evil], ["run", "--consumer", evil],
                     ["publish", "--type", "order.paid", evil], ["dead", "list", "--code", evil],
                     ["outbox", "rebase", evil], ["help", evil], ["status", f"--{evil}"],
                     ["status", "-c", evil], ["dead", "edit", evil, "--header", "a=b"],
                     ["publish", "--type", "order.paid", "--header", evil]):
            code, output = on_terminal(p, *args, env={"NO_COLOR": "1"}, answer=b"\x04")  # end of input
            assert code != 0, (args, output)
            assert control_bytes(output) == [], (args, output)


@test
def colour_only_on_a_terminal_and_without_no_color():
    with Project(SEEN) as p:
        code, output = on_terminal(p, "status")
        assert code == 0 and b"\x1b[" in output, output
        assert b"\x1b[" not in on_terminal(p, "status", env={"NO_COLOR": "1"})[1]
        assert "\x1b[" not in p.call("status").out
        p.write("tidings.yaml", CONFIG + "nonsense: 1\n")
        assert b"\x1b[" in on_terminal(p, "check")[1]
        assert b"\x1b[" not in on_terminal(p, "check", env={"NO_COLOR": "1"})[1]


@test
def a_full_stdout_is_74_without_noise():
    if not os.path.exists("/dev/full"):
        raise Skip("there is no /dev/full")
    with Project(SEEN) as p:
        for args in (["status"], ["status", "--json"], ["help"], ["version"], ["check"],
                     ["dead", "list"], ["init", "--print-sql"], ["--help"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([TIDINGS, *args], cwd=p.folder, stdout=full, check=False,
                                      stderr=subprocess.PIPE, timeout=WAIT_SECONDS)
            assert (done.returncode, done.stderr) == (74, b""), (args, done)


@test
def a_stdout_that_nobody_reads_is_74_without_noise():
    with Project(SEEN) as p:
        for args in (["status"], ["help"], ["init", "--print-sql"], ["help", "config"]):
            read_end, write_end = os.pipe()
            os.close(read_end)
            done = subprocess.run([TIDINGS, *args], cwd=p.folder, stdout=write_end, check=False,
                                  stderr=subprocess.PIPE, timeout=WAIT_SECONDS)
            os.close(write_end)
            assert (done.returncode, done.stderr) == (74, b""), (args, done)


@test
def a_closed_stdout_is_74_without_noise():
    with Project(SEEN) as p:
        for args in ("status", "help", "init --print-sql", "publish --type order.paid"):
            done = subprocess.run(f'"{TIDINGS}" {args} >&-', shell=True, cwd=p.folder, check=False,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  timeout=WAIT_SECONDS)
            assert (done.returncode, done.stderr) == (74, b""), (args, done)
        database = p.sql("PRAGMA integrity_check")  # and what was opened as 1 is not written over
        assert database == [("ok",)], database


@test
def discarding_on_a_terminal_asks():
    with Project(SEEN) as p:
        letters(p)
        code, output = on_terminal(p, "dead", "discard", "--all", "--reason", "r", answer=b"n\n")
        assert code == 1 and b"[y/N]" in output, output
        assert len(p.dead()) == 2
        code, output = on_terminal(p, "dead", "discard", "--all", "--reason", "r", answer=b"y\n")
        assert code == 0 and b"2 discarded" in output, output
        assert p.dead() == []


main()
