/* hopper: small kernels of what compute capability 9.0 has alone. */

static __device__ unsigned address_of(const void *shared)
{
	return (unsigned)__cvta_generic_to_shared(shared);
}

static __device__ void publish(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ void init(unsigned barrier, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ void expect(unsigned barrier, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
		     : "memory");
}

static __device__ void arrive(unsigned barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ bool has_ended(unsigned barrier, int parity)
{
	int ended;

	asm volatile(
		"{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
		: "=r"(ended)
		: "r"(barrier), "r"(parity)
		: "memory");
	return ended;
}

static __device__ void await(unsigned barrier, int parity)
{
	while (!has_ended(barrier, parity))
		;
}

static __device__ void copy(unsigned to, const void *from, int bytes, unsigned barrier)
{
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
			"r"(to),
		"l"(from), "r"(bytes), "r"(barrier)
		: "memory");
}

/* --- products ------------------------------------------------------------------------------------------ */

#define FACTOR_BYTES 8192

struct factors {
	__align__(1024) unsigned char left[FACTOR_BYTES], right[FACTOR_BYTES];
};

static __device__ void load_factors(factors &shared, const uint4 *in)
{
	for (int i = threadIdx.x; i < 2 * FACTOR_BYTES / 16; i += blockDim.x)
		((uint4 *)shared.left)[i] = in[i];
}

static __device__ unsigned long long descriptor(const void *tile, unsigned long long layout)
{
	return layout | (address_of(tile) >> 4 & 0x3fff);
}

#define SUMS                                                                                                 \
	"+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),      \
		"+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11])
#define BEGIN asm volatile("wgmma.fence.sync.aligned;" : SUMS::"memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define FINISH asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS::"memory")
#define SUM_NAMES "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}"
#define MULTIPLY(type, left_transposed, right_transposed)                                                    \
	asm volatile("wgmma.mma_async.sync.aligned.m64n24k16.f32." type "." type " " SUM_NAMES               \
		     ", %12, %13, 1, 1, -1, " #left_transposed ", " #right_transposed ";"                    \
		     : SUMS                                                                                  \
		     : "l"(left), "l"(right))

static __device__ void store_sums(float *out, const float (&c)[12])
{
	for (int i = 0; i < 12; i++)
		out[threadIdx.x * 12 + i] = c[i];
}

/* c −= left · right for 64 × 16 and 16 × 24, whose tiles lie as the layouts say. */
#define PRODUCT(name, type, left_transposed, right_transposed)                                               \
	extern "C" __global__ void name(const uint4 *in, const unsigned long long *layouts, float *out)      \
	{                                                                                                    \
		__shared__ factors shared;                                                                   \
		const unsigned long long left = descriptor(shared.left, layouts[0]);                         \
		const unsigned long long right = descriptor(shared.right, layouts[1]);                       \
		float c[12];                                                                                 \
                                                                                                             \
		load_factors(shared, in);                                                                    \
		publish();                                                                                   \
		__syncthreads();                                                                             \
		for (int i = 0; i < 12; i++)                                                                 \
			c[i] = (float)i;                                                                     \
		BEGIN;                                                                                       \
		MULTIPLY(type, left_transposed, right_transposed);                                           \
		COMMIT;                                                                                      \
		FINISH;                                                                                      \
		store_sums(out, c);                                                                          \
	}
PRODUCT(product_00, "bf16", 0, 0)
PRODUCT(product_01, "f16", 0, 1)
PRODUCT(product_10, "f16", 1, 0)
PRODUCT(product_11, "bf16", 1, 1)

/* The left factor in registers, as mma.sync has it: warp w has rows 16 w … */
extern "C" __global__ void product_of_registers(
	const uint4 *in, const unsigned *left, const unsigned long long *layouts, float *out)
{
	__shared__ factors shared;
	const unsigned long long right = descriptor(shared.right, layouts[1]);
	float c[12] = {0};

	load_factors(shared, in);
	publish();
	__syncthreads();
	left += threadIdx.x * 4;
	BEGIN;
	for (int i = 0; i < 2; i++) /* the first forgets what was there */
		asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %17, 0;\n"
			     "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 " SUM_NAMES
			     ", {%12, %13, %14, %15}, %16, p, 1, 1, 0;\n}"
			     : SUMS
			     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(i));
	COMMIT;
	FINISH;
	store_sums(out, c);
}

/* --- barriers and copies ------------------------------------------------------------------------------- */

