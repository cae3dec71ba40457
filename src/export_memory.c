/* SPDX-License-Identifier: MIT */
/*
 * The memory behind exported buffers. Files are filled through their
 * descriptor and never touched through the mapping: a full disk or a file cut
 * short by somebody is an error then, and not SIGBUS. Knows nothing of
 * peers or stores.
 */
#include "config.h"
#include "export_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"
#include "export.h"
#include "export_fill.h"
#include "range.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define FILL_PIECE (4u << 20)
#define NR_HUGEPAGES "/proc/sys/vm/nr_hugepages"

static int no_memory(struct sf_err *err)
{
	return sf_err_set(err, -ENOMEM, "out of memory");
}

/* ---- NUMA ---- */

/* The N of "cpu:N"; false when the text is no such thing. */
static bool parse_cpu(const char *location, unsigned int *node)
{
	unsigned int n = 0;
	const char *s = location + 4;

	if (strncmp(location, "cpu:", 4) || !*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || n > 100000)
			return false;
		n = n * 10 + (unsigned int)(*s - '0');
	}
	*node = n;
	return true;
}

static bool has_node(unsigned int node)
{
	if (numa_available() < 0)
		return node == 0;
	return node <= (unsigned int)numa_max_node() &&
	       numa_bitmask_isbitset(numa_all_nodes_ptr, node);
}

/* A machine of one node needs no binding, nor the permission to bind. */
static bool one_node(void)
{
	return numa_available() < 0 || numa_num_configured_nodes() <= 1;
}

static int bind_to(struct sf_export_memory *m, unsigned int node,
		   struct sf_err *err)
{
	struct bitmask *mask;
	long res;

	if (!has_node(node))
		return sf_err_set(err, -EINVAL,
				  "location %s: this machine has no NUMA node "
				  "%u with memory for us", m->location, node);
	if (one_node())
		return 0;
	mask = numa_allocate_nodemask();
	if (!mask)
		return no_memory(err);
	numa_bitmask_setbit(mask, node);
	res = mbind(m->base, m->mapped, MPOL_BIND, mask->maskp, mask->size + 1,
		    0);
	numa_free_nodemask(mask);
	if (res < 0)
		return sf_err_set(err, -errno, "cannot bind memory to NUMA "
				  "node %u: %s", node, strerror(errno));
	return 0;
}

static int set_location(struct sf_export_memory *m,
			const struct sf_export_buffer *b, struct sf_err *err)
{
	unsigned int node;

	if (b->location)
		m->location = strdup(b->location);
	else
		m->location = strdup(one_node() &&
				     b->source != SF_EXPORT_DMABUF ?
				     "cpu:0" : "*");
	if (!m->location)
		return no_memory(err);
	if (!strncmp(m->location, "cpu:", 4) && !parse_cpu(m->location, &node))
		return sf_err_set(err, -EINVAL, "location %s: cpu: wants the "
				  "number of a NUMA node", m->location);
	return 0;
}

/* ---- anonymous memory ---- */

static size_t huge_page_size(void)
{
	FILE *in = fopen("/proc/meminfo", "re");
	unsigned long kib = 0;
	char line[128];

	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, "Hugepagesize: %lu kB", &kib) == 1)
			break;
	if (in)
		fclose(in);
	return (size_t)kib << 10;
}

static int no_huge_pages(size_t mapped, size_t page, int code,
			 struct sf_err *err)
{
	unsigned long have = 0;
	FILE *in = fopen(NR_HUGEPAGES, "re");

	if (in && fscanf(in, "%lu", &have) != 1)
		have = 0;
	if (in)
		fclose(in);
	return sf_err_set(err, code, "%zu huge pages of %zu KiB wanted, not "
			  "that many are free (" NR_HUGEPAGES " is %lu): %s",
			  mapped / page, page >> 10, have, strerror(-code));
}

/* A page that was promised and is not there (on that node) would be found out
 * by the first peer otherwise. */
static int populate_huge(struct sf_export_memory *m, size_t page,
			 struct sf_err *err)
{
	if (madvise(m->base, m->mapped, MADV_POPULATE_WRITE) == 0 ||
	    errno == EINVAL)		/* an old kernel */
		return 0;
	return no_huge_pages(m->mapped, page,
			     errno == EFAULT ? -ENOMEM : -errno, err);
}

static int map_anon(struct sf_export_memory *m,
		    const struct sf_export_buffer *b, struct sf_err *err)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (b->huge ? MAP_HUGETLB : 0);
	size_t page = b->huge ? huge_page_size() :
				(size_t)sysconf(_SC_PAGESIZE);
	unsigned int node;
	int res = 0;
	void *p;

	if (!page)
		return sf_err_set(err, -EOPNOTSUPP,
				  "this kernel has no huge pages");
	if (!b->size || b->size > SIZE_MAX - page)
		return sf_err_set(err, -EINVAL, "size %" PRIu64
				  " is impossible", b->size);
	m->mapped = ((size_t)b->size + page - 1) / page * page;
	p = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (p == MAP_FAILED && b->huge)
		return no_huge_pages(m->mapped, page, -errno, err);
	if (p == MAP_FAILED)
		return sf_err_set(err, -errno, "cannot get %zu bytes of "
				  "memory: %s", m->mapped, strerror(errno));
	m->base = p;
	m->length = b->size;
	if (parse_cpu(m->location, &node))
		res = bind_to(m, node, err);
	if (!res && b->huge)
		res = populate_huge(m, page, err);
	else if (!res)
		madvise(m->base, m->mapped, MADV_HUGEPAGE);
	return res;
}

