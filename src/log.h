/* SPDX-License-Identifier: MIT */
/*
 * Logging: syslog levels, a mask by module, one replaceable sink.
 *
 * The level, the module mask and the sink are the only mutable globals of the
 * program; they are set by main before threads start (the level and mask may
 * change later, they are atomics). Never log keys (rkey, lkey), credentials
 * or payload. An error is logged once, where it is handled, with the names of
 * segment and peer. Safe to call from any thread.
 */
#ifndef SF_LOG_H
#define SF_LOG_H

#include <stdbool.h>
#include <stdatomic.h>
#include <syslog.h>		/* LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG */

enum sf_log_module {
	SF_LOG_CORE,
	SF_LOG_META,
	SF_LOG_TCP,
	SF_LOG_FS,
	SF_LOG_EXPORT,
	SF_LOG_RDMA,
	SF_LOG_NR_MODULES
};

extern atomic_int sf_log_level;		/* LOG_WARNING unless set */
extern atomic_uint sf_log_debug_mask;	/* bit per module, for LOG_DEBUG */

typedef void sf_log_sink_fn(int level, enum sf_log_module module,
			    const char *line);

/* NULL restores the default sink: "program: line" on stderr. */
void sf_log_set_sink(sf_log_sink_fn *sink);
/* A sink that writes to syslog; calls openlog(3) with PROGRAM. */
void sf_log_to_syslog(const char *program);
/* "meta,tcp" or "all" (SEGFS_DEBUG); -EINVAL names no module we know. */
int sf_log_parse_mask(const char *text, unsigned int *mask);

void sf_log_write(int level, enum sf_log_module module, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static inline bool sf_log_wanted(int level, enum sf_log_module module)
{
	if (level == LOG_DEBUG)
		return atomic_load_explicit(&sf_log_debug_mask,
					    memory_order_relaxed) >>
		       module & 1;
	return level <= atomic_load_explicit(&sf_log_level,
					     memory_order_relaxed);
}

#define sf_log(level, module, ...)                                   \
	do {                                                         \
		if (__builtin_expect(sf_log_wanted(level, module),   \
				     (level) != LOG_DEBUG))          \
			sf_log_write(level, module, __VA_ARGS__);    \
	} while (0)

#endif