/* One thread copies pieces into two places by turns, and a warp adds them up. */
extern "C" __global__ void ring(const float *in, float *out, int pieces)
{
	__shared__ __align__(128) float stage[2][32];
	__shared__ unsigned long long barriers[4];
	const unsigned full = address_of(barriers), empty = full + 16;

	if (threadIdx.x == 0)
		for (int i = 0; i < 2; i++) {
			init(full + i * 8, 1);
			init(empty + i * 8, 32);
		}
	__syncthreads();
	if (threadIdx.x >= 32) {
		for (int i = 0; i < pieces && threadIdx.x == 32; i++) {
			await(empty + i % 2 * 8, i / 2 & 1 ^ 1);
			expect(full + i % 2 * 8, 128);
			copy(address_of(stage[i % 2]), in + i * 32, 128, full + i % 2 * 8);
		}
		return;
	}
	float sum = 0;

	for (int i = 0; i < pieces; i++) {
		await(full + i % 2 * 8, i / 2 & 1);
		sum = sum * 3 + stage[i % 2][threadIdx.x];
		arrive(empty + i % 2 * 8);
	}
	out[threadIdx.x] = sum;
}

struct __align__(64) tensor_map
{
	unsigned long long opaque[16];
};

#define BOX_BYTES 4096

/* A box of a tensor of so many dimensions, as it lies in shared memory then. */
#define BOX(rank, corner)                                                                                    \
	extern "C" __global__ void box_##rank##d(                                                            \
		const __grid_constant__ tensor_map map, const int *at, uint4 *out, int bytes)                \
	{                                                                                                    \
		__shared__ __align__(1024) uint4 box[BOX_BYTES / 16];                                        \
		__shared__ unsigned long long barrier;                                                       \
		const unsigned full = address_of(&barrier);                                                  \
                                                                                                             \
		if (threadIdx.x == 0) {                                                                      \
			init(full, 1);                                                                       \
			asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");                   \
			expect(full, bytes);                                                                 \
			asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile"           \
				     ".mbarrier::complete_tx::bytes [%0], [%1, {" corner "}], [%7];"         \
				     :                                                                       \
				     : "r"(address_of(box)), "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]),  \
				     "r"(at[3]), "r"(at[4]), "r"(full)                                       \
				     : "memory");                                                            \
		}                                                                                            \
		__syncthreads();                                                                             \
		await(full, 0);                                                                              \
		for (int i = threadIdx.x; i < bytes / 16; i += 32)                                           \
			out[i] = box[i];                                                                     \
	}
BOX(1, "%2")
BOX(2, "%2, %3")
BOX(3, "%2, %3, %4")
BOX(4, "%2, %3, %4, %5")
BOX(5, "%2, %3, %4, %5, %6")

/* Of the same barrier: which phase one has arrived in, and whether it has ended before and after the others came. */
extern "C" __global__ void phases(unsigned *out)
{
	__shared__ unsigned long long barrier;
	const unsigned address = address_of(&barrier);
	unsigned long long state;
	unsigned ended[2];

	if (threadIdx.x == 0)
		init(address, 36);
	__syncwarp();
	asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
	for (int i = 0; i < 2; i++) {
		asm volatile(
			"{\n.reg .pred p;\nmbarrier.test_wait.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
			: "=r"(ended[i])
			: "r"(address), "l"(state)
			: "memory");
		__syncwarp();
		if (i == 0 && threadIdx.x == 0)
			asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 4;" ::"r"(address) : "memory");
		__syncwarp();
	}
	out[threadIdx.x] = ended[0] * 2 + ended[1];
	__syncwarp();
	if (threadIdx.x == 0)
		asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address) : "memory");
}

/* --- what an emulated GPU finds ------------------------------------------------------------------------- */

enum { NOTHING, NO_FENCE, NO_BARRIER, OVERWRITTEN, TOUCHED, NOT_WAITED_FOR, DIFFERENT };

/* A product, and what is wrong with it. */
template <int WRONG> static __device__ void wrong_product(const uint4 *in, float *out)
{
	__shared__ factors shared;
	const unsigned long long layout = 1ull << 62 | 64ull << 32 | 64ull << 16;
	const unsigned long long left = descriptor(shared.left, layout) +
		(WRONG == DIFFERENT ? threadIdx.x / 32 : 0);
	const unsigned long long right = descriptor(shared.right, layout);
	float c[12] = {0};

	load_factors(shared, in);
	if (WRONG != NO_FENCE)
		publish();
	if (WRONG != NO_BARRIER)
		__syncthreads();
	BEGIN;
	MULTIPLY("bf16", 0, 0);
	COMMIT;
	if (WRONG == OVERWRITTEN)
		((volatile unsigned *)shared.right)[threadIdx.x] = 0;
	if (WRONG == TOUCHED)
		asm volatile("mul.f32 %0, %0, 0f40000000;" : "+f"(c[5]));
	if (WRONG != NOT_WAITED_FOR)
		FINISH;
	if (WRONG != NOT_WAITED_FOR)
		store_sums(out, c);
}
#define WRONG_PRODUCT(name, wrong)                                                                           \
	extern "C" __global__ void name(const uint4 *in, float *out)                                         \
	{                                                                                                    \
		wrong_product<wrong>(in, out);                                                               \
	}
