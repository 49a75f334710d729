"""The Triton kernels of triton_backend.py.

For a chunk of 64 rows Q, K, V [64, S] and the state M [S, S] (key by value dimension) before it
    L = I + tril(D K K^T, -1),  D = diag(alpha),  T = L^-1 D
    N = T (V - K M),  M' = M + K^T N = P M + R,  P = I - K^T T K,  R = K^T T V
    causal:    o = Q M + tril(Q K^T) N
    upstream:  o = Q M'', M'' made from M' by the same chunk once more
The sequence is parallel over groups of chunks:
    chunk_inverse     T of every chunk
    chunk_transition  a group's P and R, composed from its last chunk to its first:
                      X = A K^T T,  A -= X K,  B += X V, from A = I, B = 0 to P = A, R = B.
                      Once nothing of A is left, the earlier chunks do not matter and the walk ends.
    chunk_output      a group's starting state by the transitions of the groups before it, then its chunks

Rows of A and B, and of the transposed state, do not depend on each other: they are split over programs where S is
large, and all products with them have the fp32 accumulator of the one before as their left factor, which therefore
stays in registers.

Tensors are contiguous. `first_rows`, or what stands for it, counts rows of S numbers: row r of chunk c of a head is
row first + (64 c + r) * step of its batch.

PRECISION tells how products are made: "bf16" for bf16 input, else the name of a way to multiply fp32.
"""
import os

import torch
import triton
import triton.language as tl

CHUNK = tl.constexpr(64)
BLOCK = tl.constexpr(16)  # rows of the blocks by which a chunk's triangle is inverted
PART = tl.constexpr(32)  # columns of K that chunk_inverse has in registers at a time
MOST_GROUPS = tl.constexpr(256)  # of a sequence
NEGLIGIBLE = tl.constexpr(6e-8)  # lost in the sums of fp32 anyway
CHUNKS_A_LOOK = tl.constexpr(8)  # chunks between two looks whether what is left of A is negligible


def kernel(function):
    """A kernel of which one compiled version serves all lengths."""
    lengths = {"tokens", "out_tokens", "heads", "chunks", "start", "count", "groups", "chunks_a_group", "padded",
               "first", "stretches", "length", "held", "rows", "full"}
    return triton.jit(function, do_not_specialize=lengths & set(function.__code__.co_varnames))


def config(warps, stages, registers=None):
    """One way to compile a kernel. `registers` bounds those of a thread, which NVIDIA's compiler alone can."""
    return triton.Config({}, num_warps=warps, num_stages=stages, maxnreg=None if torch.version.hip else registers)


def tuned(*configs, fp32):
    """Triton's autotuner: it times the configurations at a kernel's first call and keeps the results on disk. fp32
    takes long to compile and has one configuration. The interpreter has nothing to time. The argument `full` is for
    the tuner alone: whether there are programs enough for all of the GPU."""

    def fitting(all_configs, arguments, PRECISION, **constants):
        return configs if PRECISION in ("bf16", "tf32") else [fp32]

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return triton.autotune(configs=[fp32] if interpreted else [*configs, fp32],
                           key=["S", "CAUSAL", "PRECISION", "full"], prune_configs_by={"early_config_prune": fitting},
                           cache_results=True)


@triton.jit
def product(left, right, total, PRECISION: tl.constexpr):
    """total + left @ right; left in fp32."""
    if PRECISION == "bf16":
        return tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16), total)
    else:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision=PRECISION)


@triton.jit
def first_row(first_rows, head, chunks, CAUSAL: tl.constexpr):
    if CAUSAL:
        return head.to(tl.int64)
    elif first_rows is None:
        return head.to(tl.int64) * chunks * CHUNK
    else:
        return tl.load(first_rows + head)


@triton.jit
def step_size(beta, length):
    """alpha = (1 - exp(-beta length)) / (length + 1e-8), with the series of 1 - exp(-x) where the subtraction would
    lose digits."""
    x = beta * length
    series = x * (1 + x * (-1 / 2 + x * (1 / 6 + x * (-1 / 24 + x * (1 / 120 + x * (-1 / 720))))))
    return tl.where(x < 0.2, series, 1 - tl.exp(-x)) / (length + 1e-8)


# --- T of every chunk -------------------------------------------------------------------------------------


