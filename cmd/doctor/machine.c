#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <errno.h>
#include <git2.h>
#include <math.h>
#include <microhttpd.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/device.h"
#include "cmd/doctor/doctor.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"

#define PROGRAM_SECONDS 10
#define LEAST_MEMORY_MIB 1024
#define LEAST_DISK_MIB 100
#define LOW_DISK_MIB 2048

static void check_versions(struct check_list *checks)
{
	int major, minor, patch;

	git_libgit2_version(&major, &minor, &patch);
	check_add(checks, "version", CHECK_OK, NULL, "quasar " QUASAR_VERSION);
	check_add(checks, "libraries", CHECK_OK, NULL,
		"libcurl %s, libgit2 %d.%d.%d, libsodium %s, SQLite %s, cJSON %s, libmicrohttpd %s",
		curl_version_info(CURLVERSION_NOW)->version, major, minor, patch, sodium_version_string(),
		sqlite3_libversion(), cJSON_Version(), MHD_get_version());
}

static void check_cpu(struct check_list *checks)
{
	char text[256];

	cpu_describe(text, sizeof(text));
	check_add(checks, "cpu", CHECK_OK, NULL, "%s", text);
}

static void check_driver(struct check_list *checks)
{
	struct error err;
	int version = 0;

	cuda_driver(&err)->cuDriverGetVersion(&version);
	check_add(checks, "driver", CHECK_OK, NULL, "CUDA %d.%d, %s", version / 1000, version % 1000 / 10,
		cuda_driver_path());
}

/* `missing` is the status of what is not there. */
static void check_gpus(struct check_list *checks, int count, enum check_status missing)
{
	struct error err = {0};

	if (!count)
		check_add(checks, "gpu", missing, "Give this machine or container a GPU, or set DEVICE=cpu.",
			"the driver finds no GPU");
	for (int i = 0; i < count; i++) {
		struct gpu *gpu = gpu_open(i, &err);
		const struct gpu_properties *properties;

		if (!gpu) {
			check_problem(checks, "gpu", missing, &err);
			continue;
		}
		properties = gpu_properties_of(gpu);
		check_add(checks, "gpu", CHECK_OK, NULL,
			"cuda:%d %s, compute capability %d.%d, %.0f of %.0f MiB free", i, properties->name,
			properties->capability / 10, properties->capability % 10,
			(double)properties->memory_free / 0x1p20, (double)properties->memory_bytes / 0x1p20);
		gpu_close(gpu);
	}
}

static void check_library(struct check_list *checks, const char *name, bool found, const char *path,
	enum check_status missing, const struct error *err)
{
	if (found)
		check_add(checks, name, CHECK_OK, NULL, "%s", path);
	else
		check_problem(checks, name, missing, err);
}

/* What is missing matters only where a GPU could use it. */
static void check_cuda(const struct invocation *invocation, struct check_list *checks)
{
	bool unwanted = !strcmp(settings_get(invocation->settings, "DEVICE", NULL), "cpu");
	struct error err = {0};
	int count = gpu_count(&err);
	enum check_status missing = unwanted ? CHECK_SKIP : CHECK_WARN;

	if (count < 0) {
		check_problem(checks, "gpu", missing, &err);
	} else {
		check_driver(checks);
		check_gpus(checks, count, missing);
	}
	if (count <= 0)
		missing = CHECK_SKIP;
	check_library(checks, "nvrtc", nvrtc_library(&err) != NULL, nvrtc_path(), missing, &err);
	check_library(checks, "cublaslt", cublaslt_library(&err) != NULL, cublaslt_path(), missing, &err);
}

/* Whether what DEVICE asks for is there. */
static void check_device(const struct invocation *invocation, struct check_list *checks)
{
	struct device device = {0};
	struct error err = {0};

	if (command_device(invocation, NULL, &device, &err) < 0)
		check_problem(checks, "device", CHECK_FAIL, &err);
	else
		check_add(checks, "device", CHECK_OK, NULL, "%s", device.description);
	device_close(&device);
}

static void check_blas(struct check_list *checks)
{
	struct error err = {0};

	if (blas_open(&err) < 0)
		check_problem(checks, "openblas", CHECK_FAIL, &err);
	else
		check_add(checks, "openblas", CHECK_OK, NULL, "%s", blas_path());
}

static void check_git(struct check_list *checks)
{
	struct error err = {0};
	char *answer = process_ask((const char *[]){"git", "--version", NULL}, NULL, PROGRAM_SECONDS, &err);

	if (answer)
		check_add(checks, "git.program", CHECK_OK, NULL, "%s", text_last_line(answer));
	else
		check_add(checks, "git.program", CHECK_WARN, "apt-get install git", "%s", err.message);
	free(answer);
}

static void check_memory(struct check_list *checks)
{
	double available = memory_available();

	if (isinf(available))
		check_add(checks, "memory", CHECK_SKIP, NULL, "the system does not report it");
	else
		check_add(checks, "memory", available < LEAST_MEMORY_MIB ? CHECK_WARN : CHECK_OK,
			available < LEAST_MEMORY_MIB ? "Close other programs, or compete at a shorter length."
						     : NULL,
			"%.0f MiB available", available);
}

static void check_disk(const struct invocation *invocation, struct check_list *checks)
{
	const char *place = invocation->workspace ? invocation->workspace : ".";
	struct statvfs disk;
	double mib;

	if (statvfs(place, &disk) < 0) {
		check_add(checks, "disk", CHECK_WARN, NULL, "%s: %s", place, strerror(errno));
		return;
	}
	mib = (double)disk.f_bavail * (double)disk.f_frsize / (1 << 20);
	check_add(checks, "disk",
		mib < LEAST_DISK_MIB         ? CHECK_FAIL
			: mib < LOW_DISK_MIB ? CHECK_WARN
					     : CHECK_OK,
		mib < LOW_DISK_MIB ? "Free some disk space: what cannot be stored is not submitted." : NULL,
		"%.0f MiB free at %s", mib, place);
	if (disk.f_flag & ST_RDONLY)
		check_add(checks, "disk", CHECK_FAIL, "mount -o remount,rw, or use another disk",
			"%s is read-only", place);
}

void doctor_machine(const struct invocation *invocation, struct check_list *checks)
{
	check_versions(checks);
	check_cpu(checks);
	check_memory(checks);
	check_disk(invocation, checks);
	check_cuda(invocation, checks);
	check_device(invocation, checks);
	check_blas(checks);
	check_git(checks);
}
