"""quasar wallet: hotkeys made, restored, read and refused."""
import base64
import json
import os
import pathlib
import re
import signal
import stat
import subprocess

import pytest

from conftest import KEYFILES, QUASAR
from patience import LONG

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIM = pathlib.Path(QUASAR).parent / "fault.so"
PHRASE = "abandon " * 11 + "about"
ADDRESS = "5EPCUjPxiHAcNooYipQFWr9NmmXJKpNG5RhcntXwbtUySrgH"
SEED = "4ed8d4b17698ddeaa1f1559f152f87b5d472f725ca86d341bd0276f1b61197e2"
PRIVATE_KEY = json.loads((KEYFILES / "sr25519.json").read_text())["privateKey"][2:]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "sr25519.json").read_text())


@pytest.fixture
def hotkeys(home):
    """The folder of the default wallet's hotkeys."""
    return home / ".bittensor" / "wallets" / "quasar_miner" / "hotkeys"


@pytest.fixture
def place(hotkeys):
    """Puts content where the default hotkey belongs."""

    def put(content, name="default"):
        hotkeys.mkdir(parents=True, exist_ok=True)
        path = hotkeys / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o600)
        return path

    return put


def verdict(quasar, address, message, signature, *options):
    """The exit code of `quasar wallet verify`."""
    return quasar("wallet", "verify", "--address", address, "--message-hex", message,
                  "--signature", signature, *options).code


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# --- new ------------------------------------------------------------------------------------------

def test_new_writes_the_layout_of_bittensor(quasar, hotkeys, home):
    made = quasar("wallet", "new", "--json").json
    key = json.loads((hotkeys / "default").read_text())
    assert key["ss58Address"] == made["address"] and "cryptoType" not in key
    assert key["secretPhrase"] == made["mnemonic"] and len(made["mnemonic"].split()) == 12
    assert key["publicKey"] == key["accountId"] and len(key["publicKey"]) == 66
    assert len(key["privateKey"]) == 130 and len(key["secretSeed"]) == 66
    public = json.loads((hotkeys / "defaultpub.txt").read_text())
    assert public == {name: key[name] for name in ("accountId", "publicKey", "ss58Address")}
    assert sorted(path.name for path in hotkeys.iterdir()) == ["default", "defaultpub.txt"]
    assert mode(hotkeys / "default") == mode(hotkeys / "defaultpub.txt") == 0o600
    for folder in (hotkeys, hotkeys.parent, hotkeys.parent.parent, home / ".bittensor"):
        assert mode(folder) == 0o700


def test_the_next_command_is_about_the_hotkey_that_was_made(quasar, workspace, tmp_path):
    assert quasar("wallet", "new", cwd=workspace).out.endswith("Next: quasar register\n")
    other = quasar("wallet", "new", "--wallet", "my rig", "--hotkey", "second", cwd=workspace)
    assert other.out.endswith("Next: quasar register --wallet 'my rig' --hotkey second\n")
    assert "Next: quasar init DIR --hotkey third\n" in quasar("wallet", "new", "--hotkey", "third", cwd=tmp_path).out


def test_permissions_do_not_depend_on_the_umask(quasar, hotkeys):
    before = os.umask(0)
    try:
        assert quasar("wallet", "new").code == 0
    finally:
        os.umask(before)
    assert mode(hotkeys / "default") == 0o600 and mode(hotkeys) == 0o700


def test_the_phrase_is_shown_once_and_restores_the_key(quasar):
    made = quasar("wallet", "new")
    phrase = next(line.strip() for line in made.out.splitlines() if len(line.split()) == 12
                  and line.startswith("  "))
    address = quasar("wallet", "show", "--json").json["address"]
    assert address in made.out and phrase not in made.err
    for command in ("show", "list"):
        for options in ([], ["--json"], ["--verbose"]):
            done = quasar("wallet", command, *options)
            assert address in done.out and phrase not in done.out + done.err
    again = quasar("wallet", "import", "--hotkey", "again", "--json", stdin=phrase + "\n")
    assert again.json["address"] == address and phrase not in again.out + again.err


@pytest.mark.parametrize("words", [12, 15, 18, 21, 24])
def test_phrases_of_every_length(quasar, words):
    made = quasar("wallet", "new", "--words", words, "--json").json
    assert len(made["mnemonic"].split()) == words


