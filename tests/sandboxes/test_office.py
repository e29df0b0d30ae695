"""Toolsets of the released ``openreward`` in images of docker/sandboxes, in environments of both packages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from orsay_client import AsyncClient
from orsay_client.errors import WorkerLost

from ..support.engine import ROOT, Recipe, needs_engine, recipe
from ..support.sandboxes import docker_sandbox
from ..support.server_process import ServerProcess, server

pytest.importorskip("openreward", reason="needs the package openreward")

pytestmark = [needs_engine, pytest.mark.timeout(600)]

ENVIRONMENTS = str(ROOT / "tests" / "support" / "office_environments.py")
KEY = "key-of-the-trainer"


def built(name: Recipe) -> str:
    """The image of a recipe; skips where packages are out of reach."""
    try:
        return recipe(name)
    except RuntimeError as exc:
        print(exc)
        pytest.skip(f"the image {name} cannot be built here: {str(exc).splitlines()[0]}")


@pytest.fixture(scope="session")
def knowledge_worker() -> str:
    return built("knowledge-worker")


@pytest.fixture(scope="module")
def served(knowledge_worker: str) -> Iterator[ServerProcess]:
    images = {"generalreasoning/knowledge-worker": knowledge_worker}
    with server(
        ENVIRONMENTS,
        options=["--sandboxes", "docker"],
        imported=("openreward.toolsets",),
        api_keys=[KEY],
        sandboxes_images=images,
    ) as found:
        yield found


class Work:
    """An episode, played by hand."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def use(self, tool: str, **parameters: Any) -> dict[str, Any]:
        """Metadata of an output that tells no error; ``said`` is its text."""
        output = await self.session.call(tool, parameters)
        said = output.blocks[0].text
        assert "❌" not in said and "Error" not in said, said
        return {**(output.metadata or {}), "said": said}

    async def shell(self, cmd: str) -> str:
        """Output of a command, which the environment runs itself."""
        output, code = json.loads((await self.session.call("look", {"cmd": cmd})).blocks[0].text)
        assert code == 0, output
        return str(output)

    async def python(self, program: str) -> Any:
        """What a program prints as JSON."""
        return json.loads(await self.shell(f"python3 - <<'END'\n{program}\nEND"))


@asynccontextmanager
async def working(served: ServerProcess, name: str, toolset: str | None = None) -> AsyncIterator[Work]:
    async with (
        AsyncClient(served.url, api_key=KEY) as client,
        client.environment(name).session(split="train", index=0, toolset=toolset) as session,
    ):
        yield Work(session)


both = pytest.mark.parametrize("name", ["office", "desk"])


@both
async def test_spreadsheets(served: ServerProcess, name: str) -> None:
    async with working(served, name) as work:
        file: Any = {"file_path": "/tmp/stock.xlsx"}
        sheet = {**file, "sheet_name": "Stock"}
        await work.use("excel_create_spreadsheet", **sheet)
        rows = [["part", "count"], ["nut", 3], ["bolt", 4.5]]
        await work.use("excel_add_content_text", **sheet, start_cell="A1", data=rows)
        await work.use("excel_edit_spreadsheet", **sheet, cell_reference="B4", value="=SUM(B2:B3)")
        await work.use("excel_edit_spreadsheet", **sheet, cell_reference="A5", value='Größe "5" 尺')
        place = {"data_range": "A1:B3", "chart_position": "D1", "title": "Parts"}
        await work.use("excel_create_chart", **sheet, chart_type="bar", **place)
        await work.use("excel_add_tab", **file, sheet_name="Old")
        await work.use("excel_delete_content_cell", **sheet, cell_reference="A3")
        read = await work.use("excel_read_tab", **sheet)
        kept = [["part", "count"], ["nut", 3], [None, 4.5], [None, "=SUM(B2:B3)"], ['Größe "5" 尺', None]]
        assert read["data"] == kept
        assert (await work.use("excel_list_tabs_in_spreadsheet", **file))["sheet_names"] == ["Stock", "Old"]
        await work.use("excel_delete_tab", **file, sheet_name="Old")
        assert await work.python(
            "import json, openpyxl\n"
            "book = openpyxl.load_workbook('/tmp/stock.xlsx')\n"
            "sheet = book['Stock']\n"
            "print(json.dumps([book.sheetnames, list(sheet.values), len(sheet._charts)]))"
        ) == [["Stock"], kept, 1]
        await work.shell("printf 'a,b\\n1,2\\n' > /tmp/x.csv")
        assert (await work.use("excel_read_csv", csv_path="/tmp/x.csv"))["rows"] == 2
        await work.use("excel_delete_spreadsheet", **file)
        await work.shell("test ! -e /tmp/stock.xlsx")


