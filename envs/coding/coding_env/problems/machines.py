"""Programs that follow rules: numbers, commands, accounts."""

from __future__ import annotations

from random import Random
from typing import Any

from ..problem import Params, Problem, size

__all__ = ["PROBLEMS"]

_DIGITS = "0123456789abcdef"


def _lines(found: list[str]) -> str:
    return "".join(f"{line}\n" for line in found)


def _written(number: int, base: int) -> str:
    written = ""
    while number or not written:
        number, digit = divmod(number, base)
        written = _DIGITS[digit] + written
    return written


# change-base


def _base_params(rng: Random) -> dict[str, Any]:
    source, target = rng.sample(range(2, 17), 2)
    return {"source": source, "target": target, "factor": rng.randint(1, 9), "plus": rng.randint(0, 99)}


_CHANGE_BASE = Problem(
    name="change-base",
    words={"thing": ("counter", "clock chip", "register", "odometer")},
    params=_base_params,
    statements=(
        "Each line of the input is the value of a {thing} in base {source} (digits 0-9, then a-f in small "
        "letters; less than 2^40). Multiply it by {factor}, add {plus}, and print the result in base "
        "{target}, one on a line, with digits of the same kind and without leading zeros.",
        "A {thing} shows numbers in base {source}, one on each line of the input; digits above 9 are the "
        "letters a to f. Print for each number n, which is below 2^40, the number {factor} * n + {plus} in "
        "base {target}, written with the same digits and no leading zeros (zero is 0).",
    ),
    draw=lambda rng, params: _lines(
        [
            _written(rng.randrange(2 ** rng.choice((1, 4, 10, 20, 40))), params["source"])
            for _ in range(size(rng, 8))
        ]
    ),
    reference=lambda params, text: _lines(
        [
            _written(int(line, params["source"]) * params["factor"] + params["plus"], params["target"])
            for line in text.splitlines()
        ]
    ),
    solutions={
        "python": """
            import sys

            digits = "0123456789abcdef"
            for line in sys.stdin.read().split():
                n = 0
                for digit in line:
                    n = n * {{source}} + digits.index(digit)
                n = n * {{factor}} + {{plus}}
                out = []
                while True:
                    out.append(digits[n % {{target}}])
                    n //= {{target}}
                    if not n:
                        break
                print("".join(reversed(out)))
        """,
        "bash": """
            digits=0123456789abcdef
            while read -r line; do
                n=$(( {{source}}#$line * {{factor}} + {{plus}} ))
                out=
                while (( n > 0 )) || [[ -z $out ]]; do
                    out=${digits:n % {{target}}:1}$out
                    (( n /= {{target}} ))
                done
                echo "$out"
            done
        """,
        "awk": """
            {
                n = 0
                for (i = 1; i <= length($1); i++)
                    n = n * {{source}} + index("0123456789abcdef", substr($1, i, 1)) - 1
                n = n * {{factor}} + {{plus}}
                out = ""
                while (n > 0 || out == "") {
                    d = n % {{target}}
                    out = substr("0123456789abcdef", d + 1, 1) out
                    n = (n - d) / {{target}}
                }
                print out
            }
        """,
        "perl": """
            my @d = (0 .. 9, "a" .. "f");
            my %v = map { $d[$_] => $_ } 0 .. 15;
            while (<STDIN>) {
                chomp;
                my $n = 0;
                $n = $n * {{source}} + $v{$_} for split //;
                $n = $n * {{factor}} + {{plus}};
                my $out = "";
                do { $out = $d[$n % {{target}}] . $out; $n = int($n / {{target}}) } while $n;
                print "$out\\n";
            }
        """,
        "c": """
            #include <stdio.h>
            #include <stdlib.h>

            int main(void) {
                char line[100], out[100];
                while (scanf("%99s", line) == 1) {
                    long long n = strtoll(line, NULL, {{source}}) * {{factor}} + {{plus}};
                    int at = 99;
                    out[at] = 0;
                    do {
                        out[--at] = "0123456789abcdef"[n % {{target}}];
                        n /= {{target}};
                    } while (n);
                    puts(out + at);
                }
                return 0;
            }
        """,
    },
)


# number-words


