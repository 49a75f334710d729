"""CUDA graphs of short sequences."""
import threading

import pytest
import torch
from fla.layers.quasar import QuasarAttention
from fla.ops.quasar import graph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


@pytest.fixture
def layer(compute):
    return QuasarAttention(64, 32, 2)


def eager(layer, x, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(graph, "LONGEST", 0)
        return layer(x)[0]


def test_a_replay_is_the_same(layer, autocast, monkeypatch):
    with autocast:
        for tokens in (1, 100, 64, 100):
            for _ in range(4):
                x = torch.randn(2, tokens, 64)
                first, second = layer(x)[0], layer(x)[0]
                assert torch.equal(first, eager(layer, x, monkeypatch))
                assert torch.equal(first, second) and first.data_ptr() != second.data_ptr()


def test_changed_parameters_count(layer, autocast, monkeypatch):
    x = torch.randn(1, 100, 64)
    with autocast:
        for _ in range(3):
            before = layer(x)[0]
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(1.5)
        after = layer(x)[0]
        assert not torch.equal(before, after) and torch.equal(after, eager(layer, x, monkeypatch))


def test_gradients(layer, autocast, monkeypatch):
    found = []
    for longest in (graph.LONGEST, graph.LONGEST, graph.LONGEST, 0):
        monkeypatch.setattr(graph, "LONGEST", longest)
        torch.manual_seed(3)
        x = torch.randn(1, 100, 64, requires_grad=True)
        with autocast:
            layer(x)[0].float().square().sum().backward()
        found.append(x.grad)
    assert all(torch.equal(value, found[-1]) for value in found)


def test_within_a_capture(layer, autocast, monkeypatch):
    """A graph of the user's own takes the layer in as it is."""
    x = torch.randn(1, 100, 64)
    with autocast, torch.no_grad():
        layer(x)
        mine = torch.cuda.CUDAGraph()
        with torch.cuda.graph(mine):
            o = layer(x)[0]
        x.normal_()
        mine.replay()
        assert torch.equal(o, eager(layer, x, monkeypatch))


def test_streams_and_threads(layer, autocast, monkeypatch):
    """Each stream has its own memory."""
    xs = [torch.randn(1, 700, 64) for _ in range(4)]
    with autocast:
        right = [eager(layer, x, monkeypatch) for x in xs]
    torch.cuda.synchronize()
    wrong = []

    def work(x, expected):
        with torch.cuda.stream(torch.cuda.Stream()), torch.autocast("cuda", torch.bfloat16), torch.no_grad():
            results = [layer(x)[0] for _ in range(20)]
            torch.cuda.current_stream().synchronize()
        wrong.extend(1 for result in results if not torch.equal(result, expected))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(xs, right)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_few_are_kept(layer, autocast):
    with autocast:
        for tokens in range(1, 2 * graph.MOST):
            layer(torch.randn(1, tokens, 64))
    assert len(graph.graphs) <= graph.MOST
