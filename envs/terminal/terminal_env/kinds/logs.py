"""Logs: count, pick, follow and clean lines."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from ..checks import Content, Data, Tree
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]


def _address(draw: Draw) -> str:
    return f"10.{draw.number(0, 255)}.{draw.number(0, 255)}.{draw.number(1, 254)}"


def _moments(draw: Draw, count: int, longest_s: int = 300) -> list[datetime]:
    """Moments in order, none twice."""
    now = datetime(draw.number(2019, 2024), draw.number(1, 12), draw.number(1, 28), 3, tzinfo=UTC)
    found = []
    for _ in range(count):
        now += timedelta(seconds=draw.number(1, longest_s))
        found.append(now)
    return found


def _access_line(draw: Draw, moment: datetime, address: str, path: str, status: int, size: int) -> str:
    method = draw.choice(("GET", "GET", "GET", "POST"))
    return f'{address} - - [{moment:%d/%b/%Y:%H:%M:%S +0000}] "{method} {path} HTTP/1.1" {status} {size}'


def server_errors(draw: Draw) -> Problem:
    log, answer = f"{draw.word()}.log", f"{draw.word()}.txt"
    paths = [f"/{word}" for word in draw.words(2 + draw.level)]
    failures: Counter[str] = Counter()
    lines = []
    for moment in _moments(draw, draw.size(40, 50)):
        path, status = draw.choice(paths), draw.choice((200, 200, 301, 404, 500, 502, 503))
        failures[path] += status >= 500
        # A size that looks like a status.
        lines.append(_access_line(draw, moment, _address(draw), path, status, draw.choice((500, 503, 1200))))
    found = sorted((path for path in paths if failures[path]), key=lambda path: (-failures[path], path))
    return Problem(
        prompt=f"{log} is the access log of a web server. Write to {answer} how often each path was"
        " answered with a status of 500 or more: lines of a path, a blank and the number, the largest"
        " number first, equal ones by path, without paths that have none.",
        files={log: "".join(f"{line}\n" for line in lines)},
        checks=(Content(answer, "\n".join(f"{path} {failures[path]}" for path in found)),),
        solution=f"awk '$9 >= 500 {{n[$7]++}} END {{for (p in n) print p, n[p]}}' {log}"
        f" | LC_ALL=C sort -k2,2nr -k1,1 > {answer}",
    )


def heavy_clients(draw: Draw) -> Problem:
    log, answer = f"{draw.word()}.log", f"{draw.word()}.txt"
    clients = sorted({_address(draw) for _ in range(3 + 2 * draw.level)})
    sent: Counter[str] = Counter()
    lines = []
    for moment in _moments(draw, draw.size(30, 40)):
        client, size = draw.choice(clients), draw.number(100, 90_000)
        sent[client] += size
        lines.append(_access_line(draw, moment, client, f"/{draw.code()}", draw.choice((200, 404)), size))
    most = sorted(clients, key=lambda client: -sent[client])[: 1 + draw.level]
    return Problem(
        prompt=f"{log} is the access log of a web server; the last number of a line is the bytes sent."
        f" Write to {answer} the {len(most)} addresses that got the most bytes in all, the most first:"
        " lines of an address, a blank and the bytes.",
        files={log: "".join(f"{line}\n" for line in lines)},
        checks=(Content(answer, "\n".join(f"{client} {sent[client]}" for client in most)),),
        solution=f"awk '{{n[$1]+=$NF}} END {{for (a in n) print a, n[a]}}' {log} | sort -k2,2nr"
        f" | head -{len(most)} > {answer}",
    )


def lines_between(draw: Draw) -> Problem:
    log, answer = f"{draw.word()}.log", f"{draw.word()}.log"
    moments = _moments(draw, draw.size(30, 40))
    records = [(moment, draw.choice(("INFO", "WARN", "ERROR")), draw.line(3)) for moment in moments]
    begin, end = sorted(draw.sample(range(5, len(moments) - 5), 2))
    records[begin] = (moments[begin], "ERROR", records[begin][2])
    records[end] = (moments[end], "ERROR", records[end][2])
    lines = [f"{moment:%Y-%m-%dT%H:%M:%SZ} {level} {text}" for moment, level, text in records]
    found = [
        line for line, (_, level, _) in list(zip(lines, records, strict=True))[begin:end] if level == "ERROR"
    ]
    return Problem(
        prompt=f"Copy the lines of {log} with the level ERROR from {moments[begin]:%Y-%m-%dT%H:%M:%SZ}"
        f" (included) to {moments[end]:%Y-%m-%dT%H:%M:%SZ} (not included) to {answer}, in order.",
        files={log: "".join(f"{line}\n" for line in lines)},
        checks=(Content(answer, "\n".join(found)),),
        solution=f'awk \'$1 >= "{moments[begin]:%Y-%m-%dT%H:%M:%SZ}" && $1 <'
        f' "{moments[end]:%Y-%m-%dT%H:%M:%SZ}"'
        f' && $2 == "ERROR"\' {log} > {answer}',
    )


def rotated(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.json"
    count = draw.size(2, 3)
    moments = _moments(draw, 20 * count, longest_s=6000)
    found: Counter[str] = Counter()
    lines = []
    for moment in moments:
        level = draw.choice(("INFO", "INFO", "WARN", "ERROR", "ERROR"))
        found[f"{moment:%Y-%m-%d}"] += level == "ERROR"
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S} {level} {draw.line(3)}, no ERROR before\n")
    files: dict[str, str | bytes] = {}
    for at in range(count):
        text = "".join(lines[20 * at : 20 * (at + 1)])
        age = count - 1 - at
        if age < 2:
            files["app.log" if age == 0 else "app.log.1"] = text
        else:
            files[f"app.log.{age}.gz"] = gzip.compress(text.encode(), mtime=0)
    return Problem(
        prompt=f"{top} has a log and its rotated files, some of them compressed. Count the lines with the"
        f" level ERROR of each day, over all files, and write to {answer} a JSON object of the numbers by"
        ' day, such as {"2024-01-31": 5}, without days that have none.',
        files={f"{top}/{name}": content for name, content in files.items()},
        checks=(Data(answer, {day: number for day, number in found.items() if number}),),
        solution=f'zcat -f {top}/app.log* | awk \'$3 == "ERROR" {{n[$1]++}} END {{for (d in n) print d,'
        f" n[d]}}'"
        ' | awk \'BEGIN {printf "{"} {printf "%s\\"%s\\": %d", s, $1, $2; s = ", "} END {print "}"}\''
        f" > {answer}",
    )


def slow_requests(draw: Draw) -> Problem:
    log, answer = f"{draw.word()}.log", f"{draw.word()}.txt"
    limit = draw.number(400, 900)
    requests = [draw.code() for _ in range(draw.size(10, 14))]
    took = {
        each: draw.choice((draw.number(1, limit), draw.number(limit + 1, 3 * limit))) for each in requests
    }
    took[requests[0]], took[requests[1]] = limit, limit + 1
    begun = {each: 1000 * draw.number(100_000, 100_060) + draw.number(0, 999) for each in requests}
    lost = draw.sample(requests[2:], 2)
    events = [(begun[each], f"begin request={each}") for each in requests]
    events += [(begun[each] + took[each], f"end request={each}") for each in requests if each not in lost]
    found = sorted(each for each in requests if each not in lost and took[each] > limit)
    return Problem(
        prompt=f"{log} has the beginning and the end of requests, with times in milliseconds. Write to"
        f" {answer} the ids of the requests that took more than {limit} ms, one a line, sorted. Requests"
        " without an end do not count.",
        files={log: "".join(f"{moment} {text}\n" for moment, text in sorted(events))},
        checks=(Content(answer, "\n".join(found)),),
        solution=f'awk \'{{split($3, r, "=")}} $2 == "begin" {{b[r[2]]=$1}}'
        f' $2 == "end" && $1 - b[r[2]] > {limit} {{print r[2]}}\' {log} | LC_ALL=C sort > {answer}',
    )


def redact(draw: Draw) -> Problem:
    top = draw.word()
    hosts = [f"{word}.example" for word in draw.words(3)]
    before: dict[str, str | bytes] = {}
    after: dict[str, str | bytes] = {}
    for _ in range(draw.size(1, 2)):
        name = f"{draw.name()}.log"
        old, new = [], []
        for moment in _moments(draw, 12):
            stamp = f"{moment:%Y-%m-%d %H:%M:%S}"
            match draw.number(0, 2):
                case 0:
                    mail = f"{draw.choice(('ann', 'bob.lee', 'eve_9'))}@{draw.choice(hosts)}"
                    old.append(f"{stamp} mail to {mail}, sent")
                    new.append(f"{stamp} mail to [mail], sent")
                case 1:
                    old.append(f"{stamp} login token={draw.code()}{draw.code()} from {draw.choice(hosts)}")
                    new.append(f"{stamp} login token=[token] from {old[-1].rpartition(' ')[2]}")
                case _:
                    old.append(f"{stamp} started {draw.line(2)} @ {draw.choice(hosts)}")
                    new.append(old[-1])
        before[f"{top}/{name}"] = "\n".join(old) + "\n"
        after[name] = "\n".join(new) + "\n"
    return Problem(
        prompt=f"In all logs of {top}, replace each mail address by [mail], and the value of each `token=`"
        " (16 hexadecimal digits) by [token]. Everything else stays as it is.",
        files=before,
        checks=(Tree(top, after),),
        solution="sed -i -E 's/[A-Za-z0-9._-]+@[A-Za-z0-9.-]+[A-Za-z]/[mail]/g;"
        f" s/token=[0-9a-f]{{16}}/token=[token]/g'"
        f" {top}/*.log",
    )


def broken_in(draw: Draw) -> Problem:
    log, answer = f"{draw.word()}.log", f"{draw.word()}.txt"
    limit = draw.number(3, 4)
    users = draw.names(2 + 2 * draw.level)
    tries: dict[str, list[bool]] = {}
    broken = []
    for at, user in enumerate(users):
        failures = limit if at == 0 else limit - 1 if at == 1 else draw.number(0, limit + 2)
        ends = at < 2 or draw.choice((True, True, False))
        tries[user] = [*draw.choice(([], [True])), *[False] * failures, *([True] if ends else [])]
        if at == 1:
            tries[user] += [False, True]
        if failures >= limit and ends:
            broken.append(user)
    waiting = draw.shuffled([user for user, results in tries.items() for _ in results])
    lines = []
    for moment, user in zip(_moments(draw, len(waiting)), waiting, strict=True):
        record = {"at": f"{moment:%Y-%m-%dT%H:%M:%SZ}", "user": user, "ok": tries[user].pop(0)}
        lines.append(json.dumps(record))
    return Problem(
        prompt=f"{log} has attempts to log in, one JSON object a line. Write to {answer} the users who"
        f" logged in after {limit} or more failed attempts of theirs in a row, one a line, sorted; attempts"
        " of others in between do not matter.",
        files={log: "".join(f"{line}\n" for line in lines)},
        checks=(Content(answer, "\n".join(sorted(broken))),),
        solution="python3 - <<'END' > " + answer + "\nimport json\nfails, found = {}, set()\n"
        f"for line in open('{log}'):\n"
        "    r = json.loads(line)\n"
        f"    if r['ok'] and fails.get(r['user'], 0) >= {limit}:\n"
        "        found.add(r['user'])\n"
        "    fails[r['user']] = 0 if r['ok'] else fails.get(r['user'], 0) + 1\n"
        "print(*sorted(found), sep='\\n')\nEND",
    )


TEMPLATES = templates(
    "logs",
    server_errors,
    heavy_clients,
    lines_between,
    rotated,
    slow_requests,
    redact,
    broken_in,
)
