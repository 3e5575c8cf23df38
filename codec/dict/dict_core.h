/* dict_core.h - how many values a dictionary has (dict/FORMAT.md), for host and device alike. */
#ifndef SW_DICT_CORE_H
#define SW_DICT_CORE_H

#include "codec/bitpack/bitpack_core.h"

/* The values are a plan's and a frame's symbols. */
#define SW_DICT_MAX_VALUES SW_FRAME_MAX_SYMBOLS

#endif
