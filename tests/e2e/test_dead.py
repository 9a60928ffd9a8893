"""tidings dead: list, show, edit, replay, discard."""
import os

from project import CONFIG, SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test

FIELDS = {"consumer", "source", "id", "type", "key", "code", "reason", "attempts", "first_failed_at",
          "last_failed_at", "origin"}
ONE_RUN = "    retry: { attempts: 1 }\n"
QUICK = "    retry: { initial: 5ms, max_delay: 5ms, jitter: none, attempts: 2 }\n"


class Letters(Project):
    """A project whose worker refuses everything, with a running program."""

    def __init__(self, consumers=None, bodies=("{}",), keys=None, mode="dead", **options):
        super().__init__(consumers or exec_consumer("work", more=ONE_RUN), **options)
        self.mode("work", mode)
        self.ids = [self.put(body=body, key=keys[i] if keys else None)
                    for i, body in enumerate(bodies)]
        self.go()
        self.wait("the dead letters", lambda: len(self.dead()) == len(self.ids))

    def go(self):
        self.program = self.run()

    def replay(self, *args, code=0):
        return self.call("dead", "replay", *args, "--json", code=code)

    def discard(self, *args, code=0):
        return self.call("dead", "discard", *args, "--json", code=code)

    def settled(self, count):
        self.wait("effects", lambda: self.count("tidings_inbox", "outcome = 'effect'") == count)


def numbers(result):
    return {k: v for k, v in result.json().items() if v}


@test
def list_as_json_lines_and_as_a_table():
    with Letters(bodies=("1", "2"), keys=("ключ", "k2")) as p:
        letters = p.dead()
        assert all(FIELDS <= set(letter) for letter in letters), letters
        first = letters[0]
        assert (first["consumer"], first["source"], first["id"], first["type"], first["key"],
                first["code"], first["attempts"]) == (
                    "work", "shop", p.ids[0], "order.paid", "ключ", "rejected", 1), first
        assert "mode dead" in first["reason"], first
        assert {"broker", "topic", "partition", "offset"} <= set(first["origin"]), first
        text = p.call("dead", "list").out
        assert p.ids[0] in text and "2 dead letters" in text and "mode dead" in text, text


@test
def list_of_nothing():
    with Project(SEEN) as p:
        assert p.call("dead", "list").out == "no dead letters\n"
        assert p.call("dead", "list", "--jsonl").out == ""


@test
def selectors():
    with Letters(bodies=("1", "2", "3")) as p:
        other = p.put(type_="stock.low")
        p.wait("the relay's letter", lambda: len(p.dead()) == 4)
        def selected(*args):
            return {letter["id"] for letter in p.dead(*args)}
        assert selected("--consumer", "work") == selected("--consumer", "shop.work") == set(p.ids)
        assert selected("--consumer", "relay:shop") == {other}
        assert selected("--consumer", "relay:shop.main") == {other}
        assert selected("--id", p.ids[1]) == {p.ids[1]}
        assert selected("--code", "unroutable") == {other}
        assert selected("--type", "stock.low") == {other}
        assert selected("--code", "rejected", "--type", "order.paid") == set(p.ids)
        assert selected("--code", "schema") == selected("--consumer", "nobody") == set()
        assert "nonsense" in p.call("dead", "list", "--code", "nonsense", code=64).err


@test
def ids_may_be_cut():
    with Letters() as p:
        id_ = p.ids[0]
        assert [letter["id"] for letter in p.dead("--id", id_[:8])] == [id_]
        assert p.call("dead", "show", id_[:8], "--json").json()["id"] == id_
        assert numbers(p.replay("--id", id_[:13])) == {"selected": 1, "replayed": 1}


@test
def show_as_json_and_text():
    with Letters(bodies=('{"card":1}',)) as p:
        id_ = p.ids[0]
        letter = p.call("dead", "show", id_, "--json").json()
        assert FIELDS | {"headers", "body", "history"} <= set(letter), letter
        assert letter["body"] == '{"card":1}' and letter["headers"] == {}, letter
        assert [entry["result"] for entry in letter["history"]] == ["dead"], letter
        text = p.call("dead", "show", id_).out
        assert '{"card":1}' in text and "mode dead" in text and "order.paid" in text, text
        missing = p.call("dead", "show", "nothing", code=1)
        assert missing.out == "" and "nothing" in missing.err, missing


@test
def show_of_bytes_is_base64_and_of_none_null():
    with Letters(bodies=(b"\xff\x00", None)) as p:
        assert p.call("dead", "show", p.ids[0], "--json").json()["body_base64"] == "/wA="
        assert "not UTF-8" in p.call("dead", "show", p.ids[0]).out
        assert p.call("dead", "show", p.ids[1], "--json").json()["body"] is None


