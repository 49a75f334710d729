"""Fixtures of the tests against independent implementations."""
import pytest

from bittensor_wallet import Keypair
from localnet import DeployedValidator, Miner, PeerValidator, servers


@pytest.fixture(scope="session")
def why_not_deployed():
    return DeployedValidator.why_not()


@pytest.fixture(params=["peer", "deployed"])
def start_validator(request, environment, tmp_path):
    """Starts validators: start_validator("--blocks-until-reveal", 2, …). They end with the test."""
    if request.param == "deployed" and (reason := request.getfixturevalue("why_not_deployed")):
        pytest.skip(reason)
    kind = PeerValidator if request.param == "peer" else DeployedValidator
    with servers(tmp_path, request.param, lambda place, args: kind(environment, place, args)) as start:
        yield start


@pytest.fixture
def start_peer(environment, tmp_path):
    """Starts api_server.py, of any version: start_peer("--like", "2026-04", …)."""
    with servers(tmp_path, "peer", lambda place, args: PeerValidator(environment, place, args)) as start:
        yield start


@pytest.fixture
def validator(start_validator):
    """One with blocks of 0.2 s and reveals after 5 of them."""
    return start_validator("--block-time", "0.2", "--blocks-until-reveal", "5")


@pytest.fixture
def peer_miner():
    """Makes a miner whose key and signatures are bittensor-wallet's: peer_miner("//Alice")."""

    def make(uri):
        keypair = Keypair.create_from_uri(uri)
        return Miner(keypair.ss58_address, keypair.sign(keypair.ss58_address.encode()).hex())

    return make
