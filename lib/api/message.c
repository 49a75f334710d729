#include "api/message.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"

char *message_identity(const char *hotkey, const char *timestamp)
{
	return timestamp ? xprintf("%s:%s", hotkey, timestamp) : xstrdup(hotkey);
}

void message_salt(char salt[65])
{
	uint8_t bytes[32];

	randombytes_buf(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), salt);
	sodium_memzero(bytes, sizeof(bytes));
}

void message_commitment_hash(const char *salt, const char *data, char hash[65])
{
	uint8_t digest[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, (const uint8_t *)salt, strlen(salt));
	crypto_hash_sha256_update(&state, (const uint8_t *)data, strlen(data));
	crypto_hash_sha256_final(&state, digest);
	hex_encode(digest, sizeof(digest), hash);
}

bool message_salt_fits(const char *salt, const char *data, const char *commitment_hash)
{
	char hash[65];

	if (!salt || !data || !commitment_hash)
		return false;
	message_commitment_hash(salt, data, hash);
	return !strcmp(hash, commitment_hash);
}

static int by_length(const void *left, const void *right)
{
	long long a = atoll((*(const cJSON *const *)left)->string);
	long long b = atoll((*(const cJSON *const *)right)->string);

	return (a > b) - (a < b);
}

static void benchmarks_text(const cJSON *benchmarks, struct buffer *out)
{
	size_t count = (size_t)cJSON_GetArraySize(benchmarks), i = 0;
	const cJSON **items = xcalloc(count, sizeof(*items)), *item;

	cJSON_ArrayForEach (item, benchmarks)
		items[i++] = item;
	qsort(items, count, sizeof(*items), by_length);
	buffer_text(out, "{");
	for (i = 0; i < count; i++) {
		buffer_printf(out, "%s\"%s\": ", i ? ", " : "", items[i]->string);
		json_python(items[i], out);
	}
	buffer_text(out, "}");
	free(items);
}

void message_submission_text(const char *fork_url, const char *commit_hash, double tokens_per_sec,
	const cJSON *benchmarks, const char *repo_hash, struct buffer *out)
{
	char performance[32];

	number_repr(tokens_per_sec, performance);
	buffer_printf(out, "%s%s%s", fork_url, commit_hash, performance);
	benchmarks_text(benchmarks, out);
	if (repo_hash)
		buffer_text(out, repo_hash);
}
