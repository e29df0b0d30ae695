"""``orsay serve -c FILE``: what a file hosts, and what wins over it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.server_process import ENVIRONMENTS, ServerProcess, children, server
from tests.support.session_api import api_for

from ..support.config_server import ENVS, SCRIPTED, FileServer, configured, written

pytestmark = pytest.mark.process

PLAIN = f'class = "{ENVIRONMENTS}:Plain"'


def hosted(url: str) -> list[str]:
    names: list[str] = httpx.get(f"{url}/list_environments").raise_for_status().json()
    return names


def default_of(url: str) -> str:
    answer = httpx.post(f"{url}/tasks", json={"split": "train"}).raise_for_status()
    return str(answer.json()["env_name"])


@contextmanager
def script_process(script: Path) -> Iterator[str]:
    """A script of one's own; its URL."""
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def refused(path: Path, *options: str, **variables: str) -> list[str]:
    """The error when the server does not start."""
    process = FileServer(path, *options, **variables)
    try:
        assert process.wait() == 2, process.everything
    finally:
        process.end()
    assert "Traceback" not in process.everything and not process.output
    return [line.rstrip("\n") for line in process.log]


async def play(url: str, name: str) -> str:
    async with api_for(url) as api:
        await api.create(name, number=1)
        message = await api.call("say" if name != "plain" else "echo", text="hello")
        await api.delete()
    return message.text


async def test_classes_folders_and_other_servers_are_one_list_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Plain") as upstream:
        text = f"""
[environments.far]
url = "{upstream.url}"
serve = {{ scripted = "FarScripted" }}

[environments.echo]
directory = "{ENVS}/echo"

[environments.near]
{SCRIPTED}
"""
        with configured(tmp_path, text) as gateway:
            assert hosted(gateway.url) == ["farscripted", "echoenvironment", "scripted"]
            assert "serves FarScripted, EchoEnvironment, Scripted at" in "".join(gateway.output)
            assert len(children(gateway.pid)) == 1, "code without options of its own shares workers"
            assert await play(gateway.url, "scripted") == await play(gateway.url, "farscripted") == "hello"
            assert default_of(gateway.url) == "farscripted"
            async with api_for(gateway.url) as api:
                assert (await api.get("/plain/tools")).status_code == 404


async def test_an_entry_with_options_has_workers_of_its_own_and_its_limits_hold(tmp_path: Path) -> None:
    text = f"""
[environments.small]
{SCRIPTED}
workers = 2
max_sessions = 1
call_time_limit_s = 0.3

[environments.other]
{PLAIN}
"""
    with configured(tmp_path, text) as running:
        assert len(children(running.pid)) == 3
        async with api_for(running.url) as api:
            await api.create("scripted")
            full = await api.other().post("/create", {"env_name": "scripted", "task_spec": {}})
            assert full.status_code == 429 and "1 sessions" in full.text
            await api.other().create("plain")
            assert (await api.call("do_async", how="sleep:20")).fault == "time_limit"
            await api.delete()
            await api.other().create("scripted")


def test_the_file_of_this_folder_is_served_without_being_named(tmp_path: Path) -> None:
    written(tmp_path, f"port = 0\nworkers = 1\n[environments.a]\n{SCRIPTED}\n")
    process = ServerProcess([], {}, folder=tmp_path)
    try:
        process.wait_for_url()
        assert hosted(process.url) == ["scripted"]
    finally:
        process.end()


def test_targets_are_served_without_the_file_of_this_folder(tmp_path: Path) -> None:
    written(tmp_path, "this is no TOML")
    process = ServerProcess(
        [f"{ENVIRONMENTS}:Plain"], {"ORSAY_PORT": "0", "ORSAY_WORKERS": "1"}, folder=tmp_path
    )
    try:
        process.wait_for_url()
        assert hosted(process.url) == ["plain"]
    finally:
        process.end()


def test_a_variable_names_the_file_and_targets_take_its_settings(tmp_path: Path) -> None:
    path = written(tmp_path, "workers = 2\nport = 0\n")
    process = ServerProcess([f"{ENVIRONMENTS}:Plain"], {"ORSAY_CONFIG": str(path)})
    try:
        process.wait_for_url()
        assert len(children(process.pid)) == 2
    finally:
        process.end()


