"""One bash for a page, so that variables stay, and the comparison of what it prints."""
import os
import re
import signal
import subprocess

COMMAND_SECONDS = 60

# What differs from run to run and is shown as it was once.
_VARIES = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"since \d\d:\d\d"), "since TIME"),
    (re.compile(r"\+[\d,.]+ (ms|s|min|h)\b"), "+SPAN"),
    (re.compile(r"\b[\d.]+ (ms|s)\b"), "SPAN"),
    (re.compile(r"[\d,.]+/s\b"), "RATE"),
    (re.compile(r"\bprocess \d+"), "process PID"),
    (re.compile(r"\bmain \d+, with \d+ others?"), "main N, with N others"),
    (re.compile(r"\b((?:edited|replayed|discarded) +\S+), \S+"), r"\1, USER"),
    (re.compile(r" +"), " "),
]


def plain(line):
    for pattern, name in _VARIES:
        line = pattern.sub(name, line)
    return line.strip()


def _pattern(shown):
    """A regular expression of the shown lines."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            pieces = [re.escape(plain(piece)) for piece in line.split("...")]
            parts.append(r"[^\n]*".join(pieces) + r"\n")
    return "".join(parts)


def same(shown, printed, unordered=False):
    """Is this what was shown, but for what varies?"""
    if unordered:
        shown, printed = sorted(map(plain, shown)), sorted(map(plain, printed))
    text = "".join(plain(line) + "\n" for line in printed)
    return re.fullmatch(_pattern(shown), text) is not None


class Shell:
    def __init__(self, folder, program):
        environment = dict(os.environ, LC_ALL="C.UTF-8", TZ="UTC",
                           PATH=os.path.dirname(program) + os.pathsep + os.environ["PATH"])
        environment.pop("TIDINGS_CONFIG", None)
        self.folder, self.environment = folder, environment
        self.background = []
        self.count = 0
        self.bash = subprocess.Popen(["bash", "--noprofile", "--norc"], cwd=folder, env=environment,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, errors="replace")

    def run(self, command):
        """The lines that it prints."""
        self.count += 1
        end = f"--- end of command {self.count} ---"
        # The status of the command before is restored, so that `echo $?` shows it.
        self.bash.stdin.write(f"(exit $status)\n{{ {command}\n}} </dev/null 2>&1; status=$?\n"
                              f"printf '\\n%s\\n' '{end}'\n")
        self.bash.stdin.flush()
        lines = []
        signal.alarm(COMMAND_SECONDS)
        try:
            for line in self.bash.stdout:
                if line.rstrip("\n") == end:
                    break
                lines.append(line.rstrip("\n"))
            else:
                raise AssertionError(f"the shell ended in: {command}")
        finally:
            signal.alarm(0)
        if lines and lines[-1] == "":
            lines.pop()  # the line feed before the end mark, where the output had its own
        return lines

    def start(self, command):
        log = open(os.path.join(self.folder, f".background{len(self.background)}.log"), "w+b")
        self.background.append((subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log), log))

    def stop(self, send=True):
        """Every program of the background ends well."""
        ended, self.background = self.background, []
        for process, log in ended:
            if send and process.poll() is None:
                process.terminate()
            code = process.wait(COMMAND_SECONDS)
            log.seek(0)
            text = log.read().decode("utf-8", "replace")
            log.close()
            assert code == 0, f"ended with {code}:\n{text}"

    def close(self):
        for process, log in self.background:
            process.kill()
            process.wait()
            log.close()
        self.bash.kill()
        self.bash.wait()
