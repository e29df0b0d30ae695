"""From a target to classes, and back."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from orsay import Environment, tool
from orsay.errors import LoadError
from orsay.runtimes.loader import load, source_of

pytestmark = pytest.mark.process

ENV = """
from orsay import Environment, tool


class {name}(Environment):
    splits = {{"train": [{{}}]}}

    def prompt(self) -> str:
        return ""

    @tool
    def act(self) -> str:
        return ""
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, and the import system as it was afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "") or ""):
            del sys.modules[name]


def write(path: Path, *names: str, extra: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(ENV.format(name=name) for name in names) + extra)
    return path


def names(target: str) -> list[str]:
    return [cls.__name__ for cls in load(target)]


def problem(target: str) -> str:
    with pytest.raises(LoadError) as caught:
        load(target)
    return str(caught.value)


def test_a_class_of_a_module_in_the_current_folder_is_loaded(here: Path) -> None:
    write(here / "words_a.py", "Echo", "Other")
    assert names("words_a:Echo") == ["Echo"]


def test_a_module_means_every_environment_defined_in_it(here: Path) -> None:
    extra = (
        "\nclass _Hidden(Echo): ...\nclass Base(Environment): ...\nclass Child(Base, Echo): ...\n"
        "from words_c import Third\n"
    )
    write(here / "words_b.py", "Echo", "Other", extra=extra)
    write(here / "words_c.py", "Third")
    assert names("words_b") == ["Echo", "Other", "Child"]


def test_a_package_means_what_it_takes_from_its_modules(here: Path) -> None:
    write(here / "pack_a" / "env.py", "Echo")
    (here / "pack_a" / "__init__.py").write_text("from .env import Echo\n")
    assert names("pack_a") == ["Echo"]
    assert names("pack_a.env:Echo") == ["Echo"]


def test_a_class_that_cannot_be_hosted_does_not_vanish_from_its_module(here: Path) -> None:
    write(here / "words_d.py", "Echo", extra="\nclass Half(Environment): ...\n")
    assert names("words_d") == ["Echo", "Half"]


def test_several_targets_are_written_as_one(here: Path) -> None:
    write(here / "words_e.py", "Echo")
    write(here / "words_f.py", "Other")
    assert names("words_e:Echo, words_f") == ["Echo", "Other"]


def test_a_nested_class_is_loaded(here: Path) -> None:
    write(here / "words_g.py", "Echo", extra="\nclass Box:\n    Inner = Echo\n")
    assert names("words_g:Box.Inner") == ["Echo"]


def test_a_file_is_loaded_once_and_its_main_part_does_not_run(here: Path) -> None:
    extra = "\nimport sibling_a\nif __name__ == '__main__':\n    raise SystemExit('ran')\n"
    path = write(here / "sub" / "script.py", "Echo", extra=extra)
    (here / "sub" / "sibling_a.py").write_text("")
    assert names(str(path)) == ["Echo"]
    assert load("sub/script.py:Echo") == load(str(path))
    assert load(f"{path}:Echo") == load("./sub/script.py")


def test_a_file_of_a_package_may_import_from_it(here: Path) -> None:
    write(here / "src" / "pack_b" / "env.py", "Echo", extra="\nfrom .more import value\n")
    (here / "src" / "pack_b" / "__init__.py").write_text("")
    (here / "src" / "pack_b" / "more.py").write_text("value = 1\n")
    assert load("src/pack_b/env.py:Echo")[0].__module__ == "pack_b.env"


def test_what_is_missing_of_a_module_path_is_reported(here: Path) -> None:
    write(here / "pack_c" / "env.py", "Echo")
    (here / "pack_c" / "__init__.py").write_text("")
    write(here / "words_h.py", "Echo")
    assert "no module 'pack_d'" in problem("pack_d.env:Echo")
    assert "did you mean 'pack_c'?" in problem("pack_d.env:Echo")
    assert "package 'pack_c' is there, but has no module 'enw'; did you mean 'env'?" in problem(
        "pack_c.enw:Echo"
    )
    assert "'words_h' is a module, not a package" in problem("words_h.Echo")
    assert "write words_h:Echo" in problem("words_h.Echo")
    assert "names no module" in problem(":Echo")
    assert "names no module" in problem("")


def test_what_is_missing_of_a_file_path_is_reported(here: Path) -> None:
    write(here / "sub" / "env.py", "Echo")
    assert "no file 'enw.py' in" in problem("sub/enw.py")
    assert "did you mean 'env.py'?" in problem("sub/enw.py:Echo")
    assert "has no 'other'" in problem("other/deep/env.py")
    assert "is a folder" in problem("./sub")


