"""quasar report, and the pages of localnet and leaderboard --web, without a browser; test_pages.py has one."""
import csv
import io
import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree

import pytest

from conftest import API_KEY, QUASAR
from patience import LONG
from sample_report import HOSTILE, LENGTHS, add_benchmarks, fill_validator
from sample_tuning import bring_tunings, result

PARTS = ["benchmarks", "lengths", "claim", "submissions", "leaderboard", "tuning"]


@pytest.fixture
def head(workspace):
    return subprocess.run(["git", "-C", workspace / "fork", "rev-parse", "HEAD"], capture_output=True, text=True,
                          check=True).stdout.strip()


@pytest.fixture
def report(quasar, workspace, hotkey):
    """Runs `quasar report` in the workspace, without the validator unless an URL is given."""

    def run(*args, api=None):
        return quasar("report", "--seq", "1M", *(["--api", api] if api else ["--offline"]), *args, cwd=workspace)

    return run


def test_the_same_in_every_form(report, workspace, head):
    count = add_benchmarks(workspace, head)
    document = report("--json").json
    assert list(document) == PARTS
    rows = document["benchmarks"]["rows"]
    assert len(rows) == count and rows[0]["fork_commit"] == head
    assert [row["seq"] for row in document["lengths"]["rows"]] == LENGTHS
    assert [row["multiplier"] for row in document["lengths"]["rows"]] == [0.5] * 5 + [0.75, 1, 1.5, 3]

    table = list(csv.DictReader(io.StringIO(report("--part", "benchmarks", "--format", "csv").out)))
    assert [float(row["tokens_per_sec"]) for row in table] == pytest.approx([row["tokens_per_sec"] for row in rows])
    assert [row["fork_commit"] for row in table] == [row["fork_commit"] for row in rows]

    markdown = report("--format", "markdown").out
    assert re.findall("^## (.*)", markdown, re.M) == ["Benchmarks", "Throughput by length", "Claim", "Submissions",
                                                      "Leaderboard", "Tuning"]
    assert markdown.count(f"| {head} |") == len(LENGTHS)

    measured = rows[LENGTHS[::-1].index(1000000)]["tokens_per_sec"]
    claim = {row["name"]: row["tokens_per_sec"] for row in document["claim"]["rows"]}
    assert claim["measured"] == pytest.approx(measured) and 0.96 * measured < claim["the claim"] < 0.97 * measured

    for part in ("benchmarks", "lengths", "claim"):
        svg = xml.etree.ElementTree.fromstring(report("--part", part, "--format", "svg").out)
        assert svg.tag == "{http://www.w3.org/2000/svg}svg" and svg.find("{http://www.w3.org/2000/svg}style") is not None


def test_an_empty_workspace_says_what_to_do(report, workspace):
    done = report()
    assert done.code == 0 and done.out.startswith("Wrote report.html, ")
    page = (workspace / "report.html").read_text()
    for words in ("<code>quasar bench</code>", "<code>quasar commit</code>", "The validator was not asked."):
        assert words in page
    refused = report("--part", "lengths", "--format", "svg")
    assert refused.code == 3 and "there is no picture of lengths: Nothing has been measured yet" in refused.err


def test_ten_thousand_measurements(report, workspace, head):
    """A second at most, and 500 KB; every one of them is in the CSV."""
    count = add_benchmarks(workspace, head, commits=120, each=10)
    assert count > 10000
    done = report("--out", "page.html")
    assert done.code == 0, done.err
    assert done.cpu < (10 if "ASAN_OPTIONS" in os.environ else 1)
    assert (workspace / "page.html").stat().st_size < 500_000
    assert len(report("--part", "benchmarks", "--format", "csv").out.splitlines()) == count + 1


def test_where_it_goes(report, workspace, tmp_path):
    assert report("--out", "-").out.startswith("<!doctype html>")
    done = report("--format", "markdown", "--out", tmp_path / "parts.md")
    assert done.code == 0 and (tmp_path / "parts.md").read_text().startswith("## Benchmarks")
    assert report("--out", tmp_path / "none" / "page.html").code == 3
    for wrong in (["--part", "claim"], ["--format", "csv"], ["--format", "svg"], ["--format", "json", "--open"],
                  ["--part", "nothing", "--format", "csv"]):
        assert report(*wrong).code == 2, wrong


