/* SPDX-License-Identifier: MIT */
/* The parts of a buffer's text form, for --help: see export.h. */
#ifndef SF_EXPORT_BUFFER_H
#define SF_EXPORT_BUFFER_H

#include "options.h"

extern const struct sf_option sf_export_buffer_table[];

#endif
