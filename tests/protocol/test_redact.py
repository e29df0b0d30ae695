"""No secret is in a text that was redacted, whatever spelled it there; other texts stay as they are."""

from __future__ import annotations

import base64
import gc
import json
import random
import re
import subprocess
import time
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from orsay_protocol.headers import encode_secrets
from orsay_protocol.redact import HIDDEN, SHORTEST, Redactor, redact
from orsay_protocol.search import Search
from pydantic import BaseModel, ValidationError

from .spelled import ENCODINGS, SPELLINGS, as_json

pytestmark = pytest.mark.process

_LETTERS = st.sampled_from("abAB01 -_\"'\\/\n\r\t%&+;.<>$u2é☃🔑{}")
_SECRET = st.text(_LETTERS, min_size=1, max_size=24) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=4, max_size=12
)
_AROUND = st.text(st.sampled_from("xyz XYZ\n\"'\\/%&.…") | _LETTERS, max_size=12)


@st.composite
def _families(draw: st.DrawFn) -> list[str]:
    """Secrets of which some begin, end or overlap others."""
    found = draw(st.lists(_SECRET, min_size=1, max_size=3))
    first = found[0]
    more = draw(_SECRET)
    for kind in draw(st.lists(st.sampled_from(["longer", "prefix", "suffix", "overlap"]), max_size=3)):
        half = len(first) // 2
        made = {
            "longer": first + more,
            "prefix": first[:half],
            "suffix": first[half:],
            "overlap": first[half:] + more,
        }
        found.append(made[kind])
    return found


@settings(max_examples=400, deadline=None)
@given(_families(), st.lists(_AROUND, min_size=2, max_size=5), st.sampled_from(sorted(SPELLINGS)), st.data())
@example(["abcdef", "abcdefghijk"], ["", " and ", ""], "as it is", None)
@example(["abcdef", "defghi"], ["abc", "ghi", ""], "as it is", None)
def test_no_secret_remains_in_any_spelling(
    secrets: list[str], around: list[str], spelling: str, data: st.DataObject | None
) -> None:
    between = (
        [secrets[0]]
        if data is None
        else data.draw(st.lists(st.sampled_from(secrets), min_size=1, max_size=4))
    )
    text = around[0] + "".join(
        secret + around[1 + at % (len(around) - 1)] for at, secret in enumerate(between)
    )
    spelled = SPELLINGS[spelling](text)
    clean = Redactor(secrets).plain(spelled).replace(HIDDEN, "\0")
    for secret in secrets:
        if len(secret) < SHORTEST:
            continue
        assert secret not in clean
        assert SPELLINGS[spelling](secret) not in clean


@settings(max_examples=150, deadline=None)
@given(_families(), st.text(st.sampled_from("QWERTZ qwertz\n\t,?!=:[]()^~|@#*`"), max_size=300))
def test_a_text_without_secrets_stays_as_it_is(secrets: list[str], text: str) -> None:
    found = Redactor(secrets)
    if any(secret.strip() in text for secret in secrets):
        return
    assert found.plain(text) == text
    assert found.json(json.dumps({"text": text})) == json.dumps({"text": text})


@settings(max_examples=150, deadline=None)
@given(_families(), _AROUND, _AROUND)
def test_no_secret_remains_in_json(secrets: list[str], before: str, after: str) -> None:
    found = Redactor(secrets)
    for secret in secrets:
        if len(secret) < SHORTEST:
            continue
        document = {"a": [before + secret + after, {secret: secret}], "b": json.dumps({"c": secret})}
        for ascii_only in (True, False):
            text = found.json(json.dumps(document, ensure_ascii=ascii_only))
            read = json.dumps(json.loads(text), ensure_ascii=False).replace(HIDDEN, "\0")
            assert as_json(secret) not in read and as_json(as_json(secret)) not in read


_PLAIN_SECRET = st.text(st.sampled_from("abcdefXYZ0189"), min_size=SHORTEST, max_size=40)