static int fill_anon(struct sf_export_memory *m,
		     const struct sf_export_buffer *b, struct sf_err *err)
{
	struct sf_export_pattern pattern;

	if (b->fill) {
		sf_export_pattern_init(&pattern, b);
		sf_export_pattern_next(&pattern, m->base, m->length);
	}
	if (b->read_only && mprotect(m->base, m->mapped, PROT_READ) < 0)
		return sf_err_set(err, -errno, "mprotect: %s",
				  strerror(errno));
	return 0;
}

/* ---- files and shared-memory objects ---- */

static int open_as(const struct sf_export_buffer *b, int flags)
{
	char name[NAME_MAX + 2];

	if (b->source == SF_EXPORT_FILE)
		return open(b->path, flags | O_CLOEXEC | O_NONBLOCK);
	snprintf(name, sizeof(name), "%s%s", b->path[0] == '/' ? "" : "/",
		 b->path);
	return shm_open(name, flags, 0);
}

static int open_source(const struct sf_export_buffer *b, bool writable,
		       struct sf_err *err)
{
	int fd = open_as(b, writable ? O_RDWR : O_RDONLY);

	if (fd < 0)
		return sf_err_set(err, -errno, "%s %s: %s%s",
				  b->source == SF_EXPORT_FILE ?
				  "file" : "shared memory", b->path,
				  strerror(errno),
				  !b->read_only && (errno == EACCES ||
						    errno == EROFS) ?
				  " (to read and write; \"ro\" only reads)" :
				  "");
	return fd;
}

static int measure(struct sf_export_memory *m,
		   const struct sf_export_buffer *b, int fd,
		   struct sf_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct stat st;
	uint64_t size;

	if (fstat(fd, &st) < 0)
		return sf_err_set(err, -errno, "%s: %s", b->path,
				  strerror(errno));
	if (!S_ISREG(st.st_mode))
		return sf_err_set(err, -EINVAL, "%s: not a regular file",
				  b->path);
	size = (uint64_t)st.st_size;
	if (b->offset % page)
		return sf_err_set(err, -EINVAL, "%s: offset %" PRIu64 " is no "
				  "multiple of the page size (%zu)", b->path,
				  b->offset, page);
	if (b->offset >= size)
		return sf_err_set(err, -EINVAL, "%s: nothing at offset %" PRIu64
				  ", it has %" PRIu64 " bytes", b->path,
				  b->offset, size);
	m->length = b->size ? b->size : size - b->offset;
	if (!sf_range_within(b->offset, m->length, 0, size))
		return sf_err_set(err, -EINVAL, "%s: %" PRIu64 " bytes at "
				  "offset %" PRIu64 " are more than it has (%"
				  PRIu64 ")", b->path, m->length, b->offset,
				  size);
	m->is_file = true;
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	m->offset = b->offset;
	return 0;
}

static int fill_file(const struct sf_export_memory *m,
		     const struct sf_export_buffer *b, int fd,
		     struct sf_err *err)
{
	struct sf_export_pattern pattern;
	uint64_t done = 0;
	char *piece;
	int res = 0;

	piece = malloc(FILL_PIECE);
	if (!piece)
		return no_memory(err);
	sf_export_pattern_init(&pattern, b);
	while (done < m->length && !res) {
		size_t len = m->length - done < FILL_PIECE ?
			     (size_t)(m->length - done) : FILL_PIECE;
		size_t put = 0;

		sf_export_pattern_next(&pattern, piece, len);
		while (put < len && !res) {
			ssize_t n = pwrite(fd, piece + put, len - put,
					   (off_t)(b->offset + done + put));

			if (n > 0)
				put += (size_t)n;
			else if (n == 0 || errno != EINTR)
				res = n ? -errno : -EIO;
		}
		done += len;
	}
	free(piece);
	if (res)
		sf_err_set(err, res, "%s: cannot fill it: %s", b->path,
			   strerror(-res));
	return res;
}

/* Kernels up to 6.1 pin a shared mapping only if it could be written, even for
 * a device that may not: map it so where we may, and never write. */
