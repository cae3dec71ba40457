/* SPDX-License-Identifier: MIT */
/* The options of a mount, as -o and mount(8) give them. */
#ifndef SF_MOUNT_OPTIONS_H
#define SF_MOUNT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "core_options.h"

struct sf_mount_options {
	struct sf_core_options core;
	bool read_only;
	bool allow_other;
	unsigned int uid, gid;
	unsigned int umask;
	unsigned int fmask, dmask;	/* final after check */
	unsigned int entry_timeout_ms, attr_timeout_ms;
	unsigned int threads;
	size_t pool, blksize;
	int truncate;			/* enum sf_fs_truncate */
	int mmap;			/* enum sf_fs_mmap */
	bool watch;
	bool noatime, nodiratime;
};

extern const struct sf_option sf_mount_option_table[];

void sf_mount_options_init(struct sf_mount_options *o);
void sf_mount_options_fini(struct sf_mount_options *o);
/* May be called for several -o; the last one wins. -EINVAL with a sentence. */
int sf_mount_options_parse(struct sf_mount_options *o, const char *list,
			   struct sf_err *err);
/* After the last list: what remains is checked and filled in. */
int sf_mount_options_check(struct sf_mount_options *o, struct sf_err *err);

/* What the kernel is to be told besides: "noexec,noatime". */
#define SF_KERNEL_OPTIONS_MAX 64
void sf_mount_options_kernel(const struct sf_mount_options *o,
			     char out[SF_KERNEL_OPTIONS_MAX]);

#endif
