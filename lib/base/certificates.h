/* certificates: whom TLS trusts. */
#pragma once

/* The file of certificate authorities: $SSL_CERT_FILE, else the first that exists of the places where
 * distributions keep it, so that libraries built on one find it on another. NULL: none found. */
const char *certificates_file(void);
