"""Dead letters of a relay, replayed: what could not be published goes out once its reason is mended."""
import time

from project import CONFIG, SEEN, SEEN_TABLE, Project
from tap import main, test

MAILS = ('  mails: { types: ["mail.*"] }\n', SEEN.replace("seen:", "mail:").replace("orders", "mails"))


def config(topics="", consumers=""):
    return (CONFIG.replace("outboxes:\n", f"{topics}outboxes:\n")
            + f"consumers:\n{SEEN}{consumers}")


def replay(p, *args):
    return p.call("dead", "replay", "--consumer", "relay:shop", "--json", *args).json()


def now_of(p, id_):
    return p.call("trace", id_, "--json").json()["now"]


@test
def an_unroutable_row_goes_out_when_its_topic_is_there():
    with Project(config=config(), tables=[SEEN_TABLE]) as p:
        lost = p.put(type_="mail.sent", body='{"to": 1}')
        run = p.run()
        p.put()
        p.wait("the other row", lambda: p.count("seen") == 1)
        letter = p.wait("the letter", p.dead)[0]
        assert (letter["consumer"], letter["id"], letter["code"]) == ("relay:shop", lost, "unroutable")
        assert replay(p, "--wait")["failed_again"] == 1  # nothing was mended
        assert p.dead()[0]["attempts"] == 2
        run.stop()
        p.write("tidings.yaml", config(*MAILS))
        p.call("init")
        run = p.run()
        assert replay(p, "--wait") == {"selected": 1, "replayed": 1, "failed_again": 0, "skipped": 0}
        p.wait("the effect", lambda: p.count("seen", f"id = '{lost}'") == 1)
        assert p.sql(f"SELECT type, CAST(body AS TEXT) FROM seen WHERE id = '{lost}'") == [
            ("mail.sent", '{"to": 1}')]
        assert p.dead() == [] and p.count("seen") == 2
        p.wait("its trace", lambda: now_of(p, lost) == "effect committed")
        run.stop()


@test
def a_row_that_was_not_due_goes_out_after_its_time():
    with Project(config=config(), tables=[SEEN_TABLE]) as p:
        at = time.time() + 5
        early = p.put(deliver_at=int(at * 1000000))
        run = p.run()
        letter = p.wait("the letter", p.dead)[0]
        assert letter["code"] == "not-due", letter
        if time.time() < at - 2:  # a slow machine may be past it
            assert replay(p, "--wait")["failed_again"] == 1
        p.wait("its time", lambda: time.time() > at)
        assert replay(p, "--wait")["failed_again"] == 0
        p.wait("the effect", lambda: p.count("seen", f"id = '{early}'") == 1)
        run.stop()


@test
def an_edited_letter_goes_out_edited():
    small = CONFIG.replace('types: ["order.*"]', 'types: ["order.*"], max_bytes: 10B')
    with Project(config=small + f"consumers:\n{SEEN}", tables=[SEEN_TABLE]) as p:
        id_ = p.put(body='{"n": "much too long"}')
        run = p.run()
        assert p.wait("the letter", p.dead)[0]["code"] == "too-large"
        p.write("body.json", '{"n": 1}')
        p.call("dead", "edit", id_, "--body", "body.json")
        assert replay(p, "--wait")["failed_again"] == 0
        p.wait("the effect", lambda: p.sql("SELECT CAST(body AS TEXT) FROM seen") == [('{"n": 1}',)])
        run.stop()


@test
def letters_that_are_replayed_while_nothing_runs_go_out_at_the_next_start():
    with Project(config=config(), tables=[SEEN_TABLE]) as p:
        for _ in range(3):
            p.put(type_="mail.sent")
        run = p.run()
        p.wait("the letters", lambda: len(p.dead()) == 3)
        run.stop()
        p.write("tidings.yaml", config(*MAILS))
        p.call("init")
        assert replay(p, "--no-wait")["replayed"] == 3
        assert p.dead() == []
        run = p.run()
        p.wait("the effects", lambda: p.count("seen") == 3)
        run.stop()


@test
def a_kill_in_the_middle_of_a_replay_loses_and_doubles_nothing():
    with Project(config=config(), tables=[SEEN_TABLE]) as p:
        ids = {p.put(type_="mail.sent") for _ in range(300)}
        run = p.run()
        p.wait("the letters", lambda: len(p.dead()) == 300)
        run.stop()
        p.write("tidings.yaml", config(*MAILS))
        p.call("init")
        replay(p, "--no-wait")
        for step in (1, 60, 150):
            run = p.run()
            p.wait("some effects", lambda least=step: p.count("seen") >= least)
            run.kill()
        run = p.run()
        p.wait("all effects", lambda: p.count("seen") >= 300)
        p.wait("the end of all letters", lambda: p.count(
            "tidings_parked", "outcome = 'retry'") == 0)
        run.stop()
        assert {row[0] for row in p.sql("SELECT id FROM seen")} == ids
        assert p.count("seen") == 300 and p.dead() == []


main()
