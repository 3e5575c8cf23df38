/* pfor_gpu.cu - frame of reference with exceptions and a divisor, on the GPU. */
#include "codec/pfor/patched_gpu.cuh"

namespace {

/* Gets the lane's numbers. ON_GRID: as numbers of the plan's grid, else as they are. */
template <unsigned BITS, bool ON_GRID> struct numbers {
    const uint32_t *x;
    const sw_gpu_content &content;

    __device__ inline bool find(uint64_t value, sw_gpu_number<BITS> *ret) const {
        uint64_t k = value ^ content.flip;
        const bool is_on = !ON_GRID || sw_grid_find(&content.grid, BITS, value ^ content.flip, &k);
        *ret = (sw_gpu_number<BITS>)k;
        return is_on;
    }
    __device__ inline bool operator()(unsigned i, sw_gpu_number<BITS> *ret) const {
        return find(sw_get_value<BITS>(x, i), ret);
    }
};

struct codec_pfor : sw_pfor_decoder {
    template <unsigned BITS, bool ON_GRID>
    __device__ static __forceinline__ sw_gpu_head head_of(const uint32_t *x, const sw_gpu_content &content) {
        const sw_gpu_patched p = sw_choose_patched<BITS>(SW_VECTOR_VALUES, 0, numbers<BITS, ON_GRID>{x, content});
        const uint64_t divisor = ON_GRID ? content.grid.divisor : 1;
        const uint64_t first = p.window.from * divisor + (ON_GRID ? content.grid.residue : 0);
        sw_gpu_head head = {(sw_gpu_number<BITS>)(first ^ content.flip), divisor, p.width, 0,
                            SW_VECTOR_VALUES - p.n_packed};
        head.tag |= ON_GRID ? SW_PATCHED_HAS_STEP : 0;
        head.units = units(BITS, head);
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content, uint32_t) {
        if (content.grid.divisor == 1)
            return head_of<BITS, false>(x, content);
        const sw_gpu_head head = head_of<BITS, true>(x, content);
        if (sw_alp_exceptions(head.tag) <= SW_PFOR_FEW_EXCEPTIONS)
            return head;
        const sw_gpu_head plain = head_of<BITS, false>(x, content);
        return plain.units < head.units ? plain : head;
    }

    template <unsigned BITS, bool ON_GRID>
    __device__ static __forceinline__ void store_as(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                    uint8_t *to, uint32_t lane) {
        constexpr unsigned PER_UNIT = 128 / BITS;
        using word = sw_gpu_number<BITS>;
        const numbers<BITS, ON_GRID> number = {x, content};
        const word last = (word)sw_patched_last(head.width);
        uint8_t *at = to + head.width * SW_WARP * 4;
        sw_gpu_exceptions<BITS> rest(at + sw_patched_step_bytes(BITS, head.tag), sw_alp_exceptions(head.tag));
        word from;
        (void)number.find(head.base, &from);
        if (ON_GRID && lane == 0)
            sw_store_value<BITS>(at, 0, head.step);
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            word packed[PER_UNIT];
            uint32_t bad = 0;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++) {
                const bool is_packed = number(i + k, &packed[k]) && packed[k] - from <= last;
                packed[k] = is_packed ? packed[k] - from : 0;
                bad |= (uint32_t)!is_packed << k;
            }
            if (rest.n && __any_sync(0xFFFFFFFFu, bad))
                rest.template put<BITS>(i, bad, lane, [&](unsigned k) { return sw_get_value<BITS>(x, i + k); });
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++)
                sw_set_value<BITS>(x, i + k, packed[k]);
        }
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
        sw_pack_vector<BITS>(head.width, x, to, lane);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        if (head.tag & SW_PATCHED_HAS_STEP)
            store_as<BITS, true>(x, head, content, to, lane);
        else
            store_as<BITS, false>(x, head, content, to, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(pfor, codec_pfor);
