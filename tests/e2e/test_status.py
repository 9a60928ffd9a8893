"""tidings status: with and without a running program, for people and as JSON."""
import os

from project import CONFIG, SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test

OUTBOX = {"pending", "oldest_pending_seconds", "published_total", "rate_per_second", "drain_seconds",
          "owner", "state", "last_error"}
CONSUMER = {"state", "lag", "in_flight", "retrying", "blocked", "dead", "handled_total",
            "duplicates_total", "rate_per_second", "last_error"}
OUTBOX_STATES = {"ok", "waiting", "broker down", "store down", "halted", "not running"}
CONSUMER_STATES = {"ok", "retrying", "blocked", "paused", "downstream down", "store down", "not running",
                   "starting"}  # until its first report, a second after the start


def states(p):
    status = p.status()
    return status["outboxes"]["shop"]["state"], status["consumers"]["seen"]["state"]


@test
def shape_of_the_json():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for running in (False, True):
            if running:
                run = p.run()
                p.wait_running(run)
            status = p.status()
            assert {"outboxes", "consumers", "brokers", "stores"} <= set(status), status
            assert OUTBOX <= set(status["outboxes"]["shop"]), status
            assert CONSUMER <= set(status["consumers"]["seen"]), status
            assert {"up", "since"} <= set(status["brokers"]["main"]), status
            assert status["brokers"]["main"]["up"] and status["stores"]["shop"]["up"], status
        run.stop()


@test
def states_are_those_of_the_contract_at_every_moment():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        p.put()
        assert states(p) == ("not running", "not running")
        run = p.run()
        while states(p) != ("ok", "ok"):
            outbox, consumer = states(p)
            assert outbox in OUTBOX_STATES and consumer in CONSUMER_STATES, (outbox, consumer)
            assert run.alive(), run.log()
        run.stop()
        assert states(p) == ("not running", "not running")
        run = p.run()
        p.wait("ok", lambda: states(p) == ("ok", "ok"))
        run.kill()
        assert states(p) == ("not running", "not running")


@test
def without_a_running_program_it_counts_what_waits():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for _ in range(3):
            p.put()
        p.call("publish", "--type", "order.paid", "--lines", stdin="a\nb\n")
        status = p.status()
        outbox, consumer = status["outboxes"]["shop"], status["consumers"]["seen"]
        assert (outbox["pending"], outbox["published_total"], outbox["owner"]) == (3, 0, None), outbox
        assert outbox["oldest_pending_seconds"] >= 0, outbox
        assert consumer["lag"] == 2 and consumer["handled_total"] == 0, consumer
        text = p.call("status").out
        assert "not running" in text and "3 waiting" in text and "lag 2" in text, text


@test
def totals_count_and_stay_true_after_the_end():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for _ in range(3):
            p.put()
        run = p.run()
        p.call("publish", "--type", "order.paid")
        p.wait("the effects", lambda: p.count("seen") == 4)
        run.stop()
        status = p.status()
        assert status["outboxes"]["shop"]["published_total"] == 3, status
        assert status["consumers"]["seen"]["handled_total"] == 4, status
        assert status["consumers"]["seen"]["lag"] == 0, status
        run = p.run()
        p.put()
        p.wait("one more", lambda: p.status()["consumers"]["seen"]["handled_total"] == 5)
        run.stop()


@test
def retrying_blocked_and_dead():
    retry = "    retry: { initial: 1h, jitter: none, attempts: 2 }\n"
    with Project(exec_consumer("work", more=retry) + exec_consumer("other")) as p:
        p.mode("work", "retry")
        p.mode("other", "dead")
        first = p.put(key="k")
        p.put(key="k")
        run = p.run()
        p.wait("retrying", lambda: p.consumer("work")["retrying"] == 1 and
               p.consumer("work")["blocked"] == 1)
        p.wait("blocked", lambda: (p.consumer("other")["dead"], p.consumer("other")["blocked"]) == (1, 1))
        p.wait("states", lambda: (p.consumer("work")["state"], p.consumer("other")["state"]) ==
               ("retrying", "blocked"))
        text = p.call("status").out
        assert "retrying 1, blocked 1" in text and "other 1" in text and "dead list" in text, text
        assert p.consumer("work")["last_error"] is None or "mode" in p.consumer("work")["last_error"]
        run.stop()
        assert p.consumer("work")["retrying"] == 1  # also when nothing runs
        assert p.dead()[0]["id"] == first


@test
def duplicates_are_counted():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.put(id="twice")
        p.wait("the effect", lambda: p.count("seen") == 1)
        # The broker knows the id of what it took lately; a consumer that has the row sees the rest.
        p.sql("INSERT INTO tidings_inbox(consumer, source, id, outcome)"
              " VALUES ('shop.seen', 'shop', 'known', 'effect')")
        p.put(id="known")
        p.wait("the duplicate", lambda: p.consumer("seen")["duplicates_total"] == 1)
        assert p.count("seen") == 1
        run.stop()


@test
def a_store_or_broker_that_is_away_is_told_and_not_fatal():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        os.rename(p.path("shop.db"), p.path("away.db"))
        status = p.status()
        assert status["stores"]["shop"]["up"] is False and status["stores"]["shop"]["error"], status
        assert status["outboxes"]["shop"]["state"] == "store down", status
        assert status["consumers"]["seen"]["state"] == "store down", status
        assert status["consumers"]["seen"]["dead"] is None, status
        assert "store shop" in p.call("status").out
        os.rename(p.path("away.db"), p.path("shop.db"))
        os.rename(p.path("broker.d"), p.path("away.d"))
        status = p.status()
        assert status["brokers"]["main"]["up"] is False and status["brokers"]["main"]["error"], status
        assert status["consumers"]["seen"]["lag"] is None, status
        assert "broker main" in p.call("status").out


@test
def several_stores_and_brokers():
    config = (CONFIG.replace("stores:\n", "stores:\n  other: { driver: sqlite, path: other.db }\n")
              .replace("brokers:\n", "brokers:\n  second: { driver: embedded, path: second.d }\n")
              .replace('orders: { types', 'orders: { broker: main, types')
              + "consumers:\n" + SEEN.replace("    from: orders\n", "    from: orders\n    store: other\n"))
    config = config.replace("topics:\n", 'topics:\n  mails: { broker: second, types: ["mail.*"] }\n')
    with Project(config=config) as p:
        p.sql(SEEN_TABLE, name="other.db")
        p.put()
        status = p.status()
        assert set(status["brokers"]) == {"main", "second"} and set(status["stores"]) == {"shop", "other"}
        assert set(status["outboxes"]) == {"shop.main", "shop.second"}, status
        run = p.run()
        p.wait("the effect", lambda: p.count("seen", name="other.db") == 1)
        run.stop()


main()
