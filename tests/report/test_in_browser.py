"""The page in a real browser: what a person sees and does; nothing is asked of a network, nothing complained of."""

from __future__ import annotations

import json
import math
import statistics
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report import made
from tests.report.browser import NO_BROWSER, Browser, find
from tilewright import ops
from tilewright.dispatch.results import OK
from tilewright.ops.engine import engine
from tilewright.report import page
from tilewright.report.sources import Source, read

VIEWS = ("leaderboard", "problems", "heat", "roofline", "duel", "predicted", "regret", "failures", "about")

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(not find(), reason=f"{NO_BROWSER}: there is none on the path"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        started = Browser(find(), tmp_path_factory.mktemp("browser"))
    except (OSError, RuntimeError) as error:  # a stub that only says how to install one, or no rights to run it
        pytest.skip(f"{NO_BROWSER}, and {find()} does not start: {error}")
    yield started
    started.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page for all tests: what is done in one is gone when the next opens it anew."""
    folder = tmp_path_factory.mktemp("page")
    source = read([made.store(folder, made.other_op())])
    (folder / "page.html").write_text(page.page(source, page.Wanted(f"Title {made.HOSTILE[0]}")), encoding="utf-8")
    return folder / "page.html"


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[Browser]:
    """The page, opened; whatever the test does, it complains of nothing and asks for nothing but itself."""
    browser.open(file)
    yield browser
    assert browser.console == []
    assert browser.requests == [file.as_uri()]
    assert browser.run("window.harm") is None


def column(browser: Browser, table: str, name: str) -> list[str]:
    at = browser.run(
        f"[...document.querySelectorAll(`table[data-name={table}] th`)].findIndex((one) => one.dataset.column === "
        f"{json.dumps(name)}) + 1"
    )
    assert at > 0, f"{table} has no column {name}"
    return browser.texts(f"table[data-name={table}] tbody td:nth-child({at})")


def kept(browser: Browser) -> str:
    return browser.texts("#kept")[0].replace("\u202f", "")


def family(one: Any) -> str:
    op = ops.op("gemm")
    return engine(op).family(op.problem_from_dict(dict(one.problem)))


def test_the_leaderboard_is_right_and_sorts_by_a_click(opened: Browser) -> None:
    expected = made.wins(made.results())
    names, wins = column(opened, "leaderboard", "kernel"), column(opened, "leaderboard", "wins")
    assert dict(zip(names, map(int, wins), strict=True)) == expected
    assert list(map(int, wins)) == sorted(expected.values(), reverse=True)
    assert opened.texts("th[aria-sort=descending]") == ["Wins"]
    opened.click("th[data-column=kernel] button")
    assert column(opened, "leaderboard", "kernel") == sorted(expected)
    opened.click("th[data-column=kernel] button")
    assert column(opened, "leaderboard", "kernel") == sorted(expected, reverse=True)
    opened.click("th[data-column=mean] button")
    shares = [float(text.rstrip("%")) for text in column(opened, "leaderboard", "mean")]
    assert shares == sorted(shares, reverse=True)
    best = made.fastest(made.results())
    times = {repr(sorted(one.problem.items(), key=lambda pair: pair[0])): one.seconds or 0 for one in best.values()}
    name = column(opened, "leaderboard", "kernel")[0]
    reached = [
        times[repr(sorted(one.problem.items(), key=lambda pair: pair[0]))] / (one.seconds or 0)
        for one in made.results()
        if one.status == OK and one.kernel.name == name
    ]
    assert shares[0] == pytest.approx(100 * statistics.geometric_mean(reached), abs=0.06)


def test_hostile_words_are_shown_as_they_are(opened: Browser) -> None:
    assert opened.texts("h1") == [f"Title {made.HOSTILE[0]}"]
    assert made.HOSTILE[0] in column(opened, "leaderboard", "kernel")
    opened.click("#tab-failures")
    told = {text.replace("\n", " ") for text in column(opened, "failures", "reason")}
    assert {made.HOSTILE[0], made.HOSTILE[1], made.HOSTILE[2]} <= told
    assert any(text.startswith(made.HOSTILE[3][:20]) for text in told)
    opened.choose("#scope", "1")
    opened.click("#tab-problems")
    assert set(column(opened, "problems", "field length")) == {"1", "2", "3"}
    opened.click("#tab-about")
    assert made.HOSTILE[2] in opened.texts("dd")
    assert opened.run("document.querySelectorAll('img, iframe, object, embed, main script').length") == 0


def test_every_view_opens_by_click_and_by_key(opened: Browser) -> None:
    for name in VIEWS:
        opened.click(f"#tab-{name}")
        assert opened.run("document.querySelector('[aria-selected=true]').id") == f"tab-{name}"
        assert len(opened.texts("main h2")) == 1
        assert opened.texts("main .note") == [], f"{name} has nothing to show"
    opened.run("document.getElementById('tab-leaderboard').focus()")
    for goal in VIEWS[1:3]:
        opened.key("ArrowRight")
        assert opened.run("document.activeElement.id") == f"tab-{goal}"
        assert opened.run("document.querySelector('[aria-selected=true]').id") == f"tab-{goal}"
    assert opened.run("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1


def test_a_link_opens_a_view(opened: Browser, file: Path) -> None:
    opened.open(file, "#roofline")
    assert opened.texts("main h2") == ["Roofline"]
    opened.open(file)


def test_filters_leave_what_they_say(opened: Browser) -> None:
    given = made.results()
    assert kept(opened) == f"{len(made.SIZES)} of {len(made.SIZES)} problems, {len(given)} rows"
    word = sorted({family(one) for one in given})[0]
    opened.click(f".chip input[value={word}]")
    some = [one for one in given if family(one) == word]
    problems = {tuple(one.problem[name] for name in "mnk") for one in some}
    assert kept(opened) == f"{len(problems)} of {len(made.SIZES)} problems, {len(some)} rows"
    wins = dict(zip(column(opened, "leaderboard", "kernel"), column(opened, "leaderboard", "wins"), strict=True))
    assert {name: int(count) for name, count in wins.items()} == made.wins(some)
    opened.click("#reset")
    assert kept(opened).endswith(f" {len(given)} rows")
    # Kernels by words of their names; the fastest of a problem is then the fastest of these.
    opened.type("#filter-kernel", "-script x86_64_v3")
    opened.wait("document.querySelectorAll('table[data-name=leaderboard] tbody tr').length === 5")
    assert not [name for name in column(opened, "leaderboard", "kernel") if "script" in name or "generic" in name]
    opened.click("#reset")
    opened.click("#filters summary")
    opened.type("input[data-field=m][data-end=least]", "96")
    wide = [one for one in given if one.problem["m"] >= 96]
    opened.wait(f"document.getElementById('kept').textContent.endsWith(' {len(wide)} rows')")
    assert opened.run("document.activeElement.dataset.field") == "m", "the focus stays where one types"


def test_a_filter_that_leaves_nothing_breaks_no_view(opened: Browser) -> None:
    opened.type("#filter-kernel", "no kernel is called so")
    opened.wait("document.getElementById('kept').textContent.endsWith(' 0 rows')")
    for name in VIEWS:
        opened.click(f"#tab-{name}")
        assert len(opened.texts("main h2")) == 1


def test_the_heat_map_tells_the_problems_of_a_cell(opened: Browser) -> None:
    opened.click("#tab-heat")
    opened.choose("#heat-value", "count")
    assert sum(map(int, opened.texts("table.heat td button"))) == len(made.SIZES)
    opened.choose("#heat-across", "k")
    assert opened.texts("table.heat thead th") == ["64", "300", "1024"]
    assert opened.texts("table.heat tbody th") == ["1", "8", "96", "640"]
    opened.click("table.heat tbody tr:nth-child(2) td:nth-child(3) button")
    assert set(column(opened, "cell", "field m")) == {"8"}
    assert set(column(opened, "cell", "field k")) == {"300"}
    assert len(column(opened, "cell", "field n")) == 2
    assert opened.run("document.activeElement.getAttribute('aria-pressed')") == "true", "the focus stays on the cell"


def test_two_kernels_are_compared_on_what_they_share(opened: Browser) -> None:
    opened.click("#tab-duel")
    names: list[str] = [one.name for one in made.kernels()]
    for select, name in (("#duel-a", names[0]), ("#duel-b", names[2])):
        value = opened.run(
            f"[...document.querySelector('{select}').options]"
            f".find((one) => one.text.startsWith({json.dumps(name)})).value"
        )
        opened.choose(select, value)
    times: dict[str, dict[tuple[int, ...], float]] = {names[0]: {}, names[2]: {}}
    for one in made.results():
        if one.status == OK and one.kernel.name in times:
            times[one.kernel.name][tuple(one.problem[name] for name in "mnk")] = one.seconds or 0
    first, second = times[names[0]], times[names[2]]
    common = sorted(set(first) & set(second))
    row = column(opened, "duel", "name").index("all")
    assert int(column(opened, "duel", "problems")[row]) == len(common)
    assert int(column(opened, "duel", "a")[row]) == sum(first[one] < second[one] for one in common)
    told = float(column(opened, "duel", "ratio")[row].rstrip("\u00d7"))
    assert told == pytest.approx(statistics.geometric_mean(second[one] / first[one] for one in common), rel=6e-3)


def test_regret_is_that_of_the_estimate_s_choice(opened: Browser) -> None:
    opened.click("#tab-regret")
    kinds, families = column(opened, "regret", "kind"), column(opened, "regret", "name")
    row = next(at for at, pair in enumerate(zip(kinds, families, strict=True)) if pair == ("analytic estimate", "all"))
    op = ops.op("gemm")
    from tilewright.backends.base import backend

    groups: dict[tuple[int, ...], list[tuple[float, float]]] = {}
    for one in made.results():
        if one.status != OK:
            continue
        estimate = math.inf
        if "odd" not in one.kernel.spec:
            spec, problem = op.spec_from_dict(dict(one.kernel.spec)), op.problem_from_dict(dict(one.problem))
            estimate = backend("cpu").estimate(spec, problem, 2)
        key = tuple(one.problem[name] for name in "mnk")
        groups.setdefault(key, []).append((estimate, one.seconds or 0))
    reached = [min(seconds for _, seconds in found) / min(found)[1] for found in groups.values()]
    told = [float(column(opened, "regret", name)[row].rstrip("%")) for name in ("mean", "worst")]
    assert told == pytest.approx([100 * statistics.fmean(reached), 100 * min(reached)], abs=0.06)
    assert "saved choice" in kinds


def test_failures_are_counted_by_reason(opened: Browser) -> None:
    opened.click("#tab-failures")
    failed = [one for one in made.results() if one.status != OK]
    assert sum(map(int, column(opened, "failures", "count"))) == len(failed)
    found = dict(zip(column(opened, "failures", "reason"), column(opened, "failures", "count"), strict=True))
    for word in {one.status for one in failed} - {"crashed"}:
        assert int(found[f"it was {word}"]) == sum(one.status == word for one in failed)


def test_points_have_names_and_the_theme_changes_them(opened: Browser) -> None:
    opened.click("#tab-roofline")
    light = ink(opened)
    opened.click("#theme")
    assert opened.texts("#theme") == ["Light"]
    assert ink(opened) != light
    # Along the canvas until the pointer finds a point.
    box = opened.run("(() => { const box = document.querySelector('canvas').getBoundingClientRect();"
                     "return [box.left, box.top, box.width, box.height]; })()")  # fmt: skip
    for step in range(2000):
        x, y = box[0] + box[2] * (step % 50) / 50, box[1] + box[3] * (step // 50) / 40
        opened.run(f"document.querySelector('canvas').dispatchEvent(new MouseEvent('mousemove', "
                   f"{{clientX: {x}, clientY: {y}, bubbles: true}}))")  # fmt: skip
        if not opened.run("document.getElementById('tip').hidden"):
            break
    assert "of the roof" in opened.texts("#tip")[0]


def ink(browser: Browser) -> str:
    found: str = browser.run("document.querySelector('canvas').toDataURL()")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_text_reads_well_and_nothing_is_wider_than_the_screen(opened: Browser, scheme: str, width: int) -> None:
    opened.scheme(scheme)
    opened.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    try:
        for name in VIEWS:
            opened.run(f"document.getElementById('tab-{name}').click()")
            assert opened.run("document.documentElement.scrollWidth") <= width, name
            found = opened.run(CONTRAST)
            assert found["looked"] > 20
            assert found["poor"] == [], name
            nameless = opened.run(NAMELESS)
            assert nameless == [], f"{name}: {nameless}"
    finally:
        opened.ask("Emulation.clearDeviceMetricsOverride")
        opened.scheme("light")


CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")

# Controls and pictures that a screen reader would have no name for.
NAMELESS = """(() => [...document.querySelectorAll('button, select, input, canvas')].filter((one) =>
  !(one.getAttribute('aria-label') || one.innerText || one.textContent || (one.labels && one.labels.length))
).map((one) => one.outerHTML.slice(0, 80)))()"""


def test_a_hundred_thousand_rows_open(browser: Browser, tmp_path: Path) -> None:
    """Rows of many problems and kernels, made as columns at once: the page shows them all, and sorts them."""
    from dataclasses import replace

    base = made.results()[0]
    kernels = [replace(base.kernel, digest=f"{at:064x}", name=f"kernel_{at}") for at in range(100)]
    problems = [{**base.problem, "m": at + 1} for at in range(1000)]
    rows = tuple(
        replace(base, problem=problem, kernel=kernel, status=OK, seconds=1e-6 * (1 + (7 * at + 13 * number) % 101))
        for at, problem in enumerate(problems)
        for number, kernel in enumerate(kernels)
    )
    file = tmp_path / "many.html"
    file.write_text(page.page(Source(("many",), rows), page.Wanted(predictions=False)), encoding="utf-8")
    assert file.stat().st_size < 8e6
    browser.open(file)
    assert kept(browser) == "1000 of 1000 problems, 100000 rows"
    assert len(column(browser, "leaderboard", "kernel")) == 50
    browser.click("button.more")
    assert len(column(browser, "leaderboard", "kernel")) == 100
    for name in ("problems", "heat", "roofline", "duel"):
        browser.click(f"#tab-{name}")
        assert len(browser.texts("main h2")) == 1
    assert browser.console == []


def test_a_picture_is_not_empty(opened: Browser, tmp_path: Path) -> None:
    """What the tests above read from the page is also painted: a picture of it has more than a few colours."""
    opened.picture(tmp_path / "page.png", whole=False)
    data = (tmp_path / "page.png").read_bytes()
    at, packed = 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    assert len(set(zlib.decompress(packed)[::97])) > 20