def test_options_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    text = f"""
workers = 3
api_keys = ["of-the-file"]
call_time_limit_s = 0.001

[environments.a]
{SCRIPTED}
workers = 7
"""
    variables = {
        "ORSAY_WORKERS": "2",
        "ORSAY_API_KEYS": '["of-the-variable"]',
        "ORSAY_ENVIRONMENTS__A__WORKERS": "1",
        "ORSAY_ENVIRONMENTS__A__SERVE": '{"scripted": "Renamed"}',
    }
    with configured(tmp_path, text, "--api-key", "of-the-option", **variables) as running:
        assert len(children(running.pid)) == 1
        answers = {
            key: httpx.get(f"{running.url}/list_environments", headers={"X-API-Key": key})
            for key in ("of-the-file", "of-the-variable", "of-the-option")
        }
        assert [answer.status_code for answer in answers.values()] == [401, 401, 200]
        assert answers["of-the-option"].json() == ["renamed"]


def test_keys_come_from_a_file_beside_it_too(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# the team\n\n first-key \nsecond-key\n")
    with configured(tmp_path, f'api_keys_file = "keys"\n[environments.a]\n{SCRIPTED}\n') as running:
        for key, status in {"first-key": 200, "second-key": 200, "# the team": 401, "": 401}.items():
            answer = httpx.get(f"{running.url}/list_environments", headers={"X-API-Key": key})
            assert answer.status_code == status, key


async def test_keys_of_other_servers_reach_neither_the_log_nor_environments(tmp_path: Path) -> None:
    with server(f"{ENVIRONMENTS}:Plain", api_keys=["very-secret-1", "very-secret-2"]) as upstream:
        text = f"""
[environments.near]
{SCRIPTED}
[environments.far]
url = "{upstream.url}"
api_key_variable = "KEY_OF_FAR"
[environments.second]
url = "{upstream.url}"
serve = {{ plain = "second" }}
"""
        variables = {"KEY_OF_FAR": "very-secret-1", "ORSAY_ENVIRONMENTS__SECOND__API_KEY": "very-secret-2"}
        with configured(tmp_path, text, "--log-level", "debug", **variables) as running:
            assert hosted(running.url) == ["scripted", "plain", "second"]
            async with api_for(running.url) as api:
                seen = (await (await api.create("scripted")).call("surroundings")).text
                assert "ORSAY_PORT" in seen and "very-secret" not in seen
            assert "very-secret" not in running.everything


def test_a_script_serves_what_a_file_says(tmp_path: Path) -> None:
    path = written(tmp_path, f"workers = 1\n[environments.a]\n{SCRIPTED}\n")
    script = f"from orsay import Server\nServer(config={str(path)!r}).run(port=0)\n"
    (tmp_path / "script.py").write_text(script)
    with script_process(tmp_path / "script.py") as url:
        assert hosted(url) == ["scripted"]


def test_modules_are_found_beside_the_file_and_in_the_folders_it_names(tmp_path: Path) -> None:
    code = (ENVS / "echo" / "echo_env" / "env.py").read_text()
    (tmp_path / "beside.py").write_text(code)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "deep.py").write_text(code.replace("class EchoEnvironment", "class Deep"))
    text = """
[environments.one]
class = "beside:EchoEnvironment"
[environments.two]
class = "deep:Deep"
path = "below"
[environments.three]
class = "below/deep.py:Deep"
serve = { deep = "Three" }
"""
    with configured(tmp_path, text) as running:
        assert hosted(running.url) == ["echoenvironment", "deep", "three"]


def test_folders_of_the_file_come_before_the_current_one(tmp_path: Path) -> None:
    code = (ENVS / "echo" / "echo_env" / "env.py").read_text()
    for folder, name in (("here", "Wrong"), ("conf", "Right")):
        (tmp_path / folder).mkdir()
        text = code.replace("class EchoEnvironment", f"class {name}")
        (tmp_path / folder / "same.py").write_text(text)
    path = written(tmp_path / "conf", 'port = 0\nworkers = 1\n[environments.a]\nclass = "same"\n')
    for runtime in ("process", "local"):
        process = ServerProcess(["-c", str(path), "--runtime", runtime], {}, folder=tmp_path / "here")
        try:
            process.wait_for_url()
            assert hosted(process.url) == ["right"]
        finally:
            process.end()


# what does not start


