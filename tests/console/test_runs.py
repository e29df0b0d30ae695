"""Runs, the comparison of runs, and the map of tasks, as a person sees them."""

from __future__ import annotations

import csv
import re

import pytest
from PIL import Image
from playwright.sync_api import Download, Locator, Page, expect

from .browsing import WAIT_MS, Visitor

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("recorded")]

expect.set_options(timeout=WAIT_MS)

FIGURES = ("Reward", "Success rate", "Episode length", "Fault rate", "Distribution of rewards")
BANDS = {  # what the series has of each: the figure, and its interval
    "Reward": ("reward_mean", "reward_low", "reward_high"),
    "Success rate": ("success", "success_low", "success_high"),
    "Episode length": ("length_mean", "length_low", "length_high"),
    "Fault rate": ("fault_rate", "fault_low", "fault_high"),
}
BETA = "beta/2 ü"  # a name that no path could hold
UNNAMED = "anyone 2026-05-28"


def plot(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


def pixels(drawn: Locator) -> str:
    """What the canvas shows, once it has stayed the same for two frames."""
    found: str = drawn.locator("canvas").evaluate(
        """async canvas => {
            const frame = () => new Promise(requestAnimationFrame);
            let [before, now] = ["", canvas.toDataURL()];
            while (now !== before) {
                await frame();
                await frame();
                [before, now] = [now, canvas.toDataURL()];
            }
            return now;
        }"""
    )
    return found


def becomes(drawn: Locator, wanted: str, *, same: bool) -> None:
    """Wait until the canvas shows this, or something else."""
    handle = drawn.locator("canvas").element_handle()
    drawn.page.wait_for_function(
        "([canvas, wanted, same]) => (canvas.toDataURL() === wanted) === same", arg=[handle, wanted, same]
    )


def save(page: Page, title: str, what: str) -> Download:
    page.get_by_role("button", name=f"Save {title}").click()
    with page.expect_download() as saved:
        page.get_by_role("menuitem", name=what).click()
    return saved.value


def read_csv(saved: Download) -> list[dict[str, str]]:
    with saved.path().open(newline="") as lines:
        return list(csv.DictReader(lines))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


def test_runs_are_listed_and_two_are_compared(visitor: Visitor) -> None:
    page = visitor.open("/runs")
    visitor.heading("Runs")
    page.get_by_role("row", name=re.compile(UNNAMED)).get_by_text("unnamed").wait_for()
    visitor.check_look("runs")
    page.get_by_role("checkbox", name="Compare alpha").check()
    page.get_by_role("checkbox", name=f"Compare {BETA}").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    visitor.heading("Compare 2 runs")
    for title in FIGURES:
        plot(page, title).locator("canvas").wait_for()
    totals = page.get_by_role("region", name="Whole runs")
    expect(totals.get_by_role("row", name=re.compile("^alpha"))).to_be_visible()
    expect(totals.get_by_role("row", name=BETA)).to_contain_text(re.compile("chance"))
    visitor.check_look("compare-runs")
    page.go_back()
    visitor.heading("Runs")
    expect(page.get_by_role("checkbox", name="Compare alpha")).to_be_checked()


def test_the_list_of_runs_is_searched_and_walked_through_with_keys(visitor: Visitor) -> None:
    page = visitor.open("/runs")
    visitor.heading("Runs")
    page.locator("[data-row]").first.wait_for()
    page.keyboard.press("/")
    page.get_by_label("Name").press_sequentially("BETA")
    expect(page.locator("[data-row]")).to_have_count(1)
    page.get_by_label("Name").blur()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("c")
    visitor.heading(f"Run {BETA}")


def test_numbers_and_pictures_of_a_comparison_are_saved(visitor: Visitor) -> None:
    page = visitor.open(f"/runs/compare?run=alpha&run={BETA}")
    plot(page, "Reward").locator("canvas").wait_for()
    found = {run: visitor.api(f"runs/series?run={run}&success=1") for run in ("alpha", BETA)}
    points = [(run, point) for run, each in found.items() for point in each["points"]]
    for title, (mean, low, high) in BANDS.items():
        rows = read_csv(save(page, title, "Numbers as CSV"))
        assert [(row["run"], int(row["step"])) for row in rows] == [
            (run, each["step"]) for run, each in points
        ]
        shown = [tuple(number(row[name]) for name in (title.lower(), "low", "high")) for row in rows]
        assert shown == [(each[mean], each[low], each[high]) for _, each in points]
        assert sum(below is not None for _, below, _ in shown) > len(shown) / 2
    with page.expect_download() as saved:
        page.get_by_role("button", name="All as CSV").click()
    rows = read_csv(saved.value)
    for name in (name for names in BANDS.values() for name in names):
        assert [number(row[name]) for row in rows] == [each[name] for _, each in points]
    spread = read_csv(save(page, "Distribution of rewards", "Numbers as CSV"))
    assert [int(row["episodes"]) for row in spread if row["run"] == "alpha"] == (
        found["alpha"]["histogram"]["counts"]
    )
    picture = save(page, "Reward", "Plot as PNG")
    assert picture.suggested_filename == "runs-Reward.png"
    with Image.open(picture.path()) as image:
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 20) or []) > 50  # two curves with bands


