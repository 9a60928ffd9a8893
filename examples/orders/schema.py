"""The business tables of the example. Tidings makes its own beside them (tidings init)."""
import os
import sqlite3

FOLDER = os.path.dirname(os.path.abspath(__file__))
SHOP = os.path.join(FOLDER, "data", "shop.db")
CONSUMERS = os.path.join(FOLDER, "data", "consumers.db")


def connect(path):
    """autocommit: transactions are opened and closed by hand."""
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")  # tidings run does it, see tidings check
    return db


def make_tables():
    shop = connect(SHOP)
    shop.execute("CREATE TABLE IF NOT EXISTS orders("
                 "id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, total INTEGER NOT NULL)")
    shop.close()
    consumers = connect(CONSUMERS)
    consumers.execute("CREATE TABLE IF NOT EXISTS points("
                      "user_id INTEGER NOT NULL, order_id TEXT NOT NULL, amount INTEGER NOT NULL)")
    consumers.execute("CREATE TABLE IF NOT EXISTS mails(order_id TEXT NOT NULL, event_id TEXT NOT NULL)")
    consumers.execute("CREATE TABLE IF NOT EXISTS audit("
                      "event_id TEXT NOT NULL, type TEXT NOT NULL, body TEXT)")
    consumers.close()
