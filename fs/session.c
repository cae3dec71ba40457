/* SPDX-License-Identifier: MIT */
/*
 * The session: one struct sf_fs from mount to free, and its threads. Each
 * thread receives into an I/O buffer of the pool; a handler may take that
 * buffer and the thread then goes on with another one. Threads only parse,
 * submit and answer from memory; nothing here waits for a peer or a store.
 *
 * The end, whoever asks for it: everything that waits is answered EINTR and
 * cancelled while the threads still serve (the kernel holds locks for what it
 * has asked, and a notification may wait for one), then the threads end, then
 * the mount goes away. sf_fs_free() waits for what the wire still holds.
 */
#include "config.h"
#include "fs/internal.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "iobuf.h"
#include "log.h"

#define STOP_STEP_MS	 10
#define STOP_NOTIFY_MS	 500	/* then the connection is cut by force */
#define STOP_ANSWERS_MS	 500
#define NO_MEMORY_PAUSE_MS 20
#define WAKE_SIGNAL	 SIGRTMIN	/* ends a thread's read() */

static __thread struct sf_fs_thread *self;

struct sf_fs_thread *sf_fs_thread_self(void)
{
	return self;
}

struct sf_iobuf *sf_fs_take_buffer(struct sf_share *share, size_t off,
				   size_t len)
{
	struct sf_iobuf *buf = sf_iobuf_charge(self->fs->config.pool,
					       self->buf, share, off, len);

	if (buf)
		self->buf = NULL;
	return buf;
}

static void pause_ms(unsigned int ms)
{
	struct timespec ts = { 0, ms * 1000000L };

	nanosleep(&ts, NULL);
}

static void wake_main(struct sf_fs *fs)
{
	uint64_t one = 1;
	ssize_t n = write(fs->wake, &one, sizeof(one));

	(void)n;	/* full: it is awake */
}

/* One request. 1; or 0: the session is over; or what broke it. */
static int serve_one(struct sf_fs_thread *th)
{
	struct sf_fs *fs = th->fs;
	struct fuse_buf in = { 0 };
	int res;

	while (!th->buf) {
		th->buf = sf_iobuf_get(fs->config.pool);
		if (!th->buf)
			pause_ms(NO_MEMORY_PAUSE_MS);
	}
	assert(th->buf->size >= SF_FS_IOBUF_BYTES);
	in.mem = th->buf->mem;
	res = fuse_session_receive_buf(fs->se, &in);
	if (res == -EINTR || res == -EAGAIN)
		return 1;
	if (res <= 0)
		return res;
	fuse_session_process_buf(fs->se, &in);
	return 1;
}

static void *serve(void *arg)
{
	struct sf_fs_thread *th = arg;
	int res;

	pthread_setname_np(pthread_self(), "segfs-session");
	self = th;
	do
		res = serve_one(th);
	while (res > 0 && !fuse_session_exited(th->fs->se));
	if (res < 0)
		atomic_store(&th->fs->error, res);
	wake_main(th->fs);
	return NULL;
}

/* ---- the end ---- */

static void end_notifications(struct sf_fs *fs)
{
	uint64_t deadline = sf_now_ms() + STOP_NOTIFY_MS;

	do
		sf_pendings_stop(fs);
	while (!sf_notify_stop(fs->notify, STOP_STEP_MS) &&
	       sf_now_ms() < deadline);
	if (!sf_notify_stop(fs->notify, 0))
		umount2(fs->config.mountpoint, MNT_FORCE | MNT_DETACH);
}

/* A signal may come just before the read that it is to end: so again. */
static void join(pthread_t id)
{
	struct timespec until;

	do {
		pthread_kill(id, WAKE_SIGNAL);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += STOP_STEP_MS * 1000000L;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000L;
		}
	} while (pthread_timedjoin_np(id, NULL, &until));
}

static void end_threads(struct sf_fs *fs)
{
	fuse_session_exit(fs->se);
	for (unsigned int i = 0; i < fs->config.threads; i++) {
		struct sf_fs_thread *th = &fs->threads[i];

		if (th->running)
			join(th->id);
		th->running = false;
		if (th->buf)
			sf_iobuf_put(fs->config.pool, th->buf);
		th->buf = NULL;
	}
}

/* An answer may be on its way on another thread: the descriptor stays open
 * until it is written. */
static void end_answers(struct sf_fs *fs)
{
	uint64_t deadline = sf_now_ms() + STOP_ANSWERS_MS;

	sf_pendings_stop(fs);
	while (!sf_pendings_quiet(fs) && sf_now_ms() < deadline)
		pause_ms(1);
}

static void unmount(struct sf_fs *fs)
{
	if (fs->mounted)
		fuse_session_unmount(fs->se);
	fs->mounted = false;
}

static void end_session(struct sf_fs *fs)
{
	end_notifications(fs);
	end_threads(fs);
	end_answers(fs);
	unmount(fs);
}

/* ---- the run ---- */

static void on_wake(int sig)
{
}

