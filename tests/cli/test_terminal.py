"""What somebody at a terminal sees: text that fits, words that were misspelt, questions that were wrong."""
import re
import subprocess

import pytest

from conftest import QUASAR

pytestmark = pytest.mark.usefixtures("without_python")

WIDTHS = [60, 80, 120]


@pytest.fixture
def shown(terminal):
    """Runs the binary on a terminal so many columns wide; what stands there in the end."""

    def run(columns, *args, **options):
        run = terminal(*args, size=(50, columns), env={"TERM": "xterm", **options.pop("env", {})}, **options)
        run.finish()
        assert "\x1b[?1049h" not in run.out
        return run.screen

    return run


def too_wide(text, columns):
    """Lines that could have been broken and were not: a word that is wider than a line may stay whole."""
    return [line for line in text.splitlines()
            if len(line) > columns and len(line.split()) > 1 and len(max(line.split(), key=len)) < columns - 30]


def commands():
    """Every command and subcommand."""
    listed = subprocess.run([QUASAR, "--help"], capture_output=True, text=True).stdout
    names = re.findall(r"^  ([a-z-]+) {2,}", listed, re.M)
    return [[name] for name in names] + [["wallet", name] for name in ("new", "import", "list", "show", "sign", "verify")]


# --- width -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("columns", WIDTHS)
def test_help_fits(shown, columns):
    for words in [[], ["commit"], ["wallet"], ["bench"], ["round"]]:
        text = re.sub(r"\nexamples\n.*?\n\n", "\n", shown(columns, "help", *words).normal, flags=re.S)  # to be copied
        assert not too_wide(text, columns) and max(map(len, text.splitlines())) > min(columns, 96) - 20, text


def test_a_number_keeps_its_percent_sign(shown):
    for columns in range(50, 64):
        assert "\n%" not in shown(columns, "leagues").normal


def test_help_in_a_pipe_is_as_wide_as_is_easy_to_read(quasar):
    for words in commands():
        text = re.sub(r"\nexamples\n.*?\n\n", "\n", quasar("help", *words).out, flags=re.S)
        assert not too_wide(text, 96), text


@pytest.fixture
def miner(commit_something, start_version, like):
    """Its reveal is most of an hour away, so that what is said of it stays the same."""
    return commit_something(start_version(like, "--block-time", "600", "--blocks-until-reveal", "5").url)


def test_checks_and_tables_fit(shown, quasar, miner):
    for command in (["verify", "--static"], ["status"], ["leaderboard"], ["round"], ["gpus"], ["leagues"],
                    ["wallet", "list"], ["score", "--tokens-per-sec", "60M", "--claimed", "70M"],
                    ["bench", "--native", "--seq", "64,96", "--runs", 3]):
        for columns in WIDTHS:
            screen = shown(columns, *command, "-C", miner)
            assert screen.normal and not too_wide(screen.normal, columns), screen.normal
        piped = quasar(*command, "-C", miner).out
        assert max(map(len, piped.splitlines())) >= max(map(len, screen.normal.splitlines())), piped


def test_a_table_leaves_out_what_matters_least(shown, quasar, miner):
    assert re.search(r"^id +step +(league +)?claim +what next$", shown(60, "status", "-C", miner).normal, re.M)
    assert re.search(r"^id +server id +step .* commit +what next$", quasar("status", "-C", miner).out, re.M)


def test_bars_are_drawn_as_the_stream_can_show_them(shown, quasar, miner):
    command = ["bench", "--native", "--seq", "64,96", "--runs", 3, "-C", miner]
    assert re.search(r"^ *64  #+  [\d,]+$", quasar(*command).out, re.M)
    assert re.search(r"^ *64  [█▏▎▍▌▋▊▉]+  [\d,]+$", shown(80, *command).normal, re.M)
    assert re.search(r"^ *64  #+  [\d,]+$", shown(80, *command, env={"LANG": "C"}).normal, re.M)


def test_the_history_of_a_length_is_a_line(shown, quasar, miner):
    for count in range(3):
        done = quasar("bench", "--native", "--seq", 64, "--runs", 3, "-C", miner)
    assert re.search(r"^History at 64 tokens: [_.:=+*#-]{3} \S+ to \S+ tokens/s, 3 results$", done.out, re.M), done.out
    for columns, between in ((45, "\n"), (80, " ")):
        text = shown(columns, "bench", "--native", "--seq", 64, "--runs", 3, "-C", miner).normal
        assert re.search(rf"^History at 64 tokens:{between}[▁-█]{{4,5}}{between}\S+ to \S+ tokens/s, \d results$", text, re.M), text


