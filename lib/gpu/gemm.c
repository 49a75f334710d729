#include "gpu/gemm.h"

#include <stdlib.h>

#include "base/memory.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"

/* As NVIDIA recommends for Hopper; older architectures use less. */
#define WORKSPACE_BYTES ((size_t)32 << 20)

struct gpu_blas {
	const struct cublaslt *library;
	struct gpu *gpu;
	struct cublaslt_context *context;
	void *workspace;
};

/* How a number of rows is multiplied. cuBLASLt's matrices are column-major, so it computes yᵀ = W xᵀ. */
struct plan {
	struct plan *next;
	int64_t rows, x_stride, y_stride;
	struct cublaslt_layout *w, *x, *y;
	struct cublaslt_algorithm algorithm;
};

struct gpu_gemm {
	struct gpu_blas *blas;
	const void *weight;
	int columns, inner;
	struct cublaslt_operation *operation;
	struct plan *plans;
};

static int check(int code, struct error *err, const char *attempt)
{
	if (!code)
		return 0;
	return error_set(err, STATUS_ENVIRONMENT, "%s: cuBLASLt (%s) failed with error %d", attempt,
		cublaslt_path(), code);
}

struct gpu_blas *gpu_blas_open(struct gpu *gpu, struct error *err)
{
	const struct cublaslt *library = cublaslt_library(err);
	struct CUctx_st *before;
	struct gpu_blas *blas;
	int code = 0;

	if (!library)
		return NULL;
	blas = xcalloc(1, sizeof(*blas));
	*blas = (struct gpu_blas){.library = library, .gpu = gpu};
	blas->workspace = gpu_allocate(gpu, WORKSPACE_BYTES, err);
	if (blas->workspace) {
		before = gpu_enter(gpu);
		code = library->cublasLtCreate(&blas->context);
		gpu_leave(gpu, before);
	}
	if (blas->workspace && check(code, err, "starting cuBLASLt") == 0)
		return blas;
	gpu_blas_close(blas);
	return NULL;
}

void gpu_blas_close(struct gpu_blas *blas)
{
	struct CUctx_st *before;

	if (!blas)
		return;
	before = gpu_enter(blas->gpu);
	if (blas->context)
		blas->library->cublasLtDestroy(blas->context);
	gpu_leave(blas->gpu, before);
	gpu_release(blas->gpu, blas->workspace);
	free(blas);
}

struct gpu_gemm *gpu_gemm_make(
	struct gpu_blas *blas, const void *weight, int columns, int inner, struct error *err)
{
	const struct cublaslt *library = blas->library;
	const int transposed = CUBLASLT_TRANSPOSED;
	struct gpu_gemm *gemm = xcalloc(1, sizeof(*gemm));
	int code;

	*gemm = (struct gpu_gemm){.blas = blas, .weight = weight, .columns = columns, .inner = inner};
	code = library->cublasLtMatmulDescCreate(&gemm->operation, CUBLASLT_COMPUTE_F32, CUBLASLT_TYPE_F32);
	if (!code)
		code = library->cublasLtMatmulDescSetAttribute(
			gemm->operation, CUBLASLT_TRANSPOSE_A, &transposed, sizeof(transposed));
	if (check(code, err, "describing a matrix product") == 0)
		return gemm;
	gpu_gemm_free(gemm);
	return NULL;
}

static void plan_free(const struct cublaslt *library, struct plan *plan)
{
	struct cublaslt_layout *layouts[] = {plan->w, plan->x, plan->y};

	for (int i = 0; i < 3; i++)
		if (layouts[i])
			library->cublasLtMatrixLayoutDestroy(layouts[i]);
	free(plan);
}

void gpu_gemm_free(struct gpu_gemm *gemm)
{
	if (!gemm)
		return;
	while (gemm->plans) {
		struct plan *plan = gemm->plans;

		gemm->plans = plan->next;
		plan_free(gemm->blas->library, plan);
	}
	if (gemm->operation)
		gemm->blas->library->cublasLtMatmulDescDestroy(gemm->operation);
	free(gemm);
}

static int lay_out(const struct gpu_gemm *gemm, struct plan *plan)
{
	const struct cublaslt *library = gemm->blas->library;
	uint64_t columns = (uint64_t)gemm->columns, inner = (uint64_t)gemm->inner,
		 rows = (uint64_t)plan->rows;
	int code = library->cublasLtMatrixLayoutCreate(
		&plan->w, CUBLASLT_TYPE_BF16, inner, columns, gemm->inner);

	if (!code)
		code = library->cublasLtMatrixLayoutCreate(
			&plan->x, CUBLASLT_TYPE_BF16, inner, rows, plan->x_stride);
	if (!code)
		code = library->cublasLtMatrixLayoutCreate(
			&plan->y, CUBLASLT_TYPE_BF16, columns, rows, plan->y_stride);
	return code;
}

/* Asks for the algorithm that cuBLASLt thinks fastest. */
static int choose(const struct gpu_gemm *gemm, struct plan *plan)
{
	const struct cublaslt *library = gemm->blas->library;
	const size_t workspace = WORKSPACE_BYTES;
	struct cublaslt_preference *preference = NULL;
	struct cublaslt_choice choice = {0};
	int found = 0, code = library->cublasLtMatmulPreferenceCreate(&preference);

	if (!code)
		code = library->cublasLtMatmulPreferenceSetAttribute(
			preference, CUBLASLT_MOST_WORKSPACE, &workspace, sizeof(workspace));
	if (!code)
		code = library->cublasLtMatmulAlgoGetHeuristic(gemm->blas->context, gemm->operation, plan->w,
			plan->x, plan->y, plan->y, preference, 1, &choice, &found);
	if (preference)
		library->cublasLtMatmulPreferenceDestroy(preference);
	plan->algorithm = choice.algorithm;
	return code ? code : choice.status;
}

static const struct plan *plan_for(
	struct gpu_gemm *gemm, int64_t rows, int64_t x_stride, int64_t y_stride, struct error *err)
{
	struct plan *plan;

	for (plan = gemm->plans; plan; plan = plan->next)
		if (plan->rows == rows && plan->x_stride == x_stride && plan->y_stride == y_stride)
			return plan;
	plan = xcalloc(1, sizeof(*plan));
	*plan = (struct plan){.rows = rows, .x_stride = x_stride, .y_stride = y_stride, .next = gemm->plans};
	if (check(lay_out(gemm, plan), err, "describing a matrix") < 0 ||
		check(choose(gemm, plan), err, "choosing how to multiply matrices") < 0) {
		plan_free(gemm->blas->library, plan);
		return NULL;
	}
	gemm->plans = plan;
	return plan;
}

int gpu_gemm_run(struct gpu_gemm *gemm, struct gpu_rows x, int64_t rows, struct gpu_rows y, struct error *err)
{
	const float one = 1, zero = 0;
	struct gpu_blas *blas = gemm->blas;
	struct CUctx_st *before = gpu_enter(blas->gpu);
	const struct plan *plan = plan_for(gemm, rows, x.stride, y.stride, err);
	int code = 0;

	if (plan)
		code = blas->library->cublasLtMatmul(blas->context, gemm->operation, &one, gemm->weight,
			plan->w, x.data, plan->x, &zero, y.data, plan->y, y.data, plan->y, &plan->algorithm,
			blas->workspace, WORKSPACE_BYTES, gpu_stream(blas->gpu));
	gpu_leave(blas->gpu, before);
	return plan ? check(code, err, "multiplying matrices") : -1;
}
