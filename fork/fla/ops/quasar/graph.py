"""CUDA graphs for sequences that take the host longer to launch kernels for than the GPU to run them."""
import collections
import threading

import torch

LONGEST = 1 << 17  # tokens, all sequences of a batch together; above that the host keeps ahead of the GPU
# What is kept; the least recently used go first. For each number of x a graph holds 6 to 11 bytes where the layer is
# as wide as x, and those of x where it has a place of its own: for a width of 512, 3 to 8 KB a token.
MOST = 32  # graphs
MOST_NUMBERS = 1 << 27  # of the x of all of them together


class Graph:
    """A call's, captured when it is first replayed.

    It reads x where it lies, which takes no copy but holds only for calls with x at that address, as a loop's with a
    buffer of its own. The first x from elsewhere gives the graph a place to which each x is then copied, so that two
    captures are the most there are.
    """

    def __init__(self, x):
        self.numbers, self.address = x.numel(), x.data_ptr()
        self.place = self.graph = self.out = None

    def __call__(self, compute, x):
        if self.place is None and x.data_ptr() != self.address:
            self.graph = self.out = None
            with torch.inference_mode(False):  # whoever comes next may not write to a tensor made in that mode
                self.place = torch.empty_like(x)
        if self.place is not None:
            x = self.place.copy_(x)
        if self.graph is None:
            self.capture(compute, x)
        self.graph.replay()
        return self.out.clone()

    def capture(self, compute, x):
        graph = torch.cuda.CUDAGraph()
        # the stream that PyTorch would take is of the GPU that was first captured on
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(x.device), capture_error_mode="thread_local"):
            self.out = compute(x)
        self.graph = graph


graphs = collections.OrderedDict()  # by a call's key
lock = threading.Lock()


def run(compute, x, key):
    """compute(x), x a contiguous tensor [B, T, hidden] on the current GPU. From the second time on it is replayed: the
    first compiles and measures what compute needs. `key` is all that the result depends on but x's values, and its
    addresses: what lies there may change. A stream has its own graphs, so that their memory is not used twice at a
    time."""
    if (not x.is_cuda or x.shape[0] * x.shape[1] > LONGEST or x.numel() > MOST_NUMBERS
            or torch.cuda.is_current_stream_capturing()):
        return compute(x)
    key = (*key, x.shape, x.dtype, x.device, torch.cuda.current_stream(x.device).cuda_stream)
    with lock:
        if key in graphs:
            graphs.move_to_end(key)
            return graphs[key](compute, x)
        graphs[key] = Graph(x)
        while len(graphs) > MOST or sum(graph.numbers for graph in graphs.values()) > MOST_NUMBERS:
            graphs.popitem(last=False)
    return compute(x)