@pytest.mark.parametrize("args", [["--words", "13"], ["--words", "x"], ["--crypto", "secp256k1"],
                                  ["--wallet", ""], ["--wallet", "a/b"], ["--hotkey", "../coldkey"],
                                  ["--hotkey", ".."], ["--hotkey", ".hidden"], ["--hotkey", "apub.txt"],
                                  ["--hotkey", "x" * 300], ["extra"]])
def test_new_with_wrong_options(quasar, home, args):
    done = quasar("wallet", "new", *args)
    assert done.code == 2 and done.out == "" and not (home / ".bittensor").exists()


def test_ed25519_keys(quasar, hotkeys):
    made = quasar("wallet", "new", "--crypto", "ed25519", "--json").json
    key = json.loads((hotkeys / "default").read_text())
    assert made["crypto"] == "ed25519" and key["cryptoType"] == 0 and key["privateKey"] == key["secretSeed"]
    signature = quasar("wallet", "sign", "--message-hex", "00").out.strip()
    assert verdict(quasar, made["address"], "00", signature, "--crypto", "ed25519") == 0
    assert verdict(quasar, made["address"], "00", signature) == 1


def test_wallet_hotkey_and_path_come_from_options_environment_and_defaults(quasar, tmp_path):
    env = {"WALLET_MINER_NAME": "w", "WALLET_HOTKEY": "h", "BT_WALLET_PATH": str(tmp_path / "keys")}
    assert quasar("wallet", "new", env=env).code == 0
    assert (tmp_path / "keys" / "w" / "hotkeys" / "h").exists()
    options = ["--wallet", "v", "--hotkey", "g", "--path", tmp_path / "other"]
    assert quasar("wallet", "new", *options, env=env).code == 0
    assert (tmp_path / "other" / "v" / "hotkeys" / "g").exists()
    assert quasar("wallet", "new", "--path", "relative").code == 0
    assert (tmp_path / "relative" / "quasar_miner" / "hotkeys" / "default").exists()


def test_an_existing_key_is_not_overwritten(quasar, hotkeys):
    first = quasar("wallet", "new", "--json").json
    content = (hotkeys / "default").read_bytes()
    for command, stdin in (("new", ""), ("import", PHRASE)):
        done = quasar("wallet", command, stdin=stdin)
        assert done.code == 3 and "--force" in done.err and done.out == ""
        assert (hotkeys / "default").read_bytes() == content
    forced = quasar("wallet", "new", "--force", "--json").json
    assert forced["address"] != first["address"]
    assert quasar("wallet", "show", "--json").json["address"] == forced["address"]
    assert json.loads((hotkeys / "defaultpub.txt").read_text())["ss58Address"] == forced["address"]


def test_what_a_killed_call_left_is_gone_after_the_next(quasar, hotkeys, tmp_path):
    """Killed at its every step that touches the disk: no key lies about, and none is lost."""
    log = tmp_path / "calls"
    env = {"LD_PRELOAD": str(SHIM), "FAULT_LOG": str(log)}
    assert quasar("wallet", "new", env=env).code == 0
    left = 0
    for point in range(1, len(log.read_text().split()) + 1):
        for path in hotkeys.iterdir():
            path.unlink()
        (hotkeys / "default.backup").write_text("mine")
        assert quasar("wallet", "new", env={**env, "FAULT": f"after@{point}"}).code in (-9, 0)  # the folder is there
        left += any("unfinished" in path.name for path in hotkeys.iterdir())
        made = (hotkeys / "default").exists() and (hotkeys / "default").read_text()
        assert quasar("wallet", "new", "--hotkey", "other").code == 0
        assert {path.name for path in hotkeys.iterdir()} - {"default", "defaultpub.txt"} == {
            "default.backup", "other", "otherpub.txt"}
        assert not made or (hotkeys / "default").read_text() == made
    assert left


def test_force_replaces_a_link_and_not_what_it_leads_to(quasar, hotkeys):
    coldkey = hotkeys.parent / "coldkey"
    hotkeys.mkdir(parents=True)
    coldkey.write_text("the coldkey")
    (hotkeys / "default").symlink_to(coldkey)
    assert quasar("wallet", "new").code == 3
    assert quasar("wallet", "new", "--force").code == 0
    assert coldkey.read_text() == "the coldkey" and not (hotkeys / "default").is_symlink()


