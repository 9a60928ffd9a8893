"""tidings run: how it starts, who may run, and how it ends."""
import json
import os
import signal

from project import CONFIG, SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test

NEVER = "drain: { deadline: 1h }\n"  # only a second signal can end what does not end by itself


def leases(p):
    return p.sql("SELECT name, owner, unclean FROM tidings_lease ORDER BY name")


def in_hand(p, count=1):
    """Until the worker has begun with so many messages."""
    p.wait("the worker to begin", lambda: len(p.calls("work")) == count)


def outcomes(p):
    return p.sql("SELECT outcome, attempts FROM tidings_inbox ORDER BY seen_at")


def drains(number):
    with Project(config=CONFIG + NEVER + "consumers:\n" + exec_consumer("work")) as p:
        p.mode("work", "wait")
        p.put(key="k")
        run = p.run()
        in_hand(p)
        p.put(key="k")  # taken perhaps, but not begun: one delivery at a time
        run.signal(number)
        p.wait("the drain to begin", lambda: "draining" in run.log())
        assert run.alive()
        p.write("work.go", "")
        assert run.wait() == 0, run.log()
        assert outcomes(p)[0] == ("effect", 1), outcomes(p)
        assert all(row[1:] == (None, 0) for row in leases(p)), leases(p)
        first = p.calls("work")[0]["id"]
        again = p.run()
        p.wait("both", lambda: [row[0] for row in outcomes(p)] == ["effect"] * 2)
        again.stop()
        assert [call["id"] for call in p.calls("work")].count(first) == 1
        assert len(p.calls("work")) == 2 and p.consumer("work")["lag"] == 0


@test
def sigterm_finishes_what_is_in_hand_and_leaves_clean():
    drains(signal.SIGTERM)


@test
def sigint_does_the_same():
    drains(signal.SIGINT)


@test
def what_does_not_end_by_the_deadline_is_given_back():
    config = CONFIG + "drain: { deadline: 500ms }\nconsumers:\n" + exec_consumer("work")
    with Project(config=config) as p:
        p.mode("work", "wait")
        id_ = p.put()
        run = p.run()
        in_hand(p)
        run.signal(signal.SIGTERM)
        assert run.wait() == 0, run.log()
        p.write("work.go", "")
        again = p.run()
        p.wait("the effect", lambda: [row[0] for row in outcomes(p)] == ["effect"])
        again.stop()
        assert {call["id"] for call in p.calls("work")} == {id_}


@test
def a_second_sigterm_leaves_at_once_and_loses_nothing():
    with Project(config=CONFIG + NEVER + "consumers:\n" + exec_consumer("work") + SEEN,
                 tables=[SEEN_TABLE]) as p:
        p.mode("work", "wait")
        ids = [p.put(key=f"k{n}") for n in range(5)]
        run = p.run()
        in_hand(p)
        run.signal(signal.SIGTERM)
        p.wait("the drain to begin", lambda: "draining" in run.log())
        assert run.alive()
        run.signal(signal.SIGTERM)
        assert run.wait() == 0, run.log()
        assert "leaving" in run.log()
        p.write("work.go", "")
        again = p.run()
        p.wait("all effects", lambda: p.count("tidings_inbox", "outcome = 'effect'") == 10)
        again.stop()
        assert {call["id"] for call in p.calls("work")} == set(ids)
        assert sorted(row[0] for row in p.sql("SELECT id FROM seen")) == sorted(ids)
        assert p.dead() == []


@test
def a_second_run_is_75_with_the_owners_pid():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        second = p.call("run", code=75)
        assert second.out == "", second
        last = second.err.splitlines()[-1]
        assert f"process {run.pid} " in last and "tidings run" in last and "broker.d" in last, second
        run.stop()
        third = p.run()
        p.wait_running(third)
        third.stop()


@test
def named_parts_only():
    with Project(SEEN + exec_consumer("work"), tables=[SEEN_TABLE]) as p:
        p.put()
        run = p.run("--outbox", "shop")
        p.wait("the relay", lambda: p.status()["outboxes"]["shop"]["published_total"] == 1)
        assert p.consumer("seen")["state"] == p.consumer("work")["state"] == "not running"
        run.stop()
        run = p.run("--consumer", "work")
        in_hand(p)
        p.wait("the acknowledgement", lambda: p.consumer("work")["lag"] == 0)
        status = p.status()
        assert status["outboxes"]["shop"]["state"] == "not running", status
        assert status["consumers"]["seen"]["state"] == "not running", status
        assert status["consumers"]["seen"]["lag"] == 1, status
        run.stop()
        run = p.run("--consumer", "shop.seen", "--outbox", "shop.main")
        p.put()
        p.wait("two effects", lambda: p.count("seen") == 2)
        run.stop()
        assert len(p.calls("work")) == 1


@test
def before_init_it_is_78_and_makes_nothing():
    with Project(SEEN, init=False) as p:
        result = p.call("run", code=78)
        assert "tidings init" in result.err, result
        assert os.listdir(p.folder) == ["tidings.yaml"]


@test
def a_missing_queue_is_78_and_names_it():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        p.write("tidings.yaml", CONFIG + "consumers:\n" + SEEN + exec_consumer("work"))
        result = p.call("run", code=78)
        assert "shop.work" in result.err and "tidings init" in result.err, result


@test
def killed_it_goes_on_where_it_was():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        database = p.db()
        for round_ in range(3):
            run = p.run()
            for n in range(50):
                database.execute("INSERT INTO tidings_outbox(type, partition_key, body)"
                                 " VALUES ('order.paid', ?, '{}')", (f"k{n % 7}",))
            p.wait("some effects", lambda: p.count("seen") > 50 * round_)
            run.kill()
        run = p.run()
        p.wait("all effects", lambda: p.count("seen") == 150 and "running" in run.log())
        run.stop()
        assert p.sql("SELECT count(DISTINCT id) FROM seen") == [(150,)]
        order = p.sql("SELECT count(*) FROM seen a JOIN tidings_outbox o USING (id) JOIN seen b"
                      " ON b.key = a.key AND b.rowid > a.rowid JOIN tidings_outbox q ON q.id = b.id"
                      " WHERE q.seq < o.seq")
        assert order == [(0,)], order


@test
def the_log_is_json_and_holds_no_bodies():
    with Project(SEEN + exec_consumer("work"), tables=[SEEN_TABLE]) as p:
        p.mode("work", "dead")
        p.put(body='{"card":"4111111111111111"}')
        run = p.run("-v", "-v")
        p.wait("the dead letter", p.dead)
        run.stop()
        for line in run.log().splitlines():
            entry = json.loads(line)
            assert {"time", "level", "event"} <= set(entry), entry
        assert "4111111111111111" not in run.log()


main()
