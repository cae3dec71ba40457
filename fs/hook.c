/* SPDX-License-Identifier: MIT */
/*
 * Our own read and writev under libfuse's session. They end a blocked read when
 * the daemon stops, keep reads within our buffers, and let shared mappings of
 * direct files be negotiated where libfuse (before 3.17) cannot: the flag is
 * added to the reply to INIT if the kernel has offered it.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#if !defined(HAVE_DECL_FUSE_CAP_DIRECT_IO_ALLOW_MMAP) || \
	!HAVE_DECL_FUSE_CAP_DIRECT_IO_ALLOW_MMAP

static void note_init(struct sf_fs *fs, const void *buf, ssize_t len)
{
	const struct sf_kernel_in *in = buf;
	const struct sf_kernel_init_in *init = (const void *)(in + 1);

	if (len < (ssize_t)(sizeof(*in) + sizeof(*init)) ||
	    in->opcode != SF_KERNEL_INIT)
		return;
	fs->init_unique = in->unique;
	if (init->flags & SF_INIT_EXT)
		fs->init_flags2 = init->flags2;
}

static void patch_init(struct sf_fs *fs, struct iovec *iov, int count)
{
	const struct sf_kernel_out *out = iov[0].iov_base;
	struct sf_kernel_init_out *init;

	if (count != 2 || out->unique != fs->init_unique || out->error ||
	    iov[1].iov_len < sizeof(*init))
		return;
	if (fs->config.mmap == SF_FS_MMAP_OFF ||
	    !(fs->init_flags2 & SF_INIT2_DIRECT_IO_ALLOW_MMAP))
		return;
	init = iov[1].iov_base;
	init->flags |= SF_INIT_EXT;
	init->flags2 |= SF_INIT2_DIRECT_IO_ALLOW_MMAP;
}

#else

static void note_init(struct sf_fs *fs, const void *buf, ssize_t len)
{
}

static void patch_init(struct sf_fs *fs, struct iovec *iov, int count)
{
}

#endif

/* The one place where a session thread waits. */
static ssize_t hook_read(int fd, void *buf, size_t len, void *userdata)
{
	struct sf_fs *fs = userdata;
	ssize_t n;

	if (len > SF_FS_IOBUF_BYTES)
		len = SF_FS_IOBUF_BYTES;
	n = read(fd, buf, len);
	if (!fs->init_done)
		note_init(fs, buf, n);
	return n;
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count,
			   void *userdata)
{
	struct sf_fs *fs = userdata;

	if (!fs->init_done)
		patch_init(fs, iov, count);
	return writev(fd, iov, count);
}

int sf_hook_install(struct sf_fs *fs)
{
	static const struct fuse_custom_io io = {
		.read = hook_read,
		.writev = hook_writev,
	};

	return fuse_session_custom_io(fs->se, &io, fuse_session_fd(fs->se))
		       ? -EIO
		       : 0;
}
