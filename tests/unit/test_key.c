/* key: the primitives against known answers, keys against independent implementations */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hex.h"
#include "base/memory.h"
#include "key/keccak.h"
#include "key/keyfile.h"
#include "key/keypair.h"
#include "key/merlin.h"
#include "key/mnemonic.h"
#include "key/sealed.h"
#include "key/sr25519.h"
#include "key/ss58.h"
#include "vectors.h"

#define ZERO_PHRASE                                                                                          \
	"abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about"
/* the phrase that stands behind Substrate's development accounts */
#define DEVELOPMENT_PHRASE "bottom drive obey lake curtain smoke basket hold race lonely fit walk"

static int start_sodium(void **state)
{
	(void)state;
	return sodium_init() < 0 ? -1 : 0;
}

static void assert_hex(const uint8_t *bytes, size_t length, const char *expected)
{
	char text[512];

	assert_true(2 * length < sizeof(text));
	hex_encode(bytes, length, text);
	assert_string_equal(text, expected);
}

/* A key that has to exist. */
static struct keypair *key(enum crypto_type type, const char *text)
{
	struct error err = {0};
	struct keypair *keypair = keypair_from_text(type, text, &err);

	if (!keypair)
		fail_msg("%s", err.message);
	return keypair;
}

static void assert_address(enum crypto_type type, const char *text, const char *address)
{
	struct keypair *keypair = key(type, text);

	assert_string_equal(keypair_address(keypair), address);
	keypair_free(keypair);
}

static void assert_refused(enum crypto_type type, const char *text, const char *reason)
{
	struct error err = {0};

	assert_null(keypair_from_text(type, text, &err));
	assert_int_equal(err.status, STATUS_USAGE);
	if (!strstr(err.message, reason))
		fail_msg("\"%s\" does not say \"%s\"", err.message, reason);
}

/* --- Keccak and Merlin ------------------------------------------------------------------------ */

/* SHA3-256 of less than a block. */
static void sha3_256(const char *message, uint8_t hash[32])
{
	uint64_t state[25] = {0};
	uint8_t *bytes = (uint8_t *)state;

	memcpy(bytes, message, strlen(message));
	bytes[strlen(message)] = 0x06;
	bytes[135] ^= 0x80;
	keccak_f1600(state);
	memcpy(hash, bytes, 32);
}

static void keccak_makes_sha3(void **state)
{
	uint8_t hash[32];

	(void)state;
	sha3_256("", hash);
	assert_hex(hash, 32, "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a");
	sha3_256("abc", hash);
	assert_hex(hash, 32, "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532");
}

/* The two transcripts that Merlin's implementations test each other with. */
static void transcripts_give_the_known_challenges(void **state)
{
	struct transcript transcript;
	uint8_t challenge[32], data[1024];

	(void)state;
	transcript_begin(&transcript, "test protocol");
	transcript_append(&transcript, "some label", "some data", 9);
	transcript_challenge(&transcript, "challenge", challenge, sizeof(challenge));
	assert_hex(challenge, 32, "d5a21972d0d5fe320c0d263fac7fffb8145aa640af6e9bca177c03c7efcf0615");

	memset(data, 99, sizeof(data));
	transcript_begin(&transcript, "test protocol");
	transcript_append(&transcript, "step1", "some data", 9);
	for (int i = 0; i < 32; i++) {
		transcript_challenge(&transcript, "challenge", challenge, sizeof(challenge));
		transcript_append(&transcript, "bigdata", data, sizeof(data));
		transcript_append(&transcript, "challengedata", challenge, sizeof(challenge));
	}
	assert_hex(challenge, 32, "a8c933f54fae76e3f9bea93648c1308e7dfa2152dd51674ff3ca438351cf003c");
}

