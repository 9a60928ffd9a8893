"""Mutants: one line of the product is broken in a copy of the tree, and the tests named for it must fail.

Each entry is a promise, the line that keeps it, what breaks it, and the test programs that must notice. A mutant
that survives, or a line that is no longer there, fails. Runs in `make test-long`.
"""
import os
import shutil
import subprocess
import tempfile

import tap

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_SECONDS = 600

MUTANTS = [
    ("rows are published before they are on disk", "src/relay/run.c",
     "    if (r->undurable) {\n        return tdi_relay_durable(r);",
     "    if (r->undurable) {\n        r->undurable = false;\n        return TDI_STEP_AGAIN;",
     ["test_relay_publish"]),
    ("dead rows are left out of the transaction that moves the position", "src/relay/settle.c",
     ".dead_count = list_dead(r, f),", ".dead_count = 0 * list_dead(r, f),", ["test_relay_dead"]),
    ("what is refused for now is parked as dead", "src/relay/publish.c",
     "if (p->class_ != TD_CLASS_PERMANENT) {\n        return TD_DEAD_NONE;",
     "if (p->class_ != TD_CLASS_PERMANENT) {\n        return TD_DEAD_INVALID;",
     ["test_relay_dead", "test_relay_publish"]),
    ("a relay goes on after its lease has run out", "src/relay/run.c",
     "    if (now >= r->lease_until) {\n        if (r->stopping)",
     "    if (false) {\n        if (r->stopping)", ["test_relay_lease"]),
    ("followers of a head that has ended are not released", "src/consumer/decide.c",
     "s->release_next = w->parked && !s->blocks_key;", "s->release_next = false;",
     ["test_consumer_parked", "test_consumer_random"]),
    ("a settlement does not expect its attempt number", "src/consumer/decide.c",
     ".expected_attempts = w->parked ? w->attempts : 0,", ".expected_attempts = 0,",
     ["test_consumer_parked", "test_consumer_random"]),
    ("attempts have no limit", "src/consumer/decide.c",
     "} else if (s->attempts >= s->attempt_limit) {", "} else if (s->attempts < 0) {",
     ["test_consumer_parked"]),
    ("a known unfinished message does not block its key", "src/consumer/decide.c",
     "    if (c->o.order != TDI_ORDER_BLOCK) {\n        return false;\n    }\n    switch (known) {\n"
     "    case TD_OUTCOME_RETRY:\n    case TD_OUTCOME_BLOCKED:\n        return true;",
     "    if (c->o.order != TDI_ORDER_BLOCK) {\n        return false;\n    }\n    switch (known) {\n"
     "    case TD_OUTCOME_RETRY:\n    case TD_OUTCOME_BLOCKED:\n        return false;",
     ["test_consumer_inside", "test_consumer_random"]),
    ("nothing is acknowledged", "src/consumer/commit.c",
     "    if (!w->parked) {\n        tdi_hand_queue_ack(c, w);", "    if (false) {\n        tdi_hand_queue_ack(c, w);",
     ["test_consumer_inside"]),
    ("the window after an unclean end is run as if nothing had happened", "src/consumer/session.c",
     "c->window = c->lease.unclean || c->suspect;", "c->window = c->suspect;",
     ["test_consumer_lifecycle", "test_consumer_parked", "test_consumer_random"]),
    ("a transaction begins after the lease has run out", "src/consumer/tx.c",
     "    if (now >= c->lease_until) {", "    if (now < 0) {",
     ["test_consumer_lifecycle", "test_consumer_inside", "test_consumer_random"]),
    ("the broker confirms without a sync", "src/broker/embedded/step.c",
     "rc = tdi_db_sync(&in->writer, &err);\n        (void)pthread_mutex_lock",
     "(void)pthread_mutex_lock", ["test_embedded_power", "test_embedded_faults"]),
    ("a failed sync is taken for a good one", "src/broker/embedded/step.c",
     "if (rc == TD_OK && !in->failed) {\n        finish(in, &list);",
     "if (!in->failed) {\n        finish(in, &list);", ["test_embedded_faults"]),
    ("an id whose commit failed counts as seen", "src/broker/embedded/write.c",
     "    tdd_emb_dedupe_undo(&in->dedupe);\n    for", "    for", ["test_embedded_faults"]),
    ("messages that were delivered before have no mark", "src/broker/embedded/refill.c",
     "tdd_emb_window_add(in, q, id, e, id <= q->delivered_hi)", "tdd_emb_window_add(in, q, id, e, false)",
     ["test_embedded_owner", "test_embedded_model"]),
    ("a pipeline goes on behind a refused message", "src/broker/embedded/publish.c",
     "} else if (p->broken_at != 0) {", "} else if (p->broken_at == 1) {",
     ["conformance_broker_embedded", "test_embedded_model"]),
]


class Copy:
    """A copy of the tree with a build folder of its own; built once, then file by file."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tidings-mutants-")
        self.tree = os.path.join(self.folder, "tree")
        shutil.copytree(TOP, self.tree, symlinks=True, ignore=shutil.ignore_patterns("build", ".git", ".cache"))
        self.build = os.path.join(self.tree, "build", "dev")
        self.run("cmake", "--preset", "dev")

    def run(self, *command, check=True):
        done = subprocess.run(command, cwd=self.tree, text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.returncode

    def tests_pass(self, tests):
        self.run("cmake", "--build", "build/dev", "--target", *tests)
        pattern = "^(" + "|".join(tests) + ")$"
        return self.run("ctest", "--test-dir", "build/dev", "-R", pattern, "--timeout", "240", check=False) == 0

    def mutate(self, path, line, broken):
        """The former text of the file."""
        full = os.path.join(self.tree, path)
        with open(full, encoding="utf-8") as f:
            text = f.read()
        assert text.count(line) == 1, f"{path} has the line {text.count(line)} times: {line!r}"
        self.write(path, text.replace(line, broken))
        return text

    def write(self, path, text):
        with open(os.path.join(self.tree, path), "w", encoding="utf-8") as f:
            f.write(text)

    def close(self):
        shutil.rmtree(self.folder)


COPY = []


def copy():
    if not COPY:
        COPY.append(Copy())
    return COPY[0]


@tap.test
def without_a_mutant_every_test_passes():
    assert copy().tests_pass(sorted({test for mutant in MUTANTS for test in mutant[4]}))


def add_test(promise, path, line, broken, tests):
    def check():
        former = copy().mutate(path, line, broken)
        try:
            assert not copy().tests_pass(tests), f"survived: {promise} ({path})"
        finally:
            copy().write(path, former)
    check.__name__ = "dies: " + promise
    tap.test(check)


if __name__ == "__main__":
    for entry in MUTANTS:
        add_test(*entry)
    try:
        tap.main()
    finally:
        for c in COPY:
            c.close()