@both
async def test_text_documents(served: ServerProcess, name: str) -> None:
    async with working(served, name) as work:
        file = {"file_path": "/tmp/letter.docx"}
        await work.use("word_create_document", **file, title="A letter", author="Ann")
        head = {"content_type": "heading", "heading_level": 1}
        await work.use("word_add_content_text", **file, text="News", **head)
        await work.use("word_add_content_text", **file, text='Said "yes",\nthen — no.')
        await work.use("word_add_content_text", **file, text="To be dropped")
        await work.use("word_edit_content_text", **file, paragraph_index=1, new_text="Enough.", append=True)
        await work.use("word_delete_content_text", **file, paragraph_index=2)
        await work.use("word_apply_formatting", **file, paragraph_index=1, bold=True, color="FF0000")
        size = await work.python(
            "import os; from PIL import Image\n"
            "Image.frombytes('RGB', (400, 300), os.urandom(360_000)).save('/tmp/noise.png')\n"
            "print(os.path.getsize('/tmp/noise.png'))"
        )
        await work.use("word_add_image", **file, image_path="/tmp/noise.png", width_inches=2)
        read = await work.use("word_read_document_content", **file)
        texts = ["News", 'Said "yes",\nthen — no.\nEnough.', ""]
        assert [each["text"] for each in read["paragraphs"]] == texts
        (image,) = (await work.use("word_read_image", **file))["images"]
        assert len(image["data"]) >= size > 300_000  # far more than the output of a command by default
        assert "News" in (await work.use("word_search_document", **file, search_text="news"))["said"]
        assert "Ann" in (await work.use("word_get_document_overview", **file))["said"]
        assert await work.python(
            "import json, docx\n"
            "file = docx.Document('/tmp/letter.docx')\n"
            "about, (first, second, _) = file.core_properties, file.paragraphs\n"
            "print(json.dumps([about.author, first.style.name, all(run.bold for run in second.runs),"
            " len(file.inline_shapes)]))"
        ) == ["Ann", "Heading 1", True, 1]
        await work.use("word_delete_document", **file)
        await work.shell("test ! -e /tmp/letter.docx")


@both
async def test_presentations(served: ServerProcess, name: str) -> None:
    async with working(served, name) as work:
        file = {"file_path": "/tmp/talk.pptx"}
        place = {"left": 1, "top": 2, "width": 4, "height": 3}
        await work.use("powerpoint_create", **file, title="A talk")
        await work.use("powerpoint_add_slide", **file, layout="title_content", title="Why", content="a\nb")
        await work.use("powerpoint_edit_slide", **file, slide_index=1, content='"Because"')
        await work.use("powerpoint_add_slide", **file, layout="blank")
        cells = [["x", "y"], ["1", "2"]]
        await work.use("powerpoint_add_table", **file, slide_index=2, rows=2, cols=2, data=cells, **place)
        series = [{"name": "s", "values": [1.5, 2]}]
        chart = {"chart_type": "line", "categories": ["a", "b"], "series": series, **place}
        await work.use("powerpoint_add_chart", **file, slide_index=2, **chart)
        await work.shell(
            "python3 -c \"from PIL import Image; Image.new('RGB', (40, 30), 'red').save('/tmp/red.png')\""
        )
        await work.use("powerpoint_add_image", **file, slide_index=2, image_path="/tmp/red.png", **place)
        (image,) = (await work.use("powerpoint_list_images", **file))["images"]
        assert image["slide_index"] == 2
        read = await work.use("powerpoint_read_all", **file)
        assert [slide["text"] for slide in read["slides"]] == ["A talk", 'Why\n"Because"', ""]
        assert await work.python(
            "import json, pptx\n"
            "slide = pptx.Presentation('/tmp/talk.pptx').slides[2]\n"
            "table, chart, picture = slide.shapes\n"
            "print(json.dumps([table.table.cell(1, 1).text, list(chart.chart.plots[0].series[0].values),"
            " picture.image.size]))"
        ) == ["2", [1.5, 2.0], [40, 30]]
        await work.use("powerpoint_delete", **file)
        await work.shell("test ! -e /tmp/talk.pptx")


@both
async def test_pdf_files(served: ServerProcess, name: str) -> None:
    async with working(served, name) as work:
        file = {"file_path": "/tmp/report.pdf"}
        await work.use("pdfs_create_pdf", **file, title="A report", author="Bo", page_size="A4")
        assert "A report" in (await work.use("pdfs_get_metadata", **file))["said"]
        await work.use("pdfs_add_content", **file, text="On the first page", page_index=0, font_size=40)
        await work.use("pdfs_add_content", **file, text="On the last page")
        read = await work.use("pdfs_read_pdf_pages", **file, include_layout=True)
        assert [page["text"] for page in read["pages"]] == ["On the first page", "On the last page"]
        found = await work.use("pdfs_search_pdf", **file, search_text="LAST")
        assert [each["page_number"] for each in found["results"]] == [2]
        await work.use("pdfs_extract_pages", **file, page_indices=[1], output_path="/tmp/last.pdf")
        parts = ["/tmp/last.pdf", "/tmp/report.pdf"]
        await work.use("pdfs_merge_pdfs", input_paths=parts, output_path="/tmp/all.pdf")
        assert (await work.use("pdfs_get_metadata", file_path="/tmp/all.pdf"))["page_count"] == 3
        assert (await work.use("pdfs_get_document_overview", **file))["page_count"] == 2
        picture = {**file, "page_index": 0, "dpi": 72}
        await work.use("pdfs_read_page_as_image", **picture, output_path="/tmp/first.png")
        assert (await work.use("pdfs_read_page_as_image", **picture))["data"].startswith("iVBOR")
        assert await work.python(
            "import json, pypdf; from PIL import Image\n"
            "image = Image.open('/tmp/first.png').convert('L')\n"
            "texts = [page.extract_text().strip() for page in pypdf.PdfReader('/tmp/all.pdf').pages]\n"
            "print(json.dumps([texts, image.size, image.getextrema()[0] < 50]))"
        ) == [["On the last page", "On the first page", "On the last page"], [596, 842], True]
        await work.use("pdfs_delete_pdf", **file)
        await work.shell("test ! -e /tmp/report.pdf")


