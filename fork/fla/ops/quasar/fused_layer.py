"""The layer's forward pass in bf16, by segments, on top of a back end; and its gradients.

Memory beyond x and the output is bounded but for the narrow half of the gate, S numbers a token:

    a segment at a time   gather, project and convolve its tokens, in one launch or piece by piece; run the operation,
                          which writes o into the memory of the output where it fits there, and where it can in the
                          place of q; the state goes on to the next segment
    then each again       the gate and the norm, and the projection of the output

Under upstream semantics head h is the h-th part of the sequence (chunk.py), so the segment that makes the outputs
of tokens a ... b needs a stretch of tokens from each of H places. Under causal semantics, and where one segment is
the whole sequence, it needs the tokens a ... b. The backward pass finds the states before smaller segments, then
computes these again from the last to the first.
"""
import typing

import torch
import torch.nn.functional as F

from fla.ops.quasar import backend
from fla.ops.quasar import graph
from fla.ops.quasar import torch_backend
from fla.ops.quasar.chunk import QuasarFunction
from fla.ops.quasar.torch_backend import CHUNK
from fla.ops.quasar.torch_backend import HISTORY
from fla.ops.quasar.torch_backend import ROWS
from fla.ops.quasar.uncompiled import uncompiled
from fla.utils import input_guard

# Of all sequences that go side by side, a multiple of CHUNK. For a width of 512, k and v take 2 KB a token, and q one more
# where it cannot lie in the output's memory.
SEGMENT = 1 << 20  # tokens
PIECE = 1 << 17  # tokens that are projected at a time where that is not one launch: another 4 KB each


class Segment(typing.NamedTuple):
    """What the output tokens first ... first + outputs - 1 are made of."""

    tokens: int  # of the sequence
    padded: int  # the same, rounded up to whole chunks
    first: int
    stretches: int  # H under upstream semantics, unless it is the whole sequence; else 1
    length: int  # tokens of a stretch
    outputs: int

    def start(self, stretch):
        """A stretch's first token; `stretch` is a number or a tensor of them."""
        return (stretch * self.padded + self.first) // self.stretches

    def overlap(self, stretch, history=0):
        """The slice of the sequence that lies in a stretch with its history, and that slice's place there."""
        begin = self.start(stretch) - history
        first, end = max(begin, 0), min(begin + history + self.length, self.tokens)
        end = max(first, end)
        return slice(first, end), slice(first - begin, end - begin)

    @property
    def exact(self):
        """Whether the stretches hold just the rows of the outputs, as a whole sequence does."""
        return self.stretches * self.length == self.outputs

    def takes_place_of_q(self, batch, semantics):
        """Whether o can lie where q is, each chunk's rows of both at one place, and the gate finds its rows there."""
        return self.exact and (semantics == "causal" or batch == 1 and self.outputs % CHUNK == 0)

    def first_rows(self, device):
        """Each head's first (token, head) row in the stretches, under upstream semantics; None where that is not asked
        for."""
        if self.exact:
            return None
        rows = self.length * self.stretches
        if CHUNK % self.stretches == 0:  # a chunk is so many whole tokens
            return torch.arange(0, self.stretches * rows, rows, device=device)
        heads = torch.arange(self.stretches, device=device)
        return heads * rows + (heads * self.padded + self.first) % self.stretches

    @property
    def rows(self):
        """The output tokens, as a slice."""
        return slice(self.first, self.first + self.outputs)

    def pieces(self, length):
        """The stretches cut into pieces of so many tokens: (tokens before it in a stretch, piece)."""
        for at in range(0, self.length, length):
            yield at, self._replace(first=self.first + at * self.stretches, length=min(length, self.length - at))


