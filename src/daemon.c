/* SPDX-License-Identifier: MIT */
/*
 * Daemon habits: see daemon.h. The parent of a background process learns
 * through a pipe how the child's start went; signals are taken by a thread from
 * a descriptor, so that nothing has to be safe in a handler.
 */
#include "config.h"
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "log.h"

/* timeout(1), and a terminal's Ctrl-C passed on by a parent, send their signal
 * twice: that is one wish. */
#define SAME_SIGNAL_MS 500

struct sf_background {
	int fd;			/* the pipe's end to the parent */
};

struct report {
	int status;
	char text[SF_ERR_TEXT_MAX];
};

static bool read_report(int fd, struct report *r, unsigned int limit_ms)
{
	uint64_t deadline = sf_now_ms() + limit_ms;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, sf_ms_left(deadline));
	while (n < 0 && errno == EINTR);
	/* Less than PIPE_BUF: written in one piece. */
	return n > 0 && read(fd, r, sizeof(*r)) == (ssize_t)sizeof(*r);
}

static void __attribute__((noreturn)) parent(int fd, pid_t child,
					     unsigned int limit_ms)
{
	struct report r = { .status = SF_EXIT_FAILURE };

	if (!read_report(fd, &r, limit_ms)) {
		r.status = SF_EXIT_FAILURE;
		snprintf(r.text, sizeof(r.text), "%s",
			 "the background process did not start");
		kill(child, SIGTERM);
	}
	r.text[sizeof(r.text) - 1] = '\0';
	if (r.text[0])
		fprintf(stderr, "%s: %s\n", program_invocation_short_name,
			r.text);
	_exit(r.status);
}

int sf_background_fork(struct sf_background **out, unsigned int limit_ms,
		       struct sf_err *err)
{
	struct sf_background *bg = malloc(sizeof(*bg));
	int fds[2], ret;
	pid_t pid;

	if (!bg)
		return sf_err_set(err, -ENOMEM, "out of memory");
	if (pipe2(fds, O_CLOEXEC) < 0) {
		ret = sf_err_set(err, -errno, "pipe: %s", strerror(errno));
		free(bg);
		return ret;
	}
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		ret = sf_err_set(err, -errno, "fork: %s", strerror(errno));
		close(fds[0]);
		close(fds[1]);
		free(bg);
		return ret;
	}
	if (pid) {
		close(fds[1]);
		parent(fds[0], pid, limit_ms);
	}
	close(fds[0]);
	bg->fd = fds[1];
	*out = bg;
	return 0;
}

static int report(struct sf_background *bg, int status, const char *text)
{
	struct report r = { .status = status };
	ssize_t n;

	snprintf(r.text, sizeof(r.text), "%s", text);
	do
		n = write(bg->fd, &r, sizeof(r));
	while (n < 0 && errno == EINTR);
	close(bg->fd);
	free(bg);
	return n < 0 ? -EPIPE : 0;
}

int sf_background_detach(struct sf_background *bg, const char *program)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (chdir("/") < 0)
		sf_log(LOG_WARNING, SF_LOG_CORE, "chdir /: %s",
		       strerror(errno));
	sf_log_to_syslog(program);
	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
	return report(bg, SF_EXIT_OK, "");
}

void sf_background_fail(struct sf_background *bg, int status, const char *text)
{
	report(bg, status, text);
}

struct sf_signals {
	pthread_t thread;
	int signals;		/* signalfd */
	int quit;		/* eventfd */
	unsigned int limit_ms;
	pthread_mutex_t lock;
	bool may_stop;		/* there was a set_stop */
	bool stopping;		/* a signal came */
	void (*stop)(void *arg);
	void *arg;
};

/* stop() runs under the lock: after set_stop() its old ARG is not used. */
static void first_signal(struct sf_signals *s, int sig)
{
	pthread_mutex_lock(&s->lock);
	if (!s->may_stop)
		_exit(128 + sig);
	s->stopping = true;
	if (s->stop)
		s->stop(s->arg);
	pthread_mutex_unlock(&s->lock);
	sf_daemon_notify("STOPPING=1");
}

/* A signal; -ETIMEDOUT; -ECANCELED: sf_signals_free() wants the thread back. */
static int wait_for_signal(struct sf_signals *s, uint64_t deadline_ms)
{
	struct pollfd p[] = {
		{ .fd = s->signals, .events = POLLIN },
		{ .fd = s->quit, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	int n;

	do
		n = poll(p, 2, sf_ms_left(deadline_ms));
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return -ETIMEDOUT;
	if (p[1].revents)
		return -ECANCELED;
	if (read(s->signals, &info, sizeof(info)) != sizeof(info))
		return -ETIMEDOUT;
	return (int)info.ssi_signo;
}

static void *signal_thread(void *arg)
{
	struct sf_signals *s = arg;
	uint64_t began;
	int sig;

	sig = wait_for_signal(s, SF_NO_DEADLINE);
	if (sig == -ECANCELED)
		return NULL;
	first_signal(s, sig);
	began = sf_now_ms();
	do
		sig = wait_for_signal(s, began + s->limit_ms);
	while (sig >= 0 && sf_now_ms() - began < SAME_SIGNAL_MS);
	if (sig == -ECANCELED)
		return NULL;
	sf_log(LOG_ERR, SF_LOG_CORE, "%s: leaving at once",
	       sig < 0 ? "could not stop in time" : "second signal");
	_exit(SF_EXIT_FAILURE);
}

static void signals_delete(struct sf_signals *s)
{
	if (s->signals >= 0)
		close(s->signals);
	if (s->quit >= 0)
		close(s->quit);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int sf_signals_new(struct sf_signals **out, unsigned int limit_ms)
{
	struct sf_signals *s = calloc(1, sizeof(*s));
	sigset_t set;
	int ret;

	if (!s)
		return -ENOMEM;
	s->limit_ms = limit_ms;
	pthread_mutex_init(&s->lock, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->quit = eventfd(0, EFD_CLOEXEC);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	ret = s->quit < 0 || s->signals < 0 ? -errno : 0;
	if (!ret)
		ret = -pthread_create(&s->thread, NULL, signal_thread, s);
	if (ret) {
		signals_delete(s);
		return ret;
	}
	*out = s;
	return 0;
}

void sf_signals_set_stop(struct sf_signals *s, void (*stop)(void *arg),
			 void *arg)
{
	pthread_mutex_lock(&s->lock);
	s->may_stop = true;
	s->stop = stop;
	s->arg = arg;
	if (s->stopping && stop)
		stop(arg);
	pthread_mutex_unlock(&s->lock);
}

void sf_signals_free(struct sf_signals *s)
{
	if (!s)
		return;
	eventfd_write(s->quit, 1);
	pthread_join(s->thread, NULL);
	signals_delete(s);
}

void sf_daemon_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len < 2 || len >= sizeof(sa.sun_path))
		return;
	memcpy(sa.sun_path, path, len);
	if (path[0] == '@')
		sa.sun_path[0] = '\0';	/* the abstract name space */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* A manager that does not listen is no reason to stop working. */
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL,
		   (struct sockaddr *)&sa,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
			       len)) < 0)
		sf_log(LOG_WARNING, SF_LOG_CORE, "NOTIFY_SOCKET: %s",
		       strerror(errno));
	close(fd);
}
