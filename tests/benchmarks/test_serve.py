import sys
from pathlib import Path

import pytest
from orsay_bench.figures import FIGURES
from orsay_bench.hogs import HOGS, busy_machine
from orsay_bench.processes import is_running
from orsay_bench.report import Run, notes
from orsay_bench.serve import RESULTS, Book, headline, main, parser, plan
from orsay_bench.servers import SCRIPTS, SERVERS, RunningServer, ServerFailed, ServerSpec

pytestmark = pytest.mark.process

STUBBORN = (
    "import http.server, signal, subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "class Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200)\n"
    "        self.end_headers()\n"
    "    def log_message(self, *rest): pass\n"
    "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"
)


def test_turns_of_all_servers_are_next_to_each_other() -> None:
    options = parser().parse_args(["--only", "calls", "--servers", "ors-sdk,openreward", "--repeat", "2"])
    order = [(spec.name, turn) for _, spec, turn in plan(options).order()]
    assert order == [("ors-sdk", 1), ("openreward", 1), ("ors-sdk", 2), ("openreward", 2)]


def test_a_quick_run_does_each_figure_once() -> None:
    steps = list(plan(parser().parse_args(["--quick"])).order())
    assert {turn for _, _, turn in steps} == {1}
    assert {figure.name for figure, _, _ in steps} == set(FIGURES)


def test_an_unknown_figure_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--only", "call"])
    assert "unknown: call; there are: calls, calls-sync" in capsys.readouterr().err


def test_the_list_names_every_figure_and_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*FIGURES, *SERVERS))


def test_each_script_of_a_server_is_there() -> None:
    scripts = [part for spec in SERVERS.values() for part in spec.command if part.endswith(".py")]
    assert all((SCRIPTS / script).exists() for script in scripts)


def test_progress_shows_what_a_run_measured() -> None:
    run = Run("calls", "ors-sdk", 1, {"per_cpu_s": 880.5, "other_cpu": 0.1, "n": 3})
    assert headline(FIGURES["calls"], run) == "per_cpu_s 880.5, other_cpu 0.1"
    assert headline(FIGURES["calls"], Run("calls", "x", 1, {}, failed="a\nb")) == "FAILED: b"


def test_results_are_written_as_json_and_markdown(tmp_path: Path) -> None:
    chosen = plan(parser().parse_args(["--only", "calls", "--servers", "openreward"]))
    book = Book(chosen, tmp_path / "made" / "serve", {"date": "today"})
    book.runs.append(Run("calls", "openreward", 1, {"per_cpu_s": 850.0}))
    book.write(complete=True)
    assert '"date": "today"' in (tmp_path / "made" / "serve.json").read_text()
    assert "| 850 (1x) |" in (tmp_path / "made" / "serve.md").read_text()


def running(spec: ServerSpec, logs: Path) -> RunningServer:
    return RunningServer(spec, peers=Path(sys.prefix), logs=logs, core=None)


def test_leaving_a_server_ends_its_whole_process_group(tmp_path: Path) -> None:
    spec = ServerSpec("stubborn", "ors", ("-c", STUBBORN, "PORT"))
    with running(spec, tmp_path) as server:
        assert server.wait_until() > 0
        pids = server.tree.pids()
        assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)


def test_a_server_that_exits_is_reported_with_its_log(tmp_path: Path) -> None:
    spec = ServerSpec("broken", "ors", ("-c", "raise SystemExit('no such thing')", "PORT"))
    with running(spec, tmp_path) as server, pytest.raises(ServerFailed, match="no such thing"):
        server.wait_until()


def test_the_documentation_has_the_numbers_of_the_server_as_it_comes() -> None:
    table = (RESULTS / "serve-default.md").read_text().split("\n\n")[0]
    assert table.strip() in (RESULTS.parents[1] / "docs" / "performance.md").read_text()


def test_a_busy_machine_is_quiet_again_when_the_block_ends() -> None:
    with busy_machine(limit_s=60) as hogs:
        assert len(hogs) == HOGS and all(is_running(hog.pid) for hog in hogs)
    assert not any(is_running(hog.pid) for hog in hogs)


def test_a_hog_ends_by_itself() -> None:
    with busy_machine(limit_s=0.1) as hogs:
        assert [hog.wait(30) for hog in hogs] == [0] * HOGS


def test_other_work_is_no_remark_where_the_benchmark_makes_it() -> None:
    assert notes([Run("calls-busy", "orsay", 1, {"other_cpu": 1.5, "hogs": HOGS})]) == []
    assert len(notes([Run("calls", "orsay", 1, {"other_cpu": 1.5})])) == 1
