#include "op/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#include "op/cpu.h"

/* from cblas.h */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

static struct {
	pthread_once_t once;
	sgemm_function *sgemm;
} blas = {.once = PTHREAD_ONCE_INIT};

static void open_library(void)
{
	/* after libopenblas.so.0, names that other distributions give the same library */
	static const char *const names[] = {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"};
	void (*set_threads)(int threads);
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof(names) / sizeof(*names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	blas.sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
	/* our own threads share the rows: two pools of threads would wait for each other's processors */
	set_threads = (void (*)(int))dlsym(library, "openblas_set_num_threads");
	if (set_threads)
		set_threads(1);
}

int blas_multiply(const float *a, const float *b, float *c, int rows, int columns, int inner,
	struct error *err)
{
	int threads = cpu_threads() < rows ? cpu_threads() : rows;

	pthread_once(&blas.once, open_library);
	if (!blas.sgemm) {
		error_set(err, STATUS_ENVIRONMENT, "the layer needs OpenBLAS, which cannot be opened here");
		return error_hint(err, "Install it: apt-get install libopenblas0-pthread");
	}
#pragma omp parallel for num_threads(threads)
	for (int i = 0; i < threads; i++) {
		int first = (int)((int64_t)rows * i / threads), last = (int)((int64_t)rows * (i + 1) / threads);

		if (last > first)
			blas.sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, last - first, columns, inner, 1,
				a + (size_t)first * (size_t)inner, inner, b, inner, 0,
				c + (size_t)first * (size_t)columns, columns);
	}
	return 0;
}
