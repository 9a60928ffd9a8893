"""The negative control of the crash test: a worker that commits its effect in a transaction of its own and knows no
inbox row. A kill between effect and answer must show as an effect that happened twice.
"""
import json
import sqlite3
import sys


def main():
    consumer = json.loads(sys.stdin.readline())["hello"]["consumer"]
    print(json.dumps({"hello": {"protocol": 1}}), flush=True)
    db = sqlite3.connect("two.db", timeout=30)
    for line in sys.stdin:
        message = json.loads(line)
        if "ping" in message:
            print(json.dumps({"pong": message["ping"]}), flush=True)
        elif "event" in message:
            event = message["event"]
            db.execute("INSERT INTO effects(consumer, event_id, key, number, need, attempt) VALUES (?, ?, ?, ?, 0, 1)",
                       (consumer, event["id"], event["partitionkey"], event["data"]["number"]))
            db.commit()
            print(json.dumps({"delivery": message["delivery"], "result": "ok"}), flush=True)


if __name__ == "__main__":
    main()
