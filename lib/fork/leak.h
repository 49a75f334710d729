/* leak: does a file look like something that must not be published? */
#pragma once

#include <stddef.h>

/* Both return what it looks like ("a private key"), or NULL. They err on the side of publishing: only what
 * is unmistakable is named. */

/* By its path, relative to the repository. */
const char *leak_in_name(const char *path);

/* By its content, any bytes. `secrets` (ends with NULL; may be NULL) are texts that are known to be secret;
 * those shorter than 8 characters are left out, since they occur by chance. */
const char *leak_in_content(const char *content, size_t length, const char *const *secrets);