def test_a_plot_is_zoomed_read_under_the_pointer_and_shown_as_a_table(visitor: Visitor) -> None:
    page = visitor.open("/runs/compare?run=alpha")
    reward = plot(page, "Reward")
    whole = pixels(reward)
    page.get_by_role("button", name="Zoom into Reward").click()
    becomes(reward, whole, same=False)
    page.get_by_role("button", name="Show all of Reward").click()
    becomes(reward, whole, same=True)
    page.get_by_role("button", name="Zoom into Reward").focus()
    page.keyboard.press("Enter")
    becomes(reward, whole, same=False)
    page.get_by_role("button", name="Zoom out of Reward").click()
    becomes(reward, whole, same=True)
    box = reward.locator("canvas").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    becomes(reward, whole, same=False)
    page.mouse.move(0, 0)
    becomes(reward, whole, same=True)
    page.mouse.move(middle[0] - 60, middle[1])
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] + 5, steps=5)
    page.mouse.up()
    page.mouse.move(0, 0)
    becomes(reward, whole, same=False)
    noisy = pixels(reward)
    page.get_by_label("Curves are").select_option("10")
    expect(page).to_have_url(re.compile("smooth=10"))
    becomes(reward, noisy, same=False)
    page.get_by_role("button", name="Reward as a table").click()
    numbers = page.get_by_role("region", name="Numbers of Reward")
    expect(numbers.get_by_role("row")).to_have_count(1 + len(visitor.api("runs/series?run=alpha")["points"]))
    visitor.check_accessibility()
    page.get_by_role("button", name="Reward as a plot").click()
    reward.locator("canvas").wait_for()


def test_a_comparison_is_narrowed_down_and_the_address_says_how(visitor: Visitor) -> None:
    page = visitor.open("/runs/compare?run=alpha")
    plot(page, "Reward").locator("canvas").wait_for()
    page.get_by_label("Environment").select_option("doors")
    expect(page).to_have_url(re.compile("environment=doors"))
    threshold = page.get_by_label("Success threshold")
    threshold.fill("0")
    expect(page).to_have_url(re.compile("success=0"))
    threshold.fill("")  # as when it was not given
    expect(page).not_to_have_url(re.compile("success="))
    expect(threshold).to_have_value("")
    threshold.press_sequentially("0.0")
    expect(threshold).to_have_value("0.0")
    expect(page).to_have_url(re.compile("success=0"))
    rows = read_csv(save(page, "Success rate", "Numbers as CSV"))
    want = visitor.api("runs/series?run=alpha&environment=doors&success=0")["points"]
    assert [float(row["success rate"]) for row in rows] == [point["success"] for point in want]
    page.reload()
    expect(page.get_by_label("Environment")).to_have_value("doors")


def test_runs_without_steps_are_drawn_over_time(visitor: Visitor) -> None:
    page = visitor.open(f"/runs/compare?run=alpha&run={UNNAMED}")
    plot(page, "Reward over time").locator("canvas").wait_for()
    plot(page, "Reward").locator("canvas").wait_for()
    rows = read_csv(save(page, "Reward over time", "Numbers as CSV"))
    assert {row["run"] for row in rows} == {UNNAMED}
    assert all(row["step"] == "" and row["time"].startswith("2026-05-2") for row in rows)
    visitor.check_accessibility()


def test_a_run_that_is_not_there_says_so(visitor: Visitor) -> None:
    page = visitor.open("/runs/compare?run=nobody")
    page.get_by_text("No completed episode matches: nobody.").wait_for()
    page.get_by_role("combobox", name="Runs").click()
    page.get_by_role("option", name="alpha").click()
    visitor.heading("Compare 2 runs")
    page.get_by_role("combobox", name="Runs").press("Escape")
    visitor.open("/runs/compare")
    page.get_by_role("heading", name="No run selected").wait_for()
    visitor.check_accessibility()


