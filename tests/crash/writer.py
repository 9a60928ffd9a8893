"""A writer of the crash test: commits events of shared keys until SIGTERM.

usage: writer.py SHOP_DB NUMBER KEYS
"""
import json
import random
import signal
import sqlite3
import sys
import time

stopped = []


def number_of(db, key):
    """The next number of a key; taken in the transaction, so numbers of a key are in order of commits."""
    db.execute("INSERT INTO counters(key, number) VALUES (?, 1)"
               " ON CONFLICT(key) DO UPDATE SET number = number + 1", (key,))
    return db.execute("SELECT number FROM counters WHERE key = ?", (key,)).fetchone()[0]


def need(choose):
    """How many runs the event needs: most one, some two, a few more than there are."""
    return choose.choices((1, 2, 3, 4), (95, 3, 1.5, 0.5))[0]


def main():
    path, number, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    choose = random.Random(number)
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    while not stopped:
        db.execute("BEGIN IMMEDIATE")
        for _ in range(choose.randint(1, 4)):
            key = f"key-{choose.randrange(keys)}"
            body = json.dumps({"number": number_of(db, key), "need": need(choose), "text": "ü" * choose.randrange(200)})
            db.execute("INSERT INTO tidings_outbox(type, partition_key, body) VALUES ('event.made', ?, ?)",
                       (key, body))
        db.execute("COMMIT" if choose.random() < 0.97 else "ROLLBACK")
        time.sleep(0.025)
    db.close()


if __name__ == "__main__":
    main()