def _number_word_params(rng: Random) -> dict[str, Any]:
    small, large = sorted(rng.sample(range(2, 12), 2))
    first, second = rng.sample(("fizz", "buzz", "plip", "plop", "tick", "tock", "zig", "zag"), 2)
    return {
        "small": small,
        "large": large,
        "first": first,
        "second": second,
        "glue": rng.choice("-+/_"),
        "plus": rng.randint(0, 9),
    }


def _number_words(params: Params, text: str) -> str:
    found = []
    for line in text.splitlines():
        number = int(line)
        words = [
            params[word] for word, by in (("first", "small"), ("second", "large")) if number % params[by] == 0
        ]
        found.append(str(params["glue"]).join(words) or str(number + params["plus"]))
    return _lines(found)


_NUMBER_WORDS = Problem(
    name="number-words",
    words={"thing": ("parade", "drinking game", "drum machine", "counting rhyme")},
    params=_number_word_params,
    statements=(
        "A {thing} has a rule for numbers. The input has one number (0 or more) on each line. For a number "
        "divisible by {small} print {first}, for one divisible by {large} print {second}, and for one "
        "divisible by both print both words, in this order, with {glue} in between. For any other number "
        "print the number plus {plus}. One line for each.",
        "For each number (one a line, not negative) print a line, as the {thing} wants it: "
        "{first}{glue}{second} for multiples of both {small} and {large}; else {first} for multiples of "
        "{small}; else {second} for multiples of {large}; and for all others the number, increased by "
        "{plus}. Zero is a multiple of everything.",
    ),
    draw=lambda rng, params: _lines(
        [
            str(rng.choice((rng.randint(0, 150), params["small"] * params["large"] * rng.randint(0, 5))))
            for _ in range(size(rng, 14))
        ]
    ),
    reference=_number_words,
    solutions={
        "python": """
            import sys

            for n in map(int, sys.stdin):
                if n % {{small}} and n % {{large}}:
                    print(n + {{plus}})
                elif n % {{small}}:
                    print("{{second}}")
                elif n % {{large}}:
                    print("{{first}}")
                else:
                    print("{{first}}{{glue}}{{second}}")
        """,
        "bash": """
            while read -r n; do
                if (( n % {{small}} && n % {{large}} )); then echo $(( n + {{plus}} ))
                elif (( n % {{small}} )); then echo '{{second}}'
                elif (( n % {{large}} )); then echo '{{first}}'
                else echo '{{first}}{{glue}}{{second}}'
                fi
            done
        """,
        "awk": """
            {
                out = ""
                if ($1 % {{small}} == 0) out = "{{first}}"
                if ($1 % {{large}} == 0) out = out (out == "" ? "" : "{{glue}}") "{{second}}"
                print out == "" ? $1 + {{plus}} : out
            }
        """,
        "perl": """
            while (my $n = <STDIN>) {
                my @w;
                push @w, "{{first}}" if $n % {{small}} == 0;
                push @w, "{{second}}" if $n % {{large}} == 0;
                print @w ? join("{{glue}}", @w) : $n + {{plus}}, "\\n";
            }
        """,
        "c": """
            #include <stdio.h>

            int main(void) {
                int n;
                while (scanf("%d", &n) == 1) {
                    int a = n % {{small}} == 0, b = n % {{large}} == 0;
                    if (a && b) puts("{{first}}{{glue}}{{second}}");
                    else if (a || b) puts(a ? "{{first}}" : "{{second}}");
                    else printf("%d\\n", n + {{plus}});
                }
                return 0;
            }
        """,
    },
)


# recurrence


def _recurrence(params: Params, text: str) -> str:
    values = [params["first"], params["second"]]
    while len(values) <= 400:
        following = params["p"] * values[-1] + params["q"] * values[-2] + params["r"]
        values.append(following % params["modulus"])
    return _lines([str(values[int(line)]) for line in text.splitlines()])


