/* SPDX-License-Identifier: MIT */
/*
 * Enumeration of RDMA devices: see device.h. Everything is asked of verbs but
 * the NUMA node and the names of network devices, which are in sysfs. Opens
 * each device only to look at it.
 */
#include "config.h"
#include "rdma/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "log.h"
#include "rdma_config.h"

#define GIDS_MAX 256		/* of a port; indices in verbs end there */
#define TABLE_MAX (4 * GIDS_MAX)	/* of all ports of a device */
#define SEPARATORS ",:"

static bool read_line(const char *path, char *out, size_t size)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	/* Fails for entries that are empty or another namespace's. */
	ok = fgets(out, (int)size, f);
	fclose(f);
	if (ok)
		out[strcspn(out, "\n")] = '\0';
	return ok;
}

static int numa_node(const char *name)
{
	char path[128], text[32];

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/device/numa_node", name);
	return read_line(path, text, sizeof(text)) ? atoi(text) : -1;
}

static enum sf_rdma_gid_kind gid_kind(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return SF_RDMA_GID_IB;
	case IBV_GID_TYPE_ROCE_V1:
		return SF_RDMA_GID_ROCE_V1;
	default:
		return SF_RDMA_GID_ROCE_V2;
	}
}

static bool is_null(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

static void add_gid(struct sf_rdma_device *dev, const struct ibv_gid_entry *e)
{
	struct sf_rdma_gid *gid = &dev->gids[dev->nr_gids];
	char path[160];

	if (e->port_num != dev->port || is_null(&e->gid) ||
	    e->gid_index >= GIDS_MAX || dev->nr_gids == GIDS_MAX)
		return;
	gid->index = e->gid_index;
	gid->kind = gid_kind(e->gid_type);
	memcpy(gid->gid, e->gid.raw, sizeof(gid->gid));
	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u",
		 dev->name, dev->port, gid->index);
	if (!read_line(path, gid->ndev, sizeof(gid->ndev)))
		gid->ndev[0] = '\0';
	dev->nr_gids++;
}

static int query_gids(struct sf_rdma_device *dev, struct ibv_context *verbs,
		      struct sf_err *err)
{
	struct ibv_gid_entry *entries = calloc(TABLE_MAX, sizeof(*entries));
	ssize_t n;

	free(dev->gids);
	dev->nr_gids = 0;
	dev->gids = calloc(GIDS_MAX, sizeof(*dev->gids));
	if (!entries || !dev->gids) {
		free(entries);
		return sf_err_set(err, -ENOMEM, "out of memory");
	}
	n = ibv_query_gid_table(verbs, entries, TABLE_MAX, 0);
	for (ssize_t i = 0; i < n; i++)
		add_gid(dev, &entries[i]);
	free(entries);
	if (n < 0)
		return sf_err_set(err, (int)n, "%s: cannot read its GIDs: %s",
				  dev->name, strerror((int)-n));
	return 0;
}

int sf_rdma_device_query_link(struct sf_rdma_device *dev,
			      struct ibv_context *verbs, struct sf_err *err)
{
	struct ibv_port_attr port;
	int ret = ibv_query_port(verbs, dev->port, &port);

	if (ret)
		return sf_err_set(err, ret == EINVAL ? -ENODEV : -ret,
				  "%s: no port %u: %s", dev->name, dev->port,
				  strerror(ret));
	dev->active = port.state == IBV_PORT_ACTIVE;
	dev->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	dev->lid = port.lid;
	dev->active_mtu = 128u << port.active_mtu;
	/* Never changes, and is read without a lock. */
	if (!dev->max_message)
		dev->max_message = port.max_msg_sz;
	return 0;
}

static int query_limits(struct sf_rdma_device *dev, struct ibv_context *verbs,
			struct sf_err *err)
{
	struct ibv_device_attr a;
	int ret = ibv_query_device(verbs, &a);

	if (ret)
		return sf_err_set(err, -ret, "%s: %s", dev->name,
				  strerror(ret));
	dev->max_mr_size = a.max_mr_size;
	dev->max_qp = (unsigned int)a.max_qp;
	dev->max_cqe = (unsigned int)a.max_cqe;
	dev->max_qp_wr = (unsigned int)a.max_qp_wr;
	/* Ours to read with, and to be read from. */
	dev->max_rd_atomic = (unsigned int)a.max_qp_init_rd_atom;
	dev->max_dest_rd_atomic = (unsigned int)a.max_qp_rd_atom;
	return 0;
}

int sf_rdma_device_query_port(struct sf_rdma_device *dev,
			      struct ibv_context *verbs, struct sf_err *err)
{
	int ret = sf_rdma_device_query_link(dev, verbs, err);

	return ret ? ret : query_gids(dev, verbs, err);
}

int sf_rdma_device_query(struct sf_rdma_device *dev, struct ibv_context *verbs,
			 uint8_t port, struct sf_err *err)
{
	int ret;

	dev->port = port;
	dev->node = numa_node(dev->name);
	ret = query_limits(dev, verbs, err);
	return ret ? ret : sf_rdma_device_query_port(dev, verbs, err);
}