def test_open_hands_the_page_to_the_desktop(quasar, report, workspace, tmp_path, environment):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "xdg-open").write_text(f"#!/bin/sh\necho \"$1\" >{tmp_path}/opened\n")
    (tools / "xdg-open").chmod(0o755)
    done = quasar("report", "--offline", "--open", cwd=workspace, env={"PATH": f"{tools}:{environment['PATH']}"})
    assert done.code == 0, done.err
    assert (tmp_path / "opened").read_text().strip() == str(workspace / "report.html")
    done = quasar("report", "--offline", "--open", cwd=workspace, env={"PATH": "/nonexistent"})
    assert done.code == 3 and (workspace / "report.html").exists() and "Open it yourself" in done.err


def test_tunings_of_the_store_and_of_a_file(report, quasar, tmp_path):
    assert report("--json").json["tuning"]["rows"] == []
    bring_tunings(quasar, tmp_path, result(bytes=410e6, operations=34e9), result(device="NVIDIA H100 80GB HBM3"),
                  result(kernel="fla/layers/quasar.py:copy", function="layer", parameters="BLOCK=64 num_warps=4"))
    rows = report("--json").json["tuning"]["rows"]
    assert sorted((row["device"], row["kernel"]) for row in rows) == [
        ("NVIDIA H100 80GB HBM3", "quasar_chunk"), ("NVIDIA H200", "fla/layers/quasar.py:copy"), ("NVIDIA H200", "quasar_chunk")]
    assert all(row["ms"] == 0.25 and not row["predicted"] for row in rows)
    page = report("--out", "-").out
    assert "Roofline of NVIDIA H200" in page and "3 configurations in 3 tunings, as measured" in page
    # what somebody else exported, of another machine
    exported = tmp_path / "theirs.json"
    assert quasar("tune", "--export", exported).code == 0
    assert quasar("tune", "--forget", "all").code == 0
    theirs = report("--tuning", exported, "--json").json["tuning"]["rows"]
    assert sorted(map(str, theirs)) == sorted(map(str, rows))


def test_tuning_is_hostile_until_read(report, workspace, tmp_path):
    results, short = tmp_path / "results.json", HOSTILE[:60]
    results.write_text(json.dumps({"device": HOSTILE, "predicted": False, "class": HOSTILE, "kernels": [
        {"kernel": short, "parameters": {"A": 1, "B": stages}, "ms": stages, "bound": short} for stages in (1, 2)] + [
            {"kernel": short, "parameters": {HOSTILE: 1}, "ms": 1}, None, 5]}))
    page = report("--tuning", results, "--out", "-").out
    assert "<script>document" not in page and "<img" not in page and "2 configurations of " in page
    for text in ("{", "[]", "7", '{"kernels": 1}'):
        results.write_text(text)
        done = report("--tuning", results, "--out", "-")
        assert done.code == 3 and "--tuning" in done.err, text
    assert report("--tuning", tmp_path / "none").code == 3


def test_standing_and_submissions(report, quasar, workspace, hotkey, start_localnet):
    server = start_localnet("--block-time", "0.2", "--blocks-until-reveal", "2")
    for words in (["register"], ["commit", "--claim", "1000", "--no-verify", "--seq", "1M"], ["reveal", "--wait"],
                  ["submit", "--claim", "900", "--no-verify", "--seq", "1M"]):
        done = quasar(*words, "--api", server.url, cwd=workspace)
        assert done.code == 0, done.err
    document = report("--json", api=server.url).json
    ours = document["submissions"]["rows"]
    assert [(row["step"], row["rank"]) for row in ours] == [("submitted", 2), ("revealed", 1)]
    standings = document["leaderboard"]["rows"]
    assert [row["gap"] for row in standings] == [None, pytest.approx(1000 / 900 - 1)]
    assert "Yours leads." in document["leaderboard"]["summary"]
    page = report("--out", "-", api=server.url).out
    assert page.count('<tr class="marked">') == 2 and "place 1" in page

    # without the validator: what the store knows
    server.stop()
    done = report("--out", "-", "--timeout", "1", api=server.url)
    assert done.code == 0 and "The validator does not show it now" in done.out
    assert hotkey not in done.out and "revealed" in done.out


