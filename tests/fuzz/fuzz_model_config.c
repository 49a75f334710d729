/* A model's config.json that somebody else wrote. */
#include "fuzz.h"

#include <math.h>

#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size);
	struct model_config config;
	struct error err = {0};

	if (model_config_parse(text, size, &config, &err) < 0) {
		REQUIRE(err.message[0] && err.status == STATUS_ENVIRONMENT);
	} else {
		REQUIRE(config.heads % config.kv_heads == 0);
		REQUIRE(config.head_dim % 2 == 0 && config.head_dim <= MODEL_HEAD_DIM);
		REQUIRE(config.vocabulary > 0 && config.hidden > 0 && config.layers > 0 &&
			config.context > 0);
		for (int i = 0; i < config.head_dim / 2; i++)
			REQUIRE(!isnan(model_config_frequency(&config, i)));
	}
	free(text);
	return 0;
}
