/* samples: small kernels whose results are known, by whatever GPU runs them. */

extern "C" __global__ void products(const unsigned *a, const unsigned *b, const float *c, float *bf16,
	float *f16, const float *left, const float *right, float *tf32)
{
	const int lane = threadIdx.x;
	float d[4], e[4], f[4];

	for (int i = 0; i < 4; i++)
		d[i] = e[i] = f[i] = c[lane * 4 + i];
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
	    "%2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[lane * 4]), "r"(a[lane * 4 + 1]), "r"(a[lane * 4 + 2]), "r"(a[lane * 4 + 3]),
		"r"(b[lane * 2]), "r"(b[lane * 2 + 1]));
	a += 128, b += 64;
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
	    "%3};"
		: "+f"(e[0]), "+f"(e[1]), "+f"(e[2]), "+f"(e[3])
		: "r"(a[lane * 4]), "r"(a[lane * 4 + 1]), "r"(a[lane * 4 + 2]), "r"(a[lane * 4 + 3]),
		"r"(b[lane * 2]), "r"(b[lane * 2 + 1]));
	/* 16 × 8 by 8 × 8, each element where its lane has it: see matrix.c */
	const int g = lane / 4, t = lane % 4;
	asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
	    "%3};"
		: "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
		: "r"(__float_as_uint(left[g * 8 + t])), "r"(__float_as_uint(left[(g + 8) * 8 + t])),
		"r"(__float_as_uint(left[g * 8 + t + 4])), "r"(__float_as_uint(left[(g + 8) * 8 + t + 4])),
		"r"(__float_as_uint(right[t * 8 + g])), "r"(__float_as_uint(right[(t + 4) * 8 + g])));
	for (int i = 0; i < 4; i++) {
		bf16[lane * 4 + i] = d[i];
		f16[lane * 4 + i] = e[i];
		tf32[lane * 4 + i] = f[i];
	}
}

/* Four 8 × 8 matrices, as they are, transposed, and transposed once more. */
extern "C" __global__ void fragments(
	const unsigned short *in, unsigned *plain, unsigned *transposed, unsigned *back)
{
	__shared__ __align__(16) unsigned short matrices[4][8][8];
	const int lane = threadIdx.x;
	const unsigned address = (unsigned)__cvta_generic_to_shared(&matrices[lane / 8][lane % 8][0]);
	unsigned r[4], s[4];

	for (int i = lane; i < 256; i += 32)
		(&matrices[0][0][0])[i] = in[i];
	__syncwarp();
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(address));
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
		     : "r"(address));
	for (int i = 0; i < 4; i++) {
		unsigned t;

		asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(s[i]));
		plain[i * 32 + lane] = r[i];
		transposed[i * 32 + lane] = s[i];
		back[i * 32 + lane] = t;
	}
}

extern "C" __global__ void lanes(unsigned *out)
{
	const unsigned lane = threadIdx.x, value = lane * lane;
	int same;

	out[lane] = __shfl_xor_sync(~0u, value, 5);
	out[32 + lane] = __shfl_up_sync(~0u, value, 3);
	out[64 + lane] = __shfl_down_sync(~0u, value, 2, 8);
	out[96 + lane] = __shfl_sync(~0u, value, 5, 16);
	out[128 + lane] = __ballot_sync(~0u, lane % 3 == 0);
	out[160 + lane] = __match_any_sync(~0u, lane / 5);
	out[192 + lane] = __reduce_add_sync(~0u, value) + __reduce_max_sync(~0u, lane);
	out[224 + lane] = __any_sync(~0u, lane == 7) * 4 + __all_sync(~0u, lane < 31) * 2 +
		__all_sync(~0u, lane < 32);
	__match_all_sync(~0u, lane / 32, &same);
	out[256 + lane] = same;
}

static __device__ __noinline__ unsigned collatz(unsigned n)
{
	unsigned steps = 0;

	for (; n != 1; steps++)
		n = n % 2 ? 3 * n + 1 : n / 2;
	return steps;
}

/* Lanes that go different ways, and meet. */
extern "C" __global__ void ways(unsigned *out)
{
	const unsigned lane = threadIdx.x;
	unsigned steps = lane % 2 ? collatz(lane) : 0;

	for (unsigned i = 0; i < lane; i++)
		if (i % 3 == 0)
			steps += __popc(__ballot_sync(__activemask(), 1)) > 0;
	out[lane] = steps;
	switch (lane % 8) {
	case 0:
		steps = 3;
		break;
	case 1:
		steps *= 5;
		break;
	case 2:
		steps -= 7;
		break;
	case 3:
		steps ^= 11;
		break;
	case 4:
		steps += 13;
		break;
	case 5:
		return;
	case 6:
		steps = ~steps;
	}
	out[32 + lane] = steps;
}

/* Registers of an inner scope hide those of the same names around it: the compiler writes such scopes, too, for barriers
 * that ask for a condition. */
extern "C" __global__ void scopes(unsigned *out)
{
	unsigned square;

	asm volatile("mul.lo.u32 %0, %1, %1;" : "=r"(square) : "r"(threadIdx.x));
	asm volatile("{\n.reg .b32 %%r1, %%r2;\nmov.b32 %%r1, %0;\nmov.b32 %%r2, %0;\n}" ::"n"(7));
	out[threadIdx.x] = square;
}