@pytest.mark.parametrize("path", ["/proc/nowhere", "FILE", "FILE/below"])
def test_folders_that_cannot_be_made(quasar, tmp_path, path):
    (tmp_path / "file").write_text("")
    done = quasar("wallet", "new", "--path", path.replace("FILE", str(tmp_path / "file")))
    assert done.code == 3 and "cannot" in done.err and done.out == "" and "--path" in done.err


def test_a_folder_without_write_permission(quasar, hotkeys):
    hotkeys.mkdir(parents=True)
    hotkeys.chmod(0o500)
    done = quasar("wallet", "new", bound=True)
    assert done.code == 3 and "Permission denied" in done.err and list(hotkeys.iterdir()) == []


# --- import ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("secret", [PHRASE, f"  {PHRASE}\n\n", PHRASE.replace(" ", "\n"), SEED, "0x" + SEED,
                                    PRIVATE_KEY, "0x" + PRIVATE_KEY, PRIVATE_KEY.upper()])
def test_import_takes_every_form(quasar, secret):
    done = quasar("wallet", "import", "--json", stdin=secret)
    assert done.code == 0 and done.json["address"] == ADDRESS and "mnemonic" not in done.json
    assert quasar("wallet", "show", "--json").json["address"] == ADDRESS


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["path"])
def test_import_derives(quasar, hotkeys, vector):
    done = quasar("wallet", "import", "--json", stdin=vector["mnemonic"] + vector["path"])
    assert done.json["address"] == vector["ss58"]
    key = json.loads((hotkeys / "default").read_text())
    assert key["publicKey"] == "0x" + vector["public"]
    assert ("secretPhrase" in key) == ("secretSeed" in key) == (vector["path"] == "")
    assert quasar("wallet", "show").code == 0


@pytest.mark.parametrize("secret", [
    "", "\n", "hunter2", PHRASE + " about", PHRASE.replace("about", "hunter2"), "hunter2 " * 12, "zoo " * 12,
    PHRASE + "//", PHRASE + "/hunter2/", "//hunter2", "///hunter2", SEED[:-1], SEED + "0",
    SEED + "///hunter2", PRIVATE_KEY[:-2], "0" * 128, "f" * 128, "0x",
    "hunter2\x00" + PHRASE, PHRASE + "\x00hunter2"])
def test_import_refuses_what_is_no_secret_without_showing_it(quasar, home, secret):
    for options in ([], ["--json"], ["--verbose"]):
        done = quasar("wallet", "import", *options, stdin=secret)
        assert done.code == 2 and done.err.startswith("quasar wallet import: ")
        assert "hunter2" not in done.out + done.err and SEED[:-1] not in done.out + done.err
        assert "abandon" not in done.out + done.err
    assert not (home / ".bittensor").exists()


def test_import_reads_no_more_than_a_secret_can_be(quasar):
    done = quasar("wallet", "import", stdin="abandon " * 1000)
    assert done.code == 3 and "stdin is larger than 4096 bytes" in done.err


def test_import_never_takes_the_secret_from_the_command_line(quasar):
    done = quasar("wallet", "import", PHRASE, stdin=PHRASE)
    assert done.code == 2


def test_import_asks_on_a_terminal_without_echo(terminal, quasar):
    person = terminal("wallet", "import")
    person.expect("(not echoed): ")
    assert not person.echoes()
    person.send(PHRASE + "\n")
    person.expect(ADDRESS)
    assert person.finish() == 0 and person.echoes() and "abandon" not in person.out
    assert quasar("wallet", "show", "--json").json["address"] == ADDRESS


@pytest.mark.parametrize("keys", ["\x03", "abandon ab\x03"])
def test_an_interrupted_import_leaves_nothing(terminal, home, keys):
    person = terminal("wallet", "import")
    person.expect("(not echoed): ")
    person.send(keys)
    assert person.finish() == 130 and person.echoes() and not (home / ".bittensor").exists()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_import_interrupted_while_it_waits_for_stdin_leaves_nothing(environment, home, stop):
    process = subprocess.Popen([QUASAR, "wallet", "import"], env=environment, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write("abandon ")
    process.stdin.flush()
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while not int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16) >> (stop - 1) & 1:
        assert process.poll() is None
    process.send_signal(stop)
    assert process.wait(LONG) == 130 and "interrupted" in process.stderr.read()
    assert not (home / ".bittensor").exists()


# --- encryption -----------------------------------------------------------------------------------

