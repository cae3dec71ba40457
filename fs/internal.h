/* SPDX-License-Identifier: MIT */
/*
 * The mount's own state, and what the files of fs/ share. One struct sf_fs is
 * libfuse's user data; the only other way to any state is the session thread's
 * own structure.
 */
#ifndef SF_FS_INTERNAL_H
#define SF_FS_INTERNAL_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "fs/fs.h"
#include "fs/handle.h"
#include "fs/kernel.h"
#include "fs/node.h"
#include "fs/pending.h"

struct sf_iobuf;
struct sf_notify;
struct sf_pipe;
struct sf_segment;
struct sf_share;

/* The largest payload of a request; SF_FS_IOBUF_BYTES has room for it. */
#define SF_FS_MAX_IO (1u << 20)

struct sf_fs_thread {
	struct sf_fs *fs;
	pthread_t id;
	bool running;
	unsigned int number;
	struct sf_iobuf *buf;	/* the request was received into it; NULL once
				 * a handler has taken it */
};

struct sf_fs {
	struct sf_fs_config config;	/* strings are our own */
	struct fuse_session *se;
	int fd;			/* the session's own; replies go here */
	bool mounted;

	struct sf_nodes *nodes;
	struct sf_pendings pending;
	struct sf_notify *notify;
	atomic_bool watched;	/* notify.c: the kernel may keep entries long */

	pthread_mutex_t handles_lock;
	LIST_HEAD(, sf_handle) handles;

	struct sf_fs_thread *threads;
	int wake;		/* eventfd: stop, or a thread has ended */
	atomic_bool stop;
	atomic_int error;	/* what broke the session */

	/* written while INIT is handled, before there are threads */
	bool init_done;
	uint64_t init_unique;
	uint32_t init_flags2;	/* what the kernel offers */
	unsigned int kernel_major, kernel_minor;	/* FUSE protocol */
	bool can_mmap;		/* shared mappings, and they are wanted */

	int64_t start_ns;	/* time of day of the mount */
};

static inline struct sf_fs *sf_fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- session.c ---- */

/* The calling session thread; handlers only. */
struct sf_fs_thread *sf_fs_thread_self(void);
/* Take the buffer that the present request was received into, charged to
 * SHARE; bytes [off, off+len) of it are kept. NULL: out of memory. */
struct sf_iobuf *sf_fs_take_buffer(struct sf_share *share, size_t off,
				   size_t len);

/* ---- hook.c ---- */

/* Route the session's traffic through our own read and writev. */
int sf_hook_install(struct sf_fs *fs);

/* ---- reply.c ---- */

/* RES is a negative errno. All error replies go through here. */
void sf_reply_err(fuse_req_t req, int res);
/* The only replies that hand out references: they take them back when the
 * kernel does not want the reply any more. */
void sf_reply_entry(fuse_req_t req, struct sf_node *n,
		    const struct stat *st, double attr_timeout);
void sf_reply_negative(fuse_req_t req);
void sf_reply_open(fuse_req_t req, struct sf_handle *h);
void sf_reply_attr(fuse_req_t req, const struct stat *st,
		   double attr_timeout);
void sf_reply_text(fuse_req_t req, struct sf_blob *text, size_t size,
		   off_t off);
/* A read's payload from pipes, which are given back; UNIQUE is the request's.
 * When pipes cannot do it, LEN bytes go through MEM. */
void sf_reply_pipes(struct sf_fs *fs, fuse_req_t req, uint64_t unique,
		    struct sf_pipe **pipes, unsigned int nr_pipes,
		    size_t len, void *mem);
double sf_entry_timeout(struct sf_fs *fs);
double sf_attr_timeout(struct sf_fs *fs, enum sf_node_kind kind);

/* ---- notify.c ---- */

/* Follow the directory's changes. -ENOMEM, -EAGAIN. */
int sf_notify_new(struct sf_notify **out, struct sf_fs *fs);
/* Begin telling the kernel; the session answers. -EAGAIN. */
int sf_notify_start(struct sf_notify *nt);
/* Take no more work; true once the thread has ended. May be repeated. */
bool sf_notify_stop(struct sf_notify *nt, unsigned int wait_ms);
/* NULL is fine; waits for the thread. */
void sf_notify_free(struct sf_notify *nt);
/* A transfer found N's registration gone. */
void sf_notify_stale(struct sf_fs *fs, struct sf_node *n);

/* ---- mount.c ---- */

int sf_mount_start(struct sf_fs *fs, struct sf_err *err);
void sf_mount_init(void *userdata, struct fuse_conn_info *conn);

/* ---- the operations, one file a family; op.c has the table ---- */

extern const struct fuse_lowlevel_ops sf_fs_ops;

void sf_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void sf_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nr);
void sf_op_forget_multi(fuse_req_t req, size_t count,
			struct fuse_forget_data *forgets);
void sf_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void sf_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
		   int to_set, struct fuse_file_info *fi);
void sf_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void sf_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void sf_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void sf_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi);
void sf_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi);
void sf_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		struct fuse_file_info *fi);
void sf_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
		 off_t off, struct fuse_file_info *fi);
void sf_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		 struct fuse_file_info *fi);
void sf_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
		     off_t len, struct fuse_file_info *fi);
void sf_op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			   struct fuse_file_info *fi_in, fuse_ino_t ino_out,
			   off_t off_out, struct fuse_file_info *fi_out,
			   size_t len, int flags);
void sf_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		 struct fuse_file_info *fi);
void sf_op_statfs(fuse_req_t req, fuse_ino_t ino);
void sf_op_readlink(fuse_req_t req, fuse_ino_t ino);
void sf_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		    size_t size);
void sf_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