static void witnesses_differ_and_leave_the_transcript(void **state)
{
	struct transcript transcript, before;
	uint8_t first[32], second[32];

	(void)state;
	transcript_begin(&transcript, "test protocol");
	before = transcript;
	transcript_witness(&transcript, "nonce", "secret", 6, first, sizeof(first));
	transcript_witness(&transcript, "nonce", "secret", 6, second, sizeof(second));
	assert_memory_not_equal(first, second, sizeof(first));
	assert_memory_equal(&transcript, &before, sizeof(before));
}

/* --- SS58 ------------------------------------------------------------------------------------- */

#define ALICE "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
#define ALICE_PUBLIC "d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d"

static void addresses_round_trip(void **state)
{
	uint8_t public_key[32], again[32];
	char address[SS58_SIZE];
	struct error err = {0};

	(void)state;
	assert_int_equal(ss58_decode(ALICE, public_key, &err), 0);
	assert_hex(public_key, 32, ALICE_PUBLIC);
	ss58_encode(public_key, address);
	assert_string_equal(address, ALICE);
	for (int i = 0; i < 256; i++) {
		memset(public_key, i, sizeof(public_key));
		public_key[0] = (uint8_t)~i;
		ss58_encode(public_key, address);
		assert_int_equal(strlen(address), SS58_SIZE - 1);
		assert_int_equal(ss58_decode(address, again, &err), 0);
		assert_memory_equal(again, public_key, sizeof(again));
	}
}

static void false_addresses_are_refused_with_the_reason(void **state)
{
	static const struct {
		const char *address, *reason;
	} bad[] = {
		{"", "length"}, {"5", "length"},
		{"5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKut", "network"}, {ALICE "Y", "length"},
		{"1" ALICE, "length"}, {ALICE ALICE ALICE, "length"},
		{"5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQZ", "checksum"},
		{"5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKvtQY", "checksum"},
		{"5HrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY", "network"},
		{"5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKut0Y", "base58"},
		{"5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutlY", "base58"}, {" " ALICE, "base58"},
		{"15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5", "network"}, /* Polkadot */
		{"HNZata7iMYWmk5RvZRTiAsSDhV8366zq2YGb3tLH5Upf74F", "network"},  /* Kusama */
	};
	uint8_t public_key[32];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct error err = {0};

		assert_int_equal(ss58_decode(bad[i].address, public_key, &err), -1);
		assert_int_equal(err.status, STATUS_USAGE);
		if (!strstr(err.message, bad[i].reason))
			fail_msg("%s: %s", bad[i].address, err.message);
	}
}

/* --- mnemonics -------------------------------------------------------------------------------- */

static void phrases_of_every_length_round_trip(void **state)
{
	char phrase[MNEMONIC_SIZE], again[MNEMONIC_SIZE];
	uint8_t entropy[MNEMONIC_ENTROPY_MAX];
	struct error err = {0};
	size_t length;

	(void)state;
	for (int words = 12; words <= 24; words += 3) {
		int spaces = 0;

		assert_int_equal(mnemonic_generate(words, phrase, &err), 0);
		for (const char *at = phrase; *at; at++)
			spaces += *at == ' ';
		assert_int_equal(spaces, words - 1);
		assert_int_equal(mnemonic_decode(phrase, strlen(phrase), entropy, &length, &err), 0);
		assert_int_equal(length, words / 3 * 4);
		mnemonic_encode(entropy, length, again);
		assert_string_equal(again, phrase);
	}
	for (const int *bad = (const int[]){-12, 0, 11, 13, 27, 0x7ffffffe, 1}; *bad != 1; bad++)
		assert_int_equal(mnemonic_generate(*bad, phrase, &err), -1);
}

