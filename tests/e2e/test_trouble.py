"""Behaviour under trouble: slow and dead downstreams, stores away, owners killed, hostile rows."""
import os
import sqlite3
import threading

from project import CONFIG, SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test

BREAKER = "    breaker: { failures: 3, share: 50%%, window: 10s }\n    retry: { initial: 20ms, max_delay: 100ms, %s }\n"


def outcomes(p, name="shop.db"):
    return dict(p.sql("SELECT outcome, count(*) FROM tidings_inbox GROUP BY outcome", name=name))


class WriteLock:
    """Looks again and again whether somebody holds the write lock of a database, as an application would
    see it: BEGIN IMMEDIATE without patience."""

    def __init__(self, path):
        self.database = sqlite3.connect(path, timeout=0, isolation_level=None)
        self.free = self.taken = 0

    def look(self):
        try:
            self.database.execute("BEGIN IMMEDIATE")
            self.database.execute("ROLLBACK")
            self.free += 1
        except sqlite3.OperationalError:
            self.taken += 1

    def close(self):
        self.database.close()


@test
def no_write_lock_is_held_while_a_worker_works():
    with Project(exec_consumer("work", ", timeout: 10m"), tables=["CREATE TABLE orders(id INTEGER PRIMARY KEY)"]) as p:
        p.mode("work", "wait")
        p.put(key="k")
        run = p.run()
        p.wait("the worker to begin", lambda: p.calls("work"))
        lock = WriteLock(p.path("shop.db"))
        database = p.db()
        for _ in range(200):  # while the application commits orders
            lock.look()
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO orders DEFAULT VALUES")
            database.execute("INSERT INTO tidings_outbox(type, body) VALUES ('order.placed', '{}')")
            database.execute("COMMIT")
        lock.close()
        assert p.count("orders") == 200
        # Our own transactions are short: a lock held for the whole run would be taken every time.
        assert lock.free > 100, (lock.free, lock.taken)
        assert p.count("tidings_inbox") == 0 and len(p.calls("work")) == 1  # it was still at work
        p.write("work.go", "")
        p.wait("all", lambda: outcomes(p) == {"effect": 201})
        run.stop()


@test
def a_worker_that_answers_retry_for_a_while():
    with Project(exec_consumer("work", more=BREAKER % "attempts: 5")) as p:
        p.mode("work", "retry")
        database = p.db()
        for n in range(100):
            database.execute("INSERT INTO tidings_outbox(type, partition_key, body)"
                             " VALUES ('order.paid', ?, '{}')", (f"k{n}",))
        run = p.run()
        p.wait("the breaker", lambda: p.consumer("work")["state"] == "downstream down")
        calls = len(p.calls("work"))
        consumer = p.consumer("work")
        assert consumer["lag"] + consumer["in_flight"] + consumer["retrying"] >= 90, consumer
        assert consumer["lag"] >= 50, consumer  # the backlog stays in the broker
        assert "downstream down" in p.call("status").out
        assert p.dead() == [] and calls < 50, calls
        p.mode("work", "ok")
        p.wait("all", lambda: outcomes(p) == {"effect": 100})
        assert p.dead() == []
        p.wait("ok", lambda: p.consumer("work")["state"] == "ok")
        run.stop()


def worker_away(mode):
    with Project(exec_consumer("work", more=BREAKER % "attempts: 5")) as p:
        p.mode("work", mode)
        ids = [p.put(key=f"k{n}") for n in range(40)]
        run = p.run()
        p.wait("the breaker", lambda: p.consumer("work")["state"] == "downstream down")
        consumer = p.consumer("work")
        assert consumer["lag"] + consumer["retrying"] >= 30, consumer
        assert consumer["last_error"], consumer
        p.mode("work", "ok")
        p.wait("all", lambda: outcomes(p) == {"effect": 40}, seconds=120)
        assert p.dead() == []
        assert {call["id"] for call in p.calls("work")} == set(ids)
        run.stop()


@test
def a_worker_that_cannot_start_for_a_while():
    worker_away("broken")


@test
def a_worker_that_dies_at_every_message_for_a_while():
    worker_away("exit")


@test
def a_command_that_does_not_exist():
    consumer = ("  work:\n    from: orders\n    handler: { exec: { command: [./worker-that-comes-later] } }\n")
    with Project(consumer) as p:
        p.put()
        run = p.run()
        p.wait("the state", lambda: p.consumer("work")["state"] == "downstream down")
        assert "worker-that-comes-later" in p.consumer("work")["last_error"], p.consumer("work")
        assert p.dead() == [] and run.alive()
        run.stop()
        assert p.consumer("work")["lag"] + p.consumer("work")["retrying"] == 1


