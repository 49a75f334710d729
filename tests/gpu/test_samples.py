"""Small kernels (samples.cu) through the driver's own functions, against what Python computes: whatever GPU there is has to
agree, and the emulated one with it."""
import ctypes
import glob
import math
import pathlib
import random
import struct
import subprocess
import sys

import pytest

from patience import LONG
from test_gpu import gpu  # noqa: F401 (a fixture)

SOURCE = pathlib.Path(__file__).with_name("samples.cu")
ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, MISALIGNED, LAUNCH_FAILED = 700, 715, 716, 719


def compile_samples(source=SOURCE, architecture="compute_80"):
    """As PTX: that for compute capability 8.0 is what every GPU's driver takes."""
    paths = glob.glob(f"{sys.prefix}/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]")
    nvrtc = ctypes.CDLL(sorted(paths)[-1] if paths else "libnvrtc.so.13")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None) == 0
    options = (ctypes.c_char_p * 3)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--device-int128")
    code = nvrtc.nvrtcCompileProgram(program, len(options), options)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert code == 0, log.value.decode()
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.value


class Device:
    """The first GPU, with a module."""

    def __init__(self, ptx):
        self.driver, self.module, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        self.must(self.driver.cuInit(0))
        self.must(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.must(self.driver.cuCtxSetCurrent(context))
        self.must(self.driver.cuModuleLoadData(ctypes.byref(self.module), ptx))

    @staticmethod
    def must(code):
        assert code == 0, f"CUDA error {code}"

    def function(self, name):
        function = ctypes.c_void_p()
        self.must(self.driver.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()))
        return function

    def memory(self, data):
        """Bytes, or so many fresh ones, on the device."""
        address = ctypes.c_uint64()
        self.must(self.driver.cuMemAlloc_v2(ctypes.byref(address), data if isinstance(data, int) else len(data)))
        if not isinstance(data, int):
            self.must(self.driver.cuMemcpyHtoDAsync_v2(address, data, ctypes.c_size_t(len(data)), None))
        return address

    def launch(self, name, arguments, threads=32, blocks=1, shared=0):
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self.must(self.driver.cuLaunchKernel(self.function(name), blocks, 1, 1, threads, 1, 1, shared, None, pointers, None))
        return self.driver.cuStreamSynchronize(None)

    def run(self, name, *buffers, **options):
        """With arguments that are bytes, or numbers of bytes; returns what is in the latter afterwards."""
        arguments = [self.memory(buffer) for buffer in buffers]
        self.must(self.launch(name, arguments, **options))
        results = []
        for buffer, address in zip(buffers, arguments):
            if isinstance(buffer, int):
                results.append(ctypes.create_string_buffer(buffer))
                self.must(self.driver.cuMemcpyDtoHAsync_v2(results[-1], address, ctypes.c_size_t(buffer), None))
        self.must(self.driver.cuStreamSynchronize(None))
        return [result.raw for result in results]


@pytest.fixture(scope="module")
def ptx():
    return compile_samples()


@pytest.fixture(scope="module")
def device(gpu, ptx):  # noqa: F811
    return Device(ptx)


def pack(kind, values):
    return struct.pack(f"{len(values)}{kind}", *values)


def unpack(kind, data):
    return list(struct.unpack(f"{len(data) // struct.calcsize(kind)}{kind}", data))


def float_of(bits):
    return struct.unpack("f", struct.pack("I", bits))[0]


def bits_of(value):
    return struct.unpack("I", struct.pack("f", value))[0]


def bf16(value):
    """To nearest, ties to even."""
    bits = bits_of(value)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def f16(value):
    return struct.unpack("H", struct.pack("e", value))[0]


def product(left, right, sums):
    return [[sums[i][j] + sum(left[i][k] * right[k][j] for k in range(len(right))) for j in range(8)] for i in range(16)]