def test_the_map_of_tasks_shows_what_is_never_solved(visitor: Visitor) -> None:
    page = visitor.open("/tasks")
    visitor.heading("Tasks")
    plot(page, "Map of tasks").locator("canvas").wait_for()
    cells = visitor.api("tasks")
    never = [cell for cell in cells if cell["solved"] == 0]
    assert 0 < len(never) < len(cells)
    page.get_by_role("heading", name=f"{len(cells)} tasks").wait_for()
    visitor.check_look("tasks")
    page.get_by_text(f"Never solved {len(never)}").click()
    page.get_by_role("heading", name=re.compile(f"^{len(never)} tasks?$")).wait_for()
    expect(page).to_have_url(re.compile("show=never"))
    page.go_back()
    page.get_by_label("Environment").select_option("guess")
    page.get_by_label("Split").select_option("test")
    want = visitor.api("tasks?environment=guess&split=test")
    page.get_by_role("heading", name=f"{len(want)} tasks").wait_for()
    rows = read_csv(save(page, "Map of tasks", "Numbers as CSV"))
    assert [(row["task"], int(row["episodes"]), int(row["solved"])) for row in rows] == [
        (cell["task"], cell["n"], cell["solved"]) for cell in want
    ]


def test_tasks_are_sorted_and_found_by_name(visitor: Visitor) -> None:
    page = visitor.open("/tasks?environment=guess&sort=-solved")
    table = page.get_by_role("region", name="Tasks as a table")
    first = table.get_by_role("row").nth(1)
    cells = visitor.api("tasks?environment=guess")
    most = max(cell["solved"] / cell["n"] for cell in cells)
    expect(first).to_contain_text(f"{most * 100:.0f}%")
    page.get_by_label("Order").select_option("solved")
    least = min(cell["solved"] / cell["n"] for cell in cells)
    expect(first).to_contain_text(f"{least * 100:.0f}%")
    page.get_by_label("Name").fill("train/1")
    names = {f"train:{index}" for index in (1, *range(10, 20))} & {cell["task"] for cell in cells}
    expect(table.get_by_role("row")).to_have_count(1 + len(names))
    page.get_by_label("Name").fill("no such task")
    page.get_by_text("No matching tasks.").wait_for()


def test_a_cell_of_the_map_leads_to_the_trajectories_of_its_task(visitor: Visitor) -> None:
    page = visitor.open("/tasks?run=alpha")
    drawn = plot(page, "Map of tasks")
    canvas = drawn.locator("canvas")
    before = pixels(drawn)
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    becomes(drawn, before, same=False)  # its name and numbers are shown
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    first = visitor.api("tasks?run=alpha")[0]
    page.wait_for_url("**/console/trajectories?**")
    expect(page.get_by_label("Environment")).to_have_value(first["environment"])
    ids = visitor.api(f"trajectories?environment={first['environment']}&task={first['task']}&run=alpha")[
        "items"
    ]
    expect(page.locator("[data-row]")).to_have_count(len(ids))
    page.go_back()
    visitor.heading("Tasks")


def test_the_map_is_zoomed_moved_and_shown_whole_again(visitor: Visitor) -> None:
    page = visitor.open("/tasks")
    drawn = plot(page, "Map of tasks")
    whole = pixels(drawn)
    page.get_by_role("button", name="Zoom into Map of tasks").click()
    becomes(drawn, whole, same=False)
    large = pixels(drawn)
    page.get_by_role("button", name="Show all of Map of tasks").click()
    becomes(drawn, whole, same=True)
    box = drawn.locator("canvas").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.mouse.move(0, 0)
    becomes(drawn, whole, same=False)
    page.get_by_role("button", name="Show all of Map of tasks").click()
    page.get_by_role("button", name="Zoom into Map of tasks").click()
    becomes(drawn, large, same=True)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 30, middle[1], steps=3)
    page.mouse.up()
    page.mouse.move(0, 0)
    becomes(drawn, large, same=False)
    visitor.heading("Tasks")  # moving is no click
    with Image.open(save(page, "Map of tasks", "Plot as PNG").path()) as image:
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 20) or []) > 2


def test_runs_and_tasks_fit_a_phone(phone: Visitor) -> None:
    for path, heading in (("/runs", "Runs"), ("/runs/compare?run=alpha&run=gamma", "Compare 2 runs")):
        page = phone.open(path)
        phone.heading(heading)
        page.get_by_text("alpha").first.wait_for()
        assert phone.sideways_px() == 0
        phone.check_accessibility()
    plot(page, "Distribution of rewards").locator("canvas").wait_for()
    page = phone.open("/tasks")
    plot(page, "Map of tasks").locator("canvas").wait_for()
    assert phone.sideways_px() == 0
    phone.check_accessibility()
