"""Processes: find, stop, start and configure what runs."""

from __future__ import annotations

from ..checks import Alive, Content, Gone, NoCommand, Replies
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]

_WORKER = """\
import sys, time
while True:
    time.sleep(600)
"""

_HOLDER = """\
import sys, time
log = open(sys.argv[1], "a")
log.write("begun\\n" * 2000)
log.flush()
open(sys.argv[2], "w").close()
while True:
    time.sleep(600)
"""

_SUPERVISOR = """\
import subprocess, sys, time
while True:
    subprocess.run([sys.executable, sys.argv[1], "--unit", sys.argv[2]])
    time.sleep(0.2)
"""

_EATER = """\
import sys, time
kept = bytearray(int(sys.stdin.readline()) << 20)
for at in range(0, len(kept), 4096):
    kept[at] = 1
open(sys.argv[1], "w").close()
while True:
    time.sleep(600)
"""

_LISTENER = """\
import socket, sys
port = int(sys.stdin.readline())
with socket.create_server(("127.0.0.1", port)) as server:
    open(sys.argv[2], "w").close()
    while True:
        peer, _ = server.accept()
        peer.close()
"""

_SERVICE = '''\
"""Answers each file in INBOX by one of the same name in OUTBOX: the SHA-256 of SALT, key and its content.

The key is read from the file KEYFILE at the start, and again at SIGHUP.
usage: service.py INBOX OUTBOX KEYFILE [READY]
"""
import hashlib, os, signal, sys, time

SALT = "{salt}"
inbox, outbox, keyfile = sys.argv[1:4]
key = ""


def load(*_):
    global key
    key = open(keyfile).read().strip()


load()
signal.signal(signal.SIGHUP, load)
os.makedirs(inbox, exist_ok=True)
os.makedirs(outbox, exist_ok=True)
for ready in sys.argv[4:]:
    open(ready, "w").close()
while True:
    for name in os.listdir(inbox):
        target = os.path.join(outbox, name)
        if not name.startswith(".") and not os.path.exists(target):
            message = open(os.path.join(inbox, name)).read()
            with open(target + ".part", "w") as answer:
                answer.write(hashlib.sha256((SALT + key + message).encode()).hexdigest())
            os.rename(target + ".part", target)
    time.sleep(0.1)
'''

_QUIET = "</dev/null >/dev/null 2>&1 &"


def _start(name: str, command: str, stdin: str = "/dev/null") -> str:
    return f"{command} <{stdin} >/dev/null 2>&1 & echo {name} $!"


def _wait_for(*paths: str) -> str:
    """Commands that wait until these files are there, and remove them."""
    return f"for f in {' '.join(paths)}; do until [ -e $f ]; do sleep 0.05; done; done; rm {' '.join(paths)}"


def stop_one(draw: Draw) -> Problem:
    script = f"{draw.word()}.py"
    base = draw.word()
    queues = [base, f"{base}-out", f"old-{base}", *draw.names(draw.size(1, 3))]
    victim = draw.choice(queues[:3])
    return Problem(
        prompt=f"Workers run here, one for each queue, as `python3 /work/{script} --queue QUEUE`. Stop the"
        f" worker of the queue {victim}. The others must go on undisturbed, those with similar names too.",
        files={script: _WORKER},
        setup="\n".join(
            _start(name, f"python3 /work/{script} --queue {name}") for name in draw.shuffled(queues)
        ),
        checks=(Gone((victim,)), Alive(tuple(name for name in queues if name != victim))),
        solution=f"pkill -f -- '--queue {victim}$'; sleep 0.2",
    )


def stop_for_good(draw: Draw) -> Problem:
    script, keeper = (f"{word}.py" for word in draw.words(2))
    units = draw.names(1 + draw.level)
    victim = draw.choice(units)
    return Problem(
        prompt=f"Each unit here is a process of /work/{script}, and something starts it again when it ends."
        f" Stop the unit {victim} for good. The other units and what watches over them must go on"
        " undisturbed.",
        files={script: _WORKER, keeper: _SUPERVISOR},
        setup="\n".join(
            [
                *(_start(name, f"python3 /work/{keeper} /work/{script} {name}") for name in units),
                *(
                    f"until pid=$(pgrep -f -- '--unit {name}$'); do sleep 0.05; done; echo {name}.unit $pid"
                    for name in units
                    if name != victim
                ),
                f"until pgrep -f -- '--unit {victim}$' >/dev/null; do sleep 0.05; done",
            ]
        ),
        checks=(
            Gone((victim,)),
            NoCommand(f"--unit {victim}"),
            Alive(tuple(each for name in units if name != victim for each in (name, f"{name}.unit"))),
        ),
        solution=f"pkill -f '{keeper} .* {victim}$'; pkill -f -- '--unit {victim}$'; sleep 0.3",
    )


