"""tidings publish: from lines, files and CloudEvents, by socket and by itself, and through an outbox."""
import json
import threading

from project import CONFIG, SEEN, SEEN_TABLE, Project
from tap import main, test

MIB = 1024 * 1024


def depth(p):
    return p.consumer("seen")["lag"]


def publish(p, *args, stdin=b"", code=0):
    return p.call("publish", *args, stdin=stdin, code=code)


def seen(p, columns="id, type, key, body"):
    return p.sql(f"SELECT {columns} FROM seen ORDER BY rowid")


@test
def without_an_owner_it_writes_by_itself():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        result = publish(p, "--type", "order.paid", "--key", "k1", stdin='{"user_id":7}')
        id_ = result.out.strip()
        assert len(id_) == 36 and result.err == "", result
        assert depth(p) == 1
        run = p.run()
        p.wait("the effect", lambda: seen(p) == [(id_, "order.paid", "k1", '{"user_id":7}')])
        run.stop()


@test
def beside_an_owner_it_goes_through_the_socket():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        ids = publish(p, "--type", "order.paid", "--lines",
                      stdin="".join(f'{{"n":{n}}}\n' for n in range(1000))).out.split()
        assert len(set(ids)) == 1000
        p.wait("1000 effects", lambda: p.count("seen") == 1000)
        assert [json.loads(body)["n"] for (body,) in seen(p, "body")] == list(range(1000))
        assert [id_ for (id_,) in seen(p, "id")] == ids
        run.stop()


@test
def lines_skip_empty_ones_and_the_last_needs_no_line_feed():
    with Project(SEEN) as p:
        assert len(publish(p, "--type", "order.paid", "--lines", stdin="a\n\n\nb").out.split()) == 2
        assert depth(p) == 2


@test
def own_id_source_headers_key_and_content_type_arrive():
    with Project(SEEN) as p:  # no table: the row can be looked at as a dead letter of nobody
        p.sql("CREATE TABLE seen(id TEXT, type TEXT, key TEXT, body BLOB CHECK(0))")
        assert publish(p, "--type", "order.paid", "--id", "my-id", "--source", "elsewhere", "--key",
                       "ключ", "--header", "region=eu", "--header", "b=1=2", "--content-type",
                       "text/plain", stdin="hi").out == "my-id\n"
        run = p.run()
        letter = p.wait("a dead letter", p.dead)[0]
        assert (letter["id"], letter["source"], letter["key"]) == ("my-id", "elsewhere", "ключ"), letter
        shown = p.call("dead", "show", "my-id", "--json").json()
        assert shown["headers"] == {"region": "eu", "b": "1=2"}, shown
        assert shown["body"] == "hi", shown
        assert shown["envelope"]["datacontenttype"] == "text/plain", shown
        run.stop()


@test
def the_same_id_twice_is_one_effect():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        for _ in range(3):
            assert publish(p, "--type", "order.paid", "--id", "once").out == "once\n"
        last = publish(p, "--type", "order.paid").out.strip()
        p.wait("the last one", lambda: p.count("seen", f"id = '{last}'"))
        assert p.count("seen") == 2
        run.stop()


@test
def cloudevents_with_data_base64_and_no_data():
    events = [
        {"specversion": "1.0", "id": "e1", "source": "s", "type": "order.paid", "partitionkey": "k",
         "data": {"b": 1, "a": "é"}},
        {"specversion": "1.0", "id": "e2", "source": "s", "type": "order.paid",
         "data_base64": "AP+A"},
        {"specversion": "1.0", "id": "e3", "source": "s", "type": "order.paid"},
    ]
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        text = "".join(json.dumps(e, ensure_ascii=False) + "\n" for e in events)
        assert publish(p, "--structured", "--lines", stdin=text).out.split() == ["e1", "e2", "e3"]
        p.write("one.json", json.dumps(dict(events[0], id="e4")))
        assert publish(p, "--structured", "one.json").out == "e4\n"
        run = p.run()
        p.wait("the effects", lambda: p.count("seen") == 4)
        bodies = {id_: body for id_, _, _, body in seen(p)}
        assert json.loads(bodies["e1"]) == {"b": 1, "a": "é"}, bodies
        assert bodies["e2"] == b"\x00\xff\x80" and bodies["e3"] is None, bodies
        run.stop()


@test
def bodies_may_be_binary_or_empty():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for id_, body in (("bin", b"\x00\xff\n\x80"), ("empty", b""), ("one", b"\x00")):
            publish(p, "--type", "order.paid", "--id", id_, stdin=body)
        run = p.run()
        p.wait("the effects", lambda: p.count("seen") == 3)
        bodies = {id_: body for id_, _, _, body in seen(p)}
        assert bodies["bin"] == b"\x00\xff\n\x80" and bodies["one"] in ("\x00", b"\x00"), bodies
        assert bodies["empty"] in ("", b""), bodies
        run.stop()


@test
def one_mebibyte_exactly_and_one_byte_more():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        for owned in (False, True):
            if owned:
                run = p.run()
                p.wait_running(run)
            publish(p, "--type", "order.paid", stdin=b"x" * MIB)
            result = publish(p, "--type", "order.paid", stdin=b"x" * (MIB + 1), code=65)
            assert result.out == "" and "1048577" in result.err or "1 MiB" in result.err, result
        p.wait("two effects", lambda: p.count("seen") == 2)
        assert seen(p, "length(body)") == [(MIB,), (MIB,)]
        run.stop()


