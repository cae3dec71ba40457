/* SPDX-License-Identifier: MIT */
/*
 * The mount: the only header of fs/ that the main program needs. FUSE lives
 * behind it; everything below it knows segments and transfers only.
 */
#ifndef SF_FS_H
#define SF_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sf_directory;
struct sf_engine;
struct sf_err;
struct sf_fs;
struct sf_iobuf_pool;
struct sf_pipe_pool;
struct sf_timers;
struct sf_workers;

/* What a truncation means (fuse-practice.md section 2). */
enum sf_fs_truncate {
	SF_FS_TRUNCATE_GAPZERO,	/* size stays; gaps behind it become zeros */
	SF_FS_TRUNCATE_IGNORE,	/* size stays; nothing else */
	SF_FS_TRUNCATE_REFUSE,	/* EPERM */
};

enum sf_fs_mmap {
	SF_FS_MMAP_RO,		/* shared mappings may be read */
	SF_FS_MMAP_RW,		/* and written, in whole pages */
	SF_FS_MMAP_OFF,		/* ENODEV */
};

/* Pointers are borrowed and outlive the mount; strings are copied. */
struct sf_fs_config {
	struct sf_directory *directory;
	struct sf_engine *engine;
	struct sf_iobuf_pool *pool;	/* buffers of SF_FS_IOBUF_BYTES */
	struct sf_pipe_pool *pipes;	/* NULL: never splice */
	struct sf_timers *timers;
	struct sf_workers *workers;	/* for calls that may block */

	const char *source;	/* fsname, without credentials */
	const char *mountpoint;
	const char *options_text;	/* effective ones, for .segfs/config */
	const char *kernel_options;	/* more for the kernel: "noatime" */
	bool read_only;
	bool allow_other;
	uid_t uid;
	gid_t gid;
	mode_t fmask;		/* taken off 0666 (0444 when read_only) */
	mode_t dmask;		/* taken off 0777 */
	unsigned int entry_timeout_ms;
	unsigned int attr_timeout_ms;
	unsigned int negative_timeout_ms;
	unsigned int watched_timeout_ms;	/* for both, while watched */
	unsigned int threads;	/* session threads, at least 2 */
	unsigned int timeout_ms;	/* of a request, as the engine's */
	unsigned int interrupt_grace_ms;	/* 1000 */
	size_t blksize;		/* st_blksize */
	enum sf_fs_truncate truncate;
	enum sf_fs_mmap mmap;
	bool debug;		/* libfuse's own request log */
};

/* A FUSE request at its largest: 1 MiB of payload and libfuse's header page. */
#define SF_FS_IOBUF_BYTES ((1u << 20) + 4096u)

/*
 * Mount. When this returns 0 the kernel has the mount but nobody serves it yet:
 * call sf_fs_run() at once. -EBUSY, -ENOENT, -ENOTDIR, -EACCES, -ENOTCONN (a
 * dead mount is in the way; ERR has the command to type), -ENODEV (no
 * /dev/fuse), -EPERM, -ENOMEM.
 */
int sf_fs_mount(struct sf_fs **out, const struct sf_fs_config *config,
		struct sf_err *err);
/*
 * Serve until unmounted or stopped; READY(ARG) is called once, when the
 * kernel's INIT has been answered, i.e. when the mount answers. Returns 0, or a
 * negative errno when the session broke.
 */
int sf_fs_run(struct sf_fs *fs, void (*ready)(void *arg), void *arg);
/* End sf_fs_run() soon, whatever is pending (those get EINTR); the mount is
 * detached. Async-signal-safe. */
void sf_fs_stop(struct sf_fs *fs);
void sf_fs_free(struct sf_fs *fs);	/* unmounts if needed; NULL is fine */

#endif