static void phrases_have_the_known_entropy_and_secret(void **state)
{
	static const uint8_t ones[32] = {[0 ... 31] = 0xff}, zeros[16];
	uint8_t entropy[MNEMONIC_ENTROPY_MAX], mini_secret[32];
	char phrase[MNEMONIC_SIZE];
	struct error err = {0};
	size_t length;

	(void)state;
	mnemonic_encode(zeros, sizeof(zeros), phrase);
	assert_string_equal(phrase, ZERO_PHRASE);
	mnemonic_encode(ones, sizeof(ones), phrase);
	assert_string_equal(phrase,
		"zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo "
		"zoo zoo zoo zoo zoo vote");
	assert_int_equal(mnemonic_decode(phrase, strlen(phrase), entropy, &length, &err), 0);
	assert_int_equal(length, 32);
	assert_memory_equal(entropy, ones, 32);
	mnemonic_mini_secret(zeros, sizeof(zeros), "Substrate", mini_secret);
	assert_hex(mini_secret, 32, "44e9d125f037ac1d51f0a7d3649689d422c2af8b1ec8e00d71db4d7bf6d127e3");
}

static void false_phrases_are_refused_without_being_shown(void **state)
{
	(void)state;
	assert_refused(CRYPTO_SR25519, "", "no phrase");
	assert_refused(CRYPTO_SR25519, "abandon", "not 1");
	assert_refused(CRYPTO_SR25519, "abandon abandon abandon", "not 3");
	assert_refused(CRYPTO_SR25519, ZERO_PHRASE " about", "not 13");
	assert_refused(CRYPTO_SR25519, ZERO_PHRASE " " ZERO_PHRASE " " ZERO_PHRASE, "not 36");
	assert_refused(CRYPTO_SR25519, DEVELOPMENT_PHRASE "er", "word 12");
	assert_refused(CRYPTO_SR25519,
		"Abandon"
		" about",
		"word 1 ");
	assert_refused(CRYPTO_SR25519, "abandon about hunter2hunter2", "word 3 ");
	assert_refused(CRYPTO_SR25519, "zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo", "checksum");
	assert_refused(CRYPTO_SR25519,
		"drive bottom obey lake curtain smoke basket hold race lonely fit walk", "checksum");
}

/* --- keys ------------------------------------------------------------------------------------- */

static const char *text_of(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name)->valuestring;
}

static void check_vector_signature(const struct keypair *keypair, const cJSON *vector)
{
	const char *message_hex = text_of(vector, "message"), *address = keypair_address(keypair);
	uint8_t message[256], signature[SIGNATURE_LENGTH];
	size_t length = strlen(message_hex) / 2;
	struct error err = {0};
	bool valid = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(vector, "valid"));

	assert_true(length <= sizeof(message));
	assert_int_equal(hex_decode(message_hex, message, length), 0);
	assert_int_equal(hex_decode(text_of(vector, "signature"), signature, sizeof(signature)), 0);
	assert_int_equal(signature_verify(address, CRYPTO_SR25519, message, length, signature), valid);
	assert_int_equal(keypair_sign(keypair, message, length, signature, &err), 0);
	assert_true(signature_verify(address, CRYPTO_SR25519, message, length, signature));
}

static void check_vector(const cJSON *vector)
{
	char *text = xprintf("%s%s", text_of(vector, "mnemonic"), text_of(vector, "path"));
	const cJSON *mini_secret = cJSON_GetObjectItemCaseSensitive(vector, "mini_secret"), *signature;
	struct keypair *keypair = key(CRYPTO_SR25519, text);

	assert_hex(keypair_public_key(keypair), PUBLIC_KEY_LENGTH, text_of(vector, "public"));
	assert_string_equal(keypair_address(keypair), text_of(vector, "ss58"));
	if (cJSON_IsString(mini_secret)) {
		assert_hex(keypair_seed(keypair), SEED_LENGTH, mini_secret->valuestring);
		assert_string_equal(keypair_phrase(keypair), text_of(vector, "mnemonic"));
	} else {
		assert_null(keypair_seed(keypair));
		assert_null(keypair_phrase(keypair));
	}
	cJSON_ArrayForEach (signature, cJSON_GetObjectItemCaseSensitive(vector, "signatures"))
		check_vector_signature(keypair, signature);
	keypair_free(keypair);
	free(text);
}