def test_products_of_matrices(device):
    """Of small integers, which every type holds and every order of sums gives exactly."""
    numbers = random.Random(1)
    left = [[numbers.randrange(-8, 9) for _ in range(16)] for _ in range(16)]
    right = [[numbers.randrange(-8, 9) for _ in range(8)] for _ in range(16)]
    sums = [[numbers.randrange(-99, 99) for _ in range(8)] for _ in range(16)]
    a, b, c = [], [], []
    for encode in (bf16, f16):
        for lane in range(32):
            g, t = lane // 4, lane % 4 * 2
            for row, column in ((g, t), (g + 8, t), (g, t + 8), (g + 8, t + 8)):
                a.append(encode(left[row][column]) | encode(left[row][column + 1]) << 16)
            b += [encode(right[row][g]) | encode(right[row + 1][g]) << 16 for row in (t, t + 8)]
    places = [(lane // 4 + row, lane % 4 * 2 + column) for lane in range(32) for row in (0, 8) for column in (0, 1)]
    c = [sums[row][column] for row, column in places]
    narrow, short = [row[:8] for row in left], right[:8]
    arguments = [device.memory(pack("I", a)), device.memory(pack("I", b)), device.memory(pack("f", c))]
    outputs = [device.memory(512) for _ in range(3)]
    extra = [device.memory(pack("f", sum(narrow, []))), device.memory(pack("f", sum(short, [])))]
    assert device.launch("products", [*arguments, *outputs[:2], *extra, outputs[2]]) == 0
    found = []
    for output in outputs:
        buffer = ctypes.create_string_buffer(512)
        device.must(device.driver.cuMemcpyDtoHAsync_v2(buffer, output, ctypes.c_size_t(512), None))
        found.append(unpack("f", buffer.raw))
    expected = product(left, right, sums)
    assert found[0] == found[1] == [expected[row][column] for row, column in places]
    expected = product(narrow, short, sums)
    assert found[2] == [expected[row][column] for row, column in places]


def test_fragments_and_transposes(device):
    values = list(range(256))
    plain, transposed, back = (unpack("I", data) for data in device.run("fragments", pack("H", values), 512, 512, 512))
    for i in range(4):
        for lane in range(32):
            g, t = lane // 4, lane % 4 * 2
            row = i * 64 + g * 8 + t
            assert plain[i * 32 + lane] == back[i * 32 + lane] == values[row] | values[row + 1] << 16
            column = i * 64 + t * 8 + g
            assert transposed[i * 32 + lane] == values[column] | values[column + 8] << 16


def test_lanes_together(device):
    found = unpack("I", device.run("lanes", 288 * 4)[0])
    squares = [lane * lane for lane in range(32)]
    for lane in range(32):
        assert found[lane] == squares[lane ^ 5]
        assert found[32 + lane] == squares[lane - 3 if lane >= 3 else lane]
        assert found[64 + lane] == squares[lane + 2 if lane % 8 < 6 else lane]
        assert found[96 + lane] == squares[lane // 16 * 16 + 5]
        assert found[128 + lane] == sum(1 << i for i in range(32) if i % 3 == 0)
        assert found[160 + lane] == sum(1 << i for i in range(32) if i // 5 == lane // 5)
        assert found[192 + lane] == sum(squares) + 31
        assert (found[224 + lane], found[256 + lane]) == (5, 1)


def collatz(n):
    steps = 0
    while n != 1:
        n, steps = 3 * n + 1 if n % 2 else n // 2, steps + 1
    return steps


def test_lanes_go_different_ways(device):
    address = device.memory(pack("I", [77] * 64))
    assert device.launch("ways", [address]) == 0
    buffer = ctypes.create_string_buffer(256)
    device.must(device.driver.cuMemcpyDtoHAsync_v2(buffer, address, ctypes.c_size_t(256), None))
    found = unpack("I", buffer.raw)
    for lane in range(32):
        steps = (collatz(lane) if lane % 2 else 0) + (lane + 2) // 3
        assert found[lane] == steps
        end = [3, steps * 5, steps - 7, steps ^ 11, steps + 13, 77, ~steps, steps][lane % 8]
        assert found[32 + lane] == end & 0xFFFFFFFF


def wrap(value, bits=64, signed=True):
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def divide(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def test_integers(device):
    numbers = random.Random(2)
    a = [wrap(numbers.getrandbits(64) >> numbers.randrange(64)) for _ in range(32)]
    b = [wrap(numbers.getrandbits(64) >> numbers.randrange(64)) or 1 for _ in range(32)]
    a[:3], b[:3] = [0, -1, -(1 << 63)], [1, 7, 3]
    found = unpack("q", device.run("integers", pack("q", a), pack("q", b), 32 * 16 * 8)[0])
    for i, (x, y) in enumerate(zip(a, b)):
        p, q, u, v = wrap(x, 64, False), wrap(y, 64, False), wrap(x, 32, False), wrap(y, 32, False)
        s, t = wrap(x, 32), wrap(y, 32)
        both = u | v << 32
        dot = 17 + sum(wrap(s >> 8 * k, 8) * wrap(t >> 8 * k, 8) for k in range(4))
        assert found[i * 16:i * 16 + 16] == [
            wrap(x + y), divide(x, y), x - y * divide(x, y), x * y >> 64, wrap(p * q >> 64),
            divide(s, t) if t else 0, u % v if v else 0, s * t,
            p.bit_count() * 10000 + (64 - p.bit_length()) * 100 + (u & -u).bit_length(),
            s >> (v & 31), sum((both >> 8 * choice & 255) << 8 * k for k, choice in enumerate((0, 5, 2, 7))),
            ((v << 32 | u) << 13 >> 32) & 0xFFFFFFFF, int(f"{u:032b}"[::-1], 2), wrap(p * q + p >> 64),
            (u ^ v) & ~(u | 0xFF) & 0xFFFFFFFF, wrap(dot, 32)]


def test_scopes(device):
    assert unpack("I", device.run("scopes", 128)[0]) == [lane * lane for lane in range(32)]


def test_conversions(device):
    inputs = [0.0, 1.0, -1.5, 2.5, 1 / 3, -1e-7, 65519.0, 65520.0, 1e10, -1e10, 3.0e-39, 1234.567, -0.1, math.inf, math.nan, 7]
    inputs += [float_of(0x3F808000), float_of(0x3F818000)] + [float(i) + 0.5 for i in range(14)]
    found = unpack("i", device.run("conversions", pack("f", inputs), 32 * 9 * 4)[0])
    for i, x in enumerate(inputs):
        x = float_of(bits_of(x))
        half, zero, brain, pair, tensor, nearest, down, unsigned, up = (value & 0xFFFFFFFF for value in found[9 * i:9 * i + 9])
        if math.isnan(x):
            assert nearest == down == unsigned == 0
            continue
        most = 65504.0 if abs(x) >= 65504 else None
        expected = math.inf if abs(x) >= 65520 else abs(x)
        assert half & 0x7FFF == (0x7C00 if math.isinf(expected) else f16(expected))
        decoded = struct.unpack("e", struct.pack("H", zero & 0x7FFF))[0]
        assert math.isinf(x) or decoded == most or (decoded <= abs(x) and struct.unpack(
            "e", struct.pack("H", (zero & 0x7FFF) + 1))[0] > abs(x))
        assert brain == bf16(x) and pair == bf16(x) << 16 | bf16(-x)
        assert math.isinf(x) or tensor & ~0x1FFF == bits_of(x) + 0x1000 & ~0x1FFF
        inside = lambda value, low, high: low if value <= low else high if value >= high else value  # noqa: E731
        limit = inside(x, -2.0 ** 31, 2.0 ** 31 - 1)
        assert nearest == int(round(limit)) & 0xFFFFFFFF and down == math.floor(limit) & 0xFFFFFFFF
        assert unsigned == int(inside(x, 0, 2.0 ** 32 - 1))
        assert math.isinf(x) or float_of(up) >= x and (x <= 0 or float_of(up) > x)


def test_asynchronous_copies(device):
    values = [float(i) for i in range(128)]
    _, late = (unpack("f", data) for data in device.run("copies", pack("f", values), 128, 256))
    assert late == [4.0 * i + 1 for i in range(32)] + [0.0] * 32


def test_blocks_and_warps_wait_for_each_other(device):
    words, sums = device.memory(pack("i", [0] * 8)), device.memory(pack("i", [0] * 8))
    assert device.launch("chain", [words, sums], threads=128, blocks=8) == 0
    for address, expected in ((words, list(range(8, 0, -1))), (sums, [2 * (sum(range(64)) + 6400)] * 8)):
        buffer = ctypes.create_string_buffer(32)
        device.must(device.driver.cuMemcpyDtoHAsync_v2(buffer, address, ctypes.c_size_t(32), None))
        assert unpack("i", buffer.raw) == expected


def test_mathematics(device):
    inputs = [(-1) ** i * 10.0 ** (i / 3 - 5) for i in range(32)]
    found = unpack("d", device.run("mathematics", pack("d", inputs), 32 * 5 * 8)[0])
    for i, x in enumerate(inputs):
        expected = [math.sin(x), math.exp(-abs(x) / 100), abs(x) ** 0.3, math.exp(-abs(x) / 100), math.erf(x / 50)]
        for got, wanted, most in zip(found[5 * i:], expected, [1e-15, 1e-14, 1e-14, 1e-6, 1e-14]):
            assert math.isclose(got, wanted, rel_tol=most, abs_tol=most)


# --- what ends a process's use of the GPU: in one of its own ------------------------------------------------

FAULTS = [
    ("beyond", 32, 0, ILLEGAL_ADDRESS, "thread (16, 0, 0): invalid write of 4 bytes of global memory"),
    ("misaligned", 1, 0, MISALIGNED, "thread (0, 0, 0): misaligned write of 4 bytes of global memory"),
    ("beyond_shared", 32, 64, ILLEGAL_ADDRESS, "thread (16, 0, 0): invalid write of 4 bytes of shared memory"),
    ("for_ever", 64, 0, LAUNCH_FAILED, "waits for threads that never come"),
    ("partly", 32, 0, ILLEGAL_INSTRUCTION, "thread (8, 0, 0): the mask 0xff does not name this lane"),
    ("asserts", 16, 0, LAUNCH_FAILED, "thread (8, 0, 0): a trap"),
]


def in_child(code, ptx, tmp_path):
    file = tmp_path / "samples.ptx"
    file.write_bytes(ptx)
    start = f"import sys; sys.path[:0] = {sys.path!r}\nfrom test_samples import *\n"
    return subprocess.run([sys.executable, "-c", f"{start}ptx = open({str(file)!r}, 'rb').read()\n{code}"],
                          capture_output=True, text=True, timeout=LONG)


@pytest.fixture
def emulated(gpu):  # noqa: F811
    if "Emulated" not in gpu["name"]:
        pytest.skip("a real GPU says less")


@pytest.mark.parametrize("name, threads, shared, code, words", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_faults_are_told(emulated, ptx, tmp_path, name, threads, shared, code, words):
    done = in_child(f"""device = Device(ptx)
out = device.memory(pack("f", [float(i) for i in range(16)]))
assert device.launch({name!r}, [out], threads={threads}, shared={shared}) == {code}
assert device.driver.cuMemAlloc_v2(ctypes.byref(out), 16) == {code}, "nothing works any more"
""", ptx, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"kernel {name}, block (0, 0, 0)" in done.stderr and words in done.stderr and "PTX line" in done.stderr


def test_what_nobody_wrote_is_nan(emulated, device):
    assert all(math.isnan(value) for value in unpack("f", device.run("unwritten", 64)[0]))
    early, _ = (unpack("f", data) for data in device.run("copies", pack("f", [1.0] * 128), 128, 256))
    assert all(math.isnan(value) for value in early)


def test_races_are_told(emulated, ptx, tmp_path):
    """Where they are looked for."""
    code = """import os
os.environ["EMULATOR_RACECHECK"] = "{}"
device = Device(ptx)
print(device.launch("races", [device.memory(256)], threads=64))
"""
    assert in_child(code.format(0), ptx, tmp_path).stdout == "0\n"
    done = in_child(code.format(1), ptx, tmp_path)
    assert done.stdout == f"{LAUNCH_FAILED}\n"
    assert "thread (32, 0, 0): a race" in done.stderr and "warp 0 wrote it" in done.stderr


def test_kernels_print(emulated, ptx, tmp_path):
    done = in_child("assert Device(ptx).launch('prints', [ctypes.c_int(7)], threads=2) == 0", ptx, tmp_path)
    assert done.stdout == "7:  1.50 text 1099511627776%\n8:  1.50 text 1099511627776%\n", done.stderr


@pytest.mark.parametrize("statement", ["tex.1d.v4.f32.s32 {%f1, %f1, %f1, %f1}, [x, {%r1}];", "add.s32 %r1, %r1;",
                                       "add.s32 %r1, %rd1, 1;", "ld.global.volatile.unheard.u32 %r1, [%rd1];",
                                       "mma.sync.aligned.m64n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r1}, {%f1};",
                                       "bra NOWHERE;", "add.s32 %r1, %r1, 1"])
def test_what_is_not_understood_is_refused(emulated, tmp_path, statement):
    done = in_child("assert ctypes.CDLL('libcuda.so.1').cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), ptx) == 218", f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel()
{{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	.reg .f32 %f<2>;
	{statement}
	ret;
}}
""".encode(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "line 10 of the PTX" in done.stderr or "line 11 of the PTX" in done.stderr
    assert statement.split(" ")[0] in done.stderr or "ret;" in done.stderr