static int look_at(struct sf_rdma_device *dev, struct ibv_device *verbs_dev,
		   uint8_t port, struct sf_err *err)
{
	struct ibv_context *verbs = ibv_open_device(verbs_dev);
	int ret;

	snprintf(dev->name, sizeof(dev->name), "%s",
		 ibv_get_device_name(verbs_dev));
	if (!verbs) {
		ret = errno ? -errno : -EIO;
		return sf_err_set(err, ret, "%s: cannot be opened: %s",
				  dev->name, strerror(-ret));
	}
	ret = sf_rdma_device_query(dev, verbs, port, err);
	ibv_close_device(verbs);
	return ret;
}

/* A list of devices in the making. */
struct listing {
	struct sf_rdma_device *devices;
	unsigned int nr;
	const struct sf_rdma_config *config;
};

/* An error is final only for a device that was asked for by name. */
static int consider(struct listing *l, struct ibv_device *verbs_dev, bool named,
		    struct sf_err *err)
{
	struct sf_rdma_device *dev = &l->devices[l->nr];
	int ret;

	if (l->nr == SF_RDMA_DEVICES_MAX)
		return named ? sf_err_set(err, -ENODEV, "more than %d devices",
					  SF_RDMA_DEVICES_MAX) : 0;
	ret = look_at(dev, verbs_dev, (uint8_t)l->config->ib_port, err);
	if (!ret && (named || (dev->active && dev->nr_gids))) {
		l->nr++;
		return 0;
	}
	free(dev->gids);
	memset(dev, 0, sizeof(*dev));
	return ret;
}

static struct ibv_device *find(struct ibv_device **all, const char *name,
			       size_t len)
{
	for (; *all; all++)
		if (strlen(ibv_get_device_name(*all)) == len &&
		    !strncmp(ibv_get_device_name(*all), name, len))
			return *all;
	return NULL;
}

static bool is_listed(const struct listing *l, const char *name, size_t len)
{
	for (unsigned int i = 0; i < l->nr; i++)
		if (strlen(l->devices[i].name) == len &&
		    !strncmp(l->devices[i].name, name, len))
			return true;
	return false;
}

static int list_named(struct listing *l, struct ibv_device **all,
		      struct sf_err *err)
{
	struct ibv_device *dev;
	size_t len;
	int ret;

	for (const char *p = l->config->nics; *p; p += len) {
		p += strspn(p, SEPARATORS " ");
		len = strcspn(p, SEPARATORS " ");
		if (!len || is_listed(l, p, len))
			continue;
		dev = find(all, p, len);
		if (!dev)
			return sf_err_set(err, -ENODEV,
					  "no RDMA device is called %.*s",
					  (int)len, p);
		ret = consider(l, dev, true, err);
		if (ret)
			return ret;
	}
	return 0;
}

static bool is_in(const char *list, const char *name)
{
	size_t len;

	for (const char *p = list; *p; p += len) {
		p += strspn(p, SEPARATORS " ");
		len = strcspn(p, SEPARATORS " ");
		if (len == strlen(name) && !strncmp(p, name, len))
			return true;
	}
	return false;
}

/* The first error, if all devices have one. */
static int list_all(struct listing *l, struct ibv_device **all,
		    struct sf_err *err)
{
	struct sf_err first = { 0 }, e;
	int ret;

	for (; *all; all++) {
		if (l->config->filter &&
		    !is_in(l->config->filter, ibv_get_device_name(*all)))
			continue;
		e = (struct sf_err){ 0 };
		ret = consider(l, *all, false, &e);
		if (ret)
			sf_log(LOG_DEBUG, SF_LOG_RDMA, "%s", e.text);
		if (ret && !first.code)
			first = e;
	}
	if (l->nr || !first.code)
		return 0;
	return sf_err_set(err, first.code, "%s", first.text);
}

int sf_rdma_devices_list(struct sf_rdma_device **out, unsigned int *nr,
			 const struct sf_rdma_config *config,
			 struct sf_err *err)
{
	struct listing l = { .config = config };
	bool named = config->nics && *config->nics;
	struct ibv_device **all = ibv_get_device_list(NULL);
	int ret;

	if (!all)
		return sf_err_set(err, errno == ENOMEM ? -ENOMEM : -ENODEV,
				  "no RDMA devices: %s", strerror(errno));
	l.devices = calloc(SF_RDMA_DEVICES_MAX + 1, sizeof(*l.devices));
	if (!l.devices)
		ret = sf_err_set(err, -ENOMEM, "out of memory");
	else if (named)
		ret = list_named(&l, all, err);
	else
		ret = list_all(&l, all, err);
	ibv_free_device_list(all);
	if (!ret && !l.nr)
		ret = sf_err_set(err, -ENODEV,
				 "no RDMA device with an active port %u",
				 config->ib_port);
	if (ret) {
		sf_rdma_devices_free(l.devices, l.nr);
		return ret;
	}
	*out = l.devices;
	*nr = l.nr;
	return 0;
}

void sf_rdma_devices_free(struct sf_rdma_device *devices, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		free(devices[i].gids);
	free(devices);
}
