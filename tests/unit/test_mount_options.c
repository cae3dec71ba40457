/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "fs/fs.h"
#include "mount_options.h"
#include "options.h"
#include "transport.h"

static int parse(struct sf_mount_options *o, const char *list,
		 struct sf_err *err)
{
	int ret;

	sf_mount_options_init(o);
	ret = sf_mount_options_parse(o, list, err);
	return ret ? ret : sf_mount_options_check(o, err);
}

static void defaults_are_as_documented(void **state)
{
	struct sf_mount_options o;

	assert_int_equal(parse(&o, "", NULL), 0);
	assert_false(o.read_only);
	assert_false(o.allow_other);
	assert_int_equal(o.uid, getuid());
	assert_int_equal(o.gid, getgid());
	assert_int_equal(o.fmask, 077);
	assert_int_equal(o.dmask, 077);
	assert_int_equal(o.core.timeout_ms, 5000);
	assert_int_equal(o.core.connect_timeout_ms, 3000);
	assert_int_equal(o.entry_timeout_ms, 1000);
	assert_int_equal(o.attr_timeout_ms, 1000);
	assert_int_equal(o.pool, 128 << 20);
	assert_int_equal(o.blksize, 512 << 10);
	assert_int_equal(o.core.lanes, 4);
	assert_int_equal(o.core.split, 256 << 10);
	assert_int_equal(o.core.splice, 64 << 10);
	assert_int_equal(o.truncate, SF_FS_TRUNCATE_GAPZERO);
	assert_int_equal(o.mmap, SF_FS_MMAP_RO);
	assert_null(sf_core_options_transport(&o.core));
	assert_true(o.watch);
	assert_true(o.threads >= 2 && o.threads <= 16);
	sf_mount_options_fini(&o);
}

static void enums_are_in_the_order_of_fs_h(void **state)
{
	struct sf_mount_options o;

	assert_int_equal(parse(&o, "truncate=ignore,mmap=rw,transport=null",
			       NULL), 0);
	assert_int_equal(o.truncate, SF_FS_TRUNCATE_IGNORE);
	assert_int_equal(o.mmap, SF_FS_MMAP_RW);
	assert_string_equal(sf_core_options_transport(&o.core), "null");
	assert_int_equal(parse(&o, "truncate=refuse,mmap=off,transport=tcp",
			       NULL), 0);
	assert_int_equal(o.truncate, SF_FS_TRUNCATE_REFUSE);
	assert_int_equal(o.mmap, SF_FS_MMAP_OFF);
	assert_string_equal(sf_core_options_transport(&o.core), "tcp");
	sf_mount_options_fini(&o);
}

static void what_mount_passes_is_accepted(void **state)
{
	char kernel[SF_KERNEL_OPTIONS_MAX];
	struct sf_mount_options o;

	assert_int_equal(
		parse(&o, "rw,_netdev,nofail,auto,noauto,user,users,defaults,"
		      "x-systemd.automount,x-systemd.mount-timeout=30,"
		      "comment=a b,nosuid,nodev,noexec,noatime,relatime,dev,"
		      "suid,exec,sync,async", NULL), 0);
	assert_null(o.core.user);
	sf_mount_options_kernel(&o, kernel);
	assert_string_equal(kernel, "nosuid,nodev,noexec,noatime");
	sf_mount_options_fini(&o);
}

static void masks_and_modes(void **state)
{
	struct sf_mount_options o;

	assert_int_equal(parse(&o, "ro,umask=027,dmask=022,uid=7,gid=8,"
			       "allow_other", NULL), 0);
	assert_true(o.read_only);
	assert_true(o.allow_other);
	assert_int_equal(o.fmask, 027);
	assert_int_equal(o.dmask, 022);
	assert_int_equal(o.uid, 7);
	assert_int_equal(o.gid, 8);
	sf_mount_options_fini(&o);
}

