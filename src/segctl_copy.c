/* SPDX-License-Identifier: MIT */
/*
 * segctl get and put: remote memory to a file and back. A regular file takes
 * pieces as they come, each at its place; anything else gets them in order.
 */
#include "config.h"
#include "segctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "segctl_pump.h"

#define PROGRESS_MS 250

struct copy {
	struct segctl *s;
	struct segctl_range range;
	const char *name;	/* of the file, for sentences */
	int fd;
	bool regular;		/* pread and pwrite from base on */
	off_t base;
	bool created;		/* by us: removed when it stays incomplete */
	bool at_end;		/* put: of the input */
	bool progress;
	uint64_t start_ms, shown_ms, moved;
};

static void show_progress(struct copy *c, bool last)
{
	uint64_t now = sf_now_ms(), ms = now - c->start_ms;

	if (!c->progress || (!last && now - c->shown_ms < PROGRESS_MS))
		return;
	c->shown_ms = now;
	fprintf(stderr, "\r%3u %%  %" PRIu64 " of %" PRIu64 " MB  %.0f MB/s ",
		c->range.len ? (unsigned int)((double)c->moved * 100 /
					      (double)c->range.len) : 100,
		c->moved / 1000000, c->range.len / 1000000,
		ms ? (double)c->moved / 1000 / (double)ms : 0);
	if (last)
		fputc('\n', stderr);
}

