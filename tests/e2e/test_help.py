"""Help, version, and command lines that are wrong."""
from project import Project
from tap import main, test

COMMANDS = ["init", "check", "run", "publish", "status", "trace", "dead list", "dead show", "dead edit",
            "dead replay", "dead discard", "outbox rebase", "version", "help"]


@test
def the_overview_names_every_command():
    with Project(init=False) as p:
        for args in (["help"], ["--help"], ["-h"]):
            result = p.call(*args)
            assert result.err == "", result
            for command in COMMANDS:
                assert f"  {command} " in result.out, (command, result)


@test
def every_command_has_help_that_names_its_options():
    with Project(init=False) as p:
        for command in COMMANDS:
            words = command.split()
            page = p.call(*words, "--help").out
            assert page.startswith(f"Usage: tidings {command}"), page
            assert p.call("help", *words).out == page
        assert "--reason" in p.call("dead", "discard", "--help").out
        assert "--rate" in p.call("dead", "replay", "--help").out


@test
def help_of_the_configuration():
    with Project(init=False) as p:
        assert "inbox" in p.call("help", "config").out
        page = p.call("help", "config", "retry").out
        assert "attempts" in page, page
        said = p.call("help", "config", "retri", code=64)
        assert said.out == "" and said.err, said
        said = p.call("help", "nonsense", code=64)
        assert "nonsense" in said.err, said


@test
def help_needs_no_configuration():
    with Project(config="not: right", init=False) as p:
        p.call("status", "--help")
        p.call("version")


@test
def version():
    with Project(init=False) as p:
        for args in (["version"], ["--version"]):
            out = p.call(*args).out
            assert out.startswith("tidings ") and "sqlite" in out and "embedded" in out, out


@test
def unknown_commands_are_64_with_a_suggestion():
    with Project(init=False) as p:
        for wrong, meant in (("statsu", "status"), ("chek", "check"), ("publsh", "publish")):
            result = p.call(wrong, code=64)
            assert result.out == "" and f"did you mean '{meant}'?" in result.err, result
        result = p.call("frobnicate", code=64)
        assert "tidings help" in result.err, result
        assert "dead replay" in p.call("dead", code=64).err
        assert "dead list" in p.call("dead", "lst", code=64).err
        assert "Usage: tidings" in p.call(code=64).err


@test
def unknown_options_are_64_with_a_suggestion():
    with Project() as p:
        result = p.call("status", "--jsno", code=64)
        assert result.out == "" and "--jsno" in result.err and "--json" in result.err, result
        result = p.call("dead", "discard", "--all", "--raeson", "x", code=64)
        assert "--reason" in result.err, result
        result = p.call("status", "-z", code=64)
        assert "-z" in result.err or "'z'" in result.err, result
        result = p.call("publish", "--type", code=64)
        assert "--type" in result.err, result


@test
def wrong_numbers_of_words_are_64():
    with Project() as p:
        assert "ID is missing" in p.call("trace", code=64).err
        assert "one word too many" in p.call("status", "shop", code=64).err
        assert "given twice" in p.call("publish", "--type", "a", "--type", "b", code=64).err
        for option in ("--outbox", "--consumer"):
            said = p.call("run", option, "nobody", code=64)
            assert "nobody" in said.err, said


main()