TWO_STORES = (CONFIG.replace("stores:\n", "stores:\n  effects: { driver: sqlite, path: effects.db }\n")
              + "consumers:\n" + SEEN.replace("    from: orders\n", "    from: orders\n    store: effects\n"))


def two_stores():
    p = Project(config=TWO_STORES)
    p.sql(SEEN_TABLE, name="effects.db")
    return p


def published(p):
    return p.status()["outboxes"]["shop"]["published_total"]


@test
def the_consumers_database_is_locked_by_somebody_for_a_while():
    with two_stores() as p:
        run = p.run()
        p.put()
        p.wait("one effect", lambda: p.count("seen", name="effects.db") == 1)
        other = p.db("effects.db")
        other.execute("BEGIN IMMEDIATE")
        for n in range(30):
            p.put(key=f"k{n}")
        p.wait("the relay to go on", lambda: published(p) == 31)
        p.wait("the state", lambda: "store down" in run.log())
        assert run.alive() and p.consumer("seen")["lag"] >= 1
        other.execute("ROLLBACK")
        p.wait("all effects", lambda: p.count("seen", name="effects.db") == 31)
        assert p.dead() == []
        run.stop()
        assert outcomes(p, "effects.db") == {"effect": 31}


@test
def the_consumers_database_is_moved_away_for_a_while():
    with two_stores() as p:
        for n in range(30):
            p.put(key=f"k{n}")
        run = p.run("--outbox", "shop")
        p.wait("the relay", lambda: published(p) == 30)
        run.stop()
        os.rename(p.path("effects.db"), p.path("away.db"))
        refused = p.call("run", code=78)  # at the start it is a mistake, and named
        assert "effects.db" in refused.err and "tidings init" in refused.err, refused
        os.rename(p.path("away.db"), p.path("effects.db"))
        run = p.run()
        p.wait("all effects", lambda: p.count("seen", name="effects.db") == 30)
        names = [n for n in os.listdir(p.folder) if n.startswith("effects.db")]
        for name in names:  # under the running program, with its WAL
            os.rename(p.path(name), p.path("away-" + name))
        for n in range(10):
            p.put(key=f"k{n}")
        p.wait("the relay to go on", lambda: published(p) == 40)
        for name in names:
            os.rename(p.path("away-" + name), p.path(name))
        p.wait("all effects", lambda: p.count("seen", name="effects.db") == 40)
        run.stop()
        assert p.dead() == [] and outcomes(p, "effects.db") == {"effect": 40}
        assert p.sql("SELECT count(DISTINCT id) FROM seen", name="effects.db") == [(40,)]


@test
def the_owner_of_the_broker_is_killed_while_others_publish():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        results = []

        def publish():
            for _ in range(5):
                results.append(p.call("publish", "--type", "order.paid", "--lines", code=None,
                                      stdin="{}\n" * 50))

        publisher = threading.Thread(target=publish)
        publisher.start()
        p.wait("some effects", lambda: p.count("seen") > 20)
        run.kill()
        publisher.join()
        printed = [id_ for result in results for id_ in result.out.split()]
        for result in results:
            assert result.code in (0, 69, 75), result
        again = p.run()
        p.wait("all that was confirmed", lambda: not set(printed) - {
            row[0] for row in p.sql("SELECT id FROM seen")})
        again.stop()
        assert p.sql("SELECT count(*) - count(DISTINCT id) FROM seen") == [(0,)]


# Columns of a row as SQL, and a word that the reason must hold.
HOSTILE = [
    ({"headers": "'no JSON'"}, "headers"),
    ({"headers": "'[1]'"}, "headers"),
    ({"headers": """'{"a":1}'"""}, "headers"),
    ({"headers": "x'ff00'"}, "headers"),
    ({"type": "CAST(x'ff' AS TEXT)"}, "type"),
    ({"type": "'order paid'"}, "type"),
    ({"type": "''"}, "type"),
    ({"partition_key": "CAST(x'c328' AS TEXT)"}, "key"),
    ({"partition_key": "printf('%.300c', 'k')"}, "key"),
    ({"id": "'with space'"}, "id"),
    ({"id": "printf('%.200c', 'i')"}, "id"),
    ({"id": "CAST(x'ff' AS TEXT)"}, "id"),
    ({"topic": "'nowhere'"}, "nowhere"),
    ({"type": "'stock.low'"}, "stock.low"),
    ({"body": "zeroblob(1048577)"}, "1048577"),
]