@settings(max_examples=150, deadline=None)
@given(_PLAIN_SECRET, st.data())
def test_no_plain_secret_remains_in_json_with_names_that_come_twice(secret: str, data: st.DataObject) -> None:
    spelled = st.sampled_from([secret, f"x {secret} y", secret[:1] + secret[1:], "x", "y"])
    names = st.sampled_from(["a", "b", secret])
    leaf = spelled.map(json.dumps) | st.just(f'"\\u{ord(secret[0]):04x}{secret[1:]}"'.replace("\\\\", "\\"))
    if secret.isdigit() and secret[0] != "0":
        leaf |= st.just(secret)

    def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.lists(st.tuples(names.map(json.dumps), inner).map(":".join), max_size=4)
        lists = st.lists(inner, max_size=3).map(",".join)
        return pairs.map(",".join).map("{{{}}}".format) | lists.map("[{}]".format)

    text = data.draw(st.recursive(leaf, objects, max_leaves=8))
    clean = Redactor([secret]).json(text)
    pairs: list[object] = []
    json.loads(clean, object_pairs_hook=pairs.extend)
    assert secret not in clean and secret not in repr((json.loads(clean), pairs))


def test_json_in_which_a_name_comes_twice_stays_as_it_is_without_a_secret() -> None:
    text = '{"a" : 1, "a" : {"b":"\\n","b":[]}}'
    assert Redactor(["hunter2", 'o"dd value']).json(text) == text


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("secret", ["abcd", "hunter2hunter2", "pässwörd☃🔑", "??>>~~ÿÿ"])
def test_an_encoded_secret_is_found(name: str, secret: str) -> None:
    spelled = ENCODINGS[name](secret)
    assert spelled.strip("=") not in Redactor([secret]).plain(f"x {spelled} y")


@pytest.mark.parametrize("before", ["", "u", "us", "use", "user"])
def test_a_secret_inside_of_base64_is_found(before: str) -> None:
    secret = "correct horse battery"
    encoded = base64.b64encode(f"{before}:{secret}:more".encode()).decode()
    clean = Redactor([secret]).plain(f"Authorization: Basic {encoded}")
    assert HIDDEN in clean
    assert len(clean.replace(HIDDEN, "")) <= len(encoded) - len(secret) * 8 // 6 + 23


def test_what_x_secrets_carries_is_found_in_the_header() -> None:
    secret = 'quo"ted-and-long-enough'
    header = encode_secrets({"key": secret})
    inner = base64.b64encode(as_json(secret).encode()).decode().strip("=")
    clean = Redactor([secret]).plain(header)
    assert HIDDEN in clean and inner[4:-4] not in clean
    assert len(clean.replace(HIDDEN, "")) < len(header) - len(secret)


@pytest.mark.parametrize("length", [24, 60, 120, 255, 400, 3000])
@pytest.mark.parametrize("before", ["", "u:", "a user and more than one line of what is no secret: "])
def test_no_line_of_an_encoded_secret_remains(length: int, before: str) -> None:
    secret = _token(length)
    data = f"{before}{secret}".encode()
    found = Redactor([secret])
    for lines in (base64.encodebytes(data).decode(), "\n".join(re.findall(".{1,64}", data.hex()))):
        for text in (lines, lines.replace("\n", "\r\n"), lines.replace("\n", "\n    "), repr(lines)):
            clean = found.plain(text).replace(HIDDEN, "")
            of_secret = len(lines) * len(secret) // len(data)
            assert len(clean) <= len(text) - of_secret + 16, clean


@pytest.mark.parametrize("length", [24, 60, 120])
def test_no_part_of_an_encoded_secret_that_was_cut_remains(length: int) -> None:
    secret = _token(length)
    encoded = base64.b64encode(f"user:{secret}".encode()).decode()
    found = Redactor([secret])
    for text in (f"Basic {encoded[:28]}...", f"Basic {encoded[:30]}", secret.encode().hex()[4:30] + "…"):
        assert len(found.plain(text).replace(HIDDEN, "")) <= 17, text


def test_what_the_shell_and_regular_expressions_escape_is_found() -> None:
    for secret in ("p@ss word", "a b&c d", "(x) $y; z*"):
        spelled = subprocess.run(
            ["bash", "-c", 'printf %q "$1"', "x", secret], capture_output=True, check=True
        )
        for text in (spelled.stdout.decode(), re.escape(secret)):
            assert Redactor([secret]).plain(f"say {text}!") == f"say {HIDDEN}!"


