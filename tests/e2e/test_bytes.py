"""Bodies are bytes: what an application INSERTs is what the sql effect and the worker get."""
import hashlib
import json
import random
import sqlite3

from project import SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test

MIB = 1024 * 1024
TEXTS = ["Zażółć gęślą jaźń", "注文が支払われました", "Ελληνικά", "עברית", "emoji 🧾🚚", "naïve café", "\u2028\u2029",
         "tab\tquote\"back\\slash", "\u0001\u001f", "ﷺ"]


def webhook(rng, size):
    """An event as a payment provider sends it, about `size` bytes of JSON."""
    items = []
    body = {"id": f"evt_{rng.getrandbits(64):x}", "object": "event", "livemode": False,
            "created": rng.randrange(10**9, 2 * 10**9), "amount": rng.random() * 1000,
            "data": {"items": items}, "nothing": None}
    while len(json.dumps(body, ensure_ascii=False).encode()) < size:
        items.append({"sku": f"{rng.getrandbits(40):x}", "title": rng.choice(TEXTS),
                      "price": rng.choice([0, -1, 1e300, 0.1, 12345678901234567890]),
                      "tags": [rng.choice(TEXTS) for _ in range(rng.randrange(4))]})
    return json.dumps(body, ensure_ascii=rng.random() < 0.3,
                      indent=rng.choice([None, None, 2])).encode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def insert(p, bodies):
    """Bodies are text or bytes, as an application binds them; returns them by id."""
    database = p.db()
    database.execute("BEGIN IMMEDIATE")
    ids = [database.execute("INSERT INTO tidings_outbox(type, partition_key, body) VALUES"
                            " ('order.paid', ?, ?) RETURNING id", (f"k{i % 5}", body)).fetchall()[0][0]
           for i, body in enumerate(bodies)]
    database.execute("COMMIT")
    return dict(zip(ids, bodies))


def plain(body):
    return body.encode() if isinstance(body, str) else body


def effects(p):
    return dict(p.sql("SELECT id, CAST(body AS BLOB) FROM seen"))


def run_all(p, bodies, consumers=("seen", "work")):
    """Everything through both handlers; returns what each of them saw."""
    run = p.run()
    p.wait("the sql effects", lambda: p.count("seen") == len(bodies))
    p.wait("the worker", lambda: len(p.calls("work")) == len(bodies))
    run.stop()
    assert p.dead() == []
    return effects(p), {call["id"]: call for call in p.calls(consumers[1])}


@test
def webhook_bodies_arrive_unchanged():
    rng = random.Random(7)
    with Project(SEEN + exec_consumer("work"), tables=[SEEN_TABLE]) as p:
        texts = [webhook(rng, rng.randrange(1024, 32 * 1024)) for _ in range(40)]
        bodies = insert(p, [t.decode() if i % 2 else t for i, t in enumerate(texts)])
        got, calls = run_all(p, bodies)
        for id_, body in bodies.items():
            assert sha(got[id_]) == sha(plain(body)), id_
            call = calls[id_]
            # Line feeds between tokens become spaces on the way to a worker, nothing else.
            wanted = plain(body).replace(b"\n", b" ")
            assert (call["bytes"], call["sha256"]) == (len(wanted), sha(wanted)), (body[:100], call)


@test
def bytes_of_all_kinds_arrive_unchanged():
    rng = random.Random(8)
    hard = [b"", b"\x00", b"\xff", b"a", b"\x00" * 1000, b"\x80\x81 not UTF-8", b'{"cut":', b"\n", b"\r\n",
            b"{}\x00", b"\xef\xbb\xbf{}", b'{"a":1}{"b":2}', b'"\\ud800"', bytes(range(256)), b"null",
            '{"a":"\u2028"}'.encode(), b'{"a":1,"a":2}', b" 1e400 ", rng.randbytes(MIB), b"x" * MIB,
            b'{"big":"' + b"y" * (MIB - 10) + b'"}', rng.randbytes(100 * 1024)]
    with Project(SEEN + exec_consumer("work"), tables=[SEEN_TABLE]) as p:
        bodies = insert(p, [sqlite3.Binary(b) for b in hard])
        got, calls = run_all(p, bodies)
        for id_, body in bodies.items():
            body = bytes(body)
            assert sha(got[id_]) == sha(body), body[:50]
            if calls[id_]["encoded"]:
                assert (calls[id_]["bytes"], calls[id_]["sha256"]) == (len(body), sha(body)), body[:50]
            else:
                json.loads(body)  # only what is JSON goes token by token
                assert calls[id_]["sha256"] == sha(body.replace(b"\n", b" ")), (body[:50], calls[id_])


@test
def text_stays_text_and_bytes_stay_bytes():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        ids = list(insert(p, ['{"é":1}', sqlite3.Binary(b"\xff\x00"), None, "", "a\x00b"]))
        run = p.run()
        p.wait("the effects", lambda: p.count("seen") == 5)
        rows = {id_: (kind, body) for id_, kind, body in p.sql("SELECT id, typeof(body), body FROM seen")}
        assert rows[ids[0]] == ("text", '{"é":1}'), rows
        assert rows[ids[1]] == ("blob", b"\xff\x00"), rows
        assert rows[ids[2]] == ("null", None), rows
        assert rows[ids[3]][1] in ("", b""), rows
        assert plain(rows[ids[4]][1]) == b"a\x00b", rows
        run.stop()


@test
def a_tombstone_reaches_the_worker_as_no_data():
    with Project(exec_consumer("work")) as p:
        id_, = insert(p, [None])
        run = p.run()
        call, = p.wait("the worker", lambda: p.calls("work"))
        assert call["id"] == id_ and call["bytes"] is None, call
        run.stop()


@test
def the_envelope_reaches_the_worker():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Project(exec_consumer("work")) as p:
        p.put(key="clé", body="{}", headers='{"b":"2","a":"ü"}', content_type="application/x+json",
              data_schema="urn:s", aggregate_type="order", aggregate_version=3, correlation_id="c",
              causation_id="d", traceparent=trace, tracestate="x=y", baggage="k=v", tenant="t")
        run = p.run()
        event = p.wait("the worker", lambda: p.calls("work"))[0]["event"]
        run.stop()
        wanted = {"type": "order.paid", "source": "shop", "partitionkey": "clé", "specversion": "1.0",
                  "datacontenttype": "application/x+json", "dataschema": "urn:s", "correlationid": "c",
                  "causationid": "d", "aggregatetype": "order", "traceparent": trace, "tracestate": "x=y",
                  "baggage": "k=v", "tenant": "t"}
        assert {k: event.get(k) for k in wanted} == wanted, event
        assert str(event["aggregateversion"]) == "3" and event["time"].endswith("Z"), event


@test
def a_body_over_the_topics_limit_is_a_dead_letter_of_the_relay():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        bodies = insert(p, [b"x" * (MIB + 1), b"x" * MIB])
        run = p.run()
        p.wait("the effect", lambda: p.count("seen") == 1)
        letter, = p.wait("the dead letter", p.dead)
        assert letter["code"] == "too-large" and letter["consumer"] == "relay:shop", letter
        assert letter["id"] == list(bodies)[0], letter
        run.stop()


main()