extern "C" __global__ void integers(const long long *a, const long long *b, long long *out)
{
	const int i = threadIdx.x;
	const long long x = a[i], y = b[i];
	const int s = (int)x, t = (int)y;
	const unsigned u = (unsigned)x, v = (unsigned)y;
	const unsigned long long p = (unsigned long long)x, q = (unsigned long long)y;

	out += i * 16;
	out[0] = x + y;
	out[1] = y ? x / y : 0;
	out[2] = y ? x % y : 0;
	out[3] = __mul64hi(x, y);
	out[4] = (long long)__umul64hi(p, q);
	out[5] = t ? s / t : 0;
	out[6] = v ? u % v : 0;
	out[7] = (long long)s * t;
	out[8] = __popcll(p) * 10000 + __clzll(x) * 100 + __ffs(s);
	out[9] = s >> (v & 31);
	out[10] = __byte_perm(u, v, 0x7250);
	out[11] = __funnelshift_l(u, v, 13);
	out[12] = (long long)(unsigned)__brev(u);
	out[13] = (long long)(((unsigned __int128)p * q + p) >> 64);
	out[14] = (u ^ v) & ~(u | 0xff);
	out[15] = __dp4a(s, t, 17);
}

extern "C" __global__ void conversions(const float *in, int *out)
{
	const int i = threadIdx.x;
	const float x = in[i];
	unsigned short half[4];
	unsigned pair, rounded;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half[0]) : "f"(x));
	asm("cvt.rz.f16.f32 %0, %1;" : "=h"(half[1]) : "f"(x));
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half[2]) : "f"(x));
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(-x));
	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
	out += i * 9;
	out[0] = half[0];
	out[1] = half[1];
	out[2] = half[2];
	out[3] = (int)pair;
	out[4] = (int)rounded;
	out[5] = __float2int_rn(x);
	out[6] = __float2int_rd(x);
	out[7] = (int)__float2uint_rz(x);
	out[8] = __float_as_int(__fadd_ru(x, 1e-9f));
}

/* What is copied is there when it has been waited for, and not before. */
extern "C" __global__ void copies(const float *in, float *early, float *late)
{
	__shared__ __align__(16) float there[128 + 32];
	const unsigned address = (unsigned)__cvta_generic_to_shared(there + threadIdx.x * 4);
	const unsigned cleared = (unsigned)__cvta_generic_to_shared(there + 128 + threadIdx.x);

	there[128 + threadIdx.x] = 1.0f;
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(in + threadIdx.x * 4)
		     : "memory");
	asm volatile("cp.async.commit_group;" ::: "memory");
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 0;" ::"r"(cleared), "l"(in) : "memory");
	asm volatile("cp.async.commit_group;" ::: "memory");
	early[threadIdx.x] = *(volatile float *)&there[threadIdx.x * 4 + 1];
	asm volatile("cp.async.wait_group 1;" ::: "memory");
	late[threadIdx.x] = *(volatile float *)&there[threadIdx.x * 4 + 1];
	asm volatile("cp.async.wait_all;" ::: "memory");
	late[32 + threadIdx.x] = *(volatile float *)&there[128 + threadIdx.x];
}

/* Each block waits for the next one's word, and the last begins; within one, half of the warps wait for the rest. */
extern "C" __global__ void chain(int *words, int *sums)
{
	__shared__ int shared[64];
	const int thread = threadIdx.x;
	volatile int *word = words + blockIdx.x;

	if (thread < 64) {
		shared[thread] = thread;
		__threadfence_block();
		asm volatile("bar.arrive 3, 128;" ::: "memory");
	} else {
		asm volatile("bar.sync 3, 128;" ::: "memory");
		shared[thread - 64] += 100;
	}
	if (__syncthreads_count(thread % 3 == 0) != 43)
		return;
	if (thread == 0) {
		if (blockIdx.x + 1 < gridDim.x)
			while (!word[1])
				;
		__threadfence();
		*word = 1 + (blockIdx.x + 1 < gridDim.x ? word[1] : 0);
	}
	atomicAdd(&sums[blockIdx.x], shared[thread % 64]);
}

extern "C" __global__ void mathematics(const double *in, double *out)
{
	const double x = in[threadIdx.x];

	out += threadIdx.x * 5;
	out[0] = sin(x);
	out[1] = exp(-fabs(x) / 100);
	out[2] = pow(fabs(x), 0.3);
	out[3] = expf((float)-fabs(x) / 100);
	out[4] = erf(x / 50);
}

extern "C" __global__ void prints(int number)
{
	printf("%d: %5.2f %s %llu%%\n", number + threadIdx.x, 1.5, "text", 1ull << 40);
}

/* --- what an emulated GPU finds ------------------------------------------------------------------------- */

extern "C" __global__ void beyond(float *out)
{
	out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void misaligned(char *out)
{
	*(int *)(out + 2) = 1;
}

extern "C" __global__ void beyond_shared(float *out)
{
	extern __shared__ float memory[];

	memory[threadIdx.x] = 1.0f;
	out[0] = memory[0];
}

extern "C" __global__ void unwritten(float *out)
{
	__shared__ volatile float memory[4];

	out[0] = memory[1];
}

extern "C" __global__ void for_ever(float *out)
{
	if (threadIdx.x < 32)
		asm volatile("bar.sync 1, 64;");
	out[0] = 1.0f;
}

extern "C" __global__ void partly(float *out)
{
	if (threadIdx.x < 16)
		out[threadIdx.x] = __shfl_sync(0xff, out[threadIdx.x], 3);
}

/* A barrier is missing: the second warp reads what the first may not have written yet. */
extern "C" __global__ void races(float *out)
{
	__shared__ volatile float memory[32];

	if (threadIdx.x < 32)
		memory[threadIdx.x] = out[threadIdx.x];
	if (threadIdx.x >= 32)
		out[threadIdx.x] = memory[threadIdx.x - 32];
}

extern "C" __global__ void asserts(float *out)
{
	if (out[threadIdx.x] > 7)
		__trap();
}
