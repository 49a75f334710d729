"""What compute capability 9.0 has alone (hopper.cu), against what Python computes; and our kernels that use it, on an emulated GPU
that has it."""
import ctypes
import json
import random
import subprocess

import pytest

import test_samples
from test_gpu import KERNELS, QUASAR, c_tests, gpu, run_c_test  # noqa: F401 (a fixture)
from test_samples import (ILLEGAL_INSTRUCTION, LAUNCH_FAILED, MISALIGNED, Device, bf16, compile_samples, emulated, f16, in_child,  # noqa: F401
                          pack, unpack)

SOURCE = test_samples.SOURCE.with_name("hopper.cu")
ROWS, COLUMNS, INNER, FACTOR_BYTES = 64, 24, 16, 8192
WIDTHS = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes of a line, by the descriptor's two highest bits


@pytest.fixture(scope="module")
def ptx():
    return compile_samples(SOURCE, "compute_90a")


@pytest.fixture(scope="module")
def device(gpu, ptx):  # noqa: F811
    if "Emulated" not in gpu["name"] and gpu["compute_capability"] != 9.0:
        pytest.skip("the GPU is no Hopper")
    return Device(ptx)


# --- products -----------------------------------------------------------------------------------------------


def matrix(numbers, rows, columns):
    return [[numbers.randrange(-8, 9) for _ in range(columns)] for _ in range(rows)]


def transpose(rows):
    return [list(column) for column in zip(*rows)]


def tile(lines, mode, encode):
    """An image of shared memory, and the descriptor that says how lines lie there. With 16 bytes a line: eight lines of eight numbers
    one behind the other, those further right behind all that are below. With more: as many numbers in a line as it holds, pieces of 16
    bytes permuted by the line's number."""
    width, image = WIDTHS[mode], bytearray(FACTOR_BYTES)
    blocks, per_line = len(lines) // 8, width // 2
    across = blocks * 8 * width  # bytes from a line's numbers to those further right
    for line, numbers in enumerate(lines):
        for column, number in enumerate(numbers):
            address = column // per_line * across + line * width + column % per_line * 2
            address ^= (address >> 7) % 8 * 16 & width - 16
            image[address:address + 2] = encode(number).to_bytes(2, "little")
    return bytes(image), mode, 8 * width, across


def descriptor(mode, leading, stride):
    return mode << 62 | stride // 16 << 32 | leading // 16 << 16


def factor(rows, transposed, mode, encode):
    """Of rows along the inner dimension, or transposed. Offsets are named after the dimension that they go along, but where lines
    are 16 bytes of a transposed factor."""
    image, mode, down, across = tile(transpose(rows) if transposed else rows, mode, encode)
    swapped = transposed and mode == 0
    return image, descriptor(mode, down if swapped else across, across if swapped else down)


