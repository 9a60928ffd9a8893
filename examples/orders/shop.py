"""The shop: places orders. Order and event are rows of one transaction.

usage: shop.py FIRST LAST      places the orders FIRST..LAST that are not there yet
"""
import json
import sys
import time

import schema


def place(db, number):
    """One order with its event; both or neither. Placing it a second time changes nothing."""
    user = number % 97 + 1
    total = 100 + number % 900
    body = json.dumps({"user_id": user, "order": number, "total": {"cents": total * 100, "points": total}})
    db.execute("BEGIN IMMEDIATE")
    try:
        placed = db.execute("INSERT OR IGNORE INTO orders(id, user_id, total) VALUES (?, ?, ?)",
                            (number, user, total)).rowcount
        if placed == 1:
            db.execute("INSERT INTO tidings_outbox(type, partition_key, body) VALUES (?, ?, ?)",
                       ("order.paid", f"order-{number}", body))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def main():
    first, last = int(sys.argv[1]), int(sys.argv[2])
    db = schema.connect(schema.SHOP)
    for number in range(first, last + 1):
        place(db, number)
        time.sleep(0.01)  # customers do not come all at once
    db.close()


if __name__ == "__main__":
    main()