@test
def hostile_rows_of_the_outbox_die_with_a_reason_and_later_ones_go_on():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for columns, _ in HOSTILE:
            columns = {"type": "'order.paid'", "partition_key": "'k'", "body": "'{}'", **columns}
            p.sql(f"INSERT INTO tidings_outbox({', '.join(columns)})"
                  f" VALUES ({', '.join(columns.values())})")
        good = [p.put(key="k") for _ in range(3)]
        run = p.run()
        p.wait("the good ones", lambda: [row[0] for row in p.sql("SELECT id FROM seen")] == good)
        assert run.alive()
        letters = p.dead()
        run.stop()
        assert len(letters) == len(HOSTILE), letters
        assert {letter["consumer"] for letter in letters} == {"relay:shop"}, letters
        for (columns, word), letter in zip(HOSTILE, letters):
            assert word in letter["reason"], (columns, letter)
            # What is shown is JSON, whatever the row held; "x y" is no id to ask for.
            p.call("dead", "list", "--id", letter["id"] or "?", "--jsonl").lines()


@test
def numbers_that_are_none_are_refused_or_left_out():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for column in ("created_at", "deliver_at", "expires_at"):
            for value in ("1700000000", "1700000000000", "'soon'", "1.5"):  # seconds, milliseconds
                try:
                    p.sql(f"INSERT INTO tidings_outbox(type, body, {column})"
                          f" VALUES ('order.paid', '{{}}', {value})")
                    raise AssertionError(f"{column} = {value} was taken")
                except sqlite3.IntegrityError as error:
                    assert "microseconds" in str(error), error
        p.sql("INSERT INTO tidings_outbox(type, body, aggregate_version) VALUES ('order.paid', '', 'x')")
        run = p.run()
        p.wait("an end", lambda: p.count("seen") + len(p.dead()) == 1)
        run.stop()


@test
def a_time_in_the_future_is_not_due_and_a_time_that_passed_is_expired():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for column, shift in (("deliver_at", 3600_000_000), ("expires_at", -1_000_000),
                              ("expires_at", 3600_000_000), ("deliver_at", -1_000_000)):
            p.sql(f"INSERT INTO tidings_outbox(id, type, body, {column}) VALUES ("
                  f"'{column}{'+' if shift > 0 else '-'}', 'order.paid', '{{}}',"
                  f" CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + {shift})")
        run = p.run()
        p.wait("two effects", lambda: p.count("seen") == 2)
        letters = {letter["id"]: letter["code"] for letter in p.wait(
            "two dead letters", lambda: p.dead() if len(p.dead()) == 2 else None)}
        assert letters == {"deliver_at+": "not-due", "expires_at-": "expired"}, letters
        assert {row[0] for row in p.sql("SELECT id FROM seen")} == {"deliver_at-", "expires_at+"}
        run.stop()


@test
def a_message_that_expires_while_it_waits_is_not_run():
    with Project(exec_consumer("work")) as p:
        p.sql("INSERT INTO tidings_outbox(id, type, body, expires_at) VALUES ('late', 'order.paid', '{}',"
              " CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + 2000000)")
        run = p.run("--outbox", "shop")
        p.wait("the relay", lambda: published(p) + len(p.dead()) == 1)
        run.stop()
        p.wait("its time to pass", lambda: p.count(
            "tidings_outbox", "expires_at < (julianday('now') - 2440587.5) * 86400000000"))
        run = p.run()
        letter, = p.wait("the dead letter", p.dead)
        assert letter["code"] == "expired", letter
        assert p.calls("work") == []
        run.stop()


@test
def statements_that_fail_are_retried_and_then_dead_with_the_databases_words():
    consumer = SEEN + "    retry: { initial: 5ms, max_delay: 5ms, attempts: 3 }\n"
    with Project(consumer, tables=["CREATE TABLE seen(id TEXT, type TEXT, key TEXT UNIQUE, body BLOB)"]) as p:
        p.put(key="same")
        bad = p.put(key="same")
        good = p.put(key="other")
        run = p.run()
        letter, = p.wait("the dead letter", p.dead)
        assert letter["id"] == bad and "UNIQUE" in letter["reason"], letter
        p.wait("the good one", lambda: p.count("seen", f"id = '{good}'") == 1)
        run.stop()


main()
