"""The pages in a real browser: nothing overflows, everything can be read and reached, nothing is loaded from elsewhere."""
import os
import re
import subprocess
import urllib.parse

import pytest

import browser as chromium
from conftest import QUASAR
from sample_report import HOSTILE, add_benchmarks, fill_validator
from sample_tuning import add_trials, bring_tunings, result

WIDTHS = [(400, 800), (1280, 900), (1600, 900), (1920, 1080)]


@pytest.fixture
def browser(tmp_path):
    if not os.environ.get("CHROMIUM"):
        pytest.skip("asks for a browser: `make check-pages` installs chromium and runs this")
    browser = chromium.Browser(os.environ["CHROMIUM"], tmp_path / "browser")
    yield browser
    browser.close()


def inspect(browser, url, **options):
    """What holds for every page, at every width, in a light and in a dark room."""
    for dark in (False, True):
        tab = browser.open(url, dark=dark, **options)
        for width, height in WIDTHS:
            tab.resize(width, height)
            assert tab.overflow() == 0, width
            found = tab.contrasts()
            assert found[0][0] >= 4.5, (width, dark, found[0])
            assert min(size for _, size, _ in found) >= 9, width
        origin = urllib.parse.urlsplit(url)
        assert all(urllib.parse.urlsplit(request)[:2] == origin[:2] or request.startswith("data:")
                   for request in tab.requests), tab.requests
        assert tab.complaints == []
        assert tab.eval("document.title") != "taken" and tab.eval("document.images.length") == 0
        tab.close()


def walk(tab):
    """Presses Tab until the focus comes round; what had it, in order: tag, name, place, whether it showed that."""
    seen = []
    for _ in range(200):
        tab.key("Tab")
        state = tab.eval("""(() => {
            const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
            return at === document.body ? null : [at.tagName, at.getAttribute("aria-label") || at.innerText,
                [...document.querySelectorAll("*")].indexOf(at), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0, box.left >= 0 && box.width > 0];
        })()""")
        if state is None or state in seen:
            return seen
        seen.append(state)
    raise AssertionError("the focus never comes round")


def test_report(browser, quasar, workspace, hotkey, home, tmp_path):
    head = subprocess.run(["git", "-C", workspace / "fork", "rev-parse", "HEAD"],
                          capture_output=True, text=True, check=True).stdout.strip()
    add_benchmarks(workspace, head)
    add_tunings(quasar, home, tmp_path)
    page = tmp_path / "report.html"
    done = quasar("report", "--offline", "--seq", "1M", "--out", page, cwd=workspace)
    assert done.code == 0, done.err
    url = page.as_uri()
    inspect(browser, url)

    tab = browser.open(url)
    focused = walk(tab)
    assert focused[0][:2] == ["A", "Skip to the content"]
    assert all(outline and shown for *_, outline, shown in focused), focused
    assert [tag for tag, *_ in focused].count("SUMMARY") >= 4
    # the tables are the pictures in words, and open by the keyboard
    tab.eval("document.querySelector('#lengths-table summary').focus()")
    tab.key("Enter")
    assert tab.eval("document.querySelector('#lengths-table').open")
    assert "1,000,000" in tab.text() and tab.overflow() == 0
    # every picture has a name, and is as wide as its place
    assert tab.eval("[...document.querySelectorAll('svg.chart')].every(svg => svg.getAttribute('aria-label'))")
    assert tab.eval("document.querySelectorAll('.wide svg.chart').length") >= 5
    check_letters(tab)
    tab.close()


def check_letters(tab):
    """They do not lie on each other, nor outside of their picture."""
    for width, height in WIDTHS:
        tab.resize(width, height)
        assert " ; ".join(tab.eval(OVERLAPS)) == "", width


def add_tunings(quasar, home, folder):
    bring_tunings(quasar, folder, result(bytes=410e6, operations=34e9))
    add_trials(home)
    bring_tunings(quasar, folder, result(device="NVIDIA RTX PRO 6000 Blackwell Server Edition", bytes=287e6, operations=24e9, when="2026-11-21T08:00:00"),
                  *(result(length=length, bytes=4096.0 * (1 << length), operations=340e3 * (1 << length), when=f"2026-10-{length}T08:00:00", usual_ms=0.25 + length / 100)
                    for length in range(10, 22)),
                  result(kernel="fla/layers/" + "quasar_" * 10 + ".py:" + "copy_" * 6, function="layer",
                         parameters="BLOCK=64 num_warps=4", when="2026-11-22T09:00:00"))


