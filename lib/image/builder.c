#include "image/builder.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "image/tool.h"

#define PROGRAM "/usr/bin/quasar"
#define PORT "8000"

/* Seconds that gigabytes may take to be packed, and to be sent. */
#define BUILD_SECONDS 3600
#define PUSH_SECONDS 7200

/* What the image says of itself. The weights are a layer of their own, below the program: a new program does not send
 * them again. It runs as nobody in particular and writes nothing outside of /tmp. */
static const char containerfile[] = "FROM scratch\n"
				    "%s"
				    "COPY root/ /\n"
				    "USER 65532:65532\n"
				    "WORKDIR /tmp\n"
				    "ENV HOME=/tmp\n"
				    "EXPOSE 8000\n"
				    "HEALTHCHECK --interval=10s --timeout=10s --start-period=120s CMD %s\n"
				    "STOPSIGNAL SIGTERM\n"
				    "ENTRYPOINT %s\n";

/* Files of a model that the server reads. */
static const char *const model_files[] = {"config.json", "*.safetensors", "*.safetensors.index.json"};

/* --- files --------------------------------------------------------------------------------------- */

static int copy_content(int from, int to, off_t size)
{
	off_t done = 0;

	while (done < size)
		if (sendfile(to, from, &done, (size_t)(size - done)) <= 0)
			return -1;
	return 0;
}

static int copy_file(const char *from, const char *to, mode_t permissions, struct error *err)
{
	int source = file_open(from, err), target, result = -1;
	struct stat status;

	if (source < 0)
		return -1;
	target = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (target >= 0 && fstat(source, &status) == 0 && copy_content(source, target, status.st_size) == 0 &&
		fchmod(target, permissions) == 0)
		result = 0;
	else
		error_set(err, STATUS_ENVIRONMENT, "cannot copy %s to %s: %s", from, to, strerror(errno));
	if (target >= 0)
		close(target);
	close(source);
	return result;
}

