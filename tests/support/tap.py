"""Tests in Python: decorate functions with @test, end with main(). Prints TAP.

A test passes when it returns, fails when it raises, and is skipped when it raises Skip(reason).
"""
import sys
import traceback

_tests = []


class Skip(Exception):
    """This test cannot run here; the text says why."""


def test(function):
    _tests.append(function)
    return function


def main():
    failed = 0
    print(f"1..{len(_tests)}", flush=True)
    for number, function in enumerate(_tests, 1):
        name = function.__name__
        try:
            function()
            line = f"ok {number} - {name}"
        except Skip as reason:
            line = f"ok {number} - {name} # SKIP {reason}"
        except Exception:  # pylint: disable=broad-except
            failed += 1
            traceback.print_exc(file=sys.stdout)
            line = f"not ok {number} - {name}"
        print(line, flush=True)
    sys.exit(1 if failed else 0)
