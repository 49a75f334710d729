#include "gpu/cuda.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* An entry of a function table, and its name in the library. */
struct symbol {
	const char *name;
	size_t offset;
};

#define DRIVER(name)                                                                                         \
	{                                                                                                    \
#name, offsetof(struct cuda_driver, name)                                                    \
	}
#define NVRTC(name)                                                                                          \
	{                                                                                                    \
#name, offsetof(struct nvrtc, name)                                                          \
	}
#define CUBLASLT(name)                                                                                       \
	{                                                                                                    \
#name, offsetof(struct cublaslt, name)                                                       \
	}

static const struct symbol driver_symbols[] = {
	DRIVER(cuInit),
	DRIVER(cuDriverGetVersion),
	DRIVER(cuDeviceGetCount),
	DRIVER(cuDeviceGet),
	DRIVER(cuDeviceGetName),
	DRIVER(cuDeviceGetAttribute),
	DRIVER(cuDeviceGetPCIBusId),
	DRIVER(cuDeviceTotalMem_v2),
	DRIVER(cuDevicePrimaryCtxRetain),
	DRIVER(cuDevicePrimaryCtxRelease_v2),
	DRIVER(cuCtxGetCurrent),
	DRIVER(cuCtxSetCurrent),
	DRIVER(cuMemGetInfo_v2),
	DRIVER(cuMemAlloc_v2),
	DRIVER(cuMemFree_v2),
	DRIVER(cuMemcpyHtoDAsync_v2),
	DRIVER(cuMemcpyDtoHAsync_v2),
	DRIVER(cuMemcpyDtoDAsync_v2),
	DRIVER(cuMemsetD8Async),
	DRIVER(cuStreamCreate),
	DRIVER(cuStreamSynchronize),
	DRIVER(cuStreamDestroy_v2),
	DRIVER(cuModuleLoadData),
	DRIVER(cuModuleUnload),
	DRIVER(cuModuleGetFunction),
	DRIVER(cuFuncSetAttribute),
	DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor),
	DRIVER(cuLaunchKernelEx),
	DRIVER(cuLaunchCooperativeKernel),
	DRIVER(cuTensorMapEncodeTiled),
	DRIVER(cuEventCreate),
	DRIVER(cuEventRecord),
	DRIVER(cuEventSynchronize),
	DRIVER(cuEventElapsedTime),
	DRIVER(cuEventDestroy_v2),
	DRIVER(cuGetErrorString),
	{0},
};

static const struct symbol nvrtc_symbols[] = {
	NVRTC(nvrtcVersion),
	NVRTC(nvrtcGetNumSupportedArchs),
	NVRTC(nvrtcGetSupportedArchs),
	NVRTC(nvrtcCreateProgram),
	NVRTC(nvrtcCompileProgram),
	NVRTC(nvrtcGetProgramLogSize),
	NVRTC(nvrtcGetProgramLog),
	NVRTC(nvrtcGetCUBINSize),
	NVRTC(nvrtcGetCUBIN),
	NVRTC(nvrtcGetPTXSize),
	NVRTC(nvrtcGetPTX),
	NVRTC(nvrtcDestroyProgram),
	NVRTC(nvrtcGetErrorString),
	{0},
};

static const struct symbol cublaslt_symbols[] = {
	CUBLASLT(cublasLtGetVersion),
	CUBLASLT(cublasLtCreate),
	CUBLASLT(cublasLtDestroy),
	CUBLASLT(cublasLtMatmulDescCreate),
	CUBLASLT(cublasLtMatmulDescDestroy),
	CUBLASLT(cublasLtMatmulDescSetAttribute),
	CUBLASLT(cublasLtMatrixLayoutCreate),
	CUBLASLT(cublasLtMatrixLayoutDestroy),
	CUBLASLT(cublasLtMatmulPreferenceCreate),
	CUBLASLT(cublasLtMatmulPreferenceDestroy),
	CUBLASLT(cublasLtMatmulPreferenceSetAttribute),
	CUBLASLT(cublasLtMatmulAlgoGetHeuristic),
	CUBLASLT(cublasLtMatmul),
	{0},
};

