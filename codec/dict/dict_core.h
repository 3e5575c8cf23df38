/* dict_core.h - how many values a dictionary has (dict/FORMAT.md), for host and device alike. */
#ifndef SW_DICT_CORE_H
#define SW_DICT_CORE_H

#include "codec/bitpack/bitpack_core.h"
#include "codec/v5t/table.h"

/* The dictionary lies where v5t's symbols do, in a plan and in a frame. */
#define SW_DICT_MAX_VALUES SW_V5T_MAX_SYMBOLS

#endif