@triton.jit
def load_block(x, row, step, limit, S: tl.constexpr, column):
    """PART columns of BLOCK rows from `row` on; zeros from `limit` on."""
    rows = row + tl.arange(0, BLOCK).to(tl.int64) * step
    return tl.load(x + rows[:, None] * S + column + tl.arange(0, PART)[None, :], mask=rows[:, None] < limit, other=0)


@triton.jit
def multiply(left, right, PRECISION: tl.constexpr, total=None):
    """left @ right, plus total. fp16 has the digits of TF32, at half the cost; see chunk_inverse for its range."""
    if PRECISION == "fp16":
        return tl.dot(left.to(tl.float16), right.to(tl.float16), total)
    else:
        return tl.dot(left, right, total, input_precision=PRECISION)


@triton.jit
def scales(g, beta):
    """The square roots of alpha as a column and as a row, from a diagonal block of K K^T."""
    i = tl.arange(0, BLOCK)
    same = i[:, None] == i[None, :]
    column = tl.sqrt(step_size(beta, tl.sum(tl.where(same, g, 0.0), 1)))[:, None]
    return column, tl.sum(tl.where(same, column, 0.0), 0)[None, :]


@triton.jit
def invert(lower, PRECISION: tl.constexpr):
    """The inverse of I - tril(lower, -1), by inverses of diagonal blocks of 2, 4, 8 and 16 rows: with A and B the
    inverses of the two in a larger one and C below them, B C A belongs in C's place."""
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    x = tl.where(i == j, 1.0, tl.where((i % 2 == 1) & (j == i - 1), lower, 0.0))
    for level in tl.static_range(1, 4):
        below = tl.where(((i >> level) % 2 == 1) & (j >> level == (i >> level) - 1), lower, 0.0)
        x = multiply(multiply(x, below, PRECISION), x, PRECISION, x)
    return x


@triton.jit
def store_block(inverse, x, left, right, ROW: tl.constexpr, COLUMN: tl.constexpr):
    i = ROW * BLOCK + tl.arange(0, BLOCK)
    j = COLUMN * BLOCK + tl.arange(0, BLOCK)
    t = left * x * right
    tl.store(inverse + i[:, None] * CHUNK + j[None, :], t.to(inverse.dtype.element_ty))