def test_encrypted_round_trip(quasar, hotkeys):
    env = {"WALLET_PASSWORD": "correct horse"}
    made = quasar("wallet", "import", "--encrypt", "--json", stdin=PHRASE, env=env)
    assert made.code == 0 and made.json["encrypted"] and made.json["address"] == ADDRESS
    content = (hotkeys / "default").read_bytes()
    assert content.startswith(b"$NACL") and b"abandon" not in content and mode(hotkeys / "default") == 0o600
    assert quasar("wallet", "show", "--json").json["address"] == ADDRESS
    assert quasar("wallet", "list", "--json").json["hotkeys"][0]["encrypted"]

    signature = quasar("wallet", "sign", "--message-hex", "00", env=env).out.strip()
    assert verdict(quasar, ADDRESS, "00", signature) == 0
    wrong = quasar("wallet", "sign", "--message-hex", "00", env={"WALLET_PASSWORD": "battery staple"})
    assert wrong.code == 3 and "WALLET_PASSWORD" in wrong.err and wrong.out == ""
    assert "staple" not in wrong.err
    missing = quasar("wallet", "sign", "--message-hex", "00")
    assert missing.code == 3 and "WALLET_PASSWORD" in missing.err and "BT_PW_" in missing.err


def obfuscated(path, password):
    """A password as bittensor-wallet keeps it in the environment."""
    name = "BT_PW_" + str(path).replace("/", "_").replace(".", "_").upper()
    mixed = bytes(c ^ name.encode()[i % len(name)] for i, c in enumerate(password.encode()))
    return {name: base64.b64encode(mixed).decode()}


def test_the_password_of_bittensor_wallets_variable(quasar, place):
    path = place((KEYFILES / "encrypted.nacl").read_bytes())
    done = quasar("wallet", "sign", "--message-hex", "", "--json", env=obfuscated(path, "correct horse"))
    assert done.code == 0 and done.json["address"] == ADDRESS
    broken = quasar("wallet", "sign", "--message-hex", "",
                    env={name: "?" + value for name, value in obfuscated(path, "correct horse").items()})
    assert broken.code == 3 and "BT_PW_" in broken.err


def test_the_password_is_asked_for_on_the_terminal(terminal, place):
    place((KEYFILES / "encrypted.nacl").read_bytes())
    person = terminal("wallet", "sign", "--message-hex", "00", "--json")
    person.expect("Password for ")
    assert not person.echoes()
    person.send("correct horse\n")
    person.expect(ADDRESS)
    assert person.finish() == 0 and person.echoes() and "correct horse" not in person.out


@pytest.mark.long
def test_a_new_password_is_asked_for_twice(terminal, quasar, home):
    person = terminal("wallet", "new", "--encrypt")
    person.expect("New password for ")
    person.send("correct horse\n")
    person.expect("Repeat it: ")
    person.send("correct house\n")
    assert person.finish() == 3 and "differ" in person.out and not (home / ".bittensor").exists()
    person = terminal("wallet", "new", "--encrypt")
    person.expect("New password for ")
    person.send("\n")
    assert person.finish() == 3 and "empty" in person.out and not (home / ".bittensor").exists()
    person = terminal("wallet", "new", "--encrypt")
    person.expect("New password for ")
    person.send("correct horse\n")
    person.expect("Repeat it: ")
    person.send("correct horse\n")
    person.expect("encrypted")
    assert person.finish() == 0 and "correct horse" not in person.out
    done = quasar("wallet", "sign", "--message-hex", "", env={"WALLET_PASSWORD": "correct horse"})
    assert done.code == 0


@pytest.mark.parametrize("content, name", [(b"$ANSIBLE_VAULT;1.1;AES256\n6162", "Ansible"),
                                           (b"gAAAAABlabc", "Fernet")])
def test_old_encryptions_are_named_with_the_way_out(quasar, place, content, name):
    place(content)
    done = quasar("wallet", "sign", "--message-hex", "00", env={"WALLET_PASSWORD": "x"})
    assert done.code == 3 and name in done.err and "check_and_update_encryption" in done.err


def test_a_cut_encrypted_file(quasar, place):
    place((KEYFILES / "encrypted.nacl").read_bytes()[:30])
    done = quasar("wallet", "sign", "--message-hex", "00", env={"WALLET_PASSWORD": "correct horse"})
    assert done.code == 3 and "cut short" in done.err