def sums_of(data):
    """Of a launch's 128 threads, as rows."""
    values, found = unpack("f", data), [[None] * COLUMNS for _ in range(ROWS)]
    for thread in range(128):
        for i in range(12):
            row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
            found[row][i // 4 * 8 + thread % 4 * 2 + i % 2] = values[thread * 12 + i]
    return found


def place(row, column):
    """Which of its sums a thread has there: what is there before."""
    return column // 8 * 4 + row % 16 // 8 * 2 + column % 2


def times(left, right):
    return [[sum(a * b for a, b in zip(row, column)) for column in right] for row in left]


@pytest.mark.parametrize("mode", WIDTHS)
@pytest.mark.parametrize("name, encode", [("00", bf16), ("01", f16), ("10", f16), ("11", bf16)])
def test_products_of_four_warps(device, name, encode, mode):
    numbers = random.Random(mode)
    left, right = matrix(numbers, ROWS, INNER), matrix(numbers, COLUMNS, INNER)
    if WIDTHS[mode] // 2 > COLUMNS and name[1] == "1":
        right_padded = right + [[0] * INNER] * (WIDTHS[mode] // 2 - COLUMNS)
    else:
        right_padded = right
    left_image, left_layout = factor(left, name[0] == "1", mode, encode)
    right_image, right_layout = factor(right_padded, name[1] == "1", mode, encode)
    found = sums_of(device.run("product_" + name, left_image + right_image, pack("Q", [left_layout, right_layout]), 128 * 48,
                               threads=128)[0])
    product = times(left, right)
    assert found == [[place(i, j) - product[i][j] for j in range(COLUMNS)] for i in range(ROWS)]


def test_products_of_registers(device):
    numbers = random.Random(5)
    left, right = matrix(numbers, ROWS, INNER), matrix(numbers, COLUMNS, INNER)
    image, layout = factor(right, False, 1, bf16)
    registers = []
    for thread in range(128):
        row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
        for down, across in ((0, 0), (8, 0), (0, 8), (8, 8)):
            pair = left[row + down][column + across:column + across + 2]
            registers.append(bf16(pair[0]) | bf16(pair[1]) << 16)
    found = sums_of(device.run("product_of_registers", bytes(FACTOR_BYTES) + image, pack("I", registers), pack("Q", [0, layout]),
                               128 * 48, threads=128)[0])
    assert found == [[2 * value for value in row] for row in times(left, right)]


# --- barriers and copies ------------------------------------------------------------------------------------


def test_bulk_copies_go_around_a_ring(device):
    pieces = 7
    values = [float(i % 11) for i in range(pieces * 32)]
    address, out = device.memory(pack("f", values)), device.memory(128)
    assert device.launch("ring", [address, out, ctypes.c_int(pieces)], threads=64) == 0
    buffer = ctypes.create_string_buffer(128)
    device.must(device.driver.cuMemcpyDtoHAsync_v2(buffer, out, ctypes.c_size_t(128), None))
    assert unpack("f", buffer.raw) == [sum(values[i * 32 + lane] * 3 ** (pieces - 1 - i) for i in range(pieces))
                                       for lane in range(32)]


def test_a_phase_ends_when_all_have_arrived(device):
    assert unpack("I", device.run("phases", 128)[0]) == [1] * 32


# --- boxes of tensors ---------------------------------------------------------------------------------------

ELEMENTS = {0: 1, 1: 2, 7: 4}  # bytes, by CUtensorMapDataType
LINES = [16, 32, 64, 128]  # bytes whose pieces of 16 are permuted, by CUtensorMapSwizzle; 16: none
BOX_BYTES = 4096


def tensor_map(device, data, sizes, strides, box, kind=1, swizzle=0, rank=None, interleave=0, step=1):
    """The driver's answer, and the map."""
    room = ctypes.create_string_buffer(192)
    room.place = -(-ctypes.addressof(room) // 64) * 64
    code = device.driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(room.place), kind, len(sizes) if rank is None else rank, ctypes.c_void_p(data),
        (ctypes.c_uint64 * len(sizes))(*sizes), (ctypes.c_uint64 * len(strides))(*strides), (ctypes.c_uint32 * len(box))(*box),
        (ctypes.c_uint32 * len(box))(*[step] * len(box)), interleave, swizzle, 2, 0)
    return code, (ctypes.c_uint64 * 16).from_address(room.place), room


def box_of(data, first, sizes, strides, box, corner, element, line):
    """What shared memory has then, computed in the order of the words in NVIDIA's documentation."""
    count = element
    for size in box:
        count *= size
    image = bytearray(count)
    for at in range(count // element):
        rest, from_, inside = at, first, True
        for i, size in enumerate(box):
            index = corner[i] + rest % size
            rest //= size
            inside = inside and 0 <= index < sizes[i]
            from_ += index * (element if i == 0 else strides[i - 1])
        to = at * element
        to ^= (to >> 7) % 8 * 16 & line - 16
        if inside:
            image[to:to + element] = data[from_:from_ + element]
    return bytes(image)


BOXES = [  # type, swizzle, sizes, strides, box, corner; bytes before the tensor where the map begins
    ("line", 0, 0, [100], [], [64], [48], 0),
    ("line_before", 7, 0, [40], [], [16], [-3], 0),
    ("rows", 1, 3, [64, 20], [160], [64, 16], [0, 9], 0),
    ("rows_half_wide", 1, 2, [32, 20], [96], [32, 16], [0, -5], 0),
    ("rows_narrow", 7, 1, [8, 9], [32], [8, 16], [2, 1], 0),
    ("halves", 1, 3, [64, 13, 2], [256, 128], [64, 8, 2], [0, 8, 0], 0),
    ("heads", 1, 3, [64, 13, 1, 3], [384, 128, 128], [64, 16, 1, 1], [0, 3, 0, 2], 0),
    ("batches", 1, 3, [64, 6, 2, 2, 2], [512, 128, 256, 3072], [64, 8, 2, 1, 1], [0, 2, 0, 1, 1], 0),
    # rows 5 to 8 of 13, of a sequence that ends there, behind 4 of 8 that are outside: see struct flash_arguments
    ("part_of_rows", 1, 3, [64, 8, 1, 3, 14], [384, 128, 128, 384], [64, 8, 1, 1, 1], [0, 4, 0, 1, 9], 8 * 384),
]


@pytest.mark.parametrize("name, kind, swizzle, sizes, strides, box, corner, before", BOXES, ids=[case[0] for case in BOXES])
def test_boxes_of_tensors(device, name, kind, swizzle, sizes, strides, box, corner, before):
    element, rank = ELEMENTS[kind], len(sizes)
    data = random.Random(name).randbytes(8192)
    expected = box_of(data, -before, sizes, strides, box, corner, element, LINES[swizzle])
    code, tensor, _ = tensor_map(device, device.memory(data).value - before, sizes, strides, box, kind, swizzle)
    assert code == 0 and len(expected) <= BOX_BYTES and any(expected)
    out = device.memory(len(expected))
    at = device.memory(pack("i", corner + [0] * (5 - rank)))
    assert device.launch(f"box_{rank}d", [tensor, at, out, ctypes.c_int(len(expected))]) == 0
    found = ctypes.create_string_buffer(len(expected))
    device.must(device.driver.cuMemcpyDtoHAsync_v2(found, out, ctypes.c_size_t(len(expected)), None))
    device.must(device.driver.cuStreamSynchronize(None))
    assert found.raw == expected


@pytest.mark.parametrize("change", [
    {"data": 8}, {"strides": [120]}, {"strides": [1 << 40]}, {"box": [64, 257]}, {"box": [64, 0]}, {"sizes": [64, 0]},
    {"sizes": [64, (1 << 32) + 1]}, {"box": [4, 8]}, {"box": [128, 8]}, {"swizzle": 9}, {"kind": 99}, {"rank": 0}, {"rank": 6},
    {"step": 9}, {"interleave": 1}], ids=str)
def test_what_no_map_can_describe_is_refused(device, change):
    usual = {"data": 0, "sizes": [64, 20], "strides": [128], "box": [64, 8], "swizzle": 3}
    address = device.memory(4096).value
    assert tensor_map(device, **{**usual, "data": address})[0] == 0
    code = tensor_map(device, **{**usual, **change, "data": address + change.get("data", 0)})[0]
    assert code == 1  # invalid value


# --- what ends a process's use of the GPU: in one of its own -------------------------------------------------

FAULTS = [
    ("unpublished", 128, LAUNCH_FAILED, "and no fence.proxy.async is between"),
    ("unordered", 128, LAUNCH_FAILED, "a race"),
    ("overwritten", 128, LAUNCH_FAILED, "a race"),
    ("touched", 128, ILLEGAL_INSTRUCTION, "a register of a product that has not been waited for"),
    ("never_waited_for", 128, ILLEGAL_INSTRUCTION, "nobody has waited for the warp's products"),
    ("different", 128, ILLEGAL_INSTRUCTION, "not the product that another of the four warps has"),
    ("right_product", 96, ILLEGAL_INSTRUCTION, "there are no four warps for it"),
    ("too_early", 64, LAUNCH_FAILED, "a bulk copy wrote it"),
    ("asked_once", 64, LAUNCH_FAILED, "a bulk copy wrote it"),
    ("nobody_arrives", 64, LAUNCH_FAILED, "waits for what never comes"),
    ("too_many", 64, ILLEGAL_INSTRUCTION, "arrivals at an mbarrier"),
    ("unmade", 64, ILLEGAL_INSTRUCTION, "there is no mbarrier at"),
    ("too_short", 64, LAUNCH_FAILED, "waits for what never comes"),
    ("read_meanwhile", 64, LAUNCH_FAILED, "a race"),
    ("unmapped", 32, ILLEGAL_INSTRUCTION, "there is no tensor map of 1 dimensions"),
    ("misaligned_map", 32, MISALIGNED, "misaligned read of 128 bytes"),
    ("too_many_registers", 256, LAUNCH_FAILED, "waits for what never comes"),
]


def run_sample(ptx, tmp_path, name, threads):
    return in_child(f"""import os
os.environ["EMULATOR_RACECHECK"] = "1"
device = Device(ptx)
print(device.launch({name!r}, [device.memory(bytes({2 * FACTOR_BYTES})), device.memory({128 * 48})], threads={threads}))
""", ptx, tmp_path)


@pytest.mark.parametrize("name, threads", [("right_product", 128), ("right_copy", 64), ("right_registers", 256)])
def test_what_is_right_is_no_fault(emulated, ptx, tmp_path, name, threads):  # noqa: F811
    done = run_sample(ptx, tmp_path, name, threads)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("name, threads, code, words", FAULTS, ids=[f"{fault[0]}-{fault[1]}" for fault in FAULTS])
def test_faults_are_told(emulated, ptx, tmp_path, name, threads, code, words):  # noqa: F811
    done = run_sample(ptx, tmp_path, name, threads)
    assert done.stdout == f"{code}\n", done.stderr
    assert f"kernel {name}, block (0, 0, 0)" in done.stderr and words in done.stderr and "PTX line" in done.stderr


# --- our kernels --------------------------------------------------------------------------------------------

PROGRAMS = {"tests-gpu": "kernels.c", "tests-gpu-gradient": "gradient.c", "tests-gpu-linear": "linear.c", "tests-gpu-model": "model.c"}
QUICK = [("tests-gpu", "attention_of_packed_sequences"), ("tests-gpu-model", "the_same_input_gives_the_same_bits")]


@pytest.fixture
def hopper(emulated, monkeypatch):  # noqa: F811
    monkeypatch.setenv("EMULATOR_CAPABILITY", "9.0")
    monkeypatch.setenv("CUDA_FORCE_PTX_JIT", "1")


@pytest.mark.parametrize("program, name", QUICK + [
    pytest.param(program, name, marks=pytest.mark.long) for program, source in PROGRAMS.items() for name in c_tests(source)
    if (program, name) not in QUICK])
def test_kernels_on_hopper(hopper, program, name):
    run_c_test(KERNELS.with_name(program), name)


def test_the_warp_that_asks_for_weights_may_be_slow(hopper, monkeypatch):
    monkeypatch.setenv("EMULATOR_LAG", "16")
    run_c_test(KERNELS.with_name("tests-gpu-model"), "blocks_without_work_keep_step")


def test_what_is_no_ptx_is_refused(hopper, monkeypatch):
    monkeypatch.delenv("CUDA_FORCE_PTX_JIT")
    done = subprocess.run([KERNELS, QUICK[0][1]], capture_output=True, text=True)
    assert done.returncode and "set CUDA_FORCE_PTX_JIT=1" in done.stderr


def test_it_is_listed_as_hopper(hopper):
    listing = json.loads(subprocess.run([QUASAR, "gpus", "--json"], capture_output=True, text=True, check=True).stdout)
    assert listing["present"][0]["compute_capability"] == 9.0
