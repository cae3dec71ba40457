/* SPDX-License-Identifier: MIT */
/* What every unit test includes: cmocka and what it wants before it. */
#ifndef SF_TEST_UNIT_H
#define SF_TEST_UNIT_H

#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
