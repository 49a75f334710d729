"""quasar wallet against bittensor-wallet and sr25519 bindings, in both directions."""
import json
import pathlib
import subprocess
import sys

import pytest
import sr25519
from bittensor_wallet import Keyfile, Keypair, Wallet

CRYPTO = {"ed25519": 0, "sr25519": 1}
PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"
SEED = "4ed8d4b17698ddeaa1f1559f152f87b5d472f725ca86d341bd0276f1b61197e2"
# around the 166 bytes that a transcript takes between two permutations
MESSAGES = [b"", b"\x00", b"message", bytes(range(256)), *(b"x" * n for n in range(110, 170, 7)), b"y" * 5000]


@pytest.fixture
def wallets(home):
    return home / ".bittensor" / "wallets"


@pytest.fixture
def theirs(wallets):
    """bittensor-wallet's view of a hotkey of our default wallet."""

    def make(hotkey="default"):
        return Wallet(name="quasar_miner", hotkey=hotkey, path=str(wallets))

    return make


def our_signature(quasar, message, *options, env=None):
    done = quasar("wallet", "sign", "--message-hex", message.hex(), *options, env=env)
    assert done.code == 0, done.err
    return bytes.fromhex(done.out)


def we_accept(quasar, address, message, signature, crypto="sr25519"):
    code = quasar("wallet", "verify", "--address", address, "--message-hex", message.hex(),
                  "--signature", signature.hex(), "--crypto", crypto).code
    assert code in (0, 1)
    return code == 0


# --- key files ------------------------------------------------------------------------------------

@pytest.mark.parametrize("crypto", CRYPTO)
@pytest.mark.parametrize("words", [12, 15, 18, 21, 24])
def test_their_new_key_files_are_read(quasar, theirs, crypto, words):
    theirs().create_new_hotkey(n_words=words, use_password=False, suppress=True, crypto_type=CRYPTO[crypto])
    key = theirs().get_hotkey()
    shown = quasar("wallet", "show", "--json").json
    assert (shown["address"], shown["crypto"]) == (key.ss58_address, crypto)
    assert key.verify(b"message", our_signature(quasar, b"message"))


@pytest.mark.parametrize("crypto", CRYPTO)
@pytest.mark.parametrize("words", [12, 15, 18, 21, 24])
def test_our_new_key_files_are_read(quasar, theirs, crypto, words):
    made = quasar("wallet", "new", "--words", words, "--crypto", crypto, "--json").json
    key = theirs().get_hotkey()
    assert (key.ss58_address, key.crypto_type) == (made["address"], CRYPTO[crypto])
    assert Keypair.create_from_mnemonic(made["mnemonic"], CRYPTO[crypto]).ss58_address == made["address"]
    assert theirs().get_hotkeypub().ss58_address == made["address"]
    assert we_accept(quasar, made["address"], b"message", key.sign(b"message"), crypto)