def test_tuning(browser, quasar, home, tmp_path):
    add_tunings(quasar, home, tmp_path)
    page = tmp_path / "tuning.html"
    done = quasar("tune", "--list", "--report", page)
    assert done.code == 0, done.err
    inspect(browser, page.as_uri())
    tab = browser.open(page.as_uri())
    assert tab.eval("document.querySelectorAll('.wide svg.chart').length") >= 7
    assert all(outline and shown for *_, outline, shown in walk(tab))
    check_letters(tab)
    tab.close()


def test_localnet(browser, start_localnet):
    server = start_localnet()
    fill_validator(server)
    url = server.url + "/"
    inspect(browser, url)
    inspect(browser, url, scripts=False)
    for scripts, refreshed in ((False, True), (True, False)):
        tab = browser.open(url, scripts=scripts)
        assert tab.eval("document.querySelector('meta[http-equiv=refresh]') !== null") == refreshed
        tab.close()

    tab = browser.open(url)
    assert HOSTILE.replace("\u202e", "?") in tab.eval("document.querySelector('#main').textContent")
    tab.eval("document.querySelector('a[rel=next]').focus()")
    tab.key("Enter")
    tab.wait_load(1)
    assert "Page 2 of 3" in tab.text()
    focused = walk(tab)
    assert all(outline and shown for *_, outline, shown in focused), focused
    assert [text for tag, text, *_ in focused if tag == "A"][-2:] == ["← Page 1", "Page 3 →"]

    # it follows what happens, and keeps where the reader is; when the server is gone, it says so and stays
    rank = "document.querySelector('tbody tr td').innerText"
    first = tab.eval(rank)
    tab.eval("document.querySelector('a[rel=prev]').focus()")
    server.stop()
    tab.wait("document.querySelector('.outage')")
    assert re.search(r"has not been updated since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", tab.text())
    assert tab.eval(rank) == first and tab.eval("document.activeElement.rel") == "prev"
    server.start("--port", str(server.port))
    tab.wait("!document.querySelector('.outage')")
    assert tab.eval("document.activeElement.rel") == "prev"
    tab.close()


def test_leaderboard_of_an_api(browser, quasar, start_localnet, environment, tmp_path):
    server = start_localnet("--rate-limit", "0")
    fill_validator(server, 60)
    command = [QUASAR, "leaderboard", "--web", "--json", "--port", "0", "--interval", "1", "--api", server.url]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL) as process:
        try:
            url = re.search(r'"url":"(.*?)"', process.stdout.readline())[1]
            tab = browser.open(url)
            tab.wait("document.querySelector('tbody')")
            inspect(browser, url)
            assert HOSTILE[:20] in tab.eval("document.querySelector('#main').textContent")
            server.stop()
            tab.wait("document.querySelector('.outage')")
            assert re.search(r"The validator has not been reached since .* UTC", tab.text())
            assert tab.eval("document.querySelectorAll('tbody tr').length") > 10
            inspect(browser, url)
            tab.close()
        finally:
            process.terminate()


# Two texts of a picture that cover each other by more than a hair, or one that leaves its picture.
OVERLAPS = """[...document.querySelectorAll("svg.chart")].filter(svg => svg.checkVisibility()).flatMap(svg => {
  const box = element => element.getBoundingClientRect(), whole = box(svg), found = [];
  const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim());
  texts.forEach((text, i) => {
    const a = box(text);
    if (a.left < whole.left - 1 || a.right > whole.right + 1 || a.bottom > whole.bottom + 1 || a.top < whole.top - 1)
      found.push("outside: " + text.textContent);
    for (const other of texts.slice(i + 1)) {
      const b = box(other);
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        found.push(text.textContent + " / " + other.textContent);
    }
  });
  return found;
})"""
