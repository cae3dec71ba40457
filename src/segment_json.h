/* SPDX-License-Identifier: MIT */
/*
 * The two JSON documents of a segment, into a draft (protocol sections 2 and
 * 5.1). Whatever is in them, these return; what is wrong is among the draft's
 * problems. Unknown members are ignored, null is the same as missing, and of a
 * member given twice the last counts, as for Mooncake.
 */
#ifndef SF_SEGMENT_JSON_H
#define SF_SEGMENT_JSON_H

#include <stddef.h>

struct sf_draft;

void sf_segment_json_decode(struct sf_draft *d, const char *text, size_t len);
void sf_rpc_meta_json_decode(struct sf_draft *d, const char *text, size_t len);

#endif