def test_an_encrypted_key_without_its_public_half(quasar, place):
    path = place((KEYFILES / "encrypted.nacl").read_bytes())
    assert quasar("wallet", "show", "--json").json["address"] is None
    assert "unknown without the password" in quasar("wallet", "list").out
    path.with_name("defaultpub.txt").write_text("not JSON")
    assert quasar("wallet", "show").code == 3
    assert "damaged" in quasar("wallet", "list").out


# --- bad key files --------------------------------------------------------------------------------

GOOD = json.loads((KEYFILES / "sr25519.json").read_text())
OTHER = json.loads((KEYFILES / "uri.json").read_text())


@pytest.mark.parametrize("content, reason", [
    ("", "not a JSON document"), ("{", "not a JSON document"), ("null", "not a JSON object"),
    (b"\xff\xfe\x00\x80", "not a JSON document"), ("x" * 70000, "larger than 65536 bytes"),
    ("{}", "neither ss58Address nor publicKey"), (json.dumps(GOOD) + "trailing", "not a JSON document"),
    (json.dumps(GOOD)[:200], "not a JSON document"), (json.dumps(GOOD) + "\x00", "not a JSON document"),
    (json.dumps({"ss58Address": ADDRESS}), "no secret"),
    (json.dumps({**GOOD, "ss58Address": OTHER["ss58Address"]}), "publicKey belongs to another key"),
    (json.dumps({**GOOD, "ss58Address": ADDRESS[:-1] + "J"}), "wrong checksum"),
    (json.dumps({**GOOD, "privateKey": OTHER["privateKey"]}), "privateKey belongs to another key"),
    (json.dumps({**GOOD, "privateKey": "0x12"}), "privateKey is not 128 hex digits"),
    (json.dumps({**GOOD, "privateKey": ["0x12"]}), "privateKey"),
    (json.dumps({**GOOD, "secretSeed": "0x" + "00" * 32}), "secretSeed belongs to another key"),
    (json.dumps({**GOOD, "secretPhrase": "zoo " * 11 + "wrong"}), "secretPhrase belongs to another key"),
    (json.dumps({**GOOD, "secretPhrase": "hunter2"}), "word 1 "),
    (json.dumps({**GOOD, "cryptoType": 0}), "belongs to another key"),
    (json.dumps({**GOOD, "cryptoType": 7}), "cryptoType"),
])
def test_damaged_key_files_are_explained_and_not_shown(quasar, place, content, reason):
    path = place(content)
    for args in (["show"], ["sign", "--message-hex", "00"]):
        done = quasar("wallet", *args)
        assert done.code == 3 and done.out == ""
        assert str(path) in done.err and reason in done.err
        for secret in (SEED, PRIVATE_KEY, "abandon", "hunter2", "zoo"):
            assert secret not in done.err
    error = quasar("wallet", "show", "--json").json["error"]
    assert error["exit"] == 3 and reason in error["message"]
    listed = quasar("wallet", "list")
    assert listed.code == 0 and "default" in listed.out and "abandon" not in listed.out


def test_things_that_are_no_files(quasar, hotkeys):
    (hotkeys / "folder").mkdir(parents=True)
    os.mkfifo(hotkeys / "pipe")
    (hotkeys / "nowhere").symlink_to("missing")
    for name in ("folder", "pipe", "nowhere"):
        done = quasar("wallet", "show", "--hotkey", name)
        assert done.code == 3 and name in done.err
    assert quasar("wallet", "list").out.count("damaged") == 3


def test_a_missing_hotkey_says_how_to_make_it(quasar):
    for args in (["show"], ["sign", "--message-hex", "00"]):
        done = quasar("wallet", *args, "--wallet", "mine", "--hotkey", "first")
        assert done.code == 3 and "quasar wallet new --wallet mine --hotkey first" in done.err


def test_an_unreadable_key_file(quasar, place):
    place(json.dumps(GOOD)).chmod(0)
    done = quasar("wallet", "show", bound=True)
    assert done.code == 3 and "Permission denied" in done.err


def test_a_key_open_to_others_is_warned_of(quasar, place):
    path = place(json.dumps(GOOD))
    assert quasar("wallet", "show").err == ""
    path.chmod(0o640)
    for command in ("show", "list"):
        done = quasar("wallet", command)
        assert done.code == 0 and "warning" in done.err and "chmod 600" in done.err