_RECURRENCE = Problem(
    name="recurrence",
    words={"thing": ("fish in a pond", "tokens in a game", "leaves on a plant", "sand grains in a heap")},
    params=lambda rng: {
        "p": rng.randint(1, 9),
        "q": rng.randint(1, 9),
        "r": rng.randint(0, 20),
        "modulus": rng.randint(50, 9999),
        "first": rng.randint(0, 20),
        "second": rng.randint(0, 20),
    },
    statements=(
        "The number of {thing} follows a rule: a(0) = {first}, a(1) = {second}, and from there on a(n) = "
        "({p} * a(n-1) + {q} * a(n-2) + {r}) modulo {modulus}. Each line of the input has one n from 0 to "
        "400. Print a(n) for each.",
        "Let a(n) count the {thing}. It begins with {first} and {second}; each later value is {p} times the "
        "last one, plus {q} times the one before that, plus {r}, and of this the remainder divided by "
        "{modulus}. Read values of n (counted from 0, at most 400), one on a line, and print a(n) on a line "
        "for each of them.",
    ),
    draw=lambda rng, params: _lines(
        [str(rng.choice((rng.randint(0, 4), rng.randint(0, 400)))) for _ in range(size(rng, 8))]
    ),
    reference=_recurrence,
    solutions={
        "python": """
            import sys

            for line in sys.stdin:
                a, b = {{first}}, {{second}}
                for _ in range(int(line)):
                    a, b = b, ({{p}} * b + {{q}} * a + {{r}}) % {{modulus}}
                print(a)
        """,
        "bash": """
            v=({{first}} {{second}})
            for (( i = 2; i <= 400; i++ )); do
                v[i]=$(( ({{p}} * v[i - 1] + {{q}} * v[i - 2] + {{r}}) % {{modulus}} ))
            done
            while read -r n; do echo "${v[n]}"; done
        """,
        "awk": """
            BEGIN {
                v[0] = {{first}}; v[1] = {{second}}
                for (i = 2; i <= 400; i++) v[i] = ({{p}} * v[i - 1] + {{q}} * v[i - 2] + {{r}}) % {{modulus}}
            }
            { print v[$1 + 0] }
        """,
        "perl": """
            my @v = ({{first}}, {{second}});
            push @v, ({{p}} * $v[-1] + {{q}} * $v[-2] + {{r}}) % {{modulus}} while @v < 401;
            print "$v[$_]\\n" while defined($_ = <STDIN>) && chomp;
        """,
        "c": """
            #include <stdio.h>

            int main(void) {
                long v[401] = { {{first}}, {{second}} };
                int n;
                for (int i = 2; i <= 400; i++)
                    v[i] = ({{p}} * v[i - 1] + {{q}} * v[i - 2] + {{r}}) % {{modulus}};
                while (scanf("%d", &n) == 1) printf("%ld\\n", v[n]);
                return 0;
            }
        """,
    },
)


# stack-machine

_STACK_WORDS = ("lay", "pop", "flip", "twin", "join", "mix", "take", "turn", "clone", "fuse", "stow", "toss")
_STACK_NAMES = ("push", "drop", "swap", "copy", "add", "times")
_NEEDS = {"push": 0, "drop": 1, "swap": 2, "copy": 1, "add": 2, "times": 2}
_CHANGES = {"push": 1, "drop": -1, "swap": 0, "copy": 1, "add": -1, "times": -1}


def _stack_params(rng: Random) -> dict[str, Any]:
    return {
        **dict(zip(_STACK_NAMES, rng.sample(_STACK_WORDS, len(_STACK_NAMES)), strict=True)),
        "modulus": rng.randint(50, 999),
        "short": rng.choice(("is skipped", "ends the program")),
    }


def _stacked(params: Params, text: str) -> str:
    meaning = {params[name]: name for name in _STACK_NAMES}
    stack: list[int] = []
    for line in text.splitlines():
        word, *rest = line.split()
        name = meaning[word]
        if len(stack) < _NEEDS[name]:
            if params["short"] == "is skipped":
                continue
            break
        match name:
            case "push":
                stack.append(int(rest[0]) % params["modulus"])
            case "drop":
                stack.pop()
            case "swap":
                stack[-2:] = stack[-1], stack[-2]
            case "copy":
                stack.append(stack[-1])
            case "add":
                stack[-2:] = [(stack[-2] + stack[-1]) % params["modulus"]]
            case _:
                stack[-2:] = [stack[-2] * stack[-1] % params["modulus"]]
    return (" ".join(map(str, reversed(stack))) or "empty") + "\n"


def _stack_program(rng: Random, params: Params) -> str:
    """Commands that find enough numbers, but for a few."""
    lines, depth = [], 0
    for _ in range(size(rng, 24)):
        name = rng.choice(("push", "push", "push", *_STACK_NAMES[1:]))
        if depth < _NEEDS[name] and rng.random() < 0.9:
            name = "push"
        depth += (depth >= _NEEDS[name]) * _CHANGES[name]
        lines.append(f"{params[name]} {rng.randint(0, 999)}" if name == "push" else params[name])
    return _lines(lines)


