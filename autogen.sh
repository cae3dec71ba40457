#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes ./configure from a git checkout.
set -e
cd "$(dirname "$0")"
exec autoreconf --install --force