WRONG_PRODUCT(right_product, NOTHING)
WRONG_PRODUCT(unpublished, NO_FENCE)
WRONG_PRODUCT(unordered, NO_BARRIER)
WRONG_PRODUCT(overwritten, OVERWRITTEN)
WRONG_PRODUCT(touched, TOUCHED)
WRONG_PRODUCT(never_waited_for, NOT_WAITED_FOR)
WRONG_PRODUCT(different, DIFFERENT)

enum { TOO_EARLY = 1, NOBODY_ARRIVES, TOO_MANY, UNMADE, TOO_SHORT, READ_MEANWHILE, ASKED_ONCE };

/* A copy of 128 bytes, likewise. */
template <int WRONG> static __device__ void wrong_copy(const uint4 *in, float *out)
{
	__shared__ __align__(128) volatile float there[32];
	__shared__ unsigned long long barrier;
	const unsigned address = address_of(&barrier);

	if (threadIdx.x == 0 && WRONG != UNMADE)
		init(address, 1 + (WRONG == NOBODY_ARRIVES));
	__syncthreads();
	if (threadIdx.x == 0) {
		expect(address, WRONG == TOO_SHORT ? 144 : 128);
		copy(address_of((const void *)there), in, 128, address);
	}
	if (WRONG == TOO_MANY && threadIdx.x == 33)
		asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 2;" ::"r"(address) : "memory");
	if (WRONG == TOO_EARLY)
		__syncthreads();
	else if (WRONG == ASKED_ONCE)
		has_ended(address, 0);
	else
		await(address, 0);
	out[threadIdx.x] = there[threadIdx.x % 32];
	await(address, 0);
	if (WRONG == READ_MEANWHILE && threadIdx.x == 32) {
		expect(address, 128);
		copy(address_of((const void *)there), in, 128, address);
		await(address, 1);
	}
}
#define WRONG_COPY(name, wrong)                                                                              \
	extern "C" __global__ void name(const uint4 *in, float *out)                                         \
	{                                                                                                    \
		wrong_copy<wrong>(in, out);                                                                  \
	}
WRONG_COPY(right_copy, NOTHING)
WRONG_COPY(too_early, TOO_EARLY)
WRONG_COPY(nobody_arrives, NOBODY_ARRIVES)
WRONG_COPY(too_many, TOO_MANY)
WRONG_COPY(unmade, UNMADE)
WRONG_COPY(too_short, TOO_SHORT)
WRONG_COPY(read_meanwhile, READ_MEANWHILE)
WRONG_COPY(asked_once, ASKED_ONCE)

/* A box of a map that is none. */
static __device__ void copy_box(const void *map)
{
	__shared__ __align__(128) uint4 box[8];
	__shared__ unsigned long long barrier;

	if (threadIdx.x == 0) {
		init(address_of(&barrier), 1);
		expect(address_of(&barrier), 128);
		asm volatile(
			"cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
			"[%1, {%2}], [%3];" ::"r"(address_of(box)),
			"l"(map), "r"(0), "r"(address_of(&barrier))
			: "memory");
	}
}

extern "C" __global__ void unmapped(const uint4 *in, float *out)
{
	copy_box(in);
}

/* Of 8 bytes, as parameters are by themselves. */
extern "C" __global__ void misaligned_map(const __grid_constant__ uint2 in, float *out)
{
	copy_box(&in);
}

/* One group of four warps gives registers away, and the other takes `TAKEN` of a thread. */
template <int TAKEN> static __device__ void share_registers(void)
{
	if (threadIdx.x < 128)
		asm volatile("setmaxnreg.dec.sync.aligned.u32 96;");
	else
		asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TAKEN));
}

extern "C" __global__ void __launch_bounds__(256, 2) right_registers(const uint4 *in, float *out)
{
	share_registers<160>();
}

extern "C" __global__ void __launch_bounds__(256, 2) too_many_registers(const uint4 *in, float *out)
{
	share_registers<168>();
}
