/* cuda: the few parts of the CUDA driver API, of NVRTC and of cuBLASLt that are used, as function tables. The
 * libraries are opened at run time, so that one binary runs with and without a GPU.
 *
 * Types and constants follow NVIDIA's documentation; no header of theirs is needed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum cuda_attribute {
	CUDA_CLOCK_KHZ = 13,
	CUDA_MULTIPROCESSORS = 16,
	CUDA_MEMORY_CLOCK_KHZ = 36,
	CUDA_MEMORY_BUS_BITS = 37,
	CUDA_L2_BYTES = 38,
	CUDA_CAPABILITY_MAJOR = 75,
	CUDA_CAPABILITY_MINOR = 76,
	CUDA_SHARED_PER_MULTIPROCESSOR = 81,
	CUDA_REGISTERS_PER_MULTIPROCESSOR = 82,
	CUDA_SHARED_PER_BLOCK = 97, /* the most that a kernel may ask for */
};

enum { CUDA_FUNCTION_SHARED_BYTES = 8 };
enum { CUDA_STREAM_NON_BLOCKING = 1 };
/* Of a tensor map: elements of 16 bits; nothing interleaved; rows of 128 bytes permuted, what is fetched into the cache; zeros
 * for what is outside. */
enum {
	CUDA_MAP_U16 = 1,
	CUDA_MAP_PLAIN = 0,
	CUDA_MAP_SWIZZLE_128 = 3,
	CUDA_MAP_L2_128 = 2,
	CUDA_MAP_ZEROS = 0
};

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;
struct CUstream_st;
struct tensor_map;

/* CUlaunchAttribute: `value` of the first kind is an int. */
enum {
	CUDA_LAUNCH_EARLY = 6
}; /* 1: before the launch before has ended ("programmatic stream serialization") */
struct cuda_launch_attribute {
	int kind, padding, value[16];
};

/* CUlaunchConfig */
struct cuda_launch {
	unsigned grid[3], block[3], shared_bytes;
	struct CUstream_st *stream;
	struct cuda_launch_attribute *attributes;
	unsigned attribute_count;
};

