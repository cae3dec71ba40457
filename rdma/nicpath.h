/* SPDX-License-Identifier: MIT */
/* NIC paths: server@device (protocol section 6.1). Pure. */
#ifndef SF_RDMA_NICPATH_H
#define SF_RDMA_NICPATH_H

#include <stddef.h>

#define SF_NICPATH_MAX 1024	/* longer ones are refused */

/* server@device into OUT. -EINVAL: a part is empty, or SERVER holds an '@';
 * -ENAMETOOLONG. */
int sf_nicpath_join(char out[SF_NICPATH_MAX], const char *server,
		    const char *device);
/* Split at the first '@'. *SERVER_LEN bytes of PATH are the server; *DEVICE
 * points into PATH. -EINVAL: no '@', or a part is empty. */
int sf_nicpath_split(const char *path, size_t *server_len,
		     const char **device);

#endif