@test
def replay_and_discard_want_a_selector_and_discard_a_reason():
    with Letters() as p:
        for args in (("replay",), ("replay", "--rate", "1/s"), ("discard", "--reason", "r")):
            result = p.call("dead", *args, "--json", code=64)
            assert result.out == "" and "--all" in result.err, result
        for args in (("--all",), ("--all", "--reason", "")):
            result = p.discard(*args, code=64)
            assert "--reason" in result.err, result
        assert len(p.dead()) == 1


@test
def nothing_selected_still_prints_its_json():
    with Project(SEEN) as p:
        nothing = {"selected": 0, "failed_again": 0, "skipped": 0}
        assert p.call("dead", "replay", "--all", "--json").json() == {**nothing, "replayed": 0}
        discarded = p.call("dead", "discard", "--all", "--reason", "r", "--json").json()
        assert nothing.items() <= discarded.items(), discarded
        assert p.call("dead", "replay", "--consumer", "seen").out.startswith("0 selected")


@test
def replay_runs_again_once():
    with Letters(bodies=("1", "2")) as p:
        p.mode("work", "ok")
        assert numbers(p.replay("--id", p.ids[0])) == {"selected": 1, "replayed": 1}
        p.settled(1)
        assert [letter["id"] for letter in p.dead()] == [p.ids[1]]
        assert numbers(p.replay("--id", p.ids[0])) == {}  # finished: nothing left to select
        assert numbers(p.replay("--all")) == {"selected": 1, "replayed": 1}
        p.settled(2)
        assert [call["id"] for call in p.calls("work")].count(p.ids[0]) == 2
        assert [call["attempt"] for call in p.calls("work") if call["id"] == p.ids[0]] == [1, 2]


@test
def while_it_is_replayed_a_letter_is_not_dead_and_history_stays():
    with Letters() as p:
        p.program.stop()
        assert numbers(p.replay("--all")) == {"selected": 1, "replayed": 1}
        assert p.dead() == [] and p.consumer("work")["retrying"] == 1
        again = p.replay("--all")
        assert numbers(again) == {}, again
        p.go()
        p.wait("dead again", p.dead)
        letter = p.call("dead", "show", p.ids[0], "--json").json()
        assert letter["attempts"] == 2, letter
        assert [entry["result"] for entry in letter["history"]] == ["dead", "replay", "dead"], letter
        assert p.sql("SELECT action, id FROM tidings_audit WHERE action = 'replay'") == [
            ("replay", p.ids[0])]


@test
def wait_tells_how_many_failed_again():
    with Letters(bodies=("1", "2", "3")) as p:
        assert numbers(p.replay("--all", "--wait")) == {"selected": 3, "replayed": 3, "failed_again": 3}
        assert len(p.dead()) == 3
        p.mode("work", "ok")
        assert numbers(p.replay("--all", "--wait")) == {"selected": 3, "replayed": 3}
        assert p.dead() == []


@test
def wait_without_a_running_program_does_not_hang():
    with Letters() as p:
        p.program.stop()
        result = p.replay("--all", "--wait")
        assert numbers(result) == {"selected": 1, "replayed": 1}, result
        assert "nothing runs" in result.err, result


@test
def replay_with_a_rate_spreads_them():
    with Letters(bodies=[str(n) for n in range(5)]) as p:
        p.program.stop()
        assert numbers(p.replay("--all", "--rate", "2/s")) == {"selected": 5, "replayed": 5}
        due = [row[0] for row in p.sql("SELECT due_at FROM tidings_parked ORDER BY due_at")]
        assert all(400_000 < b - a < 5_000_000 for a, b in zip(due, due[1:])), due
        p.mode("work", "ok")
        p.go()
        p.settled(5)
        assert "--rate" in p.replay("--all", "--rate", "fast", code=64).err


@test
def a_replay_gives_attempts_more_and_exhausts_again():
    with Letters(exec_consumer("work", more=QUICK), mode="retry") as p:
        letter = p.dead()[0]
        assert (letter["code"], letter["attempts"]) == ("exhausted", 2), letter
        assert numbers(p.replay("--all", "--wait"))["failed_again"] == 1
        letter = p.dead()[0]
        assert (letter["code"], letter["attempts"]) == ("exhausted", 4), letter


@test
def stale_letters_only_when_named():
    with Letters() as p:
        p.sql("UPDATE tidings_parked SET code = 'stale'")
        p.mode("work", "ok")
        for args in (["--all"], ["--id", p.ids[0]], ["--code", "stale"], ["--all", "--as-new"]):
            assert numbers(p.replay(*args)) == {"selected": 1, "skipped": 1}, args
        assert len(p.dead()) == 1
        assert numbers(p.replay("--code", "stale", "--as-new")) == {"selected": 1, "replayed": 1}
        p.settled(1)