def start_service(draw: Draw) -> Problem:
    script, inbox, outbox = f"{draw.word()}.py", *draw.words(2)
    salt, key, keyfile = draw.code(), draw.code(), f"{draw.word()}.key"
    return Problem(
        prompt=f"Start the program {script} with python3 in the background, so that it goes on running: its"
        f" inbox is /work/{inbox}, its outbox /work/{outbox}, and its key, in a file that you make,"
        f" /work/{keyfile}, is {key}. The program's first lines say how it is used.",
        files={script: _SERVICE.replace("{salt}", salt)},
        checks=(Content(keyfile, key), Replies(inbox, outbox, salt + key)),
        solution=f"echo {key} > {keyfile}; python3 {script} /work/{inbox} /work/{outbox} /work/{keyfile}"
        f" {_QUIET}\n"
        f"until [ -d {outbox} ]; do sleep 0.05; done",
    )


def reload_service(draw: Draw) -> Problem:
    script, inbox, outbox, keyfile = f"{draw.word()}.py", *draw.words(2), f"{draw.word()}.key"
    salt, old, new = draw.code(), draw.code(), draw.code()
    return Problem(
        prompt=f"The service /work/{script} runs here with the key file /work/{keyfile}. Have it use the"
        f" key {new} without a restart: its process must stay the same one. The program says how.",
        files={script: _SERVICE.replace("{salt}", salt), keyfile: f"{old}\n"},
        setup=_start(
            "service",
            f"python3 /work/{script} /work/{inbox} /work/{outbox} /work/{keyfile} /work/ready",
        )
        + f"\n{_wait_for('ready')}",
        checks=(Content(keyfile, new), Alive(("service",)), Replies(inbox, outbox, salt + new)),
        solution=f"echo {new} > {keyfile}; pkill -HUP -f '^python3 /work/{script}'; sleep 0.3",
    )


def port_owner(draw: Draw) -> Problem:
    script, answer = f"{draw.word()}.py", f"{draw.word()}.txt"
    names = draw.names(3 + draw.size(2, 3))
    ports = dict(zip(names, draw.sample(range(4000, 30000), len(names)), strict=True))
    wanted = draw.choice(names)
    return Problem(
        prompt=f"Several servers run here, as `python3 /work/{script} NAME`. Write the name of the one that"
        f" listens on TCP port {ports[wanted]} to {answer}. All of them must go on running.",
        files={script: _LISTENER},
        setup="\n".join(
            [
                *(
                    _start(name, f"python3 /work/{script} {name} /work/{name}.up", f" <(echo {port})")
                    for name, port in ports.items()
                ),
                _wait_for(*(f"{name}.up" for name in names)),
            ]
        ),
        checks=(Content(answer, wanted), Alive(tuple(names))),
        solution=f"pid=$(ss -ltnp 'sport = :{ports[wanted]}' | grep -o 'pid=[0-9]*' | head -1 | cut -d="
        " -f2)\n"
        f"tr '\\0' '\\n' < /proc/$pid/cmdline | sed -n 3p > {answer}",
    )