_STACK_MACHINE = Problem(
    name="stack-machine",
    words={"thing": ("toy robot", "vending machine", "old calculator", "card game")},
    params=_stack_params,
    statements=(
        "The program of a {thing} works on a stack of numbers, empty at first, with one command on each "
        "line. '{push} N' puts N modulo {modulus} on top. {drop} removes the top number. {swap} exchanges "
        "the two topmost. {copy} puts the top number on top once more. {add} and {times} replace the two "
        "topmost by their sum and their product, modulo {modulus}. A command for which there are too few "
        "numbers {short}. At the end print the stack on one line, from top to bottom, with blanks in "
        "between, or the word empty.",
        "Interpret commands of a {thing}, one a line. There is a stack. {push} is followed by a number, "
        "which goes on the stack; {add} takes two numbers off and puts their sum there; {times} does so "
        "with their product; {copy} doubles the entry on top; {swap} lets the upper two change places; "
        "{drop} discards the upper one. All numbers are reduced modulo {modulus}. If the stack has not "
        "enough numbers for a command, the command {short}. Print the numbers from the top downwards, "
        "separated by blanks, on one line; print empty if there is none.",
    ),
    draw=_stack_program,
    reference=_stacked,
    solutions={
        "python": """
            import sys

            stack = []
            for line in sys.stdin:
                word, *number = line.split()
                if word == "{{push}}":
                    stack.insert(0, int(number[0]) % {{modulus}})
                    continue
                if len(stack) < (1 if word in ("{{drop}}", "{{copy}}") else 2):
                    if "{{short}}" == "ends the program":
                        break
                    continue
                top = stack.pop(0)
                if word == "{{copy}}":
                    stack = [top, top] + stack
                elif word == "{{swap}}":
                    stack.insert(1, top)
                elif word == "{{add}}":
                    stack[0] = (stack[0] + top) % {{modulus}}
                elif word == "{{times}}":
                    stack[0] = (stack[0] * top) % {{modulus}}
            print(*(stack or ["empty"]))
        """,
        "bash": """
            s=() n=0
            while read -r word x; do
                case $word in
                    {{push}}) need=0;;
                    {{drop}}|{{copy}}) need=1;;
                    *) need=2;;
                esac
                if (( n < need )); then
                    [[ "{{short}}" = ends* ]] && break
                    continue
                fi
                case $word in
                    {{push}}) s[n]=$(( x % {{modulus}} )); (( n++ ));;
                    {{drop}}) (( n-- ));;
                    {{copy}}) s[n]=${s[n - 1]}; (( n++ ));;
                    {{swap}}) t=${s[n - 1]}; s[n - 1]=${s[n - 2]}; s[n - 2]=$t;;
                    {{add}}) s[n - 2]=$(( (s[n - 2] + s[n - 1]) % {{modulus}} )); (( n-- ));;
                    {{times}}) s[n - 2]=$(( s[n - 2] * s[n - 1] % {{modulus}} )); (( n-- ));;
                esac
            done
            out=
            for (( i = n - 1; i >= 0; i-- )); do out+="${s[i]} "; done
            echo "${out:-empty}"
        """,
        "awk": """
            BEGIN {
                need["{{drop}}"] = need["{{copy}}"] = 1
                need["{{swap}}"] = need["{{add}}"] = need["{{times}}"] = 2
            }
            n < need[$1] + 0 { if ("{{short}}" ~ /^ends/) exit; next }
            $1 == "{{push}}" { s[++n] = $2 % {{modulus}} }
            $1 == "{{drop}}" { n-- }
            $1 == "{{copy}}" { s[n + 1] = s[n]; n++ }
            $1 == "{{swap}}" { t = s[n]; s[n] = s[n - 1]; s[n - 1] = t }
            $1 == "{{add}}" { s[n - 1] = (s[n - 1] + s[n]) % {{modulus}}; n-- }
            $1 == "{{times}}" { s[n - 1] = (s[n - 1] * s[n]) % {{modulus}}; n-- }
            END {
                out = n ? s[n] : "empty"
                for (i = n - 1; i > 0; i--) out = out " " s[i]
                print out
            }
        """,
        "perl": """
            my %need = ("{{push}}" => 0, "{{drop}}" => 1, "{{copy}}" => 1);
            $need{$_} = 2 for "{{swap}}", "{{add}}", "{{times}}";
            my @s;
            while (<STDIN>) {
                my ($w, $x) = split;
                if (@s < $need{$w}) { last if "{{short}}" =~ /^ends/; next }
                if ($w eq "{{push}}") { push @s, $x % {{modulus}} }
                elsif ($w eq "{{drop}}") { pop @s }
                elsif ($w eq "{{copy}}") { push @s, $s[-1] }
                elsif ($w eq "{{swap}}") { @s[-1, -2] = @s[-2, -1] }
                else {
                    my $b = pop @s;
                    my $a = pop @s;
                    push @s, ($w eq "{{add}}" ? $a + $b : $a * $b) % {{modulus}};
                }
            }
            print @s ? join(" ", reverse @s) : "empty", "\\n";
        """,
    },
)