static struct cuda_driver driver;
static struct nvrtc nvrtc;
static struct cublaslt cublaslt;
static char driver_path[PATH_MAX], compiler_path[PATH_MAX], products_path[PATH_MAX];

const char *cuda_driver_path(void)
{
	return driver_path;
}

const char *nvrtc_path(void)
{
	return compiler_path;
}

const char *cublaslt_path(void)
{
	return products_path;
}

/* Fills a function table; the name of the first function that is missing, or NULL. */
static const char *bind_symbols(void *library, const struct symbol *symbols, void *table)
{
	for (; symbols->name; symbols++) {
		void *address = dlsym(library, symbols->name);

		if (!address)
			return symbols->name;
		memcpy((char *)table + symbols->offset, &address, sizeof(address));
	}
	return NULL;
}

static void note_path(void *library, char path[PATH_MAX])
{
	struct link_map *map;

	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		snprintf(path, PATH_MAX, "%s", map->l_name);
}

int cuda_check(int code, struct error *err, const char *attempt, ...)
{
	const char *text = NULL;
	char what[512];
	va_list arguments;

	if (!code)
		return 0;
	va_start(arguments, attempt);
	vsnprintf(what, sizeof(what), attempt, arguments);
	va_end(arguments);
	if (!driver.cuGetErrorString || driver.cuGetErrorString(code, &text) || !text)
		text = "unknown error";
	return error_set(err, STATUS_ENVIRONMENT, "%s: %s (CUDA error %d)", what, text, code);
}

/* --- the driver ---------------------------------------------------------------------------------- */

#define OLDEST_DRIVER 12000

static int open_driver(struct error *err)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *missing;
	int version = 0;

	if (!library) {
		error_set(err, STATUS_ENVIRONMENT, "no NVIDIA driver: libcuda.so.1 cannot be loaded");
		return error_hint(err,
			"Install NVIDIA's driver (in a container, pass the GPU through, for example with "
			"`docker run --gpus all`), or set DEVICE=cpu.");
	}
	missing = bind_symbols(library, driver_symbols, &driver);
	note_path(library, driver_path);
	if (!missing)
		driver.cuDriverGetVersion(&version);
	if (missing || version < OLDEST_DRIVER) {
		error_set(err, STATUS_ENVIRONMENT,
			"the NVIDIA driver in %s is too old: it supports CUDA %d.%d", driver_path,
			version / 1000, version % 1000 / 10);
		return error_hint(err, "CUDA 12.0 (driver 525) or later is required.");
	}
	return cuda_check(driver.cuInit(0), err, "starting the NVIDIA driver");
}

const struct cuda_driver *cuda_driver(struct error *err)
{
	static bool ready;

	if (!ready && open_driver(err) < 0)
		return NULL;
	ready = true;
	return &driver;
}

/* --- NVIDIA's libraries -------------------------------------------------------------------------- */

/* "libnvrtc.so.13" and the like: newest first; but a driver for CUDA 12 may refuse what a compiler of CUDA 13
 * makes. */
static char *library_name(const char *stem, int choice)
{
	struct error no_driver;
	int version = 13000;

	if (cuda_driver(&no_driver))
		driver.cuDriverGetVersion(&version);
	return xprintf("%s.so.%d", stem, (version < 13000) == (choice == 0) ? 12 : 13);
}

