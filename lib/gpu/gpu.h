/* gpu: a GPU: what it is, its memory, kernels on it, and time.
 *
 * Each has its own context and stream, which every function makes current for as long as it lasts: several
 * GPUs, and a caller's own use of CUDA, go side by side in one process and one thread. One thread uses a
 * GPU at a time. What fails does so with STATUS_ENVIRONMENT, and says what the driver said. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "gpu/compile.h"
#include "kernels/common/choice.h"

/* What the driver says. */
struct gpu_properties {
	char name[256];
	char driver[64]; /* its version, "580.159.03" */
	char pci[16];    /* its place on the bus, "0000:81:00.0" */
	int capability;  /* 90 is compute capability 9.0 */
	int multiprocessors;
	int shared_per_multiprocessor, shared_per_block; /* bytes */
	int registers;                                   /* per multiprocessor */
	int clock_khz;
	int64_t l2_bytes, memory_bytes, memory_free;
	double bandwidth_gbs; /* of the memory: clock times bus width; 0: not known */
};

/* How many GPUs there are; 0 or more, or -1 when the driver cannot be used. */
int gpu_count(struct error *err);
int gpu_query(int index, struct gpu_properties *properties, struct error *err);

/* "cuda:0 (NVIDIA H200, 132 multiprocessors, 140 GiB)" */
void gpu_describe(int index, const struct gpu_properties *properties, char *text, size_t size);

/* What "auto", "cpu", "cuda" and "cuda:N" name: a GPU, or one of these. STATUS_USAGE. */
enum { GPU_NONE = -1, GPU_IF_ANY = -2 };
int gpu_parse_device(const char *name, int *index, struct error *err);

struct gpu;

/* Opens a GPU of compute capability 8.0 or later. NULL with STATUS_ENVIRONMENT. */
struct gpu *gpu_open(int index, struct error *err);
/* Waits for what is queued, then unloads its kernels; memory that is still allocated stays until the
 * process ends. NULL is fine. */
void gpu_close(struct gpu *gpu);

struct CUstream_st; /* cudaStream_t, CUstream */

/* Queues what follows on a stream of the caller's, of this GPU's primary context (that is CUDA's run-time
 * API's, and PyTorch's), which must outlive its use; the default stream is (struct CUstream_st *)1. NULL:
 * on the GPU's own again. The caller orders the work of the two. */
void gpu_use_stream(struct gpu *gpu, struct CUstream_st *stream);
const struct gpu_properties *gpu_properties_of(const struct gpu *gpu);

/* For those who call NVIDIA's libraries themselves: makes the GPU's context current, and gives back the one
 * that was, for gpu_leave(). The stream is the one in use. */
struct CUctx_st;
struct CUctx_st *gpu_enter(const struct gpu *gpu);
void gpu_leave(const struct gpu *gpu, struct CUctx_st *before);
struct CUstream_st *gpu_stream(const struct gpu *gpu);

/* --- memory: addresses on the device --------------------------------------------------------------- */

/* NULL with STATUS_ENVIRONMENT, naming what is needed and what is free. */
void *gpu_allocate(struct gpu *gpu, size_t bytes, struct error *err);
void gpu_release(struct gpu *gpu, void *memory); /* NULL is fine */
/* Copies and fills go behind what is queued; upload and download wait until they are done. */
int gpu_upload(struct gpu *gpu, void *to, const void *from, size_t bytes, struct error *err);
int gpu_download(struct gpu *gpu, void *to, const void *from, size_t bytes, struct error *err);
int gpu_copy(struct gpu *gpu, void *to, const void *from, size_t bytes, struct error *err);
int gpu_fill(struct gpu *gpu, void *memory, uint8_t byte, size_t bytes, struct error *err);

/* Bytes that gpu_allocate has handed out: now, and the most at once since the last reset. */
size_t gpu_allocated(const struct gpu *gpu);
size_t gpu_allocated_peak(const struct gpu *gpu);
void gpu_reset_peak(struct gpu *gpu);

/* Memory between the kernels of a call. Grows as needed, and is kept for the next call; calls that share it
 * are queued one behind the other. */
struct gpu_workspace {
	void *memory;
	size_t bytes;
};

/* Makes sure that it has so many bytes. What was in it is gone where it has to grow. */
int gpu_workspace_reserve(struct gpu *gpu, struct gpu_workspace *workspace, size_t bytes, struct error *err);
void gpu_workspace_free(struct gpu *gpu, struct gpu_workspace *workspace);

/* --- tensor maps: for kernels whose tiles the copy engine loads, of compute capability 9.0 and later --- */

#define GPU_MAP_STRIDE_END ((int64_t)1 << 40) /* bytes; strides are less, positive, and multiples of 16 */

/* A tensor of 16-bit elements in five dimensions, innermost first, and what of it is loaded at a time: no more than 64
 * elements of the innermost, 256 of others. */
struct gpu_map {
	uint64_t data; /* address, a multiple of 16; a kernel may use a part of the tensor alone */
	uint64_t size[5], stride[4]; /* elements; bytes from one to the next, of all but the innermost */
	uint32_t box[5];
};

struct tensor_map; /* of kernels/common/arguments.h */

/* The map that a kernel takes. In shared memory 16-byte pieces of 128 bytes will be permuted as wgmma wants them, and what
 * is outside of the tensor will be zeros. */
int gpu_map_tensor(
	const struct gpu *gpu, const struct gpu_map *wanted, struct tensor_map *map, struct error *err);

/* --- kernels ---------------------------------------------------------------------------------------- */

struct gpu_kernel;

/* A kernel of a file in kernels/, compiled with the parameters for this GPU, ready for blocks of `threads`
 * with `shared_bytes` of shared memory. Belongs to the GPU, which remembers it: the second call with the
 * same arguments is cheap. */
struct gpu_kernel *gpu_kernel(struct gpu *gpu, const char *source, const char *name,
	const struct kernel_parameter *parameters, int threads, int shared_bytes, struct error *err);

/* Waits for what is queued, then unloads every kernel of a file in kernels/: pointers to them must not be
 * used any more. For whoever tries many configurations. Returns how many they were. */
int gpu_unload(struct gpu *gpu, const char *source);

/* Blocks that fit one multiprocessor at a time. */
int gpu_kernel_occupancy(const struct gpu_kernel *kernel);

/* Queues blocks grid_x by grid_y. `arguments` is the kernel's only parameter. */
int gpu_launch(const struct gpu_kernel *kernel, unsigned grid_x, unsigned grid_y, const void *arguments,
	struct error *err);

/* Queues so many blocks that wait for each other: all run at a time, or STATUS_ENVIRONMENT. */
int gpu_launch_together(
	const struct gpu_kernel *kernel, unsigned blocks, const void *arguments, struct error *err);

/* Waits until everything queued is done; errors of kernels show here. */
int gpu_synchronize(struct gpu *gpu, struct error *err);

/* --- time ------------------------------------------------------------------------------------------- */

#define GPU_REST 1.0 /* seconds: one that has just been busy is slower than what a new process finds */

/* Calls `work` (which queues kernels) `warmups` times, then `runs` times between events, and stores the
 * seconds of each run, sorted. `work` gets the number of the call, so that it can rotate its buffers. Each
 * call is queued while the GPU still waits, so that what is measured is the GPU's time, not the host's. */
int gpu_time(struct gpu *gpu, int (*work)(int call, void *context, struct error *err), void *context,
	int warmups, int runs, double *seconds, struct error *err);
