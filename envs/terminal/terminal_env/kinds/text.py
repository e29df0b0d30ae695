"""Text: tables, settings, words, and programs that handle them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter

from ..checks import Content, Data, Printed, Tree
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]


def _csv(rows: list[list[str]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()


def totals(draw: Draw) -> Problem:
    source, answer = f"{draw.word()}.csv", f"{draw.word()}.csv"
    groups = draw.words(2 + draw.level)
    rows = [
        [
            str(at),
            draw.choice(groups),
            str(draw.number(1, 900)),
            draw.word() if draw.level < 2 else draw.name(),
        ]
        for at in range(1, draw.size(12, 20))
    ]
    sums: Counter[str] = Counter()
    for _, group, amount, _ in rows:
        sums[group] += int(amount)
    return Problem(
        prompt=f"{source} has the columns id, group, amount and note. Write to {answer} the sum of the"
        " amounts of each group: a line `group,total` as its head, then one line for each group, in"
        " alphabetical order.",
        files={source: _csv([["id", "group", "amount", "note"], *rows])},
        checks=(Content(answer, _csv([["group", "total"], *([g, str(sums[g])] for g in sorted(sums))])),),
        solution=f"(echo group,total; tail -n +2 {source} | awk -F, '{{s[$2]+=$3}} END {{for (g in s) print"
        f' g","s[g]}}\''
        f" | LC_ALL=C sort) > {answer}",
    )


def change_setting(draw: Draw) -> Problem:
    path = f"{draw.word()}.ini"
    sections, keys = draw.words(2 + draw.level), draw.words(3)
    section, key, value = draw.choice(sections), draw.choice(keys), str(draw.number(1000, 99999))

    def written(changed: bool) -> str:
        lines = []
        for name in sections:
            lines += ["", f"[{name}]", f"# {key} = {notes[name]}"]
            for each in keys:
                new = changed and (name, each) == (section, key)
                lines.append(f"{each} = {value if new else values[name, each]}")
        return "\n".join(lines[1:]) + "\n"

    notes = {name: draw.number(1, 999) for name in sections}
    values = {(name, each): draw.number(1, 999) for name in sections for each in keys}
    return Problem(
        prompt=f"In {path}, set `{key}` of the section [{section}] to {value}. Change nothing else:"
        " comments and other sections stay as they are.",
        files={path: written(False)},
        checks=(Content(path, written(True)),),
        solution=f"sed -i '/^\\[{section}\\]/,/^\\[/ s/^{key} = .*/{key} = {value}/' {path}",
    )


def join_tables(draw: Draw) -> Problem:
    people, orders, answer = (f"{word}.tsv" for word in draw.words(3))
    ids = draw.sample(range(100, 999), draw.size(5, 7))
    names = {each: draw.name() for each in ids}
    missing = draw.sample(ids, 2)
    rows = [(draw.choice(ids), draw.code()) for _ in range(draw.size(8, 12))]
    joined = sorted((names[who], item) for who, item in rows if who not in missing)
    return Problem(
        prompt=f"{people} has an id and a name on each line, {orders} an id and an item, separated by tabs."
        f" Write to {answer} a line with name, tab, item for each line of {orders} whose id has a name;"
        " sort the lines in byte order (LC_ALL=C). There are ids without a name: leave those out.",
        files={
            people: "".join(
                f"{each}\t{names[each]}\n" for each in draw.shuffled(sorted(set(ids) - set(missing)))
            ),
            orders: "".join(f"{who}\t{item}\n" for who, item in rows),
        },
        checks=(Content(answer, "\n".join(sorted(f"{name}\t{item}" for name, item in joined))),),
        solution=f"awk -F'\\t' 'NR==FNR {{n[$1]=$2; next}} $1 in n {{print n[$1] \"\\t\" $2}}' {people}"
        f" {orders}"
        f" | LC_ALL=C sort > {answer}",
    )


def frequent_words(draw: Draw) -> Problem:
    source, answer = f"{draw.word()}.txt", f"{draw.word()}.txt"
    words = draw.words(8 + 2 * draw.level)
    counts = dict(zip(words, draw.sample(range(1, 40), len(words)), strict=True))
    running = draw.shuffled([word for word, count in counts.items() for _ in range(count)])
    text = ""
    for at, word in enumerate(running):
        text += draw.choice((word, word.capitalize(), word.upper()))
        text += "\n" if at % 9 == 8 else draw.choice((" ", " ", ", ", ". "))
    best = sorted(counts, key=lambda word: -counts[word])[: 2 + draw.level]
    return Problem(
        prompt=f"Write to {answer} the {len(best)} most frequent words of {source}, the most frequent"
        " first: on each line the word in lower case, a blank, and how often it occurs. Letter case and"
        " punctuation do not count.",
        files={source: text + "\n"},
        checks=(Content(answer, "\n".join(f"{word} {counts[word]}" for word in best)),),
        solution=f"grep -oE '[A-Za-z]+' {source} | tr A-Z a-z | sort | uniq -c | sort -rn | head -{len(best)}"
        f" | awk '{{print $2, $1}}' > {answer}",
    )


def first_of_each(draw: Draw) -> Problem:
    path = f"{draw.word()}.txt"
    lines = [draw.line(3) for _ in range(draw.size(5, 8))]
    repeated = draw.shuffled([*lines, *draw.sample(lines, len(lines) // 2), lines[0]])
    return Problem(
        prompt=f"Remove repeated lines from {path}: of equal lines keep only the first, and keep the order.",
        files={path: "".join(f"{line}\n" for line in repeated)},
        checks=(Content(path, "\n".join(dict.fromkeys(repeated))),),
        solution=f"awk '!seen[$0]++' {path} > .new && mv .new {path}",
    )


def csv_to_json(draw: Draw) -> Problem:
    source, answer = f"{draw.word()}.csv", f"{draw.word()}.json"
    rows = []
    for _ in range(draw.size(4, 6)):
        text = draw.choice(
            (draw.line(2), f"{draw.word()}, {draw.word()}", f'the "{draw.word()}" {draw.word()}')
        )
        rows.append([draw.name(), text, str(draw.number(1, 500))])
    value = [{"name": name, "remark": remark, "count": int(count)} for name, remark, count in rows]
    return Problem(
        prompt=f"Convert {source} to JSON and write it to {answer}: a list with an object for each row, in"
        " order, whose keys are the names of the columns. `count` is a number, the others are texts."
        " Fields may be quoted, and hold commas and quotes.",
        files={source: _csv([["name", "remark", "count"], *rows])},
        checks=(Data(answer, value),),
        solution="python3 -c \"import csv, json; rows = [dict(r, count=int(r['count'])) for r in"
        f" csv.DictReader(open('{source}'))]; json.dump(rows, open('{answer}', 'w'))\"",
    )


def tidy_lines(draw: Draw) -> Problem:
    top = draw.word()
    before: dict[str, str | bytes] = {}
    after: dict[str, str | bytes] = {}
    for _ in range(draw.size(2, 3)):
        lines = [draw.line(4) for _ in range(draw.number(3, 6))]
        ends = [draw.choice(("\n", "\r\n", "  \n", "\t\r\n")) for _ in lines]
        name = f"{draw.name()}.txt"
        before[name] = "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()
        after[name] = "".join(f"{line}\n" for line in lines).encode()
    binary = f"{draw.name()}.bin"
    before[binary] = after[binary] = draw.random.randbytes(64) + b" \r\n"
    return Problem(
        prompt=f"In all .txt files of {top}, have each line end with a line feed alone: remove carriage"
        " returns, blanks and tabs at the ends of lines. Leave other files as they are.",
        files={f"{top}/{name}": content for name, content in before.items()},
        checks=(Tree(top, after),),
        solution=f"sed -i -E 's/[ \\t\\r]+$//' {top}/*.txt",
    )


def write_filter(draw: Draw) -> Problem:
    path = f"{draw.word()}.py"
    key, other = draw.words(2)
    low = draw.number(20, 400)

    def records(count: int) -> list[dict[str, object]]:
        return [
            {"id": draw.code(), key: draw.number(0, 500), other: draw.word()}
            if draw.number(0, 5)
            else {"id": draw.code(), other: draw.number(low, 600)}
            for _ in range(count)
        ]

    def answer(found: list[dict[str, object]]) -> str:
        kept = [each for each in found if isinstance(each.get(key), int) and int(str(each[key])) >= low]
        kept.sort(key=lambda each: (-int(str(each[key])), str(each["id"])))
        return "".join(f"{each['id']} {each[key]}\n" for each in kept)

    def lines(found: list[dict[str, object]]) -> str:
        return "".join(f"{json.dumps(each)}\n" for each in found)

    shown = records(4)
    hidden = {
        f"hidden/{at}.jsonl": each
        for at, each in enumerate([records(9 * draw.level), records(20), records(3), []])
    }
    return Problem(
        prompt=f"Write a program {path} for python3. It reads JSON objects from its standard input, one a"
        f' line, and prints a line "ID VALUE" for each object that has a number under "{key}" of at least'
        f' {low}: ID is what it has under "id", VALUE that number. The largest number comes first; of equal'
        " ones the lesser id. It is tried with other input than example.jsonl, also with none.",
        files={"example.jsonl": lines(shown)},
        checks=(
            Printed(
                f'for f in hidden/*; do echo "== $f"; python3 -I {path} < $f; done',
                "".join(f"== {name}\n{answer(each)}" for name, each in hidden.items()),
                artifacts=(path,),
                files={name: lines(each) for name, each in hidden.items()},
            ),
        ),
        solution=f"cat > {path} <<'END'\nimport json, sys\n"
        "rows = [json.loads(line) for line in sys.stdin]\n"
        f'rows = [r for r in rows if isinstance(r.get("{key}"), int) and r["{key}"] >= {low}]\n'
        f'for r in sorted(rows, key=lambda r: (-r["{key}"], r["id"])):\n'
        f'    print(r["id"], r["{key}"])\nEND',
    )


TEMPLATES = templates(
    "text",
    totals,
    change_setting,
    join_tables,
    frequent_words,
    first_of_each,
    csv_to_json,
    tidy_lines,
    write_filter,
)
