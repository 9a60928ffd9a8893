"""The judge of the crash test: decides from the files alone, with SQL of its own, whether the promises held.

Knows nothing of how the program works: only the tables of the contract and the effects that consumers made.
"""
import sqlite3


def rows(path, sql, *args):
    db = sqlite3.connect(path, timeout=30)
    try:
        return db.execute(sql, args).fetchall()
    finally:
        db.close()


class Consumer:
    """name: full; path: its database; ordered: effects of a key must be in order."""

    def __init__(self, name, path, ordered):
        self.name = name
        self.path = path
        self.ordered = ordered


def committed(shop):
    """id -> (key, number within the key), of every event whose transaction committed."""
    return {id_: (key, number) for id_, key, number in rows(
        shop, "SELECT id, partition_key, json_extract(body, '$.number') FROM tidings_outbox")}


def outcomes(consumer):
    """id -> list of outcomes; more than one would be two inbox rows."""
    found = {}
    for id_, outcome in rows(consumer.path, "SELECT id, outcome FROM tidings_inbox WHERE consumer = ?",
                             consumer.name):
        found.setdefault(id_, []).append(outcome)
    return found


def effects(consumer):
    """(id, key, number) in the order in which the effects were committed."""
    return rows(consumer.path, "SELECT event_id, key, number FROM effects WHERE consumer = ? ORDER BY n",
                consumer.name)


def judge_effects(events, consumer, seen):
    """Each effect once, only of committed events, in order of the key."""
    wrong, last, times = [], {}, {}
    for id_, key, number in seen:
        times[id_] = times.get(id_, 0) + 1
        if id_ not in events:
            wrong.append(f"{consumer.name}: effect of {id_}, which nobody committed")
        if consumer.ordered and number <= last.get(key, 0) and times[id_] == 1:
            wrong.append(f"{consumer.name}: key {key}: number {number} took effect after {last[key]}")
        last[key] = max(number, last.get(key, 0))
    wrong += [f"{consumer.name}: {id_} took effect {n} times" for id_, n in times.items() if n > 1]
    return wrong


def judge(shop, consumers):
    """Everything that is wrong, at rest: committed ids = outcomes, each effect once, order kept."""
    events = committed(shop)
    wrong = []
    for consumer in consumers:
        known = outcomes(consumer)
        seen = effects(consumer)
        wrong += judge_effects(events, consumer, seen)
        took_effect = {id_ for id_, _, _ in seen}
        for id_ in events:
            if id_ not in known:
                wrong.append(f"{consumer.name}: {id_} has no outcome: lost")
            elif known[id_] != ["effect"]:
                wrong.append(f"{consumer.name}: {id_} ended as {known[id_]}")
            elif id_ not in took_effect:
                wrong.append(f"{consumer.name}: {id_} is marked effect and has none")
        wrong += [f"{consumer.name}: an outcome for {id_}, which nobody committed"
                  for id_ in known if id_ not in events]
    return wrong