def deleted_log(draw: Draw) -> Problem:
    script, spool = f"{draw.word()}.py", draw.word()
    names = draw.names(3 + draw.size(2, 3))
    logs = dict(zip(names, draw.words(len(names)), strict=True))
    victim = draw.choice(names)
    ready = {name: f"{name}.up" for name in names}
    return Problem(
        prompt=f"Each process of /work/{script} keeps a log open in {spool}. One of them holds a log that"
        " was removed, so that its space is not free; there is a new file of that name. Stop that process,"
        " and leave all others as they are.",
        files={script: _HOLDER, f"{spool}/README": "Logs of the workers.\n"},
        setup="\n".join(
            [
                f"cd {spool}",
                *(_start(name, f"python3 /work/{script} {logs[name]}.log {ready[name]}") for name in names),
                _wait_for(*ready.values()),
                f"rm {logs[victim]}.log; yes begun | head -2000 > {logs[victim]}.log",
            ]
        ),
        checks=(Gone((victim,)), Alive(tuple(name for name in names if name != victim))),
        solution='ls -l /proc/[0-9]*/fd 2>/dev/null | awk \'/^\\/proc/ {split($1, p, "/")}'
        f" /{spool}.*\\(deleted\\)/ {{print p[3]}}' | sort -u | xargs kill; sleep 0.2",
    )


def variable_of_process(draw: Draw) -> Problem:
    script, answer = f"{draw.word()}.py", f"{draw.word()}.txt"
    names = draw.names(draw.size(2, 3))
    variable = f"{draw.word().upper()}_TOKEN"
    tokens = {name: draw.code() for name in names}
    wanted = draw.choice(names)
    return Problem(
        prompt=f"Processes run here as `python3 /work/{script} --queue QUEUE`, each with a variable"
        f" {variable} in its environment. Write the value that the one of the queue {wanted} has to"
        f" {answer}, and let all of them go on.",
        files={script: _WORKER},
        setup="\n".join(
            _start(name, f"{variable}={tokens[name]} python3 /work/{script} --queue {name}") for name in names
        ),
        checks=(Content(answer, tokens[wanted]), Alive(tuple(names))),
        solution=f"tr '\\0' '\\n' < /proc/$(pgrep -f -- '--queue {wanted}$')/environ"
        f" | sed -n 's/^{variable}=//p' > {answer}",
    )


def memory_hog(draw: Draw) -> Problem:
    script = f"{draw.word()}.py"
    names = draw.names(3 + draw.level)
    sizes = dict(zip(names, draw.sample(range(2, 48, 9), len(names)), strict=True))
    victim = max(names, key=lambda name: sizes[name])
    return Problem(
        prompt=f"Several processes of /work/{script} run here. Stop the one that uses the most memory, and"
        " leave the others as they are.",
        files={script: _EATER},
        setup="\n".join(
            [
                *(
                    _start(name, f"python3 /work/{script} /work/{name}.up", f" <(echo {size})")
                    for name, size in sizes.items()
                ),
                _wait_for(*(f"{name}.up" for name in names)),
            ]
        ),
        checks=(Gone((victim,)), Alive(tuple(name for name in names if name != victim))),
        solution=f"ps -eo rss=,pid=,args= | grep '[p]ython3 /work/{script}' | sort -n | tail -1"
        " | awk '{print $2}' | xargs kill; sleep 0.2",
    )


def continue_stopped(draw: Draw) -> Problem:
    script, answer = f"{draw.word()}.py", f"{draw.word()}.txt"
    names = draw.names(draw.size(3, 4))
    stopped = sorted(draw.sample(names, 2))
    return Problem(
        prompt=f"Processes run here as `python3 /work/{script} --queue QUEUE`, and two of them were stopped"
        f" by a signal (not ended). Write their queues to {answer}, one a line, in alphabetical order, and"
        " have both go on.",
        files={script: _WORKER},
        setup="\n".join(
            _start(name, f"python3 /work/{script} --queue {name}")
            # Not before it is a program of its own.
            + (
                "\nuntil grep -q python /proc/$!/comm; do sleep 0.05; done; kill -STOP $!"
                if name in stopped
                else ""
            )
            for name in names
        ),
        checks=(Content(answer, "\n".join(stopped)), Alive(tuple(names))),
        solution=f'ps -eo stat=,pid=,args= | awk \'/{script}/ && $1 ~ /^T/ {{print $NF > "queues"; print'
        f" $2}}'"
        f" | xargs kill -CONT; sort queues > {answer}; rm queues",
    )


TEMPLATES = templates(
    "processes",
    stop_one,
    stop_for_good,
    start_service,
    reload_service,
    port_owner,
    deleted_log,
    variable_of_process,
    memory_hog,
    continue_stopped,
)
