/* SPDX-License-Identifier: MIT */
/*
 * The table of operations, and those that are refused: names here are what the
 * metadata store says, nobody makes, moves or removes them through a mount.
 * None of these may be left out, or libfuse says ENOSYS to the program.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>

static void refuse(fuse_req_t req)
{
	sf_reply_err(req, sf_fs_of(req)->config.read_only ? -EROFS : -EPERM);
}

static void refuse_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
			 mode_t mode, dev_t dev)
{
	refuse(req);
}

static void refuse_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
			 mode_t mode)
{
	refuse(req);
}

static void refuse_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	refuse(req);
}

static void refuse_symlink(fuse_req_t req, const char *target,
			   fuse_ino_t parent, const char *name)
{
	refuse(req);
}

static void refuse_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
			  fuse_ino_t to, const char *to_name,
			  unsigned int flags)
{
	refuse(req);
}

static void refuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent,
			const char *name)
{
	refuse(req);
}

static void refuse_create(fuse_req_t req, fuse_ino_t parent, const char *name,
			  mode_t mode, struct fuse_file_info *fi)
{
	refuse(req);
}

static void refuse_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			    const char *value, size_t size, int flags)
{
	sf_reply_err(req, -EOPNOTSUPP);
}

static void refuse_removexattr(fuse_req_t req, fuse_ino_t ino,
			       const char *name)
{
	sf_reply_err(req, -EOPNOTSUPP);
}

static void refuse_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd,
			 void *arg, struct fuse_file_info *fi,
			 unsigned int flags, const void *in, size_t in_size,
			 size_t out_size)
{
	sf_reply_err(req, -ENOTTY);
}

static void fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
		     struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}

/*
 * Left out on purpose: flush (ENOSYS once, then the kernel does not ask any
 * more), access (default_permissions), locks (the kernel keeps them, local to
 * the host), poll (always ready), bmap.
 */
const struct fuse_lowlevel_ops sf_fs_ops = {
	.init = sf_mount_init,
	.lookup = sf_op_lookup,
	.forget = sf_op_forget,
	.getattr = sf_op_getattr,
	.setattr = sf_op_setattr,
	.readlink = sf_op_readlink,
	.mknod = refuse_mknod,
	.mkdir = refuse_mkdir,
	.unlink = refuse_remove,
	.rmdir = refuse_remove,
	.symlink = refuse_symlink,
	.rename = refuse_rename,
	.link = refuse_link,
	.open = sf_op_open,
	.read = sf_op_read,
	.write = sf_op_write,
	.release = sf_op_release,
	.fsync = sf_op_fsync,
	.opendir = sf_op_opendir,
	.readdir = sf_op_readdir,
	.releasedir = sf_op_release,
	.fsyncdir = fsyncdir,
	.statfs = sf_op_statfs,
	.setxattr = refuse_setxattr,
	.getxattr = sf_op_getxattr,
	.listxattr = sf_op_listxattr,
	.removexattr = refuse_removexattr,
	.create = refuse_create,
	.ioctl = refuse_ioctl,
	.forget_multi = sf_op_forget_multi,
	.fallocate = sf_op_fallocate,
	.readdirplus = sf_op_readdirplus,
	.copy_file_range = sf_op_copy_file_range,
	.lseek = sf_op_lseek,
};