static void vectors_of_an_independent_implementation(void **state)
{
	cJSON *document = read_vectors(VECTORS "sr25519.json"), *vector;

	(void)state;
	assert_int_equal(cJSON_GetArraySize(document), 16);
	cJSON_ArrayForEach (vector, document)
		check_vector(vector);
	cJSON_Delete(document);
}

static void development_accounts_have_their_known_addresses(void **state)
{
	(void)state;
	assert_address(CRYPTO_SR25519, DEVELOPMENT_PHRASE "//Alice", ALICE);
	assert_address(CRYPTO_SR25519, DEVELOPMENT_PHRASE "//Bob//stash",
		"5HpG9w8EBLe5XCrbczpwq5TSXvedjrBGCwqxK1iQ7qUsSWFc");
	assert_address(CRYPTO_ED25519, DEVELOPMENT_PHRASE "//Alice",
		"5FA9nQDVg267DEd8m1ZypXLBnvN7SFxYwV7ndqSYGiN9TTpu");
}

static void spaces_and_prefixes_around_a_secret_do_not_matter(void **state)
{
	static const char seed[] = "e5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a";
	struct keypair *plain = key(CRYPTO_SR25519, seed);
	char *prefixed = xprintf("\n0x%s\n", seed), *upper = xstrdup(seed);

	(void)state;
	for (char *at = upper; *at; at++)
		*at = *at >= 'a' ? *at - 32 : *at;
	assert_string_equal(keypair_address(plain), ALICE);
	assert_address(CRYPTO_SR25519, prefixed, ALICE);
	assert_address(CRYPTO_SR25519, upper, ALICE);
	assert_address(CRYPTO_SR25519,
		"\t bottom drive obey lake curtain smoke\nbasket  hold race lonely fit walk //Alice \r\n",
		ALICE);
	keypair_free(plain);
	free(prefixed);
	free(upper);
}

static void numbers_in_a_path_are_numbers(void **state)
{
	struct keypair *one = key(CRYPTO_SR25519, ZERO_PHRASE "//1");
	struct keypair *huge = key(CRYPTO_SR25519, ZERO_PHRASE "//18446744073709551616");

	(void)state;
	assert_address(CRYPTO_SR25519, ZERO_PHRASE "//+1", keypair_address(one));
	assert_address(CRYPTO_SR25519, ZERO_PHRASE "//0000000000000000000000000000000000000001",
		keypair_address(one));
	assert_string_not_equal(keypair_address(huge), keypair_address(one));
	keypair_free(one);
	keypair_free(huge);
}

static void false_secrets_are_refused(void **state)
{
	char digits[96] = "0x";

	(void)state;
	assert_refused(CRYPTO_SR25519, "//Alice", "no phrase");
	assert_refused(CRYPTO_SR25519, "///password", "no phrase");
	assert_refused(CRYPTO_SR25519, ZERO_PHRASE "//", "empty junction");
	assert_refused(CRYPTO_SR25519, ZERO_PHRASE "/", "empty junction");
	assert_refused(CRYPTO_SR25519, ZERO_PHRASE "//a/", "empty junction");
	assert_refused(CRYPTO_ED25519, ZERO_PHRASE "/soft", "soft");
	assert_refused(CRYPTO_SR25519, "0x12", "2 hex digits");
	memset(digits + 2, '1', 64);
	digits[66] = '\0';
	strcat(digits, "///password");
	assert_refused(CRYPTO_SR25519, digits, "password");
}

