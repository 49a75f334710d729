#include <stdlib.h>

#include "cpu/cpu.h"
#include "op/quasar_backward/kernel.h"

static quasar_gradient_kernel *const kernels[CPU_VARIANTS] = {
	[CPU_BASELINE] = quasar_gradient_kernel_baseline,
#ifdef __x86_64__
	[CPU_X86_64_V3] = quasar_gradient_kernel_x86_64_v3,
	[CPU_X86_64_V4] = quasar_gradient_kernel_x86_64_v4,
	[CPU_X86_64_AMX] = quasar_gradient_kernel_x86_64_v4,
#endif
};

int quasar_gradient_cpu(const struct quasar_gradient *gradient, struct error *err)
{
	int heads = gradient->problem.heads, failed = 0;
	int64_t count = gradient->problem.batch * heads;
	double *d_beta;

	if (quasar_gradient_check(gradient, err) < 0)
		return -1;
	d_beta = calloc((size_t)count, sizeof(*d_beta));
	if (!d_beta)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for the gradient of beta");
#pragma omp parallel for num_threads(cpu_threads()) schedule(dynamic, 1) reduction(| : failed)
	for (int64_t i = 0; i < count; i++)
		failed |= !kernels[cpu_variant()](gradient, i / heads, (int)(i % heads), &d_beta[i]);
	for (int head = 0; head < heads && gradient->d_beta; head++) {
		double sum = 0;

		for (int64_t i = head; i < count; i += heads)
			sum += d_beta[i];
		gradient->d_beta[head] = (float)sum;
	}
	free(d_beta);
	return failed
		? error_set(err, STATUS_ENVIRONMENT, "not enough memory for the states between %lld tokens",
			  (long long)gradient->problem.tokens)
		: 0;
}
