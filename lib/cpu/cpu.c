#include "cpu/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- variants ------------------------------------------------------------------------------------ */

static const char *const names[CPU_VARIANTS] = {"baseline", "x86_64_v3", "x86_64_v4", "x86_64_amx"};

#ifdef __x86_64__
static bool has_amx(void)
{
	enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
		__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5 /* AVX512_BF16 */);
}

/* Asks the system for the use of AMX's registers, which it grants process by process. */
static bool amx_permitted(void)
{
	enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

	return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static enum cpu_variant best_variant(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
		!__builtin_cpu_supports("bmi2"))
		return CPU_BASELINE;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
		!__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
		return CPU_X86_64_V3;
	return has_amx() && amx_permitted() ? CPU_X86_64_AMX : CPU_X86_64_V4;
}
#else
static enum cpu_variant best_variant(void)
{
	return CPU_BASELINE;
}
#endif

static struct {
	pthread_once_t once;
	enum cpu_variant selected;
	const char *names[CPU_VARIANTS + 1]; /* up to the best one; ends with NULL */
} variants = {.once = PTHREAD_ONCE_INIT};

static void find_variants(void)
{
	variants.selected = best_variant();
	memcpy(variants.names, names, (variants.selected + 1) * sizeof(*names));
}

enum cpu_variant cpu_variant(void)
{
	pthread_once(&variants.once, find_variants);
	return variants.selected;
}

const char *cpu_variant_name(void)
{
	return names[cpu_variant()];
}

const char *const *cpu_variants(void)
{
	pthread_once(&variants.once, find_variants);
	return variants.names;
}

int cpu_variant_select(const char *name)
{
	for (int i = 0; cpu_variants()[i]; i++) {
		if (strcmp(names[i], name))
			continue;
		variants.selected = (enum cpu_variant)i;
		return 0;
	}
	return -1;
}

/* --- threads ------------------------------------------------------------------------------------- */

/* OpenMP's threads spin for milliseconds while they wait for each other. On a machine that has other work, the
 * one that is waited for may need the very processor that another spins on; then that costs ten times what it
 * saves. They sleep after some tens of microseconds here, unless the user wants otherwise. Comes before OpenMP
 * looks at its environment. */
__attribute__((constructor(101))) static void wait_briefly(void)
{
	if (getenv("OMP_WAIT_POLICY"))
		return;
	setenv("GOMP_SPINCOUNT", "1000", 0);
	setenv("KMP_BLOCKTIME", "0", 0);
}

static int threads_wanted;

int cpu_threads(void)
{
	return threads_wanted ? threads_wanted : omp_get_num_procs();
}

void cpu_threads_set(int threads)
{
	threads_wanted = threads;
}

void cpu_describe(char *text, size_t size)
{
	char line[256], model[128] = "";
	FILE *info = fopen("/proc/cpuinfo", "re");

	while (info && !model[0] && fgets(line, sizeof(line), info))
		if (sscanf(line, "model name : %127[^\n]", model) != 1)
			model[0] = '\0';
	if (info)
		fclose(info);
	snprintf(text, size, "cpu (%s%s%d thread%s, %s)", model, model[0] ? ", " : "", cpu_threads(),
		cpu_threads() == 1 ? "" : "s", cpu_variant_name());
}
