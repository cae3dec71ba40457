/* SPDX-License-Identifier: MIT */
/*
 * Errors: a negative errno says what happened, a struct sf_err carries the one
 * sentence that explains it.
 *
 * Functions return 0 (or a positive count) or a negative errno, and leave
 * their out parameters untouched on failure. Set-up paths also take a
 * struct sf_err, which may be NULL; the text is written once, where the failure
 * is seen, and names the object and the reason. Data paths carry the code
 * alone. Only the mains print.
 */
#ifndef SF_ERR_H
#define SF_ERR_H

#define SF_ERR_TEXT_MAX 512

struct sf_err {
	int code;			/* negative errno, 0 = no error */
	char text[SF_ERR_TEXT_MAX];	/* one line, no newline at its end */
};

/*
 * Record CODE (a negative errno) with a printf-style text and return CODE, so
 * that a caller can write "return sf_err_set(...)". Control bytes that came in
 * through the arguments are replaced by '?', a long text is cut. ERR may be
 * NULL.
 */
int sf_err_set(struct sf_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Put "prefix: " in front of the text. ERR may be NULL. Returns err->code. */
int sf_err_prefix(struct sf_err *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Exit statuses of the programs; the EXIT STATUS section of every manual page
 * repeats this table.
 */
enum sf_exit {
	SF_EXIT_OK = 0,
	SF_EXIT_FAILURE = 1,	/* none of the below */
	SF_EXIT_USAGE = 2,	/* the command line is wrong */
	SF_EXIT_META = 3,	/* metadata store unreachable or refusing */
	SF_EXIT_MOUNT = 4,	/* mountpoint or /dev/fuse not usable */
	SF_EXIT_PEER = 5,	/* the segment or its owner does not answer */
	SF_EXIT_DATA = 6,	/* bytes could not be moved, or differ */
};

#endif
