"""tidings init: makes what is missing, can be repeated, removes nothing."""
import os
import sqlite3

from project import CONFIG, SEEN, SEEN_TABLE, Project
from tap import main, test

MAIL = """\
  mail:
    from: orders
    types: ["order.paid"]
    handler: { exec: { command: [cat] } }
"""


@test
def makes_database_tables_and_queue():
    with Project(SEEN, init=False) as p:
        said = p.call("init").err
        for word in ("store shop", "shop.db", "topic orders", "queue shop.seen"):
            assert word in said, said
        tables = {row[0] for row in p.sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert {"tidings_outbox", "tidings_inbox", "tidings_parked", "tidings_published",
                "tidings_position", "tidings_lease", "tidings_audit", "tidings_schema"} <= tables
        assert p.sql("PRAGMA journal_mode") == [("wal",)]


@test
def repeated_changes_nothing():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        p.put(body='{"n":1}')
        schema = p.sql("SELECT type, name, sql FROM sqlite_master ORDER BY name")
        said = p.call("init").err
        assert "as they should be" in said and "added" not in said, said
        assert p.sql("SELECT type, name, sql FROM sqlite_master ORDER BY name") == schema
        assert p.count("tidings_outbox") == 1


@test
def quiet_says_nothing():
    with Project(SEEN, init=False) as p:
        result = p.call("init", "-q")
        assert (result.out, result.err) == ("", ""), result


@test
def printed_sql_runs_elsewhere_and_changes_nothing_here():
    with Project(SEEN, init=False) as p:
        text = p.call("init", "--print-sql").out
        assert os.listdir(p.folder) == ["tidings.yaml"]
        database = sqlite3.connect(":memory:")
        database.executescript(text)
        database.execute("INSERT INTO tidings_outbox(type, body) VALUES ('order.paid', '{}')")
        (id_,) = database.execute("SELECT id FROM tidings_outbox").fetchone()
        assert len(id_) == 36 and id_[14] == "7", id_
        database.close()


@test
def printed_sql_makes_the_same_database():
    with Project(SEEN, init=False) as p:
        text = p.call("init", "--print-sql").out
        made = sqlite3.connect(p.path("shop.db"), isolation_level=None)
        made.executescript(text)
        made.close()
        said = p.call("init").err
        assert "store shop: tables are as they should be" in said, said
        p.put()
        p.call("status")


@test
def adds_a_new_queue_and_names_the_one_that_was_left():
    with Project(SEEN) as p:
        p.call("publish", "--type", "order.paid", "--lines", stdin="{}\n{}\n{}\n")
        p.write("tidings.yaml", CONFIG + "consumers:\n" + MAIL)
        said = p.call("init").err
        assert "queue shop.mail of topic orders was added" in said, said
        left = [line for line in said.splitlines() if "shop.seen" in line]
        assert len(left) == 1 and "3" in left[0], said
        p.write("tidings.yaml", CONFIG + "consumers:\n" + SEEN + MAIL)  # nothing was removed
        assert p.consumer("seen")["lag"] == 3


@test
def while_the_program_runs_it_is_refused_with_the_owner():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        said = p.call("init", code=75).err
        assert str(run.pid) in said, said
        run.stop()


main()
