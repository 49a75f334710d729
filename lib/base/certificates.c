#include "base/certificates.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/file.h"

const char *certificates_file(void)
{
	static const char *const places[] = {
		"/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch, Alpine */
		"/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, Red Hat */
		"/etc/ssl/ca-bundle.pem",             /* SUSE */
		"/etc/ssl/cert.pem",
		NULL,
	};
	const char *file = getenv("SSL_CERT_FILE");

	if (file && file[0])
		return file;
	for (size_t i = 0; places[i]; i++)
		if (path_exists(places[i]))
			return places[i];
	return NULL;
}