static void zero_and_oversized_scalars_are_refused(void **state)
{
	char digits[129];

	(void)state;
	digits[128] = '\0';
	memset(digits, '0', 128);
	assert_refused(CRYPTO_SR25519, digits, "scalar");
	memset(digits, 'f', 128);
	assert_refused(CRYPTO_SR25519, digits, "scalar");
	assert_refused(CRYPTO_ED25519, digits, "128 hex digits");
	/* the order of the group, and it times eight */
	memcpy(digits, "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010", 64);
	assert_refused(CRYPTO_SR25519, digits, "scalar");
	memcpy(digits, "689faee7d21893c0b2e6bc17f5cef7a600000000000000000000000000000080", 64);
	assert_refused(CRYPTO_SR25519, digits, "scalar");
}

/* The scalar as stored by tools that keep it times eight. */
static void times_eight(uint8_t scalar[32])
{
	for (size_t i = 31; i > 0; i--)
		scalar[i] = (uint8_t)(scalar[i] << 3 | scalar[i - 1] >> 5);
	scalar[0] = (uint8_t)(scalar[0] << 3);
}

static void both_forms_of_a_private_key_are_read(void **state)
{
	struct keypair *alice = key(CRYPTO_SR25519, DEVELOPMENT_PHRASE "//Alice"), *again;
	uint8_t private_key[PRIVATE_KEY_MAX];
	struct error err = {0};
	size_t length;

	(void)state;
	memcpy(private_key, keypair_private_key(alice, &length), sizeof(private_key));
	assert_int_equal(length, sizeof(private_key));
	for (int form = 0; form < 2; form++) {
		again = keypair_from_private_key(
			CRYPTO_SR25519, private_key, length, keypair_public_key(alice), &err);
		assert_non_null(again);
		assert_string_equal(keypair_address(again), ALICE);
		keypair_free(again);
		times_eight(private_key);
	}
	assert_null(keypair_from_private_key(CRYPTO_SR25519, private_key, 32, NULL, &err));
	assert_null(keypair_from_private_key(CRYPTO_ED25519, private_key, 64, NULL, &err));
	keypair_free(alice);
}

/* --- signatures ------------------------------------------------------------------------------- */

static void signatures_verify_and_nothing_else_does(void **state)
{
	static const char message[] = "the message";
	struct error err = {0};

	(void)state;
	for (int type = 0; type <= 1; type++) {
		struct keypair *keypair = keypair_generate((enum crypto_type)type, 12, &err);
		const char *address = keypair_address(keypair);
		uint8_t signature[SIGNATURE_LENGTH];

		assert_int_equal(keypair_sign(keypair, message, sizeof(message), signature, &err), 0);
		assert_true(signature_verify(address, type, message, sizeof(message), signature));
		assert_false(signature_verify(address, type, message, sizeof(message) - 1, signature));
		assert_false(signature_verify(address, !type, message, sizeof(message), signature));
		assert_false(signature_verify(ALICE, type, message, sizeof(message), signature));
		assert_false(signature_verify("nobody", type, message, sizeof(message), signature));
		for (size_t bit = 0; bit < 8 * sizeof(signature); bit++) {
			signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_false(signature_verify(address, type, message, sizeof(message), signature));
			signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		assert_int_equal(keypair_sign(keypair, "", 0, signature, &err), 0);
		assert_true(signature_verify(address, type, "", 0, signature));
		keypair_free(keypair);
	}
}

static void sr25519_signatures_are_fresh_each_time(void **state)
{
	struct keypair *keypair = key(CRYPTO_SR25519, ZERO_PHRASE);
	uint8_t first[SIGNATURE_LENGTH], second[SIGNATURE_LENGTH];
	struct error err = {0};

	(void)state;
	keypair_sign(keypair, "m", 1, first, &err);
	keypair_sign(keypair, "m", 1, second, &err);
	assert_memory_not_equal(first, second, 32);
	keypair_free(keypair);
}

/* s and s + L are the same scalar; only the first may pass. */
static void a_scalar_above_the_order_is_refused(void **state)
{
	static const uint8_t order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
		0xa2, 0xde, 0xf9, 0xde, 0x14, [31] = 0x10};
	struct keypair *keypair = key(CRYPTO_SR25519, ZERO_PHRASE);
	const uint8_t *public_key = keypair_public_key(keypair);
	uint8_t signature[SIGNATURE_LENGTH];
	struct error err = {0};

	(void)state;
	keypair_sign(keypair, "m", 1, signature, &err);
	assert_true(sr25519_verify(public_key, "m", 1, signature));
	signature[63] &= 127;
	sodium_add(signature + 32, order, sizeof(order));
	signature[63] |= 128;
	assert_false(sr25519_verify(public_key, "m", 1, signature));
	keypair_free(keypair);
}

