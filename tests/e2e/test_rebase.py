"""tidings outbox rebase: a relay halts when somebody rebuilt its outbox, and goes on when told to."""
from project import SEEN, SEEN_TABLE, Project
from tap import main, test


def state(p):
    return p.status()["outboxes"]["shop"]


def rebuild(p):
    """The table as a restored or emptied one: its sequence starts anew, behind the position."""
    p.sql("DELETE FROM tidings_outbox")
    p.sql("DELETE FROM sqlite_sequence WHERE name = 'tidings_outbox'")


def halted(p):
    """A running relay that published three rows and then met a rebuilt table with two others."""
    for _ in range(3):
        p.put()
    run = p.run()
    p.wait("the effects", lambda: p.count("seen") == 3)
    rebuild(p)
    ids = [p.put(), p.put()]
    p.wait("the halt", lambda: state(p)["state"] == "halted")
    return run, ids


@test
def a_rebuilt_outbox_halts_the_relay_which_says_what_to_do():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run, _ = halted(p)
        assert run.alive() and p.count("seen") == 3
        assert "rebase" in state(p)["last_error"], state(p)
        text = p.call("status").out
        assert "halted" in text and "rebase" in text, text
        p.call("publish", "--type", "order.paid")  # the rest goes on
        p.wait("the consumer", lambda: p.count("seen") == 4)
        run.stop()


@test
def without_yes_it_only_tells():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run, ids = halted(p)
        for args in ((), ("--dry-run",), ("--yes", "--dry-run")):
            out = p.call("outbox", "rebase", "shop", *args).out
            assert ids[0] in out and "Nothing was changed" in out, out
        assert state(p)["state"] == "halted" and p.count("tidings_audit") == 0
        run.stop()


@test
def with_yes_the_relay_goes_on_and_nothing_is_lost():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run, ids = halted(p)
        p.call("outbox", "rebase", "shop", "--yes")
        p.wait("the new rows", lambda: p.count("seen") == 5)
        p.wait("ok", lambda: state(p)["state"] == "ok")
        assert {row[0] for row in p.sql("SELECT id FROM seen")} >= set(ids)
        last = p.put()
        p.wait("what comes later", lambda: p.count("seen", f"id = '{last}'") == 1)
        run.stop()
        assert p.sql("SELECT count(*), count(DISTINCT id) FROM seen") == [(6, 6)]
        assert p.count("tidings_audit") == 1


@test
def rows_that_come_again_have_no_second_effect():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        ids = [p.put() for _ in range(3)]
        run = p.run()
        p.wait("the effects", lambda: p.count("seen") == 3)
        run.stop()
        rebuild(p)
        p.put(id=ids[1])  # restored from a backup: one old row, and a new one behind it
        last = p.put()
        run = p.run()
        p.wait("the halt", lambda: state(p)["state"] == "halted")
        p.call("outbox", "rebase", "shop", "--yes")
        p.wait("the last one", lambda: p.count("seen", f"id = '{last}'") == 1)
        run.stop()
        assert p.count("seen") == 4


@test
def of_an_unknown_outbox_is_64():
    with Project(SEEN) as p:
        result = p.call("outbox", "rebase", "nowhere", code=64)
        assert "nowhere" in result.err and result.out == "", result
        p.call("outbox", "rebase", code=64)


main()