/* Opens the first library that a pattern of paths matches. */
static void *open_matching(const char *pattern)
{
	glob_t found = {0};
	void *library = NULL;

	if (glob(pattern, GLOB_TILDE, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc && !library; i++)
			library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
	return library;
}

/* Looks for either version under PREFIX/SUFFIX. */
static void *open_under(const char *stem, const char *prefix, const char *suffix)
{
	void *library = NULL;

	if (!prefix || !prefix[0])
		return NULL;
	for (size_t i = 0; i < 2 && !library; i++) {
		char *name = library_name(stem, (int)i);
		char *pattern = xprintf("%s/%s/%s", prefix, suffix, name);

		library = open_matching(pattern);
		free(pattern);
		free(name);
	}
	return library;
}

/* The environment whose python3 comes first in PATH: the folder above its bin. */
static char *python_prefix(void)
{
	const char *path = getenv("PATH");

	for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
		int length = (int)strcspn(path, ":");
		char *program = xprintf("%.*s/python3", length, path);
		char *found = realpath(program, NULL);

		free(program);
		free(found);
		if (found)
			return xprintf("%.*s/..", length, path);
	}
	return NULL;
}

/* Where the loader itself looks. */
static void *open_installed(const char *stem)
{
	void *library = NULL;

	for (int i = 0; i < 2 && !library; i++) {
		char *name = library_name(stem, i);

		library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
		free(name);
	}
	return library;
}

static void *open_library(const char *stem)
{
	static const char *const packages[] = {
		"lib*/python3*/site-packages/nvidia/*/lib", "lib*/python3*/dist-packages/nvidia/*/lib"};
	static const char *const toolkit[] = {"lib64", "lib", "targets/*/lib"};
	char *python = python_prefix();
	const char *homes[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH")};
	const char *environments[] = {
		getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), python, "~/.local", "/usr/local", "/usr"};
	void *library = NULL;

	for (size_t i = 0; i < 6 && !library; i++)
		library = open_under(stem, homes[i / 3], toolkit[i % 3]);
	if (!library)
		library = open_installed(stem);
	for (size_t i = 0; i < 3 && !library; i++)
		library = open_under(stem, "/usr/local/cuda", toolkit[i]);
	for (size_t i = 0; i < 3 && !library; i++)
		library = open_under(stem, "/usr/local/cuda-1[23]*", toolkit[i]);
	for (size_t i = 0; i < 12 && !library; i++)
		library = open_under(stem, environments[i / 2], packages[i % 2]);
	free(python);
	return library;
}

const struct nvrtc *nvrtc_library(struct error *err)
{
	static bool ready;
	const char *missing;
	void *library;

	if (ready)
		return &nvrtc;
	library = open_library("libnvrtc");
	if (!library) {
		error_set(err, STATUS_ENVIRONMENT,
			"NVIDIA's run-time compiler (libnvrtc.so.13 or .12) was not found");
		error_hint(err,
			"Install it with `pip install nvidia-cuda-nvrtc-cu12` (PyTorch includes it), or "
			"install a CUDA toolkit, and set CUDA_HOME if it is in an unusual place.");
		return NULL;
	}
	missing = bind_symbols(library, nvrtc_symbols, &nvrtc);
	note_path(library, compiler_path);
	if (missing) {
		error_set(err, STATUS_ENVIRONMENT, "%s is not a usable NVRTC: it lacks %s", compiler_path,
			missing);
		error_hint(err, "CUDA 12 or 13 is required.");
		return NULL;
	}
	ready = true;
	return &nvrtc;
}

const struct cublaslt *cublaslt_library(struct error *err)
{
	static bool ready;
	const char *missing;
	void *library;

	if (ready)
		return &cublaslt;
	library = open_library("libcublasLt");
	if (!library) {
		error_set(err, STATUS_ENVIRONMENT, "cuBLASLt (libcublasLt.so.13 or .12) was not found");
		error_hint(err,
			"Install it with `pip install nvidia-cublas-cu12` (PyTorch includes it), or "
			"install a CUDA toolkit.");
		return NULL;
	}
	missing = bind_symbols(library, cublaslt_symbols, &cublaslt);
	note_path(library, products_path);
	if (missing) {
		error_set(err, STATUS_ENVIRONMENT, "%s is not a usable cuBLASLt: it lacks %s", products_path,
			missing);
		return NULL;
	}
	ready = true;
	return &cublaslt;
}
