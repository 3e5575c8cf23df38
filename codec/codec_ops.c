#include "codec/codec_ops.h"

#include "base/assert.h"

static const struct sw_codec_ops *const rows[SW_CODEC_NR] = {
#define SW_CODEC(id, NAME, name, ...) [id] = &sw_##name##_ops,
#include "codec/codecs.def"
};

const struct sw_codec_ops *sw_codec_ops(enum sw_codec_id codec) {
    SW_ASSERT((unsigned)codec < SW_CODEC_NR);
    return rows[codec];
}
