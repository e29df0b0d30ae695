"""Needs of environments, read from their sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from orsay.errors import LoadError
from orsay.packaging.needs.needs import needs_of
from orsay.packaging.needs.project import sources_of
from orsay.packaging.needs.sources import parse

from tests.support.engine import ROOT


def needs(folder: Path, text: str, **others: str) -> set[tuple[str, ...]]:
    (folder / "env.py").write_text(text)
    for name, content in others.items():
        (folder / f"{name}.py").write_text(content)
    found = needs_of(parse(sorted(folder.glob("*.py")), folder))
    return {tuple(filter(None, (each.kind, each.what, each.owner, each.folder))) for each in found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('open("/orwd_data/a.json")', {("data", "/orwd_data/a.json")}),
        (
            'D = Path("/orwd_data")\nopen(D / "x" / f"{n}.txt")',
            {("data", "/orwd_data"), ("data", "/orwd_data/x/*.txt")},
        ),
        (
            'D = os.getenv("DATA", "/orwd_data")\nos.path.join(D, "t")',
            {("data", "/orwd_data"), ("data", "/orwd_data/t")},
        ),
        ('def f(root="/orwd_data/q"):\n    return root', {("data", "/orwd_data/q")}),
        ('"/orwd_data in a docstring"\nx = "see /orwd_data"\ny = "/orwd_database"', set()),
        ('s.run("cat /orwd_data/x")\ns.download("/orwd_data/x")\ns.upload(local, "/orwd_data/x")', set()),
        ('x = "/orwd_data/a is what you read"', set()),
    ],
)
def test_paths_that_its_own_code_reads(tmp_path: Path, text: str, expected: set[tuple[str, ...]]) -> None:
    assert needs(tmp_path, text) == expected


def test_settings_of_sandboxes_in_their_spellings(tmp_path: Path) -> None:
    names = 'IMAGE = "me/tools:1"\nclass Where:\n    size, owner = "1:2", "Me/Env"\n'
    bucket = 'SandboxBucketConfig("/data", only_dir=f"tasks/{self.id}")'
    expected = {
        ("environment", "Me/Env"),
        ("sandbox", "sandboxes"),
        ("image", "me/tools:1"),
        ("size", "1:2"),
        ("bucket", "/data", "Me/Env", "tasks/*"),
    }
    import_it = "from where import IMAGE\n"
    items = f'"environment": self.owner, "image": IMAGE, "machine_size": self.size, "bucket_config": {bucket}'
    named = f"environment=self.owner, image=IMAGE, machine_size=self.size, bucket_config={bucket}"
    for spelled in (
        f"SandboxSettings({named})",
        f"SandboxSettings(self.owner, IMAGE, self.size, bucket_config={bucket})",
        f"SandboxSettings(**{{{items}}} | more)",
        f"known = {{{items}}}",
    ):
        assert needs(tmp_path, import_it + spelled, where=names) == expected, spelled


def test_an_image_that_a_function_chooses(tmp_path: Path) -> None:
    text = (
        'PREFIX = "me/env"\n'
        "def image(task):\n"
        "    if task.sha:\n"
        '        return f"{PREFIX}@{task.sha}"\n'
        '    return "plain:3" if task.plain else read().strip()\n'
        'SandboxSettings(image=image(t), machine_size="nvidia-l4", sidecars=[x], network=None)'
    )
    assert needs(tmp_path, text) == {
        ("sandbox", "sandboxes"),
        ("image", "me/env@*"),
        ("image", "plain:3"),
        ("size", "nvidia-l4"),
        ("feature", "sidecars"),
    }


def test_sandboxes_of_our_own_classes(tmp_path: Path) -> None:
    text = (
        "import orsay\n"
        'self.sandbox(image="python:3.11-slim", data={"/books": "Owner/Books"})\n'
        "orsay.sandbox()\n"
    )
    assert needs(tmp_path, text) == {
        ("sandbox", "self.sandbox"),
        ("image", "python:3.11-slim"),
        ("bucket", "/books", "Owner/Books"),
    }
    assert needs(tmp_path, "sandbox()") == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('secrets["OpenAI_API_key"]; self.secrets.get("b"); "c" in secrets', {"openai_api_key", "b", "c"}),
        ('KEY = "k"\nsession_secrets.pop(KEY, None)', {"k"}),
        ('other["d"]; secrets[name]', set()),
    ],
)
def test_names_of_secrets(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert needs(tmp_path, text) == {("secret", name) for name in expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import openai\nopenai.AsyncClient()", {("model", "openai")}),
        ("from openai import AsyncOpenAI as Judge\nJudge()", {("model", "openai")}),
        ("from anthropic import AsyncAnthropic\nAsyncAnthropic()", {("model", "anthropic")}),
        ("from google import genai\ngenai.Client()", {("model", "google")}),
        ("from openreward.judging import PairwiseJudge", {("model", "openreward.chat_backends")}),
        ("import openai\nexcept_for = openai.RateLimitError", set()),
        (
            "from openreward.toolsets import WebToolset, CLIToolset",
            {("web", "WebToolset"), ("toolset", "CLIToolset")},
        ),
        ('os.environ["OPENREWARD_WEB_FETCH_URL"]', {("web", "OPENREWARD_WEB_FETCH_URL")}),
    ],
)
def test_models_and_the_web(tmp_path: Path, text: str, expected: set[tuple[str, ...]]) -> None:
    assert needs(tmp_path, text) == expected


def test_a_file_is_read_with_the_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text("import helper\nfrom inner.part import f\n")
    (tmp_path / "helper.py").write_text('secrets["one"]\n')
    (tmp_path / "unused.py").write_text('secrets["two"]\n')
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").touch()
    (tmp_path / "inner" / "part.py").write_text('secrets["three"]\n')
    found = needs_of(sources_of(f"{tmp_path}/env.py:MyEnv"))
    assert [(each.what, each.places) for each in found] == [
        ("one", ("helper.py:1",)),
        ("three", ("inner/part.py:1",)),
    ]
    assert [each.what for each in needs_of(sources_of("inner.part:X", [str(tmp_path)]))] == ["three"]
    assert len(needs_of(sources_of(str(tmp_path)))) == 3


@pytest.mark.parametrize(
    ("target", "said"),
    [("no/such.py", "no file"), ("nosuchmodule:X", "nosuchmodule")],
)
def test_what_has_no_sources(target: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        sources_of(target)


def test_a_file_that_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(LoadError, match=r"bad\.py:2 cannot be read"):
        sources_of(str(tmp_path))


def test_the_environments_of_this_repository_need_nothing() -> None:
    for name in ("echo", "guess", "arithmetic", "doors", "textarena"):
        assert needs_of(sources_of(str(ROOT / "envs" / name))) == []
