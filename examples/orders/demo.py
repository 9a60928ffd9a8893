"""Runs the order example and shows what happened.

usage: demo.py TIDINGS         TIDINGS is the program, for example build/tidings

Places orders from two processes while processes are killed with kill -9, sends duplicates, one malformed event
and one of a type that no topic takes; then counts. Ends with 1 if a number is not what it must be.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import schema

ORDERS = 500
KILLS = 20
DUPLICATES = 40
LIMIT_SECONDS = 120
HERE = schema.FOLDER
CONFIG = os.path.join(HERE, "tidings.yaml")


class Demo:
    def __init__(self, tidings):
        self.tidings = os.path.abspath(tidings)
        self.random = random.Random(os.environ.get("DEMO_SEED", "7"))
        self.relayer = None
        self.kills = 0

    # -- processes ----

    def call(self, *args, stdin=None, check=True):
        done = subprocess.run([self.tidings, *args, "-c", CONFIG], input=stdin, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            sys.exit(f"tidings {' '.join(args)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def start(self):
        log = open(os.path.join(HERE, "data", "run.log"), "a")
        self.relayer = subprocess.Popen([self.tidings, "run", "-c", CONFIG], stdout=log, stderr=log)
        log.close()

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1

    def shop(self, first, last):
        return subprocess.Popen([sys.executable, os.path.join(HERE, "shop.py"), str(first), str(last)],
                                cwd=HERE)

    # -- the story ----

    def prepare(self):
        shutil.rmtree(os.path.join(HERE, "data"), ignore_errors=True)
        os.mkdir(os.path.join(HERE, "data"))
        self.call("init")
        schema.make_tables()
        print("data/shop.db, data/consumers.db made · topic orders, consumers points, mail, audit\n")

    def place_orders(self):
        """Two shops and a run; every now and then one of the three is killed and started again."""
        half = ORDERS // 2
        spans = [(1, half), (half + 1, ORDERS)]
        shops = [self.shop(*span) for span in spans]
        self.start()
        dots = 0
        print(f"placing {ORDERS} orders while processes are killed ", end="", flush=True)
        while self.kills < KILLS or any(shop.poll() is None for shop in shops):
            time.sleep(self.random.uniform(0.05, 0.6))
            victim = self.random.choice([0, 1, None, None])
            if self.kills >= KILLS:
                victim = -1
            if victim is None:
                self.kill(self.relayer)
                self.start()
            elif victim >= 0 and shops[victim].poll() is None:
                self.kill(shops[victim])
                shops[victim] = self.shop(*spans[victim])
            if dots < 12:
                print(".", end="", flush=True)
                dots += 1
        for span, shop in zip(spans, shops):
            if shop.wait() != 0:
                sys.exit(f"the shop of orders {span} failed")
        db = schema.connect(schema.SHOP)
        placed, = db.execute("SELECT count(*) FROM orders").fetchone()
        print(f" {placed} committed, {self.kills} kills")
        return db

    def send_trouble(self, db):
        """Duplicates of published events, one event without user_id, one of an unknown type."""
        events = db.execute("SELECT id, partition_key, body FROM tidings_outbox WHERE type = 'order.paid'"
                            " ORDER BY id LIMIT ?", (DUPLICATES,)).fetchall()
        for id_, key, body in events:
            self.call("publish", "--type", "order.paid", "--id", id_, "--key", key, stdin=body)
        db.execute("INSERT INTO tidings_outbox(type, partition_key, body) VALUES"
                   " ('order.paid', 'order-381', ?)", (json.dumps({"order": 381, "total": {"points": 9}}),))
        db.execute("INSERT INTO tidings_outbox(type, partition_key, body) VALUES"
                   " ('stock.low', 'item-4', '{}')")
        print(f"duplicates sent on purpose: {len(events)} · one malformed event · "
              "one of a type that no topic takes\n")

    def counts(self):
        shop, consumers = schema.connect(schema.SHOP), schema.connect(schema.CONSUMERS)
        orders, = shop.execute("SELECT count(*) FROM orders").fetchone()
        events, = shop.execute("SELECT count(*) FROM tidings_outbox WHERE type = 'order.paid'").fetchone()
        seen, twice = {}, {}
        for name, table, key in (("points", "points", "order_id"), ("mails", "mails", "event_id"),
                                 ("audit", "audit", "event_id")):
            seen[name], = consumers.execute(f"SELECT count(*) FROM {table}").fetchone()
            twice[name], = consumers.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM {table} GROUP BY {key} HAVING count(*) > 1)").fetchone()
        shop.close()
        consumers.close()
        return orders, events, seen, twice

    def wait_for(self, what, condition):
        end = time.monotonic() + LIMIT_SECONDS
        while not condition():
            if self.relayer.poll() is not None:
                sys.exit(f"tidings run ended with {self.relayer.returncode}, see {HERE}/data/run.log")
            if time.monotonic() > end:
                print(self.call("status", check=False))
                sys.exit(f"waited {LIMIT_SECONDS} s in vain for: {what}")
            time.sleep(0.1)

    def settled(self):
        orders, events, seen, _ = self.counts()
        return seen == {"points": orders, "mails": events, "audit": events} and len(self.letters()) == 2

    def letters(self):
        return [json.loads(line) for line in self.call("dead", "list", "--jsonl").splitlines()]

    def report(self):
        orders, events, seen, twice = self.counts()
        consumers = json.loads(self.call("status", "--json"))["consumers"]
        duplicates = sum(c["duplicates_total"] for c in consumers.values())
        print(f"{'':19}orders  events  points  mails  audit")
        print(f"  {'expected':16}{ORDERS:7}{ORDERS + 1:8}{ORDERS:8}{ORDERS + 1:7}{ORDERS + 1:7}")
        print(f"  {'seen':16}{orders:7}{events:8}{seen['points']:8}{seen['mails']:7}{seen['audit']:7}")
        print(f"  {'twice':16}{0:7}{0:8}{twice['points']:8}{twice['mails']:7}{twice['audit']:7}\n")
        print(f"  duplicates ignored by consumers {duplicates} (those sent on purpose the broker knew already)\n")
        wrong = (orders, events, seen, twice) != (
            ORDERS, ORDERS + 1, {"points": ORDERS, "mails": ORDERS + 1, "audit": ORDERS + 1},
            {"points": 0, "mails": 0, "audit": 0})
        if wrong:
            sys.exit("the numbers are not what they must be")

    def mend(self):
        """The first dead letter is mended and replayed, the second given up with a reason."""
        print("The dead letters:")
        for letter in self.letters():
            print(f"  {letter['consumer']:12} {letter['type']:11} {letter['key'] or '-':10} "
                  f"{letter['code']:11} {letter['reason']}")
        bad = next(x for x in self.letters() if x["consumer"] == "points")
        lost = next(x for x in self.letters() if x["consumer"].startswith("relay:"))
        mended = json.dumps({"user_id": 7, "order": 381, "total": {"points": 9}})
        self.call("dead", "edit", bad["id"], "--consumer", "points", "--body", "-", stdin=mended)
        self.call("dead", "replay", "--id", bad["id"], "--wait")
        self.call("dead", "discard", "--id", lost["id"], "--reason", "nobody wants stock.low yet", "--yes")
        self.wait_for("the mended event", lambda: self.counts()[2]["points"] == ORDERS + 1)
        if self.letters():
            sys.exit("there are dead letters left")
        print("The first was mended with  tidings dead edit  and replayed: points "
              f"{self.counts()[2]['points']}. The second was discarded with a reason.\n")

    def end(self):
        self.relayer.terminate()
        if self.relayer.wait(timeout=30) != 0:
            sys.exit(f"tidings run ended with {self.relayer.returncode}, see {HERE}/data/run.log")

    def run(self):
        self.prepare()
        try:
            db = self.place_orders()
            self.send_trouble(db)
            self.wait_for("every order to have its effects", self.settled)
            self.report()
            self.mend()
            self.end()
        finally:
            if self.relayer is not None and self.relayer.poll() is None:
                self.relayer.kill()
                self.relayer.wait()
        where = os.path.relpath(CONFIG)
        tidings = os.path.relpath(self.tidings)
        print(f"Next:  less {where}        the whole configuration")
        print(f"       {tidings} status -c {where}")
        print(f"       {tidings} check -c {where}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Demo(sys.argv[1]).run()
