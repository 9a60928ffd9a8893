"""tidings check: 78 for the file, 1 for what is outside it, 0 when all is well; text and JSON."""
import os

from project import CONFIG, SEEN, SEEN_TABLE, Project, exec_consumer
from tap import main, test


@test
def all_is_well():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        result = p.call("check")
        assert "nothing to find fault with" in result.out, result
        assert result.err == "", result
        report = p.call("check", "--json").json()
        assert report["findings"] == [], report


@test
def says_what_each_consumer_gives():
    with Project(SEEN + exec_consumer("mail", more="    order: none\n"), tables=[SEEN_TABLE]) as p:
        consumers = p.call("check", "--json").json()["consumers"]
        assert consumers["seen"]["delivery"] == "effectively once", consumers
        assert consumers["mail"]["delivery"] == "at least once", consumers
        assert all(c["why"] and c["order"] for c in consumers.values()), consumers
        text = p.call("check").out
        assert "effectively once" in text and "at least once" in text, text


@test
def changes_nothing():
    with Project(SEEN, init=False) as p:
        p.call("check", code=1)
        assert os.listdir(p.folder) == ["tidings.yaml"]


@test
def findings_outside_the_file_are_1():
    with Project(SEEN) as p:  # the table of the statement is missing
        result = p.call("check", code=1)
        assert "consumer seen" in result.out and "no such table: seen" in result.out, result
        findings = p.call("check", "--json", code=1).json()["findings"]
        assert [f["where"] for f in findings] == ["consumer seen"], findings


@test
def a_missing_database_and_queue_name_init():
    with Project(SEEN, init=False) as p:
        findings = p.call("check", "--json", code=1).json()["findings"]
        assert {f["where"] for f in findings} == {"store shop", "broker main"}, findings
        assert all("tidings init" in f["text"] for f in findings), findings
        p.write("tidings.yaml", CONFIG)
        p.call("init")
        p.write("tidings.yaml", CONFIG + "consumers:\n" + SEEN)
        findings = p.call("check", "--json", code=1).json()["findings"]
        assert any("shop.seen" in f["text"] for f in findings), findings


@test
def mistakes_in_the_file_are_78_on_stderr():
    with Project(SEEN) as p:
        p.write("tidings.yaml", CONFIG + "consumers:\n" + SEEN + "    retrys: { attempts: 3 }\n"
                "    prefetch: many\n")
        for command in (("check",), ("check", "--json"), ("run",), ("status",), ("init",),
                        ("dead", "list"), ("publish", "--type", "order.paid"), ("trace", "x")):
            result = p.call(*command, code=78)
            assert result.out == "", result
            assert "did you mean 'retry'?" in result.err and "2 mistakes" in result.err, result
            assert "tidings.yaml:" in result.err, result


@test
def the_file_is_found_by_option_and_environment():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        p.write("other.yaml", CONFIG.replace("service: shop", "service: other"))
        assert "service other" in p.call("check", "-c", "other.yaml", code=None).out
        assert "service other" in p.call("check", code=None, env={
            "TIDINGS_CONFIG": p.path("other.yaml")}).out
        assert "service shop" in p.call("check").out
        missing = p.call("check", "-c", "none.yaml", code=78)
        assert "none.yaml" in missing.err, missing


@test
def works_beside_a_running_program():
    with Project(SEEN, tables=[SEEN_TABLE]) as p:
        run = p.run()
        p.wait_running(run)
        p.call("check")
        run.stop()


main()
