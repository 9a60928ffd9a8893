"""The rig of the crash test: a shop with three writers, a `tidings run` that is killed, and two consumers with
a database each. Classifies every kill by the files that it left.
"""
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from judge import Consumer, rows

TIDINGS = os.environ["TIDINGS"]
HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = 60
LIMIT_SECONDS = 90

EFFECTS = """CREATE TABLE effects(n INTEGER PRIMARY KEY AUTOINCREMENT, consumer TEXT NOT NULL,
    event_id TEXT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, need INTEGER NOT NULL,
    attempt INTEGER NOT NULL, CONSTRAINT needs_more_runs CHECK (attempt >= need))"""

CONFIG = """
service: shop
stores:
  shop: {{ driver: sqlite, path: shop.db }}
  one:  {{ driver: sqlite, path: one.db }}
  two:  {{ driver: sqlite, path: two.db }}
brokers: {{ main: {{ driver: embedded, path: broker.d }} }}
topics: {{ events: {{ broker: main, types: ["event.*"] }} }}
outboxes: {{ shop: {{ store: shop }} }}
consumers:
  ordered:
    from: events
    store: one
    handler: {{ sql: [ {{ run: "INSERT INTO effects(consumer, event_id, key, number, need, attempt)
                              VALUES (:consumer, :id, :key, :number, :need, :attempt)" }} ] }}
    params: {{ consumer: $consumer, id: $id, key: $key, number: /number, need: /need, attempt: $attempt }}
    classify: {{ "23514": retry }}
    retry: {{ initial: 30ms, max_delay: 60ms, attempts: 2 }}
  free:
    from: events
    store: two
    order: none
{free}
log: {{ level: info }}
"""

SQL_FREE = """    handler: {{ sql: [ {{ run: "INSERT INTO effects(consumer, event_id, key, number, need, attempt)
                              VALUES (:consumer, :id, :key, :number, 0, :attempt)" }} ] }}
    params: {{ consumer: $consumer, id: $id, key: $key, number: /number, attempt: $attempt }}
"""
# The negative control: effect and inbox row in two transactions.
APART_FREE = """    handler: {{ exec: {{ command: [python3, "{here}/apart.py"], workers: 2, timeout: 10s }} }}
"""

CLASSES = ("published, position not stored", "committed, not acknowledged", "parked, not acknowledged",
           "replay running", "three keys blocked")