# walk

_WAYS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def _walk_params(rng: Random) -> dict[str, Any]:
    names = dict(zip(("ahead", "left", "right", "back"), rng.sample("ABFGHJKLMRTVZ", 4), strict=True))
    width, height = rng.randint(4, 15), rng.randint(4, 15)
    return {
        **names,
        "width": width,
        "height": height,
        "x": rng.randrange(width),
        "y": rng.randrange(height),
    }


def _walked(params: Params, text: str) -> str:
    x, y, way = params["x"], params["y"], 0
    seen = {(x, y)}
    for letter in text.strip():
        if letter == params["left"]:
            way = (way - 1) % 4
        elif letter == params["right"]:
            way = (way + 1) % 4
        else:
            sign = 1 if letter == params["ahead"] else -1
            x = (x + sign * _WAYS[way][0]) % params["width"]
            y = (y + sign * _WAYS[way][1]) % params["height"]
            seen.add((x, y))
    return f"{x} {y} {'NESW'[way]} {len(seen)}\n"


_WALK = Problem(
    name="walk",
    words={"thing": ("lawn mower", "beetle", "drone", "submarine")},
    params=_walk_params,
    statements=(
        "A {thing} stands on a field of {width} squares from west to east (x from 0) and {height} from "
        "south to north (y from 0), at x = {x}, y = {y}, and looks north. The input is one line of letters, "
        "maybe none: {ahead} one square ahead, {back} one square back without turning, {left} and {right} a "
        "quarter turn to the left and to the right. Who leaves the field enters it again on the opposite "
        "side. Print x, y, the direction (N, E, S or W) and the number of different squares it has been on, "
        "with the first one, separated by blanks.",
        "Follow a {thing} on a board that wraps around at its edges: x goes from 0 to {width} - 1 towards "
        "the east, y from 0 to {height} - 1 towards the north. Start at ({x}, {y}), facing north. Read one "
        "line, possibly empty. In it, {left} means turn left by 90 degrees, {right} turn right, {ahead} "
        "move one square in the direction of view, {back} move one square against it (still facing the same "
        "way). Print 'x y d n': the last position, the direction as one of N E S W, and how many distinct "
        "squares were visited, start included.",
    ),
    draw=lambda rng, params: (
        "".join(
            params[rng.choice(("ahead", "ahead", "ahead", "back", "left", "right"))]
            for _ in range(size(rng, 45))
        )
        + "\n"
    ),
    reference=_walked,
    solutions={
        "python": """
            position, view = complex({{x}}, {{y}}), 1j
            seen = {position}
            for letter in input():
                if letter == "{{left}}":
                    view *= 1j
                elif letter == "{{right}}":
                    view *= -1j
                else:
                    position += view if letter == "{{ahead}}" else -view
                    position = complex(position.real % {{width}}, position.imag % {{height}})
                    seen.add(position)
            facing = {1j: "N", 1 + 0j: "E", -1j: "S", -1 + 0j: "W"}[view]
            print(int(position.real), int(position.imag), facing, len(seen))
        """,
        "bash": """
            read -r line
            x={{x}} y={{y}} d=0
            dx=(0 1 0 -1) dy=(1 0 -1 0)
            declare -A seen=(["$x,$y"]=1)
            for (( i = 0; i < ${#line}; i++ )); do
                case ${line:i:1} in
                    {{left}}) d=$(( (d + 3) % 4 ));;
                    {{right}}) d=$(( (d + 1) % 4 ));;
                    {{ahead}}) (( x += dx[d], y += dy[d] ));;
                    {{back}}) (( x -= dx[d], y -= dy[d] ));;
                esac
                x=$(( (x + {{width}}) % {{width}} )) y=$(( (y + {{height}}) % {{height}} ))
                seen["$x,$y"]=1
            done
            ways=NESW
            echo "$x $y ${ways:d:1} ${#seen[@]}"
        """,
        "awk": """
            {
                x = {{x}}; y = {{y}}; d = 0; n = 1
                seen[x, y] = 1
                split("0 1 0 -1", dx); split("1 0 -1 0", dy)
                for (i = 1; i <= length($1); i++) {
                    c = substr($1, i, 1)
                    if (c == "{{left}}") d = (d + 3) % 4
                    else if (c == "{{right}}") d = (d + 1) % 4
                    else {
                        s = (c == "{{ahead}}") ? 1 : -1
                        x = (x + s * dx[d + 1] + {{width}}) % {{width}}
                        y = (y + s * dy[d + 1] + {{height}}) % {{height}}
                        if (!((x, y) in seen)) { seen[x, y] = 1; n++ }
                    }
                }
                print x, y, substr("NESW", d + 1, 1), n
            }
        """,
        "perl": """
            my $line = <STDIN>;
            chomp $line;
            my ($x, $y, $d) = ({{x}}, {{y}}, 0);
            my @way = ([0, 1], [1, 0], [0, -1], [-1, 0]);
            my %seen = ("$x $y" => 1);
            for my $c (split //, $line) {
                if ($c eq "{{left}}") { $d = ($d + 3) % 4; next }
                if ($c eq "{{right}}") { $d = ($d + 1) % 4; next }
                my $s = $c eq "{{ahead}}" ? 1 : -1;
                $x = ($x + $s * $way[$d][0]) % {{width}};
                $y = ($y + $s * $way[$d][1]) % {{height}};
                $seen{"$x $y"} = 1;
            }
            print join(" ", $x, $y, substr("NESW", $d, 1), scalar keys %seen), "\\n";
        """,
        "c": """
            #include <stdio.h>

            int main(void) {
                int x = {{x}}, y = {{y}}, d = 0, n = 1, c;
                int dx[] = { 0, 1, 0, -1 }, dy[] = { 1, 0, -1, 0 };
                static int seen[{{width}}][{{height}}];
                seen[x][y] = 1;
                while ((c = getchar()) != EOF && c != '\\n') {
                    if (c == '{{left}}') { d = (d + 3) % 4; continue; }
                    if (c == '{{right}}') { d = (d + 1) % 4; continue; }
                    int s = c == '{{ahead}}' ? 1 : -1;
                    x = (x + s * dx[d] + {{width}}) % {{width}};
                    y = (y + s * dy[d] + {{height}}) % {{height}};
                    if (!seen[x][y]) { seen[x][y] = 1; n++; }
                }
                printf("%d %d %c %d\\n", x, y, "NESW"[d], n);
                return 0;
            }
        """,
    },
)


