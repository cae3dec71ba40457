/* SPDX-License-Identifier: MIT */
/* NIC paths: see nicpath.h. Pure, no state; texts come from peers. */
#include "config.h"
#include "rdma/nicpath.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int sf_nicpath_join(char out[SF_NICPATH_MAX], const char *server,
		    const char *device)
{
	if (!*server || !*device || strchr(server, '@'))
		return -EINVAL;
	if (strlen(server) + strlen(device) + 2 > SF_NICPATH_MAX)
		return -ENAMETOOLONG;
	snprintf(out, SF_NICPATH_MAX, "%s@%s", server, device);
	return 0;
}

int sf_nicpath_split(const char *path, size_t *server_len, const char **device)
{
	const char *at = strchr(path, '@');

	if (!at || at == path || !at[1])
		return -EINVAL;
	*server_len = (size_t)(at - path);
	*device = at + 1;
	return 0;
}