def test_halves_of_characters_hide_no_secret() -> None:
    assert Redactor(["hunter2hunter2"]).plain("\ud800 hunter2hunter2 \udfff") == f"\ud800 {HIDDEN} \udfff"
    assert Redactor(["hunter\ud800two"]).plain("x hunter\ud800two") == f"x {HIDDEN}"
    assert Redactor(["p@ss \udc80word"]).plain(ascii("p@ss \udc80word")) == f"'{HIDDEN}'"


@pytest.mark.parametrize("length", [12, 40, 256, 1000])
def test_many_secrets_are_looked_for_as_quickly_as_one(length: int) -> None:
    secrets = [_token(length, seed) for seed in range(64)]
    odd = [f"P@ssword!{seed}#{_token(length, seed)}" for seed in range(64)]
    for each in (secrets, odd):
        began = time.process_time()
        found = Redactor(each)
        assert found.plain("the first text") == "the first text"
        assert time.process_time() - began < 2
        assert _least_s(found, "a text of a hundred characters, as a log has them, " * 2) < 0.0002
        assert found.plain(" ".join(each)) == " ".join([HIDDEN] * 64)


@pytest.mark.parametrize("secret", ["P@ssword!2024#x", "postgresql://user:Sup3r+pw@db.host:5432/app"])
def test_a_web_page_is_not_unescaped_for_words_that_a_secret_has_too(secret: str) -> None:
    page = "<p class=\"user\">The password &amp; the app\n</p>\t\\d '' %20" * 5600
    found = Redactor([secret])
    assert _least_s(found, page) < 0.05
    for spelled in (repr(secret), json.dumps(json.dumps(secret)), quote(secret)):
        assert found.plain(f"{page}{spelled}{page}").count(HIDDEN) == 1


def test_secrets_of_many_sessions_take_no_more_memory_than_a_bound() -> None:
    secrets = [[f"é{_token(60, 64 * session + each)}" for each in range(64)] for session in range(56)]
    held = [Redactor(each) for each in secrets]
    for found, mine in zip(held, secrets, strict=True):
        assert found.plain(mine[0]) == HIDDEN
    gc.collect()
    assert sum(type(each) is Search for each in gc.get_objects()) < 52
    assert [held[at].plain(secrets[at][63]) for at in (0, 28, 55)] == [HIDDEN] * 3


def _token(length: int, seed: int = 0) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(random.Random(seed).choices(letters, k=length))


def _least_s(found: Redactor, text: str) -> float:
    """The time of the quickest of five."""
    assert found.plain(text) == text
    times = []
    for _ in range(5):
        began = time.perf_counter()
        found.plain(text)
        times.append(time.perf_counter() - began)
    return min(times)


def test_two_secrets_that_overlap_leave_nothing() -> None:
    assert Redactor(["abcdef", "defghi"]).plain("<abcdefghi>") == f"<{HIDDEN}>"
    assert Redactor(["abcdef", "abcdefghi", "fghijk"]).plain("<abcdefghijk>") == f"<{HIDDEN}>"
    assert Redactor(["aaaa"]).plain("<" + "a" * 1000 + ">") == f"<{HIDDEN}>"


def test_secrets_of_several_sessions_are_hidden_together() -> None:
    hides = [Redactor(["abcdef"]), Redactor(["abcdefghi"]), Redactor(["hijk"]), Redactor([])]
    assert redact("<abcdefghijk> abcdef", hides) == f"<{HIDDEN}> {HIDDEN}"
    assert redact("nothing", hides) == "nothing"


KEY = "sk-" + "".join(f"{number:02x}" for number in range(32))


@pytest.mark.parametrize(
    "text",
    [
        f"{KEY[:25]}...{KEY[-24:]}",  # as pydantic shows an input
        f"{KEY[:13]}...{KEY[-14:]}",  # as reprlib does
        f"{KEY[:6]}… and no more",
        f"…{KEY[-5:]}' is wrong",
        KEY[:16],
        KEY[-16:],
        KEY[9:25],
        f"{KEY[:20]}\n  | {KEY[20:]}",
    ],
)
def test_what_is_left_of_a_secret_that_was_cut_is_hidden(text: str) -> None:
    clean = Redactor([KEY]).plain(f"got '{text}'").replace(HIDDEN, "")
    assert not any(KEY[at : at + 5] in clean for at in range(len(KEY) - 4))


