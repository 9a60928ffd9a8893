"""A worker of an exec consumer, for tests. usage: worker.py NAME, in the folder of the test.

Appends what it was given to NAME.jsonl and does what NAME.mode says at that moment:
    ok (no file)   retry   dead   drop
    exit           ends without an answer
    wait           answers ok when the file NAME.go exists
    broken         cannot start: ends before its hello
"""
import base64
import hashlib
import json
import os
import sys
import time

NAME = sys.argv[1]


def mode():
    try:
        with open(f"{NAME}.mode", encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "ok"


def answer(**fields):
    print(json.dumps(fields), flush=True)


def body_of(event, line):
    """Bytes of the body as they came. A JSON body is the text behind "data":."""
    if "data_base64" in event:
        return base64.b64decode(event["data_base64"])
    if "data" not in event:
        return None
    return line[line.index('"data":') + len('"data":'):line.rindex("}}")].encode("utf-8", "surrogatepass")


def note(message, line):
    event = message["event"]
    body = body_of(event, line)
    with open(f"{NAME}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({
            "id": event["id"], "attempt": message["attempt"], "event": {
                k: v for k, v in event.items() if k not in ("data", "data_base64")},
            "bytes": None if body is None else len(body),
            "sha256": None if body is None else hashlib.sha256(body).hexdigest(),
            "encoded": "data_base64" in event}) + "\n")


def main():
    if mode() == "broken":
        sys.exit("the worker cannot start")
    sys.stdin.reconfigure(encoding="utf-8", newline="\n")
    json.loads(sys.stdin.readline())
    answer(hello={"protocol": 1})
    for line in sys.stdin:
        message = json.loads(line)
        if "ping" in message:
            answer(pong=message["ping"])
        elif "shutdown" in message:
            break
        else:
            note(message, line.rstrip("\n"))
            what = mode()
            if what in ("exit", "broken"):
                sys.exit("as told")
            while what == "wait" and not os.path.exists(f"{NAME}.go"):
                time.sleep(0.02)
            answer(delivery=message["delivery"], result="ok" if what == "wait" else what,
                   reason=f"mode {what}")


if __name__ == "__main__":
    main()
