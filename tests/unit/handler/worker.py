"""The worker of the exec tests: what it does is in the bodies it gets and in its arguments.

Usage: worker.py MODE [ARGUMENT]. A body is an answer to give ({"result": "retry"}), or says what to do
instead: {"do": "hang"}.
"""
import json
import os
import signal
import subprocess
import sys
import time

MODE = sys.argv[1]
ARGUMENT = sys.argv[2] if len(sys.argv) > 2 else ""


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(**members):
    say(json.dumps(members))


def answer(line, **members):
    tell(delivery=line["delivery"], **members)


def hello(**members):
    tell(hello={"protocol": 1, "name": "test", **members})


def lines():
    for raw in sys.stdin.buffer:
        yield raw


def hang():
    while True:
        time.sleep(1000)


def surroundings():
    return json.dumps({
        "consumer": os.environ.get("TIDINGS_CONSUMER"),
        "folder": os.getcwd(),
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),
        "group": os.getpgid(0) == os.getpid(),
        "blocked": open("/proc/self/status").read().split("SigBlk:\t")[1].split()[0],
    }, separators=(",", ":"))


def child(stdout):
    return subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=stdout).pid


def do(line, what):
    """False: this delivery is not answered."""
    order = what["do"]
    if order == "exit":
        os._exit(what["code"])
    elif order == "answer, exit":
        answer(line, result="ok")
        os._exit(what["code"])
    elif order == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif order == "hang":
        hang()
    elif order == "nothing":
        return
    elif order == "say":
        sys.stdout.buffer.write(what["text"].encode())
        sys.stdout.flush()
        answer(line, result="ok")
    elif order == "many lines":
        sys.stdout.write(("x" * 1023 + "\n") * what["count"])
        answer(line, result="ok")
    elif order == "say in pieces":
        text = json.dumps({"delivery": line["delivery"], "result": "ok", "reason": "whole"}) + "\n"
        for c in text:
            sys.stdout.write(c)
            sys.stdout.flush()
    elif order == "endless line":
        try:
            while True:
                sys.stdout.write("x" * 65536)
        except BrokenPipeError:
            os._exit(1)
    elif order == "stderr":
        sys.stderr.write(what["text"])
        sys.stderr.flush()
        answer(line, result="ok")
    elif order == "pid":
        answer(line, result="ok", reason=str(os.getpid()))
    elif order == "surroundings":
        answer(line, result="ok", reason=surroundings())
    elif order == "child":
        answer(line, result="ok", reason=str(child(subprocess.DEVNULL)))
    elif order == "child, exit":
        child(None)
        os._exit(3)
    elif order == "close stdout":
        os.close(1)
        hang()
    elif order == "close stdin":
        os.close(0)
        answer(line, result="ok", reason=str(os.getpid()))
        hang()
    elif order == "answer twice":
        answer(line, result="ok", reason="first")
        answer(line, result="dead", reason="second")
    elif order == "answer another":
        tell(delivery=999999, result="dead")
        answer(line, result="ok")
    elif order == "envelope":
        answer(line, result="ok", reason=json.dumps(
            {"attempt": line["attempt"], "fence": line.get("fence"),
             "deadline": line["deadline_seconds"], **{k: line["event"].get(k) for k in what["of"]}},
            separators=(",", ":")))


def serve(on_shutdown="leave"):
    for raw in lines():
        line = json.loads(raw)
        if "ping" in line:
            tell(pong=line["ping"])
            sys.stderr.write("was pinged\n")
            sys.stderr.flush()
        elif "shutdown" in line:
            if on_shutdown == "leave":
                return
        elif "event" in line:
            what = line["event"]["data"]
            if "do" in what:
                do(line, what)
            else:
                answer(line, **what)


def keep_raw():
    """Append each delivery's line to a file before it is answered."""
    for raw in lines():
        if raw.startswith(b'{"delivery":'):
            with open(ARGUMENT, "ab") as f:
                f.write(raw)
            say('{"delivery":%d,"result":"ok"}' % int(raw[12:raw.index(b",")]))
        elif raw.startswith(b'{"shutdown"'):
            return


def flood():
    """Write much before anything is read."""
    for _ in range(2000):
        say("x" * 1000)
        sys.stderr.write("y" * 200 + "\n")
    keep_raw()


def main():
    if MODE == "silent":
        hang()
    elif MODE == "protocol 2":
        tell(hello={"protocol": 2})
        hang()
    elif MODE == "no protocol":
        tell(hello={})
        hang()
    elif MODE == "dies":
        sys.stderr.write("SyntaxError of the test\n")
        sys.exit(1)
    elif MODE == "slow hello":
        open(ARGUMENT, "r").close()  # a FIFO: goes on when the test opens it
        hello()
        serve()
    elif MODE == "window":
        hello(window=int(ARGUMENT))
        serve()
    elif MODE == "deaf":
        hello()
        for raw in lines():
            if b'"event"' in raw:
                answer(json.loads(raw), result="ok")
    elif MODE == "raw":
        hello()
        keep_raw()
    elif MODE == "raw, window 2":
        hello(window=2)
        keep_raw()
    elif MODE == "flood":
        hello()
        flood()
    elif MODE == "first line":
        first = sys.stdin.buffer.readline()
        hello()
        with open(ARGUMENT, "wb") as f:
            f.write(first)
        serve()
    elif MODE == "stays":  # ends by SIGTERM only
        signal.signal(signal.SIGTERM, lambda *_: (open(ARGUMENT, "w").write("term"), os._exit(0)))
        hello()
        serve("stay")
        hang()
    elif MODE == "never leaves":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hello()
        serve("stay")
        hang()
    elif MODE == "cleans up":  # closes its stdout, then takes until its stdin ends
        hello()
        serve()
        os.close(1)
        sys.stdin.buffer.read()
        with open(ARGUMENT, "w") as f:
            f.write("clean")
        os._exit(9)
    elif MODE == "once":  # a worker for each message
        hello()
        for raw in lines():
            line = json.loads(raw)
            if "event" in line:
                answer(line, result="ok", reason=str(os.getpid()))
                return
    else:
        hello()
        serve()


main()