def test_pydantic_shows_no_part_of_a_long_secret() -> None:
    class Model(BaseModel):
        key: int
        other: int

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"key": KEY, "other": {"key": KEY}})
    clean = Redactor([KEY]).plain(str(caught.value))
    assert "int_parsing" in clean
    assert not any(KEY[at : at + 5] in clean for at in range(len(KEY) - 4))


def test_each_line_of_a_secret_with_several_is_hidden() -> None:
    secret = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(f"MIIE{n}" * 12 for n in range(9)) + "\n-----END\n"
    shown = "".join(f"  | {line}\n" for line in secret.splitlines())
    clean = Redactor([secret]).plain(shown)
    assert "MIIE" not in clean and "PRIVATE" not in clean
    assert "MIIE" not in Redactor([secret]).plain(repr(secret.replace("\n", "\r\n")))


def test_a_key_of_a_list_of_keys_is_hidden_without_the_others() -> None:
    found = Redactor(['["first-key","second-key"]', '{"a": {"token": "a-token-of-mine"}, "b": 12345678}'])
    assert found.plain("first-key or second-key") == f"{HIDDEN} or {HIDDEN}"
    assert found.plain("the token a-token-of-mine") == f"the token {HIDDEN}"
    assert Redactor(["[not json", "[" * 100_000]).plain("x [not json y") == f"x {HIDDEN} y"


def test_a_secret_is_found_without_the_white_space_around_it() -> None:
    assert Redactor(["hunter2\n"]).plain("password hunter2!") == f"password {HIDDEN}!"


@pytest.mark.parametrize(
    "text", ["12345678", "12,345,678", "12_345_678", "12345678.0", "-12345678", "1.2345678e7"]
)
def test_a_secret_that_is_a_number_is_found_as_one(text: str) -> None:
    for secret in ("12345678", " 12345678 ", "0012345678", "1.2345678e7"):
        found = Redactor([secret])
        if text != "1.2345678e7":  # as JSON may have it, but nobody prints it
            assert "34" not in found.plain(f"got {text};")
        if not {"_", ","} & set(text):
            assert "34" not in found.json(f'{{"a":{text},"b":[{text}]}}')


def test_numbers_that_only_look_like_it_stay() -> None:
    text = '{"a":123456789,"b":0,"c":1.5,"d":true,"e":12345678.5}'
    assert Redactor(["12345678", "0000", "1.50"]).json(text) == text


def test_a_text_that_was_redacted_stays_as_it_is() -> None:
    found = Redactor(["secret", "cret", "[sec"])
    once = found.plain("my secret is [sec")
    assert once == f"my {HIDDEN} is {HIDDEN}"
    assert found.plain(once) == once


def test_a_text_is_cut_beside_a_secret_and_not_in_it() -> None:
    found = Redactor(["hunter2hunter2"])
    text = "x hunter2hunter2 y"
    assert [found.split(text, at) for at in (0, 2, 3, 15, 16, 17)] == [0, 2, 2, 2, 16, 17]
    assert Redactor(["abcdefghij"]).split("abcdefghij" * 3, 25) == 20


def test_nothing_shows_the_secrets_of_a_redactor() -> None:
    assert "hunter" not in repr(Redactor(["hunter2"]))
    assert not Redactor(["abc", "", None])
    assert Redactor(["abc"]).plain("abc") == "abc"


def test_another_word_may_replace_it() -> None:
    assert Redactor(["hunter2"], mask="***").plain("hunter2hunter2 hunter2") == "*** ***"


def test_long_texts_with_escapes_take_seconds_at_most() -> None:
    text = 'a\\"b %20 &amp; "" \\\\n sec ' * 20_000
    assert Redactor(['quo"ted\\sec/ret']).plain(text) == text
    assert Redactor(["a" * 200 + "b"]).plain("a" * 500_000).count("a") == 0