# --- typing errors ---------------------------------------------------------------------------------

@pytest.mark.parametrize("args, meant", [
    (["comit"], "`quasar commit`"), (["help", "comit"], "`quasar commit`"), (["wallet", "lst"], "`quasar wallet list`"),
    (["score", "--sequence", "1M"], "--seq"), (["score", "--sqe=1M"], "--seq"), (["--jsno", "score"], "--json"),
    (["revael"], "`quasar reveal`")])
def test_what_was_meant_is_said(quasar, args, meant):
    done = quasar(*args)
    assert done.code == 2 and f"Did you mean {meant}?" in done.err and done.out == ""


@pytest.mark.parametrize("args", [["zzz"], ["help", "zzz"], ["score", "--zzz"]])
def test_nothing_is_said_of_what_is_like_nothing(quasar, args):
    done = quasar(*args)
    assert done.code == 2 and "mean" not in done.err


def test_a_misspelt_setting_is_not_silent(quasar, workspace):
    with open(workspace / ".env", "a") as settings:
        settings.write('WALLET_HOTKY="rig2"\nANOTHER_TOOLS_SETTING=1\nCUDA_VISIBLE_DEVICES=0\n')
    done = quasar("leagues", cwd=workspace)
    assert done.code == 0
    assert done.err == f"warning: {workspace}/.env: WALLET_HOTKY is not a setting; did you mean WALLET_HOTKEY?\n"


@pytest.mark.parametrize("number", ["1000000", "1M", "1e6", "1,000,000", "1_000_000", "1000k", "0.001e9"])
def test_numbers_as_people_and_quasar_write_them(quasar, number):
    assert quasar("score", "--seq", number, "--tokens-per-sec", "50,000", "--json").json["weighted_score"] == 150000


def test_a_list_of_numbers_is_told_from_one_number(quasar):
    def lengths(text):
        done = quasar("bench", "--native", "--runs", 3, "--json", "--seq", text)
        return [result["seq"] for result in done.json["results"]], done.err

    assert lengths("1,024") == ([1024], lengths("1,024")[1]) and "several" not in lengths("1,024")[1]
    found, said = lengths("64,128")
    assert found == [64, 128] and "read as several numbers" in said


# --- secrets ---------------------------------------------------------------------------------------

@pytest.mark.long
def test_a_wrong_password_may_be_typed_again(terminal, quasar, encrypted):
    sign = ["wallet", "sign", "--message-hex", "00"]
    person = terminal(*sign)
    for password in ("wrong", "wrong again", encrypted):
        person.expect("Password for ")
        person.send(password + "\n")
    assert person.finish() == 0 and person.out.count("the password is wrong") == 2
    done = quasar(*sign, env={"WALLET_PASSWORD": "wrong"})
    assert done.code == 3 and done.err.count("the password is wrong") == 1  # nobody to ask


# --- what comes next, and when it was -----------------------------------------------------------------

def test_each_step_says_what_comes_next(quasar, localnet, tmp_path):
    miner = tmp_path / "miner"
    steps = [(["wallet", "new"], tmp_path, "init"),
             (["init", miner, "--api", localnet.url, "--seq", 512], tmp_path, "cd "),
             (["register"], miner, "verify"),
             (["commit", "--claim", 1000, "--no-verify"], miner, "reveal"),
             (["reveal", "--wait"], miner, "status")]
    for args, place, following in steps:
        done = quasar(*args, cwd=place)
        assert done.code == 0 and re.search(rf"^Next: (quasar )?{following}", done.out, re.M), done.out + done.err
    document = quasar("status", "--json", cwd=miner).json
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", item[name])
               for item in document["submissions"] for name in ("created_at", "updated_at"))
    assert quasar("round", "--json", cwd=miner).json["start_time"].endswith("Z")


def test_alone_it_says_where_to_begin(quasar, workspace, tmp_path):
    assert "To begin: `quasar wallet new`, then `quasar init DIR`" in quasar(cwd=tmp_path).out
    assert "To begin" not in quasar(cwd=workspace).out