static void points_that_are_none_are_refused(void **state)
{
	/* the identity, an encoding not below the field's prime, a negative one, one off the curve */
	static const uint8_t bad[4][32] = {
		{0}, {[0 ... 30] = 0xff, [31] = 0x7f}, {1}, {[0] = 2, [31] = 0x80}};
	struct keypair *keypair = key(CRYPTO_SR25519, ZERO_PHRASE);
	uint8_t signature[SIGNATURE_LENGTH], changed[SIGNATURE_LENGTH];
	struct error err = {0};

	(void)state;
	keypair_sign(keypair, "m", 1, signature, &err);
	for (size_t i = 0; i < 4; i++) {
		assert_false(sr25519_verify(bad[i], "m", 1, signature));
		memcpy(changed, signature, sizeof(changed));
		memcpy(changed, bad[i], 32);
		assert_false(sr25519_verify(keypair_public_key(keypair), "m", 1, changed));
	}
	keypair_free(keypair);
}

/* --- key files -------------------------------------------------------------------------------- */

static struct buffer read_keyfile(const char *name)
{
	char *path = xprintf(VECTORS "keyfiles/%s", name);
	struct buffer content = {0};
	struct error err = {0};

	if (file_read(path, KEYFILE_LIMIT, &content, &err) < 0)
		fail_msg("%s", err.message);
	free(path);
	return content;
}

