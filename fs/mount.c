/* SPDX-License-Identifier: MIT */
/*
 * Mounting: is the mountpoint fit, what does the kernel get told, what is
 * negotiated in INIT. Runs on the main thread before there are others;
 * libfuse's own words on a failure are caught and become part of our sentence.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "err.h"
#include "log.h"

#define FUSE_MAGIC 0x65735546

/* libfuse's latest complaint of this thread, for the sentence of an error. */
static __thread char *complaint;
static __thread size_t complaint_size;

static void from_libfuse(enum fuse_log_level level, const char *fmt,
			 va_list ap)
{
	char line[512];
	size_t len;

	vsnprintf(line, sizeof(line), fmt, ap);
	len = strlen(line);
	while (len && line[len - 1] == '\n')
		line[--len] = '\0';
	if (complaint && level <= FUSE_LOG_ERR)
		snprintf(complaint, complaint_size, "%s", line);
	else if (level <= FUSE_LOG_ERR)
		sf_log(LOG_ERR, SF_LOG_FS, "%s", line);
	else
		sf_log(LOG_DEBUG, SF_LOG_FS, "%s", line);
}

static bool is_mountpoint(const char *path, const struct stat *st)
{
	char up[PATH_MAX];
	struct stat parent;

	if (snprintf(up, sizeof(up), "%s/..", path) >= (int)sizeof(up) ||
	    stat(up, &parent) < 0)
		return false;
	return parent.st_dev != st->st_dev || parent.st_ino == st->st_ino;
}

/* A dead mount must be cleared first, or ours would lie on top of it; an autofs
 * or anything else may be underneath. */
static int check_mountpoint(const char *path, struct sf_err *err)
{
	struct statfs fs;
	struct stat st;
	int res = stat(path, &st) < 0 ? -errno : 0;

	/* The kernel may still know a dead mount's attributes, but statfs()
	 * always asks. */
	if (!res && statfs(path, &fs) < 0)
		res = -errno;
	if (res == -ENOTCONN || res == -ECONNABORTED)
		return sf_err_set(err, -ENOTCONN,
				  "%s: a dead mount is in the way; type: "
				  "fusermount3 -uz %s", path, path);
	if (res)
		return sf_err_set(err, res, "%s: %s", path, strerror(-res));
	if (!S_ISDIR(st.st_mode))
		return sf_err_set(err, -ENOTDIR, "%s: %s", path,
				  strerror(ENOTDIR));
	if (fs.f_type == FUSE_MAGIC && is_mountpoint(path, &st))
		return sf_err_set(err, -EBUSY, "%s: something is mounted "
				  "there already; type: fusermount3 -u %s",
				  path, path);
	return 0;
}

static int check_device(struct sf_err *err)
{
	if (!access("/dev/fuse", F_OK))
		return 0;
	return sf_err_set(err, -ENODEV,
			  "/dev/fuse: %s (is the fuse module loaded?)",
			  strerror(errno));
}

static int add_options(const struct sf_fs *fs, struct fuse_args *args)
{
	const struct sf_fs_config *c = &fs->config;
	char source[512], max_read[32];
	char *opts = NULL;
	int res = 0;

	snprintf(source, sizeof(source), "fsname=%s", c->source);
	snprintf(max_read, sizeof(max_read), "max_read=%u", SF_FS_MAX_IO);
	if (*c->kernel_options)
		res |= fuse_opt_add_opt(&opts, c->kernel_options);
	/* After those of the caller: the later one counts. */
	res |= fuse_opt_add_opt(&opts, "nosuid,nodev,noexec");
	res |= fuse_opt_add_opt(&opts, "default_permissions");
	res |= fuse_opt_add_opt(&opts, "subtype=segfs");
	res |= fuse_opt_add_opt(&opts, max_read);
	res |= fuse_opt_add_opt_escaped(&opts, source);
	if (c->read_only)
		res |= fuse_opt_add_opt(&opts, "ro");
	if (c->allow_other)
		res |= fuse_opt_add_opt(&opts, "allow_other");
	res |= fuse_opt_add_arg(args, "segfs");
	res |= fuse_opt_add_arg(args, "-o");
	if (!res)
		res = fuse_opt_add_arg(args, opts);
	if (!res && c->debug)
		res = fuse_opt_add_arg(args, "-d");
	free(opts);
	return res ? -ENOMEM : 0;
}

static int make_session(struct sf_fs *fs, char *said, struct sf_err *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int res = add_options(fs, &args);

	if (!res) {
		fs->se = fuse_session_new(&args, &sf_fs_ops, sizeof(sf_fs_ops),
					  fs);
		if (!fs->se)
			res = *said ? -EINVAL : -ENOMEM;
	}
	fuse_opt_free_args(&args);
	return res ? sf_err_set(err, res, "cannot make a FUSE session: %s",
				*said ? said : strerror(-res))
		   : 0;
}

static int mount_session(struct sf_fs *fs, const char *said,
			 struct sf_err *err)
{
	const char *where = fs->config.mountpoint;
	int res;

	errno = 0;
	if (!fuse_session_mount(fs->se, where)) {
		fs->mounted = true;
		return 0;
	}
	res = errno == EPERM || errno == EACCES || errno == ENODEV ? -errno
								   : -EPERM;
	return sf_err_set(err, res, "cannot mount on %s: %s", where,
			  *said ? said : strerror(-res));
}

int sf_mount_start(struct sf_fs *fs, struct sf_err *err)
{
	char said[256] = "";
	int res = check_mountpoint(fs->config.mountpoint, err);

	if (!res)
		res = check_device(err);
	if (res)
		return res;
	fuse_set_log_func(from_libfuse);
	complaint = said;
	complaint_size = sizeof(said);
	res = make_session(fs, said, err);
	if (!res)
		res = mount_session(fs, said, err);
	complaint = NULL;
	if (!res && sf_hook_install(fs))
		res = sf_err_set(err, -EIO, "cannot take over the session");
	return res;
}

static void want(struct fuse_conn_info *conn, unsigned int caps)
{
	conn->want |= conn->capable & caps;
}

/* fuse-practice.md section 10 has the reasons. */
void sf_mount_init(void *userdata, struct fuse_conn_info *conn)
{
	struct sf_fs *fs = userdata;

	conn->want = 0;
	want(conn, FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
			   FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
			   FUSE_CAP_READDIRPLUS_AUTO |
			   FUSE_CAP_AUTO_INVAL_DATA);
#if defined(HAVE_DECL_FUSE_CAP_DIRECT_IO_ALLOW_MMAP) && \
	HAVE_DECL_FUSE_CAP_DIRECT_IO_ALLOW_MMAP
	if (fs->config.mmap != SF_FS_MMAP_OFF)
		fs->can_mmap = fuse_set_feature_flag(
			conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
#else
	/* hook.c answers for libfuse. */
	fs->can_mmap = fs->config.mmap != SF_FS_MMAP_OFF &&
		       (fs->init_flags2 & SF_INIT2_DIRECT_IO_ALLOW_MMAP);
#endif
	conn->max_write = SF_FS_MAX_IO;
	conn->max_read = SF_FS_MAX_IO;
	conn->max_readahead = 0;
	conn->max_background = 256;
	conn->congestion_threshold = 192;
	conn->time_gran = 1;
	fs->kernel_major = conn->proto_major;
	fs->kernel_minor = conn->proto_minor;
}
