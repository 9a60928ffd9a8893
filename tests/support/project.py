"""A folder with a configuration, and the real program in it: what the black-box tests share.

Everything is made under a temporary folder that goes away with the `with` block; programs that a test
started and left running are killed, by their pid.
"""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

TIDINGS = os.environ.get("TIDINGS", "tidings")
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
WAIT_SECONDS = 60    # for a condition; long, because machines are loaded
CALL_SECONDS = 120   # for a command

CONFIG = """\
service: shop
stores:
  shop: { driver: sqlite, path: shop.db }
brokers:
  main: { driver: embedded, path: broker.d }
topics:
  orders: { types: ["order.*"] }
outboxes:
  shop: { store: shop }
"""

# A consumer that writes down all that a sql effect can see of a message.
SEEN = """\
  seen:
    from: orders
    handler:
      sql:
        - run: INSERT INTO seen(id, type, key, body) VALUES (:id, :type, :key, :body)
    params: { id: $id, type: $type, key: $key, body: $body }
"""
SEEN_TABLE = "CREATE TABLE seen(id TEXT, type TEXT, key TEXT, body BLOB)"


class Result:
    """What a command said."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.raw = args, code, out
        self.out = out.decode("utf-8", "surrogateescape")
        self.err = err.decode("utf-8", "surrogateescape")

    def __str__(self):
        return f"tidings {' '.join(self.args)}: exit {self.code}\n{self.out}{self.err}"

    def json(self):
        return json.loads(self.out)

    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


class Running:
    """A `tidings run` in the background; its log is in a file."""

    def __init__(self, project, args, env=None):
        self.log_path = os.path.join(project.folder, f"run{len(project.running)}.log")
        self.log_file = open(self.log_path, "wb")
        self.process = subprocess.Popen(
            [TIDINGS, "run", *args], cwd=project.folder, env=env, stdin=subprocess.DEVNULL,
            stdout=self.log_file, stderr=self.log_file)
        self.pid = self.process.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds=WAIT_SECONDS):
        code = self.process.wait(seconds)
        self.log_file.close()
        return code

    def stop(self):
        """Drain; the log is shown if that does not end well."""
        self.signal(signal.SIGTERM)
        code = self.wait()
        assert code == 0, f"tidings run ended with {code}\n{self.log()}"

    def alive(self):
        return self.process.poll() is None


class Project:
    """with Project(consumers=SEEN, tables=[SEEN_TABLE]) as p: ..."""

    def __init__(self, consumers="", config=None, tables=(), init=True):
        self.folder = tempfile.mkdtemp(prefix="e2e-")
        self.running = []
        self.databases = []
        if config is None:
            config = CONFIG + (f"consumers:\n{consumers}" if consumers else "")
        try:
            self.write("tidings.yaml", config)
            if init:
                self.call("init")
                for table in tables:
                    self.sql(table)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for running in self.running:
            if running.alive():
                running.kill()
            if kind is not None:
                print(f"--- {running.log_path}\n{running.log()}")
        for database in self.databases:
            database.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- files and databases ----

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, data):
        data = data.encode() if isinstance(data, str) else data
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def read(self, name):
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def db(self, name="shop.db"):
        """A connection as an application has it: autocommit, patient."""
        database = sqlite3.connect(self.path(name), timeout=30, isolation_level=None)
        database.execute("PRAGMA wal_autocheckpoint = 0")
        self.databases.append(database)
        return database

    def sql(self, statement, *values, name="shop.db"):
        database = sqlite3.connect(self.path(name), timeout=30, isolation_level=None)
        database.execute("PRAGMA wal_autocheckpoint = 0")
        try:
            return database.execute(statement, values).fetchall()
        finally:
            database.close()

    def count(self, table, where="1", name="shop.db"):
        return self.sql(f"SELECT count(*) FROM {table} WHERE {where}", name=name)[0][0]

    def put(self, type_="order.paid", key=None, body="{}", **columns):
        """One row of the outbox; returns its id."""
        columns = {"type": type_, "partition_key": key, "body": body, **columns}
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        return self.sql(f"INSERT INTO tidings_outbox({names}) VALUES ({marks}) RETURNING id",
                        *columns.values())[0][0]

    # ---- the program ----

    def call(self, *args, code=0, stdin=b"", env=None, **options):
        stdin = stdin.encode() if isinstance(stdin, str) else stdin
        environment = dict(os.environ, **env) if env else None
        done = subprocess.run([TIDINGS, *args], cwd=self.folder, input=stdin, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              timeout=CALL_SECONDS, **options)
        result = Result(args, done.returncode, done.stdout, done.stderr)
        assert code is None or done.returncode == code, f"wanted exit {code}, got: {result}"
        return result

    def run(self, *args):
        running = Running(self, args)
        self.running.append(running)
        return running

    def status(self):
        return self.call("status", "--json").json()

    def consumer(self, name):
        return self.status()["consumers"][name]

    def dead(self, *args):
        return self.call("dead", "list", "--jsonl", *args).lines()

    def wait(self, what, condition, seconds=WAIT_SECONDS):
        """Until the condition gives something true, which is returned."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            for running in self.running:
                running.process.poll()
            if time.monotonic() > end:
                state = self.call("status", code=None)
                raise AssertionError(f"waited {seconds} s in vain for: {what}\n{state}")
            time.sleep(0.03)

    def wait_running(self, running):
        """Until the owner of the embedded broker answers."""
        def owned():
            assert running.alive(), f"tidings run ended\n{running.log()}"
            return self.status()["brokers"]["main"].get("owner_pid") == running.pid
        self.wait("tidings run to own the broker", owned)

    # ---- workers of exec consumers ----

    def mode(self, name, text):
        """Atomically: a worker reads it at every delivery."""
        self.write(f"{name}.mode.new", text)
        os.replace(self.path(f"{name}.mode.new"), self.path(f"{name}.mode"))

    def calls(self, name):
        """What the worker saw, one dictionary a delivery."""
        return [json.loads(line) for line in self.read(f"{name}.jsonl").splitlines()]


def exec_consumer(name, options="", more=""):
    """YAML of a consumer whose worker is worker.py."""
    return (f"  {name}:\n    from: orders\n"
            f"    handler: {{ exec: {{ command: [python3, {WORKER}, {name}]{options} }} }}\n{more}")