/* A link, where a link can be read by everyone in the image; else a copy. */
static int link_file(const char *from, const char *to, struct error *err)
{
	struct stat status;

	if (stat(from, &status) == 0 && status.st_mode & S_IROTH &&
		linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	return copy_file(from, to, 0644, err);
}

static int make_folder(const char *parent, const char *name, mode_t permissions, struct error *err)
{
	char *path = path_join(parent, name);
	int result = directory_make(path, 0755, err);

	if (!result && chmod(path, permissions) < 0)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot change %s: %s", path, strerror(errno));
	free(path);
	return result;
}

static int copy_into(const char *from, const char *folder, const char *name, struct error *err)
{
	char *to = xprintf("%s/%s", folder, name);
	int result = copy_file(from, to, 0755, err);

	free(to);
	return result;
}

/* --- the program and its libraries --------------------------------------------------------------- */

struct libraries {
	const char *root, *folder; /* where all of them go */
	struct error *err;
	int result;
};

/* The loader, at the place that the program names. */
static int copy_loader(const struct dl_phdr_info *program, const char *root, struct error *err)
{
	for (int i = 0; i < program->dlpi_phnum; i++) {
		const char *loader = (const char *)(program->dlpi_addr + program->dlpi_phdr[i].p_vaddr);
		char *folder;
		int result;

		if (program->dlpi_phdr[i].p_type != PT_INTERP)
			continue;
		folder = xprintf("%.*s", (int)(strrchr(loader, '/') - loader - 1), loader + 1);
		result = make_folder(root, folder, 0755, err);
		free(folder);
		return result ? result : copy_into(loader, root, loader, err);
	}
	return error_set(
		err, STATUS_ENVIRONMENT, "this program names no loader: it cannot be put into an image");
}

/* Called with the program, whose name is empty, and with each library. */
static int copy_library(struct dl_phdr_info *object, size_t size, void *context)
{
	struct libraries *libraries = context;
	const char *path = object->dlpi_name, *name = strrchr(path, '/');

	(void)size;
	if (!*path)
		libraries->result = copy_loader(object, libraries->root, libraries->err);
	else if (name && !strstr(name, "/ld-linux")) /* not the kernel's, which has no file, nor the loader */
		libraries->result = copy_into(path, libraries->folder, name + 1, libraries->err);
	return libraries->result;
}

static int write_root(const char *folder, struct error *err)
{
	char *root = path_join(folder, "root"), *lib = path_join(root, "usr/lib");
	struct libraries libraries = {.root = root, .folder = lib, .err = err};
	int result = -1;

	if (make_folder(root, "usr/bin", 0755, err) == 0 && make_folder(root, "usr/lib", 0755, err) == 0 &&
		make_folder(root, "model", 0755, err) == 0 && make_folder(root, "tmp", 01777, err) == 0 &&
		copy_into("/proc/self/exe", root, PROGRAM, err) == 0) {
		dl_iterate_phdr(copy_library, &libraries);
		result = libraries.result;
	}
	free(lib);
	free(root);
	return result;
}

/* --- the model ----------------------------------------------------------------------------------- */

static bool is_model_file(const struct dirent *entry)
{
	for (size_t i = 0; i < sizeof(model_files) / sizeof(*model_files); i++)
		if (!fnmatch(model_files[i], entry->d_name, FNM_PERIOD))
			return true;
	return false;
}

static int write_model(const char *model, const char *folder, struct error *err)
{
	DIR *files = opendir(model);
	const struct dirent *entry;
	int result = make_folder(folder, "model", 0755, err);

	if (!files)
		return error_set(err, STATUS_ENVIRONMENT, "cannot read %s: %s", model, strerror(errno));
	while (!result && (entry = readdir(files))) {
		char *from = xprintf("%s/%s", model, entry->d_name),
		     *to = xprintf("%s/model/%s", folder, entry->d_name);

		if (is_model_file(entry))
			result = link_file(from, to, err);
		free(from);
		free(to);
	}
	closedir(files);
	return result;
}

/* --- the image ----------------------------------------------------------------------------------- */

/* The words as a JSON list; the caller frees. */
static char *word_list(const char *const *words, int count)
{
	cJSON *list = cJSON_CreateStringArray(words, count);
	char *text = cJSON_PrintUnformatted(list);

	cJSON_Delete(list);
	return text;
}

/* What a validator says in DEVICE does not count: the server takes the best that is there. */
static int write_containerfile(const struct image_plan *plan, const char *folder, struct error *err)
{
	const char *const serve[] = {PROGRAM, "serve", "--port", PORT, "--host", "0.0.0.0", "--device",
		"auto", "--model", "/model", "--name", plan->model_name};
	const char *const health[] = {PROGRAM, "serve", "--port", PORT, "--health"};
	char *path = path_join(folder, "Containerfile"),
	     *start = word_list(serve, sizeof(serve) / sizeof(*serve)),
	     *check = word_list(health, sizeof(health) / sizeof(*health)),
	     *text = xprintf(containerfile, plan->model ? "COPY model/ /model/\n" : "", check, start);
	int result = file_write(path, text, strlen(text), 0644, FILE_NEW, err);

	free(path);
	free(start);
	free(check);
	free(text);
	return result;
}

int image_write_context(const struct image_plan *plan, const char *folder, struct error *err)
{
	if (directory_make(folder, 0755, err) < 0 || write_root(folder, err) < 0 ||
		(plan->model && write_model(plan->model, folder, err) < 0))
		return -1;
	return write_containerfile(plan, folder, err);
}

int image_build(const struct image_plan *plan, const char *tool, const char *folder, struct error *err)
{
	const bool docker = !strcmp(tool, "docker");
	char *file = path_join(folder, "Containerfile");
	/* Docker's own format, for the health check; without times, so that the same files make the same image */
	const char *const argv[] = {tool, "build", "--quiet", "--tag", plan->name, "--file", file,
		docker ? folder : "--format=docker", docker ? NULL : "--layers", "--timestamp=0", folder,
		NULL};
	char *said = tool_ask(argv, BUILD_SECONDS, err);

	free(said);
	free(file);
	return said ? 0 : error_context(err, "cannot build %s", plan->name);
}

/* "sha256:…", the last one that it said; the caller frees. */
static char *find_digest(const char *said, struct error *err)
{
	static const char mark[] = "sha256:";
	const char *digest = NULL;

	for (const char *at = said; (at = strstr(at, mark)); at += strlen(mark))
		if (strspn(at + strlen(mark), "0123456789abcdef") == 64)
			digest = at;
	if (digest)
		return xprintf("%.*s", (int)strlen(mark) + 64, digest);
	error_set(err, STATUS_FAILED, "it does not say under which digest the registry has it");
	return NULL;
}

/* The name without its tag: a colon before the last slash is a port's. */
static int bare_length(const char *name)
{
	const char *slash = strrchr(name, '/');

	return (int)((slash ? slash - name : 0) + (long)strcspn(slash ? slash : name, ":@"));
}

char *image_push(const char *tool, const char *name, struct error *err)
{
	const bool docker = !strcmp(tool, "docker");
	/* podman and buildah write the digest into a file: here, to where their words go */
	const char *const argv[] = {
		tool, "push", docker ? name : "--digestfile=/dev/stdout", docker ? NULL : name, NULL};
	char *said = tool_ask(argv, PUSH_SECONDS, err), *digest = said ? find_digest(said, err) : NULL,
	     *reference;

	free(said);
	if (!digest) {
		error_context(err, "cannot push %s", name);
		error_hint(err, "Log in to the registry first: %s login", tool);
		return NULL;
	}
	reference = xprintf("%.*s@%s", bare_length(name), name, digest);
	free(digest);
	return reference;
}
