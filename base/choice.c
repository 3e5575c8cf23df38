#include "base/choice.h"

#include <string.h>

/* Returns the next choice, and its length; NULL: there is none. */
static const char *next(const char **at, size_t *ret_bytes) {
    const char *choice = *at;
    *ret_bytes = strcspn(choice, ",");
    *at += *ret_bytes + strspn(choice + *ret_bytes, ", ");
    return *choice ? choice : NULL;
}

int sw_choice_number(const char *choices, const char *text) {
    const char *choice;
    size_t bytes;
    for (int i = 0; (choice = next(&choices, &bytes)); i++)
        if (strlen(text) == bytes && strncmp(choice, text, bytes) == 0)
            return i;
    return -1;
}

bool sw_choice_has(const char *choices, const char *text) {
    return sw_choice_number(choices, text) >= 0;
}

void sw_choice_text(char *ret, size_t ret_bytes, const char *choices, unsigned number) {
    const char *choice;
    size_t bytes = 0;
    while ((choice = next(&choices, &bytes)) && number > 0)
        number--;
    if (!choice || bytes >= ret_bytes)
        bytes = 0;
    memcpy(ret, choice ? choice : "", bytes);
    ret[bytes] = 0;
}