def segments(tokens, heads, semantics, size):
    """The segments of a sequence, of `size` output tokens each."""
    padded = -(-tokens // CHUNK) * CHUNK
    for first in range(0, tokens, size):
        outputs = min(size, tokens - first)
        if semantics == "causal" or outputs == tokens:
            yield Segment(tokens, padded, first, 1, outputs, outputs)
        else:
            rows = -(-outputs // CHUNK) * CHUNK
            before = 0 if CHUNK % heads == 0 else heads - 1  # rows of a stretch's first token that are not its head's
            yield Segment(tokens, padded, first, heads, (before + rows - 1) // heads + 1, outputs)


class Parameters(typing.NamedTuple):
    """The layer's."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    narrow: torch.Tensor
    q_taps: torch.Tensor
    k_taps: torch.Tensor
    v_taps: torch.Tensor
    beta_log: torch.Tensor
    wider: torch.Tensor
    bias: torch.Tensor
    norm: torch.Tensor
    output: torch.Tensor


class Weights(typing.NamedTuple):
    """The parameters as back ends take them."""

    projection: torch.Tensor  # [3 W + S, hidden] bf16: q, k, v and narrow
    taps: torch.Tensor  # [3, 4, W] fp32
    beta: torch.Tensor  # [H] fp32
    wider: torch.Tensor  # [W, S] bf16
    bias: torch.Tensor  # [W] bf16
    norm: torch.Tensor  # [S] fp32
    output: torch.Tensor  # [hidden, W] bf16


def pack(p):
    """Parameters to Weights. Made anew for each call: a parameter may change behind the back of its version
    counter, as p.data.copy_() does."""
    width, hidden = p.q.shape
    size = p.norm.shape[0]
    weights = [x.new_empty(shape, dtype=torch.bfloat16) for x, shape in (
        (p.q, (3 * width + size, hidden)), (p.wider, p.wider.shape), (p.bias, p.bias.shape),
        (p.output, p.output.shape))]
    places = [*weights[0].split((width, width, width, size)), *weights[1:]]
    torch._foreach_copy_(places, [p.q, p.k, p.v, p.narrow, p.wider, p.bias, p.output])
    taps = torch.stack([x.squeeze(1).t() for x in (p.q_taps, p.k_taps, p.v_taps)]).float()
    projection, wider, bias, output = weights
    return Weights(projection, taps, F.softplus(p.beta_log.float()), wider, bias, p.norm.float(), output)


def unpack(gradients, p):
    """Gradients of Weights to those of Parameters."""
    width, size = p.q.shape[0], p.norm.shape[0]
    found = Parameters(*gradients.projection.split((width, width, width, size)),
                       *(x.t().unsqueeze(1) for x in gradients.taps),
                       gradients.beta * torch.sigmoid(p.beta_log.float()), *gradients[3:])
    return [x.to(parameter.dtype) for x, parameter in zip(found, p)]


def side_by_side(x, tokens):
    """x [B, T, ...]: how many sequences go side by side, one at least, and together no more than so many tokens."""
    return max(1, tokens // x.shape[1])


def attend(x, weights, segment, state, semantics, compute, narrow, memory):
    """Writes the operation's outputs of a segment into memory [B, outputs, W], where q is first if they can take its
    place, and the gate's narrow half of its stretches into narrow [B, T, S]. Returns the outputs as [B, outputs, H, S],
    and the state after them."""
    batch, heads, size = len(x), len(weights.beta), len(weights.norm)
    shape = batch, segment.stretches, segment.length, heads * size
    in_place = compute.IN_PLACE and segment.takes_place_of_q(batch, semantics)
    q = memory.view(shape) if in_place else memory.new_empty(shape)
    rows = q, *memory.new_empty(2, *shape)
    if not compute.project(x, weights, segment, *rows, narrow):
        for at, piece in segment.pieces(-(-PIECE // (batch * segment.stretches))):
            projected = torch.mm(compute.gather(x, piece), weights.projection.t())
            compute.convolve(projected, weights.taps, piece, *(y[:, :, at:] for y in rows), narrow, segment.length)
    if in_place and semantics == "upstream":
        o = memory.view(batch, heads, segment.outputs, size).transpose(1, 2)
    else:
        o = memory.view(batch, segment.outputs, heads, size)
    return compute.forward(*(y.view(batch, -1, heads, size) for y in rows), weights.beta, state, semantics,
                           segment.first_rows(x.device), segment.outputs, o)


def gated_segments(x, weights, eps, semantics, compute, memory):
    """What the output of x [B, T, hidden] is projected from, segment by segment: (rows, y [B * rows, W] bf16). B is 1
    where T is longer than a segment. memory [B, T, W] bf16 is used; what lies at `rows` in it is not once y is there."""
    batch, tokens, width = memory.shape
    size = len(weights.norm)
    narrow = memory.new_empty(batch, tokens, size)
    state, attended = None, []
    for segment in segments(tokens, len(weights.beta), semantics, SEGMENT):
        o, state = attend(x, weights, segment, state, semantics, compute, narrow, memory[:, segment.rows])
        attended.append((segment.rows, o.flatten(0, 1)))
    for rows, o in attended:
        y = memory.new_empty(len(o), width)
        compute.gate(o, narrow[:, rows].view(-1, size), weights.wider, weights.bias, weights.norm, eps, y)
        yield rows, y


def layer_forward(x, weights, eps, semantics, compute, out):
    """x [B, T, hidden] to out [B, T, hidden] bf16; B is 1 where T is longer than a segment."""
    (batch, tokens, hidden), width = x.shape, len(weights.wider)
    # where o has just the shape of the output it waits in the output's memory
    memory = out if hidden == width else out.new_empty(batch, tokens, width)
    for rows, y in gated_segments(x, weights, eps, semantics, compute, memory):
        torch.mm(y, weights.output.t(), out=out[:, rows].view(-1, hidden))


def segment_forward(xs, own, state, weights, segment, eps, semantics, compute):
    """One segment so that it can be differentiated: from xs, its stretches gathered, and own [B, outputs, hidden], the
    tokens of its outputs, both bf16. Returns the outputs and the state after it."""
    batch, heads, size = len(own), len(weights.beta), len(weights.norm)
    projected = F.linear(xs, weights.projection[:-size])
    q, k, v = (y.reshape(batch, -1, heads, size)
               for y in torch_backend.convolved(projected, weights.taps, segment))
    first_rows = segment.first_rows(xs.device)
    o, state = QuasarFunction.apply(compute.forward, q, k, v, weights.beta, state, semantics, first_rows, segment.outputs)
    narrow = F.linear(own, weights.projection[-size:])
    y = torch_backend.gated(o, narrow, weights.wider, weights.bias, weights.norm, eps)
    return F.linear(y, weights.output), state


def layer_backward(x, weights, eps, semantics, compute, output_gradient, x_gradient, weight_gradients):
    """Adds the gradients to x_gradient [B, T, hidden] and weight_gradients, all fp32. B is 1 where T is longer than
    a segment."""
    (batch, tokens, _), heads, size = x.shape, len(weights.beta), len(weights.norm)
    pieces = list(segments(tokens, heads, semantics, max(CHUNK, ROWS // heads // CHUNK * CHUNK)))
    states = [torch.zeros(batch, heads, size, size, device=x.device)]
    if len(pieces) > 1:
        narrow = x.new_empty(batch, tokens, size, dtype=torch.bfloat16)
        memory = narrow.new_empty(batch, pieces[0].outputs, heads * size)
    for segment in pieces[:-1]:
        states.append(attend(x, weights, segment, states[-1], semantics, compute, narrow, memory)[1])
    state_gradient = torch.zeros_like(states[0])
    for segment in reversed(pieces):
        own = x[:, segment.rows].to(torch.bfloat16)
        inputs = torch_backend.gather(x, segment), own, states.pop(), *weights
        of_xs, of_own, state_gradient, *of_weights = torch_backend.gradients_of(
            lambda xs, own, state, *weights: segment_forward(
                xs, own, state, Weights(*weights), segment, eps, semantics, compute),
            inputs, (output_gradient[:, segment.rows], state_gradient))
        for total, value in zip(weight_gradients, of_weights):
            total += value
        x_gradient[:, segment.rows] += of_own
        of_xs = torch_backend.by_stretch(of_xs, segment)
        for stretch in range(segment.stretches):
            target, source = segment.overlap(stretch, HISTORY)
            x_gradient[:, target] += of_xs[:, stretch, source]


def batch_forward(x, parameters, eps, semantics, compute):
    """x [B, T, hidden] to the layer's output, as many sequences at a time as a segment has room for."""
    out = x.new_empty(x.shape, dtype=torch.bfloat16)
    count = side_by_side(x, SEGMENT)
    with torch.autocast(x.device.type, enabled=False):
        weights = pack(parameters)
        for sequences, results in zip(x.split(count), out.split(count)):
            layer_forward(sequences, weights, eps, semantics, compute, results)
    return out


def gated_forward(x, parameters, eps, semantics, compute):
    """x [B, T, hidden], no more than a segment, to what project takes."""
    with torch.autocast(x.device.type, enabled=False):
        weights = pack(parameters)
        memory = x.new_empty(*x.shape[:2], len(weights.wider), dtype=torch.bfloat16)
        [(_, y)] = gated_segments(x, weights, eps, semantics, compute, memory)
    return y.view_as(memory), weights.output


def project(y, weight):
    """The rest of the layer. Not part of a graph, so that the result is the caller's, and need not be copied."""
    out = y.new_empty(*y.shape[:2], len(weight))
    torch.mm(y.flatten(0, 1), weight.t(), out=out.view(-1, len(weight)))
    return out


class FusedLayer(torch.autograd.Function):
    """Keeps only x and the parameters."""

    @staticmethod
    @input_guard
    def forward(ctx, x, eps, semantics, *parameters):
        ctx.save_for_backward(x, *parameters)
        ctx.eps, ctx.semantics = eps, semantics
        parameters = Parameters(*parameters)
        compute = backend.choose(x.device, torch.bfloat16, parameters.norm.shape[0])
        if graph.takes(x):
            key = compute, eps, semantics, *(parameter.data_ptr() for parameter in parameters)
            return graph.run(lambda x: gated_forward(x, parameters, eps, semantics, compute), project, x, key)
        return batch_forward(x, parameters, eps, semantics, compute)

    @staticmethod
    @torch.autograd.function.once_differentiable
    @input_guard
    def backward(ctx, output_gradient):
        x, *parameters = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            weights = pack(Parameters(*parameters))
            compute = backend.choose(x.device, torch.bfloat16, len(weights.norm))
            x_gradient = torch.zeros(x.shape, device=x.device)
            weight_gradients = Weights(*(torch.zeros(y.shape, device=y.device) for y in weights))
            count = side_by_side(x, ROWS // len(weights.beta))
            for sequences in zip(*(y.split(count) for y in (x, output_gradient, x_gradient))):
                layer_backward(sequences[0], weights, ctx.eps, ctx.semantics, compute, *sequences[1:],
                               weight_gradients)
        return x_gradient.to(x.dtype), None, None, *unpack(weight_gradients, Parameters(*parameters))


@uncompiled
def fused_layer(x, parameters, eps, semantics):
    """x [B, T, hidden] fp32 or bf16, T > 0, to the layer's output in bf16."""
    return FusedLayer.apply(x, eps, semantics, *parameters)
