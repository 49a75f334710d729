"""Several GPUs in one process: a layer works on the one that its parameters are on, whichever is current."""
import copy
import threading

import pytest
import torch
from fla.layers.quasar import QuasarAttention

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are needed")

LENGTHS = (100, 3000, 100)  # short ones are captured in CUDA graphs


@pytest.fixture
def layers(compute):
    """The same layer on each GPU."""
    layer = QuasarAttention(128, 64, 2)
    return [copy.deepcopy(layer).to(f"cuda:{index}") for index in range(torch.cuda.device_count())]


@pytest.fixture
def inputs():
    return [torch.randn(1, tokens, 128) for tokens in LENGTHS]


def outputs(layer, inputs):
    device = layer.beta_log.device
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        found = [layer(x.to(device))[0] for x in inputs for _ in range(4)]
    assert all(out.device == device for out in found)
    return [out.cpu() for out in found]


def test_in_turns(layers, inputs):
    right = outputs(layers[0], inputs)
    for layer in [*layers[1:], *layers]:
        assert all(map(torch.equal, outputs(layer, inputs), right))


def test_gradients(layers, inputs):
    found = []
    for layer in layers:
        x = inputs[1].to(layer.beta_log.device, copy=True).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            layer(x)[0].float().square().sum().backward()
        found.append(x.grad.cpu())
    assert all(torch.equal(gradient, found[0]) for gradient in found)


def test_at_the_same_time(layers, inputs):
    right = outputs(layers[0], inputs)
    found = {}
    threads = [threading.Thread(target=lambda layer=layer: found.setdefault(layer, outputs(layer, inputs)))
               for layer in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for layer in layers:
        assert all(map(torch.equal, found[layer], right))