/* The files were written by bittensor-wallet 4.1.1. */
static void files_of_bittensor_wallet_are_read(void **state)
{
	static const struct {
		const char *name, *address;
	} files[] = {
		{"sr25519.json", "5EPCUjPxiHAcNooYipQFWr9NmmXJKpNG5RhcntXwbtUySrgH"},
		{"ed25519.json", "5FM25N8HGtacre9TnWQGRK32d1kUp1Gs6Dd7YiYpSPZLjmj6"},
		{"uri.json", "5CoGSeJ3GB2WE7XBTekSzooVpuEtVDFKyv4PAU1G4hjXhgUp"},
		{"mangled_seed.json", "5EAKEW59bkXrt2kkqZyxGnqtx7mAGUvDpkYBaNBabU1bAz1T"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct buffer content = read_keyfile(files[i].name);
		struct error err = {0};
		struct keypair *keypair = keyfile_parse(content.data, content.length, &err);

		if (!keypair)
			fail_msg("%s: %s", files[i].name, err.message);
		assert_string_equal(keypair_address(keypair), files[i].address);
		keypair_free(keypair);
		buffer_free(&content);
	}
}

static void an_encrypted_file_of_bittensor_wallet_is_read(void **state)
{
	struct buffer content = read_keyfile("encrypted.nacl");
	struct error err = {0};
	struct keypair *keypair;
	size_t length;
	char *json;

	(void)state;
	assert_int_equal(keyfile_encryption(content.data, content.length), KEYFILE_NACL);
	assert_null(keyfile_decrypt(content.data, 44, "correct horse", &length, &err));
	assert_null(keyfile_decrypt(content.data, content.length, "wrong horse", &length, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	json = keyfile_decrypt(content.data, content.length, "correct horse", &length, &err);
	assert_non_null(json);
	keypair = keyfile_parse(json, length, &err);
	assert_non_null(keypair);
	assert_string_equal(keypair_phrase(keypair), ZERO_PHRASE);
	keypair_free(keypair);
	sodium_free(json);
	buffer_free(&content);
}

static void what_is_written_is_read_again(void **state)
{
	static const char *const secrets[] = {ZERO_PHRASE, ZERO_PHRASE "//a", ZERO_PHRASE "///p",
		"e5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a"};

	(void)state;
	for (int type = 0; type <= 1; type++)
		for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
			struct keypair *keypair = key((enum crypto_type)type, secrets[i]), *again;
			char *json = keyfile_format(keypair), *public_half = keyfile_format_public(keypair);
			char address[SS58_SIZE];
			enum crypto_type again_type;
			struct error err = {0};

			again = keyfile_parse(json, strlen(json), &err);
			assert_non_null(again);
			assert_string_equal(keypair_address(again), keypair_address(keypair));
			assert_int_equal(keypair_type(again), type);
			assert_int_equal(keypair_phrase(again) != NULL, i == 0);
			assert_int_equal(keyfile_parse_public(public_half, strlen(public_half), &again_type,
						 address, &err),
				0);
			assert_string_equal(address, keypair_address(keypair));
			assert_null(keyfile_parse(public_half, strlen(public_half), &err));
			sodium_free(json);
			sodium_free(public_half);
			keypair_free(keypair);
			keypair_free(again);
		}
}

#define SEED "0xe5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a"
#define NAMES "\"ss58Address\":\"" ALICE "\""

static void any_one_secret_is_enough(void **state)
{
	static const char *const good[] = {
		"{\"secretSeed\":\"" SEED "\"," NAMES "}",
		"{\"secretSeed\":\"" SEED "\",\"publicKey\":\"0x" ALICE_PUBLIC "\"}",
		"{\"secretSeed\":\"" SEED "\",\"accountId\":\"" ALICE_PUBLIC "\"}",
		" {\"secretSeed\":\"" SEED "\",\"secretPhrase\":null," NAMES ",\"more\":[1]}\n",
		"{\"secretSeed\":\"" SEED "\"," NAMES ",\"cryptoType\":1}",
	};
	struct error err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct keypair *keypair = keyfile_parse(good[i], strlen(good[i]), &err);

		if (!keypair)
			fail_msg("%s: %s", good[i], err.message);
		assert_string_equal(keypair_address(keypair), ALICE);
		keypair_free(keypair);
	}
}

static void damaged_files_are_refused_with_the_reason(void **state)
{
	static const struct {
		const char *json, *reason;
	} bad[] = {
		{"", "JSON"},
		{"{", "JSON"},
		{"[]", "object"},
		{"{}", "neither ss58Address nor publicKey"},
		{"{" NAMES "}", "no secret"},
		{"{\"secretSeed\":\"" SEED "\"}", "neither ss58Address nor publicKey"},
		{"{\"secretSeed\":\"" SEED "\"," NAMES "} x", "JSON"},
		{"{\"secretSeed\":\"" SEED "\"," NAMES ",\"cryptoType\":0}",
			"secretSeed belongs to another key"},
		{"{\"secretSeed\":\"" SEED "\"," NAMES ",\"cryptoType\":2}", "cryptoType"},
		{"{\"secretSeed\":\"" SEED "\"," NAMES ",\"cryptoType\":\"1\"}", "cryptoType"},
		{"{\"secretSeed\":\"0x12\"," NAMES "}", "secretSeed is not 64 hex digits"},
		{"{\"secretSeed\":7," NAMES "}", "secretSeed"},
		{"{\"privateKey\":\"0x12\"," NAMES "}", "privateKey is not 128 hex digits"},
		{"{\"privateKey\":\"0x12\"," NAMES ",\"cryptoType\":0}", "privateKey is not 64 hex digits"},
		{"{\"secretPhrase\":\"" ZERO_PHRASE "\"," NAMES "}", "secretPhrase belongs to another key"},
		{"{\"secretPhrase\":\"" ZERO_PHRASE "\",\"secretSeed\":\"" SEED "\"," NAMES "}",
			"secretPhrase belongs to another key"},
		{"{\"secretPhrase\":\"" DEVELOPMENT_PHRASE "//Alice\"," NAMES "}", "word 12"},
		{"{\"secretSeed\":\"" SEED "\",\"ss58Address\":\"5Grw\"}", "length"},
		{"{\"secretSeed\":\"" SEED "\"," NAMES ",\"publicKey\":\"" SEED "\"}",
			"publicKey belongs to another key"},
		{"{\"secretSeed\":\"" SEED "\"," NAMES ",\"accountId\":\"0x1\"}", "accountId is not 64"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct error err = {0};

		assert_null(keyfile_parse(bad[i].json, strlen(bad[i].json), &err));
		assert_int_equal(err.status, STATUS_ENVIRONMENT);
		if (!strstr(err.message, bad[i].reason))
			fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].json, err.message, bad[i].reason);
		assert_null(strstr(err.message, "e5be9a50"));
		assert_null(strstr(err.message, "abandon"));
	}
}