class Rig:
    def __init__(self, apart=False, seed=1):
        self.folder = tempfile.mkdtemp(prefix="tidings-crash-")
        self.random = random.Random(seed)
        self.config = os.path.join(self.folder, "tidings.yaml")
        self.process = None
        self.writers = []
        self.hits = dict.fromkeys(CLASSES, 0)
        self.kills = 0
        free = (APART_FREE if apart else SQL_FREE).format(here=HERE)
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(free=free))
        self.call("init")
        for name in ("one", "two"):
            self.db(name).execute(EFFECTS).connection.close()
        self.db("shop").execute("CREATE TABLE counters(key TEXT PRIMARY KEY, number INTEGER NOT NULL)"
                                ).connection.close()
        self.consumers = [Consumer("shop.ordered", self.path("one"), True),
                          Consumer("shop.free", self.path("two"), False)]

    def path(self, name):
        return os.path.join(self.folder, name + ".db")

    def db(self, name):
        return sqlite3.connect(self.path(name), timeout=30, isolation_level=None)

    def call(self, *args, check=True):
        done = subprocess.run([TIDINGS, *args, "-c", self.config], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise AssertionError(f"tidings {' '.join(args)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    # -- processes ----

    def start_writers(self):
        for number in range(3):
            self.writers.append(subprocess.Popen(
                [sys.executable, os.path.join(HERE, "writer.py"), self.path("shop"), str(number), str(KEYS)]))

    def stop_writers(self):
        for writer in self.writers:
            writer.send_signal(signal.SIGTERM)
        for writer in self.writers:
            assert writer.wait() == 0, "a writer failed"
        self.writers = []

    def start(self):
        with open(os.path.join(self.folder, "run.log"), "ab") as log:
            self.process = subprocess.Popen([TIDINGS, "run", "-c", self.config], stdout=log, stderr=log,
                                            cwd=self.folder)

    def wait_for(self, what, condition):
        end = time.monotonic() + LIMIT_SECONDS
        while not condition():
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"tidings run ended with {self.process.returncode}:\n" + self.log_tail())
            if time.monotonic() > end:
                raise AssertionError(f"waited {LIMIT_SECONDS} s in vain for: {what}\n"
                                     + self.call("status", check=False) + self.log_tail())
            time.sleep(0.01)

    def log_tail(self):
        with open(os.path.join(self.folder, "run.log"), encoding="utf-8", errors="replace") as f:
            return f.read()[-3000:]

    def effects(self):
        return sum(rows(self.path(name), "SELECT coalesce(max(n), 0) FROM effects")[0][0]
                   for name in ("one", "two"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None
        self.kills += 1
        for name in self.classify():
            self.hits[name] += 1

    def short_run(self):
        """Start, see that it works, perhaps replay, and kill it at a random moment."""
        before = self.effects()
        self.start()
        self.wait_for("an effect", lambda: self.effects() > before)
        if self.random.random() < 0.6:
            self.call("dead", "replay", "--all", "--rate", "5/s", "--no-wait")
        # The random moment of the kill: while the backlog of the last kill is worked off, later, or
        # right after an effect.
        time.sleep(self.random.uniform(0, self.random.choice((0.01, 0.1, 0.5))))
        if self.random.random() < 0.4:
            before = self.effects()
            self.wait_for("an effect", lambda: self.effects() > before)
        self.kill()

    # -- what a kill left ----

    def in_broker(self):
        """consumer -> ids that the broker holds for it."""
        path = os.path.join(self.folder, "broker.d", "broker.db")
        return {name: {id_ for id_, in rows(
            path, f"SELECT json_extract(env, '$.id') FROM q_{number}")}
                for number, name in rows(path, "SELECT id, name FROM queue")}

    def classify(self):
        held = self.in_broker()
        position, = rows(self.path("shop"), "SELECT coalesce(max(seq), 0) FROM tidings_position")[0]
        later = {id_ for id_, in rows(self.path("shop"), "SELECT id FROM tidings_outbox WHERE seq > ?", position)}
        found = set()
        for consumer in self.consumers:
            inbox = dict(rows(consumer.path, "SELECT id, outcome FROM tidings_inbox WHERE consumer = ?",
                              consumer.name))
            waiting = held.get(consumer.name, set())
            if later & (waiting | set(inbox)):
                found.add(CLASSES[0])
            if any(inbox.get(id_) == "effect" for id_ in waiting):
                found.add(CLASSES[1])
            if any(inbox.get(id_) in ("retry", "blocked", "dead") for id_ in waiting):
                found.add(CLASSES[2])
        one = self.path("one")
        if rows(one, "SELECT 1 FROM tidings_parked WHERE outcome = 'retry' AND history LIKE '%replay%' LIMIT 1"):
            found.add(CLASSES[3])
        blocked, = rows(one, "SELECT count(DISTINCT partition_key) FROM tidings_parked WHERE outcome = 'blocked'")[0]
        if blocked >= 3:
            found.add(CLASSES[4])
        return found

    # -- the end ----

    def open_ids(self):
        """Committed ids that are not `effect` in some consumer yet."""
        events = {id_ for id_, in rows(self.path("shop"), "SELECT id FROM tidings_outbox")}
        return set().union(*(events - {id_ for id_, in rows(
            c.path, "SELECT id FROM tidings_inbox WHERE consumer = ? AND outcome = 'effect'", c.name)}
                             for c in self.consumers))

    def finish(self):
        """Writers stop, the program runs undisturbed, dead letters are replayed until none is left."""
        self.stop_writers()
        self.start()
        end = time.monotonic() + 3 * LIMIT_SECONDS
        while self.open_ids():
            if time.monotonic() > end:
                raise AssertionError(f"{len(self.open_ids())} messages do not come to an end\n"
                                     + self.call("status", check=False) + self.log_tail())
            self.call("dead", "replay", "--all", "--no-wait")
            time.sleep(0.2)
        self.process.terminate()
        assert self.process.wait(timeout=60) == 0, "tidings run did not drain:\n" + self.log_tail()
        self.process = None

    def close(self, keep=False):
        for process in self.writers + ([self.process] if self.process else []):
            process.kill()
            process.wait()
        if keep:
            print(f"# files are kept in {self.folder}")
        else:
            shutil.rmtree(self.folder)

    def report(self):
        events, = rows(self.path("shop"), "SELECT count(*) FROM tidings_outbox")[0]
        print("# " + json.dumps({"kills": self.kills, "events": events, "hits": self.hits}))
