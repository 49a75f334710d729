#include "cpu/blas.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>

/* from cblas.h */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

static struct {
	pthread_once_t once;
	sgemm_function *sgemm;
	const char *path;
} blas = {.path = "", .once = PTHREAD_ONCE_INIT};

static void open_library(void)
{
	/* after libopenblas.so.0, names that other distributions give the same library */
	static const char *const names[] = {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"};
	void (*set_threads)(int threads);
	struct link_map *map;
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof(names) / sizeof(*names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		blas.path = map->l_name;
	blas.sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
	/* our own threads share the work: two pools of threads would wait for each other's processors */
	set_threads = (void (*)(int))dlsym(library, "openblas_set_num_threads");
	if (set_threads)
		set_threads(1);
}

int blas_open(struct error *err)
{
	pthread_once(&blas.once, open_library);
	if (blas.sgemm)
		return 0;
	error_set(err, STATUS_ENVIRONMENT, "the layer needs OpenBLAS, which cannot be loaded");
	return error_hint(err, "Install it with: apt-get install libopenblas0-pthread");
}

const char *blas_path(void)
{
	return blas.path;
}

void blas_multiply(const float *a, const float *b, float *c, int rows, int columns, int inner)
{
	blas.sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, rows, columns, inner, 1, a, inner, b, inner, 0, c,
		columns);
}