def test_an_unknown_class_is_reported_with_the_nearest_names(here: Path) -> None:
    write(here / "words_i.py", "EchoEnvironment", "Guess")
    assert "no class 'EchoEnviroment'; did you mean 'EchoEnvironment'?" in problem("words_i:EchoEnviroment")
    assert "there are: EchoEnvironment, Guess" in problem("words_i:Xyz")


def test_what_is_no_environment_is_reported(here: Path) -> None:
    (here / "words_j.py").write_text("class Thing: ...\nvalue = 3\n")
    assert "words_j:Thing is not an environment" in problem("words_j:Thing")
    assert "words_j:value is not an environment" in problem("words_j:value")
    assert "words_j defines no environment" in problem("words_j")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("\n\nraise ValueError('no key')\n", "3: ValueError: no key"),
        ("import nothing_of_the_sort\n", "1: ModuleNotFoundError: No module named 'nothing_of_the_sort'"),
        ("from os import nothing_of_the_sort\n", "1: ImportError"),
        ("def f(:\n", "1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "2: it ended the process with exit code 3"),
        ("import json\njson.loads('{')\n", "2: JSONDecodeError"),
        (
            "from orsay import *\nclass E(Environment):\n    @tool\n    def act(self, x): ...\n".replace(
                "*", "Environment, tool"
            ),
            "2: ToolDefinitionError: tool 'act' of E has no annotation for parameter 'x'",
        ),
    ],
)
def test_an_import_that_raises_is_reported_with_the_authors_line(here: Path, code: str, what: str) -> None:
    (here / "broken_a.py").write_text(code)
    for target in ("broken_a", "broken_a.py:Echo", "./broken_a.py"):
        text = problem(target)
        assert text.startswith("importing ")
        assert f"{here / 'broken_a.py'}:{what}" in text


def test_a_missing_module_inside_a_package_is_no_wrong_target(here: Path) -> None:
    write(here / "pack_e" / "env.py", "Echo", extra="\nimport pack_e.missing\n")
    (here / "pack_e" / "__init__.py").write_text("")
    assert f"{here / 'pack_e' / 'env.py'}:" in problem("pack_e.env")
    assert "pack_e.missing" in problem("pack_e.env")


def test_a_failed_file_can_be_loaded_again_once_fixed(here: Path) -> None:
    path = here / "words_k.py"
    path.write_text("raise ValueError\n")
    assert "ValueError" in problem(str(path))
    write(path, "Echo")
    assert names(str(path)) == ["Echo"]


class TopLevel(Environment):
    class Inner(Environment):
        pass

    @tool
    def act(self) -> str:
        return ""


def test_the_source_of_a_class_is_where_it_can_be_loaded_again(here: Path) -> None:
    assert source_of(TopLevel) == f"{__name__}:TopLevel"
    assert source_of(TopLevel.Inner) == f"{__name__}:TopLevel.Inner"
    path = write(here / "words_l.py", "Echo")
    (from_file,) = load(str(path))
    assert source_of(from_file) == f"{path}:Echo"
    assert load(source_of(from_file)) == [from_file]
    (from_module,) = load("words_l:Echo")
    assert source_of(from_module) == "words_l:Echo"


def test_a_class_that_no_other_process_can_load_is_reported() -> None:
    class Local(Environment):
        pass

    with pytest.raises(LoadError, match=r"Local is defined inside a function.*local runtime"):
        source_of(Local)
    made = type("Made", (Environment,), {"__module__": __name__})
    with pytest.raises(LoadError, match="has no Made"):
        source_of(made)


MAIN = """
import sys
from orsay.runtimes.loader import load, source_of
if __name__ == "__main__":
    target = source_of(Echo)
    print(target)
    (again,) = load(target)
    assert again is not Echo
    assert again.__name__ == "Echo"
    assert source_of(again) == target
"""


def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_class_of_a_script_is_loaded_from_its_file(here: Path) -> None:
    path = write(here / "main_a.py", "Echo", extra=MAIN)
    done = run(path.name, cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"{path}:Echo"


def test_a_class_of_a_module_run_with_m_is_loaded_by_its_name(here: Path) -> None:
    write(here / "pack_f" / "play.py", "Echo", extra=MAIN.replace("assert source_of", "source_of"))
    (here / "pack_f" / "__init__.py").write_text("")
    done = run("-m", "pack_f.play", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "pack_f.play:Echo"


def test_a_class_of_a_shell_needs_the_local_runtime(here: Path) -> None:
    done = run(
        "-c",
        ENV.format(name="Echo") + "\nfrom orsay.runtimes.loader import source_of\nsource_of(Echo)",
        cwd=here,
    )
    assert done.returncode == 1
    assert "defined in a notebook or a shell" in done.stderr
    assert "local runtime" in done.stderr