@test
def discarding_a_held_head_frees_its_followers():
    with Project(exec_consumer("work", more=ONE_RUN)) as p:
        p.mode("work", "dead")
        ids = [p.put(key="k") for _ in range(4)]
        run = p.run()
        p.wait("head dead, followers blocked", lambda: (
            p.consumer("work")["dead"], p.consumer("work")["blocked"]) == (1, 3))
        assert len(p.calls("work")) == 1
        p.mode("work", "ok")
        result = p.call("dead", "discard", "--id", ids[0], "--reason", "a test order", "--json")
        assert result.json()["selected"] == 1, result
        p.wait("the followers", lambda: p.count("tidings_inbox", "outcome = 'effect'") == 3)
        assert [call["id"] for call in p.calls("work")] == ids  # in order
        letter = p.call("dead", "show", ids[0], "--json").json()
        assert letter["outcome"] == "discarded" and "a test order" in str(letter["history"]), letter
        assert letter["body"] == "{}", letter
        assert p.dead() == []
        run.stop()


@test
def a_discarded_message_that_comes_again_does_nothing():
    with Letters() as p:
        p.discard("--all", "--reason", "r")
        p.mode("work", "ok")
        p.program.kill()
        p.sql("UPDATE tidings_position SET seq = 0, position = replace(position, '1@', '0@')")
        p.go()
        last = p.put()
        p.wait("the last one", lambda: p.count("tidings_inbox", f"id = '{last}' AND outcome = 'effect'"))
        assert [call["id"] for call in p.calls("work")] == [p.ids[0], last]


@test
def edit_mends_and_keeps_the_original():
    handler = ("  seen:\n    from: orders\n    handler:\n      sql:\n"
               "        - run: INSERT INTO seen(id, key) VALUES (:id, :user)\n"
               "    params: { id: $id, user: /user_id }\n")
    with Project(handler, tables=[SEEN_TABLE]) as p:
        id_ = p.put(body='{"total":1}', headers='{"a":"1","b":"2"}')
        run = p.run()
        letter, = p.wait("the dead letter", p.dead)
        assert letter["code"] == "schema" and "/user_id" in letter["reason"], letter
        p.write("mended.json", '{"user_id":"u7"}')
        said = p.call("dead", "edit", id_, "--body", "mended.json", "--header", "b=3").err
        assert "original" in said, said
        shown = p.call("dead", "show", id_, "--json").json()
        assert shown["body"] == '{"user_id":"u7"}', shown
        assert shown["headers"] == {"a": "1", "b": "3"}, shown
        p.call("dead", "edit", id_, "--body", "-", stdin='{"user_id":"u8"}')
        assert p.sql("SELECT CAST(original_body AS TEXT) FROM tidings_parked") == [('{"total":1}',)]
        assert p.count("tidings_audit", "action = 'edit'") == 2
        p.call("dead", "replay", "--id", id_)
        p.wait("the effect", lambda: p.sql("SELECT id, key FROM seen") == [(id_, "u8")])
        run.stop()


@test
def edit_that_is_wrong():
    with Letters(bodies=("1", "2")) as p:
        id_ = p.ids[0]
        assert "--body" in p.call("dead", "edit", id_, code=64).err
        assert p.call("dead", "edit", "nothing", "--header", "a=b", code=1).err
        assert "--header" in p.call("dead", "edit", id_, "--header", "A=b", code=64).err
        assert "none.json" in p.call("dead", "edit", id_, "--body", "none.json", code=74).err
        same = os.path.commonprefix(p.ids)
        if len(same) >= 8:  # made within 65 s
            assert "several" in p.call("dead", "edit", same, "--header", "a=b", code=64).err
        assert p.call("dead", "show", id_, "--json").json()["headers"] == {}


@test
def a_letter_of_the_relay_is_replayed_through_the_relay():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        id_ = p.put(type_="stock.low", body='{"n":1}')
        run = p.run()
        letter, = p.wait("the dead letter", p.dead)
        assert letter["consumer"] == "relay:shop" and letter["code"] == "unroutable", letter
        run.stop()
        p.write("tidings.yaml", (CONFIG + "consumers:\n" + SEEN).replace('["order.*"]', '["order.*", "stock.*"]'))
        p.call("init")
        run = p.run()
        result = p.call("dead", "replay", "--consumer", "relay:shop", "--wait", "--json")
        assert numbers(result) == {"selected": 1, "replayed": 1}, result
        p.wait("the effect", lambda: p.sql("SELECT id, type, body FROM seen") == [
            (id_, "stock.low", '{"n":1}')])
        run.stop()


@test
def dry_run_changes_nothing():
    with Letters(bodies=("1", "2")) as p:
        assert p.replay("--all", "--dry-run").json()["selected"] == 2
        assert p.discard("--all", "--reason", "r", "--dry-run").json()["selected"] == 2
        assert len(p.dead()) == 2


@test
def many_letters_are_listed_and_replayed():
    with Letters(bodies=[str(n) for n in range(300)]) as p:
        assert [letter["id"] for letter in p.dead()] == p.ids
        p.mode("work", "ok")
        assert numbers(p.replay("--all", "--wait")) == {"selected": 300, "replayed": 300}
        assert p.dead() == []


main()