# accounts


def _account_params(rng: Random) -> dict[str, Any]:
    into, out, move = rng.sample(("in", "out", "put", "get", "pay", "send", "give", "draw"), 3)
    return {"into": into, "out": out, "move": move, "credit": rng.randint(0, 60), "fee": rng.randint(0, 5)}


def _balances(params: Params, text: str) -> str:
    balance: dict[str, int] = {}
    refused = 0
    for line in text.splitlines():
        word, *names, last = line.split()
        amount = int(last)
        for name in names:
            balance.setdefault(name, 0)
        if word == params["into"]:
            balance[names[0]] += amount
        elif balance[names[0]] - amount - params["fee"] < -params["credit"]:
            refused += 1
        else:
            balance[names[0]] -= amount + params["fee"]
            if word == params["move"]:
                balance[names[1]] += amount
    return _lines([*(f"{name} {balance[name]}" for name in sorted(balance)), f"refused {refused}"])


def _transactions(rng: Random, params: Params) -> str:
    lines = []
    for _ in range(size(rng, 16)):
        a, b = rng.sample(("ann", "ben", "cleo", "dora"), 2)
        kind = rng.choice(("into", "out", "move", "move"))
        names = f"{a} {b}" if kind == "move" else a
        lines.append(f"{params[kind]} {names} {rng.randint(1, 80)}")
    return _lines(lines)


