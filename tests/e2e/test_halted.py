"""A halted relay: status says so as long as its program lives, and rebase lets that program go on."""
import time

from project import SEEN, SEEN_TABLE, Project
from tap import main, test


def outbox(p):
    return p.status()["outboxes"]["shop"]


def halted(p):
    """A running relay whose outbox was rebuilt: its sequence is behind the position."""
    for _ in range(3):
        p.put()
    run = p.run()
    p.wait("the effects", lambda: p.count("seen") == 3)
    p.wait("the position", lambda: outbox(p)["published_total"] == 3)
    p.sql("DELETE FROM tidings_outbox")
    p.sql("DELETE FROM sqlite_sequence WHERE name = 'tidings_outbox'")
    p.put(id="after")
    p.wait("the halt", lambda: outbox(p)["state"] == "halted")
    return run


@test
def status_says_halted_and_why_as_long_as_the_program_lives():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = halted(p)
        end = time.monotonic() + 12  # the relay looks whether it was mended every ten seconds
        while time.monotonic() < end:
            now = outbox(p)
            assert now["state"] == "halted" and "rebase" in now["last_error"], now
            assert now["owner"].endswith(f"/{run.pid}"), now
        assert "halted" in p.call("status").out
        run.kill()
        assert outbox(p)["state"] == "not running", p.status()
        run = p.run()
        p.wait("the halt again", lambda: outbox(p)["state"] == "halted")
        run.stop()
        assert outbox(p)["state"] == "not running", p.status()


@test
def rebase_lets_the_running_relay_go_on():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = halted(p)
        assert "Nothing was changed" in p.call("outbox", "rebase", "shop").out
        assert outbox(p)["state"] == "halted"
        p.call("outbox", "rebase", "shop", "--yes")
        p.wait("the row", lambda: p.count("seen", "id = 'after'") == 1)
        p.wait("ok", lambda: outbox(p)["state"] == "ok")
        p.call("outbox", "rebase", "shop", "--yes", code=75)  # it is not halted any more
        run.stop()


@test
def a_relay_that_runs_is_not_rebased():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        p.put()
        run = p.run()
        p.wait("ok", lambda: outbox(p)["state"] == "ok")
        result = p.call("outbox", "rebase", "shop", "--yes", code=75)
        assert "stop it first" in result.err, result
        run.stop()
        assert p.count("tidings_audit") == 0


main()
