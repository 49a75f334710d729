/* What the HTTP client makes of headers and URLs that a server sends.
 *
 * Input: five lines: Date, Retry-After, where a request went, where a redirect leads, a base URL. */
#include "fuzz.h"

#include "../../lib/api/http.c" /* its inner functions are what is under test */

static void headers(const char *date, const char *wait)
{
	double seconds = retry_after(wait, date), ahead = http_clock_skew(date, 1.7e9, 1.7e9 + 1);

	REQUIRE(isfinite(seconds) && seconds >= 0);
	REQUIRE(isnan(ahead) || isfinite(ahead));
}

/* A signed request stays with its host, and with TLS. */
static void redirect(const char *from, const char *to)
{
	static const char *const names[] = {"Signature: 00", NULL};
	const struct http_request request = {.url = from, .body = "{}", .headers = names};
	CURLU *old = curl_url(), *new = curl_url();
	struct error err = {0};

	if (check_redirect(&request, from, to, &err) == 0) {
		REQUIRE(curl_url_set(old, CURLUPART_URL, from, 0) == CURLUE_OK);
		REQUIRE(curl_url_set(new, CURLUPART_URL, to, 0) == CURLUE_OK);
		REQUIRE(part_equal(old, new, CURLUPART_HOST));
		REQUIRE(!part_is(old, CURLUPART_SCHEME, "https") || part_is(new, CURLUPART_SCHEME, "https"));
	} else {
		REQUIRE(err.status == STATUS_REFUSED && err.message[0]);
	}
	curl_url_cleanup(old);
	curl_url_cleanup(new);
}

static void base(const char *url)
{
	struct error err = {0};
	bool plain = false;
	char *checked = http_check_base(url, &plain, &err), *again, *escaped;

	REQUIRE(checked || (err.status == STATUS_USAGE && err.message[0]));
	if (checked) {
		REQUIRE(!strpbrk(checked, "?#"));
		REQUIRE(strcspn(strstr(checked, "://") + 3, "@") >= strcspn(strstr(checked, "://") + 3, "/"));
		again = http_check_base(checked, &plain, &err);
		REQUIRE(again && !strcmp(checked, again));
		free(again);
	}
	escaped = http_escape(url);
	REQUIRE(!strpbrk(escaped, "&=?# \r\n"));
	free(escaped);
	free(checked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *input = fuzz_string(data, size), *rest = input;
	const char *date = fuzz_line(&rest), *wait = fuzz_line(&rest), *from = fuzz_line(&rest);

	headers(date, wait);
	headers(NULL, wait);
	redirect(from, fuzz_line(&rest));
	base(fuzz_line(&rest));
	free(input);
	return 0;
}
