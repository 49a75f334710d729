"""CUDA graphs of sequences that are not too long."""
import threading

import pytest
import torch
from fla.layers.quasar import QuasarAttention
from fla.ops.quasar import graph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


@pytest.fixture
def layer(compute):
    graph.graphs.clear()
    return QuasarAttention(64, 32, 2)


@pytest.fixture
def captures(monkeypatch):
    """Those that were made."""
    made, capture = [], graph.Graph.capture

    def watched(self, compute, x):
        made.append(x.data_ptr())
        capture(self, compute, x)

    monkeypatch.setattr(graph.Graph, "capture", watched)
    return made


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


def test_x_is_read_where_it_lies(layer, autocast, captures, monkeypatch):
    """Anew in each call; and once one lay elsewhere, they are copied to one place."""
    xs = torch.randn(5, 1, 100, 64)
    with autocast:
        for _ in range(4):
            assert torch.equal(layer(xs[0])[0], eager(layer, xs[0], monkeypatch))
            xs[0].normal_()
        assert captures == [xs[0].data_ptr()]
        for x in (*xs[1:], *xs):
            assert torch.equal(layer(x)[0], eager(layer, x, monkeypatch))
        assert len(captures) == 2 and captures[1] not in [x.data_ptr() for x in xs]


def test_x_that_is_freed(layer, autocast, monkeypatch):
    """A graph does not read where no x is any more."""
    with autocast:
        for _ in range(3):
            x = torch.randn(1, 100, 64)
            for _ in range(3):
                layer(x)
            del x
            torch.cuda.empty_cache()
            x = torch.randn(1, 100, 64)
            assert torch.equal(layer(x)[0], eager(layer, x, monkeypatch))


def test_the_longest(layer, autocast, captures):
    with autocast, torch.no_grad():
        x = torch.randn(1, graph.LONGEST, 64)
        first, second, third = (layer(x)[0] for _ in range(3))
        assert torch.equal(first, second) and torch.equal(second, third) and captures == [x.data_ptr()]
        x = torch.randn(1, graph.LONGEST + 1, 64)
        for _ in range(3):
            layer(x)
    assert len(captures) == 1


def test_inference_mode(layer, autocast, captures, monkeypatch):
    """A place that was made in it is written to outside."""
    xs = torch.randn(4, 1, 100, 64)
    with autocast:
        with torch.inference_mode():
            for x in xs:
                layer(x)
        for x in xs:
            assert torch.equal(layer(x)[0], eager(layer, x, monkeypatch))
    assert len(captures) == 1


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


def test_large_ones_push_others_out(layer, autocast, captures, monkeypatch):
    """Their results stay; what is too large for all of the room is not kept, and pushes none out."""
    monkeypatch.setattr(graph, "MOST_NUMBERS", 64 * 1000)
    xs = [torch.randn(1, tokens, 64) for tokens in (300, 400, 500, 1001)]
    with autocast, torch.no_grad():
        results = [[layer(x)[0] for _ in range(3)] for x in xs]
        assert captures == [x.data_ptr() for x in xs[:3]]
        assert [kept.numbers for kept in graph.graphs.values()] == [64 * 400, 64 * 500]
        for x, found in zip(xs, results):
            right = eager(layer, x, monkeypatch)
            assert all(torch.equal(result, right) for result in found)


def test_too_many_in_turn_are_not_captured(layer, autocast, captures, monkeypatch):
    """Rather than each of them again and again."""
    monkeypatch.setattr(graph, "MOST_NUMBERS", 64 * 1000)
    xs = torch.randn(4, 300, 64)
    with autocast, torch.no_grad():
        for _ in range(3):
            for tokens in (300, 299, 298, 297):
                layer(xs[:1, :tokens])
    assert not captures


def test_memory_of_graphs(layer, compute, autocast):
    """What a graph holds is given back once it is gone."""
    layer, x = QuasarAttention(512, 64, 8), torch.randn(1, 1 << 16, 512)
    reserved = []
    with autocast, torch.no_grad():
        for _ in range(3):
            layer(x)
    for _ in range(2):
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
        graph.graphs.clear()
    held = (reserved[0] - reserved[1]) / x.numel()
    assert 2 < held  # bytes for each number of x
    assert compute == "torch" or held < 20
