#include "base/choice.h"

#include <string.h>

bool sw_choice_has(const char *choices, const char *text) {
    const size_t bytes = strlen(text);
    for (const char *choice = choices; *choice;) {
        const size_t n = strcspn(choice, ",");
        if (n == bytes && strncmp(choice, text, n) == 0)
            return true;
        choice += n + strspn(choice + n, ", ");
    }
    return false;
}