/* --- sealed --------------------------------------------------------------------------------------- */

static void what_is_sealed_opens_again(void **state)
{
	static const size_t lengths[] = {0, 65536, 65537};
	uint8_t bytes[65537];
	struct error err = {0};

	(void)state;
	randombytes_buf(bytes, sizeof(bytes));
	for (size_t i = 0; i < 3; i++) {
		struct buffer sealed = {0};
		size_t length;
		uint8_t *opened;

		assert_int_equal(sealed_make(bytes, lengths[i], "pass", &sealed, &err), 0);
		opened = sealed_open(sealed.data, sealed.length, "pass", &length, &err);
		assert_non_null(opened);
		assert_int_equal(length, lengths[i]);
		assert_memory_equal(opened, bytes, length);
		sodium_free(opened);
		/* a whole message less: what is left is authentic, and not all */
		if (lengths[i] > 65536)
			assert_null(sealed_open(sealed.data, sealed.length - 18, "pass", &length, &err));
		buffer_free(&sealed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keccak_makes_sha3),
		cmocka_unit_test(transcripts_give_the_known_challenges),
		cmocka_unit_test(witnesses_differ_and_leave_the_transcript),
		cmocka_unit_test(addresses_round_trip),
		cmocka_unit_test(false_addresses_are_refused_with_the_reason),
		cmocka_unit_test(phrases_of_every_length_round_trip),
		cmocka_unit_test(phrases_have_the_known_entropy_and_secret),
		cmocka_unit_test(false_phrases_are_refused_without_being_shown),
		cmocka_unit_test(vectors_of_an_independent_implementation),
		cmocka_unit_test(development_accounts_have_their_known_addresses),
		cmocka_unit_test(spaces_and_prefixes_around_a_secret_do_not_matter),
		cmocka_unit_test(numbers_in_a_path_are_numbers),
		cmocka_unit_test(false_secrets_are_refused),
		cmocka_unit_test(zero_and_oversized_scalars_are_refused),
		cmocka_unit_test(both_forms_of_a_private_key_are_read),
		cmocka_unit_test(signatures_verify_and_nothing_else_does),
		cmocka_unit_test(sr25519_signatures_are_fresh_each_time),
		cmocka_unit_test(a_scalar_above_the_order_is_refused),
		cmocka_unit_test(points_that_are_none_are_refused),
		cmocka_unit_test(files_of_bittensor_wallet_are_read),
		cmocka_unit_test(an_encrypted_file_of_bittensor_wallet_is_read),
		cmocka_unit_test(what_is_written_is_read_again),
		cmocka_unit_test(any_one_secret_is_enough),
		cmocka_unit_test(damaged_files_are_refused_with_the_reason),
		cmocka_unit_test(what_is_sealed_opens_again),
	};

	return cmocka_run_group_tests(tests, start_sodium, NULL);
}