def test_a_dashboard_stands_for_the_lists(quasar, report, workspace, start_version):
    server = start_version("2026-04")
    done = quasar("report", "--part", "leaderboard", "--json", "--api", server.url, cwd=workspace,
                  env={"DASHBOARD_API_KEY": API_KEY})
    assert "speeds are what validators measured" in done.json["leaderboard"]["summary"], done.err
    refused = report("--part", "leaderboard", "--json", api=server.url)
    assert "not shown to miners" in refused.json["leaderboard"]["summary"]


# --- the pages of servers ---------------------------------------------------------------------------


def check_headers(answer):
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Access-Control-Allow-Origin"] is None


def test_localnet_shows_a_page(start_localnet, quasar):
    server = start_localnet()
    answer = server.get("/", {"Origin": "https://example.com"})
    check_headers(answer)
    assert answer.status == 200 and b"No round has begun yet" in answer.body
    assert server.get("/get_weights").json["weights"] == []  # looking began no round
    fill_validator(server)
    page = server.get("/").body.decode()
    assert "<img" not in page and "<script>document" not in page and "\u202e" not in page
    assert len(re.findall("<tr>", page.split("</table>")[0])) == 101  # a page of them, and the headings
    tables = [server.get(f"/?page={number}").body.decode().split("</table>")[0] for number in (1, 2, 3)]
    ranks = [int(rank) for table in tables for rank in re.findall(r'<tr><td class="number">(\d+)</td>', table)]
    assert ranks == list(range(1, len(ranks) + 1)) and len(ranks) > 100
    assert "verification failed" in server.get("/?page=3").body.decode()
    for bad in ("/?page=0", "/?page=-5", "/?page=99999999999999"):
        assert server.get(bad).status == 200
    assert server.get("/?page=x").status == 422
    assert "/" not in server.get("/openapi.json").json["paths"]


def test_where_lists_are_for_validators_the_page_is_for_this_machine(start_version):
    server = start_version("2026-04")
    assert server.get("/", {}).status == 200
    assert server.get("/", {"Host": "evil.example"}).status == 403
    assert server.get("/", {"Host": "localhost"}).status == 200


def test_leaderboard_as_a_page(quasar, environment, tmp_path, start_localnet):
    server = start_localnet("--rate-limit", "0")
    fill_validator(server, 20)
    command = [QUASAR, "leaderboard", "--web", "--json", "--port", "0", "--interval", "1", "--api", server.url]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    try:
        announced = json.loads(process.stdout.readline())
        page = type(server).request

        class Page:
            url = announced["url"].rstrip("/")

        def until(words):
            for _ in range(300):
                answer = page(Page, "GET", "/")
                if words in answer.body.decode():
                    return answer
                time.sleep(0.05)
            raise AssertionError(answer.body.decode())

        answer = until("<tbody>")
        check_headers(answer)
        assert "Only the ten fastest" in answer.body.decode() and "<img" not in answer.body.decode()
        assert page(Page, "GET", "/", headers={"Host": "evil.example"}).status == 403
        assert page(Page, "POST", "/").status == 405
        server.stop()
        gone = until("has not been reached since").body.decode()
        assert "<tbody>" in gone
        server.start("--port", str(server.port))
        assert "outage" not in until("As of").body.decode().split("<main")[1]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LONG) == 130


def test_a_dashboard_that_is_not_shown(quasar, start_version, tmp_path):
    server = start_version("2026-04")
    done = quasar("leaderboard", "--web", "--port", "0", "--api", server.url, env={"DASHBOARD_API_KEY": ""})
    assert done.code == 5 and "shows it to validators only" in done.err, done.err
    assert API_KEY not in done.out
