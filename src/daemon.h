/* SPDX-License-Identifier: MIT */
/*
 * Being a daemon: going to the background only when the work has begun,
 * signals, and telling a service manager.
 */
#ifndef SF_DAEMON_H
#define SF_DAEMON_H

struct sf_background;
struct sf_err;
struct sf_signals;

/*
 * Fork; returns in the child, whose parent waits for its report: the parent
 * prints the child's sentence if there is one and exits with its status, or
 * with SF_EXIT_FAILURE when the child ends without a report or has not reported
 * after LIMIT_MS. Call before threads start. -ENOMEM, -EAGAIN, -EMFILE.
 */
int sf_background_fork(struct sf_background **out, unsigned int limit_ms,
		       struct sf_err *err);
/* The work has begun: own session, "/" as directory, /dev/null for the standard
 * streams, log to syslog as PROGRAM, parent exits 0. -EPIPE: the parent is no
 * more, somebody stopped it. Frees BG. */
int sf_background_detach(struct sf_background *bg, const char *program);
/* The work cannot begin. Frees BG; the caller still has to exit. */
void sf_background_fail(struct sf_background *bg, int status,
			const char *text);

/*
 * Signals, on a thread of their own: the first SIGTERM, SIGINT or SIGHUP calls
 * STOP(ARG), which should end the program's main work; a second one (half a
 * second later at least), or LIMIT_MS without sf_signals_free(), ends the
 * process. Until sf_signals_set_stop() a signal ends the process at once. Start
 * before all other threads: these signals are blocked in every thread.
 * -ENOMEM, -EAGAIN, -EMFILE.
 */
int sf_signals_new(struct sf_signals **out, unsigned int limit_ms);
/* STOP runs on the signal thread, must not block, and is not called any more
 * once this has been called anew. NULL: a first signal is only remembered; the
 * next call with a STOP calls that. */
void sf_signals_set_stop(struct sf_signals *s, void (*stop)(void *arg),
			 void *arg);
void sf_signals_free(struct sf_signals *s);	/* NULL is fine */

/* Tell $NOTIFY_SOCKET, if there is one: "READY=1". */
void sf_daemon_notify(const char *state);

#endif
