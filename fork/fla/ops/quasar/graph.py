"""CUDA graphs for sequences whose kernels the host takes longer to launch than the GPU to run."""
import collections
import threading

import torch

LONGEST = 1 << 17  # tokens, all sequences of a batch together; above that the host keeps ahead of the GPU
# What is kept; the least recently used go first. With the kernels, and a layer as wide as x, a graph holds 6 to 17 bytes
# for each number of x, the fewest where x to q, k and v is one launch; and x's own where it has a place for x. For a
# width of 512 that is 3 to 11 KB a token. The torch back end holds more: up to torch_backend.ROWS rows' results.
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
        self.place = self.graph = self.found = None

    def __call__(self, compute, finish, x):
        if self.place is None and x.data_ptr() != self.address:
            self.graph = self.found = None
            with torch.inference_mode(False):  # whoever comes next may not write to a tensor made in that mode
                self.place = torch.empty_like(x)
        if self.place is not None:
            x = self.place.copy_(x)
        if self.graph is None:
            self.capture(compute, x)
        self.graph.replay()
        return finish(*self.found)

    def capture(self, compute, x):
        graph = torch.cuda.CUDAGraph()
        # the stream that PyTorch would take is of the GPU that was first captured on
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(x.device), capture_error_mode="thread_local"):
            self.found = compute(x)
        self.graph = graph


graphs = collections.OrderedDict()  # by a call's key
lock = threading.Lock()


def takes(x):
    """Whether x [B, T, hidden] is for run."""
    return (x.is_cuda and x.shape[0] * x.shape[1] <= LONGEST and x.numel() <= MOST_NUMBERS
            and not torch.cuda.is_current_stream_capturing())


def run(compute, finish, x, key):
    """finish(*compute(x)), a new tensor; x is contiguous, on the current GPU. From the second time on compute is
    replayed: the first compiles and measures what it needs. `key` is all that the result depends on but x's values,
    and its addresses: what lies there may change. A stream has its own graphs, so that their memory is not used twice
    at a time."""
    key = (*key, x.shape, x.dtype, x.device, torch.cuda.current_stream(x.device).cuda_stream)
    with lock:  # until finish has been queued, for the next replay writes where it reads
        if key in graphs:
            graphs.move_to_end(key)
            return graphs[key](compute, finish, x)
        graphs[key] = Graph(x)
        while len(graphs) > MOST or sum(graph.numbers for graph in graphs.values()) > MOST_NUMBERS:
            graphs.popitem(last=False)
    return finish(*compute(x))