static int write_piece(void *arg, struct segctl_piece *p, struct sf_err *err)
{
	struct copy *c = arg;
	uint32_t done = 0;
	ssize_t n;

	while (done < p->len) {
		if (c->regular)
			n = pwrite(c->fd, p->data + done, p->len - done,
				   c->base + (off_t)(p->off + done));
		else
			n = write(c->fd, p->data + done, p->len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sf_err_set(err, -errno, "%s: %s", c->name,
					  strerror(errno));
		done += (uint32_t)n;
	}
	c->moved += p->len;
	show_progress(c, false);
	return 0;
}

static int read_piece(void *arg, struct segctl_piece *p, struct sf_err *err)
{
	struct copy *c = arg;
	uint32_t done = 0;
	ssize_t n;

	while (done < p->len) {
		if (c->regular)
			n = pread(c->fd, p->mem + done, p->len - done,
				  c->base + (off_t)(p->off + done));
		else
			n = read(c->fd, p->mem + done, p->len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sf_err_set(err, -errno, "%s: %s", c->name,
					  strerror(errno));
		if (!n) {
			c->at_end = true;
			break;
		}
		done += (uint32_t)n;
	}
	p->len = done;
	return 0;
}

static int piece_written(void *arg, struct segctl_piece *p, struct sf_err *err)
{
	struct copy *c = arg;

	c->moved += p->len;
	show_progress(c, false);
	return 0;
}

/* A regular file that is not appended to has a place for each piece. */
static void look_at_file(struct copy *c)
{
	struct stat st;
	int flags = fcntl(c->fd, F_GETFL);

	if (fstat(c->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	if (flags < 0 || flags & O_APPEND)
		return;
	c->base = lseek(c->fd, 0, SEEK_CUR);
	c->regular = c->base >= 0;
}

static enum sf_exit open_output(struct copy *c)
{
	c->fd = STDOUT_FILENO;
	c->name = "stdout";
	if (c->s->output) {
		c->name = c->s->output;
		c->fd = open(c->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			     0666);
		c->created = c->fd >= 0;
		if (c->fd < 0 && errno == EEXIST)
			c->fd = open(c->name, O_WRONLY | O_TRUNC | O_CLOEXEC);
		if (c->fd < 0)
			return segctl_fail(SF_EXIT_FAILURE, "%s: %s", c->name,
					   strerror(errno));
	}
	look_at_file(c);
	return SF_EXIT_OK;
}

static enum sf_exit open_input(struct copy *c)
{
	c->fd = STDIN_FILENO;
	c->name = "stdin";
	if (c->s->input) {
		c->name = c->s->input;
		c->fd = open(c->name, O_RDONLY | O_CLOEXEC);
		if (c->fd < 0)
			return segctl_fail(SF_EXIT_FAILURE, "%s: %s", c->name,
					   strerror(errno));
	}
	look_at_file(c);
	return SF_EXIT_OK;
}

/* Leave the file's position where plain reads or writes would have left it: the
 * descriptor may be shared. */
static void leave_position(const struct copy *c)
{
	if (c->regular && lseek(c->fd, c->base + (off_t)c->moved, SEEK_SET) < 0)
		segctl_fail(SF_EXIT_FAILURE, "%s: %s", c->name,
			    strerror(errno));
}

/* Some file systems tell only now that the disk is full. */
static enum sf_exit close_output(struct copy *c, enum sf_exit status)
{
	if (close(c->fd) < 0 && status == SF_EXIT_OK)
		status = segctl_fail(SF_EXIT_DATA, "%s: %s", c->name,
				     strerror(errno));
	c->fd = -1;
	if (status && c->created && unlink(c->name) < 0)
		segctl_fail(status, "%s: is incomplete", c->name);
	return status;
}

static enum sf_exit begin(struct copy *c, struct segctl *s, char **args,
			  int nr)
{
	struct sf_err err = { 0 };
	enum sf_exit status;

	*c = (struct copy){ .s = s, .fd = -1 };
	status = segctl_open(s, s->depth, PUMP_PIECE, &err);
	if (!status)
		status = segctl_range_init(s, &c->range, args[0], args[1],
					   nr > 2 ? args[2] : NULL, &err);
	if (status)
		return segctl_fail(status, "%s", err.text);
	c->progress = !s->quiet && isatty(STDERR_FILENO);
	c->start_ms = c->shown_ms = sf_now_ms();
	return SF_EXIT_OK;
}

static enum sf_exit finish(struct copy *c, enum sf_exit status,
			   const struct sf_err *err)
{
	show_progress(c, true);
	leave_position(c);
	if (status)
		segctl_fail(status, "%s (%" PRIu64 " of %" PRIu64 " bytes)",
			    err->text, c->moved, c->range.len);
	return status;
}

enum sf_exit segctl_get(struct segctl *s, char **args, int nr)
{
	struct sf_err err = { 0 };
	enum sf_exit status;
	struct copy c;

	status = begin(&c, s, args, nr);
	if (!status)
		status = open_output(&c);
	if (!status) {
		struct segctl_pump pump = {
			.s = s,
			.range = &c.range,
			.op = SF_READ,
			.ordered = !c.regular,
			.taken = write_piece,
			.arg = &c,
		};

		status = segctl_pump_run(&pump, &err);
		status = finish(&c, status, &err);
		status = close_output(&c, status);
	}
	segctl_range_fini(&c.range);
	return status;
}

/* A regular input that is too long is refused before anything is written. */
static enum sf_exit check_input(const struct copy *c)
{
	struct stat st;

	if (!c->regular || fstat(c->fd, &st) < 0 ||
	    st.st_size - c->base <= (off_t)c->range.len)
		return SF_EXIT_OK;
	return segctl_fail(SF_EXIT_DATA, "%s: %lld bytes do not fit into %"
			   PRIu64 "; nothing was written", c->name,
			   (long long)(st.st_size - c->base), c->range.len);
}

/* The range is full: there must be nothing more. */
static enum sf_exit check_end(const struct copy *c)
{
	char byte;
	ssize_t n;

	if (c->at_end || c->regular)
		return SF_EXIT_OK;
	do
		n = read(c->fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (!n)
		return SF_EXIT_OK;
	if (n < 0)
		return segctl_fail(SF_EXIT_DATA, "%s: %s", c->name,
				   strerror(errno));
	return segctl_fail(SF_EXIT_DATA, "%s: is longer than the %" PRIu64
			   " bytes that were written", c->name, c->range.len);
}

static enum sf_exit put(struct copy *c)
{
	struct segctl_pump pump = {
		.s = c->s,
		.range = &c->range,
		.op = SF_WRITE,
		.fill = read_piece,
		.taken = piece_written,
		.arg = c,
	};
	struct sf_err err = { 0 };
	enum sf_exit status = check_input(c);

	if (status)
		return status;
	status = segctl_pump_run(&pump, &err);
	status = finish(c, status, &err);
	return status ? status : check_end(c);
}

enum sf_exit segctl_put(struct segctl *s, char **args, int nr)
{
	enum sf_exit status;
	struct copy c;

	status = begin(&c, s, args, nr);
	if (!status)
		status = open_input(&c);
	if (!status)
		status = put(&c);
	if (c.fd > STDIN_FILENO)
		close(c.fd);
	segctl_range_fini(&c.range);
	return status;
}
