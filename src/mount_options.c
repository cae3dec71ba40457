/* SPDX-License-Identifier: MIT */
/*
 * Mount options: the table, defaults, and the checks across options. Options
 * that only mount(8) or systemd care about are accepted and mean nothing here.
 */
#include "config.h"
#include "mount_options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "err.h"

#define UNSET UINT_MAX
#define DEFAULT_MASK 077
#define THREADS_MAX 64
#define THREADS_DEFAULT_MAX 16

/* In the order of enum sf_fs_truncate and enum sf_fs_mmap. */
static const char *const truncates[] = { "gapzero", "ignore", "refuse", NULL };
static const char *const mmaps[] = { "ro", "rw", "off", NULL };

#define FIELD(f) .offset = offsetof(struct sf_mount_options, f)

#define IGNORED(n) { .name = n, .type = SF_OPT_IGNORED }

const struct sf_option sf_mount_option_table[] = {
	{ .name = "ro", .type = SF_OPT_FLAG, FIELD(read_only),
	  .help = "read only" },
	{ .name = "rw", .type = SF_OPT_FLAG, FIELD(read_only), .min = 1,
	  .help = "read and write (default)" },
	{ .name = "uid", .type = SF_OPT_UINT, FIELD(uid), .max = UINT_MAX - 1,
	  .value = "N", .help = "owner of all files (default: who mounts)" },
	{ .name = "gid", .type = SF_OPT_UINT, FIELD(gid), .max = UINT_MAX - 1,
	  .value = "N", .help = "group of all files (default: who mounts)" },
	{ .name = "umask", .type = SF_OPT_OCTAL, FIELD(umask), .max = 0777,
	  .value = "OCTAL", .help = "permissions to withhold (default 077)" },
	{ .name = "fmask", .type = SF_OPT_OCTAL, FIELD(fmask), .max = 0777,
	  .value = "OCTAL", .help = "umask of files (default: umask)" },
	{ .name = "dmask", .type = SF_OPT_OCTAL, FIELD(dmask), .max = 0777,
	  .value = "OCTAL", .help = "umask of directories (default: umask)" },
	{ .name = "allow_other", .type = SF_OPT_FLAG, FIELD(allow_other),
	  .help = "let other users in, as permissions say" },
	{ .name = "truncate", .type = SF_OPT_ENUM, FIELD(truncate),
	  .choices = truncates, .value = "MODE",
	  .help = "gapzero, ignore or refuse (default gapzero)" },
	{ .name = "mmap", .type = SF_OPT_ENUM, FIELD(mmap), .choices = mmaps,
	  .value = "MODE",
	  .help = "shared mappings: ro, rw or off (default ro)" },
	{ .name = "blksize", .type = SF_OPT_SIZE, FIELD(blksize), .min = 4096,
	  .max = 1 << 20, .value = "BYTES",
	  .help = "st_blksize, a power of two (default 512K)" },
	{ .name = "entry_timeout", .type = SF_OPT_SECONDS,
	  FIELD(entry_timeout_ms), .max = 3600000, .zero = true,
	  .value = "SECONDS",
	  .help = "how long names are trusted, unwatched (default 1)" },
	{ .name = "attr_timeout", .type = SF_OPT_SECONDS,
	  FIELD(attr_timeout_ms), .max = 3600000, .zero = true,
	  .value = "SECONDS",
	  .help = "how long sizes are trusted, unwatched (default 1)" },
	{ .name = "watch", .type = SF_OPT_FLAG, FIELD(watch),
	  .help = "let the store tell of changes (default; nowatch)" },
	{ .name = "threads", .type = SF_OPT_UINT, FIELD(threads), .min = 2,
	  .max = THREADS_MAX, .value = "N",
	  .help = "session threads (default: one per CPU, 2 to 16)" },
	{ .name = "pool", .type = SF_OPT_SIZE, FIELD(pool), .min = 8 << 20,
	  .max = 1ull << 40, .value = "BYTES",
	  .help = "memory for I/O buffers (default 128M)" },
	{ .name = "core", .type = SF_OPT_TABLE, FIELD(core),
	  .table = sf_core_option_table },

	{ .name = "noatime", .type = SF_OPT_FLAG, FIELD(noatime) },
	{ .name = "nodiratime", .type = SF_OPT_FLAG, FIELD(nodiratime) },
	{ .name = "remount", .type = SF_OPT_REFUSED,
	  .value = "a segfs mount cannot be changed; unmount it and mount "
		   "anew" },
	{ .name = "default_permissions", .type = SF_OPT_IGNORED },

	/*
	 * Always so: nosuid, nodev, noexec; there are no such files. Their
	 * opposites change nothing, and mount.fuse3 passes them unasked.
	 */
	IGNORED("nosuid"), IGNORED("nodev"), IGNORED("noexec"),
	IGNORED("suid"), IGNORED("dev"), IGNORED("exec"),
	/* The kernel's ways to keep times and to delay writes: not ours. */
	IGNORED("atime"), IGNORED("relatime"), IGNORED("norelatime"),
	IGNORED("strictatime"), IGNORED("nostrictatime"),
	IGNORED("diratime"), IGNORED("lazytime"), IGNORED("nolazytime"),
	IGNORED("sync"), IGNORED("async"), IGNORED("dirsync"),
	/* For mount(8), fstab(5) and systemd.mount(5). */
	IGNORED("defaults"), IGNORED("auto"), IGNORED("noauto"),
	IGNORED("nouser"), IGNORED("users"),
	IGNORED("nousers"), IGNORED("owner"), IGNORED("noowner"),
	IGNORED("group"), IGNORED("nogroup"), IGNORED("_netdev"),
	IGNORED("nofail"), IGNORED("comment"), IGNORED("x-*"),
	{ .name = "X-*", .type = SF_OPT_IGNORED },
	{ 0 }
};

void sf_mount_options_init(struct sf_mount_options *o)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	*o = (struct sf_mount_options){
		.uid = getuid(),
		.gid = getgid(),
		.umask = DEFAULT_MASK,
		.fmask = UNSET,
		.dmask = UNSET,
		.entry_timeout_ms = 1000,
		.attr_timeout_ms = 1000,
		.pool = 128 << 20,
		.blksize = 512 << 10,
		.watch = true,
	};
	o->threads = cpus < 2 ? 2 : cpus > THREADS_DEFAULT_MAX ?
		     THREADS_DEFAULT_MAX : (unsigned int)cpus;
	sf_core_options_init(&o->core);
}

void sf_mount_options_fini(struct sf_mount_options *o)
{
	sf_option_free(sf_mount_option_table, o);
}

int sf_mount_options_parse(struct sf_mount_options *o, const char *list,
			   struct sf_err *err)
{
	return sf_option_parse_list(sf_mount_option_table, o, list, err);
}

int sf_mount_options_check(struct sf_mount_options *o, struct sf_err *err)
{
	if (o->blksize & (o->blksize - 1))
		return sf_err_set(err, -EINVAL,
				  "blksize=%zu: must be a power of two",
				  o->blksize);
	if (o->fmask == UNSET)
		o->fmask = o->umask;
	if (o->dmask == UNSET)
		o->dmask = o->umask;
	return sf_core_options_check(&o->core, err);
}

void sf_mount_options_kernel(const struct sf_mount_options *o,
			     char out[SF_KERNEL_OPTIONS_MAX])
{
	snprintf(out, SF_KERNEL_OPTIONS_MAX, "nosuid,nodev,noexec%s%s",
		 o->noatime ? ",noatime" : "",
		 o->nodiratime ? ",nodiratime" : "");
}
