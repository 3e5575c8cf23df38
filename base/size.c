#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char letters[] = "KMGT";
static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"TiB", UINT64_C(1) << 40}, {"GiB", UINT64_C(1) << 30}, {"MiB", UINT64_C(1) << 20}, {"KiB", UINT64_C(1) << 10}};
enum { UNIT_COUNT = sizeof units / sizeof units[0] };

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static uint64_t saturated_sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Returns a * b / c, rounded down, at most UINT64_MAX. */
static uint64_t scaled(uint64_t a, uint64_t b, uint64_t c) {
    const unsigned __int128 exact = (unsigned __int128)a * b / c;
    return exact > UINT64_MAX ? UINT64_MAX : (uint64_t)exact;
}

static uint64_t take_digits(const char **at) {
    uint64_t number = 0;
    for (; is_digit(**at); ++*at)
        number = saturated_sum(scaled(number, 10, 1), (uint64_t)(**at - '0'));
    return number;
}

/* Returns the unit at *at, and moves *at past it. If there is no unit it returns 1 and leaves *at unchanged. */
static uint64_t take_unit(const char **at) {
    const char *unit = *at + strspn(*at, " ");
    const char *letter = *unit ? strchr(letters, *unit) : NULL;
    if (!letter && *unit != 'B')
        return 1;
    *at = unit + (letter && strncmp(unit + 1, "iB", 2) == 0 ? 3 : 1);
    return letter ? UINT64_C(1) << 10 * (letter - letters + 1) : 1;
}

bool sw_size_take(const char **text, uint64_t *ret) {
    enum { MAX_DECIMALS = 18 };
    const char *at = *text;
    uint64_t fraction = 0, denominator = 1;
    if (!is_digit(*at))
        return false;
    const uint64_t whole = take_digits(&at);
    if (at[0] == '.' && is_digit(at[1])) {
        at++;
        for (int i = 0; is_digit(*at); at++, i++)
            if (i < MAX_DECIMALS) {
                fraction = 10 * fraction + (uint64_t)(*at - '0');
                denominator *= 10;
            }
    }
    const uint64_t unit = take_unit(&at);
    *ret = saturated_sum(scaled(whole, unit, 1), scaled(fraction, unit, denominator));
    *text = at;
    return true;
}

bool sw_size_parse(const char *text, uint64_t *ret) {
    return sw_size_take(&text, ret) && !*text;
}

const char *sw_size_format(char *ret, size_t ret_bytes, uint64_t bytes) {
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (bytes && bytes % units[i].bytes == 0) {
            (void)snprintf(ret, ret_bytes, "%" PRIu64 " %s", bytes / units[i].bytes, units[i].name);
            return ret;
        }
    (void)snprintf(ret, ret_bytes, "%" PRIu64, bytes);
    return ret;
}