static int start_threads(struct sf_fs *fs)
{
	/* No SA_RESTART: it is there to end a read(). */
	struct sigaction wake = { .sa_handler = on_wake };
	sigset_t all, old;
	int res = 0;

	sigaction(WAKE_SIGNAL, &wake, NULL);
	/* All others are for the main program's threads. */
	sigfillset(&all);
	sigdelset(&all, WAKE_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned int i = 0; i < fs->config.threads && !res; i++) {
		struct sf_fs_thread *th = &fs->threads[i];

		res = pthread_create(&th->id, NULL, serve, th);
		th->running = !res;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -res;
}

/* The kernel sends INIT by itself, so this does not wait. */
static int handle_init(struct sf_fs *fs)
{
	int res = 1;

	self = &fs->threads[0];
	res = serve_one(self);
	self = NULL;
	fs->init_done = true;
	return res > 0 ? 0 : res < 0 ? res : -EIO;
}

static void wait_for_end(struct sf_fs *fs)
{
	struct pollfd p = { .fd = fs->wake, .events = POLLIN };

	while (!atomic_load(&fs->stop) && !fuse_session_exited(fs->se) &&
	       !atomic_load(&fs->error))
		poll(&p, 1, -1);
}

int sf_fs_run(struct sf_fs *fs, void (*ready)(void *arg), void *arg)
{
	int res = handle_init(fs);

	if (!res)
		res = start_threads(fs);
	if (!res)
		res = sf_notify_start(fs->notify);
	if (!res) {
		ready(arg);
		wait_for_end(fs);
		res = atomic_load(&fs->error);
	}
	end_session(fs);
	return res;
}

void sf_fs_stop(struct sf_fs *fs)
{
	int saved = errno;

	atomic_store(&fs->stop, true);
	wake_main(fs);
	errno = saved;
}

/* ---- life ---- */

static const char *copy(const char *text)
{
	return strdup(text ? text : "");
}

static int copy_config(struct sf_fs *fs, const struct sf_fs_config *config)
{
	struct sf_fs_config *c = &fs->config;

	*c = *config;
	if (c->threads < 2)
		c->threads = 2;
	c->source = copy(config->source);
	c->mountpoint = copy(config->mountpoint);
	c->options_text = copy(config->options_text);
	c->kernel_options = copy(config->kernel_options);
	fs->threads = calloc(c->threads, sizeof(*fs->threads));
	if (!c->source || !c->mountpoint || !c->options_text ||
	    !c->kernel_options || !fs->threads)
		return -ENOMEM;
	for (unsigned int i = 0; i < c->threads; i++) {
		fs->threads[i].fs = fs;
		fs->threads[i].number = i;
	}
	return 0;
}

/* The root is looked up by nobody and never forgotten. */
static int make_root(struct sf_fs *fs)
{
	struct sf_node_key key = { .kind = SF_NODE_ROOT,
				   .segment = "",
				   .place = "" };
	struct sf_node *root;
	int res = sf_node_obtain(fs->nodes, &key, NULL, &root);

	if (!res) {
		sf_node_looked_up(fs->nodes, root);
		sf_node_put(fs->nodes, root);
	}
	return res;
}

static int init(struct sf_fs *fs, const struct sf_fs_config *config)
{
	struct timespec now;
	int res;

	clock_gettime(CLOCK_REALTIME, &now);
	fs->start_ns = now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
	fs->wake = -1;
	sf_pendings_init(&fs->pending);
	pthread_mutex_init(&fs->handles_lock, NULL);
	LIST_INIT(&fs->handles);
	res = copy_config(fs, config);
	if (res)
		return res;
	fs->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fs->wake < 0)
		return -errno;
	res = sf_nodes_new(&fs->nodes, NULL);
	if (!res)
		res = make_root(fs);
	if (!res)
		res = sf_notify_new(&fs->notify, fs);
	return res;
}

int sf_fs_mount(struct sf_fs **out, const struct sf_fs_config *config,
		struct sf_err *err)
{
	struct sf_fs *fs = calloc(1, sizeof(*fs));
	int res = fs ? init(fs, config) : -ENOMEM;

	if (res)
		sf_err_set(err, res, "cannot prepare the mount: %s",
			   strerror(-res));
	else
		res = sf_mount_start(fs, err);
	if (res) {
		sf_fs_free(fs);
		return res;
	}
	fs->fd = fuse_session_fd(fs->se);
	*out = fs;
	return 0;
}

void sf_fs_free(struct sf_fs *fs)
{
	if (!fs)
		return;
	while (sf_pendings_stop(fs))
		pause_ms(STOP_STEP_MS);
	unmount(fs);
	sf_notify_free(fs->notify);
	sf_handles_close_all(fs);
	if (fs->se)
		fuse_session_destroy(fs->se);
	sf_nodes_free(fs->nodes);
	if (fs->wake >= 0)
		close(fs->wake);
	sf_pendings_fini(&fs->pending);
	pthread_mutex_destroy(&fs->handles_lock);
	free(fs->threads);
	free((char *)fs->config.source);
	free((char *)fs->config.mountpoint);
	free((char *)fs->config.options_text);
	free((char *)fs->config.kernel_options);
	free(fs);
}