@test
def a_wrong_event_is_65_with_its_line_and_what_came_before_is_safe():
    good = '{"specversion":"1.0","id":"e%d","source":"s","type":"order.paid"}\n'
    for wrong in ('{"specversion":"1.0","source":"s","type":"order.paid","id":5}', "no JSON", "[]",
                  '{"specversion":"9.9","id":"x","source":"s","type":"order.paid"}',
                  '{"specversion":"1.0","id":"x y","source":"s","type":"order.paid"}',
                  '{"specversion":"1.0","id":"x","source":"s"}'):
        with Project(SEEN) as p:
            result = publish(p, "--structured", "--lines", code=65,
                             stdin=good % 1 + good % 2 + wrong + "\n" + good % 4)
            assert "standard input:3: " in result.err, result
            assert result.out.split() == ["e1", "e2"], result
            assert depth(p) == 2


@test
def what_cannot_be_routed_is_65():
    config = CONFIG.replace('orders: { types: ["order.*"] }',
                            'orders: { types: ["order.*"], key: required, max_bytes: 10B }\n'
                            '  other: { types: ["mail.*"] }')
    with Project(config=config) as p:
        for args, word in ((("--type", "stock.low"), "stock.low"),
                           (("--type", "order.paid", "--topic", "none"), "none"),
                           (("--type", "order.paid"), "key"),
                           (("--type", "order.paid", "--key", "k", "--header", "a=b", "x11"), "11")):
            p.write("x11", b"x" * 11)
            result = publish(p, *args, code=65)
            assert result.out == "" and word in result.err, result


@test
def a_type_of_the_topic_that_no_queue_takes_is_refused_not_lost():
    consumer = SEEN.replace("    from: orders\n", '    from: orders\n    types: ["order.paid"]\n')
    with Project(consumer) as p:
        result = publish(p, "--type", "order.shipped", code=65)
        assert result.out == "" and "no queue" in result.err, result
        publish(p, "--type", "order.paid")
        assert depth(p) == 1
        id_ = p.put("order.shipped")
        run = p.run("--outbox", "shop")
        letter, = p.wait("the dead letter of the relay", p.dead)
        assert (letter["id"], letter["code"]) == (id_, "unroutable"), letter
        run.stop()


@test
def through_an_outbox_it_is_published_by_the_relay():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        ids = publish(p, "--outbox", "shop", "--type", "order.paid", "--key", "k", "--header", "a=b",
                      "--lines", stdin="1\n2\n").out.split()
        assert p.sql("SELECT id, partition_key, headers FROM tidings_outbox ORDER BY seq") == [
            (id_, "k", '{"a":"b"}') for id_ in ids]
        run = p.run()
        p.wait("the effects", lambda: [row[0] for row in seen(p)] == ids)
        assert p.call("trace", ids[0], "--json").json()["now"] == "effect committed"
        run.stop()
        again = publish(p, "--outbox", "shop", "--type", "order.paid", "--id", ids[0], code=65)
        assert again.out == "" and again.err, again
        assert "nowhere" in publish(p, "--outbox", "nowhere", "--type", "a.b", code=64).err
        result = publish(p, "--outbox", "shop", "--type", "a.b", "--source", "x", code=64)
        assert "--source" in result.err, result


@test
def wrong_calls():
    with Project(SEEN) as p:
        assert "--type" in publish(p, code=64).err
        assert "--header" in publish(p, "--type", "order.paid", "--header", "X", code=64).err
        assert "--header" in publish(p, "--type", "order.paid", "--header", "Big=1", code=64).err
        assert "--id" in publish(p, "--type", "order.paid", "--lines", "--id", "x", code=64).err
        assert "not in this version" in publish(p, "--type", "order.paid", "--in", "5m", code=64).err
        missing = publish(p, "--type", "order.paid", "missing.json", code=74)
        assert "missing.json" in missing.err, missing
        assert publish(p, "--type", "order paid\n", code=65).err
        assert publish(p, "--type", "order.paid", "--id", "x" * 129, code=65).err
        assert publish(p, "--type", "order.paid", "--key", "k" * 257, code=65).err
        assert depth(p) == 0


@test
def a_folder_deeper_than_the_path_of_a_socket_may_be():
    with Project(config=CONFIG.replace("broker.d", "b" * 120) + "consumers:\n" + SEEN,
                 tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        publish(p, "--type", "order.paid")
        p.wait("the effect", lambda: p.count("seen") == 1)
        run.stop()


@test
def two_at_once_without_an_owner_wait_for_each_other():
    with Project(SEEN) as p:
        results = []
        threads = [threading.Thread(target=lambda: results.append(publish(
            p, "--type", "order.paid", "--lines", stdin="{}\n" * 100))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(result.out.split()) for result in results] == [100] * 4, results
        assert depth(p) == 400


@test
def before_init_it_names_init():
    with Project(SEEN, init=False) as p:
        result = publish(p, "--type", "order.paid", code=78)
        assert result.out == "" and "tidings init" in result.err, result


main()
