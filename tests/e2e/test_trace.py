"""tidings trace: where a message is and how it got there."""
import re

from project import SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def trace(p, id_):
    return p.call("trace", id_, "--json").json()


def names(report):
    return [hop["hop"] for hop in report["hops"]]


@test
def from_outbox_to_effect_in_order():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        id_ = p.put(key="k1")
        report = trace(p, id_)
        assert report["now"] == "waiting in outbox" and names(report) == ["committed"], report
        run = p.run("--outbox", "shop")
        p.wait("the relay", lambda: p.status()["outboxes"]["shop"]["published_total"] == 1)
        run.stop()
        report = trace(p, id_)
        assert report["now"] == "in broker" and names(report) == ["committed", "published"], report
        run = p.run()
        p.wait("the effect", lambda: p.count("seen") == 1)
        report = trace(p, id_)
        run.stop()
        assert report["now"] == "effect committed", report
        assert (report["source"], report["id"], report["type"], report["key"]) == (
            "shop", id_, "order.paid", "k1"), report
        hops = names(report)
        assert hops[:2] == ["committed", "published"] and "effect" in hops, report
        times = [hop["at"] for hop in report["hops"]]
        assert times == sorted(times) and all(TIME.fullmatch(t) for t in times), report
        assert all(hop["where"] and "evidence" in hop for hop in report["hops"]), report
        text = p.call("trace", id_).out
        assert text.index("committed") < text.index("published") < text.index("effect"), text
        assert "order.paid  k1  from shop" in text, text


@test
def attempts_of_a_retried_message():
    retry = "    retry: { initial: 10ms, max_delay: 10ms, jitter: none, attempts: 50 }\n"
    with Project(exec_consumer("work", more=retry)) as p:
        p.mode("work", "retry")
        id_ = p.put()
        run = p.run()
        p.wait("three runs", lambda: len(p.calls("work")) >= 3)
        assert trace(p, id_)["now"] == "retrying"
        p.mode("work", "ok")
        p.wait("the effect", lambda: trace(p, id_)["now"] == "effect committed")
        run.stop()
        report = trace(p, id_)
        runs = len(p.calls("work"))
        assert names(report).count("attempt") >= runs - 1, (runs, report)
        assert "mode retry" in str(report), report
        assert names(report)[-1] == "effect", report


@test
def dead_replayed_and_discarded():
    with Project(exec_consumer("work", more="    retry: { attempts: 1 }\n")) as p:
        p.mode("work", "dead")
        id_, other = p.put(), p.put()
        run = p.run()
        p.wait("two dead letters", lambda: len(p.dead()) == 2)
        assert trace(p, id_)["now"] == "dead"
        p.mode("work", "ok")
        p.call("dead", "replay", "--id", id_, "--wait")
        report = trace(p, id_)
        assert report["now"] == "effect committed" and "replayed" in names(report), report
        p.call("dead", "discard", "--id", other, "--reason", "a test order")
        report = trace(p, other)
        assert report["now"] == "discarded" and "discarded" in names(report), report
        assert "a test order" in str(report), report
        run.stop()


@test
def several_consumers_and_the_unfinished_one_decides():
    with Project(SEEN + exec_consumer("work"), tables=[SEEN_TABLE]) as p:
        p.mode("work", "dead")
        id_ = p.put()
        run = p.run()
        p.wait("both", lambda: p.count("seen") == 1 and p.dead())
        report = trace(p, id_)
        assert report["now"] == "dead", report
        assert {"seen", "work"} <= {hop["where"] for hop in report["hops"]}, report
        run.stop()


@test
def dropped():
    with Project(exec_consumer("work")) as p:
        p.mode("work", "drop")
        id_ = p.put()
        run = p.run()
        p.wait("the drop", lambda: trace(p, id_)["now"] == "dropped")
        run.stop()


@test
def a_message_that_did_not_come_from_an_outbox():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        p.call("publish", "--type", "order.paid", "--id", "direct")
        p.wait("the effect", lambda: p.count("seen") == 1)
        report = trace(p, "direct")
        assert report["now"] == "effect committed" and "committed" not in names(report), report
        run.stop()


@test
def an_unknown_id_is_1_and_a_sentence():
    with Project(SEEN) as p:
        result = p.call("trace", "no-such-id", code=1)
        assert result.out == "" and "no-such-id" in result.err, result
        result = p.call("trace", "no-such-id", "--json", code=1)
        assert result.out == "", result


main()