@pytest.mark.parametrize("secret", [PHRASE, SEED, PHRASE + "//hard/soft"])
def test_our_key_files_are_read_by_an_older_version(quasar, wallets, secret):
    made = quasar("wallet", "import", "--json", stdin=secret).json
    script = ("import sys; from bittensor_wallet import Wallet; "
              "key = Wallet(name='quasar_miner', hotkey='default', path=sys.argv[1]).hotkey; "
              "print(key.ss58_address, key.sign(b'message').hex())")
    done = subprocess.run([sys.executable, "-c", script, wallets], env={"PYTHONPATH": str(pathlib.Path(sys.prefix, "older"))},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    address, signature = done.stdout.split()
    assert address == made["address"]
    assert we_accept(quasar, address, b"message", bytes.fromhex(signature))


@pytest.mark.parametrize("crypto", CRYPTO)
def test_key_files_of_the_same_phrase_say_the_same(quasar, theirs, wallets, crypto):
    """But for the cryptoType of sr25519 keys, with which their older versions cannot read them."""
    theirs("a").regenerate_hotkey(mnemonic=PHRASE, suppress=True, crypto_type=CRYPTO[crypto])
    quasar("wallet", "import", "--hotkey", "b", "--crypto", crypto, stdin=PHRASE)
    folder = wallets / "quasar_miner" / "hotkeys"
    for suffix in ("", "pub.txt"):
        their_file, our_file = folder / f"a{suffix}", folder / f"b{suffix}"
        said = json.loads(our_file.read_text())
        assert ("cryptoType" in said) == (crypto == "ed25519")
        assert {"cryptoType": 1, **said} == json.loads(their_file.read_text())
        assert our_file.stat().st_mode == their_file.stat().st_mode


@pytest.mark.parametrize("seed", [SEED, "41" * 32, "c3a9" * 16])
def test_their_key_files_from_a_seed_are_read(quasar, theirs, seed):
    theirs().regenerate_hotkey(seed="0x" + seed, suppress=True)
    address = Keypair.create_from_seed("0x" + seed).ss58_address
    assert quasar("wallet", "show", "--json").json["address"] == address
    assert quasar("wallet", "import", "--force", "--json", stdin=seed).json["address"] == address
    assert theirs().get_hotkey().ss58_address == address


def test_their_encrypted_key_files_are_read(quasar, theirs):
    password = "Pässwort mit 3 Wörtern"
    theirs().create_new_hotkey(use_password=True, suppress=True, hotkey_password=password)
    key = theirs().get_hotkeypub()
    signature = our_signature(quasar, b"message", env={"WALLET_PASSWORD": password})
    assert key.verify(b"message", signature)
    assert quasar("wallet", "show", "--json").json["address"] == key.ss58_address


def test_our_encrypted_key_files_are_read(quasar, theirs):
    password = "Pässwort mit 3 Wörtern"
    made = quasar("wallet", "new", "--encrypt", "--crypto", "ed25519", "--json",
                  env={"WALLET_PASSWORD": password}).json
    assert theirs().hotkey_file.is_encrypted()
    key = theirs().get_hotkey(password=password)
    assert (key.ss58_address, key.crypto_type) == (made["address"], CRYPTO["ed25519"])
    assert we_accept(quasar, made["address"], b"message", key.sign(b"message"), "ed25519")


@pytest.mark.long
def test_their_variable_for_the_password_is_understood(quasar, theirs, wallets):
    path = str(wallets / "quasar_miner" / "hotkeys" / "default")
    quasar("wallet", "import", "--encrypt", stdin=PHRASE, env={"WALLET_PASSWORD": "correct horse"})
    name = Keyfile(path, "default").env_var_name()
    assert name == theirs().hotkey_file.env_var_name()
    value = Keyfile(path, "default").save_password_to_env("correct horse")
    signature = our_signature(quasar, b"message", env={name: value})
    assert theirs().get_hotkeypub().verify(b"message", signature)


# --- derivation -----------------------------------------------------------------------------------

HARD = ["//hard", "//1", "//+1", "//01", "//18446744073709551615", "//18446744073709551616", "//-1", "//1x",
        "//ключ", "//a b", "//.", *(f"//{'n' * length}" for length in (30, 31, 32, 33, 63, 64, 200)),
        "//a//b//c", "///password", "//x///pass word", "//x///pass/word//with/slashes", "///ключ"]
SOFT = ["/soft", "/1", "//miner/0", "/a/b/c", "//a/b//c", "/soft///password"]


@pytest.mark.parametrize("crypto, path", [("sr25519", path) for path in HARD + SOFT] +
                         [("ed25519", path) for path in HARD])
def test_derivations_agree(quasar, theirs, crypto, path):
    key = Keypair.create_from_uri(PHRASE + path, CRYPTO[crypto])
    done = quasar("wallet", "import", "--crypto", crypto, "--json", stdin=PHRASE + path)
    assert done.json["address"] == key.ss58_address
    assert theirs().get_hotkey().ss58_address == key.ss58_address
    assert key.verify(b"message", our_signature(quasar, b"message"))


@pytest.mark.parametrize("path", ["", "//hard", "/soft", "//a/b"])
def test_derivations_of_a_seed_agree(quasar, path):
    uri = "0x" + SEED + path
    assert (quasar("wallet", "import", "--json", stdin=uri).json["address"]
            == Keypair.create_from_uri(uri).ss58_address)


@pytest.mark.parametrize("crypto, path", [("sr25519", "//"), ("sr25519", "/a//"), ("ed25519", "/soft")])
def test_what_they_refuse_is_refused(quasar, crypto, path):
    with pytest.raises(Exception):
        Keypair.create_from_uri(PHRASE + path, CRYPTO[crypto])
    assert quasar("wallet", "import", "--crypto", crypto, stdin=PHRASE + path).code == 2


def test_their_key_files_of_derived_keys_are_read(quasar, theirs):
    theirs().create_hotkey_from_uri(PHRASE + "//hard/soft///password")
    assert (quasar("wallet", "show", "--json").json["address"]
            == Keypair.create_from_uri(PHRASE + "//hard/soft///password").ss58_address)


# --- signatures -----------------------------------------------------------------------------------

@pytest.mark.parametrize("crypto", CRYPTO)
def test_signatures_of_messages_of_many_lengths(quasar, theirs, crypto):
    quasar("wallet", "new", "--crypto", crypto)
    key = theirs().get_hotkey()
    for message in MESSAGES:
        assert key.verify(message, our_signature(quasar, message))
        signature = key.sign(message)
        assert we_accept(quasar, key.ss58_address, message, signature, crypto)
        assert not we_accept(quasar, key.ss58_address, message + b"x", signature, crypto)
        for byte in (0, 31, 32, 63):
            changed = bytearray(signature)
            changed[byte] ^= 4
            assert not we_accept(quasar, key.ss58_address, message, bytes(changed), crypto)
            assert not key.verify(message, bytes(changed))


def test_signatures_of_the_sr25519_bindings(quasar, theirs):
    public_key, secret_key = sr25519.pair_from_seed(bytes.fromhex(SEED))
    address = quasar("wallet", "import", "--json", stdin=SEED).json["address"]
    assert theirs().get_hotkey().public_key == public_key
    assert quasar("wallet", "import", "--force", "--json", stdin=secret_key.hex()).json["address"] == address
    for message in MESSAGES:
        assert sr25519.verify(our_signature(quasar, message), message, public_key)
        assert we_accept(quasar, address, message, sr25519.sign((public_key, secret_key), message))
