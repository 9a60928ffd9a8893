"""scripts/run-tests must count what test programs say, and not believe those that die."""
import importlib.machinery
import importlib.util
import os
import sys

from tap import main, test

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_runner():
    loader = importlib.machinery.SourceFileLoader("runner", f"{TOP}/scripts/run-tests")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
    loader.exec_module(module)
    return module


RUNNER = load_runner()


def run(script, timeout=60.0):
    return RUNNER.run_program("sample", {
        "command": [sys.executable, "-c", script], "folder": "/", "timeout": timeout,
        "environment": {}}, [])


def counts(outcome):
    return outcome.passed, len(outcome.failed), len(outcome.skipped)


@test
def counts_results():
    outcome = run("print('1..3\\nok 1 - a\\nok 2 - b\\nnot ok 3 - c')")
    assert counts(outcome) == (2, 1, 0), counts(outcome)
    assert outcome.failed == ["c"], outcome.failed


@test
def counts_skipped_with_reason():
    outcome = run("print('1..3\\nok 1 - a\\nno server\\nnot ok 2 # SKIP b\\nok 3 - c # SKIP no net')")
    assert counts(outcome) == (1, 0, 2), counts(outcome)
    assert outcome.skipped == [("b", "no server"), ("c", "no net")], outcome.skipped


@test
def crash_fails_what_was_announced():
    outcome = run("import os; print('1..3\\nok 1 - a', flush=True); os.abort()")
    assert counts(outcome) == (1, 2, 0), counts(outcome)
    assert "SIGABRT" in outcome.failed[0], outcome.failed


@test
def early_exit_with_0_fails():
    assert counts(run("print('1..2\\nok 1 - a')")) == (1, 1, 0)


@test
def bad_exit_code_after_good_results_fails():
    assert counts(run("print('1..1\\nok 1 - a'); raise SystemExit(66)")) == (1, 1, 0)


@test
def silence_fails():
    assert counts(run("pass")) == (0, 1, 0)


@test
def hang_fails_and_is_killed():
    outcome = run("import time; print('1..1', flush=True); time.sleep(600)", timeout=0.5)
    assert counts(outcome) == (0, 1, 0), counts(outcome)
    assert "timed out" in outcome.failed[0], outcome.failed


@test
def temporary_folder_is_removed():
    outcome = run("import os; print('ok 1 - ' + os.environ['TMPDIR']); raise SystemExit(1)")
    folder = outcome.output[0].split(" - ")[1]
    assert "tidings-test-" in folder and not os.path.exists(folder), folder


main()