@tuned(config(1, 1), config(1, 1, registers=128), fp32=config(4, 1))
@kernel
def chunk_inverse(k, beta, first_rows, inverses, tokens, heads, chunks, start, count, full, S: tl.constexpr,
                  CAUSAL: tl.constexpr, PRECISION: tl.constexpr, SMALL: tl.constexpr):
    """T of the chunks start ... start + count - 1 of each sequence (a head of a batch), into
    inverses[sequence, chunk - start]. Blocks above the diagonal are not written. With R = sqrt(D),

        T = L^-1 D = R (I + tril(R K K^T R, -1))^-1 R

    where no element of the triangle or its inverse exceeds 1: rows of R K are shorter than 1. SMALL is the precision
    of its products."""
    sequences = tl.num_programs(0) // count
    sequence = tl.program_id(0) % sequences
    index = tl.program_id(0) // sequences
    head = sequence % heads
    step = heads if CAUSAL else 1
    limit = tokens.to(tl.int64) * heads
    k += (sequence // heads) * limit * S
    row = first_row(first_rows, head, chunks, CAUSAL) + (start + index).to(tl.int64) * CHUNK * step
    inverses += (sequence.to(tl.int64) * count + index) * CHUNK * CHUNK
    b = tl.load(beta + head)

    # Blocks of K K^T
    g00 = tl.zeros((BLOCK, BLOCK), tl.float32)
    g10, g11, g20, g21, g22, g30, g31, g32, g33 = g00, g00, g00, g00, g00, g00, g00, g00, g00
    for column in tl.static_range(0, S, PART):
        k0 = load_block(k, row, step, limit, S, column)
        k1 = load_block(k, row + BLOCK * step, step, limit, S, column)
        k2 = load_block(k, row + 2 * BLOCK * step, step, limit, S, column)
        k3 = load_block(k, row + 3 * BLOCK * step, step, limit, S, column)
        g00 = product(k0, tl.trans(k0), g00, PRECISION)
        g10 = product(k1, tl.trans(k0), g10, PRECISION)
        g11 = product(k1, tl.trans(k1), g11, PRECISION)
        g20 = product(k2, tl.trans(k0), g20, PRECISION)
        g21 = product(k2, tl.trans(k1), g21, PRECISION)
        g22 = product(k2, tl.trans(k2), g22, PRECISION)
        g30 = product(k3, tl.trans(k0), g30, PRECISION)
        g31 = product(k3, tl.trans(k1), g31, PRECISION)
        g32 = product(k3, tl.trans(k2), g32, PRECISION)
        g33 = product(k3, tl.trans(k3), g33, PRECISION)

    # Row by row of blocks: li is minus a block of the triangle's row times xii, xij a block of the inverse.
    r, r0 = scales(g00, b)
    x00 = invert(-r * g00 * r0, SMALL)
    store_block(inverses, x00, r, r0, 0, 0)

    r, r1 = scales(g11, b)
    x11 = invert(-r * g11 * r1, SMALL)
    l0 = multiply(x11, -r * g10 * r0, SMALL)
    x10 = multiply(l0, x00, SMALL)
    store_block(inverses, x11, r, r1, 1, 1)
    store_block(inverses, x10, r, r0, 1, 0)

    r, r2 = scales(g22, b)
    x22 = invert(-r * g22 * r2, SMALL)
    l0 = multiply(x22, -r * g20 * r0, SMALL)
    l1 = multiply(x22, -r * g21 * r1, SMALL)
    x21 = multiply(l1, x11, SMALL)
    x20 = multiply(l1, x10, SMALL, multiply(l0, x00, SMALL))
    store_block(inverses, x22, r, r2, 2, 2)
    store_block(inverses, x21, r, r1, 2, 1)
    store_block(inverses, x20, r, r0, 2, 0)

    r, r3 = scales(g33, b)
    x33 = invert(-r * g33 * r3, SMALL)
    l0 = multiply(x33, -r * g30 * r0, SMALL)
    l1 = multiply(x33, -r * g31 * r1, SMALL)
    l2 = multiply(x33, -r * g32 * r2, SMALL)
    x32 = multiply(l2, x22, SMALL)
    x31 = multiply(l2, x21, SMALL, multiply(l1, x11, SMALL))
    x30 = multiply(l2, x20, SMALL, multiply(l1, x10, SMALL, multiply(l0, x00, SMALL)))
    store_block(inverses, x33, r, r3, 3, 3)
    store_block(inverses, x32, r, r2, 3, 2)
    store_block(inverses, x31, r, r1, 3, 1)
    store_block(inverses, x30, r, r0, 3, 0)


# --- groups of chunks -------------------------------------------------------------------------------------


@triton.jit
def long(number):
    """In 64 bits; the interpreter counts loops in plain numbers, which have no .to()."""
    return tl.full((), 1, tl.int64) * number


@triton.jit
def load_rows(x, chunk, step, left, S: tl.constexpr):
    """A chunk's rows; x points to the first one of chunk 0, behind which there are `left`."""
    rows = tl.arange(0, CHUNK) * step
    first = long(chunk) * CHUNK * step
    return tl.load(x + first * S + rows[:, None] * S + tl.arange(0, S)[None, :], mask=rows[:, None] < left - first,
                   other=0)


@triton.jit
def load_columns(x, chunk, step, left, S: tl.constexpr, column, COLUMNS: tl.constexpr):
    """Some columns of a chunk's rows, transposed: [COLUMNS, CHUNK]."""
    rows = tl.arange(0, CHUNK) * step
    first = long(chunk) * CHUNK * step
    return tl.load(x + first * S + rows[None, :] * S + (column + tl.arange(0, COLUMNS))[:, None],
                   mask=rows[None, :] < left - first, other=0)


@triton.jit
def load_inverse(inverses, chunk):
    i = tl.arange(0, CHUNK)[:, None]
    j = tl.arange(0, CHUNK)[None, :]
    return tl.load(inverses + long(chunk) * CHUNK * CHUNK + i * CHUNK + j, mask=j // BLOCK <= i // BLOCK, other=0)


@triton.jit
def square(rows, S: tl.constexpr):
    """Offsets of some rows of an [S, S] matrix."""
    return rows[:, None] * S + tl.arange(0, S)[None, :]


@tuned(config(4, 2), config(4, 3), config(8, 1), fp32=config(8, 1))
@kernel
def chunk_transition(k, v, first_rows, inverses, maps, additions, forgotten, tokens, heads, chunks, start, count,
                     groups, chunks_a_group, full, S: tl.constexpr, ROWS: tl.constexpr, CAUSAL: tl.constexpr,
                     PRECISION: tl.constexpr):
    """Rows of P - I and R of all groups but the last of each sequence, into maps and additions
    [sequence, group, S, S], and whether they forget what was before: forgotten[sequence, group, S / ROWS].
    The identity is left out so that rounding is relative to what a group changes."""
    part = tl.program_id(1)
    sequences = tl.num_programs(0) // (groups - 1)
    sequence = tl.program_id(0) % sequences
    group = tl.program_id(0) // sequences
    head = sequence % heads
    step = heads if CAUSAL else 1
    limit = tokens.to(tl.int64) * heads
    first = first_row(first_rows, head, chunks, CAUSAL) + start.to(tl.int64) * CHUNK * step
    k += ((sequence // heads) * limit + first) * S
    v += ((sequence // heads) * limit + first) * S
    inverses += sequence.to(tl.int64) * count * CHUNK * CHUNK

    rows = part * ROWS + tl.arange(0, ROWS)
    identity = tl.where(rows[:, None] == tl.arange(0, S)[None, :], 1.0, 0.0)
    a = identity
    b = tl.zeros((ROWS, S), tl.float32)
    last = group * chunks_a_group + chunks_a_group
    left = chunks_a_group
    while left > 0:
        steps = tl.minimum(left, CHUNKS_A_LOOK)
        for i in range(steps):
            chunk = last - 1 - i
            keys = load_rows(k, chunk, step, limit - first, S)
            values = load_rows(v, chunk, step, limit - first, S)
            inverse = load_inverse(inverses, chunk)
            x = product(a, tl.trans(keys), tl.zeros((ROWS, CHUNK), tl.float32), PRECISION)
            x = product(x, inverse, tl.zeros((ROWS, CHUNK), tl.float32), PRECISION)
            b = product(x, values, b, PRECISION)
            a = product(-x, keys, a, PRECISION)
        last -= steps
        left -= steps
        if tl.max(tl.max(tl.abs(a), 1), 0) <= NEGLIGIBLE:
            left = -left
    place = (sequence * groups + group).to(tl.int64) * S * S + square(rows, S)
    tl.store(maps + place, (a - identity).to(maps.dtype.element_ty))
    tl.store(additions + place, b)
    tl.store(forgotten + (sequence * groups + group) * (S // ROWS) + part, (left < 0).to(tl.int32))


@tuned(config(4, 2), config(4, 2, registers=168), config(4, 1, registers=168), config(8, 1), fp32=config(8, 1))
@kernel
def chunk_output(q, k, v, first_rows, inverses, maps, additions, forgotten, initial, o, final, tokens, out_tokens,
                 heads, chunks, start, count, groups, chunks_a_group, full, S: tl.constexpr, ROWS: tl.constexpr,
                 CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    """o of each group, and the state after the last, for ROWS columns of the state: rows, as it is transposed here."""
    column = tl.program_id(1) * ROWS
    sequences = tl.num_programs(0) // groups
    sequence = tl.program_id(0) % sequences
    group = tl.program_id(0) // sequences
    head = sequence % heads
    step = heads if CAUSAL else 1
    limit = tokens.to(tl.int64) * heads
    first = first_row(first_rows, head, chunks, CAUSAL) + start.to(tl.int64) * CHUNK * step
    k += ((sequence // heads) * limit + first) * S
    v += ((sequence // heads) * limit + first) * S
    q += ((sequence // heads) * limit + first) * S
    inverses += sequence.to(tl.int64) * count * CHUNK * CHUNK
    o += ((sequence // heads).to(tl.int64) * out_tokens * heads + head) * S

    # The state before the group, from the last one before it that forgot what was before
    columns = column + tl.arange(0, ROWS)
    transposed = tl.arange(0, S)[None, :] * S + columns[:, None]
    next = 0
    if groups > 1:
        parts: tl.constexpr = S // ROWS
        g = tl.arange(0, MOST_GROUPS)
        known = g < group
        for part in tl.static_range(parts):
            known = known & (tl.load(forgotten + (sequence * groups + g) * parts + part, mask=g < group, other=0) > 0)
        next = tl.max(tl.where(known, g + 1, 0), 0)
    matrix = sequence.to(tl.int64) * S * S
    if next > 0:
        state = tl.load(additions + matrix * groups + (next - 1) * S * S + transposed)
    else:
        state = tl.load(initial + matrix + transposed)
    for index in range(next, group):
        change = tl.load(maps + matrix * groups + index * S * S + square(tl.arange(0, S), S))
        addition = tl.load(additions + matrix * groups + index * S * S + transposed)
        state = product(state, tl.trans(change), state + addition, PRECISION)

    nothing = tl.zeros((ROWS, CHUNK), tl.float32)
    i = tl.arange(0, CHUNK)
    for chunk in range(group * chunks_a_group, tl.minimum((group + 1) * chunks_a_group, count)):
        keys = load_rows(k, chunk, step, limit - first, S)
        values = load_columns(v, chunk, step, limit - first, S, column, ROWS).to(tl.float32)
        queries = load_rows(q, chunk, step, limit - first, S)
        inverse = tl.trans(load_inverse(inverses, chunk))
        if CAUSAL:
            scores = product(keys, tl.trans(queries), tl.zeros((CHUNK, CHUNK), tl.float32), PRECISION)
            scores = tl.where(i[:, None] <= i[None, :], scores, 0.0).to(inverse.dtype)
            y = product(state, tl.trans(queries), nothing, PRECISION)
        new = product(values - product(state, tl.trans(keys), nothing, PRECISION), inverse, nothing, PRECISION)
        state = product(new, keys, state, PRECISION)
        if CAUSAL:
            y = product(new, scores, y, PRECISION)
        else:
            new = product(values - product(state, tl.trans(keys), nothing, PRECISION), inverse, nothing, PRECISION)
            y = product(product(new, keys, state, PRECISION), tl.trans(queries), nothing, PRECISION)
        token = (start + chunk) * CHUNK + i
        tl.store(o + token.to(tl.int64)[None, :] * heads * S + columns[:, None], y.to(o.dtype.element_ty),
                 mask=token[None, :] < out_tokens)
    if group == groups - 1:
        tl.store(final + matrix + transposed, state)


# --- around the operation, in a layer ---------------------------------------------------------------------

HISTORY = tl.constexpr(3)  # tokens before a stretch that its convolution reads


@triton.jit
def first_token(stretch, padded, first, stretches):
    """(stretch * padded + first) // stretches, in 32 bits."""
    return stretch * (padded // stretches) + (stretch * (padded % stretches) + first) // stretches


@kernel
def gather_tokens(x, xs, tokens, padded, first, stretches, length, count, HIDDEN: tl.constexpr, ROWS: tl.constexpr,
                  COLUMNS: tl.constexpr):
    """The rows of x for all stretches, `count` in all the batch, each with its history; zeros for what is no token."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    stretch = rows // (length + HISTORY)
    batch = (stretch // stretches).to(tl.int64)
    token = first_token(stretch % stretches, padded, first, stretches) + rows % (length + HISTORY) - HISTORY
    real = ((stretch < count) & (token >= 0) & (token < tokens))[:, None]
    inside = columns[None, :] < HIDDEN
    values = tl.load(x + (batch * tokens + token)[:, None] * HIDDEN + columns[None, :], mask=real & inside, other=0)
    tl.store(xs + rows.to(tl.int64)[:, None] * HIDDEN + columns[None, :], values.to(tl.bfloat16),
             mask=(stretch < count)[:, None] & inside)


@triton.jit
def load_row(x, row, end, S: tl.constexpr, columns):
    """Columns of a row of S numbers; zeros from row `end` on."""
    return tl.load(x + long(row) * S + columns, mask=row < end, other=0)


@triton.jit
def store_activated(x, row, length, end, S: tl.constexpr, columns, y):
    """SiLU of y into a row before `length`; zeros from row `end` on."""
    y = tl.where(row < end, y / (1 + tl.exp(-y)), 0.0)
    tl.store(x + long(row) * S + columns, y.to(tl.bfloat16), mask=row < length)


@kernel
def convolve_strip(projected, weight, q, k, v, narrow, tokens, padded, first, stretches, length, held,
                   WIDTH: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Convolution over time and SiLU, down ROWS rows of a stretch, for COLUMNS of the columns of q, k or v; or a copy
    of the narrow ones. From a stretch to the next, q, k and v have `held` rows. A row is read once, four rows ahead."""
    wide: tl.constexpr = 3 * WIDTH + S
    which = tl.program_id(0) // (WIDTH // COLUMNS)
    stretch = tl.program_id(2)
    batch = stretch // stretches
    start = first_token(stretch % stretches, padded, first, stretches)
    end = tl.minimum(tokens - start, length)  # of the rows that are tokens
    begin = tl.program_id(1) * ROWS
    x = projected + (long(stretch) * (length + HISTORY) + HISTORY) * wide
    if which < 3:
        columns = tl.program_id(0) % (WIDTH // COLUMNS) * COLUMNS + tl.arange(0, COLUMNS)
        target = (q if which == 0 else k if which == 1 else v) + long(stretch) * held * WIDTH
        x += which * WIDTH
        weight += which * (HISTORY + 1) * WIDTH
        w0 = tl.load(weight + columns)
        w1 = tl.load(weight + WIDTH + columns)
        w2 = tl.load(weight + 2 * WIDTH + columns)
        w3 = tl.load(weight + 3 * WIDTH + columns)
        a = load_row(x, begin - 3, end, wide, columns).to(tl.float32)
        b = load_row(x, begin - 2, end, wide, columns).to(tl.float32)
        c = load_row(x, begin - 1, end, wide, columns).to(tl.float32)
        next0 = load_row(x, begin, end, wide, columns)
        next1 = load_row(x, begin + 1, end, wide, columns)
        next2 = load_row(x, begin + 2, end, wide, columns)
        next3 = load_row(x, begin + 3, end, wide, columns)
        for row in range(begin, tl.minimum(begin + ROWS, length), 4):
            d, e, f, g = next0.to(tl.float32), next1.to(tl.float32), next2.to(tl.float32), next3.to(tl.float32)
            next0 = load_row(x, row + 4, end, wide, columns)
            next1 = load_row(x, row + 5, end, wide, columns)
            next2 = load_row(x, row + 6, end, wide, columns)
            next3 = load_row(x, row + 7, end, wide, columns)
            store_activated(target, row, length, end, WIDTH, columns, w0 * a + w1 * b + w2 * c + w3 * d)
            store_activated(target, row + 1, length, end, WIDTH, columns, w0 * b + w1 * c + w2 * d + w3 * e)
            store_activated(target, row + 2, length, end, WIDTH, columns, w0 * c + w1 * d + w2 * e + w3 * f)
            store_activated(target, row + 3, length, end, WIDTH, columns, w0 * d + w1 * e + w2 * f + w3 * g)
            a, b, c = e, f, g
    else:
        rows = begin + tl.arange(0, ROWS)[:, None]
        last = tl.arange(0, S)[None, :]
        tl.store(narrow + ((long(batch) * tokens + start + rows) * S + last),
                 tl.load(x + long(rows) * wide + 3 * WIDTH + last, mask=rows < end, other=0), mask=rows < end)


@kernel
def gate_rows(o, o_row, o_head, narrow, weight, bias, norm, eps, y, rows, heads, S: tl.constexpr, ROWS: tl.constexpr):
    """y of ROWS rows of a head. In o there are so many elements from a row, and from a head, to the next."""
    head = tl.program_id(0) % heads
    row = tl.program_id(0) // heads * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, S)
    inside = (row < rows)[:, None]
    left = tl.load(narrow + row.to(tl.int64)[:, None] * S + i[None, :], mask=inside, other=0)
    right = tl.load(weight + head * S * S + i[:, None] * S + i[None, :])
    gate = tl.dot(left, tl.trans(right)) + tl.load(bias + head * S + i).to(tl.float32)[None, :]
    x = tl.load(o + head.to(tl.int64) * o_head + row.to(tl.int64)[:, None] * o_row + i[None, :], mask=inside,
                other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / S + eps)
    result = x * scale[:, None] * tl.load(norm + i)[None, :] / (1 + tl.exp(-gate))
    tl.store(y + (row.to(tl.int64)[:, None] * heads + head) * S + i[None, :], result.to(tl.bfloat16), mask=inside)