# toolsets of agents


async def use_gemini_cli(work: Work, path: str) -> None:
    await work.use("write_file", file_path=path, content="one\ntwo\nthree")
    await work.use("replace", file_path=path, old_string="two", new_string="zwei")
    assert (await work.use("read_file", file_path=path))["output"] == "1\tone\n2\tzwei\n3\tthree\n"
    assert "3\tthree" in (await work.use("read_file", file_path="tmp/link.txt"))["output"]  # relative, a link
    assert path in (await work.use("grep_search", pattern="zw.i", dir_path="/tmp/deep"))["said"]
    assert path in (await work.use("glob", pattern="*.txt", dir_path="/tmp/deep"))["said"]
    assert "notes.txt" in (await work.use("list_directory", dir_path="/tmp/deep/er"))["said"]
    assert (await work.use("run_shell_command", command=f"head -1 {path}; exit 3"))["exit_code"] == 3


async def use_hermes(work: Work, path: str) -> None:
    await work.use("write_file", path=path, content="one\ntwo\nthree")
    await work.use("patch", mode="replace", path=path, old_string="two", new_string="2")
    await work.use("patch", mode="patch", patch=difference(path, "2", "zwei"))
    assert "2|zwei" in (await work.use("read_file", path="/tmp/../tmp/link.txt"))["output"]
    assert path in (await work.use("search_files", pattern="zwei", path="/tmp/deep"))["output"]
    assert (await work.use("terminal", command=f"wc -l < {path}"))["output"] == "3"


async def use_openclaw(work: Work, path: str) -> None:
    await work.use("write", path=path, content="one\ntwo\nthree")
    await work.use("edit", path=path, edits=[{"oldText": "two", "newText": "2"}])
    await work.use("apply_patch", input=difference(path, "2", "zwei"))
    assert (await work.use("read", path="/tmp/link.txt", offset=2, limit=1))["output"] == "zwei"
    assert "ps aux" in (await work.use("process", action="list"))["output"]
    said = (await work.use("exec", command=r"printf '\033[31mred\033[0m\a \t\n\n'"))["output"]
    assert said == "red"


def difference(path: str, old: str, new: str) -> str:
    return f"--- a{path}\n+++ b{path}\n@@ -1,3 +1,3 @@\n one\n-{old}\n+{new}\n three\n"


@both
@pytest.mark.parametrize(
    ("toolset", "play"),
    [("gemini-cli", use_gemini_cli), ("hermes", use_hermes), ("openclaw", use_openclaw)],
    ids=["gemini-cli", "hermes", "openclaw"],
)
async def test_tools_of_agents(served: ServerProcess, name: str, toolset: str, play: Any) -> None:
    path = "/tmp/deep/er/notes.txt"
    async with working(served, name, toolset) as work:
        await work.shell(f"ln -s {path} /tmp/link.txt")
        await play(work, path)
        assert await work.shell(f"cat {path}") in ("one\nzwei\nthree\n", "one\nzwei\nthree")


@pytest.mark.parametrize("toolset", ["cli", "claude-code"])
async def test_a_lost_sandbox_is_no_text_for_the_model(served: ServerProcess, toolset: str) -> None:
    async with working(served, "desk", toolset) as work:
        await work.use("lose")
        arguments = {"description": "look"} if toolset == "claude-code" else {}
        with pytest.raises(WorkerLost, match="closed"):
            await work.use("bash", command="true", **arguments)


async def test_packages_for_data() -> None:
    async with docker_sandbox(image=built("python-ds")) as box:
        done = await box.run(_ANALYSIS)
        assert done.output.decode() == "[2.0, 1.0]\n"  # no warning either
        there = await box.run("git --version && curl --version && patch --version && ps && find --version")
        assert there.return_code == 0, there.output


_ANALYSIS = """python3 <<'END'
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.optimize import curve_fit
from sklearn.linear_model import LinearRegression

table = pd.DataFrame({"x": np.arange(5.0)})
table["y"] = 2 * table.x + 1
line = LinearRegression().fit(table[["x"]], table.y)
(slope, _), _ = curve_fit(lambda x, a, b: a * x + b, table.x, table.y)
assert abs(slope - 2) < 1e-6
table.plot(x="x", y="y")
plt.savefig("/tmp/line.png")
print([round(float(line.coef_[0]), 6), round(float(line.intercept_), 6)])
END"""
