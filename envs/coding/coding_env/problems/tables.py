"""Programs that read tables and texts: lines with fields, words, matrices."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from random import Random
from typing import Any

from ..problem import Params, Problem, size

__all__ = ["PROBLEMS"]


def _lines(found: list[str]) -> str:
    return "".join(f"{line}\n" for line in found)


# group-totals

_AGGREGATES = {"sum": sum, "count": len, "max": max, "min": min}


def _group_params(rng: Random) -> dict[str, Any]:
    key, value = rng.sample((1, 2, 3), 2)
    return {
        "separator": rng.choice(",;:|"),
        "key": key,
        "value": value,
        "least": rng.randint(10, 60),
        "aggregate": rng.choice([*_AGGREGATES]),
        "mark": rng.choice("=#:"),
    }


def _grouped(params: Params, text: str) -> str:
    groups: dict[str, list[int]] = {}
    for line in text.splitlines():
        fields = line.split(params["separator"])
        value = int(fields[params["value"] - 1])
        if value >= params["least"]:
            groups.setdefault(fields[params["key"] - 1], []).append(value)
    aggregate: Any = _AGGREGATES[params["aggregate"]]
    return _lines([f"{key}{params['mark']}{aggregate(groups[key])}" for key in sorted(groups)])


def _records(rng: Random, params: Params) -> str:
    lines = []
    for _ in range(size(rng, 20)):
        fields = [rng.choice(("red", "tan", "jet", "sky")) for _ in range(3)]
        fields[params["key"] - 1] = rng.choice(("ash", "elm", "fir", "oak", "yew"))
        fields[params["value"] - 1] = str(rng.randint(0, 99))
        lines.append(params["separator"].join(fields))
    return _lines(lines)


_GROUP_TOTALS = Problem(
    name="group-totals",
    words={"thing": ("sales", "deliveries", "harvests", "measurements")},
    params=_group_params,
    statements=(
        "Each line of the input has three fields about {thing}, separated by {separator}. Take the lines "
        "whose field {value} (a whole number; fields are counted from 1) is {least} or more, and group them "
        "by field {key}. For each group print the field, {mark} and the {aggregate} of the numbers in the "
        "group, without blanks, in alphabetical order. (count: how many there are.)",
        "Summarise {thing}: the input has lines of three fields with the separator {separator}. Field "
        "number {key} is a name and field number {value} a whole number, counted from 1. Ignore lines with "
        "a number below {least}. Then print one line for each name that is left, sorted by name: the name, "
        "{mark} and the {aggregate} of its numbers (for count: the number of its lines), with nothing in "
        "between.",
    ),
    draw=_records,
    reference=_grouped,
    solutions={
        "python": """
            import sys

            count = len
            groups = {}
            for line in sys.stdin:
                fields = line.strip().split("{{separator}}")
                name, number = fields[{{key}} - 1], int(fields[{{value}} - 1])
                if number >= {{least}}:
                    groups[name] = groups.get(name, []) + [number]
            for name, values in sorted(groups.items()):
                print(name, {{aggregate}}(values), sep="{{mark}}")
        """,
        "bash": """
            declare -A total
            while IFS='{{separator}}' read -r -a field; do
                k=${field[{{key}} - 1]} v=${field[{{value}} - 1]}
                (( v >= {{least}} )) || continue
                t=${total[$k]}
                case {{aggregate}} in
                    sum) t=$(( ${t:-0} + v ));;
                    count) t=$(( ${t:-0} + 1 ));;
                    max) t=$(( v > ${t:-v} ? v : ${t:-v} ));;
                    min) t=$(( v < ${t:-v} ? v : ${t:-v} ));;
                esac
                total[$k]=$t
            done
            for k in "${!total[@]}"; do echo "$k{{mark}}${total[$k]}"; done | sort
        """,
        "awk": """
            BEGIN { FS = "[{{separator}}]" }
            $({{value}}) + 0 >= {{least}} {
                k = $({{key}}); v = $({{value}}) + 0
                n[k]++
                sum[k] += v
                if (n[k] == 1 || v > max[k]) max[k] = v
                if (n[k] == 1 || v < min[k]) min[k] = v
            }
            END {
                for (k in n) {
                    r["sum"] = sum[k]; r["count"] = n[k]; r["max"] = max[k]; r["min"] = min[k]
                    print k "{{mark}}" r["{{aggregate}}"] | "sort"
                }
            }
        """,
        "perl": """
            while (<STDIN>) {
                chomp;
                my @f = split /[{{separator}}]/;
                push @{$g{$f[{{key}} - 1]}}, $f[{{value}} - 1] if $f[{{value}} - 1] >= {{least}};
            }
            for my $k (sort keys %g) {
                my @v = sort { $a <=> $b } @{$g{$k}};
                my $sum = 0;
                $sum += $_ for @v;
                my %r = (sum => $sum, count => scalar @v, max => $v[-1], min => $v[0]);
                print "$k", "{{mark}}", $r{"{{aggregate}}"}, "\\n";
            }
        """,
    },
)


# busy-intervals


def _busy(params: Params, text: str) -> str:
    found: Counter[int] = Counter()
    for line in text.splitlines():
        time, level = line.split()
        hours, minutes, _ = map(int, time.split(":"))
        if level == params["level"]:
            at = (60 * hours + minutes + params["shift"]) % 1440
            found[at // params["minutes"] * params["minutes"]] += 1
    return _lines(
        [f"{at // 60:02}:{at % 60:02} {found[at]}" for at in sorted(found) if found[at] >= params["least"]]
    )


def _log(rng: Random, params: Params) -> str:
    """Lines around one or two times, so that intervals have several."""
    around = [rng.randrange(1440), rng.choice((0, 720, 1430))]
    lines = []
    for _ in range(size(rng, 30)):
        hours, minutes = divmod((rng.choice(around) + rng.randint(0, params["minutes"])) % 1440, 60)
        time = f"{hours:02}:{minutes:02}:{rng.randint(0, 59):02}"
        lines.append(f"{time} {rng.choice(('debug', 'info', 'warn', params['level'], params['level']))}")
    return _lines(lines)


_BUSY_INTERVALS = Problem(
    name="busy-intervals",
    words={"thing": ("web server", "power plant", "lift", "ticket machine")},
    params=lambda rng: {
        "minutes": rng.choice((5, 6, 10, 12, 15, 20, 30)),
        "shift": rng.choice((-1, 1)) * rng.randint(1, 90),
        "level": rng.choice(("debug", "info", "warn", "error")),
        "least": rng.randint(1, 3),
    },
    statements=(
        "The log of a {thing} has lines such as '09:05:31 {level}': a time and a level. They are in no "
        "order. The clock was wrong: add {shift} minutes to each time (which may go past midnight, at "
        "either end of the day). Count the lines of level {level} in each interval of {minutes} minutes, "
        "the first of which begins at 00:00. Print a line 'HH:MM count' for each interval with a count of "
        "at least {least}: its beginning, and the count, from 00:00 on.",
        "Read log lines 'HH:MM:SS level' of a {thing}, unordered. Only the level {level} counts. Correct "
        "the time by {shift} minutes, modulo 24 hours. Divide the day into intervals of {minutes} minutes "
        "from midnight on. For intervals with {least} lines or more print the first minute as HH:MM, a "
        "blank, and the number of lines, in order of time.",
    ),
    draw=_log,
    reference=_busy,
    solutions={
        "python": """
            import sys

            counts = [0] * 1440
            for line in sys.stdin:
                if line.split()[1] == "{{level}}":
                    minute = int(line[:2]) * 60 + int(line[3:5]) + {{shift}}
                    minute %= 1440
                    counts[minute - minute % {{minutes}}] += 1
            for minute, count in enumerate(counts):
                if count >= {{least}}:
                    print("%02d:%02d %d" % (minute // 60, minute % 60, count))
        """,
        "bash": """
            declare -a n
            while IFS=': ' read -r h m s level; do
                [[ $level = {{level}} ]] || continue
                at=$(( (10#$h * 60 + 10#$m + {{shift}} + 1440) % 1440 ))
                (( n[at / {{minutes}}]++ ))
            done
            for at in "${!n[@]}"; do
                (( n[at] >= {{least}} )) || continue
                printf '%02d:%02d %d\\n' $(( at * {{minutes}} / 60 )) $(( at * {{minutes}} % 60 )) "${n[at]}"
            done
            exit 0
        """,
        "awk": """
            $2 == "{{level}}" {
                split($1, t, ":")
                at = (t[1] * 60 + t[2] + {{shift}} + 1440) % 1440
                n[int(at / {{minutes}})]++
            }
            END {
                for (i = 0; i < 1440 / {{minutes}}; i++)
                    if (n[i] >= {{least}})
                        printf "%02d:%02d %d\\n", int(i * {{minutes}} / 60), i * {{minutes}} % 60, n[i]
            }
        """,
        "perl": """
            while (<STDIN>) {
                next unless /^(\\d+):(\\d+):\\d+ {{level}}$/;
                $n{int((($1 * 60 + $2 + {{shift}}) % 1440) / {{minutes}})}++;
            }
            for (sort { $a <=> $b } keys %n) {
                next if $n{$_} < {{least}};
                printf "%02d:%02d %d\\n", int($_ * {{minutes}} / 60), $_ * {{minutes}} % 60, $n{$_};
            }
        """,
    },
)


# top-words


def _top(params: Params, text: str) -> str:
    words = [word for word in re.findall("[a-z]+", text.lower()) if len(word) >= params["shortest"]]
    counts = Counter(words)
    order = sorted(counts, reverse=params["ties"] == "reverse alphabetical")
    order.sort(key=lambda word: -counts[word])
    kept = [word for word in order if counts[word] >= params["least"]][: params["most"]]
    shown = "{1} {0}" if params["shown"] == "count and word" else "{0} {1}"
    return _lines([shown.format(word, counts[word]) for word in kept])


def _prose(rng: Random, params: Params) -> str:
    words = rng.sample(
        ("a", "of", "to", "it", "sea", "the", "Sun", "fog", "rain", "WIND", "Storm", "cloud"), 7
    )
    lines = []
    for _ in range(size(rng, 6)):
        parts = [rng.choice(words) + rng.choice(("", "", "", ",", ".", "!", "-", "'s")) for _ in range(7)]
        lines.append(" ".join(parts))
    return _lines(lines)


_TOP_WORDS = Problem(
    name="top-words",
    words={"thing": ("letters", "forecasts", "diaries", "speeches")},
    params=lambda rng: {
        "most": rng.randint(2, 6),
        "shortest": rng.randint(1, 4),
        "least": rng.randint(1, 3),
        "ties": rng.choice(("alphabetical", "reverse alphabetical")),
        "shown": rng.choice(("count and word", "word and count")),
    },
    statements=(
        "The input is text from {thing}. Words are the longest runs of letters a-z and A-Z; capital letters "
        "count as small ones. Of the words with {shortest} letters or more that occur at least {least} "
        "time(s), print the {most} most frequent ones, one on a line, the most frequent first and equally "
        "frequent ones in {ties} order: {shown}, with a blank in between, the word in small letters.",
        "Find the most frequent words of {thing} on standard input. A word is made of letters only "
        "(everything else separates words), and case does not matter: print small letters. Leave out words "
        "shorter than {shortest}, and words that occur fewer than {least} time(s). Print {most} lines at "
        "most, {shown} separated by a blank, sorted by falling count, then in {ties} order.",
    ),
    draw=_prose,
    reference=_top,
    solutions={
        "python": """
            import sys

            text = "".join(c if c.isalpha() else " " for c in sys.stdin.read().lower())
            words = [w for w in text.split() if len(w) >= {{shortest}}]
            found = sorted(set(words), reverse="{{ties}}".startswith("reverse"))
            found = sorted(found, key=words.count, reverse=True)
            for word in [w for w in found if words.count(w) >= {{least}}][:{{most}}]:
                pair = [word, str(words.count(word))]
                print(" ".join(pair if "{{shown}}" == "word and count" else pair[::-1]))
        """,
        "bash": """
            r=
            [[ "{{ties}}" = reverse* ]] && r=r
            tr A-Z a-z | tr -cs a-z '\\n' | grep -E '^.{{{shortest}},}$' | sort | uniq -c |
                sort -k1,1nr -k2,2$r | head -n {{most}} | while read -r n word; do
                    (( n >= {{least}} )) || continue
                    if [[ "{{shown}}" = count* ]]; then echo "$n $word"; else echo "$word $n"; fi
                done
            exit 0
        """,
        "awk": """
            {
                $0 = tolower($0)
                gsub(/[^a-z]+/, " ")
                for (i = 1; i <= NF; i++) if (length($i) >= {{shortest}}) n[$i]++
            }
            END {
                back = "{{ties}}" ~ /^reverse/
                for (k = 0; k < {{most}}; k++) {
                    best = ""
                    for (w in n) {
                        if (n[w] < {{least}}) continue
                        if (best == "" || n[w] > n[best] || (n[w] == n[best] && (back ? w > best : w < best)))
                            best = w
                    }
                    if (best == "") break
                    print ("{{shown}}" ~ /^count/) ? n[best] " " best : best " " n[best]
                    delete n[best]
                }
            }
        """,
        "perl": """
            while (<STDIN>) {
                $n{lc $_}++ for grep { length >= {{shortest}} } /[A-Za-z]+/g;
            }
            my $sign = "{{ties}}" =~ /^reverse/ ? -1 : 1;
            my @w = grep { $n{$_} >= {{least}} } sort { $n{$b} <=> $n{$a} || $sign * ($a cmp $b) } keys %n;
            splice @w, {{most}} if @w > {{most}};
            for (@w) { print "{{shown}}" =~ /^count/ ? "$n{$_} $_\\n" : "$_ $n{$_}\\n" }
        """,
    },
)


# matrix-turn

_TURNS = ("transposed", "turned clockwise", "turned counter-clockwise", "turned by 180 degrees")


def _turned(params: Params, text: str) -> str:
    rows = [[int(field) for field in line.split()] for line in text.splitlines()]
    match _TURNS.index(params["turn"]):
        case 0:
            rows = [list(row) for row in zip(*rows, strict=True)]
        case 1:
            rows = [list(row) for row in zip(*rows[::-1], strict=True)]
        case 2:
            rows = [list(row) for row in zip(*rows, strict=True)][::-1]
        case _:
            rows = [row[::-1] for row in rows[::-1]]
    aggregate: Any = _AGGREGATES[params["aggregate"]]
    return _lines([" ".join(map(str, [*row, aggregate(row) % params["modulus"]])) for row in rows])


def _matrix(rng: Random, params: Params) -> str:
    width = size(rng, 6, 1)
    rows = [[rng.randint(0, 99) for _ in range(width)] for _ in range(size(rng, 6, 1))]
    return _lines([" ".join(map(str, row)) for row in rows])


_MATRIX_TURN = Problem(
    name="matrix-turn",
    words={"thing": ("sensor readings", "pixels", "seat numbers", "prices")},
    params=lambda rng: {
        "turn": rng.choice(_TURNS),
        "aggregate": rng.choice(("sum", "max", "min")),
        "modulus": rng.randint(7, 60),
    },
    statements=(
        "The input is a matrix of {thing}: lines of equally many whole numbers (0 or more), separated by "
        "blanks. Print the matrix {turn}, and after the last number of each of the new rows one more: the "
        "{aggregate} of that row modulo {modulus}. Numbers are separated by one blank.",
        "Read rows of {thing} (whole numbers >= 0 with a blank in between, as many in each row) and print "
        "them {turn}. To each row that you print add a last number, the remainder of its {aggregate} "
        "divided by {modulus}. Separate numbers by single blanks.",
    ),
    draw=_matrix,
    reference=_turned,
    solutions={
        "python": """
            import sys

            a = [line.split() for line in sys.stdin if line.strip()]
            h, w = len(a), len(a[0])
            b = {
                "transposed": lambda: [[a[j][i] for j in range(h)] for i in range(w)],
                "turned clockwise": lambda: [[a[h - 1 - j][i] for j in range(h)] for i in range(w)],
                "turned counter-clockwise": lambda: [[a[j][w - 1 - i] for j in range(h)] for i in range(w)],
                "turned by 180 degrees": lambda: [row[::-1] for row in a[::-1]],
            }["{{turn}}"]()
            for row in b:
                print(*row, {{aggregate}}(int(x) for x in row) % {{modulus}})
        """,
        "bash": """
            h=0
            while read -r -a row; do
                w=${#row[@]}
                for (( j = 0; j < w; j++ )); do a[h * 100 + j]=${row[j]}; done
                (( h++ ))
            done
            turn='{{turn}}'
            if [[ $turn = *180* ]]; then rows=$h cols=$w; else rows=$w cols=$h; fi
            for (( i = 0; i < rows; i++ )); do
                sum=0 max= min=
                for (( j = 0; j < cols; j++ )); do
                    case $turn in
                        transposed) v=${a[j * 100 + i]};;
                        *counter*) v=${a[j * 100 + w - 1 - i]};;
                        *180*) v=${a[(h - 1 - i) * 100 + w - 1 - j]};;
                        *) v=${a[(h - 1 - j) * 100 + i]};;
                    esac
                    printf '%d ' "$v"
                    (( sum += v ))
                    [[ -z $max ]] || (( v > max )) && max=$v
                    [[ -z $min ]] || (( v < min )) && min=$v
                    [[ -z $max ]] && max=$v
                    [[ -z $min ]] && min=$v
                done
                echo $(( {{aggregate}} % {{modulus}} ))
            done
        """,
        "awk": """
            { w = NF; for (j = 1; j <= NF; j++) a[NR, j] = $j + 0 }
            END {
                h = NR; turn = "{{turn}}"
                half = turn ~ /180/
                rows = half ? h : w; cols = half ? w : h
                for (i = 1; i <= rows; i++) {
                    r["sum"] = 0
                    for (j = 1; j <= cols; j++) {
                        if (half) v = a[h + 1 - i, w + 1 - j]
                        else if (turn == "transposed") v = a[j, i]
                        else if (turn ~ /counter/) v = a[j, w + 1 - i]
                        else v = a[h + 1 - j, i]
                        printf "%d ", v
                        r["sum"] += v
                        if (j == 1 || v > r["max"]) r["max"] = v
                        if (j == 1 || v < r["min"]) r["min"] = v
                    }
                    print r["{{aggregate}}"] % {{modulus}}
                }
            }
        """,
        "perl": """
            my @a = map { [split] } <STDIN>;
            my ($h, $w, $turn) = (scalar @a, scalar @{$a[0]}, "{{turn}}");
            my $half = $turn =~ /180/;
            for my $i (0 .. ($half ? $h : $w) - 1) {
                my @row = map {
                    $half ? $a[$h - 1 - $i][$w - 1 - $_]
                        : $turn eq "transposed" ? $a[$_][$i]
                        : $turn =~ /counter/ ? $a[$_][$w - 1 - $i]
                        : $a[$h - 1 - $_][$i]
                } 0 .. ($half ? $w : $h) - 1;
                my @s = sort { $a <=> $b } @row;
                my $sum = 0;
                $sum += $_ for @row;
                my %r = (sum => $sum, max => $s[-1], min => $s[0]);
                print join(" ", @row, $r{"{{aggregate}}"} % {{modulus}}), "\\n";
            }
        """,
        "c": """
            #include <stdio.h>
            #include <string.h>

            int main(void) {
                static int a[100][100];
                int h = 0, w = 0, n, used;
                char line[10000];
                const char *turn = "{{turn}}", *aggregate = "{{aggregate}}";
                while (fgets(line, sizeof line, stdin)) {
                    char *p = line;
                    w = 0;
                    while (sscanf(p, "%d%n", &n, &used) == 1) { a[h][w++] = n; p += used; }
                    h++;
                }
                int half = strstr(turn, "180") != NULL;
                int rows = half ? h : w, cols = half ? w : h;
                for (int i = 0; i < rows; i++) {
                    int sum = 0, max = 0, min = 0;
                    for (int j = 0; j < cols; j++) {
                        int v;
                        if (half) v = a[h - 1 - i][w - 1 - j];
                        else if (turn[2] == 'a') v = a[j][i];
                        else if (strstr(turn, "counter")) v = a[j][w - 1 - i];
                        else v = a[h - 1 - j][i];
                        printf("%d ", v);
                        sum += v;
                        if (j == 0 || v > max) max = v;
                        if (j == 0 || v < min) min = v;
                    }
                    int value = aggregate[0] == 's' ? sum : aggregate[1] == 'a' ? max : min;
                    printf("%d\\n", value % {{modulus}});
                }
                return 0;
            }
        """,
    },
)


# squeeze-lines


def _squeezed(params: Params, text: str) -> str:
    found = []
    for _, group in groupby(text.splitlines(), key=lambda line: line[: params["prefix"]]):
        run = list(group)
        if len(run) >= params["least"]:
            found.append(f"{len(run)}{params['mark']}{run[0]}")
        elif params["short"] == "printed unchanged":
            found += run
    return _lines(found if params["order"] == "from top to bottom" else found[::-1])


def _repeated(rng: Random, params: Params) -> str:
    lines = []
    for _ in range(size(rng, 8)):
        stem = "".join(rng.choice("abc") for _ in range(rng.randint(1, 3)))
        for _ in range(rng.choice((1, 2, 3, 4, 5, 6))):
            lines.append(stem + rng.choice(("", "", "x", "yz")))
    return _lines(lines)


_SQUEEZE_LINES = Problem(
    name="squeeze-lines",
    words={"thing": ("log", "inventory", "playlist", "visitor list")},
    params=lambda rng: {
        "prefix": rng.randint(1, 3),
        "least": rng.randint(2, 4),
        "mark": rng.choice("*:#=~+"),
        "short": rng.choice(("printed unchanged", "left out")),
        "order": rng.choice(("from top to bottom", "from bottom to top")),
    },
    statements=(
        "In a {thing} (lines of small letters), consecutive lines are taken together while their first "
        "{prefix} character(s) are the same; a line that is shorter counts whole. A run of {least} lines or "
        "more becomes one line: the number of its lines, {mark} and its first line, without blanks. The "
        "lines of shorter runs are {short}. Print the resulting lines {order}.",
        "Shorten a {thing}. A run is a sequence of neighbouring lines, as long as possible, that agree in "
        "the first {prefix} character(s) (lines with fewer characters must be equal to that prefix). "
        "Replace runs of at least {least} lines by '<number of lines>{mark}<first line>'; lines of other "
        "runs are {short}. Print what results, {order}.",
    ),
    draw=_repeated,
    reference=_squeezed,
    solutions={
        "python": """
            import sys

            runs = []
            for line in sys.stdin.read().split():
                if runs and runs[-1][0][:{{prefix}}] == line[:{{prefix}}]:
                    runs[-1].append(line)
                else:
                    runs.append([line])
            result = []
            for run in runs:
                if len(run) >= {{least}}:
                    result.append(str(len(run)) + "{{mark}}" + run[0])
                elif "{{short}}" != "left out":
                    result.extend(run)
            if "{{order}}" == "from bottom to top":
                result.reverse()
            for line in result:
                print(line)
        """,
        "bash": """
            out=() run=()
            flush() {
                if (( ${#run[@]} >= {{least}} )); then
                    out+=("${#run[@]}{{mark}}${run[0]}")
                elif [[ "{{short}}" != "left out" ]]; then
                    out+=("${run[@]}")
                fi
                run=()
            }
            while read -r line; do
                [[ ${#run[@]} -gt 0 && ${line:0:{{prefix}}} != "${run[0]:0:{{prefix}}}" ]] && flush
                run+=("$line")
            done
            flush
            n=${#out[@]}
            for (( i = 0; i < n; i++ )); do
                if [[ "{{order}}" = *top ]]; then echo "${out[n - 1 - i]}"; else echo "${out[i]}"; fi
            done
        """,
        "awk": """
            function flush(   i) {
                if (n >= {{least}}) out[m++] = n "{{mark}}" run[1]
                else if ("{{short}}" != "left out") for (i = 1; i <= n; i++) out[m++] = run[i]
                n = 0
            }
            n && substr($0, 1, {{prefix}}) != substr(run[1], 1, {{prefix}}) { flush() }
            { run[++n] = $0 }
            END {
                flush()
                for (i = 0; i < m; i++) print ("{{order}}" ~ /top$/) ? out[m - 1 - i] : out[i]
            }
        """,
        "perl": """
            my (@out, @run);
            sub flush {
                if (@run >= {{least}}) { push @out, scalar(@run) . "{{mark}}" . $run[0] }
                elsif ("{{short}}" ne "left out") { push @out, @run }
                @run = ();
            }
            while (<STDIN>) {
                chomp;
                flush() if @run and substr($_, 0, {{prefix}}) ne substr($run[0], 0, {{prefix}});
                push @run, $_;
            }
            flush();
            @out = reverse @out if "{{order}}" =~ /top$/;
            print "$_\\n" for @out;
        """,
    },
)


# fixed-width


def _width_params(rng: Random) -> dict[str, Any]:
    return {
        "separator": rng.choice(",;:/"),
        "widths": [rng.randint(3, 9) for _ in range(3)],
        "sides": [rng.choice(("left", "right")) for _ in range(3)],
        "fill": rng.choice("._-+"),
        "cut": rng.choice("~*!"),
    }


def _columns(params: Params, text: str) -> str:
    lines = []
    for line in text.splitlines():
        cells = []
        for cell, width, side in zip(
            line.split(params["separator"]), params["widths"], params["sides"], strict=True
        ):
            shown = cell if len(cell) <= width else cell[: width - 1] + params["cut"]
            cells.append(
                shown.ljust(width, params["fill"]) if side == "left" else shown.rjust(width, params["fill"])
            )
        lines.append("|".join(cells))
    return _lines(lines)


_FIXED_WIDTH = Problem(
    name="fixed-width",
    words={"thing": ("timetable", "price list", "score board", "packing list")},
    params=_width_params,
    statements=(
        "Print a {thing} in columns. Each input line has three fields (letters and digits), separated by "
        "{separator}. The columns are {widths} characters wide, in this order. A field that is too long is "
        "cut, and {cut} takes the place of its last visible character. A shorter one is filled up with "
        "{fill} to the width of its column; the text stands on this side of it: {sides}. Join the columns "
        "by |.",
        "A {thing} comes as lines of three fields with {separator} between them. Make columns of the widths "
        "{widths}, with one | between two columns: a field longer than its column is shortened to width - 1 "
        "characters followed by {cut}; one that is shorter is padded with {fill}. Alignment of the three "
        "columns: {sides}.",
    ),
    draw=lambda rng, params: _lines(
        [
            params["separator"].join(
                "".join(rng.choice("abcdefgh123") for _ in range(rng.randint(1, 11))) for _ in range(3)
            )
            for _ in range(size(rng, 6))
        ]
    ),
    reference=_columns,
    solutions={
        "python": """
            import sys

            widths = [{{widths}}]
            sides = "{{sides}}".split(", ")
            for line in sys.stdin:
                out = []
                for i, cell in enumerate(line.strip().split("{{separator}}")):
                    if len(cell) > widths[i]:
                        cell = cell[: widths[i] - 1] + "{{cut}}"
                    while len(cell) < widths[i]:
                        cell = cell + "{{fill}}" if sides[i] == "left" else "{{fill}}" + cell
                    out.append(cell)
                print("|".join(out))
        """,
        "bash": """
            IFS=', ' read -r -a width <<< '{{widths}}'
            IFS=', ' read -r -a side <<< '{{sides}}'
            while IFS='{{separator}}' read -r -a cell; do
                line=
                for i in 0 1 2; do
                    c=${cell[i]} w=${width[i]}
                    (( ${#c} > w )) && c=${c:0:w - 1}'{{cut}}'
                    while (( ${#c} < w )); do
                        if [[ ${side[i]} = left ]]; then c=$c'{{fill}}'; else c='{{fill}}'$c; fi
                    done
                    line+="|$c"
                done
                echo "${line:1}"
            done
        """,
        "awk": """
            BEGIN { FS = "[{{separator}}]"; split("{{widths}}", w, ", "); split("{{sides}}", s, ", ") }
            {
                line = ""
                for (i = 1; i <= 3; i++) {
                    c = $i
                    if (length(c) > w[i]) c = substr(c, 1, w[i] - 1) "{{cut}}"
                    while (length(c) < w[i] + 0) c = (s[i] == "left") ? c "{{fill}}" : "{{fill}}" c
                    line = line (i > 1 ? "|" : "") c
                }
                print line
            }
        """,
        "perl": """
            my @w = ({{widths}});
            my @s = split /, /, "{{sides}}";
            while (<STDIN>) {
                chomp;
                my @c = split m{[{{separator}}]};
                for my $i (0 .. 2) {
                    $c[$i] = substr($c[$i], 0, $w[$i] - 1) . "{{cut}}" if length $c[$i] > $w[$i];
                    my $fill = "{{fill}}" x ($w[$i] - length $c[$i]);
                    $c[$i] = $s[$i] eq "left" ? $c[$i] . $fill : $fill . $c[$i];
                }
                print join("|", @c), "\\n";
            }
        """,
        "c": """
            #include <stdio.h>
            #include <string.h>

            int main(void) {
                int widths[] = {{{widths}}};
                const char *side = "{{sides}}";
                int left[3];
                char line[1000];
                for (int i = 0; i < 3; i++) {
                    left[i] = *side == 'l';
                    side = strchr(side, ' ') ? strchr(side, ' ') + 1 : side;
                }
                while (fgets(line, sizeof line, stdin)) {
                    char *cell = strtok(line, "{{separator}}\\n");
                    for (int i = 0; i < 3; i++) {
                        int w = widths[i], n = (int) strlen(cell);
                        if (i) putchar('|');
                        if (n > w) {
                            printf("%.*s{{cut}}", w - 1, cell);
                        } else {
                            if (left[i]) printf("%s", cell);
                            for (int k = n; k < w; k++) putchar('{{fill}}');
                            if (!left[i]) printf("%s", cell);
                        }
                        cell = strtok(NULL, "{{separator}}\\n");
                    }
                    putchar('\\n');
                }
                return 0;
            }
        """,
    },
)

PROBLEMS = (_GROUP_TOTALS, _BUSY_INTERVALS, _TOP_WORDS, _MATRIX_TURN, _SQUEEZE_LINES, _FIXED_WIDTH)
