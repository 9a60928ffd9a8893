"""A worker of the mail consumer: one JSON line in, one JSON line out.

It "sends" a mail by a row in its own database. Row and inbox row are one transaction, so the mail is sent once
however often the message comes. Without the inbox row it would be at least once.
"""
import json
import sys
import zlib

import schema


def answer(**fields):
    print(json.dumps(fields), flush=True)


def claim(db, consumer, event, attempt):
    """True if this run is the one that counts: the inbox row says so."""
    key = (consumer, event["source"], event["id"])
    fresh = db.execute("INSERT OR IGNORE INTO tidings_inbox(consumer, source, id, outcome, attempts)"
                       " VALUES (?, ?, ?, 'effect', ?)", key + (attempt,)).rowcount
    if fresh == 1:
        return True
    return db.execute("UPDATE tidings_inbox SET outcome = 'effect' WHERE consumer = ? AND source = ?"
                      " AND id = ? AND outcome = 'retry' AND attempts = ?", key + (attempt,)).rowcount == 1


def send(db, consumer, event, attempt):
    db.execute("BEGIN IMMEDIATE")
    try:
        if claim(db, consumer, event, attempt):
            db.execute("INSERT INTO mails(order_id, event_id) VALUES (?, ?)",
                       (event["partitionkey"], event["id"]))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def smtp_is_busy(event, attempt):
    """One message in twelve fails at its first run."""
    return attempt == 1 and zlib.crc32(event["id"].encode()) % 12 == 0


def main():
    hello = json.loads(sys.stdin.readline())["hello"]
    answer(hello={"protocol": 1})
    db = schema.connect(schema.CONSUMERS)
    for line in sys.stdin:
        message = json.loads(line)
        if "ping" in message:
            answer(pong=message["ping"])
        elif "shutdown" in message:
            break
        elif smtp_is_busy(message["event"], message["attempt"]):
            answer(delivery=message["delivery"], result="retry", reason="smtp 451")
        else:
            send(db, hello["consumer"], message["event"], message["attempt"])
            answer(delivery=message["delivery"], result="ok")


if __name__ == "__main__":
    main()