/* Each returns 0 or an error code that cuda_check understands. */
struct cuda_driver {
	int (*cuInit)(unsigned flags);
	int (*cuDriverGetVersion)(int *version); /* 13000 is 13.0 */
	int (*cuDeviceGetCount)(int *count);
	int (*cuDeviceGet)(int *device, int ordinal);
	int (*cuDeviceGetName)(char *name, int size, int device);
	int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
	int (*cuDeviceGetPCIBusId)(char *id, int size, int device);
	int (*cuDeviceTotalMem_v2)(size_t *bytes, int device);
	int (*cuDevicePrimaryCtxRetain)(struct CUctx_st **context, int device);
	int (*cuDevicePrimaryCtxRelease_v2)(int device);
	int (*cuCtxGetCurrent)(struct CUctx_st **context);
	int (*cuCtxSetCurrent)(struct CUctx_st *context);
	int (*cuMemGetInfo_v2)(size_t *free, size_t *total);
	int (*cuMemAlloc_v2)(uint64_t *address, size_t bytes);
	int (*cuMemFree_v2)(uint64_t address);
	int (*cuMemcpyHtoDAsync_v2)(uint64_t to, const void *from, size_t bytes, struct CUstream_st *stream);
	int (*cuMemcpyDtoHAsync_v2)(void *to, uint64_t from, size_t bytes, struct CUstream_st *stream);
	int (*cuMemcpyDtoDAsync_v2)(uint64_t to, uint64_t from, size_t bytes, struct CUstream_st *stream);
	int (*cuMemsetD8Async)(uint64_t to, unsigned char value, size_t bytes, struct CUstream_st *stream);
	int (*cuStreamCreate)(struct CUstream_st **stream, unsigned flags);
	int (*cuStreamSynchronize)(struct CUstream_st *stream);
	int (*cuStreamDestroy_v2)(struct CUstream_st *stream);
	int (*cuModuleLoadData)(struct CUmod_st **module, const void *image);
	int (*cuModuleUnload)(struct CUmod_st *module);
	int (*cuModuleGetFunction)(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
	int (*cuFuncSetAttribute)(struct CUfunc_st *function, int attribute, int value);
	int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(
		int *blocks, struct CUfunc_st *function, int threads, size_t shared_bytes);
	int (*cuLaunchKernelEx)(
		const struct cuda_launch *launch, struct CUfunc_st *function, void **arguments, void **extra);
	/* the same, of blocks that wait for each other; refused when they do not all fit at a time */
	int (*cuLaunchCooperativeKernel)(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
		unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
		struct CUstream_st *stream, void **arguments);
	/* `map` aligned to 64 bytes; innermost dimension first, with one stride less, in bytes */
	int (*cuTensorMapEncodeTiled)(struct tensor_map *map, int type, uint32_t rank, void *data,
		const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
		int interleave, int swizzle, int promotion, int fill);
	int (*cuEventCreate)(struct CUevent_st **event, unsigned flags);
	int (*cuEventRecord)(struct CUevent_st *event, struct CUstream_st *stream);
	int (*cuEventSynchronize)(struct CUevent_st *event);
	int (*cuEventElapsedTime)(float *milliseconds, struct CUevent_st *start, struct CUevent_st *end);
	int (*cuEventDestroy_v2)(struct CUevent_st *event);
	int (*cuGetErrorString)(int code, const char **text);
};

struct nvrtc_program;

struct nvrtc {
	int (*nvrtcVersion)(int *major, int *minor);
	int (*nvrtcGetNumSupportedArchs)(int *count);
	int (*nvrtcGetSupportedArchs)(int *archs); /* 90 is sm_90 */
	int (*nvrtcCreateProgram)(struct nvrtc_program **program, const char *source, const char *name,
		int header_count, const char *const *headers, const char *const *header_names);
	int (*nvrtcCompileProgram)(struct nvrtc_program *program, int count, const char *const *options);
	int (*nvrtcGetProgramLogSize)(struct nvrtc_program *program, size_t *bytes);
	int (*nvrtcGetProgramLog)(struct nvrtc_program *program, char *log);
	int (*nvrtcGetCUBINSize)(struct nvrtc_program *program, size_t *bytes);
	int (*nvrtcGetCUBIN)(struct nvrtc_program *program, char *cubin);
	int (*nvrtcGetPTXSize)(struct nvrtc_program *program, size_t *bytes);
	int (*nvrtcGetPTX)(struct nvrtc_program *program, char *ptx);
	int (*nvrtcDestroyProgram)(struct nvrtc_program **program);
	const char *(*nvrtcGetErrorString)(int code);
};

enum { CUBLASLT_TYPE_F32 = 0, CUBLASLT_TYPE_BF16 = 14, CUBLASLT_COMPUTE_F32 = 68 };
enum { CUBLASLT_TRANSPOSE_A = 3, CUBLASLT_TRANSPOSED = 1 }; /* of an operation */
enum { CUBLASLT_MOST_WORKSPACE = 1 };                       /* of a preference */

struct cublaslt_context;
struct cublaslt_operation;
struct cublaslt_layout;
struct cublaslt_preference;
struct cublaslt_algorithm {
	uint64_t data[8];
};
struct cublaslt_choice {
	struct cublaslt_algorithm algorithm;
	size_t workspace_bytes;
	int status;
	float waves;
	int reserved[4];
};

struct cublaslt {
	size_t (*cublasLtGetVersion)(void); /* 130101 is 13.1.1 */
	int (*cublasLtCreate)(struct cublaslt_context **context);
	int (*cublasLtDestroy)(struct cublaslt_context *context);
	int (*cublasLtMatmulDescCreate)(struct cublaslt_operation **operation, int compute, int scale_type);
	int (*cublasLtMatmulDescDestroy)(struct cublaslt_operation *operation);
	int (*cublasLtMatmulDescSetAttribute)(
		struct cublaslt_operation *operation, int attribute, const void *value, size_t bytes);
	int (*cublasLtMatrixLayoutCreate)(
		struct cublaslt_layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
	int (*cublasLtMatrixLayoutDestroy)(struct cublaslt_layout *layout);
	int (*cublasLtMatmulPreferenceCreate)(struct cublaslt_preference **preference);
	int (*cublasLtMatmulPreferenceDestroy)(struct cublaslt_preference *preference);
	int (*cublasLtMatmulPreferenceSetAttribute)(
		struct cublaslt_preference *preference, int attribute, const void *value, size_t bytes);
	int (*cublasLtMatmulAlgoGetHeuristic)(struct cublaslt_context *context,
		struct cublaslt_operation *operation, struct cublaslt_layout *a, struct cublaslt_layout *b,
		struct cublaslt_layout *c, struct cublaslt_layout *d, struct cublaslt_preference *preference,
		int wanted, struct cublaslt_choice *choices, int *found);
	int (*cublasLtMatmul)(struct cublaslt_context *context, struct cublaslt_operation *operation,
		const void *alpha, const void *a, struct cublaslt_layout *a_layout, const void *b,
		struct cublaslt_layout *b_layout, const void *beta, const void *c,
		struct cublaslt_layout *c_layout, void *d, struct cublaslt_layout *d_layout,
		const struct cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes,
		struct CUstream_st *stream);
};

/* The driver, opened and initialised on the first call. STATUS_ENVIRONMENT, with the way out, when there
 * is none or it does not work. */
const struct cuda_driver *cuda_driver(struct error *err);

/* The compiler, likewise: from $CUDA_HOME or $CUDA_PATH, the system, a CUDA toolkit under /usr/local, or
 * the packages of the Python environment in use, for CUDA 13 or 12. */
const struct nvrtc *nvrtc_library(struct error *err);

/* Plain matrix products, likewise. */
const struct cublaslt *cublaslt_library(struct error *err);

/* Where the libraries were found; "" before they are. */
const char *cuda_driver_path(void);
const char *nvrtc_path(void);
const char *cublaslt_path(void);

/* 0, or -1 with "ATTEMPT: what the driver says". */
int cuda_check(int code, struct error *err, const char *attempt, ...) __attribute__((format(printf, 3, 4)));
