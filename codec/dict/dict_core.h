/* dict_core.h - the size of a dictionary (dict/FORMAT.md), for host and device. */
#ifndef SW_DICT_CORE_H
#define SW_DICT_CORE_H

#include "codec/bitpack/bitpack_core.h"

/* The dictionary's values are the symbols of a plan and of a frame. */
#define SW_DICT_MAX_VALUES SW_FRAME_MAX_SYMBOLS

#endif