@pytest.mark.parametrize("keep", ["privateKey", "secretSeed", "secretPhrase"])
def test_one_secret_is_enough(quasar, place, keep):
    place(json.dumps({"ss58Address": ADDRESS, keep: GOOD[keep]}))
    assert quasar("wallet", "show", "--json").json["address"] == ADDRESS


def test_a_private_key_stored_times_eight(quasar, place):
    scalar = int.from_bytes(bytes.fromhex(PRIVATE_KEY[:64]), "little") * 8
    private_key = "0x" + scalar.to_bytes(32, "little").hex() + PRIVATE_KEY[64:]
    place(json.dumps({"ss58Address": ADDRESS, "privateKey": private_key}))
    assert quasar("wallet", "show", "--json").json["address"] == ADDRESS


# --- list -----------------------------------------------------------------------------------------

def test_list_is_sorted_and_complete(quasar):
    assert "No hotkeys" in quasar("wallet", "list").out
    assert quasar("wallet", "list", "--json").json == {"hotkeys": []}
    for wallet, hotkey in (("b", "two"), ("a", "x"), ("b", "one")):
        quasar("wallet", "new", "--wallet", wallet, "--hotkey", hotkey)
    listed = quasar("wallet", "list", "--json").json["hotkeys"]
    assert [(key["wallet"], key["hotkey"]) for key in listed] == [("a", "x"), ("b", "one"), ("b", "two")]
    text = quasar("wallet", "list").out
    assert all(key["address"] in text for key in listed) and len(text.splitlines()) == 4


def test_list_leaves_coldkeys_alone(quasar, hotkeys):
    quasar("wallet", "new")
    for name in ("coldkey", "coldkeypub.txt"):
        (hotkeys.parent / name).write_text("hunter2")
    done = quasar("wallet", "list")
    assert done.code == 0 and len(done.out.splitlines()) == 2 and "hunter2" not in done.out


# --- sign and verify ------------------------------------------------------------------------------

@pytest.mark.parametrize("message", ["", "00", "0x00ff", "AbCd", "11" * 5000])
def test_signatures_verify(quasar, message):
    address = quasar("wallet", "import", "--json", stdin=PHRASE).json["address"]
    done = quasar("wallet", "sign", "--message-hex", message)
    signature = done.out.strip()
    assert done.code == 0 and len(signature) == 128
    check = ["wallet", "verify", "--address", address, "--message-hex", message, "--signature"]
    assert quasar(*check, signature).code == 0
    forged = ("00" if signature[:2] != "00" else "01") + signature[2:]
    bad = quasar(*check, forged)
    assert bad.code == 1 and bad.err == "" and "not valid" in bad.out
    assert quasar(*check, forged, "--json").json == {"valid": False, "address": address}
    assert quasar(*check, signature, "--json").json == {"valid": True, "address": address}


@pytest.mark.parametrize("vector", VECTORS[:4], ids=lambda vector: vector["path"])
def test_signatures_of_an_independent_implementation(quasar, vector):
    for signature in vector["signatures"]:
        done = quasar("wallet", "verify", "--address", vector["ss58"], "--message-hex", signature["message"],
                      "--signature", signature["signature"])
        assert done.code == (0 if signature["valid"] else 1)


@pytest.mark.parametrize("change", [
    {"--address": None}, {"--message-hex": None}, {"--signature": None}, {"--address": "5Grw"},
    {"--address": ADDRESS[:-1] + "J"}, {"--message-hex": "0"}, {"--message-hex": "0g"},
    {"--message-hex": "0 "}, {"--signature": "00"}, {"--signature": "zz" * 64}, {"--crypto": "rsa"}])
def test_verify_with_wrong_options(quasar, change):
    options = {"--address": ADDRESS, "--message-hex": "00", "--signature": "00" * 64, **change}
    words = [word for pair in options.items() if pair[1] is not None for word in pair]
    done = quasar("wallet", "verify", *words)
    assert done.code == 2 and done.out == ""


@pytest.mark.parametrize("args", [[], ["--message-hex", "0"], ["--message-hex", "xy"],
                                  ["--message-hex", "0x0"]])
def test_sign_with_wrong_options(quasar, args):
    assert quasar("wallet", "sign", *args).code == 2


def test_help_has_examples(quasar):
    for command in ("new", "import", "list", "show", "sign", "verify"):
        done = quasar("wallet", command, "--help")
        assert done.code == 0 and "examples" in done.out and f"quasar wallet {command}" in done.out