static const struct { const char *list, *text; } mistakes[] = {
	{ "timeout=0", "timeout=0: must be from 0.1 s to 3600 s" },
	{ "lanes=0", "lanes=0: must be from 1 to 64" },
	{ "pool=1M", "pool=1M: must be from 8M to 1T" },
	{ "blksize=2M", "blksize=2M: must be from 4K to 1M" },
	{ "blksize=12K", "blksize=12288: must be a power of two" },
	{ "threads=1", "threads=1: must be from 2 to 64" },
	{ "split=1", "split=1: must be 0 or from 4K to 1G" },
	{ "mmap=yes", "mmap=yes: must be ro, rw or off" },
	{ "truncate=x", "truncate=x: must be gapzero, ignore or refuse" },
	{ "password=geheim",
	  "password: would be seen by everybody; use password_file=FILE or the "
	  "environment variable SEGFS_ETCD_PASSWORD" },
	{ "remount", "remount: a segfs mount cannot be changed; unmount it "
	  "and mount anew" },
	{ "cert=/x", "cert and key: one without the other" },
	{ "user=a", "user: needs password_file=FILE or the environment "
	  "variable SEGFS_ETCD_PASSWORD" },
	{ "password_file=/x", "password_file: needs user" },
	{ "ca=/no/such/file", "ca=/no/such/file: No such file or directory" },
	{ "alow_other", "unknown option \"alow_other\" (did you mean "
	  "\"allow_other\"?)" },
};

static void mistakes_are_explained(void **state)
{
	struct sf_mount_options o;
	struct sf_err err;

	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		assert_int_equal(parse(&o, mistakes[i].list, &err), -EINVAL);
		assert_string_equal(err.text, mistakes[i].text);
		sf_mount_options_fini(&o);
	}
}

static void password_comes_from_file_or_environment(void **state)
{
	char path[] = "/tmp/segfs-test-XXXXXX", list[64];
	int fd = mkstemp(path);
	struct sf_mount_options o;
	char *password = NULL;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "s3cret\nmore\n", 12), 12);
	close(fd);
	snprintf(list, sizeof(list), "user=me,password_file=%s", path);
	assert_int_equal(parse(&o, list, NULL), 0);
	assert_int_equal(sf_core_options_password(&o.core, &password, NULL),
			 0);
	assert_string_equal(password, "s3cret");
	free(password);
	sf_mount_options_fini(&o);
	unlink(path);

	setenv("SEGFS_ETCD_PASSWORD", "other", 1);
	assert_int_equal(parse(&o, "user=me", NULL), 0);
	assert_int_equal(sf_core_options_password(&o.core, &password, NULL),
			 0);
	assert_string_equal(password, "other");
	free(password);
	sf_mount_options_fini(&o);
	unsetenv("SEGFS_ETCD_PASSWORD");
}

static void effective_options_can_be_printed(void **state)
{
	struct sf_mount_options o;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(parse(&o, "timeout=1.5,pool=1G,ro,nowatch", NULL), 0);
	sf_option_print(sf_mount_option_table, &o, out);
	fclose(out);
	assert_non_null(strstr(text, "timeout=1.5\n"));
	assert_non_null(strstr(text, "pool=1G\n"));
	assert_non_null(strstr(text, "ro=yes\n"));
	assert_non_null(strstr(text, "watch=no\n"));
	assert_non_null(strstr(text, "fmask=077\n"));
	assert_non_null(strstr(text, "mmap=ro\n"));
	assert_null(strstr(text, "rw="));
	assert_null(strstr(text, "password="));
	free(text);
	sf_mount_options_fini(&o);
}

static void rdma_is_refused_where_it_is_not_built(void **state)
{
	static const char *const lists[] = {
		"transport=rdma", "nic=rxe0", "gid_index=1", "ib_port=2",
		"mtu=1024", "traffic_class=1", "service_level=1",
		"pkey_index=1", "slice=128K",
	};
	bool built = sf_transport_find("rdma");
	struct sf_mount_options o;
	struct sf_err err;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		err.code = 0;
		assert_int_equal(parse(&o, lists[i], &err),
				 built ? 0 : -EINVAL);
		if (!built) {
			assert_non_null(strstr(err.text,
					       "was built without RDMA"));
			assert_int_equal(strncmp(err.text, lists[i],
						 strcspn(lists[i], "=")), 0);
		}
		sf_mount_options_fini(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_as_documented),
		cmocka_unit_test(enums_are_in_the_order_of_fs_h),
		cmocka_unit_test(what_mount_passes_is_accepted),
		cmocka_unit_test(masks_and_modes),
		cmocka_unit_test(mistakes_are_explained),
		cmocka_unit_test(password_comes_from_file_or_environment),
		cmocka_unit_test(effective_options_can_be_printed),
		cmocka_unit_test(rdma_is_refused_where_it_is_not_built),
	};

	unsetenv("SEGFS_ETCD_PASSWORD");
	unsetenv("MC_METADATA_CLUSTER_ID");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