_ACCOUNTS = Problem(
    name="accounts",
    words={"thing": ("bank", "canteen", "flat share", "casino")},
    params=_account_params,
    statements=(
        "A {thing} keeps accounts, which begin with 0. The input has lines '{into} NAME AMOUNT' (to pay "
        "in), '{out} NAME AMOUNT' (to pay out) and '{move} FROM TO AMOUNT'. Who pays out or moves money "
        "also loses a fee of {fee}. This is refused, and nothing changes, if it would bring the account "
        "below -{credit}. Print for each name that occurs in the input, in alphabetical order, the name and "
        "the balance with a blank in between; then a line 'refused N' with the number of refusals.",
        "Simulate the accounts of a {thing}. Every account is 0 at first. Three kinds of lines: {into} with "
        "a name and an amount adds to the account; {out} with a name and an amount takes off the amount and "
        "a fee of {fee}; {move} with two names and an amount does the same to the first and adds the "
        "amount, without the fee, to the second. A line that would leave an account with less than "
        "-{credit} has no effect and counts as refused. At the end print 'name balance' for all names "
        "mentioned, sorted by name, and last 'refused' with the count.",
    ),
    draw=_transactions,
    reference=_balances,
    solutions={
        "python": """
            import sys
            from collections import defaultdict

            accounts, refused = defaultdict(int), 0
            for line in sys.stdin:
                f = line.split()
                amount = int(f[-1])
                accounts[f[1]] += 0
                if f[0] == "{{move}}":
                    accounts[f[2]] += 0
                if f[0] == "{{into}}":
                    accounts[f[1]] += amount
                    continue
                if accounts[f[1]] + {{credit}} < amount + {{fee}}:
                    refused += 1
                    continue
                accounts[f[1]] -= amount + {{fee}}
                if f[0] == "{{move}}":
                    accounts[f[2]] += amount
            for name in sorted(accounts):
                print(name, accounts[name])
            print("refused", refused)
        """,
        "bash": """
            declare -A b
            refused=0
            while read -r word x y z; do
                b[$x]=${b[$x]:-0}
                [[ $word = {{move}} ]] && b[$y]=${b[$y]:-0} || z=$y
                if [[ $word = {{into}} ]]; then
                    b[$x]=$(( b[$x] + z ))
                elif (( b[$x] - z - {{fee}} < -{{credit}} )); then
                    (( refused++ ))
                else
                    b[$x]=$(( b[$x] - z - {{fee}} ))
                    [[ $word = {{move}} ]] && b[$y]=$(( b[$y] + z ))
                fi
            done
            for name in "${!b[@]}"; do echo "$name ${b[$name]}"; done | sort
            echo "refused $refused"
        """,
        "awk": """
            {
                z = $NF
                b[$2] += 0
                if ($1 == "{{move}}") b[$3] += 0
                if ($1 == "{{into}}") b[$2] += z
                else if (b[$2] - z - {{fee}} < -{{credit}}) refused++
                else {
                    b[$2] -= z + {{fee}}
                    if ($1 == "{{move}}") b[$3] += z
                }
            }
            END {
                for (name in b) print name, b[name] | "sort"
                close("sort")
                print "refused", refused + 0
            }
        """,
        "perl": """
            my ($refused, %b) = (0);
            while (<STDIN>) {
                my ($w, @n) = split;
                my $z = pop @n;
                $b{$_} += 0 for @n;
                if ($w eq "{{into}}") { $b{$n[0]} += $z; next }
                if ($b{$n[0]} - $z - {{fee}} < -{{credit}}) { $refused++; next }
                $b{$n[0]} -= $z + {{fee}};
                $b{$n[1]} += $z if $w eq "{{move}}";
            }
            print "$_ $b{$_}\\n" for sort keys %b;
            print "refused $refused\\n";
        """,
    },
)

PROBLEMS = (_CHANGE_BASE, _NUMBER_WORDS, _RECURRENCE, _STACK_MACHINE, _WALK, _ACCOUNTS)
