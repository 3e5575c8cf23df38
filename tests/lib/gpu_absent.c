/* gpu_absent.c - stands in for a GPU test in a build without CUDA. */
#include <stdio.h>

int main(void) {
    (void)puts("skipped: built without CUDA");
    return 77;
}
