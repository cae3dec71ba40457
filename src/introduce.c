/* SPDX-License-Identifier: MIT */
/* Introductions: a list of names, each kept in the store by a sf_publish. */
#include "config.h"
#include "introduce.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "clock.h"
#include "err.h"
#include "export_publish.h"
#include "log.h"
#include "meta.h"
#include "segment.h"

#define LEASE_S 30
#define RETRY_MS 1000	/* a store that failed is left alone for */

struct introduction {
	STAILQ_ENTRY(introduction) link;
	char name[SF_INTRODUCED_MAX];
	char *owner, *device;
	uint16_t lid;
	uint8_t gid[16];
	struct sf_publish *publish;
};

struct sf_introducer {
	struct sf_meta *meta;
	pthread_mutex_t lock;	/* held while the store is waited for */
	STAILQ_HEAD(, introduction) list;
	unsigned int nr;	/* names that were used */
	struct sf_err failure;	/* the last one */
	uint64_t retry_ms;	/* not before */
};

int sf_introducer_new(struct sf_introducer **out, struct sf_meta *meta)
{
	struct sf_introducer *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->meta = meta;
	pthread_mutex_init(&in->lock, NULL);
	STAILQ_INIT(&in->list);
	*out = in;
	return 0;
}

static void introduction_free(struct introduction *i)
{
	sf_publish_stop(i->publish);
	free(i->owner);
	free(i->device);
	free(i);
}

void sf_introducer_free(struct sf_introducer *in)
{
	struct introduction *i;

	if (!in)
		return;
	while ((i = STAILQ_FIRST(&in->list))) {
		STAILQ_REMOVE_HEAD(&in->list, link);
		introduction_free(i);
	}
	pthread_mutex_destroy(&in->lock);
	free(in);
}

static struct introduction *find(struct sf_introducer *in, const char *owner,
				 const struct sf_device *dev)
{
	struct introduction *i;

	STAILQ_FOREACH(i, &in->list, link)
		if (!strcmp(i->owner, owner) && !strcmp(i->device, dev->name) &&
		    i->lid == dev->lid &&
		    !memcmp(i->gid, dev->gid, sizeof(i->gid)))
			return i;
	return NULL;
}

static char *describe(const char *name, const struct sf_device *dev)
{
	struct sf_segment seg = {
		.name = name,
		.protocol = "rdma",
		.nr_devices = 1,
		.devices = dev,
	};

	return sf_segment_encode(&seg);
}

static int publish(struct sf_introducer *in, struct introduction *i,
		   const struct sf_device *dev, struct sf_err *err)
{
	struct sf_publish_config config = {
		.meta = in->meta,
		.name = i->name,
		.lease_s = LEASE_S,
	};
	char *text = describe(i->name, dev);
	int ret;

	if (!text)
		return sf_err_set(err, -ENOMEM, "out of memory");
	config.segment = text;
	ret = sf_publish_start(&i->publish, &config, err);
	free(text);
	return ret;
}

static int add(struct sf_introducer *in, const char *owner,
	       const struct sf_device *dev, struct introduction **out,
	       struct sf_err *err)
{
	struct introduction *i = calloc(1, sizeof(*i));
	int ret = -ENOMEM;

	if (!i)
		return sf_err_set(err, -ENOMEM, "out of memory");
	i->owner = strdup(owner);
	i->device = strdup(dev->name);
	i->lid = dev->lid;
	memcpy(i->gid, dev->gid, sizeof(i->gid));
	snprintf(i->name, sizeof(i->name), "segfs/%s/%u", owner, in->nr++);
	if (!i->owner || !i->device)
		sf_err_set(err, ret, "out of memory");
	else
		ret = publish(in, i, dev, err);
	if (ret) {
		introduction_free(i);
		return ret;
	}
	STAILQ_INSERT_TAIL(&in->list, i, link);
	sf_log(LOG_INFO, SF_LOG_RDMA, "device %s is in the metadata store as "
	       "%s, for peers up to 0.3.10", i->device, i->name);
	*out = i;
	return 0;
}

/* Those who wait for the lock meanwhile would not fare better. */
static int add_in_time(struct sf_introducer *in, const char *owner,
		       const struct sf_device *dev, struct introduction **out,
		       struct sf_err *err)
{
	int ret;

	if (in->retry_ms > sf_now_ms())
		return sf_err_set(err, in->failure.code, "%s",
				  in->failure.text);
	ret = add(in, owner, dev, out, err);
	if (ret) {
		in->failure = err ? *err : (struct sf_err){ .code = ret };
		in->retry_ms = sf_now_ms() + RETRY_MS;
	}
	return ret;
}

int sf_introduce(struct sf_introducer *in, const char *owner,
		 const struct sf_device *dev, char name[SF_INTRODUCED_MAX],
		 struct sf_err *err)
{
	struct introduction *i;
	int ret = 0;

	if (!in)
		return sf_err_set(err, -EOPNOTSUPP, "there is no metadata "
				  "store to be found in");
	pthread_mutex_lock(&in->lock);
	i = find(in, owner, dev);
	if (!i)
		ret = add_in_time(in, owner, dev, &i, err);
	if (!ret)
		snprintf(name, SF_INTRODUCED_MAX, "%s", i->name);
	pthread_mutex_unlock(&in->lock);
	return ret;
}