def test_an_error_of_the_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, f"[environments.a]\n{SCRIPTED}\nwokers = 1\n\n[environments.b]\nimage = 3\n")
    assert refused(path) == [
        "orsay serve:",
        f"{path}:3: unknown key 'wokers' in a; did you mean 'workers'?",
        f"{path}:6: image = 3: must be a text in quotation marks",
    ]


def test_two_entries_with_one_name_are_distinguished(tmp_path: Path) -> None:
    path = written(tmp_path, f"[environments.a]\n{SCRIPTED}\n[environments.b]\n{SCRIPTED}\nworkers = 1\n")
    (message,) = refused(path)
    assert f"two environments are called 'scripted': one of 'a' ({path}:1), one of 'b' ({path}:3)" in message
    assert 'serve = { scripted = "another name" }' in message


def test_a_class_that_cannot_be_loaded_is_reported_with_its_entry(tmp_path: Path) -> None:
    misspelled = f'class = "{ENVIRONMENTS}:Scriptde"'
    text = f"[environments.a]\n{SCRIPTED}\n\n[environments.b]\n{misspelled}\nworkers = 1\n"
    (message,) = refused(written(tmp_path, text))
    assert "'b' (" in message and "orsay.toml:4" in message and "did you mean 'Scripted'" in message


def test_a_name_to_serve_that_is_not_there_is_reported_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, f'[environments.a]\n{SCRIPTED}\nserve = ["scriptd"]\n')
    (message,) = refused(path)
    assert f"'a' ({path}:1) has no environment 'scriptd' to serve; did you mean 'scripted'?" in message


def test_a_file_without_environments_needs_targets(tmp_path: Path) -> None:
    (message,) = refused(written(tmp_path, "workers = 1\n"))
    assert "has no environments: add a table [environments.LABEL], or name a target" in message


def test_environments_in_the_file_and_as_targets_are_refused(tmp_path: Path) -> None:
    (message,) = refused(written(tmp_path, f"[environments.a]\n{SCRIPTED}\n"), f"{ENVIRONMENTS}:Plain")
    assert "has environments of its own: name targets or that file, not both" in message


def test_a_file_that_is_not_there_is_named_with_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, "", "orsay.toml")
    (message,) = refused(tmp_path / "orsai.toml")
    assert "orsai.toml: No such file or directory; did you mean 'orsay.toml'?" in message


def test_an_entry_can_be_a_server_that_is_down_when_others_are_up(tmp_path: Path) -> None:
    text = f"""
[environments.near]
{SCRIPTED}
[environments.down]
url = "http://127.0.0.1:9"
start_wait_s = 0.1
"""
    with configured(tmp_path, text) as running:
        assert httpx.get(f"{running.url}/ready").status_code == 200
        assert hosted(running.url) == ["scripted"]
        assert httpx.get(f"{running.url}/tools").status_code == 200
        late = httpx.get(f"{running.url}/later/tools")
        assert late.status_code == 503 and "down" in late.text


def test_without_the_first_environment_requests_that_name_none_wait(tmp_path: Path) -> None:
    text = f"""
[environments.down]
url = "http://127.0.0.1:9"
start_wait_s = 0.1
[environments.near]
{SCRIPTED}
"""
    with configured(tmp_path, text) as running:
        assert hosted(running.url) == ["scripted"]
        assert httpx.get(f"{running.url}/tools").status_code == 503
        assert httpx.get(f"{running.url}/scripted/tools").status_code == 200


def test_nothing_is_ready_while_every_server_is_down(tmp_path: Path) -> None:
    text = '[environments.down]\nurl = "http://127.0.0.1:9"\nstart_wait_s = 0.1\n'
    with configured(tmp_path, text) as running:
        assert httpx.get(f"{running.url}/ready").status_code == 503
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_urls_are_targets_too(tmp_path: Path) -> None:
    with server(f"{ENVIRONMENTS}:Scripted") as upstream:
        place = upstream.url.removeprefix("http://")
        for targets in ([f"{ENVIRONMENTS}:Plain", upstream.url], ["--runtime", "remote", place]):
            process = ServerProcess(targets, {"ORSAY_PORT": "0", "ORSAY_WORKERS": "1"})
            try:
                process.wait_for_url()
                assert hosted(process.url)[-1] == "scripted"
            finally:
                process.end()
