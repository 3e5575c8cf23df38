/* for.h - frame of reference on the host, for codecs that store some vectors as `for` does. thread: any. */
#ifndef SW_FOR_H
#define SW_FOR_H

#include "codec/bitpack/numbers.h"

extern const struct sw_numbers_codec sw_numbers_for;

#endif