static bool map_writable(const struct sf_export_buffer *b, bool pin)
{
	int fd;

	if (!b->read_only || !pin)
		return !b->read_only;
	fd = open_as(b, O_RDWR);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static int map_file(struct sf_export_memory *m,
		    const struct sf_export_buffer *b, bool pin,
		    struct sf_err *err)
{
	bool writable = map_writable(b, pin);
	int prot = PROT_READ | (writable ? PROT_WRITE : 0);
	int fd = open_source(b, writable, err), res;
	void *p;

	if (fd < 0)
		return fd;
	res = measure(m, b, fd, err);
	if (!res && b->fill)
		res = fill_file(m, b, fd, err);
	if (!res) {
		p = mmap(NULL, (size_t)m->length, prot, MAP_SHARED, fd,
			 (off_t)b->offset);
		if (p == MAP_FAILED) {
			res = sf_err_set(err, -errno, "%s: cannot map it: %s",
					 b->path, strerror(errno));
		} else {
			m->base = p;
			m->mapped = (size_t)m->length;
		}
	}
	close(fd);
	return res;
}

/* ---- memory of a device ---- */

static int measure_dmabuf(struct sf_export_memory *m,
			  const struct sf_export_buffer *b, struct sf_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	off_t size = lseek(m->dmabuf, 0, SEEK_END);

	if (size < 0)
		return sf_err_set(err, -EINVAL, "descriptor %d is not a "
				  "dma-buf", b->dmabuf);
	if (b->offset % page)
		return sf_err_set(err, -EINVAL, "dmabuf: offset %" PRIu64
				  " is no multiple of the page size (%zu)",
				  b->offset, page);
	if (b->offset >= (uint64_t)size ||
	    (b->size && !sf_range_within(b->offset, b->size, 0,
					 (uint64_t)size)))
		return sf_err_set(err, -EINVAL, "dmabuf: %" PRIu64 " bytes at "
				  "offset %" PRIu64 " are more than it has "
				  "(%jd)", b->size, b->offset, (intmax_t)size);
	m->length = b->size ? b->size : (uint64_t)size - b->offset;
	m->mapped = (size_t)((m->length + page - 1) / page * page);
	m->dmabuf_offset = b->offset;
	return 0;
}

/* Peers need an address to name it by, and no other buffer may have that. */
static int map_dmabuf(struct sf_export_memory *m,
		      const struct sf_export_buffer *b, struct sf_err *err)
{
	void *p;
	int res;

	m->dmabuf = fcntl(b->dmabuf, F_DUPFD_CLOEXEC, 3);
	if (m->dmabuf < 0)
		return sf_err_set(err, -errno, "dmabuf: descriptor %d: %s",
				  b->dmabuf, strerror(errno));
	res = measure_dmabuf(m, b, err);
	if (res < 0)
		return res;
	p = mmap(NULL, m->mapped, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return sf_err_set(err, -errno, "no addresses for %zu bytes: "
				  "%s", m->mapped, strerror(errno));
	m->base = p;
	return 0;
}

/* ---- together ---- */

static int map(struct sf_export_memory *m, const struct sf_export_buffer *b,
	       bool pin, struct sf_err *err)
{
	switch (b->source) {
	case SF_EXPORT_ANON:
		return map_anon(m, b, err);
	case SF_EXPORT_DMABUF:
		return map_dmabuf(m, b, err);
	default:
		return map_file(m, b, pin, err);
	}
}

int sf_export_memory_map(struct sf_export_memory *m,
			 const struct sf_export_buffer *b, bool pin,
			 struct sf_err *err)
{
	int res;

	*m = (struct sf_export_memory){
		.read_only = b->read_only, .dmabuf = -1,
	};
	res = set_location(m, b, err);
	if (!res)
		res = map(m, b, pin, err);
	if (!res && b->source == SF_EXPORT_ANON)
		res = fill_anon(m, b, err);
	if (res)
		sf_export_memory_unmap(m);
	return res;
}

void sf_export_memory_unmap(struct sf_export_memory *m)
{
	if (m->base)
		munmap(m->base, m->mapped);
	if (m->dmabuf >= 0)
		close(m->dmabuf);
	free(m->location);
	*m = (struct sf_export_memory){ .dmabuf = -1 };
}

static int by_place(const void *a, const void *b)
{
	const struct sf_export_memory *x = *(const struct sf_export_memory
						     *const *)a;
	const struct sf_export_memory *y = *(const struct sf_export_memory
						     *const *)b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int sf_export_memory_overlap(const struct sf_export_memory *list, size_t nr,
			     struct sf_err *err)
{
	const struct sf_export_memory **files, *a, *b;
	size_t nr_files = 0;
	int res = 0;

	files = calloc(nr + 1, sizeof(*files));
	if (!files)
		return no_memory(err);
	for (size_t i = 0; i < nr; i++)
		if (list[i].is_file)
			files[nr_files++] = &list[i];
	qsort(files, nr_files, sizeof(*files), by_place);
	for (size_t i = 1; i < nr_files && !res; i++) {
		a = files[i - 1];
		b = files[i];
		if (a->dev == b->dev && a->ino == b->ino &&
		    b->offset - a->offset < a->length)
			res = sf_err_set(err, -EINVAL, "buffers %td and %td "
					 "share bytes of one file", a - list,
					 b - list);
	}
	free(files);
	return res;
}
